"""The command line on a terminal, and a shell with job control."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Shell", "shown_by"]

_END = b"(end)"


def shown_by(words: Sequence[str], *, terminal: bool) -> bytes:
    """Run a command that succeeds; return its output on a terminal.

    Its standard error is the terminal if `terminal`, and otherwise a pipe, which must stay empty.
    """
    leader, follower = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "commitlog", *words],
            stderr=follower if terminal else subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm"},
            timeout=60,
            check=True,
        )
        os.write(follower, _END)
        shown = b""
        while not shown.endswith(_END):  # the output arrives in parts, and with a delay
            shown += os.read(leader, 100_000)
    finally:
        os.close(leader)
        os.close(follower)
    assert not done.stderr
    return shown


class Shell:
    """An interactive bash on a terminal of its own, which shows nothing of what is typed.

    Its jobs get SIGKILL at the end of the block. Args: its working directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> Shell:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(self._directory)
            words = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
            os.execvpe(words[0], words, {**os.environ, "LC_ALL": "C", "PS1": "", "PS2": ""})
        self._shown = b""
        self.type("stty -echo; PS1=; PS2=; echo re''ady\n")
        self.until("ready\r\n")
        return self

    def __exit__(self, *_: object) -> None:
        for group in self._groups() - {self._pid}:
            os.killpg(group, signal.SIGKILL)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def _groups(self) -> set[int]:
        words = ["ps", "-s", str(self._pid), "-o", "pgid="]
        listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        return set(map(int, listed.split()))

    def type(self, text: str) -> None:
        """Type the text, which may have control characters: ^C is ``\\x03``, ^Z is ``\\x1a``."""
        os.write(self._terminal, text.encode())

    def until(self, text: str) -> str:
        """Wait until the terminal shows the text; return what it showed since the last call."""
        end = text.encode()
        while end not in self._shown:
            readable, _, _ = select.select([self._terminal], [], [], 20)
            assert readable, self._shown
            self._shown += os.read(self._terminal, 4096)
        shown, _, self._shown = self._shown.partition(end)
        return (shown + end).decode()
