"""Named schedules: operations of two clients at the same time, and the known state after faults.

Each schedule is run once for each request of the disturbed client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, product

import pytest
from attrs import define

from commitlog._util.retry import Backoff
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    CommitError,
    Conflict,
    DirectoryNotEmpty,
    InvalidPath,
    NotFound,
    OutcomeUnknown,
    TransactionCanceled,
    Unavailable,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace
from commitlog.namespace.model.records import Entry
from commitlog.namespace.write.plan_rename import links_to_check
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import ConditionFailed
from commitlog.tables.memory import MemoryTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.namespace import (
    QUICK,
    Auditor,
    InterceptedTable,
    Model,
    ServiceTable,
    objects_in,
    outcome,
    stored,
)

LAKE = "lake"
READS = ("get", "query", "scan")


@define
class Pair:
    """Two clients of a new namespace; the requests of the first one can be intercepted."""

    table: MemoryTable
    store: MemoryStore
    clock: ManualClock
    wire: InterceptedTable
    first: Namespace
    second: Namespace

    def audit(self) -> dict[str, Entry]:
        """Check all invariants, and return the entry at each path."""
        return Auditor(self.table, LAKE, self.store).audit()


def pair(*directories: str, table: MemoryTable | None = None, stable_paths: bool = False) -> Pair:
    """Return two clients of a namespace that has these directories."""
    clock = ManualClock()
    table = table or ServiceTable(clock=clock)
    store = MemoryStore(clock=clock)
    wire = InterceptedTable(table)
    first, second = (
        Namespace(way, store, LAKE, clock=clock, backoff=QUICK, grace=0, stable_paths=stable_paths)
        for way in (wire, table)
    )
    second.create()
    for path in directories:
        second.make_directory(path)
    first.describe()
    return Pair(table, store, clock, wire, first, second)


def at_each_request(
    prepare: Callable[[], Pair],
    disturbed: Callable[[Namespace], object],
    meanwhile: Callable[[Namespace], object],
) -> Iterator[tuple[Pair, type[CommitError] | None, type[CommitError] | None]]:
    """Yield the results of two operations: one runs before each request of the other, or after it."""
    at, more = 0, True
    while more:
        clients, found, reported, more = _at_request(at, prepare(), disturbed, meanwhile)
        at += 1
        yield clients, found, reported


def _at_request(
    at: int,
    clients: Pair,
    disturbed: Callable[[Namespace], object],
    meanwhile: Callable[[Namespace], object],
) -> tuple[Pair, type[CommitError] | None, type[CommitError] | None, bool]:
    reported: list[type[CommitError] | None] = []
    requests = 0

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal requests
        if requests == at:
            reported.append(outcome(lambda: meanwhile(clients.second)))
        requests += 1
        perform()

    clients.wire.step = step
    found = outcome(lambda: disturbed(clients.first))
    more = bool(reported)
    if not reported:
        reported.append(outcome(lambda: meanwhile(clients.second)))
    return clients, found, reported[0], more


# -- directories moved below each other --------------------------------------------------------------


def test_renames_that_would_make_a_cycle_juicefs_4800() -> None:
    """Of the concurrent renames ``mv a b/d/e`` and ``mv b/d a/c`` one fails, and no tree is lost."""
    seen = set()
    for clients, one, other in at_each_request(
        lambda: pair("a/x", "b/d/y"),
        lambda lake: lake.rename("a", "b/d/e"),
        lambda lake: lake.rename("b/d", "a/c"),
    ):
        tree = clients.audit()
        assert {path.rpartition("/")[2] for path in tree} in ({*"bdexy"}, {*"abcxy"})
        assert (one is None) != (other is None)
        seen.add((one, other))
    assert len(seen) == 2


@pytest.mark.parametrize("stable", [False, True])
def test_a_rename_in_a_chain_that_is_reversed_meanwhile(stable: bool) -> None:
    """While `c` moves from below `b` to below `a`, `b` moves to the root, and then `a` below `c`."""

    def turn(lake: Namespace) -> None:
        lake.rename("a/b", "b")
        lake.rename("a", "b/c/a")

    outcomes = set()
    for clients, one, other in at_each_request(
        lambda: pair("a/b/c", stable_paths=stable), lambda lake: lake.rename("a/b/c", "a/c"), turn
    ):
        tree = clients.audit()
        assert len(tree) == 3
        outcomes.add((one, other))
    assert outcomes == {(NotFound, None), (None, NotFound)}


Parents = Mapping[int, int]


def trees(size: int) -> list[Parents]:
    """Return all labelled trees of directories 1 … size below the root, 0."""
    return [
        parents
        for chosen in product(range(size + 1), repeat=size)
        for parents in [dict(enumerate(chosen, 1))]
        if all(_above(parents, each) is not None for each in parents)
    ]


def _above(parents: Parents, each: int) -> list[int] | None:
    """Return the path from the root to a directory, both included; None if there is none."""
    chain = [each]
    while chain[0]:
        chain.insert(0, parents[chain[0]])
        if len(chain) > len(parents) + 1:
            return None
    return chain


def _moves(tree: Parents) -> Iterator[tuple[int, list[int], list[int]]]:
    for moving, target in product(tree, [0, *tree]):
        here, there = _above(tree, tree[moving]), _above(tree, target)
        assert here is not None and there is not None
        if moving not in there and here[-1] != there[-1]:
            yield moving, here, there


def _cycles(
    all_trees: list[Parents], checked: Callable[[list[int], list[int]], set[tuple[int, int]]]
) -> tuple[int, int]:
    """Return the number of moves that succeed, and the number of these that make a cycle.

    Each valid move in a tree as it was read is tried on every tree that it may have become.
    """
    through = cycles = 0
    now = [(tree, set(tree.items())) for tree in all_trees]
    for seen in all_trees:
        for moving, here, there in _moves(seen):
            conditions = {*checked(here, there), (moving, seen[moving])}
            for tree, links in now:
                if conditions <= links:
                    through += 1
                    moved = {**tree, moving: there[-1]}
                    cycles += _above(moved, moving) is None
    return through, cycles


def test_the_rule_against_cycles_on_all_small_trees() -> None:
    """No move makes a cycle, whatever happened since it was planned; with a weaker rule some do."""

    def ours(here: list[int], there: list[int]) -> set[tuple[int, int]]:
        links = links_to_check([*map(str, here)], [*map(str, there)])
        return {(int(lower), int(upper)) for lower, upper in links}

    def one_sided(here: list[int], there: list[int]) -> set[tuple[int, int]]:
        common = max(set(here) & set(there), key=here.index)
        below = there[there.index(common) :]
        return {(lower, upper) for upper, lower in pairwise(below)}

    small = trees(4)
    assert len(small) == 125
    through, cycles = _cycles(small, ours)
    assert through > 1000 and cycles == 0
    assert _cycles(small, one_sided)[1] > 0


# -- directories removed during an addition ----------------------------------------------------------


def test_a_file_is_added_during_the_removal_of_its_directory() -> None:
    """Either the directory is gone and the addition fails, or the removal finds it not empty."""
    seen = set()
    for clients, one, other in at_each_request(
        lambda: pair("d"),
        lambda lake: lake.delete("d"),
        lambda lake: lake.write("d/f", b"1", parents=False),
    ):
        tree = clients.audit()
        assert (one, other, sorted(tree)) in [
            (DirectoryNotEmpty, None, ["d", "d/f"]),
            (None, NotFound, []),
        ]
        seen.add(one)
    assert len(seen) == 2


@pytest.mark.parametrize("recursive", [False, True])
def test_a_directory_is_removed_during_the_addition_of_a_file(recursive: bool) -> None:
    """The file is in the tree, or goes with the directory; nothing becomes unreachable."""
    for clients, one, other in at_each_request(
        lambda: pair("d"),
        lambda lake: lake.write("d/f", b"1", parents=False),
        lambda lake: lake.delete("d", recursive=recursive),
    ):
        tree = clients.audit()
        if one is None and other is None:
            assert recursive and not tree
        else:
            assert (one, other) in [(NotFound, None), (None, DirectoryNotEmpty)]
        clients.second.maintenance.empty_trash()
        clients.second.maintenance.gc()
        clients.audit()
        assert len(objects_in(clients.store)) == len([path for path in tree if path == "d/f"])


def test_a_file_is_renamed_out_of_a_deleted_directory() -> None:
    """It is at its new path, or is deleted; emptying the trash goes on with the rest."""
    seen = set()

    def prepare() -> Pair:
        clients = pair("d/e")
        for name in ("1", "2", "3"):
            clients.second.write(f"d/{name}", b"1")
        return clients

    def sweep(lake: Namespace) -> None:
        lake.delete("d", recursive=True)
        lake.maintenance.empty_trash()

    for clients, one, other in at_each_request(prepare, lambda lake: lake.rename("d/2", "two"), sweep):
        assert other is None
        tree = clients.audit()
        assert list(tree) == (["two"] if one is None else [])
        seen.add(one)
    for clients, one, other in at_each_request(
        prepare,
        sweep,
        # Found before the directory was deleted, renamed after that.
        lambda lake: outcome(lambda: lake.rename("d/2", "two")),
    ):
        assert one is None and other is None
        clients.audit()
    assert seen == {None, NotFound}


def test_a_file_is_renamed_while_the_trash_is_emptied() -> None:
    """The removal of many files is refused for the renamed one, and is made for the others."""
    clients = pair("d")
    for number in range(5):
        clients.second.write(f"d/{number}", b"1")
    trashed: list[bool] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and not trashed:
            trashed.append(True)
            clients.second.delete("d", recursive=True)
            late = InterceptedTable(clients.table)

            def rescue(what: str, go: Callable[[], object]) -> None:
                if what == "transact":
                    late.step = lambda what, go: go()
                    perform()  # "d/2" is renamed between the listing of the trash and the removal
                go()

            late.step = rescue
            sweeper = Namespace(late, clients.store, LAKE, clock=clients.clock, backoff=QUICK, grace=0)
            assert sweeper.maintenance.empty_trash().files == 4
        perform()

    clients.wire.step = step
    assert outcome(lambda: clients.first.rename("d/2", "two")) is None
    assert list(clients.audit()) == ["two"]
    assert clients.first.read("two") == b"1"


# -- lost answers ------------------------------------------------------------------------------------


def losing(clients: Pair, *, applied: bool, times: int = 99) -> None:
    """Lose the answers of some writes of the first client, which are performed or not."""
    left = times

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal left
        if what in READS or not left:
            perform()
            return
        left -= 1
        if applied:
            perform()
        raise OutcomeUnknown("no answer")

    clients.wire.step = step


ALL: Mapping[str, Callable[[Namespace], object]] = {
    "create": lambda lake: lake.write("d/new", b"2", overwrite=False),
    "overwrite": lambda lake: lake.write("d/f", b"2"),
    "mkdir": lambda lake: lake.make_directory("x/y"),
    "rename file": lambda lake: lake.rename("d/f", "g"),
    "rename file over": lambda lake: lake.rename("d/f", "f", overwrite=True),
    "rename directory": lambda lake: lake.rename("d", "e/d"),
    "rename directory over": lambda lake: lake.rename("d", "e", overwrite=True),
    "delete file": lambda lake: lake.delete("f"),
    "delete directory": lambda lake: lake.delete("e"),
    "delete directory with all": lambda lake: lake.delete("d", recursive=True),
    "attributes": lambda lake: lake.set_attributes("d/f", attributes={"x": "1"}),
    "grow": lambda lake: lake.reshard("d", shards=4),
    "replace": lambda lake: lake.replace("d", "e"),
    "replace nothing": lambda lake: lake.replace("d", "e/d"),
    "link all": lambda lake: lake.link_many(
        {path: stored(lake.store, path) for path in ("d/new", "f", "x/y", "x/z/1")}
    ),
    "bulk link": lambda lake: lake.bulk_link(
        "d", {name: stored(lake.store, name) for name in ("new", "newer")}
    ),
}


def prepared(table: MemoryTable | None = None) -> Pair:
    """Return clients of a namespace with two directories and two files."""
    clients = pair("d", "e", table=table)
    for path in ("d/f", "f"):
        clients.second.write(path, b"1")
    return clients


def tokenless() -> MemoryTable:
    """Return a table that keeps no tokens."""
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=ManualClock())
    table.create()
    return table


@pytest.mark.parametrize("keeps_tokens", [True, False])
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("operation", ALL)
def test_a_lost_answer_changes_nothing(operation: str, applied: bool, keeps_tokens: bool) -> None:
    """The operation succeeds, and is made once, whether or not the request was performed."""
    clients = prepared(None if keeps_tokens else tokenless())
    losing(clients, applied=applied, times=2)
    ALL[operation](clients.first)
    other = prepared()
    ALL[operation](other.first)

    def shape(tree: dict[str, Entry]) -> dict[str, tuple[int, bool]]:
        return {path: (entry.version, entry.is_directory) for path, entry in tree.items()}

    assert shape(clients.audit()) == shape(other.audit())


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("operation", ALL)
def test_a_request_that_a_proxy_repeats_succeeds_once(operation: str, tells: bool) -> None:
    """The refusal of the second copy is recognised as the success of the first, even without tokens."""
    clients = prepared(tokenless())

    def step(what: str, perform: Callable[[], object]) -> None:
        perform()
        if what in READS:
            return
        try:
            perform()
        except TransactionCanceled as error:
            if tells:
                raise
            reasons = [reason and ConditionFailed(str(reason)) for reason in error.reasons]
            raise TransactionCanceled(str(error), tuple(reasons)) from None

    clients.wire.step = step
    ALL[operation](clients.first)
    clients.audit()


class Dies(BaseException):
    """The end of a client's process."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("operation", ALL)
