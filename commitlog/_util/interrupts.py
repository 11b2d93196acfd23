"""The end of a process after an interrupt, whatever is still to be undone.

A module of its own, because the program imports it before the commands.

A command undoes what it can after Ctrl-C. With a store that does not answer, that would take minutes:
each request waits for its answer, and is repeated, also in threads that the end of the process awaits.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

__all__ = ["SECONDS", "interrupt"]

#: Seconds that a command has to end after an interrupt: the time in which a request is answered.
SECONDS = 30.0

_STATUS = 130
_timers: list[threading.Timer] = []


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`, and end the process after `SECONDS` in any case: a signal's handler."""
    if not _timers:
        timer = threading.Timer(SECONDS, _end)
        timer.daemon = True
        _timers.append(timer)
        timer.start()
    raise KeyboardInterrupt


def _end() -> None:
    message = (
        f"commitlog: interrupted, and not done after {SECONDS:g} s more: a store does not answer."
        " Changes that were under way may or may not have happened; uploads may remain\n"
    )
    try:
        os.write(sys.stderr.fileno(), message.encode())
    finally:
        os._exit(_STATUS)
