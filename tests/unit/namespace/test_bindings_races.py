"""Bound directories under concurrent changes: two clients at once, crashes, and lost answers.

Each schedule is run once for each request of the disturbed client. In all of them no deleted file comes
back, no file is lost or exists twice, and an operation that was begun can be completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from attrs import define

from commitlog._util.ids import random_id
from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.namespace import Namespace
from commitlog.stores.api import InFlight, Observation, Page
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.namespace import QUICK, Auditor, InterceptedTable, ServiceTable, outcome

T = TypeVar("T")

LAKE = "lake"


class Death(BaseException):
    """The end of a client's process during an operation."""


class WatchedStore(MemoryStore):
    """A store that passes its reads to the step function of a client's connection to the table."""

    step: Callable[[str, Callable[[], object]], object] | None = None

    def list_page(self, *args: Any, **named: Any) -> Page:
        """List objects; the step function is called first."""
        return self._do("list", lambda: super(WatchedStore, self).list_page(*args, **named))

    def begin_head(self, path: str) -> InFlight[Observation]:
        """Begin a HEAD; the step function is called first."""
        return self._do("head", lambda: super(WatchedStore, self).begin_head(path))

    def _do(self, what: str, perform: Callable[[], T]) -> T:
        if self.step is None:
            return perform()
        found: list[T] = []
        self.step(what, lambda: found.append(perform()))
        return found[-1]


@define
class World:
    """Two clients of a namespace with a bound directory, and other programs that write to the store."""

    clock: ManualClock
    table: ServiceTable
    store: WatchedStore
    seen: WatchedStore
    wire: InterceptedTable
    first: Namespace
    second: Namespace

    def put(self, *paths: str, body: bytes = b"theirs") -> None:
        """Put objects, as another program."""
        for path in paths:
            self.store.put(path, body)

    def audit(self) -> list[str]:
        """Audit the table, and return the paths of all rows."""
        return sorted(Auditor(self.table, LAKE).audit())

    def see(self, path: str = "b") -> list[str]:
        """Synchronise, and return the paths that the second client sees."""
        self.second.bindings.sync()
        self.audit()
        return [each.path.removeprefix(f"{path}/") for each in self.second.walk(path)]

    def disturb(self, step: Callable[[str, Callable[[], object]], object]) -> None:
        """Call a function at each request of the first client."""
        self.wire.step = step
        self.seen.step = step


def world(max_age: float | None = None) -> World:
    """Return a new world: two files, and a directory with a third one, all with rows."""
    clock = ManualClock()
    table = ServiceTable(clock=clock)
    url = f"memory://{random_id()}"
    store, seen = WatchedStore(url, clock=clock), WatchedStore(url, clock=clock)
    wire = InterceptedTable(table)
    first, second = (
        Namespace(way, at, LAKE, clock=clock, backoff=QUICK, grace=0)
        for way, at in ((wire, seen), (table, store))
    )
    second.create()
    found = World(clock, table, store, seen, wire, first, second)
    found.put("raw/a", "raw/c", "raw/d/x")
    second.bindings.bind("raw/", "b", max_age=max_age)
    second.bindings.sync()
    clock.advance(1)
    first.describe()
    return found


def at_each_request(
    prepare: Callable[[], World],
    disturbed: Callable[[World], object],
    meanwhile: Callable[[World], object],
) -> Iterator[tuple[World, type[CommitError] | None]]:
    """Yield the result when something happens before each request of an operation, or after the last."""
    at = 0
    while True:
        found = prepare()
        count = 0
        done = False

        def step(what: str, perform: Callable[[], object]) -> None:
            nonlocal count, done
            if count == at and not done:  # noqa: B023 - only called in this iteration
                done = True
                meanwhile(found)  # noqa: B023
            count += 1
            perform()

        found.disturb(step)
        reported = outcome(lambda: disturbed(found))  # noqa: B023
        found.disturb(lambda what, perform: perform())
        last = not done
        if last:
            meanwhile(found)
        yield found, reported
        if last:
            return
        at += 1


