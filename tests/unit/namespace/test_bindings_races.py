"""Bound directories while others are at work: two clients at once, deaths, and lost answers.

Each schedule is tried at every request of the client that is disturbed. Whatever happens, nothing that
was deleted comes back, nothing is lost or there twice, and what was begun can be completed.
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
    """Of a client, in the middle of what it does."""


class WatchedStore(MemoryStore):
    """A store whose reads are seen by the step of a client's way to the table, too."""

    step: Callable[[str, Callable[[], object]], object] | None = None

    def list_page(self, *args: Any, **named: Any) -> Page:
        """A listing; what happens in its step happens before it."""
        return self._do("list", lambda: super(WatchedStore, self).list_page(*args, **named))

    def begin_head(self, path: str) -> InFlight[Observation]:
        """The same of a look at an object."""
        return self._do("head", lambda: super(WatchedStore, self).begin_head(path))

    def _do(self, what: str, perform: Callable[[], T]) -> T:
        if self.step is None:
            return perform()
        found: list[T] = []
        self.step(what, lambda: found.append(perform()))
        return found[-1]


@define
class World:
    """Two clients of a namespace with a bound directory, and those who know nothing of it."""

    clock: ManualClock
    table: ServiceTable
    store: WatchedStore
    seen: WatchedStore
    wire: InterceptedTable
    first: Namespace
    second: Namespace

    def put(self, *paths: str, body: bytes = b"theirs") -> None:
        """Others put objects."""
        for path in paths:
            self.store.put(path, body)

    def audit(self) -> list[str]:
        """Return the paths of all rows, after they were checked."""
        return sorted(Auditor(self.table, LAKE).audit())

    def see(self, path: str = "b") -> list[str]:
        """Return what the second client sees, once all was synchronised."""
        self.second.bindings.sync()
        self.audit()
        return [each.path.removeprefix(f"{path}/") for each in self.second.walk(path)]

    def disturb(self, step: Callable[[str, Callable[[], object]], object]) -> None:
        """Let something happen at the requests of the first client."""
        self.wire.step = step
        self.seen.step = step


def world(max_age: float | None = None) -> World:
    """Return a new one: two files, and a directory with a third, of which the table knows."""
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
    """Yield what came of it when something happened before each request of another, and after."""
    at = 0
    while True:
        found = prepare()
        count = 0
        done = False

        def step(what: str, perform: Callable[[], object]) -> None:
            nonlocal count, done
            if count == at and not done:  # noqa: B023 - called in this turn alone
                done = True
                meanwhile(found)  # noqa: B023
            count += 1
            perform()

        found.disturb(step)
        told = outcome(lambda: disturbed(found))  # noqa: B023
        found.disturb(lambda what, perform: perform())
        last = not done
        if last:
            meanwhile(found)
        yield found, told
        if last:
            return
        at += 1


def dying(
    prepare: Callable[[], World], disturbed: Callable[[World], object], *, after: bool
) -> Iterator[tuple[World, bool]]:
    """Yield what a client left that died at each of its requests, before or after it took effect."""
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


# -- two at once -------------------------------------------------------------------------------------


def news() -> World:
    """Return a world in which something is new, something changed, and something gone."""
    return changed(world())


def changed(found: World) -> World:
    """Have others change what is there."""
    added(found)
    found.put("raw/a", body=b"newer")
    found.store.delete("raw/c")
    return found


def added(found: World) -> World:
    """Have others add to what is there."""
    found.put("raw/new", "raw/n/y")
    return found


def test_two_synchronise_at_once() -> None:
    """Each object is one file, and each of them says what it has done; nothing is done twice."""
    for found, told in at_each_request(
        news, lambda all: all.first.bindings.sync(), lambda all: all.second.bindings.sync()
    ):
        assert told is None
        assert found.audit() == ["b", "b/a", "b/d", "b/d/x", "b/n", "b/n/y", "b/new"]
        assert found.second.read("b/a") == b"newer"


def test_what_is_deleted_while_somebody_synchronises_does_not_come_back() -> None:
    """Not a file that he has seen in the table, or in the store, and not a directory."""

    def delete(all: World) -> None:
        all.second.bindings.sync()
        for path in ("b/a", "b/new"):
            all.second.delete(path)
        all.second.delete("b/d", recursive=True)
        all.second.delete("b/n", recursive=True)

    for found, told in at_each_request(news, lambda all: all.first.bindings.sync(), delete):
        assert told is None
        assert found.see() == []


@pytest.mark.parametrize("max_age", [0, 60])
def test_what_is_deleted_while_somebody_looks_does_not_come_back(max_age: float) -> None:
    """Nor is it shown to who looks for it afterwards, by its path."""

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

    for found, told in at_each_request(old, look, delete):
        assert told is None
        assert not found.first.exists("b/new")
        assert found.see() == ["d", "n"]


