"""The table of guarantees in the guide, and the tests that it names."""

from __future__ import annotations

import re

from spark.versions.test_committer import INSTALLATIONS
from support.project import ROOT, TESTS
from support.s3a import HADOOP


def test_every_guarantee_has_a_test() -> None:
    """Each row of the table names existing tests, by function or by file. No row is missing."""
    guide = (ROOT / "docs" / "spark.md").read_text()
    header, *rows = re.findall(r"^\| (G\d+)? ?\| .* \| (.*) \|$", guide, re.MULTILINE)
    assert header == ("", "shown by")
    assert [name for name, _ in rows if name] == [f"G{number}" for number in range(1, 17)]
    functions = {
        name
        for name in ("drivers", "jobs", "tasks")
        for name in re.findall(
            r"^def (test_\w+)", (TESTS / f"spark/crash/test_{name}.py").read_text(), re.MULTILINE
        )
    }
    for _, shown_by in rows:
        named = re.findall(r"`([^`]+)`", shown_by)
        assert named or shown_by == "the same"
        for name in named:
            assert name in functions or (ROOT / name).is_file(), name
    assert functions <= set(re.findall(r"`(test_\w+)`", guide))


def test_the_table_of_versions_names_tests_that_exist() -> None:
    """It has a column for each Spark that a test installs, and claims nothing for others."""
    guide = (ROOT / "docs" / "spark.md").read_text()
    section = guide.partition("### Guarantees by version of Spark\n")[2].partition("\n## ")[0]
    header, _, *rows = [line.strip("| ").split(" | ") for line in section.splitlines() if "|" in line]
    columns = [
        each.spark if (each.spark, each.scala) >= ("4.0", "") else f"{each.spark}, Scala {each.scala}"
        for each in INSTALLATIONS
    ]
    newest = max(HADOOP, key=lambda version: [int(part) for part in version.split(".")])
    assert header[1:] == columns and columns[-1] == newest
    files = re.findall(r"`(tests/[^`]+)`", section)
    assert files
    assert all((ROOT / file).is_file() for file in files)
    for _, *shown_by, of_newest in rows:
        assert set(shown_by) in ({"committer"}, {"–"})
        assert of_newest in {"crash", "cluster", "–"}
    named = [number for row in rows for number in _numbers(row[0])]
    assert sorted(named) == list(range(1, 17))


def _numbers(text: str) -> list[int]:
    """Return the numbers of guarantees in a text such as "G1 to G3, G7"."""
    spans = [re.findall(r"G(\d+)", part) for part in text.split(",")]
    return [number for span in spans if span for number in range(int(span[0]), int(span[-1]) + 1)]