def dying(
    prepare: Callable[[], World], disturbed: Callable[[World], object], *, after: bool
) -> Iterator[tuple[World, bool]]:
    """Yield the state that a client left when it died at each of its requests, before or after it."""
    at = 0
    while True:
        found = prepare()
        count = 0

        def step(what: str, perform: Callable[[], object]) -> None:
            nonlocal count
            count += 1
            if count > at:  # noqa: B023
                if after:
                    perform()
                raise Death
            perform()

        found.disturb(step)
        try:
            disturbed(found)
            died = False
        except Death:
            died = True
        found.disturb(lambda what, perform: perform())
        yield found, died
        if not died:
            return
        at += 1


# -- two clients -------------------------------------------------------------------------------------


def world_with_changes() -> World:
    """Return a world with new, changed and removed objects."""
    return changed(world())


def changed(found: World) -> World:
    """Let other programs change the objects."""
    added(found)
    found.put("raw/a", body=b"newer")
    found.store.delete("raw/c")
    return found


def added(found: World) -> World:
    """Let other programs add objects."""
    found.put("raw/new", "raw/n/y")
    return found


def test_two_concurrent_synchronisations() -> None:
    """Each object becomes one file, and nothing is done twice."""
    for found, reported in at_each_request(
        world_with_changes, lambda all: all.first.bindings.sync(), lambda all: all.second.bindings.sync()
    ):
        assert reported is None
        assert found.audit() == ["b", "b/a", "b/d", "b/d/x", "b/n", "b/n/y", "b/new"]
        assert found.second.read("b/a") == b"newer"


def test_a_deletion_during_a_synchronisation_lasts() -> None:
    """This holds for files with a row, files only in the store, and directories."""

    def delete(all: World) -> None:
        all.second.bindings.sync()
        for path in ("b/a", "b/new"):
            all.second.delete(path)
        all.second.delete("b/d", recursive=True)
        all.second.delete("b/n", recursive=True)

    for found, reported in at_each_request(
        world_with_changes, lambda all: all.first.bindings.sync(), delete
    ):
        assert reported is None
        assert found.see() == []


@pytest.mark.parametrize("max_age", [0, 60])
def test_a_deletion_during_a_read_lasts(max_age: float) -> None:
    """A later lookup by path does not find the file either."""

    def old() -> World:
        found = world(max_age)
        found.put("raw/new", "raw/n/y")
        found.clock.advance(60)
        return found

    def look(all: World) -> None:
        list(all.first.walk("b"))
        all.first.exists("b/new")

    def delete(all: World) -> None:
        for path in ("b/a", "b/c", "b/new", "b/d/x", "b/n/y"):
            all.second.delete(path)

    for found, reported in at_each_request(old, look, delete):
        assert reported is None
        assert not found.first.exists("b/new")
        assert found.see() == ["d", "n"]


def test_a_rename_during_a_synchronisation_lasts() -> None:
    """The file or directory exists at its new path only."""

    def rename(all: World) -> None:
        all.second.bindings.sync()
        all.second.rename("b/a", "a")
        all.second.rename("b/d", "d")

    for found, reported in at_each_request(
        world_with_changes, lambda all: all.first.bindings.sync(), rename
    ):
        assert reported is None
        assert found.see() == ["n", "n/y", "new"]
        assert found.second.read("a") == b"newer"
        assert [each.path for each in found.second.walk("d")] == ["d/x"]


