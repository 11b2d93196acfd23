"""The foreign store reports only outcomes that obstore proves, because stress runs rely on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.testing.stress.foreign import ForeignStore
from commitlog.urls import parse_store_url
from support.fuzzing import Canned, http

pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def canned() -> Iterator[Canned]:
    """A server that answers with prepared responses."""
    with Canned() as server:
        yield server


@pytest.fixture
def store(canned: Canned) -> ForeignStore:
    """A client of the server."""
    options = {
        "endpoint_url": f"http://127.0.0.1:{canned.port}",
        "region": "us-east-1",
        "access_key_id": "a",
        "secret_access_key": "b",
    }
    url = parse_store_url("s3://bucket/lake").with_options(options)
    return ForeignStore(url, table="leases", timeout=3.0)


def said(body: bytes = b"", status: object = "200 OK", **headers: object) -> bytes:
    """Return a response about an object."""
    modified = "Sun, 22 Nov 2026 11:00:00 GMT"
    return http(body, status, Last_Modified=modified, Connection="close", **headers)


NOTHING = said(status="404 Not Found")
THEIRS = said(ETag='"theirs"')
UNNAMED = said()
CONFLICT = said(status="409 Conflict")
REFUSAL = said(status="412 Precondition Failed")
LEASED = said(b"{}")
DONE = said(ETag='"new"')

CREATE: Any = lambda store: store.put_if_absent("a", b"1", metadata={})  # noqa: E731
UPDATE: Any = lambda store: store.put_if_match("a", b"1", etag='"e"', metadata={})  # noqa: E731


@pytest.mark.parametrize(
    ("call", "answers", "error"),
    [
        pytest.param(CREATE, [THEIRS], AlreadyExists, id="create, object"),
        pytest.param(CREATE, [UNNAMED], AlreadyExists, id="create, object without an etag"),
        pytest.param(CREATE, [CONFLICT], OutcomeUnknown, id="create, conflict"),
        pytest.param(CREATE, [NOTHING, LEASED, CONFLICT], OutcomeUnknown, id="create, conflict of put"),
        pytest.param(UPDATE, [THEIRS], PreconditionFailed, id="update, another object"),
        pytest.param(UPDATE, [NOTHING], PreconditionFailed, id="update, no object"),
        pytest.param(UPDATE, [UNNAMED], OutcomeUnknown, id="update, object without an etag"),
        pytest.param(UPDATE, [REFUSAL], OutcomeUnknown, id="update, refusal"),
        pytest.param(UPDATE, [CONFLICT], OutcomeUnknown, id="update, conflict"),
        pytest.param(CREATE, [NOTHING, LEASED, UNNAMED], OutcomeUnknown, id="create, put, no etag"),
        pytest.param(CREATE, [NOTHING, LEASED, NOTHING], OutcomeUnknown, id="create, put, no bucket"),
    ],
)
def test_a_refusal_needs_a_read_that_explains_it(
    canned: Canned,
    store: ForeignStore,
    call: Callable[[ForeignStore], object],
    answers: list[bytes],
    error: type[CommitError],
) -> None:
    """A status, or an answer without an etag, does not prove the state of the object."""
    canned.give(*answers)
    with pytest.raises(error):
        call(store)
    assert canned.served == len(answers)


def test_a_create_that_succeeds_returns_its_etag(canned: Canned, store: ForeignStore) -> None:
    """The client reads the object, takes a lease and puts the object."""
    canned.give(NOTHING, LEASED, DONE)
    assert CREATE(store).etag == '"new"'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(NOTHING, NotFound, id="nothing"),
        pytest.param(said(b"abc"), Unavailable, id="no etag"),
        pytest.param(said(b"abc", ETag='"e"', content_length=9), Unavailable, id="cut short"),
        pytest.param(CONFLICT, Unavailable, id="conflict"),
    ],
)
def test_a_read_is_whole_or_none(
    canned: Canned, store: ForeignStore, answer: bytes, error: type[CommitError]
) -> None:
    """An answer without an etag is an error."""
    canned.give(answer)
    with pytest.raises(error):
        store.get("a")
    canned.give(said(b"abc", ETag='"e"', x_amz_meta_version="w"))
    found = store.get("a")
    assert (found.data, found.etag, found.metadata["version"]) == (b"abc", '"e"', "w")
