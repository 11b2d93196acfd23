"""What the protocol rests on: a counter-example where an assumption is dropped, none where it is not.

The worlds are explored whole, with one kind of misfortune each. The table in docs/protocol.md,
"Assumptions and non-guarantees", names these tests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
from attrs import asdict, evolve

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore, LeaseSettings
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.stores.api import InFlight, Observation, PutResult
from commitlog.stores.memory import MemoryStore
from commitlog.tables.memory import MemoryTable
from commitlog.testing import Action, Outcome, RecordedStore, Recorder
from commitlog.testing.linearizability import NotLinearizable, check_linearizable
from commitlog.testing.recorded_store import VERSION
from commitlog.testing.sim import (
    Choices,
    Exploration,
    Fault,
    Faults,
    Forced,
    Node,
    Replayed,
    SimulatedStore,
    Simulation,
    explore,
)
from commitlog.urls import parse_table_url
from sim.leases.world import (
    SMALL,
    Client,
    CommitWorld,
    Program,
    Ticks,
    copy,
    create,
    delete,
    edit,
    in_turn,
    publish,
    read,
    remove,
    update,
)
from support.project import ROOT

#: Tests of what is said in the rows of others.
SHOWN_BESIDE = {
    "a_late_answer_is_believed_while_the_lease_is_still_one_s_own",
    "two_are_not_told_of_success_though_a_link_is_too_slow",
    "a_lost_answer_is_settled_after_the_body_can_have_arrived",
    "a_record_may_be_dropped_after_its_ttl",
    "a_write_that_is_repeated_on_the_way_is_recognised",
    "the_documented_table_names_these_tests",
}

#: Longer than a lease of `SMALL` (3 s), and than others wait for one (4.5 s).
LONG = 10.0

CREATORS: Mapping[str, Program] = {"A": create("k"), "B": create("k")}


def explored(
    programs: Mapping[str, Program],
    *faults: Fault,
    kind: Callable[..., CommitWorld] = CommitWorld,
    delays: tuple[float, ...] = (LONG,),
    most: int = 1,
    clocks: Mapping[str, Ticks] | None = None,
    **options: Any,
) -> Exploration:
    """Explore the world of these programs with at most so many faults of these kinds."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        wrong = Faults(rates=dict.fromkeys(faults, 0.01), delays=delays, most=most)
        nodes = {name: (clocks or {}).get(name, Ticks()) for name in programs}
        world = kind(Simulation(choices, faults=wrong), nodes=nodes, **options)
        for name, program in programs.items():
            world.start(name, program)
        return world.simulation, world.judge

    return explore(build)


def refuted(found: Exploration) -> bool:
    """Tell whether the checker refused a run; the world was explored whole if not."""
    assert found.complete or found.violations
    assert all(isinstance(violation.error, NotLinearizable) for violation in found.violations)
    return bool(found.violations)


# -- a request comes late ------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [Fault.DELAYED, Fault.PAUSED])
def test_a_late_request_needs_the_expiry(late: Fault) -> None:
    """A request was sent in time, or by a process that stood still after it had looked at its clock.

    It comes after the lease, over the work of the next holder, unless the store refuses it.
    """
    assert refuted(explored(CREATORS, late, fences=False))
    assert not refuted(explored(CREATORS, late))


class _SlowToApply(CommitWorld):
    """The store finds A's first write in time, takes it, and applies it long after."""

    def port(self, node: Node) -> SimulatedStore:
        return _TakenAndLeft(node, self.objects) if node.name == "A" else super().port(node)


class _TakenAndLeft(SimulatedStore):
    def put(self, path: str, body: Any, **options: Any) -> PutResult:
        return super().put(path, body, **{**options, "expiry": None})


def test_what_is_accepted_must_be_applied_in_time() -> None:
    """An expiry that is checked when a request comes in does not help against what is applied later."""
    assert refuted(explored(CREATORS, Fault.DELAYED, kind=_SlowToApply))


#: Of the words of these worlds, which have three bytes, none arrives within a lease of `SMALL`.
SLOW = 3 / LONG


def told_of_success(
    programs: Mapping[str, Program], *faults: Fault, **options: Any
) -> tuple[Exploration, int]:
    """Explore the world of these programs; return also the most creations that one run told of."""
    most = 0

    class Counting(CommitWorld):
        def judge(self) -> None:
            nonlocal most
            done = [call for call in self.history() if call.outcome is Outcome.DONE]
            most = max(most, sum(call.action is Action.CREATE for call in done))

    return explored(programs, *faults, kind=Counting, **options), most


