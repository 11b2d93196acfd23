"""The command ``lock`` on a terminal: its command is a job of the shell, and never runs unprotected."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import commitlog
from commitlog.locks import Lock, LockSettings
from support.terminal import Shell

_CTRL_C, _CTRL_Z = "\x03", "\x1a"

#: The end of a script that leaves a file if anything but SIGKILL ends it or wakes it.
_ENDLESS = "trap 'touch survived' TERM CONT HUP; while :; do sleep 0.05; done"


def _command(script: str, *words: str) -> str:
    """Return the command line that runs a script under the lock ``nightly`` of this directory."""
    return shlex.join(
        [sys.executable, "-m", "commitlog", "lock", *words, "nightly", "--", "sh", "-c", script]
    )


def test_the_command_reads_the_terminal(tmp_path: Path) -> None:
    """It gets the terminal when it asks for it, as soon as its job is in the foreground.

    Ctrl-Z then stops the whole job, and Ctrl-C also ends the script that runs it.
    """
    script = "stty -echo; echo asks; read line; echo got $line"
    with Shell(tmp_path) as shell:
        shell.type(f"{_command(script)}\n")
        shell.until("asks")
        shell.type(_CTRL_Z)
        shell.until("Stopped")
        shell.type("fg; echo status $?\none\n")
        shell.until("got one\r\nstatus 0")
        shell.type(f"{_command(script)} &\nuntil jobs -s | grep .; do sleep 0.05; done\n")
        shell.until("Stopped")
        shell.type("fg\n")
        shell.type("two\n")
        shell.until("got two")
        script = f"{_command(script)}; echo went on"
        shell.type(f"sh -c {shlex.quote(script)}\n")
        shell.until("asks")
        shell.type(_CTRL_C)
        shell.until("interrupted")
        shell.type("\necho status $?\n")  # bash may lose the first character after an interrupt
        assert "went on" not in shell.until("status 130")
    assert not Lock(commitlog.connect(str(tmp_path)), "nightly").locked()


def test_a_pager_keeps_the_terminal(tmp_path: Path) -> None:
    """A command that does not ask for the terminal leaves it to the others of its pipeline."""
    pager = "read -r line; read -r typed < /dev/tty; echo pager $line $typed; cat"
    with Shell(tmp_path) as shell:
        shell.type(f"{_command('echo page; echo more')} | sh -c {shlex.quote(pager)}\n")
        shell.type("typed\n")
        shell.until("pager page typed\r\nmore")


def test_ctrl_z_stops_the_command(tmp_path: Path) -> None:
    """Also if it ignores the signal. It goes on with its job, as long as the lock is held."""
    script = "trap '' TSTP; echo $$ > pid; echo begun; read line < go; echo $line"
    os.mkfifo(tmp_path / "go")
    with Shell(tmp_path) as shell:
        shell.type(f"{_command(script)}\n")
        shell.until("begun")
        shell.type(_CTRL_Z)
        shell.until("Stopped")
        shell.type("ps -o stat= -p $(cat pid) > state; (echo went on > go &); fg; echo status $?\n")
        shell.until("went on\r\nstatus 0")
    assert (tmp_path / "state").read_text().startswith("T")


def test_a_command_whose_lock_ran_out_while_it_was_stopped(tmp_path: Path) -> None:
    """It is killed as it stands: it neither goes on, nor handles the end."""
    script = f"echo begun; {_ENDLESS}"
    with Shell(tmp_path) as shell:
        shell.type(f"{_command(script, '--timeout', '3s')}\n")
        shell.until("begun")
        shell.type(_CTRL_Z)
        shell.until("Stopped")
        settings = LockSettings(timeout=3, max_clock_skew_rate=1.1, test_interval=0.1)
        with Lock(commitlog.connect(str(tmp_path)), "nightly", settings=settings):
            shell.type("fg; echo status $?\n")
            assert "was lost" in shell.until("status 4")
    assert not (tmp_path / "survived").exists()


def test_a_lock_that_was_broken_while_the_command_was_stopped(tmp_path: Path) -> None:
    """A heartbeat finds out before the command goes on."""
    script = f"echo $COMMITLOG_LOCK_TOKEN; {_ENDLESS}"
    with Shell(tmp_path) as shell:
        shell.type(f"{_command(script)}\n")
        token = int(shell.until("\r\n"))
        shell.type(_CTRL_Z)
        shell.until("Stopped")
        assert Lock(commitlog.connect(str(tmp_path)), "nightly").break_holder(token, wait=False)
        shell.type("fg; echo status $?\n")
        assert "another holder has it" in shell.until("status 4")
    assert not (tmp_path / "survived").exists()


def test_a_command_that_can_never_get_the_terminal(tmp_path: Path) -> None:
    """It is hung up, as the kernel does it, when no shell can bring its group to the foreground."""
    with Shell(tmp_path) as shell:
        shell.type(f"( ({_command('read line < /dev/tty')}; echo status $?) & )\n")
        shell.until("status 129")
