"""Transfers of objects of any size: the number of requests, versions, and an early end."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import commitlog
from commitlog import transfer
from commitlog._util.read_ahead import NO_READ_AHEAD
from commitlog.cli import main
from commitlog.cli.file_io import read_object, save_object
from commitlog.commit import ConditionalStore
from commitlog.errors import ObjectChanged, PreconditionFailed
from commitlog.filesystem import CommitlogFileSystem
from commitlog.namespace import Namespace
from commitlog.stores.body import PUT_LIMIT
from commitlog.testing.proxy import Proxy
from commitlog.transfer import BLOCK_SIZE, read_blocks
from support.servers import Ministack

pytestmark = pytest.mark.servers

BODY = os.urandom(3 * BLOCK_SIZE + 5)


@pytest.fixture(scope="module")
def proxy(ministack: Ministack) -> Iterator[Proxy]:
    """A proxy in front of the server, which lists the requests."""
    with Proxy(ministack.endpoint_url) as found:
        yield found


@pytest.fixture
def bucket(ministack: Ministack, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket that the commands reach by the proxy."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ministack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ministack.secret_access_key)
    monkeypatch.setenv("COMMITLOG_ENDPOINT_URL", proxy.endpoint_url)
    monkeypatch.setenv("COMMITLOG_REGION", ministack.region)
    return ministack.new_bucket()


@pytest.fixture
def store(ministack: Ministack, proxy: Proxy, bucket: str) -> Iterator[ConditionalStore]:
    """The same bucket."""
    options = {**ministack.options, "endpoint_url": proxy.endpoint_url}
    found = commitlog.connect(f"s3://{bucket}", **options)
    yield found
    found.close()


@pytest.fixture
def namespace(ministack: Ministack, proxy: Proxy, bucket: str, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace with its content in the bucket."""
    url = f"s3://{bucket}/n?endpoint_url={proxy.endpoint_url}&region={ministack.region}"
    metadata = f"sqlite://{tmp_path}/m.db"
    with commitlog.create_namespace("n", store=url, metadata=metadata, log=False) as found:
        yield found


@pytest.fixture
def system(namespace: Namespace, tmp_path: Path) -> Iterator[CommitlogFileSystem]:
    """The file system of the namespace."""
    found = CommitlogFileSystem(f"sqlite://{tmp_path}/m.db", skip_instance_cache=True)
    yield found
    found.close()


def run(*words: str, status: int = 0) -> bytes:
    """Run a command; return its standard output."""
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == status, done.output
    return done.stdout_bytes


def methods(proxy: Proxy, call: Callable[[], object]) -> Counter[str]:
    """Return the methods of the requests that `call` sends; POST stands for the start of an upload."""
    proxy.requests()
    call()
    return Counter(each.partition(" ")[0] for each in proxy.requests())


def running() -> list[str]:
    """Return the names of the threads that read ahead."""
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name.startswith("commitlog-read-ahead")]


def threads_ended() -> bool:
    """Return whether all threads that read ahead have ended; wait for those that are about to."""
    found = [each for each in threading.enumerate() if each.name.startswith("commitlog-read-ahead")]
    for each in found:
        each.join(30)
    return not any(each.is_alive() for each in found)


# -- requests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "gets", "heads"),
    [
        (0, 1, 1),
        (1, 1, 0),
        (BLOCK_SIZE, 1, 0),
        (BLOCK_SIZE + 1, 2, 0),
        (3 * BLOCK_SIZE + 5, 4, 0),
    ],
)
def test_the_requests_of_get_and_cat(
    store: ConditionalStore, proxy: Proxy, bucket: str, tmp_path: Path, size: int, gets: int, heads: int
) -> None:
    """One for each block. Only an empty object takes another one, for its etag."""
    store.put("a", BODY[:size])
    expected = Counter(GET=gets) + Counter(HEAD=heads)
    url, file = f"s3://{bucket}/a", tmp_path / "a"
    assert methods(proxy, lambda: run("get", url, str(file))) == expected
    assert file.read_bytes() == BODY[:size]
    shown = io.BytesIO()
    assert methods(proxy, lambda: shown.write(run("cat", url))) == expected
    assert shown.getvalue() == BODY[:size]
    assert threads_ended()


