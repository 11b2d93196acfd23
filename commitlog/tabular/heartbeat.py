"""Heartbeats of a job whose driver is this process, so that a recovery does not abort it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from commitlog.errors import CommitError, ConfigurationError
from commitlog.outputs import Output

__all__ = ["check_heartbeat", "send_heartbeats"]

_log = logging.getLogger(__name__)


def check_heartbeat(seconds: float) -> None:
    """Raise `ConfigurationError` unless there can be so many seconds between two heartbeats."""
    if seconds <= 0:
        raise ConfigurationError(f"heartbeat is {seconds} s; it must be more than 0")


@contextlib.contextmanager
def send_heartbeats(output: Output, attempt: str, seconds: float) -> Iterator[None]:
    """Send a heartbeat of `attempt` every `seconds` from a thread until the context ends.

    At the end the last heartbeat is removed; if that fails, `recover` removes it.
    """
    over = threading.Event()
    sent = False

    def beat() -> None:
        nonlocal sent
        while not over.wait(seconds):
            sent = True
            try:
                output.heartbeat(attempt)
            except CommitError as error:
                _log.warning("could not send a heartbeat of attempt %s: %s", attempt, error)

    thread = threading.Thread(target=beat, name="commitlog-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if sent:
            try:
                output.clear_heartbeat(attempt)
            except CommitError as error:
                _log.warning("could not remove the heartbeat of attempt %s: %s", attempt, error)
