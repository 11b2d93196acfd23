"""The number of requests of each operation, as docs/namespace.md states it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from commitlog._util.concurrency import SERIAL, SerialExecutor
from commitlog.errors import Unavailable
from commitlog.namespace import Namespace, RequestCounts
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import InFlight, Item, Key
from commitlog.testing import ManualClock
from support.namespace import InterceptedTable, ServiceTable, stored
from support.project import ROOT

LAKE = "lake"


def link_many(lake: Namespace, *paths: str) -> None:
    """Link files at these paths."""
    lake.link_many({path: stored(lake.store, path) for path in paths})


def bulk_link(lake: Namespace, directory: str, files: int) -> None:
    """Link this number of files in a directory."""
    lake.bulk_link(directory, {f"{each}": stored(lake.store, f"{each}") for each in range(files)})


#: Operation, reads, listings, writes in its one transaction, and the number of checks among them.
COSTS: list[tuple[Callable[[Namespace], object], int, int, int, int]] = [
    (lambda lake: lake.stat("d/e/f"), 3, 0, 0, 0),
    (lambda lake: lake.read("d/e/f"), 3, 0, 0, 0),
    (lambda lake: list(lake.list("d/e")), 2, 1, 0, 0),
    (lambda lake: lake.write("d/e/new", b""), 3, 0, 2, 0),
    (lambda lake: lake.write("d/e/new", b"", overwrite=False), 6, 0, 2, 0),
    (lambda lake: lake.write("d/e/f", b""), 3, 0, 2, 0),
    (lambda lake: lake.write("d/x/y/f", b""), 2, 0, 8, 0),
    (lambda lake: lake.make_directory("d/e/new"), 3, 0, 4, 0),
    (lambda lake: lake.make_directory("d/e"), 2, 0, 0, 0),
    (lambda lake: lake.rename("d/e/f", "d/e/g"), 4, 0, 3, 0),
    (lambda lake: lake.rename("d/e/f", "d/h/g"), 5, 0, 3, 0),
    (lambda lake: lake.rename("d/e/f", "d/h/i", overwrite=True), 5, 0, 3, 0),
    (lambda lake: lake.rename("d/e", "d/z"), 3, 0, 4, 0),
    (lambda lake: lake.rename("d/e", "e"), 4, 0, 5, 1),
    (lambda lake: lake.rename("a/b/c", "d/e/c"), 6, 0, 8, 4),
    (lambda lake: lake.replace("d/e", "d/h"), 3, 0, 6, 0),
    (lambda lake: lake.replace("d/e", "a"), 3, 0, 7, 1),
    (lambda lake: lake.replace("d/e", "d/new"), 3, 0, 4, 0),
    (lambda lake: link_many(lake, "d/e/1", "d/e/2", "d/e/3"), 5, 0, 4, 0),
    (lambda lake: link_many(lake, "d/e/f", "d/h/i"), 5, 0, 4, 0),
    (lambda lake: link_many(lake, "d/e/1", "d/x/1", "d/x/2"), 4, 0, 8, 0),
    (lambda lake: bulk_link(lake, "d/e", 99), 2, 0, 100, 0),
    (lambda lake: lake.delete("d/e/f"), 3, 0, 2, 0),
    (lambda lake: lake.delete("d/e/empty"), 4, 1, 4, 0),
    (lambda lake: lake.delete("d", recursive=True), 1, 0, 4, 0),
    (lambda lake: lake.set_attributes("d/e/f", modified=1), 3, 0, 1, 0),
    (lambda lake: lake.reshard("d/e", shards=4), 2, 0, 5, 0),
]


def opened() -> Namespace:
    """Return a new namespace."""
    clock = ManualClock()
    lake = Namespace(ServiceTable(clock=clock), MemoryStore(clock=clock), LAKE, clock=clock)
    lake.create()
    return lake


@pytest.mark.parametrize("number", range(len(COSTS)))
def test_an_operation_takes_the_documented_requests(number: int) -> None:
    """Each name costs a read, once for a common prefix of two paths, and a change takes one transaction.

    The metadata is read once before.
    """
    operation, gets, queries, writes, checks = COSTS[number]
    lake = opened()
    for path in ("d/e/empty", "a/b/c/x"):
        lake.make_directory(path)
    for path in ("d/e/f", "d/h/i", *(f"d/e/many/{number}" for number in range(20))):
        lake.write(path, b"1")
    before = lake.request_stats
    operation(lake)
    found = lake.request_stats.since(before).total
    assert (found.gets, found.queries, found.writes, found.checks) == (gets, queries, writes, checks)
    assert found.transactions == (writes > 0)
    assert found.table == gets + queries + found.transactions


def test_linking_many_takes_one_round_trip_per_level() -> None:
    """This holds for any number of files and directories; a request takes 20 ms of the virtual clock."""
    clock = ManualClock()
    wire = InterceptedTable(ServiceTable(clock=clock))
    lake = Namespace(wire, MemoryStore(clock=clock), LAKE, clock=clock)
    lake.create()
    paths = [f"{top}/{upper}/{name}" for top in "abc" for upper in "def" for name in "ghi"]
    for path in paths[::3]:
        lake.make_directory(path.rpartition("/")[0])
    elapsed = 0

    def step(what: str, perform: Callable[[], object]) -> object:
        nonlocal elapsed
        elapsed += 20
        return perform()

    class Parallel(SerialExecutor):
        def map(self, call: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
            nonlocal elapsed
            began, last, results = elapsed, elapsed, []
            for item in items:
                elapsed = began
                results.append(call(item))
                last = max(last, elapsed)
            elapsed = last
            return iter(results)

    wire.step = step
    for executor, reads in ((Parallel(), 3), (SERIAL, 3 + 9 + 27)):
        elapsed, before = 0, lake.request_stats
        lake.link_many({path: stored(lake.store, path) for path in paths}, executor=executor)
        assert elapsed == 20 * (reads + 1)
        found = lake.request_stats.since(before)
        assert found.operations["link_many"].gets == found.total.gets == 3 + 9 + 27


class RoundTrips(ServiceTable):
    """A table that counts round trips: gets that are under way at the same time are one."""

    now = 0

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        """Send a get."""
        answered, pending = self.now + 1, super().begin_get(key)

        def finish() -> Item | None:
            self.now = max(self.now, answered)
            return pending()

        return finish


def test_a_known_path_takes_one_round_trip() -> None:
    """The first look at a path of ten names takes one for each name, and a repeated one takes one."""
    clock = ManualClock()
    table, store = RoundTrips(clock=clock), MemoryStore(clock=clock)
    writer = Namespace(table, store, LAKE, clock=clock)
    writer.create()
    path = "/".join("abcdefghij")
    writer.write(path, b"1", parents=True)
    lake = Namespace(table, store, LAKE, clock=clock)
    lake.stat("")  # reads the metadata and the root

    def trips(operation: Callable[[], object]) -> int:
        before = table.now
        operation()
        return table.now - before

    parent = path.rpartition("/")[0]
    assert trips(lambda: lake.stat(path)) == 10
    assert trips(lambda: lake.stat(path)) == 1
    assert trips(lambda: lake.stat(f"{parent}/k") if lake.exists(f"{parent}/k") else None) == 1
    assert trips(lambda: lake.write(f"{parent}/k", b"2")) == 1
    assert trips(lambda: lake.stat(f"{parent}/k")) == 1
    # Another client moves a directory above: the names below it are looked up in turn, once.
    writer.rename("a/b/c", "a/b/x")
    writer.rename("a/b/x", "a/b/c")
    assert trips(lambda: lake.stat(path)) == 8
    assert trips(lambda: lake.stat(path)) == 1


def test_known_paths_of_one_call_take_one_round_trip() -> None:
    """All names are read together, also those of new files; the first look takes one for each level."""
    clock = ManualClock()
    table, store = RoundTrips(clock=clock), MemoryStore(clock=clock)
    writer = Namespace(table, store, LAKE, clock=clock)
    writer.create()
    for directory in ("a/b/c", "d/e"):
        writer.make_directory(directory)
    writer.write("a/b/c/old", b"1")
    lake = Namespace(table, store, LAKE, clock=clock)
    lake.stat("")  # reads the metadata and the root

    def trips(operation: Callable[[], object]) -> int:
        before = table.now
        operation()
        return table.now - before

    assert trips(lambda: link_many(lake, "a/b/c/1", "d/e/1", "d/e/2")) == 4
    assert trips(lambda: link_many(lake, "a/b/c/2", "d/e/3", "d/e/4")) == 1
    assert trips(lambda: link_many(lake, *(f"d/e/many-{number}" for number in range(30)))) == 1
    assert trips(lambda: lake.rename("a/b/c/old", "d/e/new")) == 1
    assert trips(lambda: lake.rename("d/e/new", "top")) == 3  # the root may have more shards now
    # Another client moves a directory above: the names below it are looked up in turn, once.
    writer.rename("a", "x")
    writer.rename("x", "a")
    assert trips(lambda: link_many(lake, "a/b/c/3", "d/e/5")) == 4
    assert trips(lambda: link_many(lake, "a/b/c/4", "d/e/6")) == 1


@pytest.mark.parametrize("shards", [1, 8])
def test_a_known_directory_that_is_replaced_is_found(shards: int) -> None:
    """Also if it is in another shard then, since the directory above has grown."""
    clock = ManualClock()
    table, store = ServiceTable(clock=clock), MemoryStore(clock=clock)
    lakes = [Namespace(table, store, LAKE, clock=clock) for _ in range(2)]
    lakes[0].create()
    paths = [f"top/{name}/f" for name in "abcdefgh"]
    for path in paths:
        lakes[0].write(path, b"1", parents=True)
    assert [lakes[1].read(path) for path in paths] == [b"1"] * 8
    if shards > 1:
        lakes[0].reshard("top", shards=shards)
    for path in paths:
        lakes[0].delete(path.removesuffix("/f"), recursive=True)
        lakes[0].write(path, b"2", parents=True)
    link_many(lakes[1], *(f"top/{name}/new" for name in "abcdefgh"))
    assert [lakes[1].read(path) for path in paths] == [b"2"] * 8
    assert all(lakes[0].exists(f"top/{name}/new") for name in "abcdefgh")


def test_a_failed_request_ahead_is_repeated() -> None:
    """So an outdated directory cannot fail a look."""
    clock = ManualClock()
    wire = InterceptedTable(ServiceTable(clock=clock))
    lake = Namespace(wire, MemoryStore(clock=clock), LAKE, clock=clock)
    lake.create()
    lake.write("a/b/f", b"1", parents=True)
    lake.stat("a/b/f")
    fails = iter([True])

    def step(what: str, perform: Callable[[], object]) -> object:
        if next(fails, False):
            raise Unavailable("try again")
        return perform()

    wire.step = step
    before = wire.requests["get"]
    assert lake.read("a/b/f") == b"1"
    assert wire.requests["get"] - before == 6


#: The rows of the table of requests for a thousand entries, in its order.
THOUSAND: dict[str, Callable[[Namespace], object]] = {
    "list": lambda lake: list(lake.list("a/b")),
    "walk": lambda lake: list(lake.walk("a/b")),
    "summary": lambda lake: lake.summary("a/b"),
    "delete": lambda lake: lake.delete("a/b", recursive=True),
    "empty_trash": lambda lake: lake.maintenance.empty_trash(),
    "gc": lambda lake: lake.maintenance.gc(),
}


def test_the_requests_for_a_thousand_entries_match_the_page() -> None:
    """For a directory with 1,000 files, and for one with 100 directories of 9 files."""
    text = (ROOT / "docs/namespace.md").read_text().partition("with a thousand entries each")[2]
    rows = re.findall(r"^\| (`.*?) \| (\d.*?) \| (\d.*?) \|$", text.partition("\n\n|")[2], re.MULTILINE)
    trees = [
        [f"{number}" for number in range(1000)],
        [f"{top}/{number}" for top in range(100) for number in range(9)],
    ]
    for column, names in enumerate(trees, 1):
        clock = ManualClock()
        lake = Namespace(ServiceTable(clock=clock), MemoryStore(clock=clock), LAKE, clock=clock, grace=0)
        lake.create()
        lake.make_directory("a/b")
        for start in range(0, len(names), 18):  # whole directories
            link_many(lake, *(f"a/b/{name}" for name in names[start : start + 18]))
        for (name, operation), row in zip(THOUSAND.items(), rows, strict=False):
            assert name in row[0]
            before = lake.request_stats
            operation(lake)
            assert row[column] == _words(lake.request_stats.since(before).total)


def _words(found: RequestCounts) -> str:
    """Return the requests to the table as the page says them."""
    counts = {"read": found.gets, "query": found.queries, "transaction": found.transactions}
    parts = []
    for noun, number in counts.items():
        plural = {"query": "queries"}.get(noun, f"{noun}s")
        parts += [f"{number:,} {noun if number == 1 else plural}"] if number else []
    return ", ".join(parts) + (f" of {found.writes:,} writes" if found.writes else "")


@pytest.mark.parametrize("files", [0, 1, 200])
def test_the_cost_of_a_directory_is_independent_of_its_size(files: int) -> None:
    """This holds for renaming and for deleting it."""
    lake = opened()
    lake.make_directory("d")
    for number in range(files):
        lake.write(f"d/{number}", b"")
    before = lake.request_stats
    lake.rename("d", "e")
    lake.delete("e", recursive=True)
    # If a name is missing in the root, the root is read again, since it may have more shards now.
    found = lake.request_stats.since(before).total
    assert found == RequestCounts(calls=2, gets=4, transactions=2, writes=8)
