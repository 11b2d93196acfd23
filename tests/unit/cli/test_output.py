"""The line of a terminal that shows the progress of a step."""

from __future__ import annotations

import io
import sys

import pytest

from commitlog.cli.output import step_line, step_text
from commitlog.namespace import StepProgress


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


NOW = StepProgress(step="reading the log", done=1500, total=None, seconds=3.0)


def test_a_terminal_shows_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report replaces the earlier one, and the line is empty at the end."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with step_line() as show:
        show(NOW)
        show(NOW)
    line = "\r\x1b[Kreading the log: 1,500, 500 a second"
    assert screen.getvalue() == f"{line}{line}\r\x1b[K"


def test_a_file_gets_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error has only messages then."""
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with step_line() as show:
        show(NOW)
    assert not file.getvalue()


def test_more_records_than_expected_are_the_new_total() -> None:
    """The expected number may be old."""
    now = StepProgress(step="reading the table", done=30, total=20, seconds=10.0)
    assert step_text(now) == "reading the table: 30 of 30, 3 a second, 0.0 s left"
