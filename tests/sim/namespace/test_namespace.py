"""Clients of a namespace on the simulator: small worlds explored whole, large ones drawn from seeds.

In small worlds, every order of requests is tried, with every fault at each of them; what is checked at
every request that changes something, at every answer and at the end is in `sim.namespace.judge`.
``python -m pytest tests/sim/namespace/test_namespace.py -s -k states`` prints how large the worlds are.
With ``-m campaign`` the larger ones are explored. ``python -m commitlog.testing.sim --list`` names the
large worlds, which it runs from seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from commitlog.testing.sim import Fault
from sim.namespace.case import Case
from sim.namespace.world import (
    ANY,
    ON_THE_WAY,
    Program,
    adopt,
    attributes,
    bulk_link,
    collect,
    delete,
    grow,
    link,
    make,
    publish,
    read,
    recover,
    rename,
    replace,
    stream,
    sweep,
    write,
)
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
    "directories": [make("x/y", shards=2)],
    "a directory that is there": [make("d/s")],
    "a rename of a file": [rename("d/f", "g")],
    "a rename of a file over another": [rename("d/f", "f", overwrite=True)],
    "a rename of a directory": [rename("d", "e/d")],
    "a rename of a directory over another": [rename("d", "e", overwrite=True)],
    "a replacement of a directory": [replace("d", "e")],
    "a rename to where it is": [rename("d/f", "d/f")],
    "a deletion of a file": [delete("f")],
    "a deletion of a directory": [delete("e")],
    "a deletion of a directory that is not empty": [delete("d")],
    "a deletion of a directory with all": [delete("d", recursive=True)],
    "attributes": [attributes("d/f", x="1")],
    "growth": [grow("d", shards=2)],
    "an adoption": [adopt("old/", "e", ADOPTED)],
    "a sweep": [delete("d", recursive=True), sweep()],
    "a collection": [delete("d/f"), 1.0, collect()],
}


#: One of each kind of change.
LOGGED = (
    "a file below missing directories",
    "a rename of a file over another",
    "a rename of a directory over another",
    "a replacement of a directory",
    "a deletion of a file",
    "a deletion of a directory with all",
    "growth",
    "an adoption",
)


@pytest.mark.parametrize("name", ALONE)
def test_states_of_an_operation_alone(name: str) -> None:
    """With any two faults, at whichever of its requests: it was done once, or not at all."""
    late = name in ("an adoption", "a sweep", "a collection")
    Case(
        name=f"{name}, {'a fault' if late else 'two faults'}",
        clients={"A": ALONE[name]},
        faults=ANY,
        most=1 if late else 2,
        options={**TREE, "stored": True, "grace": 0.0},
    ).check()


@pytest.mark.parametrize("name", LOGGED)
def test_states_of_an_operation_that_is_logged(name: str) -> None:
    """With any fault, at whichever of its requests: the log knows, or can find out."""
    Case(
        name=f"{name}, logged, a fault",
        clients={"A": ALONE[name]},
        faults=ANY,
        options={**TREE, "logged": True, "grace": 0.0},
    ).check()


# -- two operations at once ---------------------------------------------------------------------------

PAIRED: Mapping[str, Program] = {
    "create": [write("d/n", b"2", overwrite=False)],
    "overwrite": [write("d/f", b"3")],
    "link": [link({"e/f": b"5"}, overwrite=False)],
    "make": [make("d/s/t")],
    "rename file": [rename("f", "e/f")],
    "rename file over": [rename("d/f", "f", overwrite=True)],
    "rename directory": [rename("d", "e/d")],
    "rename directory back": [rename("e", "d/e")],
    "rename directory over": [rename("d/s", "e", overwrite=True)],
    "replace": [replace("d/s", "e")],
    "delete file": [delete("d/f")],
    "delete directory": [delete("d/s")],
    "delete with all": [delete("d", recursive=True)],
    "attributes": [attributes("d/f", x="1")],
    "grow": [grow("d", shards=2)],
    "adopt": [adopt("old/", "e", ADOPTED)],
    "read": [read("d/f", slowly=1.0)],
}

#: These look at two paths, one after the other. So of two of them one may find its old path as it was
#: before the other was done, its new one as it was after that, and be refused for both.
TWO_PATHS = tuple(name for name in PAIRED if name.startswith("re") and name != "read")

PAIRS = [(first, second) for number, first in enumerate(PAIRED) for second in list(PAIRED)[number:]]


def _pair(first: str, second: str, **options: Any) -> Case:
    exact = not (first in TWO_PATHS and second in TWO_PATHS)
    return Case(
        name=f"{first} × {second}",
        clients={"A": PAIRED[first], "B": PAIRED[second]},
        options={**TREE, "exact": exact, **options},
    )


@pytest.mark.parametrize("first", PAIRED)
def test_states_of_two_operations(first: str) -> None:
    """Beside any other one, in any order of their requests: it was one after the other."""
    for one, other in PAIRS:
        if one == first:
            _pair(one, other).check()


# -- larger ones --------------------------------------------------------------------------------------

_LOSSES = (Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.DELAYED, Fault.DUPLICATED, Fault.REPEATED)
_LATE = (Fault.DELAYED, Fault.CRASHED)

CASES = [
    Case(
        name="two exclusive writes, any fault",
        clients={"A": [write("f", b"1", overwrite=False)], "B": [write("f", b"2", overwrite=False)]},
        faults=ON_THE_WAY,
        told=("write: done", "write: AlreadyExists", "write: unknown"),
    ),
    Case(
        name="two exclusive writes, on a table without tokens",
        clients={"A": [write("f", b"1", overwrite=False)], "B": [write("f", b"2", overwrite=False)]},
        faults=(Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.REPEATED, Fault.FAILED_AFTER),
        told=("write: done", "write: AlreadyExists"),
        options={"tokens": False},
    ),
    Case(
        name="an exclusive write and a deletion of the same, two losses",
        clients={"A": [write("f", b"1", overwrite=False)], "B": [delete("f")]},
        faults=_LOSSES,
        most=2,
    ),
    Case(
        name="a write into a directory that is removed, any fault",
        clients={"A": [write("d/f", b"1")], "B": [delete("d")]},
        faults=ANY,
        told=("write: NotFound", "delete: DirectoryNotEmpty", "write: unknown", "delete: done"),
        options={"made": ("d",)},
    ),
    Case(
        name="a write into a directory that is renamed, paths not stable",
        clients={"A": [write("d/f", b"1")], "B": [rename("d", "e")]},
        faults=_LOSSES,
        options={"made": ("d",), "stable": False},
    ),
    Case(
        name="two renames that would make a cycle, any fault",
        clients={"A": [rename("a", "b/a")], "B": [rename("b", "a/b")]},
        faults=ANY,
        options={"made": ("a", "b"), "stable": False},
    ),
    Case(
        name="two overwrites of a file, one by a rename, any fault",
        clients={"A": [rename("g", "f", overwrite=True)], "B": [write("f", b"2")]},
        faults=ON_THE_WAY,
        options={"files": {"f": b"0", "g": b"1"}},
    ),
    Case(
        name="an overwrite, a deletion and a collection beside a slow reader",
        clients={
            "A": [read("f", slowly=8.0)],
            "B": [write("f", b"2"), 1.0, delete("f"), 5.0, collect(), 6.0, collect()],
        },
        told=("read: done", "collect: done"),
        options={"files": {"f": b"0"}, "grace": 10.0},
    ),
    Case(
        name="a collection beside an overwrite, a crash",
        clients={"A": [write("f", b"2"), write("f", b"3")], "B": [collect(), 1.0, collect()]},
        faults=(Fault.CRASHED,),
        options={"files": {"f": b"0"}, "grace": 0.0},
    ),
    Case(
        name="two collections, a crash or a part",
        clients={"A": [delete("d/f"), delete("f"), 1.0, collect()], "B": [2.0, collect()]},
        faults=(Fault.CRASHED, Fault.PARTIAL),
        options={**TREE, "stored": True, "grace": 0.0},
    ),
    Case(
        name="a sweep beside a rename out of the trash",
        clients={"A": [delete("d", recursive=True), sweep()], "B": [rename("d/f", "g")]},
        told=("rename: done", "rename: NotFound", "sweep: done"),
        options={"made": ("d",), "files": {"d/f": b"0"}, "stable": False, "exact": False},
    ),
    Case(
        name="a sweep beside new attributes of what is swept",
        clients={"A": [delete("d", recursive=True), sweep()], "B": [attributes("d/f", x="1")]},
        told=("attributes: done", "attributes: NotFound"),
        options={"made": ("d",), "files": {"d/f": b"0"}, "stable": False, "exact": False},
    ),
    Case(
        name="a dead client, its late request, and a recovery",
        clients={"A": [write("f", b"2")], "R": [20.0, recover(older_than=10.0)]},
        faults=_LATE,
        most=2,
        told=("write: done", "recover: done"),
        options={"files": {"f": b"0"}, "logged": True},
    ),
    Case(
        name="two logged writes of the same, a loss",
        clients={"A": [write("f", b"1")], "B": [write("f", b"2")]},
        faults=(Fault.LOST_RESPONSE,),
        options={"files": {"f": b"0"}, "logged": True},
    ),
]


ONE = {"part": b"1", "other": b"2"}

PUBLISHED = [
    Case(
        name="a job that makes a directory, any fault",
        clients={"A": [publish("j", ONE)]},
        faults=ANY,
        told=("publish: done", "publish: Unavailable"),
        options={"stable": False},
    ),
    Case(
        name="a job that adds to a directory, any fault",
        clients={"A": [publish("j", ONE)]},
        faults=ANY,
        told=("publish: done", "publish: Unavailable"),
        options={"stable": False, "made": ("out",), "files": {"out/old": b"0"}},
    ),
    Case(
        name="a job that replaces a directory, any fault",
        clients={"A": [publish("j", ONE, mode="overwrite")]},
        faults=ANY,
        told=("publish: done", "publish: Unavailable"),
        options={"stable": False, "made": ("out",), "files": {"out/old": b"0"}},
    ),
]

LARGE = [
    Case(
        name="two attempts at one job",
        clients={"A": [publish("j", {"1": b"1"})], "B": [publish("j", {"1": b"1"})]},
        told=("publish: done", "publish: JobAlreadyCommitted"),
        options={"stable": False},
    ),
    Case(
        name="a job that replaces a directory, and one that adds to it",
        clients={
            "A": [publish("j", {"1": b"1"}, mode="overwrite")],
            "B": [publish("k", {"2": b"2"})],
        },
        options={"stable": False, "made": ("out",)},
    ),
    Case(
        name="growth beside two writes of the same name",
        clients={
            "A": [grow("d", shards=2)],
            "B": [write("d/b", b"1", overwrite=False)],
            "C": [write("d/b", b"2", overwrite=False)],
        },
        told=("write: done", "write: AlreadyExists", "grow: done"),
        options={"made": ("d",)},
    ),
    Case(
        name="two recoveries of a dead client, a crash",
        clients={
            "A": [rename("d", "e/d")],
            "R": [20.0, recover(older_than=10.0)],
            "S": [20.0, recover(older_than=10.0)],
        },
        faults=(Fault.CRASHED,),
        options={"made": ("d", "e"), "logged": True},
    ),
    Case(
        name="three renames in a ring",
        clients={"A": [rename("a", "b/a")], "B": [rename("b", "c/b")], "C": [rename("c", "a/c")]},
        options={"made": ("a", "b", "c"), "stable": False},
    ),
]


@pytest.mark.parametrize("case", PUBLISHED, ids=str)
def test_states_of_published_jobs(case: Case) -> None:
    """All of a job is there, or nothing, after each request, and its driver knows which."""
    case.check()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """Whatever happens, it was one operation after the other, or none."""
    case.check()


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same, with more clients."""
    case.check()


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", PAIRED)
def test_states_of_two_operations_and_a_fault(first: str) -> None:
    """The same, with any fault at any request of either."""
    for one, other in PAIRS:
        if one == first:
            case = _pair(one, other)
            evolve(case, faults=ANY, name=f"{case.name}, any fault").check()


# -- drawn from seeds ----------------------------------------------------------------------------------

#: How many seeds of each large world a default run makes.
RUNS: Mapping[str, int] = {
    "namespace-stable": 60,
    "namespace-loose": 50,
    "namespace-stable-logged": 20,
    "namespace-loose-logged": 15,
}


@pytest.mark.parametrize("world", RUNS)
def test_some_seeds(world: str) -> None:
    """Two to four clients, every operation, everything that can go wrong, and the same."""
    report = run_seeds(world, RUNS[world])
    calls = {name.partition(":")[0] for name in report.outcomes}
    wanted = {"write", "rename", "replace", "delete", "make", "attributes", "grow", "stream", "link"}
    assert calls >= wanted | {"bulk link", "adopt", "sweep", "collect", "read", "list"}
