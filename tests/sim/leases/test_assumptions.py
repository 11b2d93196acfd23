"""The assumptions of the protocol: a counterexample without each assumption, and none with it.

The worlds are explored exhaustively, with one kind of fault each. The table in
docs/protocol.md, "Assumptions and non-guarantees", names these tests.
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
from sim.leases.actions import (
    Client,
    Program,
    copy,
    create,
    delete,
    edit,
    publish,
    read,
    remove,
    update,
)
from sim.leases.world import SMALL, CommitWorld
from sim.nodes import ClockSkew, in_sequence
from support.project import ROOT

#: Tests that belong to rows of other tests.
UNLISTED = {
    "a_late_answer_counts_while_the_writer_still_holds_the_lease",
    "a_link_that_is_too_slow_does_not_give_two_winners",
    "a_lost_answer_is_resolved_after_the_body_can_have_arrived",
    "a_record_may_be_dropped_after_its_ttl",
    "a_write_that_an_intermediary_repeats_is_recognised",
    "the_documented_table_names_these_tests",
}

#: Longer than a lease of `SMALL` (3 s), and than the wait for one (4.5 s).
LONG = 10.0

CREATORS: Mapping[str, Program] = {"A": create("k"), "B": create("k")}


def explored(
    programs: Mapping[str, Program],
    *faults: Fault,
    kind: Callable[..., CommitWorld] = CommitWorld,
    delays: tuple[float, ...] = (LONG,),
    most: int = 1,
    clocks: Mapping[str, ClockSkew] | None = None,
    **options: Any,
) -> Exploration:
    """Explore the world of these programs with at most `most` faults of these kinds."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        wrong = Faults(rates=dict.fromkeys(faults, 0.01), delays=delays, most=most)
        nodes = {name: (clocks or {}).get(name, ClockSkew()) for name in programs}
        world = kind(Simulation(choices, faults=wrong), nodes=nodes, **options)
        for name, program in programs.items():
            world.start(name, program)
        return world.simulation, world.judge

    return explore(build)


def refuted(found: Exploration) -> bool:
    """Return whether the judge rejected a run; if not, check that the search was complete."""
    assert found.complete or found.violations
    assert all(isinstance(violation.error, NotLinearizable) for violation in found.violations)
    return bool(found.violations)


# -- late requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [Fault.DELAYED, Fault.PAUSED])
def test_a_late_request_needs_the_expiry(late: Fault) -> None:
    """A request arrives after the lease, because it was delayed or its sender was paused.

    Unless the store refuses it, it overwrites the object of the next holder.
    """
    assert refuted(explored(CREATORS, late, enforces_expiry=False))
    assert not refuted(explored(CREATORS, late))


class _SlowToApply(CommitWorld):
    """A world whose store accepts A's first write in time, but applies it much later."""

    def port(self, node: Node) -> SimulatedStore:
        return _AppliesLate(node, self.objects) if node.name == "A" else super().port(node)


class _AppliesLate(SimulatedStore):
    def put(self, path: str, body: Any, **options: Any) -> PutResult:
        return super().put(path, body, **{**options, "expiry": None})


def test_an_accepted_request_must_be_applied_in_time() -> None:
    """An expiry that is checked on arrival does not protect against a request that is applied later."""
    assert refuted(explored(CREATORS, Fault.DELAYED, kind=_SlowToApply))


#: Bytes per second. The bodies of these worlds have three bytes: none arrives within a lease of `SMALL`.
SLOW = 3 / LONG


def count_winners(
    programs: Mapping[str, Program], *faults: Fault, **options: Any
) -> tuple[Exploration, int]:
    """Explore the world of these programs; return also the maximum number of winners in a run."""
    most = 0

    class Counting(CommitWorld):
        def judge(self) -> None:
            nonlocal most
            done = [call for call in self.history() if call.outcome is Outcome.DONE]
            most = max(most, sum(call.action is Action.CREATE for call in done))

    return explored(programs, *faults, kind=Counting, **options), most


