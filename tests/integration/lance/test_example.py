"""The example of several processes that append to one table."""

from __future__ import annotations

from pathlib import Path

import pytest

import lance_append


@pytest.mark.all
def test_the_example_appends_each_row_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes, two rows each, in a directory."""
    assert lance_append.main(str(tmp_path / "lake"), count=2) == 4
    assert capsys.readouterr().out == "4 rows appended, 4 rows in the table\n"
