"""The command line on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["shown_by"]

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