def test_a_crash_leaves_all_of_an_operation_or_nothing(operation: str, after: bool) -> None:
    """The client dies before or after any of its requests."""
    other = prepared()
    ALL[operation](other.first)
    outcomes = [set(prepared().audit()), set(other.audit())]
    for at in range(99):
        clients = prepared()
        requests = 0

        def step(what: str, perform: Callable[[], object]) -> None:
            nonlocal requests
            requests += 1
            if requests <= at or after:  # noqa: B023
                perform()
            if requests > at:  # noqa: B023
                raise Dies

        clients.wire.step = step
        try:
            ALL[operation](clients.first)
        except Dies:
            pass
        else:
            break
        assert set(clients.audit()) in outcomes
        clients.second.maintenance.empty_trash()
        clients.second.maintenance.gc()
        assert set(clients.audit()) in outcomes
        assert outcome(lambda: ALL[operation](clients.second)) in (  # noqa: B023
            None,
            AlreadyExists,
            NotFound,
        )
        clients.audit()
    assert at > 0


@pytest.mark.parametrize("operation", ALL)
def test_no_answer_at_all_is_an_unknown_outcome(operation: str) -> None:
    """The content is not cleaned up: the request may still arrive, and its objects must exist then."""
    clients = prepared()
    kept: list[Callable[[], object]] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if what in READS:
            perform()
            return
        kept.append(perform)
        raise OutcomeUnknown("no answer")

    clients.wire.step = step
    before = clients.audit()
    with pytest.raises(OutcomeUnknown):
        ALL[operation](clients.first)
    assert clients.audit() == before
    assert len(kept) == 8
    for perform in kept:
        perform()
    assert len(clients.table.applied) == len(set(clients.table.applied))  # type: ignore[attr-defined]
    clients.audit()