def test_bodies_must_arrive_at_the_bandwidth_that_is_set() -> None:
    """The store checks the expiry when a request begins, and its body arrives after the lease."""
    slow = {"bandwidths": {"A": SLOW}}
    assert refuted(explored(CREATORS, **slow))
    assert not refuted(explored(CREATORS, **slow, settings=evolve(SMALL, min_bandwidth=SLOW)))
    # Three bytes take all of the time that is kept for them: an eighth of three seconds.
    least = {"settings": evolve(SMALL, min_bandwidth=8.0), "bandwidths": {"A": 8.0, "B": 8.0}}
    for fault in (Fault.DELAYED, Fault.PAUSED, Fault.LOST_RESPONSE):
        assert not refuted(explored(CREATORS, fault, delays=(0.5, 1.5, LONG), **least))


def test_a_lost_answer_is_settled_after_the_body_can_have_arrived() -> None:
    """A's request begins just before its expiry. Its body arrives after the expiry, within the reserve.

    A finds nothing in between. It must not release the lease then, for B would write, and A's body
    would come over B's object.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        late = Forced("A put k", Fault.DELAYED, 1, 1.9)
        world = CommitWorld(
            Simulation(choices, faults=Faults(forced=(late,)), patience=1.0),
            nodes={name: Ticks() for name in CREATORS},
            settings=evolve(SMALL, min_bandwidth=8.0, test_interval=0.2),
            backoff=lambda _: Backoff(tries=1),
            bandwidths={"A": 8.0},
        )
        for name, program in CREATORS.items():
            world.start(name, program)
        return world.simulation, world.judge

    found = explore(build)
    assert found.complete
    assert not refuted(found)


@pytest.mark.all
def test_two_are_not_told_of_success_though_a_link_is_too_slow() -> None:
    """What a late answer tells may be of a write over that of the next holder."""
    for fault in (Fault.DELAYED, Fault.PAUSED, Fault.LOST_RESPONSE, Fault.CRASHED):
        for bandwidth in (SLOW, 2 * SLOW):
            found, most = told_of_success(
                CREATORS, fault, delays=(1.0, LONG), bandwidths={"A": bandwidth}
            )
            assert found.complete
            assert most == 1


def test_a_late_answer_is_believed_while_the_lease_is_still_one_s_own() -> None:
    """Without a rival, a link that is too slow does no harm, and says so."""
    found, most = told_of_success({"A": create("k")}, bandwidths={"A": SLOW})
    assert found.complete
    assert most == 1


# -- clocks --------------------------------------------------------------------------------------------


def suspended(rate: float, *, fences: bool) -> bool:
    """Let A stand still before any one reading of its clock, which has gone at `rate` meanwhile.

    Returns whether that led to a history that is refused, wherever it was.
    """
    wrong = False
    for nth in range(1, 100):
        faults = Faults(forced=(Forced("A clock", Fault.PAUSED, nth=nth, seconds=LONG),))
        with Simulation(Replayed(()), faults=faults) as simulation:
            nodes = {"A": Ticks(rate=rate), "B": Ticks()}
            world = CommitWorld(simulation, nodes=nodes, fences=fences)
            world.start("A", create("k"))
            world.start("B", create("k"))
            simulation.run()
            if not simulation.injected:
                return wrong
            try:
                world.judge()
            except NotLinearizable:
                wrong = True
    raise AssertionError("A looks at its clock a hundred times")


def test_a_holder_s_clock_must_not_stand_still() -> None:
    """As that of a suspended machine does: the lease seems to go on. The expiry guards that case."""
    assert suspended(0.01, fences=False)
    assert not suspended(0.01, fences=True)
    assert not suspended(1.0, fences=False)


def test_a_waiter_s_clock_must_not_run_too_fast() -> None:
    """It takes over while the holder may still write. No expiry helps, as that is within the lease."""
    hasty = {"B": Ticks(rate=20.0)}
    assert refuted(explored(CREATORS, Fault.DELAYED, delays=(1.0,), clocks=hasty))
    fast = {"B": Ticks(rate=1.5)}
    assert not refuted(explored(CREATORS, Fault.DELAYED, delays=(1.0,), clocks=fast))


def test_the_store_s_clock_must_not_be_too_slow() -> None:
    """The expiry is as late as its clock."""
    assert refuted(explored(CREATORS, Fault.DELAYED, store=Ticks(rate=0.1)))
    assert not refuted(explored(CREATORS, Fault.DELAYED, store=Ticks(rate=1 / 1.5)))


class _Ahead(CommitWorld):
    """HEAD is answered by a front-end whose clock is ahead of the one that checks expiries."""

    ahead = 20

    def port(self, node: Node) -> SimulatedStore:
        return _Dated(node, self.objects, ahead=self.ahead)


class _Behind(_Ahead):
    """Or behind it."""

    ahead = -20


class _Dated(SimulatedStore):
    def __init__(self, *args: Any, ahead: int) -> None:
        super().__init__(*args)
        self._ahead = ahead

    def begin_head(self, path: str) -> InFlight[Observation]:
        pending = super().begin_head(path)

        def wait() -> Observation:
            seen = pending()
            assert seen.store_time is not None
            return evolve(seen, store_time=seen.store_time + self._ahead)

        return wait


def test_expiries_must_be_checked_by_the_clock_that_dates_answers() -> None:
    """An expiry by a clock that is ahead comes too late. One that is behind stops all work."""
    assert refuted(explored(CREATORS, Fault.DELAYED, kind=_Ahead))
    assert not refuted(explored({"A": create("k")}, kind=_Behind))


# -- the table -----------------------------------------------------------------------------------------


def rest(client: Client) -> None:
    """Let some time pass."""
    client.world.nodes[client.name].clock.sleep(0.5)


#: B is done while A's request for the lease is under way.
OVERTAKING = {"A": create("k"), "B": in_turn(create("k"), rest)}
FORGOTTEN = (Fault.DELAYED, Fault.SWEPT)


class _Unchecked(LeaseSettings):
    """Settings that nobody checks."""

    def __attrs_post_init__(self) -> None:
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"table": Ticks(offset=60.0)},
        {"settings": _Unchecked(**{**asdict(SMALL), "ttl": 0})},
    ],
    ids=["clocks", "ttl"],
)
def test_a_record_must_not_be_dropped_while_somebody_counts_on_it(options: dict[str, Any]) -> None:
    """A writer that saw no object takes the lease for free if the record of the one between is gone.

    The table's clock must not be ahead of a writer's by more than the TTL has to spare, nor the TTL
    be short. No expiry helps: the lease is held in good faith.
    """
    found = explored(OVERTAKING, *FORGOTTEN, delays=(1.0,), most=2, **options)
    assert refuted(found)


def test_a_record_may_be_dropped_after_its_ttl() -> None:
    """As long as clocks and TTL are within their bounds."""
    assert not refuted(explored(OVERTAKING, *FORGOTTEN, delays=(1.0,), most=2))


class _TwoTables(CommitWorld):
    """Each node has a table of its own, as in two regions."""

    def client(self, name: str) -> Client:
        clock = self.simulation.server_clock()
        self.items = MemoryTable(parse_table_url("memory://"), LEASE_SCHEMA, clock=clock)
        self.items.create()
        return super().client(name)


def test_there_must_be_one_table() -> None:
    """Holders of leases on the same object in two tables know nothing of one another."""
    assert refuted(explored(CREATORS, kind=_TwoTables))
    assert not refuted(explored(CREATORS))


# -- the store and the way there -----------------------------------------------------------------------


class _StaleForB(CommitWorld):
    """B looks at a copy of the store that has heard of nothing yet."""

    def port(self, node: Node) -> SimulatedStore:
        return _Stale(node, self.objects) if node.name == "B" else super().port(node)


class _Stale(SimulatedStore):
    def begin_head(self, path: str) -> InFlight[Observation]:
        pending = super().begin_head(path)
        return lambda: evolve(pending(), info=None)


def test_reads_must_be_consistent() -> None:
    """Under the lease it is a HEAD that tells whether the condition holds."""
    assert refuted(explored(CREATORS, kind=_StaleForB))


class _TrustsAny404(CommitWorld):
    """Clients that take any 404 for the store's."""

    def port(self, node: Node) -> SimulatedStore:
        return SimulatedStore(node, self.objects, trusts_any_404=True)


