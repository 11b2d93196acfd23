"""The contract check of stores: it must catch a store that breaks a rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from attrs import evolve

from commitlog.errors import CommitError
from commitlog.stores.api import IfAbsent, ObjectData, ObjectInfo, Page, PutResult, Staged, StagedInfo
from commitlog.stores.memory import MemoryStore
from commitlog.testing import check_object_store


class _IgnoresConditions(MemoryStore):
    def put(self, path: str, body: Any, **options: Any) -> PutResult:
        return super().put(path, body, **{**options, "condition": None})


class _IgnoresTheConditionOfCopies(MemoryStore):
    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        return super().copy(source, target, **{**options, "condition": None})


class _ChecksThenActs(MemoryStore):
    def put(self, path: str, body: Any, **options: Any) -> PutResult:
        if isinstance(options.get("condition"), IfAbsent) and self.begin_head(path)().info is None:
            time.sleep(0.001)  # the gap in which another thread races; its length is not critical
            options["condition"] = None
        return super().put(path, body, **options)


class _IgnoresExpiry(MemoryStore):
    def delete(self, path: str, **options: Any) -> None:
        super().delete(path, **{**options, "expiry": None})


class _LosesMetadataOnCopy(MemoryStore):
    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        return super().put(target, self.get(source).data, **options)


class _CountsTheRange(MemoryStore):
    def get(self, path: str, **options: Any) -> ObjectData:
        found = super().get(path, **options)
        return evolve(found, size=len(found.data))


class _LosesOneBetweenPages(MemoryStore):
    def list_page(self, *args: Any, **options: Any) -> Page:
        page = super().list_page(*args, **options)
        return page if page.next_token is None else evolve(page, objects=page.objects[:-1])


class _ListsInNoOrder(MemoryStore):
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return reversed(list(super().list(prefix, start_after=start_after)))


class _DropsWhatItRefused(MemoryStore):
    def publish(self, staged: Staged, **options: Any) -> PutResult:
        try:
            return super().publish(staged, **options)
        except CommitError:
            self.abort(staged)
            raise


class _ShowsStagedObjects(MemoryStore):
    def stage(self, path: str, body: Any, **options: Any) -> Staged:
        staged = super().stage(path, body, **options)
        self.put(path, b"")
        return staged


class _ForgetsToAbort(MemoryStore):
    def abort(self, staged: Staged | StagedInfo) -> None:
        pass


class _LeavesTheLast(MemoryStore):
    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        return super().delete_many(list(paths)[:-1])


class _GoesInCircles(MemoryStore):
    def list_page(self, *args: Any, **options: Any) -> Page:
        page = super().list_page(*args, **{**options, "token": None})
        return page if page.next_token is None else evolve(page, next_token="again")


class _SameEtags(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._word: Callable[[], str] = lambda: "same"


@pytest.mark.parametrize(
    "mutant",
    [
        *(_IgnoresConditions, _IgnoresTheConditionOfCopies, _ChecksThenActs, _IgnoresExpiry),
        *(_LosesMetadataOnCopy, _CountsTheRange, _LosesOneBetweenPages, _ListsInNoOrder, _GoesInCircles),
        *(_DropsWhatItRefused, _ShowsStagedObjects, _ForgetsToAbort, _LeavesTheLast, _SameEtags),
    ],
)
def test_a_store_that_breaks_a_rule_is_caught(mutant: type[MemoryStore]) -> None:
    """Each mutant breaks one rule of the port, and the check raises AssertionError."""
    with pytest.raises(AssertionError):
        check_object_store(mutant())


def test_existing_objects_are_left_alone() -> None:
    """The check can run on a store in use: it removes only its own objects."""
    store = MemoryStore()
    store.put("mine", b"x")
    staged = store.stage("mine too", b"y")
    check_object_store(store, keys=1)
    assert [info.path for info in store.list()] == ["mine"]
    store.publish(staged)


def test_a_failed_check_cleans_up() -> None:
    """A check that fails removes its objects too."""
    store = _CountsTheRange()
    with pytest.raises(AssertionError):
        check_object_store(store)
    assert not list(store.list()) and not list(store.list_staged())
