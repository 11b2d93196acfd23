"""Child processes in tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress


def in_child(call: Callable[[], object]) -> None:
    """Run a call in a forked child process; fail if it raises an error or hangs for ten seconds."""
    child = os.fork()
    if not child:
        status = 1
        with suppress(BaseException):
            signal.alarm(10)
            call()
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