def test_a_request_that_may_still_arrive_is_an_unknown_outcome() -> None:
    """Another file has the name, so the retry is refused; when it is deleted, the first arrives."""
    clients = pair("d")
    kept: list[Callable[[], object]] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if what in READS or kept:
            perform()
            return
        kept.append(perform)
        clients.second.write("d/f", b"theirs")
        raise OutcomeUnknown("no answer")

    clients.wire.step = step
    with pytest.raises(OutcomeUnknown):
        clients.first.write("d/f", b"ours", overwrite=False)
    assert clients.second.read("d/f") == b"theirs"
    clients.second.delete("d/f")
    kept[0]()
    clients.audit()
    assert clients.second.read("d/f") == b"ours"


def test_a_refusal_that_cannot_be_explained_is_an_unknown_outcome() -> None:
    """The table does not name the reason, and cannot be read: an earlier request may have succeeded."""
    clients = prepared(tokenless())
    refused = False

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal refused
        if what in READS:
            if refused:
                raise Unavailable("no answer")
            perform()
            return
        perform()
        refused = True
        raise TransactionCanceled("refused")

    clients.wire.step = step
    with pytest.raises(OutcomeUnknown, match="whether an earlier request"):
        clients.first.write("d/new", b"2")
    clients.audit()
    assert clients.second.read("d/new") == b"2"


