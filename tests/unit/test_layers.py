"""The house itself: imports point down, business rules stay pure, public names are explained."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import commitlog

ROOT = Path(commitlog.__file__).parent

#: From the ground up. A room imports rooms of the floors below, and nobody on its own floor.
FLOORS = (
    {"errors", "clock"},
    {"_util"},
    {"absence", "extras", "paths"},
    {"_sqlite", "urls"},
    {"aws"},
    {"stores", "tables"},
    {"commit"},
    {"connect"},
    {"oplog"},
    {"outputs"},
    {"ingest"},
    {"namespace"},
    {"namespaces"},
    {"transfer"},
    {"spark", "filesystem"},
    {"testing"},
    {"cli"},
    {"__main__"},
)

#: Rooms that hold rules rather than handle things: they run in the simulator as they run on S3.
BUSINESS = {"commit", "oplog", "outputs", "ingest", "namespace"}
PORTS = {"stores", "stores.api", "stores.body", "tables", "tables.api"}
IMPURE = {
    *("boto3", "botocore", "urllib3", "sqlite3", "pyspark", "pyarrow"),
    *("socket", "threading", "concurrent", "multiprocessing", "asyncio", "subprocess"),
    *("time", "datetime", "random", "secrets", "uuid", "os", "pathlib"),
}
#: What a rule may import all the same. The settings name an SQLite file by its absolute path.
ALLOWED = {"commit.settings": {"os"}}

#: Heavy or optional packages, and the only rooms that may import them.
KEPT_TO = {
    "boto3": set(),
    "botocore": {"aws"},
    "urllib3": {"aws"},
    "sqlite3": {"stores", "tables", "_sqlite"},
    "pyspark": {"spark"},
    "pyarrow": {"spark"},
    "click": {"cli"},
    "greenlet": {"testing"},
    "fsspec": {"filesystem"},
}


def _modules() -> list[str]:
    """Return the modules of the package, named from below ``commitlog``."""
    files = sorted(ROOT.rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names if name != "__init__"]


MODULES = _modules()


def _source(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imports(module: str) -> Iterator[str]:
    """Yield what a module imports anywhere in it, in functions and for type checking alone included."""
    for node in ast.walk(ast.parse(_source(module).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{module} has a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            own = {f"commitlog.{name}" for name in MODULES}
            yield from names & own or {node.module}


def _own_imports(module: str) -> set[str]:
    found = {name for name in _imports(module) if name.split(".")[0] == "commitlog"}
    return {name.removeprefix("commitlog").removeprefix(".") for name in found}


def _foreign_imports(module: str) -> set[str]:
    return {name.split(".")[0] for name in _imports(module)} - {"commitlog"}


def _room(module: str) -> str:
    return module.split(".")[0]


def _floor(room: str) -> int:
    # The package itself hands out what the rooms up to the outputs define.
    room = room or "outputs"
    return next(level for level, rooms in enumerate(FLOORS) if room in rooms)


def test_every_room_has_a_floor() -> None:
    """There is no module whose place in the house is undecided."""
    assert {_room(module) for module in MODULES} <= set().union(*FLOORS)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    """A module imports its own room and rooms on lower floors."""
    room = _room(module)
    elsewhere = {other for other in _own_imports(module) if _room(other) != room}
    assert not {other for other in elsewhere if _floor(_room(other)) >= _floor(room)}


@pytest.mark.parametrize("module", [name for name in MODULES if _room(name) in BUSINESS])
def test_business_rules_know_ports_alone(module: str) -> None:
    """Rules import no service, no thread, no clock and no chance, nor what implements a port."""
    assert not _foreign_imports(module) & IMPURE - ALLOWED.get(module, set())
    assert (
        not {name for name in _own_imports(module) if _room(name) in {"stores", "tables", "aws"}} - PORTS
    )


@pytest.mark.parametrize("module", MODULES)
def test_heavy_packages_are_kept_to_their_rooms(module: str) -> None:
    """Only the rooms that are there for it import an optional or a heavy package."""
    room = _room(module)
    assert not {name for name in _foreign_imports(module) if room not in KEPT_TO.get(name, {room})}


@pytest.mark.parametrize(
    ("code", "barred"),
    [
        ("import commitlog", {"attr", "click", "concurrent", "logging"}),
        ("from commitlog.cli import main; main(['--help'], standalone_mode=False)", set()),
    ],
    ids=["import commitlog", "commitlog --help"],
)
def test_starting_imports_nothing_heavy(code: str, barred: set[str]) -> None:
    """The start loads neither Spark nor Arrow, no client of a service and no rules."""
    code += "; import sys; print('loaded:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = set(done.stdout.rpartition("loaded: ")[2].split())
    assert "commitlog" in modules
    heavy = {"boto3", "botocore", "urllib3", "pyspark", "pyarrow", "sqlite3", "fsspec", "greenlet"}
    assert not {name.split(".")[0] for name in modules} & (heavy | barred)
    rooms = {_room(name.removeprefix("commitlog.")) for name in modules if name.startswith("commitlog.")}
    assert not rooms & {
        "aws",
        "commit",
        "namespace",
        "outputs",
        "ingest",
        "spark",
        "filesystem",
        "mount",
    }


@pytest.mark.parametrize("module", ["", *MODULES])
def test_public_names_are_explained(module: str) -> None:
    """A module has a docstring; so has each class and function that it makes public."""
    if module == "__main__":
        assert ast.get_docstring(ast.parse(_source(module).read_text()))
        return
    loaded = importlib.import_module(f"commitlog.{module}".rstrip("."))
    assert inspect.getdoc(loaded)
    public = {name: getattr(loaded, name) for name in getattr(loaded, "__all__", ())}
    assert not [name for name, value in public.items() if _is_defined(value) and not value.__doc__]
    assert not [
        f"{name}.{member}"
        for name, value in public.items()
        if inspect.isclass(value)
        for member, found in vars(value).items()
        if not member.startswith("_") and _is_method(found) and not _explained(value, member)
    ]


def _is_defined(value: object) -> bool:
    """Tell a class or function from a constant or type alias, which have no docstrings."""
    return inspect.isclass(value) or inspect.isfunction(value)


def _is_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))


def _explained(owner: type, member: str) -> bool:
    # An override need not repeat what the port promises.
    return any(inspect.getdoc(vars(base).get(member)) for base in owner.__mro__ if member in vars(base))
