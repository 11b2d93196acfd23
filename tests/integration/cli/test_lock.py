"""The command ``lock``: runs a command under a lock, and stops it when the lock is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import commitlog
from commitlog.cli import main
from commitlog.locks import LOCK_SCHEMA, Lock, LockSettings
from commitlog.tables import open_table


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``commitlog lock`` in a process."""
    return subprocess.run(_command(*words), capture_output=True, text=True, timeout=120)


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "commitlog", "lock", *words]


def _lock(url: Path, **options: object) -> Lock:
    return Lock(commitlog.connect(str(url.parent)), url.name, **options)  # type: ignore[arg-type]


def test_the_command_runs_under_the_lock(tmp_path: Path) -> None:
    """It finds the token in its environment; its status is that of the command."""
    shown = f"{sys.executable} -m commitlog lock --show --json {tmp_path}/nightly"
    script = f'echo "$COMMITLOG_LOCK_TOKEN"; {shown}; exit 7'
    done = run(f"{tmp_path}/nightly", "--holder", "me", "--", "sh", "-c", script)
    assert done.returncode == 7
    token, holder = done.stdout.splitlines()
    assert json.loads(holder) == {"token": int(token), "holder": "me", "timeout": 20.0}
    assert not _lock(tmp_path / "nightly").locked()
    done = run(f"{tmp_path}/nightly", "--", "sh", "-c", "kill -KILL $$")
    assert done.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize(("words", "status"), [([], 3), (["--conflict-status", "75"], 75)])
def test_a_lock_that_is_held_is_a_conflict(words: list[str], status: int, tmp_path: Path) -> None:
    """The command does not run."""
    with _lock(tmp_path / "nightly", holder="another"):
        done = CliRunner().invoke(
            main,
            ["lock", "--wait", "0s", *words, f"{tmp_path}/nightly", "--", "touch", f"{tmp_path}/ran"],
        )
    assert done.exit_code == status
    assert "the lock is held by another" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_command_is_stopped_when_the_lock_is_lost(tmp_path: Path) -> None:
    """Its descendants, too, if they ignore SIGTERM. The status says so."""
    script = 'trap "" TERM; echo "$COMMITLOG_LOCK_TOKEN"; sleep 300 & wait; sleep 300; touch survived'
    process = subprocess.Popen(
        _command("--timeout", "3s", f"{tmp_path}/nightly", "--", "sh", "-c", script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    token = int(process.stdout.readline())
    assert _lock(tmp_path / "nightly").break_holder(token, wait=False)
    _, errors = process.communicate(timeout=120)  # ends only when no descendant has the pipe
    assert process.returncode == 4
    assert "was lost" in errors and "Traceback" not in errors
    assert not (tmp_path / "survived").exists()


def test_a_lock_that_is_lost_before_the_command_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is reported once, with its own status, and the command does not run."""

    def lose(self: Lock) -> int:
        self._tenure._lose("the process was suspended")
        return self._tenure.token

    monkeypatch.setattr(Lock, "token", property(lose))
    done = CliRunner().invoke(
        main, ["lock", "--lost-status", "77", f"{tmp_path}/nightly", "--", "touch", f"{tmp_path}/ran"]
    )
    assert done.exit_code == 77
    assert done.stderr.count("commitlog: ") == 1 and "was lost" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT"])
def test_an_interrupt_reaches_the_command(name: str, tmp_path: Path) -> None:
    """The lock is released when the command has ended. Without a shell, nothing stops it."""
    process = _begin(
        f'trap "echo stopped; exit 0" {name}; echo ready; while :; do sleep 0.1; done', tmp_path
    )
    os.kill(process.pid, signal.SIGTSTP)
    os.kill(process.pid, signal.Signals[f"SIG{name}"])
    output, errors = process.communicate(timeout=120)
    assert (output, process.returncode) == ("stopped\n", 130), errors
    assert not _lock(tmp_path / "nightly").locked()


def test_a_second_interrupt_kills_the_command(tmp_path: Path) -> None:
    """It ends with its descendants."""
    process = _begin("trap '' INT TERM; echo ready; sleep 300 & sleep 300; echo survived", tmp_path)
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    output, errors = process.communicate(timeout=120)
    assert (output, process.returncode) == ("", 130), errors


def _begin(script: str, directory: Path) -> subprocess.Popen[str]:
    """Run a script under a lock in a session of its own, until its first line."""
    process = subprocess.Popen(
        _command(f"{directory}/nightly", "--", "sh", "-c", script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_lock_in_a_table_has_a_name(tmp_path: Path) -> None:
    """It shares a table with leases, which are listed without it."""
    url = f"sqlite://{tmp_path}/commits.db"
    runner = CliRunner()
    done = runner.invoke(main, ["lock", url, "--name", "nightly", "--", "true"])
    assert (done.exit_code, done.output) == (0, "")
    table = open_table(url, LOCK_SCHEMA)
    with Lock(table, "nightly", holder="another"):
        shown = runner.invoke(main, ["lock", url, "--name", "nightly", "--show"])
        assert "held by another" in shown.stdout
        listed = runner.invoke(main, ["lease", "list", url, "--all"])
        assert listed.exit_code == 0 and "nightly" not in listed.output
    table.close()
    shown = runner.invoke(main, ["lock", url, "--name", "nightly", "--show"])
    assert (shown.exit_code, shown.stdout) == (0, "")


def test_a_lock_is_broken_by_its_token(tmp_path: Path) -> None:
    """After a wait for its holder; another token breaks nothing."""
    holder = _lock(tmp_path / "nightly", settings=LockSettings(timeout=3))
    holder.acquire()
    token = holder.token
    words = ["lock", f"{tmp_path}/nightly", "--skew-rate", "1", "--json", "--break"]
    done = CliRunner().invoke(main, [*words, str(token - 1)])
    assert json.loads(done.stdout) == {"token": token - 1, "broken": False}
    holder._tenure._stops[0]()  # its heartbeats end
    done = CliRunner().invoke(main, [*words, str(token)])
    assert json.loads(done.stdout) == {"token": token, "broken": True}
    with pytest.raises(commitlog.errors.LockLost):
        holder.release()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["{0}/a"], 2, "give a COMMAND"),
        (["{0}/a", "--show", "--", "true"], 2, "give a COMMAND"),
        (["sqlite://{0}/t.db", "--", "true"], 2, "--name"),
        (["{0}/a", "--name", "x", "--", "true"], 2, "names an object"),
        (["{0}/a", "--timeout", "1s", "--", "true"], 2, "timeout"),
        (["{0}/a", "--", "{0}/missing"], 127, "No such file"),
        (["{0}/a", "--", "{0}"], 126, "Permission denied"),
    ],
)
def test_wrong_use(words: list[str], status: int, message: str, tmp_path: Path) -> None:
    """The message says what is wrong, and the lock is free afterwards."""
    done = CliRunner().invoke(main, ["lock", *(word.format(tmp_path) for word in words)])
    assert (done.exit_code, message in done.stderr) == (status, True), done.stderr
    assert not _lock(tmp_path / "a").locked()
