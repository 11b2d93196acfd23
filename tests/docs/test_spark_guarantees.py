"""The table of guarantees in the guide, and the tests that it names."""

from __future__ import annotations

import re

from support.project import ROOT, TESTS


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
