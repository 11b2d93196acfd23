"""Small worlds of writers, explored exhaustively: every order of events, and any fault at any point.

``python -m pytest tests/sim/leases/test_small_worlds.py -s -k states`` prints the size of each world.
``-m campaign`` explores the larger ones, for hours.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import pytest
from attrs import evolve, field, frozen

from commitlog.testing.sim import Choices, Exploration, Fault, Faults, Simulation, World, explore
from sim.leases.actions import Program, copy, create, delete, read, update
from sim.leases.world import SMALL, world_of
from sim.nodes import ClockSkew
from support.selection import in_campaigns, with_all, with_all_but

#: B holds a lease for three of its seconds. The delays end before the lease ends, before A may take it
#: over, and after the TTL.
DELAYS = (1.5, 4.0, 10.0)

#: One writer's clock is as slow, and the other's as fast, as the skew rate of 1.5 allows. The store's
#: rate is between them, and its offset is large.
CLOCKS = {"A": ClockSkew(rate=1.0), "B": ClockSkew(rate=1.5), "C": ClockSkew(rate=1.25)}
STORE = ClockSkew(rate=1.25, offset=-1000)

#: Each writer changes the same object, or copies its own object to it.
PROGRAMS: Mapping[str, Callable[[str], Program]] = {
    "create": lambda name: create("k"),
    "update": lambda name: update("k"),
    "copy": lambda name: copy(f"from {name}", "k"),
    "delete": lambda name: delete("k"),
    "read": lambda name: read("k"),
}


@frozen(kw_only=True)
class Case:
    """A world to explore.

    Attributes:
        mode: how conditions are enforced: by leases, on a store that ignores them; or by the store.
        calls: the call of each writer.
        faults: maximum number of faults in a run.
        least: minimum number of states; docs/verification.md has the numbers of a run.
        delays: lengths of delays and pauses, and times until duplicates arrive, in seconds.
        clocks: the clocks of the writers.
        store: the clock of the store.
        enforces_expiry: whether the store enforces expiries.
        restarts: whether a writer that crashes starts again.
        only: the faults that may happen; by default all except those that the protocol excludes.
        bandwidth: bytes per second of each writer's link, and of its settings.
    """

    mode: Literal["lease", "native"]
    calls: tuple[str, ...]
    faults: int = 1
    least: int = 0
    delays: tuple[float, ...] = DELAYS
    clocks: Mapping[str, ClockSkew] = field(factory=lambda: CLOCKS)
    store: ClockSkew = STORE
    enforces_expiry: bool = True
    restarts: bool = False
    only: tuple[Fault, ...] | None = None
    bandwidth: float = math.inf

    def __str__(self) -> str:
        unlike = ["unfenced"] * (not self.enforces_expiry) + ["restarts"] * self.restarts
        unlike += [f"{self.bandwidth:g}"] * (self.bandwidth < math.inf)
        return "-".join([self.mode, *self.calls, str(self.faults), *unlike])

    @property
    def excluded(self) -> Mapping[Fault, str]:
        """The faults that the protocol excludes here, and why. A test shows that each does harm."""
        reasons: dict[Fault, str] = {}
        deletes = "delete" in self.calls
        creates = not {"create", "copy"}.isdisjoint(self.calls)
        copies = "copy" in self.calls and "update" not in self.calls  # otherwise the target exists
        if self.mode == "lease" and deletes and creates:
            reasons[Fault.DUPLICATED] = (
                "A deletion that is performed again before its expiry, but after the release of its "
                "lease, removes an object that was created meanwhile."
            )
        one_lease = set(self.calls) <= {"create", "copy"} or set(self.calls) <= {"update", "delete"}
        deletes_alone = set(self.calls) == {"delete"}  # a late deletion finds no object
        if self.mode == "lease" and not self.enforces_expiry and one_lease and not deletes_alone:
            late = "A store that enforces no expiry performs a request at any later time."
            reasons[Fault.PAUSED] = reasons[Fault.DELAYED] = late
        if self.mode == "native" and deletes and creates:
            reasons[Fault.DUPLICATED] = (
                "A creation that was refused succeeds if it is performed again after the object was "
                "deleted."
            )
        if self.mode == "native" and (deletes or copies):
            reasons[Fault.REPEATED] = (
                "Copies and deletions have no nonce. If an intermediary sends one twice, the refusal of "
                "the second looks like that of a request that lost the race."
            )
        return reasons

    @property
    def possible(self) -> Iterable[Fault]:
        """The faults that may happen."""
        return self.only or [fault for fault in Fault if fault not in self.excluded]

    @property
    def world(self) -> World:
        """The world."""
        names = "ABC"[: len(self.calls)]
        programs = {name: PROGRAMS[call](name) for name, call in zip(names, self.calls, strict=True)}
        objects = {f"from {name}": f"source {name}" for name in names}
        if not {"update", "delete"}.isdisjoint(self.calls):
            objects["k"] = "seed"
        faults = Faults(rates=dict.fromkeys(self.possible, 0.01), delays=self.delays, most=self.faults)

        def simulation(choices: Choices) -> Simulation:
            return Simulation(choices, faults=faults)

        build = world_of(
            programs,
            simulation=simulation,
            clocks=self.clocks,
            store=self.store,
            mode=self.mode,
            enforces_expiry=self.enforces_expiry,
            objects=objects,
            restarts=self.restarts,
            settings=evolve(SMALL, min_bandwidth=self.bandwidth),
            bandwidths=dict.fromkeys(names, self.bandwidth),
        )
        return _ends_in_time(build, self) if self.faults < 2 else build


def _ends_in_time(build: World, case: Case) -> World:
    """Return the world with a judge that also checks the duration.

    A single fault delays no writer for longer than its own length and the time until the lease of a
    crashed writer can be taken over.
    """
    longest = max(case.delays) + SMALL.timeout * SMALL.max_clock_skew_rate
    longest += 2 * len("A:1") / case.bandwidth  # each writer sends its version once or twice

    def timed(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        simulation, judge = build(choices)

        def both() -> None:
            judge()
            assert simulation.now <= longest, f"it took until {simulation.now} s"

        return simulation, both

    return timed


def explored(case: Case) -> Exploration:
    """Explore a world and print its size. Check that the search is complete and no run failed."""
    begun = time.process_time()
    found = explore(case.world)
    print(
        f"\n{case.mode:7} {' × '.join(case.calls):26} {case.faults} faults: {found.states:9,} states"
        f" {found.runs:9,} runs {time.process_time() - begun:7.1f} s of CPU",
        end="",
    )
    worst = found.shortest
    assert worst is None, "\n".join((*worst.trace, str(worst.error)))
    assert found.complete
    assert found.states >= case.least
    return found


CALLS = ("create", "update", "copy", "delete")
PAIRS = tuple(itertools.combinations_with_replacement(CALLS, 2))

#: Pairs that represent the others: with one lease and with two leases, with nonces and without.
SOME = (("create", "create"), ("create", "delete"), ("update", "delete"), ("copy", "delete"))

#: Minimum number of states of a pair under leases with a single fault.
LEAST = {
    ("create", "update"): 8_000,
    ("update", "copy"): 8_000,
    ("create", "delete"): 8_000,
    ("copy", "delete"): 8_000,
}


def _pairs_under_leases() -> list[Any]:
    cases = [Case(mode="lease", calls=pair, least=LEAST.get(pair, 12_000)) for pair in PAIRS]
    return [with_all(case) if case.calls in SOME else in_campaigns(case) for case in cases]


@pytest.mark.parametrize("case", _pairs_under_leases(), ids=str)
def test_states_of_pairs_under_leases(case: Case) -> None:
    """Two writers with leases exclude one another, in any order, with any single fault."""
    explored(case)


def test_states_of_a_pair_under_leases_with_some_faults() -> None:
    """The same holds with a crash, a lost answer or one delay: the faults that need the lease most."""
    faults = (Fault.CRASHED, Fault.LOST_RESPONSE, Fault.DELAYED)
    explored(Case(mode="lease", calls=SOME[0], only=faults, delays=DELAYS[1:2], least=1_500))


@pytest.mark.parametrize("case", [Case(mode="native", calls=pair, least=200) for pair in PAIRS], ids=str)
def test_states_of_pairs_on_a_store_with_conditions(case: Case) -> None:
    """Two native writers exclude one another, in any order, with any single fault."""
    explored(case)


@pytest.mark.parametrize(
    "case",
    with_all_but(
        lambda case: case.mode == "native",
        [Case(mode=mode, calls=SOME[0], restarts=True) for mode in ("lease", "native")],
    ),
    ids=str,
)
def test_states_of_writers_that_restart(case: Case) -> None:
    """A writer that crashes and restarts does not write twice, and gets past its own lease."""
    explored(case)


@pytest.mark.all
@pytest.mark.parametrize(
    "case",
    [
        case if case.calls == SOME[0] else in_campaigns(case)
        for case in (Case(mode="lease", calls=pair, enforces_expiry=False) for pair in SOME[::2])
    ],
    ids=str,
)
def test_states_of_pairs_without_expiries(case: Case) -> None:
    """If the store enforces no expiry, leases hold as long as no request is late."""
    explored(case)


@pytest.mark.all
@pytest.mark.parametrize(
    "case",
    [
        Case(mode="lease", calls=SOME[0], bandwidth=8.0),
        in_campaigns(Case(mode="lease", calls=SOME[0], bandwidth=1.0)),
        in_campaigns(Case(mode="lease", calls=SOME[1], bandwidth=8.0)),
        Case(mode="lease", calls=SOME[1], bandwidth=1.0),
    ],
    ids=str,
)
def test_states_of_writers_on_slow_links(case: Case) -> None:
    """Three bytes take the whole time that is reserved for them, or are staged during the lease."""
    explored(case)


@pytest.mark.parametrize(
    "case",
    [
        with_all(Case(mode="lease", calls=("create",) * 3, faults=0, least=6_000)),
        *with_all_but(
            lambda case: case.calls[:2] in SOME[::3],
            [Case(mode="lease", calls=(*pair, "read"), faults=0, least=1_000) for pair in SOME],
        ),
        *(Case(mode="native", calls=(*pair, "read"), faults=0) for pair in PAIRS),
    ],
    ids=str,
)
def test_states_of_three_at_once(case: Case) -> None:
    """Three clients are correct in every order of their requests, without faults."""
    explored(case)


EXCLUDED = [
    evolve(case, only=(fault,))
    for pair in PAIRS
    for case in (
        Case(mode="lease", calls=pair),
        Case(mode="native", calls=pair),
        Case(mode="lease", calls=pair, enforces_expiry=False),
    )
    for fault in case.excluded
]


def _excluded() -> list[Any]:
    marked: list[Any] = []
    for case in EXCLUDED:
        if case.mode == "native":
            marked.append(case)
        elif Fault.PAUSED in case.possible:
            # These worlds have the most states.
            marked.append(with_all(case) if case.calls == SOME[0] else in_campaigns(case))
        else:
            marked.append(case if case.calls == SOME[0] else with_all(case))
    return marked


@pytest.mark.parametrize("case", _excluded(), ids=lambda case: f"{case}-{case.only[0].name}")
def test_each_excluded_fault_does_harm(case: Case) -> None:
    """The tests exclude only faults that break a guarantee."""
    worst = explore(case.world, most_violations=None).shortest
    assert worst is not None
    assert worst.faults == 1


# -- larger worlds -----------------------------------------------------------------------------------

#: The extremes that the skew rate allows, in both directions, and no skew.
SKEWS = [
    ({"A": ClockSkew(rate=a), "B": ClockSkew(rate=b)}, ClockSkew(rate=store, offset=5000))
    for a, b, store in [
        (1.0, 1.0, 1.0),
        (1.0, 1.5, 1.0),
        (1.0, 1.5, 1.5),
        (1.5, 1.0, 1.0),
        (1.5, 1.0, 1.5),
        (1.5, 1.5, 1.0),
        (1.0, 1.0, 1.5),
    ]
]
MANY_DELAYS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "case",
    [
        Case(mode="lease", calls=pair, delays=MANY_DELAYS, clocks=clocks, store=store)
        for pair in PAIRS
        for clocks, store in SKEWS
    ],
    ids=lambda case: "-".join(
        [str(case), *(f"{ticks.rate:g}" for ticks in (*case.clocks.values(), case.store))]
    ),
)
def test_states_of_pairs_on_skewed_clocks(case: Case) -> None:
    """Two writers exclude one another with extreme clock rates and delays of many lengths."""
    explored(case)


@pytest.mark.campaign
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize(
    "case",
    [
        *(Case(mode="native", calls=pair, faults=2, delays=MANY_DELAYS) for pair in PAIRS),
        *(Case(mode="native", calls=(call,) * 3) for call in CALLS),
        *(Case(mode=mode, calls=(*pair, "read")) for mode in ("native", "lease") for pair in PAIRS),
        *(
            Case(mode=mode, calls=pair, restarts=True, delays=MANY_DELAYS)
            for mode in ("native", "lease")
            for pair in PAIRS
        ),
        *(Case(mode="lease", calls=pair, enforces_expiry=False, delays=MANY_DELAYS) for pair in PAIRS),
        Case(mode="lease", calls=("create", "create"), faults=2, delays=(5.0,)),
        Case(mode="lease", calls=("create",) * 3, least=100_000),
    ],
    ids=str,
)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same holds with two faults, with three writers, or with a reader."""
    explored(case)