def test_what_is_renamed_while_somebody_synchronises_is_where_it_was_renamed_to() -> None:
    """Only there."""

    def rename(all: World) -> None:
        all.second.bindings.sync()
        all.second.rename("b/a", "a")
        all.second.rename("b/d", "d")

    for found, told in at_each_request(news, lambda all: all.first.bindings.sync(), rename):
        assert told is None
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
def test_what_is_overwritten_while_somebody_looks_is_there(look: str) -> None:
    """The tombstone of what was overwritten is not taken for that of a file that was deleted."""

    def prepare() -> World:
        found = world(0)
        found.second.rename("b/a", "a")
        found.put("raw/a", body=b"new")  # of which no row knows
        return found

    def meanwhile(found: World) -> None:
        found.second.write("b/a", b"own")

    for _, told in at_each_request(prepare, lambda all: LOOKS[look](all.first), meanwhile):
        assert told is None


@pytest.mark.parametrize("look", ["stat", "overwrite", "delete"])
def test_what_is_overwritten_while_somebody_looks_outlives_its_old_object(look: str) -> None:
    """An object that is gone is not what the file has any more."""

    def meanwhile(found: World) -> None:
        found.second.write("b/a", b"own")
        found.store.delete("raw/a")

    for _, told in at_each_request(lambda: world(0), lambda all: LOOKS[look](all.first), meanwhile):
        assert told is None


def test_the_directory_is_renamed_or_unbound_while_somebody_synchronises_it() -> None:
    """It is what it was, elsewhere, or takes nothing more."""
    for found, _ in at_each_request(
        news, lambda all: all.first.bindings.sync(), lambda all: all.second.rename("b", "z")
    ):
        assert found.see("z") == ["a", "d", "d/x", "n", "n/y", "new"]
        assert not found.second.exists("b")


@pytest.mark.parametrize("prepare", [news, lambda: added(world())], ids=["all kinds", "new ones"])
def test_what_is_unbound_takes_nothing_more(prepare: Callable[[], World]) -> None:
    """Not from one who has begun to synchronise it before."""
    had: list[list[str]] = []

    def unbind(all: World) -> None:
        all.second.bindings.unbind("b")
        had.append(all.audit())

    for found, told in at_each_request(prepare, lambda all: all.first.bindings.sync(), unbind):
        assert told is None
        assert found.second.stat("b").binding is None
        assert found.audit() == had[-1]


def bindings(found: World) -> list[str]:
    """Return what is bound."""
    return [each.path for each in found.second.walk() if each.binding is not None]


@pytest.mark.parametrize("after", [False, True])
def test_to_unbind_can_be_repeated(after: bool) -> None:
    """Whoever dies at whatever request: nothing bound with it is bound then, but what else is."""

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


def test_what_comes_while_it_is_unbound_is_unbound_too() -> None:
    """Directories of the store, which somebody lists, or of somebody who makes one there."""

    def come(all: World) -> None:
        all.put("raw/d/n/y")
        all.second.bindings.sync()
        all.second.make_directory("b/made/below")

    for found, told in at_each_request(world, lambda all: all.first.bindings.unbind("b"), come):
        assert told is None
        assert bindings(found) == []
        found.audit()


@pytest.mark.parametrize("name", ["a", "c"])
def test_own_content_is_not_removed_or_replaced(name: str) -> None:
    """If it is written over a file whose object has gone, or changed, while somebody synchronises."""

    def write(all: World) -> None:
        all.second.write(f"b/{name}", b"own")

    for found, told in at_each_request(news, lambda all: all.first.bindings.sync(), write):
        assert told is None
        assert found.second.exists("b/new")  # what else there was to do was done
        assert name == "c" or not found.second.exists("b/c")
        assert name == "a" or found.second.read("b/a") == b"newer"
        found.see()
        assert found.second.read(f"b/{name}") == b"own"


def test_the_directory_is_deleted_while_somebody_synchronises_it() -> None:
    """Nothing is added to it, and all of it can be swept."""

    def delete(all: World) -> None:
        all.second.delete("b", recursive=True)
        all.second.maintenance.empty_trash()

    for found, _ in at_each_request(news, lambda all: all.first.bindings.sync(), delete):
        found.second.maintenance.empty_trash()
        assert found.audit() == []