def test_a_404_must_be_the_store_s() -> None:
    """An ingress that does not find its route says of an object that is there that it is not."""
    programs = {"A": create("k"), "B": read("k")}
    objects = {"k": "seed"}
    assert refuted(explored(programs, Fault.MISROUTED, kind=_TrustsAny404, objects=objects))
    assert not refuted(explored(programs, Fault.THROTTLED, objects=objects))


def test_nothing_must_be_performed_again_after_its_answer() -> None:
    """By lease, it falls on the work of the next holder, until its expiry."""
    programs = {"A": create("k"), "B": edit("k")}
    assert refuted(explored(programs, Fault.DUPLICATED, delays=(1.0,)))
    assert not refuted(explored(programs, Fault.DUPLICATED))
    assert refuted(explored(programs, Fault.DUPLICATED, fences=False))


def test_a_store_with_conditions_performs_no_creation_again_but_after_a_removal() -> None:
    """Natively what is performed again meets its condition again."""
    programs = {"A": create("k"), "B": edit("k")}
    assert not refuted(explored(programs, Fault.DUPLICATED, mode="native"))
    programs = {"A": create("k"), "B": remove("k")}
    assert refuted(explored(programs, Fault.DUPLICATED, mode="native"))


@pytest.mark.parametrize("mode", ["lease", "native"])
def test_a_creation_that_is_tried_again_may_undo_a_removal(mode: Literal["lease", "native"]) -> None:
    """Absence does not tell that there was no object in between."""
    programs = {"A": create("k"), "B": remove("k")}
    assert refuted(explored(programs, Fault.LOST_RESPONSE, mode=mode))


