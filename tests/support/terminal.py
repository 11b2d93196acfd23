"""The command line as it is on a terminal: what it shows there, and what it shows elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["shown_by"]

_END = b"(end)"


def shown_by(words: Sequence[str], *, terminal: bool) -> bytes:
    """Run a command that succeeds; return what it shows on a terminal, if its standard error is one.

    Fails if it says anything on a standard error that is none.
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
        while not shown.endswith(_END):  # what is written comes in pieces, and a moment later
            shown += os.read(leader, 100_000)
    finally:
        os.close(leader)
        os.close(follower)
    assert not done.stderr
    return shown
