"""Bound directories in the simulator: small worlds, explored exhaustively, and large ones from seeds.

`sim.namespace.bindings.judge` has the checks. ``python -m pytest
tests/sim/namespace/bindings/test_bindings.py -s -k states`` prints the size of each world. With
``-m campaign`` all pairs are explored. ``python -m commitlog.testing.sim --list`` lists the large
worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from commitlog.namespace import Namespace
from commitlog.testing.sim import Fault
from sim.exploration import Case
from sim.namespace.actions import (
    Action,
    Program,
    delete,
    empty_trash,
    gc,
    import_objects,
    list_,
    make_directory,
    read,
    rename,
    write,
)
from sim.namespace.bindings.actions import bind, import_changing_objects, prune, sync, unbind
from sim.namespace.bindings.world import BindingWorld
from sim.namespace.world import ANY, world_of
from support.selection import one_in, with_all_but
from worlds import run_seeds


def begin(max_age: float | None, namespace: Namespace, *, kept: bool = True) -> None:
    """Bind a directory with a file, a directory with a file, and a deleted one of each.

    Args:
        max_age: `max_age` of the directory.
        namespace: the namespace.
        kept: whether the table has rows for these entries.
    """
    for path in ("raw/a", "raw/d/x", "raw/t", "raw/u/x"):
        namespace.store.put(path, path.encode())
    namespace.bindings.bind("raw/", "in", max_age=max_age)
    if kept:
        namespace.bindings.sync()
    namespace.delete("in/t")
    namespace.delete("in/u", recursive=True)
    namespace.store.delete("raw/t")


def lose_below(namespace: Namespace) -> None:
    """Bind the same directory without a maximum age, and remove the object of a file below it."""
    begin(None, namespace)
    namespace.store.delete("raw/d/x")


#: The initial states of the directory. With ``max_age=5``, lookups read the store after six seconds.
AGES: Mapping[str, Callable[[Namespace], None]] = {
    "asked": partial(begin, 0.0, kept=False),
    "believed": partial(begin, None),
    "young": partial(begin, 5.0),
}

#: Common options of the worlds.
BOUND: Mapping[str, Any] = {"kind": BindingWorld, "prepare": AGES["believed"], "stable": False}

DOES: Mapping[str, Action] = {
    "list": list_("in"),
    "read": read("in/a"),
    "sync": sync(),
    "prune": prune(),
    "prune old": prune(older_than=0.0),
    "write": write("in/d/x", b"own"),
    "create": write("in/n", b"own", overwrite=False),
    "make": make_directory("in/d/k"),
    "delete": delete("in/a"),
    "delete all": delete("in/d", recursive=True),
    "rename": rename("in/a", "in/b"),
    "rename over": rename("in/a", "in/d/x", overwrite=True),
    "rename out": rename("in/a", "b"),
    "rename all": rename("in/d", "in/e"),
    "bind": bind("raw/", "in", max_age=7.0),
    "unbind": unbind("in"),
}

#: Changes of other programs: puts, also of deleted objects, and a removal.
OTHERS = (
    ("raw/a", b"new a"),
    ("raw/n", b"new n"),
    ("raw/t", b"new t"),
    ("raw/a", None),
)


# -- one client ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(2, DOES))
def test_states_of_an_interrupted_operation(name: str) -> None:
    """After a crash, or a lost request or answer, no entry reappears or vanishes."""
    Case(
        name=f"{name}, a crash or a loss",
        programs={"A": [DOES[name]]},
        faults=(Fault.CRASHED, Fault.LOST_REQUEST, Fault.LOST_RESPONSE),
        options={"prepare": AGES["asked"], "grace": 0.0},
    ).check(world_of, **BOUND)


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("name", DOES)
@pytest.mark.campaign
def test_states_of_an_operation_with_faults(name: str, age: str) -> None:
    """The same holds with any two faults at any requests to the table and the store."""
    Case(
        name=f"{name}, {age}, two faults",
        programs={"A": [DOES[name]]},
        faults=ANY,
        most=2,
        options={"prepare": AGES[age], "grace": 0.0},
    ).check(world_of, **BOUND)


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("name", [name for name in DOES if name not in ("bind", "unbind")])
@pytest.mark.campaign
def test_states_of_an_operation_and_other_programs(name: str, age: str) -> None:
    """The same holds with any fault, while other programs change objects between its requests."""
    program: Program = [6.0, DOES[name]] if age == "young" else [DOES[name]]
    Case(
        name=f"{name}, {age}, beside others, a fault",
        programs={"A": program},
        faults=ANY,
        options={"prepare": AGES[age], "others": OTHERS},
    ).check(world_of, **BOUND)


# -- several -------------------------------------------------------------------------------------------

PAIRED = [name for name in DOES if name not in ("bind", "unbind")]


def _second(name: str) -> Action:
    """Return the same action with another content."""
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
    """Two operations, in any order of their requests, have the result of some order of the two."""
    for other in PAIRED[PAIRED.index(first) :]:
        two_paths = first.startswith("rename") and other.startswith("rename")
        Case(
            name=f"{first} × {other}, {age}",
            programs={"A": [DOES[first]], "B": [_second(other)]},
            options={"prepare": AGES[age], "exact": not two_paths, "stable": True},
        ).check(world_of, **BOUND)


def put_old(namespace: Namespace) -> None:
    """Put objects to import."""
    namespace.store.put("old/1", b"one")
    namespace.store.put("old/2", b"2")


ADOPTED = {"k/1": (b"one", b"two"), "k/2": (b"2",)}

CASES = [
    Case(
        name="other programs put and remove objects during a listing and a read",
        programs={"A": [list_("in"), read("in/n")]},
        expected=("list: done", "read: NotFound", "read: done"),
        options={"prepare": AGES["asked"], "others": OTHERS},
    ),
    Case(
        name="other programs put and remove objects during a synchronisation",
        programs={"A": [sync("in"), list_("in")]},
        expected=("list: done", "sync: done"),
        options={"others": OTHERS},
    ),
    Case(
        name="a listing beside an overwrite",
        programs={"A": [list_("in")], "B": [write("in/a", b"own")]},
        options={"prepare": AGES["asked"]},
    ),
    Case(
        name="a synchronisation beside a deletion",
        programs={"A": [sync()], "B": [delete("in/a")]},
        options={"prepare": AGES["asked"]},
    ),
    Case(
        name="an exclusive write beside another program that puts the object",
        programs={"A": [write("in/n", b"own", overwrite=False)]},
        faults=(Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.DELAYED),
        expected=("write: done", "write: AlreadyExists"),
        options={"prepare": AGES["asked"], "others": [("raw/n", b"1")]},
    ),
    Case(
        name="a collection after bound files were overwritten and deleted",
        programs={
            "A": [
                write("in/a", b"own"),
                delete("in/d", recursive=True),
                delete("in/a"),
                empty_trash(),
                1.0,
                gc(),
            ]
        },
        expected=("collect: done", "sweep: done"),
        options={"grace": 0.0, "others": [("raw/a", b"new a")]},
    ),
    Case(
        name="a synchronisation and a deletion that are logged, a crash",
        programs={"A": [sync("in"), delete("in/a")]},
        faults=(Fault.CRASHED,),
        expected=("sync: done", "delete: done"),
        options={"prepare": AGES["asked"], "logged": True},
    ),
    Case(
        name="an import while other programs overwrite",
        programs={
            "A": [
                import_changing_objects("old/", "k", ADOPTED),
                import_changing_objects("old/", "k", ADOPTED),
            ]
        },
        faults=(Fault.CRASHED, Fault.LOST_RESPONSE),
        expected=("adopt: done",),
        options={
            "prepare": put_old,
            "others": [("old/1", b"two"), ("old/2", None)],
        },
    ),
    Case(
        name="a synchronisation beside a rename of a directory that has lost a file",
        programs={"A": [sync("in")], "B": [rename("in/d", "in/e")]},
        expected=("sync: done", "rename: done"),
        options={"prepare": lose_below},
    ),
    *(
        Case(
            name=f"entries that a pruned file has covered, {age}",
            programs={"A": [rename("in/d/x", "in/a", overwrite=True), prune(), sync()]},
            expected=("prune: done", "rename: done", "sync: done"),
            options={"prepare": AGES[age], "others": [("raw/d/x", None), ("raw/a", b"new a")]},
        )
        for age in AGES
    ),
    Case(
        name="an import of deleted entries",
        programs={"A": [import_objects("raw/u/", "in/u", {"in/u": None, "in/u/x": b"raw/u/x"})]},
        expected=("adopt: done",),
    ),
]


LARGE = [
    Case(
        name="a synchronisation beside a rename of a directory, and a new object in it",
        programs={"A": [sync("in")], "B": [rename("in/d", "d")]},
        expected=("sync: done", "rename: done"),
        options={"others": [("raw/d/y", b"new y")], "stable": True},
    ),
    Case(
        name="two listings of a directory after its maximum age",
        programs={"A": [6.0, list_("in"), list_("in")], "B": [6.0, list_("in")]},
        options={"prepare": AGES["young"], "others": [("raw/n", b"1"), 6.0, ("raw/n", b"2")]},
    ),
    Case(
        name="pruning beside a deletion",
        programs={"A": [prune("in")], "B": [delete("in/a")]},
        options={"others": [("raw/t", b"new t")]},
    ),
]


#: Worlds of the default run: one in two, without those with the most states.
QUICK = {case.name for case in CASES[::2]} - {
    "entries that a pruned file has covered, believed",
    "a synchronisation beside a rename of a directory that has lost a file",
    "a synchronisation and a deletion that are logged, a crash",
}


@pytest.mark.parametrize("case", with_all_but(lambda case: case.name in QUICK, CASES), ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """The result is that of the actions and the changes of other programs in some order."""
    case.check(world_of, **BOUND)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same holds with more requests and changes."""
    case.check(world_of, **BOUND)


# -- drawn from seeds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["asked", "young", "believed"])
def test_some_seeds(kind: str) -> None:
    """The same holds in random worlds of one to three clients and other programs, with all faults."""
    report = run_seeds(f"binding-{kind}", 4)
    calls = {name.partition(":")[0] for name in report.outcomes}
    assert calls >= {"write", "rename", "delete", "list"}