LOOKS: dict[str, Callable[[Namespace], object]] = {
    "list": lambda lake: {each.name for each in lake.list("b")} >= {"a", "c", "d"} or lake.read("z"),
    "stat": lambda lake: lake.stat("b/a"),
    "overwrite": lambda lake: lake.rename("b/c", "b/a", overwrite=True),
    "delete": lambda lake: lake.delete("b/a"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_file_overwritten_during_a_read_exists(look: str) -> None:
    """The tombstone of the overwritten file is not taken for that of a deleted one."""

    def prepare() -> World:
        found = world(0)
        found.second.rename("b/a", "a")
        found.put("raw/a", body=b"new")  # without a row
        return found

    def meanwhile(found: World) -> None:
        found.second.write("b/a", b"own")

    for _, reported in at_each_request(prepare, lambda all: LOOKS[look](all.first), meanwhile):
        assert reported is None


@pytest.mark.parametrize("look", ["stat", "overwrite", "delete"])
def test_an_overwritten_file_outlives_its_old_object(look: str) -> None:
    """The removed object is no longer the content of the file."""

    def meanwhile(found: World) -> None:
        found.second.write("b/a", b"own")
        found.store.delete("raw/a")

    for _, reported in at_each_request(lambda: world(0), lambda all: LOOKS[look](all.first), meanwhile):
        assert reported is None


def test_the_directory_is_renamed_during_a_synchronisation() -> None:
    """Its entries are complete at the new path."""
    for found, _ in at_each_request(
        world_with_changes,
        lambda all: all.first.bindings.sync(),
        lambda all: all.second.rename("b", "z"),
    ):
        assert found.see("z") == ["a", "d", "d/x", "n", "n/y", "new"]
        assert not found.second.exists("b")


@pytest.mark.parametrize(
    "prepare", [world_with_changes, lambda: added(world())], ids=["all kinds", "new ones"]
)
def test_an_unbound_directory_gets_no_new_files(prepare: Callable[[], World]) -> None:
    """A synchronisation that began before adds nothing either."""
    had: list[list[str]] = []

    def unbind(all: World) -> None:
        all.second.bindings.unbind("b")
        had.append(all.audit())

    for found, reported in at_each_request(prepare, lambda all: all.first.bindings.sync(), unbind):
        assert reported is None
        assert found.second.stat("b").binding is None
        assert found.audit() == had[-1]


def bindings(found: World) -> list[str]:
    """Return the paths of all bound directories."""
    return [each.path for each in found.second.walk() if each.binding is not None]


@pytest.mark.parametrize("after", [False, True])
def test_unbind_can_be_repeated_after_a_crash(after: bool) -> None:
    """Afterwards no directory of that binding is bound; other bindings stay."""

    def prepare() -> World:
        found = world()
        found.put("raw/d/e/y", "other/z")
        found.second.bindings.sync()
        found.second.bindings.bind("other/", "own")
        found.second.rename("own", "b/own")
        return found

    for found, _ in dying(prepare, lambda all: all.first.bindings.unbind("b"), after=after):
        found.second.bindings.unbind("b")
        assert bindings(found) == ["b/own"]
        assert found.audit() == ["b", "b/a", "b/c", "b/d", "b/d/e", "b/d/e/y", "b/d/x", "b/own"]


def test_directories_added_during_unbind_are_unbound_too() -> None:
    """These are directories of the store that a synchronisation adds, and directories that are made."""

    def come(all: World) -> None:
        all.put("raw/d/n/y")
        all.second.bindings.sync()
        all.second.make_directory("b/made/below")

    for found, reported in at_each_request(world, lambda all: all.first.bindings.unbind("b"), come):
        assert reported is None
        assert bindings(found) == []
        found.audit()


@pytest.mark.parametrize("name", ["a", "c"])
def test_own_content_written_during_a_synchronisation_stays(name: str) -> None:
    """It replaces a file whose object is removed or changed."""

    def write(all: World) -> None:
        all.second.write(f"b/{name}", b"own")

    for found, reported in at_each_request(
        world_with_changes, lambda all: all.first.bindings.sync(), write
    ):
        assert reported is None
        assert found.second.exists("b/new")  # all other changes were made
        assert name == "c" or not found.second.exists("b/c")
        assert name == "a" or found.second.read("b/a") == b"newer"
        found.see()
        assert found.second.read(f"b/{name}") == b"own"


def test_the_directory_is_deleted_during_a_synchronisation() -> None:
    """No entry is added to it, and all its entries are removed with the trash."""

    def delete(all: World) -> None:
        all.second.delete("b", recursive=True)
        all.second.maintenance.empty_trash()

    for found, _ in at_each_request(world_with_changes, lambda all: all.first.bindings.sync(), delete):
        found.second.maintenance.empty_trash()
        assert found.audit() == []


def test_objects_added_during_a_synchronisation_are_found_later() -> None:
    """The directory does not claim to agree with a later state of the store than its listing had."""
    for found, reported in at_each_request(
        world_with_changes,
        lambda all: all.first.bindings.sync(),
        lambda all: all.put("raw/late", "raw/late-d/z"),
    ):
        assert reported is None
        assert {"a", "new"} <= {each.name for each in found.second.list("b")}
        assert found.see() == ["a", "d", "d/x", "late", "late-d", "late-d/z", "n", "n/y", "new"]


def test_an_object_flaps_during_two_synchronisations() -> None:
    """Its file is removed while the object is missing, and returns with the object."""

    def flap(all: World) -> None:
        all.put("raw/a", body=b"third")
        all.store.delete("raw/new")
        all.second.bindings.sync()
        all.put("raw/new", body=b"again")

    for found, reported in at_each_request(
        world_with_changes, lambda all: all.first.bindings.sync(), flap
    ):
        assert reported is None
        found.second.bindings.sync()
        assert found.second.read("b/new") == b"again" and found.second.read("b/a") == b"third"


def test_prune_keeps_the_tombstone_of_a_concurrent_deletion() -> None:
    """A tombstone that hides nothing is removed; a new one stays."""

    def prepare() -> World:
        found = world()
        found.second.delete("b/c")
        found.store.delete("raw/c")
        return found

    def delete(all: World) -> None:
        all.second.delete("b/a")
        all.second.delete("b/d", recursive=True)

    for found, reported in at_each_request(prepare, lambda all: all.first.bindings.prune(), delete):
        assert reported is None
        assert found.see() == []


def test_prune_keeps_the_tombstones_of_a_newly_bound_directory() -> None:
    """In an unbound directory they hide nothing, and all are removed; once it is bound, all are kept."""

    def prepare() -> World:
        found = world()
        found.second.delete("b/c")
        found.second.delete("b/d", recursive=True)
        found.second.bindings.unbind("b")
        return found

    seen = set()
    for found, reported in at_each_request(
        prepare,
        lambda all: all.first.bindings.prune(),
        lambda all: all.second.bindings.bind("raw/", "b"),
    ):
        assert reported is None
        seen.add(tuple(found.see()))
    assert seen == {("a",), ("a", "c", "d", "d/x")}  # bound before they were removed, or after


def test_hidden_objects_stay_hidden_during_a_prune() -> None:
    """This holds once a client has read the bound directory without them."""
    shown: list[list[str]] = []

    def prepare() -> World:
        found = world()
        found.second.delete("b/c")
        found.second.bindings.unbind("b")
        return found

    def bind(all: World) -> None:
        all.second.bindings.bind("raw/", "b")
        shown.append(all.see())

    for found, reported in at_each_request(prepare, lambda all: all.first.bindings.prune(), bind):
        assert reported is None
        assert found.see() == shown[-1]
    assert ["a", "d", "d/x"] in shown


def test_prune_keeps_a_tombstone_behind_own_content() -> None:
    """When the own content is deleted, the object that it replaced stays hidden."""

    def prepare() -> World:
        found = world()
        found.second.write("b/a", b"own")
        return found

    for found, reported in at_each_request(
        prepare, lambda all: all.first.bindings.prune(), lambda all: all.second.delete("b/a")
    ):
        assert reported is None
        assert found.see() == ["c", "d", "d/x"]


def test_prune_keeps_a_tombstone_that_replaced_another() -> None:
    """The old one hid nothing; the new one hides an object that was stored again."""

    def prepare() -> World:
        found = world()
        found.second.delete("b/c")
        found.store.delete("raw/c")
        return found

    def again(all: World) -> None:
        all.clock.advance(1)
        all.put("raw/c", body=b"again")
        all.second.bindings.sync()
        all.second.delete("b/c")

    for found, reported in at_each_request(prepare, lambda all: all.first.bindings.prune(), again):
        assert reported is None
        assert found.see() == ["a", "d", "d/x"]


def test_a_new_directory_does_not_show_deleted_objects() -> None:
    """This holds even if it is made while the old directory is deleted."""

    def delete(all: World) -> None:
        all.put("raw/m/x")
        all.second.bindings.sync()
        all.second.delete("b/m", recursive=True)

    for found, reported in at_each_request(world, lambda all: all.first.write("b/m/own", b""), delete):
        assert reported is None
        assert "m/x" not in found.see()


CHANGES: dict[str, Callable[[Namespace], object]] = {
    "delete a file": lambda lake: lake.delete("b/new"),
    "rename a file": lambda lake: lake.rename("b/new", "z"),
    "write over a file": lambda lake: lake.write("b/new", b"own"),
    "write a file once": lambda lake: lake.write("b/late", b"own", overwrite=False),
    "delete a directory": lambda lake: lake.delete("b/n", recursive=True),
    "rename a directory": lambda lake: lake.rename("b/n", "z"),
    "write into a directory": lambda lake: lake.write("b/n/own", b"own"),
    "make a directory": lambda lake: lake.make_directory("b/n/deep/er"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("other", ["sync", "the same"])
def test_a_change_of_an_object_without_a_row_is_made_once(change: str, other: str) -> None:
    """Meanwhile another client gives the object a row, or makes the same change."""

    def prepare() -> World:
        found = world(0)
        found.put("raw/new", "raw/n/y")
        return found

    def meanwhile(all: World) -> None:
        if other == "sync":
            all.second.bindings.sync()
        else:
            outcome(lambda: CHANGES[change](all.second))

    expected = prepare()
    CHANGES[change](expected.second)
    for found, reported in at_each_request(prepare, lambda all: CHANGES[change](all.first), meanwhile):
        assert reported is None or other == "the same"
        assert found.see() == expected.see()
        assert found.second.exists("z") == expected.second.exists("z")


# -- crashes -----------------------------------------------------------------------------------------

WORK: dict[str, Callable[[Namespace], object]] = {
    "sync": lambda lake: lake.bindings.sync(),
    "look": lambda lake: list(lake.walk("b")),
    "prune": lambda lake: lake.bindings.prune(older_than=1),
    "bind": lambda lake: lake.bindings.bind("raw/", "b", max_age=5),
    "unbind": lambda lake: lake.bindings.unbind("b"),
    **CHANGES,
}


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("work", WORK)
def test_an_operation_can_be_repeated_after_a_crash(work: str, after: bool) -> None:
    """After a crash at any request the state is consistent, and a repetition completes the operation."""

    def prepare() -> World:
        found = world()
        found.put("raw/z")
        found.second.bindings.sync()
        found.second.delete("b/z")
        found.second.rename("b/d", "d")
        found.second.make_directory("b/e")
        found.second.bindings.bind("raw/", "b", max_age=0 if work in CHANGES else 2)
        found.clock.advance(2)
        return changed(found)

    whole = prepare()
    WORK[work](whole.second)
    times = 0
    for found, died in dying(prepare, lambda all: WORK[work](all.first), after=after):
        times += died
        found.audit()
        if work != "prune":
            assert not found.second.exists("b/z") and not found.second.exists("b/d")
        again = outcome(lambda: WORK[work](found.second))  # noqa: B023
        assert again is None or (work in CHANGES and (after or not died))
        found.see()
        whole.see()
        assert found.audit() == whole.audit()
    assert times >= 3


@pytest.mark.parametrize("work", WORK)
def test_a_lost_answer_changes_nothing(work: str) -> None:
    """A change that was made is not made again, and is not taken for another client's change."""

    def prepare() -> World:
        found = world()
        found.second.delete("b/a")
        found.second.bindings.bind("raw/", "b", max_age=0 if work in CHANGES else 2)
        found.clock.advance(2)
        return changed(found)

    whole = prepare()
    WORK[work](whole.second)
    at, lost = 0, True
    while lost:
        found, count, lost = prepare(), 0, False

        def step(what: str, perform: Callable[[], object]) -> None:
            nonlocal count, lost
            perform()
            if what == "transact":
                count += 1
                if count == at + 1:  # noqa: B023
                    lost = True
                    raise OutcomeUnknown("the answer was lost")

        found.disturb(step)
        WORK[work](found.first)
        found.disturb(lambda what, perform: perform())
        assert found.see() == whole.see()
        assert found.audit() == whole.audit()
        at += 1