@pytest.mark.parametrize(
    ("size", "parts"), [(0, 0), (1, 0), (PUT_LIMIT, 0), (PUT_LIMIT + 1, 3), (3 * BLOCK_SIZE, 3)]
)
def test_the_requests_of_put(
    store: ConditionalStore, proxy: Proxy, bucket: str, tmp_path: Path, size: int, parts: int
) -> None:
    """One up to 16 MiB; above, one for each part, the first and the last of an upload."""
    file = tmp_path / "a"
    file.write_bytes(BODY[:size])
    expected = Counter(POST=1, PUT=parts, PUBLISH=1) if parts else Counter(PUT=1)
    assert methods(proxy, lambda: run("put", str(file), f"s3://{bucket}/a")) == expected
    assert store.get("a").data == BODY[:size]


@pytest.mark.parametrize("size", [0, BLOCK_SIZE, BLOCK_SIZE + 1, len(BODY)])
def test_the_requests_of_a_conditional_put(store: ConditionalStore, proxy: Proxy, size: int) -> None:
    """Above 8 MiB, the condition is on the last request of an upload."""
    for number in range(2):  # the first call also probes the store
        parts = Counter(HEAD=1, POST=1, PUT=-(-size // BLOCK_SIZE), PUBLISH=1)
        sent = methods(proxy, partial(store.put_if_absent, f"{number}", BODY[:size]))
    assert sent == (parts if size > BLOCK_SIZE else Counter(PUT=1))
    assert store.get("1").data == BODY[:size]


@pytest.mark.parametrize(("size", "parts"), [(0, 0), (BLOCK_SIZE, 0), (len(BODY), 4)])
def test_the_requests_of_a_put_to_a_namespace(
    namespace: Namespace, proxy: Proxy, tmp_path: Path, size: int, parts: int
) -> None:
    """Files above 8 MiB are sent in parts."""
    (tmp_path / "a").write_bytes(BODY[:size])
    words = ("fs", "put", f"--metadata=sqlite://{tmp_path}/m.db", f"{tmp_path}/a", "commitlog://n/a")
    sent = methods(proxy, lambda: run(*words))
    assert sent == (Counter(POST=1, PUT=parts, PUBLISH=1) if parts else Counter(PUT=1))
    assert namespace.read("a") == BODY[:size]


@pytest.mark.parametrize(("size", "gets"), [(0, 0), (1, 1), (BLOCK_SIZE, 1), (len(BODY), 4)])
def test_the_requests_of_a_file_of_a_namespace(
    namespace: Namespace, proxy: Proxy, tmp_path: Path, size: int, gets: int
) -> None:
    """The table has the etag, so an empty file takes no request to the store."""
    namespace.write("a", BODY[:size])
    metadata = f"--metadata=sqlite://{tmp_path}/m.db"
    file = tmp_path / "a"
    got = methods(proxy, lambda: run("fs", "get", metadata, "commitlog://n/a", str(file)))
    assert got == Counter(GET=gets) and file.read_bytes() == BODY[:size]
    shown = io.BytesIO()
    words = ("fs", "cat", metadata, "commitlog://n/a")
    assert methods(proxy, lambda: shown.write(run(*words))) == Counter(GET=gets)
    assert shown.getvalue() == BODY[:size]


def test_the_requests_of_the_file_system(
    namespace: Namespace, system: CommitlogFileSystem, proxy: Proxy, tmp_path: Path
) -> None:
    """A whole file above 16 MiB is read in blocks, and one that is read in sequence is, too."""
    namespace.write("a", BODY)
    namespace.write("small", BODY[: 2 * BLOCK_SIZE])
    assert methods(proxy, lambda: system.cat_file("n/small")) == Counter(GET=1)
    assert methods(proxy, lambda: system.cat_file("n/a")) == Counter(GET=4)
    assert system.cat_file("n/a") == BODY
    assert methods(proxy, lambda: system.cat_file("n/a", 1, len(BODY))) == Counter(GET=1)
    in_blocks = Counter(GET=-(-len(BODY) // system.blocksize))
    assert methods(proxy, lambda: system.get_file("n/a", str(tmp_path / "a"))) == in_blocks
    assert (tmp_path / "a").read_bytes() == BODY

    def read() -> None:
        with system.open("n/a") as file:
            assert b"".join(iter(lambda: file.read(1_000_000), b"")) == BODY

    # Two reads of the range and 4 MiB more, then blocks of 8 MiB.
    assert methods(proxy, read) == Counter(GET=2 + 2)
    assert threads_ended()


@pytest.mark.all
def test_reading_columns_of_parquet_costs_at_most_twice_the_requests(
    namespace: Namespace, system: CommitlogFileSystem, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of Parquet seek. What was read ahead then was no more than what was read in sequence."""
    sink = io.BytesIO()
    numbers = {f"c{n}": pa.array(os.urandom(2_000_000)) for n in range(4)}
    table = pa.table({name: column.cast(pa.int64()) for name, column in numbers.items()})
    pq.write_table(table, sink, row_group_size=500_000, compression="none", use_dictionary=False)
    namespace.write("a.parquet", sink.getvalue())

    def read(*columns: str) -> Counter[str]:
        def call() -> None:
            with system.open("n/a.parquet") as file:
                found = pq.read_table(file, columns=list(columns), use_threads=False, pre_buffer=False)
            assert found.num_rows == 2_000_000

        return methods(proxy, call)

    with_it = read("c1"), read("c0", "c2")
    monkeypatch.setattr(transfer, "READ_AHEAD", NO_READ_AHEAD)
    for found, without in zip(with_it, (read("c1"), read("c0", "c2")), strict=True):
        assert found.keys() == {"GET"} and 0 < found["GET"] <= 2 * without["GET"]


# -- versions ------------------------------------------------------------------------------------------


def test_an_object_that_changes_is_never_mixed(store: ConditionalStore) -> None:
    """Blocks of the old version, then the error."""
    store.put("a", BODY)
    info, blocks = read_object(store, "a")
    assert next(blocks) == BODY[:BLOCK_SIZE]
    store.put("a", BODY[::-1])
    with pytest.raises(PreconditionFailed, match=info.etag.strip('"')):
        next(blocks)
    assert list(blocks) == []
    assert threads_ended()


def test_a_download_of_an_object_that_changes_leaves_the_file(
    store: ConditionalStore, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 3, the local file is the old one, and no other is there."""
    store.put("a", BODY)
    (tmp_path / "a").write_bytes(b"old")
    get = ConditionalStore.get

    def get_and_replace(self: ConditionalStore, path: str, *, start: int = 0, end: int = 0) -> object:
        found = get(self, path, start=start, end=end)
        if not start:
            self.put(path, BODY[::-1])
        return found

    monkeypatch.setattr(ConditionalStore, "get", get_and_replace)
    run("get", f"s3://{bucket}/a", str(tmp_path / "a"), status=3)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"a": b"old"}
    assert threads_ended()


def test_a_file_whose_object_changes_is_never_mixed(namespace: Namespace) -> None:
    """The error has its type, and blocks before it are those of the version that was opened."""
    namespace.write("a", BODY)
    opened = namespace.open("a")
    blocks = read_blocks(opened, ramp_up=True)
    assert next(blocks) == BODY[:BLOCK_SIZE]
    namespace.store.put(opened.data.path, BODY[::-1])
    found = []
    with pytest.raises(ObjectChanged):
        found.extend(blocks)
    # At most the block that was on its way when the object was replaced.
    assert found in ([], [BODY[BLOCK_SIZE : 2 * BLOCK_SIZE]])
    assert threads_ended()


# -- an early end --------------------------------------------------------------------------------------


def test_a_closed_iterator_leaves_no_thread(store: ConditionalStore) -> None:
    """The reader has taken two blocks of four."""
    store.put("a", BODY)
    _, blocks = read_object(store, "a")
    next(blocks), next(blocks)
    blocks.close()
    assert not running()


def test_a_download_that_fails_leaves_no_thread(store: ConditionalStore, tmp_path: Path) -> None:
    """The first error ends it, here one of the local disk."""
    store.put("a", BODY)
    (tmp_path / "a").touch()
    with open(tmp_path / "a", "rb") as read_only, pytest.raises(OSError):
        save_object(store, "a", read_only, started=lambda info: lambda size: None)
    assert not running()
    numbers = iter([1, 0])
    with open(tmp_path / "b", "wb") as target, pytest.raises(ZeroDivisionError):
        save_object(store, "a", target, started=lambda info: lambda size: 1 // next(numbers))
    assert not running()


def test_a_closed_file_leaves_no_thread(namespace: Namespace, system: CommitlogFileSystem) -> None:
    """A file that was read in sequence in part, and closed or dropped."""
    namespace.write("a", BODY)
    for _ in range(2):
        file = system.open("n/a", block_size=1_000_000)
        assert b"".join(file.read(1_000_000) for _ in range(9)) == BODY[:9_000_000]
        file.close()
        assert threads_ended()


def test_a_closed_pipe_ends_cat(store: ConditionalStore, bucket: str) -> None:
    """The process ends as with SIGPIPE, without a message."""
    store.put("a", BODY)
    command = [sys.executable, "-m", "commitlog", "cat", f"s3://{bucket}/a"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(1) == BODY[:1]
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141