def test_what_comes_while_somebody_synchronises_is_not_missed_for_good() -> None:
    """It is there if the directory claims to be as the store was when it was looked at, or was later."""
    for found, told in at_each_request(
        news, lambda all: all.first.bindings.sync(), lambda all: all.put("raw/late", "raw/late-d/z")
    ):
        assert told is None
        assert {"a", "new"} <= {each.name for each in found.second.list("b")}
        assert found.see() == ["a", "d", "d/x", "late", "late-d", "late-d/z", "n", "n/y", "new"]


def test_an_object_flaps_while_two_synchronise() -> None:
    """What was removed since it was gone is there again when it is; no claim says otherwise."""

    def flap(all: World) -> None:
        all.put("raw/a", body=b"third")
        all.store.delete("raw/new")
        all.second.bindings.sync()
        all.put("raw/new", body=b"again")

    for found, told in at_each_request(news, lambda all: all.first.bindings.sync(), flap):
        assert told is None
        found.second.bindings.sync()
        assert found.second.read("b/new") == b"again" and found.second.read("b/a") == b"third"


def test_pruning_beside_a_deletion_keeps_its_tombstone() -> None:
    """One that hides nothing goes, and one that was left meanwhile stays."""

    def prepare() -> World:
        found = world()
        found.second.delete("b/c")
        found.store.delete("raw/c")
        return found

    def delete(all: World) -> None:
        all.second.delete("b/a")
        all.second.delete("b/d", recursive=True)

    for found, told in at_each_request(prepare, lambda all: all.first.bindings.prune(), delete):
        assert told is None
        assert found.see() == []


def test_pruning_keeps_the_tombstones_of_a_directory_that_is_bound_meanwhile() -> None:
    """They hid nothing as long as it was not, and all went; by now they hide what was deleted."""

    def prepare() -> World:
        found = world()
        found.second.delete("b/c")
        found.second.delete("b/d", recursive=True)
        found.second.bindings.unbind("b")
        return found

    seen = set()
    for found, told in at_each_request(
        prepare,
        lambda all: all.first.bindings.prune(),
        lambda all: all.second.bindings.bind("raw/", "b"),
    ):
        assert told is None
        seen.add(tuple(found.see()))
    assert seen == {("a",), ("a", "c", "d", "d/x")}  # it was bound before they went, or after that


def test_what_is_hidden_stays_so_while_somebody_prunes() -> None:
    """Once somebody has seen it so, in a directory that is bound."""
    shown: list[list[str]] = []

    def prepare() -> World:
        found = world()
        found.second.delete("b/c")
        found.second.bindings.unbind("b")
        return found

    def bind(all: World) -> None:
        all.second.bindings.bind("raw/", "b")
        shown.append(all.see())

    for found, told in at_each_request(prepare, lambda all: all.first.bindings.prune(), bind):
        assert told is None
        assert found.see() == shown[-1]
    assert ["a", "d", "d/x"] in shown


def test_pruning_keeps_what_hides_something_behind_a_file() -> None:
    """Own content that is deleted meanwhile does not uncover what it has replaced."""

    def prepare() -> World:
        found = world()
        found.second.write("b/a", b"own")
        return found

    for found, told in at_each_request(
        prepare, lambda all: all.first.bindings.prune(), lambda all: all.second.delete("b/a")
    ):
        assert told is None
        assert found.see() == ["c", "d", "d/x"]


def test_pruning_keeps_a_tombstone_that_took_the_place_of_another() -> None:
    """One that was of no use is not removed if it was left anew, of an object that was stored anew."""

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

    for found, told in at_each_request(prepare, lambda all: all.first.bindings.prune(), again):
        assert told is None
        assert found.see() == ["a", "d", "d/x"]


def test_a_new_directory_does_not_have_what_was_deleted_under_its_name() -> None:
    """Nor if it is made at the moment at which another one is deleted."""

    def delete(all: World) -> None:
        all.put("raw/m/x")
        all.second.bindings.sync()
        all.second.delete("b/m", recursive=True)

    for found, told in at_each_request(world, lambda all: all.first.write("b/m/own", b""), delete):
        assert told is None
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
def test_a_change_is_made_once_whoever_takes_the_object_first(change: str, other: str) -> None:
    """A client that changes what only the store has, while another one takes it, or does the same."""

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
    for found, told in at_each_request(prepare, lambda all: CHANGES[change](all.first), meanwhile):
        assert told is None or other == "the same"
        assert found.see() == expected.see()
        assert found.second.exists("z") == expected.second.exists("z")


# -- deaths ------------------------------------------------------------------------------------------

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
def test_a_death_leaves_what_the_next_one_completes(work: str, after: bool) -> None:
    """At every request: nothing is broken, nothing comes back, and doing it again makes all well."""

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
    """Whichever it is: what was done is not done again, and is not taken for another's doing."""

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
