"""Large worlds whose everything is drawn: settings, clocks, network, misfortunes, and what nodes do.

All draws come from the one `Choices` of the simulation, so a run is its picks. Of every draw the first
alternative is the ordinary one, which is what runs are shrunk to.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from attrs import evolve

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore, LeaseSettings
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    LeaseTimeout,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
)
from commitlog.stores.api import PutResult, Staged
from commitlog.testing import Action, Call, History
from commitlog.testing.sim import Choices, Fault, Faults, Node, SimulatedStore, Simulation, World
from sim.leases.world import Client, CommitWorld, Ticks
from support.commit import proven

T = TypeVar("T")

#: Leases, on a store that enforces expiries or on one that does not; its own conditions; or either.
Way = Literal["lease", "unfenced", "native", "auto"]
WAYS: tuple[Way, ...] = ("lease", "unfenced", "native", "auto")

#: Timeout and skew rate of the leases.
_LEASES = ((3.0, 1.5), (4.0, 3.0), (6.0, 2.0), (20.0, 3.0))

#: How probable a fault is, at each point where it is possible, when a run has it at all.
_USUAL = (0.0, 0.01, 0.04)
_RARE = (0.0, 0.002, 0.01)
_RATES: Mapping[Fault, tuple[float, ...]] = {
    **dict.fromkeys(Fault, _USUAL),
    Fault.PAUSED: _RARE,
    Fault.CRASHED: _RARE,
    Fault.SWEPT: (0.0, 0.02, 0.3),
}

#: What the store's requests do not meet, since it breaks an assumption:
#: tests/sim/leases/test_assumptions.py.
BEYOND: Mapping[Way, frozenset[Fault]] = {
    "lease": frozenset({Fault.DUPLICATED}),
    "unfenced": frozenset({Fault.DUPLICATED, Fault.DELAYED, Fault.PAUSED}),
    "native": frozenset({Fault.DUPLICATED, Fault.REPEATED}),
    "auto": frozenset({Fault.DUPLICATED, Fault.REPEATED}),
}

#: What probes of one store found that did not agree: all is well, or copies ignore their condition.
_VERDICTS = (proven(*Kind), proven(*(kind for kind in Kind if kind is not Kind.COPY_IF_ABSENT)))

#: Errors that tell the truth about an object, and so may come when all is well.
_TRUE = (AlreadyExists, PreconditionFailed, NotFound)


class _Draw:
    def __init__(self, choices: Choices) -> None:
        self.choices = choices

    def of(self, what: str, options: Sequence[T]) -> T:
        return options[self.choices.pick(what, [1.0] * len(options))]


class _Jitter(random.Random):
    """Pauses that are picked, too."""

    def __init__(self, draw: _Draw, node: str) -> None:
        super().__init__(0)
        self._draw = draw
        self._node = node

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._draw.of(f"{self._node}'s jitter", (1.0, 0.5, 0.1, 0.0))


def seeded_world(way: Way, *, spared: frozenset[Fault] | None = None, small: bool = False) -> World:
    """Return what builds worlds of 3 to 5 nodes and 1 to 4 keys, or of 2 or 3 and 1 or 2.

    Args:
        way: how conditions are enforced. With ``auto`` the store does, but not all nodes were told so.
        spared: faults that writes to the store do not meet; by default those that are too much.
        small: whether nodes are few, and calls.
    """
    spared = BEYOND[way] if spared is None else spared
    counts = ((2, 3), (1, 2), (1, 2, 3)) if small else ((3, 4, 5), (1, 2, 4), (2, 6, 10, 14))

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        draw = _Draw(choices)
        timeout, skew = draw.of("lease", _LEASES)
        margin = draw.of("TTL margin", (0.0, 10.0, 3600.0))
        # Bodies take no time; or are sent under the lease, in the time that is kept for them; or staged.
        bandwidth = draw.of("bandwidth", (math.inf, 16.0, 1.0))
        settings = LeaseSettings(
            timeout=timeout,
            max_clock_skew_rate=skew,
            ttl=2 * timeout * skew + margin,
            test_interval=draw.of("test interval", (1.0, 0.3)) * min(timeout, 5.0) / 3,
            max_wait=draw.of("max wait", (None, None, timeout / 2)),
            min_bandwidth=bandwidth,
        )
        until = draw.of("faults until", (30.0, 100.0)) * timeout / 3
        faults = Faults(
            rates={fault: draw.of(f"rate of {fault.value}", rates) for fault, rates in _RATES.items()},
            delays=(0.2, 1.0, timeout / 2, timeout, timeout * skew, 3 * timeout * skew),
            until=until,
        )
        patience = draw.of("patience", (2.0, 7.0))
        # A round trip for which nobody waits, or for which the expiry of a short lease leaves no time,
        # is an error of configuration. (The expiry counts whole seconds, and loses up to two of them.)
        longest = min(patience, (timeout - settings.reserve - 2) / 2 if timeout >= 4 else 0.1)
        slowest = min(1.0, 0.45 * longest / skew)
        latencies = draw.of("network", ((0.005,), (0.005, slowest)))
        simulation = Simulation(choices, faults=faults, latencies=latencies, patience=patience)
        rates = (1.0, (1 + skew) / 2, skew)
        names = "ABCDE"[: draw.of("nodes", counts[0])]
        nodes = {
            name: Ticks(
                rate=draw.of(f"{name}'s rate", rates),
                offset=draw.of(f"{name}'s offset", (0.0, -7.0, 1000.0)),
            )
            for name in names
        }
        rate = draw.of("table's rate", rates)
        # The table's clock is as far ahead of the writers' as it may be, at the worst moment.
        ahead = min(
            ticks.offset + (ticks.rate - rate) * at for ticks in nodes.values() for at in (0.0, until)
        )
        world = _World(
            simulation,
            nodes=nodes,
            way=way,
            spared=spared,
            verdicts={name: draw.of(f"what {name} was told", _VERDICTS) for name in names}
            if way == "auto"
            else {},
            store=Ticks(
                rate=draw.of("store's rate", rates), offset=draw.of("store's offset", (0.0, 500.0))
            ),
            table=Ticks(rate=rate, offset=ahead + margin - draw.of("table's slack", (0.0, 5.0, 100.0))),
            settings=settings,
            backoff=lambda name: Backoff(random=_Jitter(draw, name)),
            returns_old_item=draw.of("the table tells", (True, False)),
            bandwidths={name: bandwidth * draw.of(f"{name}'s link", (1.0, 8.0)) for name in names},
        )
        keys = tuple(f"k{number}" for number in range(draw.of("keys", counts[1])))
        repeats = faults.rates[Fault.REPEATED] > 0 and Fault.REPEATED not in spared
        fine = _TRUE if settings.max_wait is None else (*_TRUE, LeaseTimeout)
        workload = _Workload(world, draw, keys, until, length=timeout, fine=fine, publishes=not repeats)
        for name in names:
            left = [draw.of(f"{name}'s calls", counts[2])]
            world.start(
                name,
                lambda client, left=left: workload.run(client, left),
                after=draw.of(f"{name}'s start", (0.0, 0.01, 1.0)),
                restart=lambda client, left=left: workload.run(client, left),
                restart_after=draw.of(f"{name}'s restart", (1.0, timeout * skew)),
            )

        def judge() -> Counter[str]:
            world.judge()
            return Counter(f"{call.name} {call.outcome.value}" for call in world.recorder.history())

        return simulation, judge

    return build


class _Noting(SimulatedStore):
    """Notes which paths were written to without an answer."""

    def __init__(self, *args: Any, lost: Callable[[str], object], **options: Any) -> None:
        super().__init__(*args, **options)
        self._lost = lost

    def put(self, path: str, *args: Any, **options: Any) -> PutResult:
        with self._noting(path):
            return super().put(path, *args, **options)

    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        with self._noting(target):
            return super().copy(source, target, **options)

    def publish(self, staged: Staged, **options: Any) -> PutResult:
        with self._noting(staged.path):
            return super().publish(staged, **options)

    @contextlib.contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        try:
            yield
        except OutcomeUnknown:
            self._lost(path)
            raise


class _World(CommitWorld):
    """A world whose judge knows what is not guaranteed after a lost answer (docs/protocol.md).

    A creation that is tried again may create anew what somebody has removed meanwhile. So each attempt
    whose answer was lost counts as a call of its own, whose outcome nobody knows.

    Args:
        way: how conditions are enforced.
        spared: faults that writes to the store do not meet.
        verdicts: with ``auto``, what each node was told of the store.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        way: Way,
        spared: frozenset[Fault],
        verdicts: Mapping[str, ProbeReport],
        **options: Any,
    ) -> None:
        if way == "auto":
            options |= {"conditions": True, "connect": self._auto}
        mode: Literal["lease", "native"] = "native" if way == "native" else "lease"
        super().__init__(simulation, mode=mode, fences=way != "unfenced", **options)
        self._spared = spared
        self._attempts: list[Call] = []
        self._probe_reports = verdicts

    def client(self, name: str) -> Client:
        self._probe_report = self._probe_reports.get(name, self._probe_report)
        return super().client(name)

    def port(self, node: Node) -> SimulatedStore:
        port = _Noting(
            node,
            self.objects,
            fences=self._fences,
            spared=self._spared,
            lost=lambda path: self._note(node.name, path),
            bandwidth=self._bandwidths[node.name],
        )
        if self._probe_reports:
            port.capabilities = evolve(port.capabilities, enforced=False)
        return port

    @staticmethod
    def _auto(store: SimulatedStore, **options: Any) -> ConditionalStore:
        return ConditionalStore(store, **{**options, "mode": "auto"})

    def history(self) -> History:
        return History((*self.recorder.history(), *self._attempts))

    def _note(self, client: str, path: str) -> None:
        calls = [call for call in super().history() if (call.client, call.key) == (client, path)]
        if not calls:
            return  # no call of the client, but the object that identifies the bucket
        call = calls[-1]
        if call.action is Action.CREATE:
            self._attempts.append(call)  # as it is now, which is without an outcome


