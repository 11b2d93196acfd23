"""The layers of the library: imports point down, protocols use ports only, and start-up loads little."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.source import MODULES, Module, circles

#: The layers from the lowest. A package imports packages of lower layers, and none of its own layer.
LAYERS = (
    {"errors", "clock"},
    {"_util"},
    {"extras", "paths", "spark_jar"},
    {"urls"},
    {"aws"},
    {"stores", "tables"},
    {"commit"},
    {"connect"},
    {"oplog"},
    {"locks"},
    {"outputs"},
    {"ingest"},
    {"namespace"},
    {"namespaces"},
    {"transfer", "status"},
    {"files"},
    {"tabular"},
    {"spark", "filesystem", "dask", "iceberg", "lance", "ray"},
    {"testing"},
    {"cli"},
    {"__main__"},
)

#: The packages with the protocols, which run in the simulator as they run on S3.
PROTOCOLS = {"commit", "oplog", "outputs", "ingest", "namespace", "locks"}

#: The modules that define ports, and those that count the requests to any implementation.
PORTS = {
    *("commitlog.stores.api", "commitlog.stores.body", "commitlog.stores.counting_store"),
    "commitlog.stores.order",
    *("commitlog.tables.api", "commitlog.tables.counting_table"),
}

#: What a protocol does not import: services, threads, time, chance and files.
IMPURE = {
    *("boto3", "botocore", "urllib3", "sqlite3", "pyspark", "pyarrow"),
    *("socket", "threading", "concurrent", "multiprocessing", "asyncio", "subprocess"),
    *("time", "datetime", "random", "secrets", "uuid", "os", "pathlib"),
}

#: The exceptions. The settings name an SQLite file by its absolute path.
ALLOWED = {"commitlog.commit.settings": {"os"}}

#: Heavy or optional packages, and the packages of the library that may import them.
CONFINED = {
    "boto3": set(),
    "botocore": {"aws"},
    "urllib3": {"aws"},
    "sqlite3": {"stores", "tables", "_util"},
    "pyspark": {"spark"},
    "pyarrow": {"files", "tabular", "spark", "dask", "iceberg", "ray"},
    "dask": {"dask"},
    "ray": {"ray"},
    "click": {"cli"},
    "greenlet": {"testing"},
    "fsspec": {"filesystem"},
    "zarr": {"filesystem"},
    "lance": set(),
    "lance_namespace": {"lance"},
    "pyiceberg": {"iceberg"},
    "opentelemetry": {"_util"},
}


def _layer(package: str) -> int:
    # The package itself exports names of the packages up to `outputs`.
    package = package or "outputs"
    return next(level for level, packages in enumerate(LAYERS) if package in packages)


def _package(name: str) -> str:
    return MODULES[name].package


def test_every_package_has_a_layer() -> None:
    """Each package and each module at the top is in one layer."""
    packages = {module.package for module in MODULES.values()} - {""}
    assert packages <= set().union(*LAYERS)


def test_imports_point_down() -> None:
    """A module imports its own package, and packages of lower layers."""
    upward = [
        f"{module} imports {name}"
        for module in MODULES.values()
        for name in module.own_imports
        if module.name != "commitlog" and _package(name) != module.package
        if _layer(_package(name)) >= _layer(module.package)
    ]
    assert not upward


def test_imports_have_no_circles() -> None:
    """No module imports itself through others, not even in a function or for type checking."""
    edges = {name: module.own_imports.keys() for name, module in MODULES.items() if name != "commitlog"}
    edges["commitlog"] = set()
    assert not circles(edges)


def _forbidden(module: Module) -> set[str]:
    """Return the imports of a module of a protocol that are neither ports nor pure."""
    services = {name for name in module.own_imports if _package(name) in {"stores", "tables", "aws"}}
    return (module.foreign_imports & IMPURE - ALLOWED.get(module.name, set())) | (services - PORTS)


def test_protocols_import_ports_only() -> None:
    """A protocol imports no service, thread, clock or random source, and no implementation of a port."""
    protocols = [module for module in MODULES.values() if module.package in PROTOCOLS]
    assert protocols
    assert not {module.name: found for module in protocols if (found := _forbidden(module))}


def test_heavy_packages_are_confined() -> None:
    """Only the packages that need it import an optional or a heavy package."""
    elsewhere = [
        f"{module} imports {name}"
        for module in MODULES.values()
        for name in module.foreign_imports
        if module.package not in CONFINED.get(name, {module.package})
    ]
    assert not elsewhere


@pytest.mark.parametrize(
    ("code", "barred"),
    [
        ("import commitlog", {"attr", "click", "concurrent", "logging"}),
        ("from commitlog.cli import main; main(['--help'], standalone_mode=False)", set()),
        ("from commitlog.cli import main; main(['put', '--help'], standalone_mode=False)", set()),
        ("from commitlog.cli import main; main(['fs', 'ls', '--help'], standalone_mode=False)", set()),
    ],
    ids=["import commitlog", "commitlog --help", "commitlog put --help", "commitlog fs ls --help"],
)
def test_starting_imports_nothing_heavy(code: str, barred: set[str]) -> None:
    """Start-up loads neither Spark nor Arrow, no client of a service, and no protocol."""
    code += "; import sys; print('loaded:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.rpartition("loaded: ")[2].split())
    assert "commitlog" in loaded
    heavy = {
        *("boto3", "botocore", "urllib3", "pyspark", "pyarrow", "sqlite3", "fsspec", "greenlet"),
        *("opentelemetry", "pyiceberg"),
    }
    assert not {name.split(".")[0] for name in loaded} & (heavy | barred)
    packages = {_package(name) for name in loaded if name in MODULES}
    assert not packages & {*PROTOCOLS, "aws", "spark", "filesystem", "namespaces"}