@pytest.mark.parametrize("error", [Conflict("busy"), Unavailable("throttled")])
def test_a_service_that_refuses_requests(error: CommitError) -> None:
    """The request is retried; if this does not help, the error says that nothing was changed."""
    clients = pair("d")
    left = 3

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal left
        if what in READS:
            perform()
            return
        left -= 1
        if left >= 0:
            raise error
        perform()

    clients.wire.step = step
    clients.first.write("d/f", b"1")
    left = 99
    with pytest.raises(type(error)):
        clients.first.write("d/g", b"1")
    assert [found.name for found in clients.second.list("d")] == ["f"]
    assert len(objects_in(clients.store)) == 1


def test_a_path_that_keeps_changing_is_a_conflict() -> None:
    """After several attempts the error says that nothing was changed."""
    clients = pair("d")
    clients.second.write("f", b"0")

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            clients.second.set_attributes("f", attributes={"x": "1"})
        perform()

    clients.wire.step = step
    with pytest.raises(Conflict, match="other changes kept coming in between; nothing was changed"):
        clients.first.write("f", b"1")
    assert clients.second.read("f") == b"0"
    assert len(objects_in(clients.store)) == 1


# -- other clients and permissions ---------------------------------------------------------------------


def test_reading_needs_no_permission_to_write() -> None:
    """This holds for the table and for the store."""
    clients = pair("d", "e")
    clients.second.write("d/f", b"1")

    def step(what: str, perform: Callable[[], object]) -> None:
        if what not in READS:
            raise AccessDenied("may not write")
        perform()

    wire = InterceptedTable(clients.table)
    wire.step = step
    reader = Namespace(wire, clients.store, LAKE, clock=clients.clock, backoff=QUICK)
    assert reader.read("d/f") == b"1" and reader.exists("e")
    assert [found.path for found in reader.walk()] == ["d", "d/f", "e"]
    assert len(reader.list_page("").entries) == 2 and reader.summary().files == 1
    assert not list(reader.bindings.diff())
    assert not reader.create()
    with pytest.raises(AccessDenied):
        reader.make_directory("x")
    assert reader.make_directory("d").path == "d"


