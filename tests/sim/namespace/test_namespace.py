"""Namespaces in the simulator: small worlds, explored exhaustively, and large ones from seeds.

`sim.namespace.judge` has the checks after each change and of each result. ``python -m pytest
tests/sim/namespace/test_namespace.py -s -k states`` prints the size of each world. With ``-m campaign``
the larger ones are explored. ``python -m commitlog.testing.sim --list`` lists the large worlds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from commitlog.testing.sim import Fault
from sim.exploration import Case
from sim.namespace.actions import (
    Program,
    bulk_link,
    delete,
    empty_trash,
    gc,
    import_objects,
    link,
    make_directory,
    publish,
    read,
    recover,
    rename,
    replace,
    reshard,
    set_attributes,
    stream,
    write,
)
from sim.namespace.world import ANY, ON_THE_WAY, world_of
from support.selection import in_campaigns, with_all, with_all_but
from worlds import run_seeds

# -- one operation alone ------------------------------------------------------------------------------

TREE: Mapping[str, Any] = {
    "made": ("d", "d/s", "e"),
    "files": {"d/f": b"0", "f": b"1"},
    "objects": {"old/1": b"3", "old/2": b"4"},
}
ADOPTED = {"e": None, "e/1": b"3", "e/2": b"4"}

ALONE: Mapping[str, Program] = {
    "a new file": [write("d/new", b"2", overwrite=False)],
    "an overwrite": [write("d/f", b"2")],
    "a file below missing directories": [write("x/y/f", b"2", parents=True)],
    "a stream": [stream("d/new", b"2")],
    "files of objects": [link({"d/f": b"2", "e/f": b"3"})],
    "files in one directory": [bulk_link("e", {"1": b"2", "2": b"3"})],
    "directories": [make_directory("x/y", shards=2)],
    "an existing directory": [make_directory("d/s")],
    "a rename of a file": [rename("d/f", "g")],
    "a rename of a file over another": [rename("d/f", "f", overwrite=True)],
    "a rename of a directory": [rename("d", "e/d")],
    "a rename of a directory over another": [rename("d", "e", overwrite=True)],
    "a replacement of a directory": [replace("d", "e")],
    "a rename to the same path": [rename("d/f", "d/f")],
    "a deletion of a file": [delete("f")],
    "a deletion of a directory": [delete("e")],
    "a deletion of a directory that is not empty": [delete("d")],
    "a recursive deletion of a directory": [delete("d", recursive=True)],
    "attributes": [set_attributes("d/f", x="1")],
    "growth": [reshard("d", shards=2)],
    "an adoption": [import_objects("old/", "e", ADOPTED)],
    "a sweep": [delete("d", recursive=True), empty_trash()],
    "a collection": [delete("d/f"), 1.0, gc()],
}


#: One of each kind of change.
LOGGED = (
    "a file below missing directories",
    "a rename of a file over another",
    "a rename of a directory over another",
    "a replacement of a directory",
    "a deletion of a file",
    "a recursive deletion of a directory",
    "growth",
    "an adoption",
)


def _alone(name: str, most: int) -> Case:
    return Case(
        name=f"{name}, {'two faults' if most == 2 else 'a fault'}",
        programs={"A": ALONE[name]},
        faults=ANY,
        most=most,
        options={**TREE, "stored": True, "grace": 0.0},
    )


@pytest.mark.parametrize("name", ALONE)
def test_states_of_an_operation_alone(name: str) -> None:
    """With any fault at any of its requests, it happens once or not at all."""
    _alone(name, most=1).check(world_of)


#: Operations that meet at most one fault.
ONE_FAULT = ("an adoption", "a sweep", "a collection")

#: Operations that represent the others with two faults: one of each kind of change.
TWO_FAULTS = (
    "a new file",
    "directories",
    "a rename of a file over another",
    "a replacement of a directory",
    "a deletion of a directory",
    "attributes",
)


@pytest.mark.all
@pytest.mark.parametrize(
    "name",
    [name if name in TWO_FAULTS else in_campaigns(name) for name in ALONE if name not in ONE_FAULT],
)
def test_states_of_an_operation_and_two_faults(name: str) -> None:
    """The same holds with any two faults at any of its requests."""
    _alone(name, most=2).check(world_of)


@pytest.mark.parametrize("name", LOGGED)
def test_states_of_a_logged_operation(name: str) -> None:
    """With any fault at any of its requests, the log has the outcome, or a recovery finds it."""
    Case(
        name=f"{name}, logged, a fault",
        programs={"A": ALONE[name]},
        faults=ANY,
        options={**TREE, "logged": True, "grace": 0.0},
    ).check(world_of)


# -- two operations at once ---------------------------------------------------------------------------

PAIRED: Mapping[str, Program] = {
    "create": [write("d/n", b"2", overwrite=False)],
    "overwrite": [write("d/f", b"3")],
    "link": [link({"e/f": b"5"}, overwrite=False)],
    "make": [make_directory("d/s/t")],
    "rename file": [rename("f", "e/f")],
    "rename file over": [rename("d/f", "f", overwrite=True)],
    "rename directory": [rename("d", "e/d")],
    "rename directory back": [rename("e", "d/e")],
    "rename directory over": [rename("d/s", "e", overwrite=True)],
    "replace": [replace("d/s", "e")],
    "delete file": [delete("d/f")],
    "delete directory": [delete("d/s")],
    "delete with all": [delete("d", recursive=True)],
    "attributes": [set_attributes("d/f", x="1")],
    "grow": [reshard("d", shards=2)],
    "adopt": [import_objects("old/", "e", ADOPTED)],
    "read": [read("d/f", slowly=1.0)],
}

#: These look up two paths, one after the other. So one may see its source before another operation, and
#: its target after it, and fail for a reason that never held for both.
TWO_PATHS = tuple(name for name in PAIRED if name.startswith("re") and name != "read")

PAIRS = [(first, second) for number, first in enumerate(PAIRED) for second in list(PAIRED)[number:]]


def _pair(first: str, second: str, **options: Any) -> Case:
    exact = not (first in TWO_PATHS and second in TWO_PATHS)
    return Case(
        name=f"{first} × {second}",
        programs={"A": PAIRED[first], "B": PAIRED[second]},
        options={**TREE, "exact": exact, **options},
    )


@pytest.mark.parametrize(("one", "other"), list(zip([*PAIRED][::2], [*PAIRED][1::2], strict=False)))
def test_states_of_some_pairs(one: str, other: str) -> None:
    """Each operation and one other: the result is that of some order of the two."""
    _pair(one, other).check(world_of)


#: The pairs of "link" are those of "create" with other requests.
@pytest.mark.all
@pytest.mark.parametrize("first", [in_campaigns(n) if n == "link" else n for n in PAIRED])
def test_states_of_two_operations(first: str) -> None:
    """Two operations, in any order of their requests, have the result of some order of the two."""
    for one, other in PAIRS:
        if one == first:
            _pair(one, other).check(world_of)


# -- larger worlds ------------------------------------------------------------------------------------

_LOSSES = (Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.DELAYED, Fault.DUPLICATED, Fault.REPEATED)
_LATE = (Fault.DELAYED, Fault.CRASHED)

CASES = [
    Case(
        name="two exclusive writes, any fault",
        programs={"A": [write("f", b"1", overwrite=False)], "B": [write("f", b"2", overwrite=False)]},
        faults=ON_THE_WAY,
        expected=("write: done", "write: AlreadyExists", "write: unknown"),
    ),
    Case(
        name="two exclusive writes, on a table without tokens",
        programs={"A": [write("f", b"1", overwrite=False)], "B": [write("f", b"2", overwrite=False)]},
        faults=(Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.REPEATED, Fault.FAILED_AFTER),
        expected=("write: done", "write: AlreadyExists"),
        options={"tokens": False},
    ),
    Case(
        name="an exclusive write and a deletion of a file, two losses",
        programs={"A": [write("f", b"1", overwrite=False)], "B": [delete("f")]},
        faults=_LOSSES,
        most=2,
    ),
    Case(
        name="a write into a directory that is removed, any fault",
        programs={"A": [write("d/f", b"1")], "B": [delete("d")]},
        faults=ANY,
        expected=("write: NotFound", "delete: DirectoryNotEmpty", "write: unknown", "delete: done"),
        options={"made": ("d",)},
    ),
    Case(
        name="a write into a directory that is renamed, paths not stable",
        programs={"A": [write("d/f", b"1")], "B": [rename("d", "e")]},
        faults=_LOSSES,
        options={"made": ("d",), "stable": False},
    ),
    Case(
        name="two renames that would make a cycle, any fault",
        programs={"A": [rename("a", "b/a")], "B": [rename("b", "a/b")]},
        faults=ANY,
        options={"made": ("a", "b"), "stable": False},
    ),
    Case(
        name="two overwrites of a file, one by a rename, any fault",
        programs={"A": [rename("g", "f", overwrite=True)], "B": [write("f", b"2")]},
        faults=ON_THE_WAY,
        options={"files": {"f": b"0", "g": b"1"}},
    ),
    Case(
        name="an overwrite, a deletion and a collection beside a slow reader",
        programs={
            "A": [read("f", slowly=8.0)],
            "B": [write("f", b"2"), 1.0, delete("f"), 5.0, gc(), 6.0, gc()],
        },
        expected=("read: done", "collect: done"),
        options={"files": {"f": b"0"}, "grace": 10.0},
    ),
    Case(
        name="a collection beside an overwrite, a crash",
        programs={"A": [write("f", b"2"), write("f", b"3")], "B": [gc(), 1.0, gc()]},
        faults=(Fault.CRASHED,),
        options={"files": {"f": b"0"}, "grace": 0.0},
    ),
    Case(
        name="two collections, a crash or a part",
        programs={"A": [delete("d/f"), delete("f"), 1.0, gc()], "B": [2.0, gc()]},
        faults=(Fault.CRASHED, Fault.PARTIAL),
        options={**TREE, "stored": True, "grace": 0.0},
    ),
    Case(
        name="a repeated look beside a directory that changes elsewhere and comes back",
        programs={
            "A": [read("a/f"), 2.0, read("a/f")],
            "B": [
                *(1.0, rename("a", "z"), 1.0),
                *(write("z/f", b"2"), write("z/f", b"3"), rename("z", "a")),
            ],
        },
        expected=("read: done", "read: NotFound"),
        options={"made": ("a",), "files": {"a/f": b"0"}, "stable": False},
    ),
    Case(
        name="a repeated look beside a replacement of a directory above, any fault",
        programs={"A": [read("a/b/f"), read("a/b/f")], "B": [replace("n", "a")]},
        faults=ON_THE_WAY,
        expected=("read: done",),
        options={"made": ("a/b", "n/b"), "files": {"a/b/f": b"0", "n/b/f": b"1"}, "stable": False},
    ),
    Case(
        name="a rename in a known directory beside a replacement of that directory",
        programs={
            "A": [read("a/f"), 9.0, rename("a/f", "a/g")],
            "B": [9.0, replace("n", "a")],
        },
        expected=("rename: done",),
        options={"made": ("a", "n"), "files": {"a/f": b"0", "n/f": b"1"}},
    ),
    Case(
        name="files in a known directory beside a rename of that directory",
        programs={
            "A": [read("a/f"), 9.0, link({"a/x": b"1", "a/y": b"2"})],
            "B": [9.0, rename("a", "b")],
        },
        expected=("link: done", "link: NotFound"),
        options={"made": ("a",), "files": {"a/f": b"0"}},
    ),
    Case(
        name="a sweep beside a rename out of the trash",
        programs={"A": [delete("d", recursive=True), empty_trash()], "B": [rename("d/f", "g")]},
        expected=("rename: done", "rename: NotFound", "sweep: done"),
        options={"made": ("d",), "files": {"d/f": b"0"}, "stable": False, "exact": False},
    ),
    Case(
        name="a sweep beside new attributes of a swept file",
        programs={
            "A": [delete("d", recursive=True), empty_trash()],
            "B": [set_attributes("d/f", x="1")],
        },
        expected=("attributes: done", "attributes: NotFound"),
        options={"made": ("d",), "files": {"d/f": b"0"}, "stable": False, "exact": False},
    ),
    Case(
        name="a dead client, its late request, and a recovery",
        programs={"A": [write("f", b"2")], "R": [20.0, recover(older_than=10.0)]},
        faults=_LATE,
        most=2,
        expected=("write: done", "recover: done"),
        options={"files": {"f": b"0"}, "logged": True},
    ),
    Case(
        name="two logged writes of a file, a loss",
        programs={"A": [write("f", b"1")], "B": [write("f", b"2")]},
        faults=(Fault.LOST_RESPONSE,),
        options={"files": {"f": b"0"}, "logged": True},
    ),
]


ONE = {"part": b"1", "other": b"2"}

PUBLISHED = [
    Case(
        name="a job that makes a directory, any fault",
        programs={"A": [publish("j", ONE)]},
        faults=ANY,
        expected=("publish: done", "publish: Unavailable"),
        options={"stable": False},
    ),
    Case(
        name="a job that adds to a directory, any fault",
        programs={"A": [publish("j", ONE)]},
        faults=ANY,
        expected=("publish: done", "publish: Unavailable"),
        options={"stable": False, "made": ("out",), "files": {"out/old": b"0"}},
    ),
    Case(
        name="a job that replaces a directory, any fault",
        programs={"A": [publish("j", ONE, mode="overwrite")]},
        faults=ANY,
        expected=("publish: done", "publish: Unavailable"),
        options={"stable": False, "made": ("out",), "files": {"out/old": b"0"}},
    ),
]

LARGE = [
    Case(
        name="two attempts at one job",
        programs={"A": [publish("j", {"1": b"1"})], "B": [publish("j", {"1": b"1"})]},
        expected=("publish: done", "publish: JobAlreadyCommitted"),
        options={"stable": False},
    ),
    Case(
        name="a job that replaces a directory, and one that adds to it",
        programs={
            "A": [publish("j", {"1": b"1"}, mode="overwrite")],
            "B": [publish("k", {"2": b"2"})],
        },
        options={"stable": False, "made": ("out",)},
    ),
    Case(
        name="growth beside two writes of the same name",
        programs={
            "A": [reshard("d", shards=2)],
            "B": [write("d/b", b"1", overwrite=False)],
            "C": [write("d/b", b"2", overwrite=False)],
        },
        expected=("write: done", "write: AlreadyExists", "grow: done"),
        options={"made": ("d",)},
    ),
    Case(
        name="two recoveries of a dead client, a crash",
        programs={
            "A": [rename("d", "e/d")],
            "R": [20.0, recover(older_than=10.0)],
            "S": [20.0, recover(older_than=10.0)],
        },
        faults=(Fault.CRASHED,),
        options={"made": ("d", "e"), "logged": True},
    ),
    Case(
        name="three renames in a ring",
        programs={"A": [rename("a", "b/a")], "B": [rename("b", "c/b")], "C": [rename("c", "a/c")]},
        options={"made": ("a", "b", "c"), "stable": False},
    ),
]


MAKES, ADDS, REPLACES = PUBLISHED


def _with_some_faults(case: Case) -> Case:
    name = f"{case.name.removesuffix(', any fault')}, a crash or a lost answer"
    return evolve(
        case, name=name, faults=(Fault.CRASHED, Fault.LOST_RESPONSE), expected=("publish: done",)
    )


@pytest.mark.parametrize(
    "case",
    [
        _with_some_faults(MAKES),
        with_all(MAKES),
        with_all(_with_some_faults(REPLACES)),
        in_campaigns(ADDS),
        in_campaigns(REPLACES),
    ],
    ids=str,
)
def test_states_of_published_jobs(case: Case) -> None:
    """After each request, a job is visible completely or not at all, and its driver knows which."""
    case.check(world_of)


#: Worlds of the default run: exclusive writes, losses, collections, the trash and the log.
QUICK = (
    "two exclusive writes, any fault",
    "a write into a directory that is renamed, paths not stable",
    "two collections, a crash or a part",
    "a sweep beside a rename out of the trash",
    "a dead client, its late request, and a recovery",
)


#: The world with the most states. Another world repeats a look while a directory changes.
LONGEST = "a repeated look beside a replacement of a directory above, any fault"


def _small() -> list[Any]:
    cases = with_all_but(lambda case: case.name in QUICK, [c for c in CASES if c.name != LONGEST])
    return [*cases, *(in_campaigns(case) for case in CASES if case.name == LONGEST)]


@pytest.mark.parametrize("case", _small(), ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """The result is that of the operations in some order."""
    case.check(world_of)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same holds in larger worlds, with more clients."""
    case.check(world_of)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", PAIRED)
def test_states_of_two_operations_and_a_fault(first: str) -> None:
    """The same holds with any fault at any request of the two operations."""
    for one, other in PAIRS:
        if one == first:
            case = _pair(one, other)
            evolve(case, faults=ANY, name=f"{case.name}, any fault").check(world_of)


# -- drawn from seeds ----------------------------------------------------------------------------------

#: Number of seeds of each large world in a default run.
RUNS: Mapping[str, int] = {
    "namespace-stable": 60,
    "namespace-loose": 50,
    "namespace-stable-logged": 20,
    "namespace-loose-logged": 15,
}


@pytest.mark.parametrize("world", RUNS)
def test_some_seeds(world: str) -> None:
    """The same holds in random worlds of two to four clients, with every operation and all faults."""
    report = run_seeds(world, RUNS[world])
    calls = {name.partition(":")[0] for name in report.outcomes}
    wanted = {"write", "rename", "replace", "delete", "make", "attributes", "grow", "stream", "link"}
    assert calls >= wanted | {"bulk link", "adopt", "sweep", "collect", "read", "list"}
