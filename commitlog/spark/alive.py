"""Signs of life of a job whose driver is this process, so that no recovery takes it for dead.

Imports outputs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from commitlog.errors import CommitError
from commitlog.outputs import Output

__all__ = ["kept_alive"]

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def kept_alive(output: Output, attempt: str, seconds: float) -> Iterator[None]:
    """Give a heartbeat of `attempt` every so many seconds, from a thread that ends with the context.

    The last one is removed in the end; if that fails, `recover` does it.
    """
    over = threading.Event()
    given = False

    def beat() -> None:
        nonlocal given
        while not over.wait(seconds):
            given = True
            try:
                output.heartbeat(attempt)
            except CommitError as error:
                _log.warning("no sign of life of attempt %s could be given: %s", attempt, error)

    thread = threading.Thread(target=beat, name="commitlog-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if given:
            try:
                output.still(attempt)
            except CommitError as error:
                _log.warning("the last sign of life of attempt %s is left: %s", attempt, error)
