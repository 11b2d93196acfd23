"""Fenced writes: a smaller token is refused, wherever tokens are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    PreconditionFailed,
    StaleToken,
)
from commitlog.locks import FencedStore
from commitlog.stores import MemoryStore
from commitlog.testing import ManualClock

_Make = Callable[..., FencedStore]


@pytest.fixture
def store() -> ConditionalStore:
    """The store itself."""
    return ConditionalStore(MemoryStore(), clock=ManualClock())


@pytest.fixture(params=["content", "metadata"])
def fenced(request: pytest.FixtureRequest, store: ConditionalStore) -> FencedStore:
    """A client of the store."""
    return FencedStore(store, keep=request.param, clock=ManualClock())


def test_a_smaller_token_is_refused(fenced: FencedStore) -> None:
    """An equal or larger one is not."""
    fenced.put("a", b"1", token=5)
    fenced.put("a", b"2", token=5)
    fenced.put("a", b"3", token=7)
    with pytest.raises(StaleToken, match="token 7, which is larger than 6"):
        fenced.put("a", b"late", token=6)
    found = fenced.get("a")
    assert (found.data, found.token) == (b"3", 7)
    with pytest.raises(StaleToken):
        fenced.put_if_match("a", b"late", etag=found.etag, token=6)
    with pytest.raises(StaleToken):  # which no repetition helps, unlike another etag
        fenced.put_if_match("a", b"late", etag="another", token=6)
    with pytest.raises(StaleToken):
        fenced.claim("a", token=6)
    etag = fenced.put_if_match("a", b"4", etag=found.etag, token=7).etag
    with pytest.raises(PreconditionFailed):
        fenced.put_if_match("a", b"5", etag=found.etag, token=8)
    with pytest.raises(PreconditionFailed, match="no object"):
        fenced.put_if_match("b", b"5", etag=etag, token=8)
    assert (fenced.get("a").data, fenced.get("a").etag) == (b"4", etag)


def test_a_claim_keeps_the_content(fenced: FencedStore) -> None:
    """No earlier holder can write after it."""
    fenced.put("a", b"1", token=1)
    found = fenced.claim("a", token=2)
    assert (found.data, found.token) == (b"1", 2)
    assert fenced.get("a") == found
    with pytest.raises(StaleToken):
        fenced.put("a", b"late", token=1)
    fenced.put_if_match("a", b"2", etag=found.etag, token=2)
    with pytest.raises(NotFound):
        fenced.claim("none", token=2)


def test_a_creation_has_one_winner(fenced: FencedStore) -> None:
    """It stores the token, too."""
    fenced.put_if_absent("a", b"1", token=3)
    with pytest.raises(AlreadyExists):
        fenced.put_if_absent("a", b"2", token=4)
    assert fenced.get("a").token == 3


def test_a_write_that_was_overtaken_is_compared_again(
    fenced: FencedStore, store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version whose token was compared is gone when the write arrives."""
    fenced.put("a", b"1", token=1)
    put = ConditionalStore.put_if_match
    overtaken: list[Any] = []

    def late(self: ConditionalStore, *arguments: Any, **options: Any) -> Any:
        if not overtaken:
            overtaken.append(1)
            fenced.put("a", b"2", token=9)
        return put(self, *arguments, **options)

    monkeypatch.setattr(ConditionalStore, "put_if_match", late)
    with pytest.raises(StaleToken):
        fenced.put("a", b"late", token=1)
    assert fenced.get("a").data == b"2"


def test_versions_of_the_same_content_differ(store: ConditionalStore) -> None:
    """So an etag that is a digest of the content never comes back."""
    fenced = FencedStore(store)
    fenced.put("a", b"same", token=1)
    first = store.get("a").data
    fenced.put("a", b"same", token=1)
    assert store.get("a").data != first
    assert first.startswith(b"commitlog-fence 1 1 ") and first.endswith(b"\nsame")


def test_other_objects(store: ConditionalStore) -> None:
    """Without a token in the metadata it counts as 0; in the content it must be there."""
    store.put("a", b"plain")
    assert FencedStore(store, keep="metadata").get("a").token == 0
    FencedStore(store, keep="metadata").put("a", b"1", token=2)
    assert store.get("a").data == b"1"
    for call in (FencedStore(store).get, lambda path: FencedStore(store).put(path, b"x", token=9)):
        with pytest.raises(CorruptRecord, match="does not begin with a token"):
            call("a")
    store.put("a", b"commitlog-fence 2 17 x y z\n")
    with pytest.raises(FormatTooNew, match="upgrade"):
        FencedStore(store).get("a")
    store.put("b", b"x", metadata={"commitlog-fence": "-1"})
    with pytest.raises(CorruptRecord, match="is '-1'"):
        FencedStore(store, keep="metadata").get("b")


def test_wrong_arguments_are_refused(fenced: FencedStore, store: ConditionalStore) -> None:
    """Nothing is written."""
    for token in (-1, 2**63, True):
        with pytest.raises(ConfigurationError, match=r"lock\.token"):
            fenced.put("a", b"", token=token)
    with pytest.raises(ConfigurationError, match="keep"):
        FencedStore(store, keep="nowhere")  # type: ignore[arg-type]
    assert not list(store.list())
    fenced.put("a", b"", token=1)
    for wrong in (None, "2"):
        for write in (fenced.put, partial(fenced.put_if_match, etag=fenced.get("a").etag)):
            with pytest.raises(ConfigurationError, match=r"lock\.token"):
                write("a", b"", token=wrong)