class _Workload:
    """What the nodes do: one call after the other on keys that all of them want, often at once."""

    def __init__(
        self,
        world: CommitWorld,
        draw: _Draw,
        keys: tuple[str, ...],
        until: float,
        *,
        length: float,
        fine: tuple[type[CommitError], ...],
        publishes: bool,
    ) -> None:
        self._world = world
        self._draw = draw
        self._keys = keys
        self._until = until
        self._round = length
        self._fine = fine
        self._calls: tuple[Callable[[Client, str], object], ...] = (
            *(self._create, self._change, self._remove) * 2,
            self._copy,
            self._rename,
            *((self._publish,) if publishes else ()),
            lambda client, key: client.store.head(key),
            lambda client, key: client.store.get(key),
        )

    def run(self, client: Client, left: list[int]) -> None:
        """Make so many calls as are left, and after the last fault one on each key."""
        while left[0] > 0:
            left[0] -= 1
            call = self._draw.of(f"{client.name}'s call", self._calls)
            self._attempt(client, call, self._draw.of(f"{client.name}'s key", self._keys))
            # Those that wait for the next round meet there.
            next_round = self._round - self._now % self._round
            self._rest(client, self._draw.of(f"{client.name} rests", (next_round, 0.0, 0.1, 1.0)))
        self._rest(client, max(0.0, self._until - self._now))
        for key in self._keys:
            self._attempt(client, self._change, key)

    @property
    def _now(self) -> float:
        return self._world.simulation.now

    def _rest(self, client: Client, seconds: float) -> None:
        clock = client.world.nodes[client.name].clock
        clock.sleep(seconds * clock.rate)

    def _attempt(self, client: Client, call: Callable[[Client, str], object], key: str) -> None:
        calm = self._now >= self._until
        try:
            call(client, key)
        except self._fine:
            pass
        except CommitError as error:
            if calm:
                raise AssertionError(
                    f"nothing goes wrong any more, and {client.name} got {error!r}"
                ) from error

    def _create(self, client: Client, key: str) -> None:
        client.store.put_if_absent(key, client.word())

    def _change(self, client: Client, key: str) -> None:
        try:
            etag = client.store.get(key).etag
        except NotFound:
            self._create(client, key)
        else:
            client.store.put_if_match(key, client.word(), etag=etag)

    def _remove(self, client: Client, key: str) -> None:
        client.store.delete_if_match(key, etag=client.store.get(key).etag)

    def _copy(self, client: Client, key: str) -> None:
        source, word = self._source(client)
        client.store.copy_if_absent(source, key, version=word)

    def _rename(self, client: Client, key: str) -> None:
        source, word = self._source(client)
        client.store.rename_if_absent(source, key, version=word)

    def _publish(self, client: Client, key: str) -> None:
        word = client.word()
        client.store.publish_if_absent(client.store.stage(key, word), version=word)

    def _source(self, client: Client) -> tuple[str, str]:
        """Make an object that nobody else writes, to be copied once."""
        word = client.word()
        source = f"source-{word}"
        client.store.put_if_absent(source, word)
        return source, word
