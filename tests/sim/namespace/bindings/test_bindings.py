"""Bound directories on the simulator: clients of a namespace beside others who store and remove objects.

In small worlds, every order of requests is tried, with faults at each of them; what is checked at every
request that changes something, at every answer and at the end is in `sim.namespace.bindings.judge`.
``python -m pytest tests/sim/namespace/bindings/test_bindings.py -s -k states`` prints how large the
worlds are. With ``-m campaign`` all pairs are explored. ``python -m commitlog.testing.sim --list`` names
the large worlds, which it runs from seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from commitlog.namespace import Namespace
from commitlog.testing.sim import Fault
from sim.namespace.bindings.actions import adopt_any, bind, prune, sync, unbind
from sim.namespace.bindings.world import BoundWorld
from sim.namespace.case import Case
from sim.namespace.world import (
    ANY,
    Do,
    Program,
    adopt,
    collect,
    delete,
    list_,
    make,
    read,
    rename,
    sweep,
    write,
)
from worlds import run_seeds


def begin(max_age: float | None, lake: Namespace, *, kept: bool = True) -> None:
    """Bind a directory that has a file, a directory with one, and hides one of either.

    Args:
        max_age: of the directory.
        lake: where.
        kept: whether the table has all that by now.
    """
    for path in ("raw/a", "raw/d/x", "raw/t", "raw/u/x"):
        lake.store.put(path, path.encode())
    lake.bindings.bind("raw/", "in", max_age=max_age)
    if kept:
        lake.bindings.sync()
    lake.delete("in/t")
    lake.delete("in/u", recursive=True)
    lake.store.delete("raw/t")


def lose_below(lake: Namespace) -> None:
    """The same, believed, and others have removed the object of the file in a directory below."""
    begin(None, lake)
    lake.store.delete("raw/d/x")


#: How the directory is at the beginning. With ``max_age=5`` it is asked about after six seconds.
AGES: Mapping[str, Callable[[Namespace], None]] = {
    "asked": partial(begin, 0.0, kept=False),
    "believed": partial(begin, None),
    "young": partial(begin, 5.0),
}

#: What worlds of bound directories have in common, unless they say otherwise.
BOUND: Mapping[str, Any] = {"make": BoundWorld, "prepare": AGES["believed"], "stable": False}

DOES: Mapping[str, Do] = {
    "list": list_("in"),
    "read": read("in/a"),
    "sync": sync(),
    "prune": prune(),
    "prune old": prune(older_than=0.0),
    "write": write("in/d/x", b"own"),
    "create": write("in/n", b"own", overwrite=False),
    "make": make("in/d/k"),
    "delete": delete("in/a"),
    "delete all": delete("in/d", recursive=True),
    "rename": rename("in/a", "in/b"),
    "rename over": rename("in/a", "in/d/x", overwrite=True),
    "rename out": rename("in/a", "b"),
    "rename all": rename("in/d", "in/e"),
    "bind": bind("raw/", "in", max_age=7.0),
    "unbind": unbind("in"),
}

#: What others do meanwhile: store anew, where something was deleted, too; and remove.
OTHERS = (
    ("raw/a", b"new a"),
    ("raw/n", b"new n"),
    ("raw/t", b"new t"),
    ("raw/a", None),
)


# -- one client ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOES)
def test_states_of_an_operation_that_is_broken_off(name: str) -> None:
    """It dies before any of its requests, or that or its answer is lost: nothing comes back, or goes."""
    Case(
        name=f"{name}, a crash or a loss",
        clients={"A": [DOES[name]]},
        faults=(Fault.CRASHED, Fault.LOST_REQUEST, Fault.LOST_RESPONSE),
        options={"prepare": AGES["asked"], "grace": 0.0},
    ).check(**BOUND)


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("name", DOES)
@pytest.mark.campaign
def test_states_of_an_operation_with_faults(name: str, age: str) -> None:
    """With any two faults, at whichever of its requests, to the table and the store."""
    Case(
        name=f"{name}, {age}, two faults",
        clients={"A": [DOES[name]]},
        faults=ANY,
        most=2,
        options={"prepare": AGES[age], "grace": 0.0},
    ).check(**BOUND)


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("name", [name for name in DOES if name not in ("bind", "unbind")])
@pytest.mark.campaign
def test_states_of_an_operation_beside_others(name: str, age: str) -> None:
    """Others store and remove objects between any two of its requests, and anything goes wrong."""
    program: Program = [6.0, DOES[name]] if age == "young" else [DOES[name]]
    Case(
        name=f"{name}, {age}, beside others, a fault",
        clients={"A": program},
        faults=ANY,
        options={"prepare": AGES[age], "others": OTHERS},
    ).check(**BOUND)


# -- several -------------------------------------------------------------------------------------------

PAIRED = [name for name in DOES if name not in ("bind", "unbind")]


def _second(name: str) -> Do:
    """Return the same with another content."""
    again = {
        "write": write("in/d/x", b"other"),
        "create": write("in/n", b"other", overwrite=False),
    }
    return again.get(name, DOES[name])


@pytest.mark.parametrize("age", ["asked", "believed"])
@pytest.mark.parametrize("first", PAIRED)
@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_states_of_two_operations(first: str, age: str) -> None:
    """Beside any other one, in any order of their requests: it was one after the other."""
    for other in PAIRED[PAIRED.index(first) :]:
        two_paths = first.startswith("rename") and other.startswith("rename")
        Case(
            name=f"{first} × {other}, {age}",
            clients={"A": [DOES[first]], "B": [_second(other)]},
            options={"prepare": AGES[age], "exact": not two_paths, "stable": True},
        ).check(**BOUND)


def put_old(lake: Namespace) -> None:
    """Have objects to adopt."""
    lake.store.put("old/1", b"one")
    lake.store.put("old/2", b"2")


ADOPTED = {"k/1": (b"one", b"two"), "k/2": (b"2",)}

CASES = [
    Case(
        name="others store and remove while somebody looks",
        clients={"A": [list_("in"), read("in/n")]},
        told=("list: done", "read: NotFound", "read: done"),
        options={"prepare": AGES["asked"], "others": OTHERS},
    ),
    Case(
        name="others store and remove while somebody synchronises",
        clients={"A": [sync("in"), list_("in")]},
        told=("list: done", "sync: done"),
        options={"others": OTHERS},
    ),
    Case(
        name="a look beside an overwrite",
        clients={"A": [list_("in")], "B": [write("in/a", b"own")]},
        options={"prepare": AGES["asked"]},
    ),
    Case(
        name="a synchronisation beside a deletion",
        clients={"A": [sync()], "B": [delete("in/a")]},
        options={"prepare": AGES["asked"]},
    ),
    Case(
        name="an exclusive write beside others who store under the name",
        clients={"A": [write("in/n", b"own", overwrite=False)]},
        faults=(Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.DELAYED),
        told=("write: done", "write: AlreadyExists"),
        options={"prepare": AGES["asked"], "others": [("raw/n", b"1")]},
    ),
    Case(
        name="a collection after files that are objects were overwritten and deleted",
        clients={
            "A": [
                write("in/a", b"own"),
                delete("in/d", recursive=True),
                delete("in/a"),
                sweep(),
                1.0,
                collect(),
            ]
        },
        told=("collect: done", "sweep: done"),
        options={"grace": 0.0, "others": [("raw/a", b"new a")]},
    ),
    Case(
        name="a synchronisation and a deletion that are logged, a crash",
        clients={"A": [sync("in"), delete("in/a")]},
        faults=(Fault.CRASHED,),
        told=("sync: done", "delete: done"),
        options={"prepare": AGES["asked"], "logged": True},
    ),
    Case(
        name="an adoption while others overwrite",
        clients={"A": [adopt_any("old/", "k", ADOPTED), adopt_any("old/", "k", ADOPTED)]},
        faults=(Fault.CRASHED, Fault.LOST_RESPONSE),
        told=("adopt: done",),
        options={
            "prepare": put_old,
            "others": [("old/1", b"two"), ("old/2", None)],
        },
    ),
    Case(
        name="a synchronisation beside a rename of a directory that has lost a file",
        clients={"A": [sync("in")], "B": [rename("in/d", "in/e")]},
        told=("sync: done", "rename: done"),
        options={"prepare": lose_below},
    ),
    *(
        Case(
            name=f"what a file has covered, once that is pruned since its object is gone, {age}",
            clients={"A": [rename("in/d/x", "in/a", overwrite=True), prune(), sync()]},
            told=("prune: done", "rename: done", "sync: done"),
            options={"prepare": AGES[age], "others": [("raw/d/x", None), ("raw/a", b"new a")]},
        )
        for age in AGES
    ),
    Case(
        name="an adoption brings back what was deleted",
        clients={"A": [adopt("raw/u/", "in/u", {"in/u": None, "in/u/x": b"raw/u/x"})]},
        told=("adopt: done",),
    ),
]


LARGE = [
    Case(
        name="a synchronisation beside a rename of a directory, others store in it",
        clients={"A": [sync("in")], "B": [rename("in/d", "d")]},
        told=("sync: done", "rename: done"),
        options={"others": [("raw/d/y", b"new y")], "stable": True},
    ),
    Case(
        name="two listings of a directory that is asked about after an age",
        clients={"A": [6.0, list_("in"), list_("in")], "B": [6.0, list_("in")]},
        options={"prepare": AGES["young"], "others": [("raw/n", b"1"), 6.0, ("raw/n", b"2")]},
    ),
    Case(
        name="pruning beside a deletion",
        clients={"A": [prune("in")], "B": [delete("in/a")]},
        options={"others": [("raw/t", b"new t")]},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """Whatever happens, and whatever others do, it was one thing after the other."""
    case.check(**BOUND)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same, with more to do."""
    case.check(**BOUND)


# -- drawn from seeds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["asked", "young", "believed"])
def test_some_seeds(kind: str) -> None:
    """Two to three clients, others, every operation, everything that can go wrong, and the same."""
    report = run_seeds(f"binding-{kind}", 4)
    calls = {name.partition(":")[0] for name in report.outcomes}
    assert calls >= {"write", "rename", "delete", "list"}
