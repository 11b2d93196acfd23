"""Exit statuses of commands, and their messages."""

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
    errors.Committed("x"): 4,
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
def test_each_error_has_its_exit_status(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each class of error ends a command with its status and one line on standard error."""

    def fail(self: ConditionalStore, path: str) -> None:
        raise error

    monkeypatch.setattr(ConditionalStore, "head", fail)
    done = CliRunner().invoke(main, ["stat", f"{tmp_path}/a"])
    assert (done.exit_code, status_of(error)) == (status, status)
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == f"commitlog: {message_of(error)}"


def test_an_interrupt_ends_a_command_whatever_it_still_does(tmp_path: Path) -> None:
    """Its clean-up asks a store that does not answer, in the main thread and in others."""
    program = """
        import os, signal, sys, threading
        from commitlog import __main__
        from commitlog._util import interrupts
        interrupts.SECONDS = 0.1
        class Slow:
            def find_spec(self, name, path, target=None):
                if name == "commitlog.stores.local.store":
                    threading.Thread(target=threading.Event().wait).start()
                    try:
                        os.kill(os.getpid(), signal.SIGINT)
                        threading.Event().wait()
                    finally:
                        threading.Event().wait()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.meta_path.insert(0, Slow())
        __main__.main()
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), "ls", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130
    assert "a store does not answer" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_end_a_command_like_ctrl_c(number: signal.Signals, tmp_path: Path) -> None:
    """Work in progress ends in order, even during imports. The status is 130, without a traceback."""
    program = """
        import os, signal, sys, time
        from commitlog import __main__
        module, number = sys.argv.pop(), int(sys.argv.pop())
        # The caller of the tests may ignore the signal, as nohup(1) does.
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


def test_closed_standard_output_is_an_error() -> None:
    """The command does not succeed, because its result would be lost."""
    command = [sys.executable, "-m", "commitlog", "ls", "memory://"]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "commitlog: standard output is closed\n")


def test_a_command_runs_without_standard_error(tmp_path: Path) -> None:
    """Nothing else is opened in its place, and the exit status is that of the command."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("1")
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-m", "commitlog", "cp", "-r", f"{tmp_path}/a", f"{tmp_path}/out/a"]
    done = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "out" / "a" / "b").read_text() == "1"
    command[-2] = f"{tmp_path}/none"
    assert subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command]).returncode == 1


def test_no_error_has_the_status_of_success() -> None:
    """This holds for every error of the library."""
    for name in errors.__all__:
        kind = getattr(errors, name)
        error = kind.__new__(kind)
        assert status_of(error) in (1, 2, 3, 4)


def test_the_highest_status_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status of several objects is that of the worst outcome."""
    outcomes = iter([errors.NotFound("x"), errors.OutcomeUnknown("x"), errors.PreconditionFailed("x")])

    def fail(self: ConditionalStore, path: str) -> None:
        raise next(outcomes)

    monkeypatch.setattr(ConditionalStore, "delete", fail)
    done = CliRunner().invoke(main, ["rm", *(f"{tmp_path}/{name}" for name in "abc")])
    assert done.exit_code == 4
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_only_on_terminals(terminal: bool, tmp_path: Path) -> None:
    """Long work shows its progress on a terminal, and nowhere else."""
    (tmp_path / "a").write_bytes(b"x" * (BLOCK_SIZE + 5))
    (tmp_path / "b").mkdir()
    shown = shown_by(["cp", f"{tmp_path}/a", f"{tmp_path}/b/a"], terminal=terminal)
    assert (b"%" in shown) == terminal
    assert (tmp_path / "b" / "a").stat().st_size == BLOCK_SIZE + 5


def test_version_is_that_of_the_package() -> None:
    """--version prints the program and the installed version."""
    done = CliRunner().invoke(main, ["--version"])
    assert done.stdout.strip().endswith(commitlog.__version__)


def test_java_stacks_are_not_printed() -> None:
    """The message of an error of the JVM is printed without its stack."""
    error = RuntimeError(
        "An error occurred.\n: java.io.IOException: no disk\n\tat a.B.c(B.scala:1)\n\tat d"
    )
    assert "no disk (add --debug" in message_of(error)


@pytest.mark.parametrize("group", ["fs", "namespace", "output", "table", "ingest"])
def test_a_group_without_a_command_shows_its_help(group: str) -> None:
    """The help is printed with its layout, not as an error message."""
    done = CliRunner().invoke(main, [group])
    assert "commitlog: " not in done.output
    headings = {"fs": "Read", "namespace": "Maintenance"}
    assert f"\n{headings.get(group, 'Commands')}:\n  " in done.output