def test_two_clients_create_the_same_namespace() -> None:
    """One of them creates it, and both can use it."""
    for at in range(3):
        table = ServiceTable()
        store = MemoryStore(clock=ManualClock())
        wire = InterceptedTable(table)
        first = Namespace(wire, store, LAKE, clock=ManualClock(), backoff=QUICK)
        second = Namespace(table, store, LAKE, clock=ManualClock(), backoff=QUICK)
        made: list[bool] = []

        def step(what: str, perform: Callable[[], object]) -> None:
            if wire.requests.total() == at + 1:  # noqa: B023
                made.append(second.create())  # noqa: B023
            perform()

        wire.step = step
        made.append(first.create())
        made += [second.create()] * (len(made) == 1)
        assert sorted(made) == [False, True]
        first.write("a", b"1")
        assert second.read("a") == b"1"


# -- single clients ----------------------------------------------------------------------------------


def test_one_of_two_exclusive_writes_succeeds() -> None:
    """The other one gets `AlreadyExists`, and leaves no object."""
    for clients, one, other in at_each_request(
        lambda: pair("d"),
        lambda lake: lake.write("d/f", b"1", overwrite=False),
        lambda lake: lake.write("d/f", b"2", overwrite=False),
    ):
        assert {one, other} == {None, AlreadyExists}
        assert clients.second.read("d/f") == (b"1" if one is None else b"2")
        assert len(objects_in(clients.store)) == 1
        clients.audit()


