"""`Recorder`: takes down what clients do while they do it. Imports errors and the history."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

from commitlog.testing.history import Action, Call, History, Outcome, begin_line, end_line, head_line

__all__ = ["Recorder"]


class Recorder:
    """Takes down when calls begin and how they end. Thread-safe; one for all clients of a process.

    Args:
        now: the clock that tells the moments. Processes whose histories are put together must read the
            same one; the default, `time.monotonic`, is one for all processes of a Linux machine.
        path: a new file that gets a line for each beginning, before `begin` returns, and for each end.
            They are there when the process is killed; not when the machine fails. `History.load` reads
            this file, and those of other processes.

    Moments of one recorder never repeat, in the order in which things happened: where the clock stands
    still, as in a simulation, an event is dated to the next number above that of the event before. So
    of calls that one client makes one after the other, each returned before the next was invoked.
    Between recorders the shift does no harm: it is smaller than a tick of the clock, and no request
    begins and takes effect within the tick in which another one returns.

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
        self._words: dict[str, str] = {}
        self._lock = threading.Lock()
        # Unbuffered: a line is the system's matter, and safe from our being killed, once it is written.
        self._file = None if path is None else open(path, "xb", buffering=0)  # noqa: SIM115
        self._write(head_line)

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
        """Take down that a call begins, before it is sent; return the number to `end` it by.

        Args: those of `Call`. A read says what it saw when it ends.
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
            self._write(lambda: begin_line(number, call))
            return number

    def end(self, number: int, outcome: Outcome, *, version: str | None = None) -> None:
        """Take down how a call ended, after its answer is there.

        A call that is never ended has an unknown outcome; so `Outcome.UNKNOWN` changes nothing.

        Args:
            number: what `begin` returned.
            outcome: how it ended.
            version: of a read, the word that it saw, or None for no object.
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
            self._write(lambda: end_line(number, call))

    def history(self) -> History:
        """Return all calls so far; those that have not ended have an unknown outcome."""
        with self._lock:
            return History(self._calls)

    def learn(self, etag: str, word: str) -> None:
        """Keep in mind that an object with `etag` (quoted or bare) is the version `word`.

        What was learnt first remains. No etag, as an answer may have none, is that of no version.
        """
        if not etag:
            return
        with self._lock:
            self._words.setdefault(etag.strip('"'), word)

    def word(self, etag: str) -> str | None:
        """Return the word of the version with `etag`, or None if it was not learnt."""
        with self._lock:
            return self._words.get(etag.strip('"'))

    def close(self) -> None:
        """Close the file, if there is one. Idempotent; nothing may be taken down after it."""
        if self._file is not None:
            self._file.close()

    def _moment(self) -> float:
        self._last = max(self._now(), math.nextafter(self._last, math.inf))
        return self._last

    def _write(self, line: Callable[[], bytes]) -> None:
        if self._file is not None:
            self._file.write(line())
