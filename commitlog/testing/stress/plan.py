"""The plan of a stress run: its settings, the faults to inject, and the signals to send.

A conditional write is as safe as the request that carries it. No client can prevent the following three
effects, so they limit the injected faults:

* The store cannot distinguish a late request from a timely one if the request carries neither a
  condition nor an expiry that the store enforces. Such a request must not arrive late. It is delayed
  only for moments, never for the length of a lease, and its duplicate follows it immediately.
* The store also accepts the duplicate of a request with an expiry if it arrives *before* the expiry but
  after the release of the lease. So the duplicate follows the first copy immediately, or arrives after
  the expiry. The first copy may arrive at any time, because its sender keeps the lease until it has the
  answer or the expiry is over.
* A client retries a creation whose answer was lost. The retry may recreate an object that another client
  removed meanwhile (docs/protocol.md, "Lost answers"). A late creation that only its condition guards
  does the same. So answers to creations are lost only at paths below `KEPT`, where objects are never
  removed, and, if no copy of the request is still under way, below `OWN`, where no other client removes
  objects.

All requests to the table carry conditions on generations, so every fault may strike them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from random import Random

from attrs import field, frozen, validators

from commitlog.commit.conditional import Mode
from commitlog.commit.probe_report import ProbeReport
from commitlog.errors import ConfigurationError
from commitlog.testing.proxy.faults import Action, Hazard
from commitlog.urls import Url, parse_store_url, parse_table_url

__all__ = [
    "KEPT",
    "OWN",
    "REMOVABLE",
    "Interruption",
    "StressSettings",
    "hazards",
    "interruptions",
    "signals",
]


def _store_url(value: str | Url) -> Url:
    return parse_store_url(value) if isinstance(value, str) else value


def _table_url(value: str | Url | None) -> Url | None:
    return parse_table_url(value) if isinstance(value, str) else value


@frozen(kw_only=True)
class StressSettings:
    """The settings of a run.

    Attributes:
        store: an S3 store or a local directory. If the endpoint begins with ``http://``, workers reach
            the store through the fault-injecting proxy. Otherwise the only faults are killed and stopped
            workers.
        table: the table of the leases, or None to use the store's own conditions. The run creates the
            table if it does not exist. The proxy serves DynamoDB under the same condition as the store.
        mode: the mode of `ConditionalStore`. Without a table it must be ``native``.
        seconds: for how long faults are injected. The final writes and the check take additional time.
        workers: number of concurrent processes.
        foreign: how many workers are clients of the crate ``object_store``, through obstore. They need
            the mode ``lease``, and a store and a table at ``http://`` endpoints. No expiry bounds their
            requests, and a stop may last a second: a `skew` of 2 gives them enough time.
        seed: seed of the plan.
        timeout, skew: `LeaseSettings.timeout` and `LeaseSettings.max_clock_skew_rate`.
        rate: the share of requests that each sort of fault strikes; 0 injects none.
        interval: average number of seconds between two signals.
        grace: number of seconds after the last fault in which every worker must write every path.
        probe_report: the known properties of the store. By default, the run probes the store.
        whole_reads: the argument of `RecordedStore`.

    Raises `ConfigurationError` if settings contradict each other.
    """

    store: Url = field(converter=_store_url)
    table: Url | None = field(default=None, converter=_table_url)
    mode: Mode = "lease"
    seconds: float = field(default=10.0, validator=validators.gt(0))
    workers: int = field(default=4, validator=validators.ge(1))
    foreign: int = 0
    seed: int = 0
    timeout: float = 3.0
    skew: float = 1.5
    rate: float = field(default=0.02, validator=[validators.ge(0), validators.le(1)])
    interval: float = field(default=1.0, validator=validators.gt(0))
    grace: float = field(default=60.0, validator=validators.gt(0))
    probe_report: ProbeReport | None = None
    whole_reads: bool = True

    def __attrs_post_init__(self) -> None:
        if self.store.scheme == "memory" or (self.table and self.table.scheme == "memory"):
            raise ConfigurationError("processes share no memory: give a store and a table that they do")
        if (self.table is None) != (self.mode == "native"):
            raise ConfigurationError("a table goes with mode 'lease' or 'auto', none with 'native'")
        if not 0 <= self.foreign <= self.workers:
            raise ConfigurationError("foreign must be between 0 and the number of workers")
        if self.foreign and (self.mode != "lease" or None in (self.store_address, self.table_address)):
            raise ConfigurationError(
                "foreign writers need mode 'lease', and S3 and DynamoDB at http:// endpoints"
            )

    def is_foreign(self, worker: int) -> bool:
        """Return whether worker `worker`, counted from 0, is foreign. The last workers are."""
        return worker >= self.workers - self.foreign

    @property
    def store_address(self) -> str | None:
        """The address of the store for the proxy, or None if the proxy cannot serve it."""
        return _address(self.store) if self.store.scheme == "s3" else None

    @property
    def table_address(self) -> str | None:
        """The address of the table for the proxy, or None if the proxy cannot serve it."""
        return None if self.table is None else _address(self.table)


def _address(url: Url) -> str | None:
    endpoint = url.options.get("endpoint_url", "")
    return endpoint if endpoint.startswith("http://") else None


#: Path prefix of objects that any worker may create and replace.
KEPT = "kept/"
#: Path prefix of objects that any worker may create, replace and remove.
REMOVABLE = "gone/"
#: Path prefix of objects that only one call of one client uses: the sources of copies and renames.
OWN = "own/"

#: Short delays in seconds: much shorter than the rest of a lease when a request is sent.
_MOMENTS = (0.0, 0.3)

_AT_ONCE: tuple[Action, ...] = ("drop_response", "fail")
_LOSSES: tuple[Action, ...] = (*_AT_ONCE, "reset")
_LATE: tuple[Action, ...] = ("duplicate", "reset")
_WRITES = ("PUT", "PUBLISH")


def hazards(*, timeout: float, enforces_expiry: bool, rate: float) -> tuple[Hazard, ...]:
    """Return the faults of a run.

    Args:
        timeout: length of a lease in seconds.
        enforces_expiry: whether the store enforces the expiry of requests.
        rate: the share of the requests that a hazard applies to and strikes. A hazard that makes a
            client wait for the length of a lease strikes a quarter as often, because otherwise a run
            would mostly wait. A late duplicate makes no client wait and strikes four times as often.
    """
    return tuple(_hazards(timeout, enforces_expiry, rate))


def _hazards(timeout: float, enforces_expiry: bool, rate: float) -> Iterator[Hazard]:
    rare, often, beyond = rate / 4, min(4 * rate, 1.0), (timeout, 2 * timeout)
    for kind in ("DynamoDB", "S3"):
        yield Hazard(kinds=(kind,), action="drop_request", rate=rare)
        yield Hazard(kinds=(kind,), action="delay", rate=rate, seconds=_MOMENTS)
    for kind in ("DynamoDB", "HEAD", "GET"):
        yield Hazard(kinds=(kind,), action="drop_request", rate=rate)
        yield from _losses(rate, kind)
        yield Hazard(kinds=(kind,), action="delay", rate=rare, seconds=beyond)
    yield Hazard(kinds=("DynamoDB",), action="reset", rate=rare, seconds=beyond)
    for longest in (_MOMENTS[1], 2 * timeout):
        yield Hazard(kinds=("DynamoDB",), action="duplicate", rate=rate, seconds=(0.01, longest))
    yield from _losses(rate, "DELETE")
    for kind in _WRITES:
        yield from _losses(rate, kind, path=KEPT)
    for action in _AT_ONCE:
        yield Hazard(kinds=("PUT",), action=action, rate=rate, path=OWN)
    for kind in (*_WRITES, "DELETE"):
        yield Hazard(kinds=(kind,), action="duplicate", rate=rate)
    for guard in ("if-match", *(["expiring"] if enforces_expiry else [])):
        yield Hazard(kinds=(guard,), action="delay", rate=rare, seconds=beyond)
        # A lease ends after the expiry of its requests. The store rounds to seconds: add one second.
        late = (timeout + 1, 2 * timeout + 1)
        yield Hazard(kinds=(guard,), action="duplicate", rate=often, seconds=late)
        for kind, path in (("PUT", KEPT), ("PUBLISH", KEPT), ("DELETE", "")):
            yield Hazard(
                kinds=(guard, kind), action="reset", rate=rare, path=path, seconds=(0.01, 2 * timeout)
            )
    yield Hazard(kinds=("if-absent",), action="delay", rate=rare, seconds=beyond)
    for action in _LATE:
        yield Hazard(
            kinds=("if-absent",), action=action, rate=rate, path=KEPT, seconds=(0.01, 2 * timeout)
        )


def _losses(rate: float, kind: str, *, path: str = "") -> Iterator[Hazard]:
    for action in _LOSSES:
        yield Hazard(kinds=(kind,), action=action, rate=rate, path=path, seconds=_MOMENTS)


#: The share of interruptions that kill the worker.
_DEATHS = 0.4
#: The range, in seconds, of stops of a worker whose late requests the store does not refuse.
_SHORT = (0.1, 1.0)


@frozen(kw_only=True)
class Interruption:
    """One kill or stop of a worker.

    Attributes:
        at: time in seconds from the beginning of the run.
        worker: number of the worker.
        stop: length of the stop in seconds; None if the worker is killed.
    """

    at: float
    worker: int
    stop: float | None


def interruptions(stress: StressSettings, *, enforces_expiry: bool) -> tuple[Interruption, ...]:
    """Return the kills and stops of a run, drawn from its seed, in order of time.

    Half of the stops last longer than a lease where this is safe. It is safe if the store refuses the
    requests that the worker sends after the stop: because their signature has expired
    (`enforces_expiry`; foreign writers send no such signatures), or because their condition does not
    hold.
    """
    return tuple(_interruptions(stress, enforces_expiry or stress.mode == "native"))


def _interruptions(stress: StressSettings, guarded: bool) -> Iterator[Interruption]:
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
            yield Interruption(at=at, worker=worker, stop=None)
            continue
        safe = guarded and not stress.is_foreign(worker)
        stop = min(random.uniform(*(span if safe else _SHORT)), stress.seconds - at)
        stopped_until[worker] = at + stop
        yield Interruption(at=at, worker=worker, stop=stop)


def signals(happening: Iterable[Interruption]) -> list[tuple[float, int, signal.Signals]]:
    """Return the signals to send: the time, the worker and the signal, in order of time."""
    due = []
    for interruption in happening:
        if interruption.stop is None:
            due.append((interruption.at, interruption.worker, signal.SIGKILL))
        else:
            due.append((interruption.at, interruption.worker, signal.SIGSTOP))
            due.append((interruption.at + interruption.stop, interruption.worker, signal.SIGCONT))
    return sorted(due)
