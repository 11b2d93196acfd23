"""What a script learns from the exit status, and what a person reads beside it."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import commitlog
from commitlog import errors
from commitlog.cli import main
from commitlog.cli.exit_status import message_of, status_of
from commitlog.commit import ConditionalStore
from commitlog.transfer import BLOCK_SIZE
from support.terminal import shown_by

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
    errors.ObjectChanged("x"): 1,
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_as_ctrl_c_does(number: signal.Signals, tmp_path: Path) -> None:
    """What was under way is ended in order, from the imports on; status 130, and no traceback."""
    program = """
        import os, signal, sys, time
        from commitlog import __main__
        module, number = sys.argv.pop(), int(sys.argv.pop())
        # Whoever runs the tests may have had it ignored, as nohup(1) does.
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)
        class Slow:
            def find_spec(self, name, path, target=None):
                if name == module:
                    os.kill(os.getpid(), number)
                    time.sleep(60)
        sys.meta_path.insert(0, Slow())
        __main__.main()
        """
    for module in (
        "commitlog.cli",
        "commitlog.stores.local.store",
    ):  # the latter comes when it is needed
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                textwrap.dedent(program),
                "ls",
                str(tmp_path),
                str(int(number)),
                module,
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 130, done
        assert done.stderr.startswith("commitlog: interrupted") and "Traceback" not in done.stderr


def test_closed_standard_output_is_told() -> None:
    """Not taken for success: nobody would see what the command has found."""
    command = [sys.executable, "-m", "commitlog", "ls", "memory://"]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "commitlog: standard output is closed\n")


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
    (tmp_path / "a").write_bytes(b"x" * (BLOCK_SIZE + 5))
    (tmp_path / "b").mkdir()
    shown = shown_by(["cp", f"{tmp_path}/a", f"{tmp_path}/b/a"], terminal=terminal)
    assert (b"%" in shown) == terminal
    assert (tmp_path / "b" / "a").stat().st_size == BLOCK_SIZE + 5


def test_version_is_that_of_the_package() -> None:
    """--version names the program and the version that is installed."""
    done = CliRunner().invoke(main, ["--version"])
    assert done.stdout.strip().endswith(commitlog.__version__)


def test_a_stack_in_a_message_is_left_out() -> None:
    """Of an error of the JVM, what it says is shown, and not where."""
    error = RuntimeError(
        "An error occurred.\n: java.io.IOException: no disk\n\tat a.B.c(B.scala:1)\n\tat d"
    )
    assert "no disk (add --debug" in message_of(error)


@pytest.mark.parametrize("group", ["fs", "namespace", "output", "table", "ingest"])
def test_a_group_without_a_command_shows_its_help(group: str) -> None:
    """As it is laid out, on its lines, and not as the message of an error."""
    done = CliRunner().invoke(main, [group])
    assert "commitlog: " not in done.output
    headings = {"fs": "Read", "namespace": "Maintenance"}
    assert f"\n{headings.get(group, 'Commands')}:\n  " in done.output
