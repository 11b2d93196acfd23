"""Small files that are fetched while earlier ones are read: limits, versions, and errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from commitlog._util.concurrency import SerialExecutor
from commitlog.errors import InputMissing, Unavailable
from commitlog.ingest import Fetch, File, IngestSettings, Partition, Quarantine, Slice
from commitlog.ingest.fetch import MAX_BYTES, MAX_FILES, SMALL_BYTES, prefetch
from commitlog.stores.api import ObjectData
from commitlog.testing import ManualClock
from support.ingest import Bucket, read, state_table


class Lazy(SerialExecutor):
    """An executor that runs a call when its result is requested, and records all submitted calls."""

    def __init__(self) -> None:
        self.begun: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Record a call."""
        future: Future[Any] = Future()
        self.begun.append(future)
        future.result = lambda timeout=None: fn()  # type: ignore[method-assign]
        return future


class Place:
    """A bucket of files of the given sizes, and their reader."""

    def __init__(self, sizes: list[int], executor: Any, **policies: Any) -> None:
        self.store = Bucket(clock=ManualClock())
        self.files = []
        for number, size in enumerate(sizes):
            self.store.put(f"{number:03}", bytes(size))
            self.files.append(File.of(self.store.head(f"{number:03}")))
        self.slices = [Slice(file, 0, file.size) for file in self.files]
        settings = IngestSettings(source="s", remember="everything", **policies)
        self.problems = Quarantine(state_table(), "s", clock=ManualClock())
        self.fetch = Fetch(self.store, self.problems, settings, executor=executor)

    def read(self) -> list[str]:
        """Return the path of each byte that is read."""
        return [path for path, _, _ in read(self.fetch, Partition(1, tuple(self.slices)))]


def test_small_files_are_fetched_in_parallel_and_read_in_order() -> None:
    """All threads of the executor send requests. The records come in the same order as without it."""
    together = threading.Barrier(4, timeout=30)
    with ThreadPoolExecutor(4) as executor:
        place = Place([3] * 12, executor)
        get = place.store.get

        def slow(path: str, **options: Any) -> ObjectData:
            together.wait()
            return get(path, **options)

        place.store.get = slow  # type: ignore[method-assign]
        assert place.read() == [f"{number:03}" for number in range(12) for _ in range(3)]


def test_files_in_flight_are_bounded() -> None:
    """Files and bytes that are fetched ahead have limits. Large files are not fetched ahead."""

    def most(sizes: list[int]) -> int:
        executor, place = Lazy(), Place(sizes, None)
        found = 0
        for number, (each, fetched) in enumerate(prefetch(place.store, place.slices, executor)):
            assert each == place.slices[number]
            assert (fetched is None) == (each.size > SMALL_BYTES)
            found = max(found, len(executor.begun) - number)
        assert len(executor.begun) == sum(size <= SMALL_BYTES for size in sizes)
        return found

    assert most([1] * 40) == MAX_FILES
    assert most([SMALL_BYTES] * 20) == MAX_BYTES // SMALL_BYTES
    assert most([SMALL_BYTES + 1] * 2) == 0


def test_at_most_the_listed_size_of_a_file_is_fetched() -> None:
    """A file that has grown since takes no more memory, and is reported as changed."""
    asked: list[dict[str, Any]] = []
    place = Place([3, 3], Lazy())
    place.store.put("001", bytes(1000))
    get = place.store.get

    def kept(path: str, **options: Any) -> ObjectData:
        asked.append(options)
        return get(path, **options)

    place.store.get = kept  # type: ignore[method-assign]
    assert place.read() == ["000"] * 3
    assert {(each["start"], each["end"]) for each in asked} == {(0, 3)}
    assert [problem.kind for problem in place.problems] == ["changed"]


@pytest.mark.parametrize("policy", ["skip", "fail"])
def test_an_error_belongs_to_its_own_file(policy: str) -> None:
    """The files before a missing one are read, and under `skip` also those after it."""
    place = Place([2, 2, 2], Lazy(), missing=policy)
    place.store.delete("001")
    if policy == "skip":
        assert place.read() == ["000", "000", "002", "002"]
        (problem,) = place.problems
        assert (problem.kind, problem.slice.file.path) == ("missing", "001")
        return
    seen: list[str] = []
    with pytest.raises(InputMissing, match="001"):
        _read_into(seen, place)
    assert seen == ["000", "000"]


def test_requests_that_were_not_sent_are_cancelled_with_the_task() -> None:
    """A task that fails or is not read to its end cancels the requests that were not yet sent."""
    executor = Lazy()
    place = Place([2] * 5, executor)

    def fails(path: str, **options: Any) -> ObjectData:
        raise Unavailable("no answer")

    place.store.get = fails  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        place.read()
    assert [each.cancelled() for each in executor.begun] == [False, True, True, True, True]


def _read_into(seen: list[str], place: Place) -> None:
    def decode(pinned: Any, slice: Slice) -> Iterator[list[str]]:
        data = pinned.get(slice.file.path).data
        yield [slice.file.path] * len(data)

    partition = Partition(1, tuple(place.slices))
    for batch in place.fetch.read(partition, decode, count=len, drop=lambda batch, first: batch[first:]):
        seen += batch
