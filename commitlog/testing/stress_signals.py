"""The plan of a stress run's signals: which workers are killed or stopped at which times."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from random import Random

from attrs import frozen

from commitlog.testing.stress_settings import Stress

__all__ = ["Trouble", "signals", "troubles"]

#: The share of troubles that kill the worker.
_DEATHS = 0.4
#: The range, in seconds, of stops of a worker whose late requests the store does not refuse.
_SHORT = (0.1, 1.0)


@frozen(kw_only=True)
class Trouble:
    """One kill or stop of a worker.

    Attributes:
        at: time in seconds from the beginning of the run.
        worker: number of the worker.
        stop: length of the stop in seconds; None if the worker is killed.
    """

    at: float
    worker: int
    stop: float | None


def troubles(stress: Stress, *, fenced: bool) -> tuple[Trouble, ...]:
    """Return the kills and stops of a run, drawn from its seed, in order of time.

    Half of the stops last longer than a lease where this is safe. It is safe if the store refuses the
    requests that the worker sends after the stop: because their signature has expired (`fenced`; foreign
    writers send no such signatures), or because their condition does not hold.
    """
    return tuple(_troubles(stress, fenced or stress.mode == "native"))


def _troubles(stress: Stress, guarded: bool) -> Iterator[Trouble]:
    random = Random(f"{stress.seed} signals")
    long = (stress.timeout, 2 * stress.timeout)
    stopped_until = [0.0] * stress.workers
    at = 0.0
    while (at := at + random.uniform(0.0, 2 * stress.interval)) < stress.seconds:
        worker = random.randrange(stress.workers)
        dies = random.random() < _DEATHS
        span = random.choice((_SHORT, long))
        if at < stopped_until[worker]:
            continue
        if dies:
            yield Trouble(at=at, worker=worker, stop=None)
            continue
        safe = guarded and not stress.is_foreign(worker)
        stop = min(random.uniform(*(span if safe else _SHORT)), stress.seconds - at)
        stopped_until[worker] = at + stop
        yield Trouble(at=at, worker=worker, stop=stop)


def signals(happening: Iterable[Trouble]) -> list[tuple[float, int, signal.Signals]]:
    """Return the signals to send: the time, the worker and the signal, in order of time."""
    due = []
    for trouble in happening:
        if trouble.stop is None:
            due.append((trouble.at, trouble.worker, signal.SIGKILL))
        else:
            due.append((trouble.at, trouble.worker, signal.SIGSTOP))
            due.append((trouble.at + trouble.stop, trouble.worker, signal.SIGCONT))
    return sorted(due)
