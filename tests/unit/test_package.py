"""The package as users install it: the files of its wheel, its dependencies, and each interpreter."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from attrs import frozen

from support.environments import set_up_python
from support.project import ROOT

#: Distributions that the package without extras installs, including indirect dependencies.
CORE = {
    *("attrs", "boto3", "botocore", "click", "jmespath", "python-dateutil", "s3transfer"),
    *("six", "urllib3"),
}

MINORS = (11, 12, 13, 14)


@frozen
class Built:
    """The two distributions built from the checkout, with the names of their files."""

    wheel: Path
    files: frozenset[str]
    source_files: frozenset[str]
    metadata: Message


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build both from a copy, because setuptools keeps files of earlier builds in the checkout."""
    directory = tmp_path_factory.mktemp("package")
    checkout = directory / "checkout"
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    # The backend changes sys.argv.
    program = (
        "import sys; from setuptools import build_meta as build; into = sys.argv[1];"
        "print(build.build_sdist(into), build.build_wheel(into))"
    )
    command = [sys.executable, "-c", program, str(directory)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    source, wheel = (directory / name for name in done.stdout.split()[-2:])
    with zipfile.ZipFile(wheel) as archive:
        files = frozenset(archive.namelist())
        [name] = [name for name in files if name.endswith("/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    with tarfile.open(source) as archive:
        names = (member.name.partition("/")[2] for member in archive.getmembers() if member.isfile())
        return Built(wheel, files, frozenset(names), metadata)


@pytest.fixture(scope="module")
def site(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed files of the wheel."""
    directory = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(directory)
    return directory


# -- files -------------------------------------------------------------------------------------------


@pytest.mark.all
def test_the_wheel_has_the_package_and_nothing_else(built: Built) -> None:
    """It has types and the Java sources of the committer, but no tests, test servers or demo."""
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "commitlog").rglob("*.py")}
    java = {path.relative_to(ROOT).as_posix() for path in (ROOT / "commitlog").rglob("*.java")}
    assert java
    modules = {"pyspark_commitlog.py", "pyspark_commitlog_ingest.py"}
    files = {name for name in built.files if ".dist-info/" not in name}
    assert files == package | java | modules | {"commitlog/py.typed"}
    assert not [name for name in files if re.search("server|demo|conftest|test_", name)]


@pytest.mark.all
def test_the_wheel_has_its_license_and_its_command(built: Built) -> None:
    """The license is Apache 2.0; the entry points are those of the command and of fsspec."""
    assert built.metadata["License"] == "Apache-2.0"
    assert [name for name in built.files if name.endswith("/LICENSE")]
    with zipfile.ZipFile(built.wheel) as archive:
        [name] = [name for name in built.files if name.endswith("/entry_points.txt")]
        entries = configparser.ConfigParser()
        entries.read_string(archive.read(name).decode())
    assert dict(entries["console_scripts"]) == {"commitlog": "commitlog.__main__:main"}
    classes = {name: value.rpartition(":")[2] for name, value in entries["fsspec.specs"].items()}
    assert classes == {
        "commitlog": "CommitlogFileSystem",
        "commitlog+file": "LocalStoreFileSystem",
        "commitlogfile": "LocalStoreFileSystem",
        "commitlog+memory": "MemoryStoreFileSystem",
        "commitlogmemory": "MemoryStoreFileSystem",
        "commitlog+s3": "S3StoreFileSystem",
        "commitlogs3": "S3StoreFileSystem",
    }


@pytest.mark.all
def test_the_source_distribution_can_be_tested_and_read(built: Built) -> None:
    """It has the tests, the demo, the benchmarks, the documentation and the script that runs them."""
    wanted = {"run", "README.md", "CHANGES.md", "LICENSE", "tests/conftest.py", "tests/floors.txt"}
    wanted |= {"examples/demo/__main__.py", "tests/support/servers.py", "benchmarks/conditional_put.py"}
    wanted |= {"docs/quickstart.md", "tests/support/dynalite/package-lock.json"}
    assert wanted <= built.source_files


def test_no_module_needs_the_dependencies_of_tests() -> None:
    """The public test kit works without pytest."""
    barred = {"pytest", "hypothesis", "psutil", "support", "demo"}
    for file in (ROOT / "commitlog").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in names} & barred, file


# -- metadata ----------------------------------------------------------------------------------------


@pytest.mark.all
def test_the_long_description_has_no_relative_links(built: Built) -> None:
    """Relative links would lead nowhere on an index. The text warns of the project of that name."""
    text = built.metadata.get_payload()
    assert isinstance(text, str)
    assert not re.findall(r"\]\((?!https?://)", text)
    assert "Do not install both" in text
    assert built.metadata["Description-Content-Type"] == "text/markdown"


def test_the_readme_warns_of_the_other_project_in_few_lines() -> None:
    """The README has 120 lines at most."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert "Do not install both" in " ".join(lines)


@pytest.mark.all
def test_the_classifiers_name_the_interpreters_that_are_tested(built: Built) -> None:
    """The oldest of them is the minimum of `python_requires`."""
    prefix = "Programming Language :: Python :: 3."
    found = built.metadata.get_all("Classifier") or []
    minors = [int(name.removeprefix(prefix)) for name in found if name.startswith(prefix)]
    assert minors == list(MINORS)
    assert built.metadata["Requires-Python"] == f">=3.{MINORS[0]}"


@pytest.mark.all
def test_the_extras_of_the_description_are_those_that_are_declared(built: Built) -> None:
    """Extras for the development of the project are left out."""
    text = str(built.metadata.get_payload())
    described = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    declared = set(built.metadata.get_all("Provides-Extra") or [])
    assert declared - described == {"bench", "docs", "test"}
    assert described <= declared


# -- environments --------------------------------------------------------------------------------------


def run(
    python: Path, site: Path, directory: Path, words: Sequence[object], status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run Python in `directory` with the installed wheel; compare its exit status."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [python, *words],
        cwd=directory,
        env={**kept, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


#: Conditional writes to a directory, natively and with leases in an SQLite table.
_WRITES = """
import sys
import commitlog
assert commitlog.__file__.startswith(sys.argv[1]), commitlog.__file__
for options in ({}, {"table": f"sqlite://{sys.argv[2]}/leases.db", "commit": "lease"}):
    with commitlog.connect(f"{sys.argv[2]}/lake{len(options)}", **options) as store:
        etag = store.put_if_absent("a", b"1").etag
        try:
            store.put_if_absent("a", b"2")
        except commitlog.AlreadyExists:
            pass
        else:
            raise AssertionError("two writers won")
        store.put_if_match("a", b"3", etag=etag)
        assert store.get("a").data == b"3"
"""


def works(python: Path, site: Path, directory: Path) -> None:
    """Use the library and the command on a directory and on an SQLite table."""
    (directory / "readme").mkdir()
    run(python, site, directory, ["-c", _WRITES, site, directory])
    run_examples("README.md", python, site, directory / "readme")
    assert "lease" in run(python, site, directory, ["-m", "commitlog", "--help"]).stdout
    (directory / "file").write_bytes(b"content")
    put = ["-m", "commitlog", "put", "file", "lake/copy", "--if-absent", "--root", "lake"]
    run(python, site, directory, put)
    run(python, site, directory, put, status=3)
    run(python, site, directory, ["-m", "commitlog", "get", "lake/copy", "back"])
    assert (directory / "back").read_bytes() == b"content"


def run_examples(page: str, python: Path, site: Path, directory: Path) -> None:
    """Run the examples of a page, as tests/docs/test_pages.py does."""
    flags = ("NORMALIZE_WHITESPACE", "ELLIPSIS", "IGNORE_EXCEPTION_DETAIL")
    options = [word for flag in flags for word in ("-o", flag)]
    run(python, site, directory, ["-m", "doctest", *options, ROOT / page])


@pytest.mark.all
def test_the_core_installs_few_distributions(tmp_path: Path) -> None:
    """They are the four that setup.cfg declares, and their dependencies."""
    python = set_up_python("core")
    listed = subprocess.check_output(
        [python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"], cwd=tmp_path
    )
    installed = {each["name"] for each in json.loads(listed)}
    assert installed - {"pip", "setuptools", "commitlog-store"} == CORE


@pytest.mark.all
def test_the_core_works_without_extras(site: Path, tmp_path: Path) -> None:
    """Conditional writes, leases, the command, a stress run, and the kit without the simulator work."""
    python = set_up_python("core")
    works(python, site, tmp_path)
    kit = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in (ROOT / "commitlog/testing").rglob("*.py")
        if "sim" not in file.parts and file.name != "__main__.py"
    ]
    run(python, site, tmp_path, ["-c", f"import {', '.join(kit)}"])
    place = ["--store", f"file://{tmp_path}/stress", "--table", f"sqlite://{tmp_path}/stress.db"]
    stress = ["-m", "commitlog.testing.stress", *place, "--seconds", "1"]
    assert "linearizable: yes" in run(python, site, tmp_path, stress).stdout


@pytest.mark.all
@pytest.mark.parametrize(
    ("use", "user", "extra"),
    [
        ("import commitlog.filesystem", "commitlog.filesystem", "fsspec"),
        ("import commitlog.testing.sim", "commitlog.testing.sim", "simulator"),
        ("from commitlog.testing.sim import Simulation", "commitlog.testing.sim", "simulator"),
        ("import commitlog; commitlog.spark.read", "commitlog.spark", "spark"),
        ("from commitlog.spark import CommitlogDataSource", "commitlog.spark", "spark"),
        ("from commitlog.spark.ingest import IngestDataSource", "commitlog.spark", "spark"),
        ("import pyspark_commitlog", "commitlog.spark", "spark"),
        ("import pyspark_commitlog_ingest", "commitlog.spark", "spark"),
    ],
)
def test_a_missing_extra_is_named(use: str, user: str, extra: str, site: Path, tmp_path: Path) -> None:
    """The last line of the traceback says what to install."""
    done = run(set_up_python("core"), site, tmp_path, ["-c", use], status=1)
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(rf"ImportError: {user} needs .*'commitlog-store\[{extra}\]'.*", last)


@pytest.mark.all
def test_a_command_without_its_extra_says_what_to_install(site: Path, tmp_path: Path) -> None:
    """The status is that of wrong usage, and nothing is done."""
    python = set_up_python("core")
    done = run(python, site, tmp_path, ["-m", "commitlog", "output", "compact", "out"], status=2)
    assert "commitlog-store[spark]" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.all
@pytest.mark.parametrize("minor", MINORS)
def test_an_interpreter_works(minor: int, site: Path, tmp_path: Path) -> None:
    """Each that is declared and installed here: library, command, and a seed of the simulator."""
    environment = ROOT / f".venv/python3.{minor}"
    if not environment.exists():
        pytest.skip(f"there is no {environment}: ./run test --all found no working python3.{minor}")
    python = set_up_python(environment.name)
    assert run(python, site, tmp_path, ["-V"]).stdout.startswith(f"Python 3.{minor}.")
    works(python, site, tmp_path)
    has_greenlet = "from importlib.util import find_spec; print(find_spec('greenlet') is not None)"
    if run(python, site, tmp_path, ["-c", has_greenlet]).stdout.strip() == "True":
        run_examples("docs/verification.md", python, site, tmp_path)
