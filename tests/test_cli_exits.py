"""What a script learns from the exit status, and what a person reads beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import commitlog
from commitlog import errors
from commitlog.cli import main
from commitlog.cli.exits import message_of, status_of
from commitlog.cli.streams import PIECE
from commitlog.commit import ConditionalStore

STATUS = {
    errors.AlreadyExists("x"): 3,
    errors.PreconditionFailed("x"): 3,
    errors.JobAlreadyCommitted("x", job_id="j", version=1): 3,
    errors.OutcomeUnknown("x"): 4,
    errors.PublishIncomplete("x", job_id="j", version=1): 4,
    errors.ConfigurationError("x"): 2,
    errors.InvalidPath("x"): 2,
    errors.NotSupported("x"): 2,
    click.UsageError("x"): 2,
    errors.NotFound("x"): 1,
    errors.AccessDenied("x"): 1,
    errors.Unavailable("x"): 1,
    errors.LeaseTimeout("x"): 1,
    errors.JobAborted("x"): 1,
    ValueError("x"): 1,
    KeyboardInterrupt(): 130,
}


@pytest.mark.parametrize(("error", "status"), STATUS.items(), ids=lambda value: type(value).__name__)
def test_status_tells_the_outcome(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each class of error ends a command with its status, and with one line on stderr."""

    def fail(self: ConditionalStore, path: str) -> None:
        raise error

    monkeypatch.setattr(ConditionalStore, "head", fail)
    done = CliRunner().invoke(main, ["stat", f"{tmp_path}/a"])
    assert (done.exit_code, status_of(error)) == (status, status)
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == f"commitlog: {message_of(error)}"


def test_every_error_has_a_status() -> None:
    """No error of the library ends a command as if it had succeeded."""
    for name in errors.__all__:
        kind = getattr(errors, name)
        error = kind.__new__(kind)
        assert status_of(error) in (1, 2, 3, 4)


def test_highest_status_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several objects, the worst outcome is the one that the status tells."""
    outcomes = iter([errors.NotFound("x"), errors.OutcomeUnknown("x"), errors.PreconditionFailed("x")])

    def fail(self: ConditionalStore, path: str) -> None:
        raise next(outcomes)

    monkeypatch.setattr(ConditionalStore, "delete", fail)
    done = CliRunner().invoke(main, ["rm", *(f"{tmp_path}/{name}" for name in "abc")])
    assert done.exit_code == 4
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(terminal: bool, tmp_path: Path) -> None:
    """Long work shows its progress where somebody looks at it, and nowhere else."""
    (tmp_path / "a").write_bytes(b"x" * (PIECE + 5))
    (tmp_path / "b").mkdir()
    leader, follower = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "commitlog", "cp", f"{tmp_path}/a", f"{tmp_path}/b/a"],
            stderr=follower if terminal else subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm"},
            timeout=60,
            check=True,
        )
        os.write(follower, b"\n")
        shown = os.read(leader, 100_000)
    finally:
        os.close(leader)
        os.close(follower)
    assert (b"%" in shown) == terminal
    assert not done.stderr
    assert (tmp_path / "b" / "a").stat().st_size == PIECE + 5


def test_version_is_that_of_the_package() -> None:
    """--version names the program and the version that is installed."""
    done = CliRunner().invoke(main, ["--version"])
    assert done.stdout.strip().endswith(commitlog.__version__)


def test_a_stack_in_a_message_is_left_out() -> None:
    """Of an error of the JVM, what it says is shown, and not where."""
    error = RuntimeError(
        "An error occurred.\n: java.io.IOException: no disk\n\tat a.B.c(B.scala:1)\n\tat d"
    )
    assert "no disk (run it again" in message_of(error)
