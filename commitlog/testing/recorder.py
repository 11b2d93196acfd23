"""`Recorder`: records the calls of clients while they run."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

from commitlog.testing.history import Action, Call, History, Outcome, begin_line, end_line, head_line

__all__ = ["Recorder"]


class Recorder:
    """A recorder of when calls begin and how they end. Thread-safe; one serves all clients of a process.

    Args:
        now: the clock. Processes whose histories are merged must read the same clock. On Linux, all
            processes of a machine share the default, `time.monotonic`.
        path: a new file that gets a line for each beginning, before `begin` returns, and for each end.
            The lines survive the death of the process, but not a failure of the machine. `History.load`
            reads this file and those of other processes.

    The times of one recorder strictly increase. If the clock stands still, as in a simulation, an event
    gets the next number above the time of the event before. So if one client makes calls one after the
    other, each call returns before the next is invoked. The shift is harmless between recorders: it is
    smaller than a tick of the clock, and no request begins and takes effect within the tick in which
    another one returns.

    >>> recorder = Recorder(now=lambda: 0.0)
    >>> number = recorder.begin("A", Action.CREATE, "k", version="w1")
    >>> recorder.end(number, Outcome.DONE)
    >>> [call.version for call in recorder.history()]
    ['w1']
    """

    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self._now = now
        self._last = -math.inf
        self._calls: list[Call] = []
        self._versions: dict[str, str] = {}
        self._lock = threading.Lock()
        # Unbuffered: a written line is in the system's cache and survives the death of the process.
        self._file = None if path is None else open(path, "xb", buffering=0)  # noqa: SIM115
        if self._file is not None:
            self._file.write(head_line())

    def begin(
        self,
        client: str,
        action: Action,
        key: str,
        *,
        expected: str | None = None,
        version: str | None = None,
        name: str = "",
    ) -> int:
        """Record the beginning of a call before it is sent; return its number for `end`.

        The arguments are those of `Call`. A read passes the version that it saw to `end`.
        """
        with self._lock:
            call = Call(
                client=client,
                action=action,
                key=key,
                expected=expected,
                version=version,
                outcome=Outcome.UNKNOWN,
                invoked=self._moment(),
                name=name,
            )
            number = len(self._calls)
            self._calls.append(call)
            if self._file is not None:
                self._file.write(begin_line(number, call))
            return number

    def end(self, number: int, outcome: Outcome, *, version: str | None = None) -> None:
        """Record the end of a call after its answer has arrived.

        A call without an end has an unknown outcome, so `Outcome.UNKNOWN` changes nothing.

        Args:
            number: the result of `begin`.
            outcome: the outcome of the call.
            version: for a read, the version that it saw, or None for no object.
        """
        if outcome is Outcome.UNKNOWN:
            return
        with self._lock:
            call = self._calls[number]
            if call.outcome is not Outcome.UNKNOWN:
                raise ValueError(f"call {number} ended before")
            seen = version if call.action is Action.READ else call.version
            call = Call(
                client=call.client,
                action=call.action,
                key=call.key,
                expected=call.expected,
                version=seen,
                outcome=outcome,
                invoked=call.invoked,
                returned=self._moment(),
                name=call.name,
            )
            self._calls[number] = call
            if self._file is not None:
                self._file.write(end_line(number, call))

    def history(self) -> History:
        """Return all calls so far. Calls that have not ended have an unknown outcome."""
        with self._lock:
            return History(self._calls)

    def learn(self, etag: str, version: str) -> None:
        """Remember that an object with `etag` (quoted or bare) is of this version.

        The first version of an etag remains. An empty etag, from an answer without one, is ignored.
        """
        if not etag:
            return
        with self._lock:
            self._versions.setdefault(etag.strip('"'), version)

    def version_of(self, etag: str) -> str | None:
        """Return the version of the object with `etag`, or None if it is unknown."""
        with self._lock:
            return self._versions.get(etag.strip('"'))

    def close(self) -> None:
        """Close the file, if there is one. Idempotent. Record no calls after it."""
        if self._file is not None:
            self._file.close()

    def _moment(self) -> float:
        now = self._now()
        self._last = now if now > self._last else math.nextafter(self._last, math.inf)
        return self._last
