"""Which workers of a stress run are killed or stopped, and when. Imports its siblings."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from random import Random

from attrs import frozen

from commitlog.testing.stress_settings import Stress

__all__ = ["Trouble", "signals", "troubles"]

#: Share of troubles that are deaths.
_DEATHS = 0.4
#: Seconds for which a worker may be stopped that nothing fences off.
_SHORT = (0.1, 1.0)


@frozen(kw_only=True)
class Trouble:
    """What happens to a worker.

    Attributes:
        at: seconds from the beginning of the run.
        worker: its number.
        stop: for how many seconds it is stopped; None if it is killed.
    """

    at: float
    worker: int
    stop: float | None


def troubles(stress: Stress, *, fenced: bool) -> tuple[Trouble, ...]:
    """Return what happens to the workers of a run, as its seed has it; in order.

    Half of the stops last longer than a lease, where that is safe: where the store refuses what is sent
    after it, because its signature has expired (`fenced`; foreign writers sign nothing so) or because
    its condition does not hold.
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
    """Return when which worker is to be sent which signal."""
    due = []
    for trouble in happening:
        if trouble.stop is None:
            due.append((trouble.at, trouble.worker, signal.SIGKILL))
        else:
            due.append((trouble.at, trouble.worker, signal.SIGSTOP))
            due.append((trouble.at + trouble.stop, trouble.worker, signal.SIGCONT))
    return sorted(due)