UPDATE = update("k")
WRITES = (create("k"), publish("k"), UPDATE)


@pytest.mark.parametrize("mode", ["lease", "native"])
@pytest.mark.parametrize("program", WRITES, ids=["create", "publish", "update"])
def test_a_write_that_is_repeated_on_the_way_is_recognised(
    program: Program, mode: Literal["lease", "native"]
) -> None:
    """By its nonce, if nobody has written meanwhile."""
    objects = {"k": "seed"} if program is UPDATE else {}
    found = explored({"A": program}, Fault.REPEATED, mode=mode, objects=objects)
    assert not refuted(found)


@pytest.mark.parametrize(
    ("first", "second"),
    [(copy("source", "k"), None), (delete("source"), None), (create("k"), edit("k"))],
    ids=["copy", "delete", "overwritten"],
)
def test_natively_nothing_must_be_repeated_on_the_way(first: Program, second: Program | None) -> None:
    """The refusal of the second one is taken for that of the first. By lease it is all the same."""
    programs = {"A": first} if second is None else {"A": first, "B": second}
    objects = {"source": "seed"}
    assert refuted(explored(programs, Fault.REPEATED, mode="native", objects=objects))
    assert not refuted(explored(programs, Fault.REPEATED, objects=objects))


# -- other writers -------------------------------------------------------------------------------------


def plain(client: Client) -> None:
    """Read an object, and put another in its place, without a condition."""
    seen = client.store.get("k")
    word = client.word()
    recorder = client.world.recorder
    number = recorder.begin(
        client.name, Action.REPLACE, "k", expected=seen.metadata[VERSION], version=word, name="put"
    )
    client.store.store.put("k", word.encode(), metadata={VERSION: word})
    recorder.end(number, Outcome.DONE)


@pytest.mark.parametrize("mode", ["lease", "native"])
def test_all_writers_must_say_their_condition(mode: Literal["lease", "native"]) -> None:
    """A plain write is kept out by nobody, in whichever way the others go."""
    programs = {"A": update("k"), "B": plain}
    assert refuted(explored(programs, mode=mode, objects={"k": "seed"}))


class _BothWays(CommitWorld):
    """A takes leases, and B leaves the condition to the store."""

    def client(self, name: str) -> Client:
        self._mode = "native" if name == "B" else "lease"
        return super().client(name)


def test_all_writers_must_go_the_same_way() -> None:
    """The holder of a lease writes over what the store has let another create."""
    assert refuted(explored(CREATORS, kind=_BothWays, conditions=True))


class _Digests(MemoryStore):
    """Its etags are digests of the content: what is before the slash, for the rest names the version."""

    def _set(self, key: str, data: bytes, metadata: dict[str, str]) -> PutResult:
        self._word = lambda: hashlib.md5(data.split(b"/")[0]).hexdigest()
        return super()._set(key, data, metadata)


def test_an_etag_that_is_a_digest_names_a_content() -> None:
    """An object that has changed from A to B and back to A counts as one that has not changed."""
    recorder = Recorder()
    store = RecordedStore(ConditionalStore(_Digests()), recorder, client="one for all")
    first = store.put_if_absent("k", "A/1").etag
    second = store.put_if_match("k", "B/2", etag=first).etag
    store.put_if_match("k", "A/3", etag=second)
    store.put_if_match("k", "C/4", etag=first, expected="A/1")
    with pytest.raises(NotLinearizable):
        check_linearizable(recorder.history())


def test_the_documented_table_names_these_tests() -> None:
    """And only these: what the protocol rests on is shown, and what is shown is said."""
    text = (ROOT / "docs" / "protocol.md").read_text()
    named = set(re.findall(r"\| `(\w+)` \|$", text.partition("## Assumptions")[2], re.MULTILINE))
    ours = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert named == ours - SHOWN_BESIDE