def test_stable_paths_follow_a_path_not_a_directory() -> None:
    """If an upper directory is renamed meanwhile, the file is at the given path, or is not made."""
    for stable in (False, True):
        written = 0
        for clients, one, _ in at_each_request(
            lambda: pair("d", stable_paths=stable),  # noqa: B023
            lambda lake: lake.write("d/f", b"1", parents=False),
            lambda lake: lake.rename("d", "e"),
        ):
            assert (one, *sorted(clients.audit())) in [(None, "e", "e/f"), (NotFound, "e")]
            written += one is None
        # This happens only if the directory is renamed after the write has ended.
        assert written == 1 if stable else written > 1
    for clients, one, _ in at_each_request(
        lambda: pair("d/s", stable_paths=True),
        lambda lake: lake.reshard("d/s", shards=2),
        lambda lake: lake.rename("d", "e"),
    ):
        clients.audit()
        assert (one, clients.second.stat("e/s").entry.shards.now) in [(None, 2), (NotFound, 1)]
    assert outcome(lambda: pair("d").first.rename("d", "d/x")) is InvalidPath


def test_waiting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between attempts the clock sleeps, as the backoff says."""
    clients = pair("d")
    slow = Namespace(
        clients.wire,
        clients.store,
        LAKE,
        clock=clients.clock,
        backoff=Backoff(base=1.0, cap=1.0, tries=3),
    )
    losing(clients, applied=False)
    before = clients.clock.monotonic()
    with pytest.raises(OutcomeUnknown):
        slow.make_directory("x")
    assert 0 < clients.clock.monotonic() - before <= 2


# -- known bugs of other systems -----------------------------------------------------------------------


def test_a_rename_does_not_recreate_a_deleted_parent_hadoop_16721() -> None:
    """``rename p/a q/a`` while `p` is deleted: `p` does not come back, whatever the rename cleans up."""
    seen = set()
    for clients, one, other in at_each_request(
        lambda: pair("p/a", "p/b", "q"),
        lambda lake: lake.rename("p/a", "q/a"),
        lambda lake: lake.delete("p", recursive=True),
    ):
        assert other is None
        assert sorted(clients.audit()) == (["q", "q/a"] if one is None else ["q"])
        clients.second.maintenance.empty_trash()
        assert "p" not in clients.audit()
        seen.add(one)
    assert seen == {None, NotFound}


def test_a_rename_into_a_deleted_directory_hadoop_16721() -> None:
    """``rename a p/a`` while `p` is deleted: `p` is not created again, and `a` is not lost."""
    seen = set()
    for clients, one, other in at_each_request(
        lambda: pair("p", "a/x"),
        lambda lake: lake.rename("a", "p/a"),
        lambda lake: lake.delete("p"),
    ):
        tree = sorted(clients.audit())
        assert (one, other, tree) in [
            (NotFound, None, ["a", "a/x"]),
            (None, DirectoryNotEmpty, ["p", "p/a", "p/a/x"]),
        ]
        seen.add(one)
    assert len(seen) == 2


@pytest.mark.parametrize("path", ["d/f", "d/s", "d/s/g"])
def test_a_directory_does_not_disappear_too_early_hadoop_17244(path: str) -> None:
    """While an entry below it is deleted, and afterwards, the directory exists at every moment."""
    clients = pair("d/s")
    clients.second.write("d/f", b"1")
    clients.second.write("d/s/g", b"1")
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        assert clients.second.stat("d").is_directory
        assert "d" in [found.path for found in clients.second.list("")]

    def step(what: str, perform: Callable[[], object]) -> None:
        look()
        perform()
        look()

    clients.wire.step = step
    clients.first.delete(path, recursive=True)
    clients.first.maintenance.empty_trash()
    assert looks > 8
    assert path not in clients.audit()


@pytest.mark.parametrize("stable", [False, True])
def test_a_file_created_while_its_directory_is_replaced_juicefs_6597(stable: bool) -> None:
    """It is created in the new directory, and not in the trash."""
    gone = []
    for clients, one, other in at_each_request(
        lambda: pair("d", "n", stable_paths=stable),
        lambda lake: lake.write("d/f", b"1", parents=False),
        lambda lake: lake.replace("n", "d"),
    ):
        assert one is None and other is None
        gone.append("d/f" not in clients.audit())
    # A file that was written before goes to the trash with the old directory.
    assert gone == [False] * (len(gone) - 1) + [True]


@pytest.mark.parametrize("stable", [False, True])
def test_a_file_created_while_an_upper_directory_is_replaced_juicefs_6597(stable: bool) -> None:
    """The file goes to the trash with it; with stable paths no such write succeeds."""
    done = []
    for clients, one, other in at_each_request(
        lambda: pair("d/s", "n", stable_paths=stable),
        lambda lake: lake.write("d/s/f", b"1", parents=False),
        lambda lake: lake.replace("n", "d"),
    ):
        assert other is None and "d/s/f" not in clients.audit()
        done.append(one is None)
    # In the last run the directory is replaced after the write.
    assert done[-1]
    assert any(done[:-1]) != stable


def test_descendants_follow_renames_juicefs_7315() -> None:
    """After renames of a directory and of its descendants, every path is that of a simple tree."""
    clients = pair()
    model = Model()
    for path in ("a/b/1", "a/b/c/2", "a/3", "x/a/4"):
        clients.second.write(path, path.encode())
        model.write(path, path.encode(), overwrite=False, parents=True)
    for source, target in [("a/b", "x/b"), ("x", "y"), ("y/b/c", "a/c"), ("a", "y/b/a"), ("y/b", "b")]:
        clients.first.rename(source, target)
        model.rename(source, target, overwrite=False)
        tree = clients.audit()
        assert {tuple(path.split("/")) for path in tree} == model.nodes.keys() - {()}
        for names, body in model.nodes.items():
            if body is not None:
                assert clients.first.read("/".join(names)) == body
        assert [found.path for found in clients.first.walk()] == sorted(tree, key=lambda p: p.split("/"))


@pytest.mark.parametrize("operation", ALL)
def test_an_expired_permission_after_a_lost_answer(operation: str) -> None:
    """The refusal of the retry says nothing about the first request, which may still be performed."""
    clients = prepared(tokenless())
    kept: list[Callable[[], object]] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if kept:
            raise AccessDenied("the credentials have expired")
        if what in READS:
            perform()
            return
        kept.append(perform)
        raise OutcomeUnknown("no answer")

    clients.wire.step = step
    with pytest.raises(OutcomeUnknown):
        ALL[operation](clients.first)
    kept[0]()
    clients.audit()
