"""The report of a stress run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attrs import frozen

from commitlog.testing.history import History
from commitlog.testing.linearizability import NotLinearizable
from commitlog.testing.proxy_faults import Strike
from commitlog.testing.stress_settings import Stress
from commitlog.testing.stress_signals import Trouble

__all__ = ["Report"]


@frozen(kw_only=True)
class Report:
    """The result of a run.

    Attributes:
        stress: the settings of the run.
        fenced: whether the store enforces the expiry of requests. Only then did the run inject long
            delays.
        history: all calls of all workers, and the final reads of an auditor.
        strikes: how often each sort of fault struck.
        troubles: which workers were killed and stopped, and when.
        finished: seconds from the last fault until every worker had written every path.
        violation: the part of the history that no order of the calls explains, or None.
        failures: workers that failed or did not finish, and objects with metadata and body of
            different versions.
    """

    stress: Stress
    fenced: bool
    history: History
    strikes: Counter[Strike]
    troubles: tuple[Trouble, ...]
    finished: float
    violation: NotLinearizable | None
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the run found no error."""
        return self.violation is None and not self.failures

    @property
    def kills(self) -> int:
        """The number of workers that were killed."""
        return sum(trouble.stop is None for trouble in self.troubles)

    @property
    def stops(self) -> tuple[float, ...]:
        """The length of each stop of a worker, in seconds."""
        return tuple(trouble.stop for trouble in self.troubles if trouble.stop is not None)

    @property
    def refused(self) -> int:
        """The number of late requests that the store refused."""
        return sum(count for strike, count in self.strikes.items() if strike.status == 403)

    def lines(self) -> Iterator[str]:
        """Yield the report line by line, for people."""
        stress = self.stress
        where = f"leases in {stress.table}" if stress.table else "its own conditions"
        yield f"{stress.store}: {stress.mode}, {where}"
        yield (
            f"{stress.workers} workers ({stress.foreign} foreign), {stress.seconds:g} s, seed "
            f"{stress.seed}; expiry enforced: {'yes' if self.fenced else 'no'}"
        )
        yield f"calls: {len(self.history)} on {len(self.history.by_key())} paths"
        calls = Counter((call.name, call.outcome.value) for call in self.history)
        for name in sorted({name for name, _ in calls}):
            outcomes = [f"{word} {count}" for (of, word), count in sorted(calls.items()) if of == name]
            yield f"  {name}: {', '.join(outcomes)}"
        yield f"faults: {self.strikes.total()}"
        actions: Counter[str] = Counter()
        for strike, count in self.strikes.items():
            actions[strike.action] += count
        for action, count in sorted(actions.items()):
            yield f"  {action}: {count}"
        yield f"  requests that the store refused as late: {self.refused}"
        beyond = sum(seconds > stress.timeout for seconds in self.stops)
        yield f"killed: {self.kills}; stopped: {len(self.stops)}, longer than a lease: {beyond}"
        yield f"all written {self.finished:.1f} s after the last fault"
        yield from self.failures
        yield f"linearizable: {'yes' if self.violation is None else f'NO. {self.violation}'}"