def test_bodies_must_arrive_at_the_configured_bandwidth() -> None:
    """The store checks the expiry when a request begins. Its body may arrive after the lease."""
    slow = {"bandwidths": {"A": SLOW}}
    assert refuted(explored(CREATORS, **slow))
    assert not refuted(explored(CREATORS, **slow, settings=evolve(SMALL, min_bandwidth=SLOW)))
    # Three bytes take the whole time that is reserved for them: an eighth of three seconds.
    least = {"settings": evolve(SMALL, min_bandwidth=8.0), "bandwidths": {"A": 8.0, "B": 8.0}}
    for fault in (Fault.DELAYED, Fault.PAUSED, Fault.LOST_RESPONSE):
        assert not refuted(explored(CREATORS, fault, delays=(0.5, 1.5, LONG), **least))


def test_a_lost_answer_is_resolved_after_the_body_can_have_arrived() -> None:
    """A's request begins just before its expiry. Its body arrives after the expiry, within the reserve.

    A finds no object in between. It must not release the lease then: B would write, and A's body would
    overwrite B's object.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        late = Forced("A put k", Fault.DELAYED, 1, 1.9)
        world = CommitWorld(
            Simulation(choices, faults=Faults(forced=(late,)), patience=1.0),
            nodes={name: ClockSkew() for name in CREATORS},
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
def test_a_link_that_is_too_slow_does_not_give_two_winners() -> None:
    """A late write may overwrite the object of the next holder, so its writer gets no success."""
    for fault in (Fault.DELAYED, Fault.PAUSED, Fault.LOST_RESPONSE, Fault.CRASHED):
        for bandwidth in (SLOW, 2 * SLOW):
            found, most = count_winners(CREATORS, fault, delays=(1.0, LONG), bandwidths={"A": bandwidth})
            assert found.complete
            assert most == 1


def test_a_late_answer_counts_while_the_writer_still_holds_the_lease() -> None:
    """Without another writer, a link that is too slow does no harm, and the write succeeds."""
    found, most = count_winners({"A": create("k")}, bandwidths={"A": SLOW})
    assert found.complete
    assert most == 1


# -- clocks --------------------------------------------------------------------------------------------


def suspended(rate: float, *, enforces_expiry: bool) -> bool:
    """Make a run for each reading of A's clock: pause A before it, with its clock running at `rate`.

    Return whether a run had a history that is not linearizable.
    """
    wrong = False
    for nth in range(1, 100):
        faults = Faults(forced=(Forced("A clock", Fault.PAUSED, nth=nth, seconds=LONG),))
        with Simulation(Replayed(()), faults=faults) as simulation:
            nodes = {"A": ClockSkew(rate=rate), "B": ClockSkew()}
            world = CommitWorld(simulation, nodes=nodes, enforces_expiry=enforces_expiry)
            world.start("A", create("k"))
            world.start("B", create("k"))
            simulation.run()
            if not simulation.injected:
                return wrong
            try:
                world.judge()
            except NotLinearizable:
                wrong = True
    raise AssertionError("A reads its clock a hundred times")


def test_the_clock_of_a_holder_must_not_stop() -> None:
    """If the clock stops, as on a suspended machine, the lease seems to continue. The expiry helps."""
    assert suspended(0.01, enforces_expiry=False)
    assert not suspended(0.01, enforces_expiry=True)
    assert not suspended(1.0, enforces_expiry=False)


def test_the_clock_of_a_waiter_must_not_run_too_fast() -> None:
    """A fast waiter takes over while the holder may still write.

    The expiry does not help, because the lease has not ended.
    """
    hasty = {"B": ClockSkew(rate=20.0)}
    assert refuted(explored(CREATORS, Fault.DELAYED, delays=(1.0,), clocks=hasty))
    fast = {"B": ClockSkew(rate=1.5)}
    assert not refuted(explored(CREATORS, Fault.DELAYED, delays=(1.0,), clocks=fast))


def test_the_clock_of_the_store_must_not_run_too_slowly() -> None:
    """A slow clock delays the expiry."""
    assert refuted(explored(CREATORS, Fault.DELAYED, store=ClockSkew(rate=0.1)))
    assert not refuted(explored(CREATORS, Fault.DELAYED, store=ClockSkew(rate=1 / 1.5)))


class _Ahead(CommitWorld):
    """A world whose HEAD has the time of a clock that is ahead of the one that checks expiries."""

    ahead = 20

    def port(self, node: Node) -> SimulatedStore:
        return _Dated(node, self.objects, ahead=self.ahead)


class _Behind(_Ahead):
    """A world whose HEAD has the time of a clock that is behind."""

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
    """With a clock that is ahead, an expiry is too late. With one that is behind, no write succeeds."""
    assert refuted(explored(CREATORS, Fault.DELAYED, kind=_Ahead))
    assert not refuted(explored({"A": create("k")}, kind=_Behind))


# -- the table -----------------------------------------------------------------------------------------


def rest(client: Client) -> None:
    """Wait for half a second."""
    client.world.nodes[client.name].clock.sleep(0.5)


#: B has finished while A's request for the lease is in flight.
OVERTAKING = {"A": create("k"), "B": in_sequence(create("k"), rest)}
FORGOTTEN = (Fault.DELAYED, Fault.SWEPT)


class _Unchecked(LeaseSettings):
    """Settings without validation."""

    def __attrs_post_init__(self) -> None:
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"table": ClockSkew(offset=60.0)},
        {"settings": _Unchecked(**{**asdict(SMALL), "ttl": 0})},
    ],
    ids=["clocks", "ttl"],
)
def test_a_record_must_not_be_dropped_while_it_is_needed(options: dict[str, Any]) -> None:
    """A writer that saw no object finds no record of a writer that finished meanwhile.

    The table's clock must not be ahead of a writer's by more than the margin of the TTL, and the TTL
    must not be too short. The expiry does not help: both writers hold a valid lease.
    """
    found = explored(OVERTAKING, *FORGOTTEN, delays=(1.0,), most=2, **options)
    assert refuted(found)


def test_a_record_may_be_dropped_after_its_ttl() -> None:
    """A dropped record does no harm if the clocks and the TTL are within their bounds."""
    assert not refuted(explored(OVERTAKING, *FORGOTTEN, delays=(1.0,), most=2))


class _TwoTables(CommitWorld):
    """A world whose nodes have separate tables, as in two regions."""

    def client(self, name: str) -> Client:
        clock = self.simulation.server_clock()
        self.items = MemoryTable(parse_table_url("memory://"), LEASE_SCHEMA, clock=clock)
        self.items.create()
        return super().client(name)


def test_all_writers_must_use_one_table() -> None:
    """Leases in two tables do not exclude one another."""
    assert refuted(explored(CREATORS, kind=_TwoTables))
    assert not refuted(explored(CREATORS))


# -- the store and the network -------------------------------------------------------------------------


class _StaleForB(CommitWorld):
    """A world in which B reads a stale copy of the store."""

    def port(self, node: Node) -> SimulatedStore:
        return _Stale(node, self.objects) if node.name == "B" else super().port(node)


class _Stale(SimulatedStore):
    def begin_head(self, path: str) -> InFlight[Observation]:
        pending = super().begin_head(path)
        return lambda: evolve(pending(), info=None)


def test_reads_must_be_consistent() -> None:
    """Under a lease, a HEAD shows whether the condition holds."""
    assert refuted(explored(CREATORS, kind=_StaleForB))


class _TrustsAny404(CommitWorld):
    """A world whose clients trust any 404."""

    def port(self, node: Node) -> SimulatedStore:
        return SimulatedStore(node, self.objects, trusts_any_404=True)


def test_a_404_must_come_from_the_store() -> None:
    """An ingress without a route answers 404 for an object that exists."""
    programs = {"A": create("k"), "B": read("k")}
    objects = {"k": "seed"}
    assert refuted(explored(programs, Fault.MISROUTED, kind=_TrustsAny404, objects=objects))
    assert not refuted(explored(programs, Fault.THROTTLED, objects=objects))


def test_no_request_must_be_performed_again_after_its_answer() -> None:
    """With leases, a repeated request overwrites the object of the next holder, until its expiry."""
    programs = {"A": create("k"), "B": edit("k")}
    assert refuted(explored(programs, Fault.DUPLICATED, delays=(1.0,)))
    assert not refuted(explored(programs, Fault.DUPLICATED))
    assert refuted(explored(programs, Fault.DUPLICATED, enforces_expiry=False))


def test_a_store_with_conditions_repeats_a_creation_only_after_a_removal() -> None:
    """A request that is performed again has the same condition again."""
    programs = {"A": create("k"), "B": edit("k")}
    assert not refuted(explored(programs, Fault.DUPLICATED, mode="native"))
    programs = {"A": create("k"), "B": remove("k")}
    assert refuted(explored(programs, Fault.DUPLICATED, mode="native"))


@pytest.mark.parametrize("mode", ["lease", "native"])
def test_a_retried_creation_may_undo_a_removal(mode: Literal["lease", "native"]) -> None:
    """A client finds no object after a lost answer. Its object may have existed and been removed."""
    programs = {"A": create("k"), "B": remove("k")}
    assert refuted(explored(programs, Fault.LOST_RESPONSE, mode=mode))


UPDATE = update("k")
WRITES = (create("k"), publish("k"), UPDATE)


@pytest.mark.parametrize("mode", ["lease", "native"])
@pytest.mark.parametrize("program", WRITES, ids=["create", "publish", "update"])
def test_a_write_that_an_intermediary_repeats_is_recognised(
    program: Program, mode: Literal["lease", "native"]
) -> None:
    """The nonce of the object shows it, if no other client has written meanwhile."""
    objects = {"k": "seed"} if program is UPDATE else {}
    found = explored({"A": program}, Fault.REPEATED, mode=mode, objects=objects)
    assert not refuted(found)


@pytest.mark.parametrize(
    ("first", "second"),
    [(copy("source", "k"), None), (delete("source"), None), (create("k"), edit("k"))],
    ids=["copy", "delete", "overwritten"],
)
def test_intermediaries_must_not_repeat_native_requests(first: Program, second: Program | None) -> None:
    """The client takes the refusal of the second request for that of the first. Leases prevent this."""
    programs = {"A": first} if second is None else {"A": first, "B": second}
    objects = {"source": "seed"}
    assert refuted(explored(programs, Fault.REPEATED, mode="native", objects=objects))
    assert not refuted(explored(programs, Fault.REPEATED, objects=objects))


# -- other writers -------------------------------------------------------------------------------------


def plain(client: Client) -> None:
    """Read an object and replace it without a condition."""
    seen = client.store.get("k")
    version = client.new_version()
    recorder = client.world.recorder
    number = recorder.begin(
        client.name, Action.REPLACE, "k", expected=seen.metadata[VERSION], version=version, name="put"
    )
    client.store.unrecorded.put("k", version.encode(), metadata={VERSION: version})
    recorder.end(number, Outcome.DONE)


@pytest.mark.parametrize("mode", ["lease", "native"])
def test_all_writers_must_use_conditions(mode: Literal["lease", "native"]) -> None:
    """Neither kind of enforcement stops a plain write."""
    programs = {"A": update("k"), "B": plain}
    assert refuted(explored(programs, mode=mode, objects={"k": "seed"}))


class _MixedEnforcement(CommitWorld):
    """A world in which A uses leases, and B uses the conditions of the store."""

    def client(self, name: str) -> Client:
        self._mode = "native" if name == "B" else "lease"
        return super().client(name)


def test_all_writers_must_use_the_same_enforcement() -> None:
    """The holder of a lease overwrites an object that another client created with a condition."""
    assert refuted(explored(CREATORS, kind=_MixedEnforcement, conditions=True))


class _Digests(MemoryStore):
    """A store whose etags are digests of the content before the slash; the rest is the version."""

    def _set(self, key: str, data: bytes, metadata: dict[str, str]) -> PutResult:
        self._word = lambda: hashlib.md5(data.split(b"/")[0]).hexdigest()
        return super()._set(key, data, metadata)


def test_an_etag_that_is_a_digest_identifies_only_the_content() -> None:
    """An object that changed from A to B and back to A counts as unchanged."""
    recorder = Recorder()
    store = RecordedStore(ConditionalStore(_Digests()), recorder, client="one for all")
    first = store.put_if_absent("k", "A/1").etag
    second = store.put_if_match("k", "B/2", etag=first).etag
    store.put_if_match("k", "A/3", etag=second)
    store.put_if_match("k", "C/4", etag=first, expected="A/1")
    with pytest.raises(NotLinearizable):
        check_linearizable(recorder.history())


def test_the_documented_table_names_these_tests() -> None:
    """The table of assumptions lists all of these tests, and no others."""
    text = (ROOT / "docs" / "protocol.md").read_text()
    named = set(re.findall(r"\| `(\w+)` \|$", text.partition("## Assumptions")[2], re.MULTILINE))
    ours = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert named == ours - UNLISTED
