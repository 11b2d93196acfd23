"""Uploads of dead writers: which of them are aborted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from commitlog.aws import AwsOptions
from commitlog.clock import SystemClock
from commitlog.errors import NotFound, Unavailable
from commitlog.namespace import Namespace, abort_uploads
from commitlog.stores.api import ObjectStore
from commitlog.stores.local.store import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.stores.s3.store import S3Store
from commitlog.testing import ManualClock
from support.namespace import ServiceTable

DAY = 86400.0

#: More bytes than a writer buffers.
BIG = bytes(9 << 20)


@pytest.fixture(params=["memory", "local", pytest.param("ministack", marks=pytest.mark.servers)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty store that uses the system clock."""
    if request.param == "memory":
        made: ObjectStore = MemoryStore(f"memory://{tmp_path.name}")
    elif request.param == "local":
        made = LocalStore(tmp_path)
    else:
        server = request.getfixturevalue(request.param)
        made = S3Store(f"s3://{server.new_bucket()}/lake", options=AwsOptions(**server.options))
    with closing(made):
        yield made


@pytest.fixture
def lake(store: ObjectStore) -> Namespace:
    """A new namespace."""
    lake = Namespace(ServiceTable(), store, "lake")
    lake.create()
    return lake


def _paths(store: ObjectStore) -> set[str]:
    return {upload.path for upload in store.list_staged()}


def test_uploads_of_dead_writers_are_aborted(lake: Namespace, store: ObjectStore) -> None:
    """Uploads of content are aborted after a week, finished or not. Other uploads never are."""
    writer = lake.open_writer("dead")
    writer.write(BIG)
    store.begin_stage(f"abc/abc{'0' * 29}").finish()
    others = {"out/day=1/part-0", "_commitlog/out/manifest", f"lake/abc/abc{'0' * 29}", "abc/part-0"}
    for path in others:
        store.begin_stage(path).finish()
    lake.write("alive", b"2")
    own = _paths(store) - others
    assert len(own) == 2
    now = SystemClock().epoch()
    assert abort_uploads(lake, clock=ManualClock(epoch=now + 6 * DAY)) == 0
    assert _paths(store) == own | others
    assert abort_uploads(lake, clock=ManualClock(epoch=now + 8 * DAY)) == 2
    assert _paths(store) == others
    assert abort_uploads(lake, older_than=0) == 0
    writer.abort()
    assert lake.read("alive") == b"2"


def test_a_writer_whose_upload_was_aborted_creates_no_file(lake: Namespace, store: ObjectStore) -> None:
    """Its commit raises an error."""
    writer = lake.open_writer("late")
    writer.write(BIG)
    assert abort_uploads(lake, clock=ManualClock(epoch=SystemClock().epoch() + 8 * DAY)) == 1
    with pytest.raises((NotFound, Unavailable)):
        writer.commit()
    writer.abort()
    assert not lake.exists("late")
    assert _paths(store) == set()
