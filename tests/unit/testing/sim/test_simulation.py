"""The simulator: its runs are reproducible bit for bit, and every fault does what its name says."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commitlog.commit import LeaseSettings
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.stores.api import IfAbsent, ObjectStore, RequestExpiry
from commitlog.stores.local.store import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Absent, ConditionFailed, Equals, Key
from commitlog.tables.memory import MemoryTable
from commitlog.testing import check_object_store, check_table
from commitlog.testing.sim import (
    EPOCH,
    Choices,
    Crashed,
    Fault,
    Faults,
    Forced,
    Recording,
    Replayed,
    Seeded,
    SimulatedStore,
    SimulatedTable,
    Simulation,
    Stuck,
    explore,
    has_expired_items,
    store_state,
)
from commitlog.urls import parse_table_url
from sim.leases.actions import (
    copy,
    create,
    delete,
    edit,
    publish,
    read,
    remove,
    rename,
    update,
)
from sim.leases.world import CommitWorld
from sim.nodes import ClockSkew, in_sequence, seeded_backoff
from support.project import environment

# -- one run is one trace --------------------------------------------------------------------------


def everything(choices: Choices) -> list[str]:
    """Return the trace of a run with nearly all operations and faults."""
    faults = Faults(rates=dict.fromkeys(Fault, 0.02), delays=(0.5, 2, 5, 10), until=60)
    simulation = Simulation(choices, faults=faults, latencies=(0.01, 0.05, 0.2))
    world = CommitWorld(
        simulation,
        nodes={
            name: ClockSkew(rate=1 + number / 10, offset=number) for number, name in enumerate("ABC")
        },
        objects={"k": "seed", "s": "copied", "r": "renamed"},
        backoff=seeded_backoff(1),
        settings=LeaseSettings(timeout=20, max_clock_skew_rate=1.5, ttl=60, test_interval=1),
    )
    world.start("A", in_sequence(delete("k"), create("k"), edit("k")), restart=edit("k"))
    world.start("B", in_sequence(copy("s", "k"), remove("k"), publish("k")), restart=read("k"))
    world.start("C", in_sequence(update("k"), rename("r", "k"), edit("k")), after=1)
    with simulation:
        simulation.run()
    return simulation.trace


SEEDS = range(12)


def test_one_seed_is_one_trace() -> None:
    """The same seed gives the same trace, bit for bit, and another seed another trace."""
    traces = [everything(Seeded(seed)) for seed in SEEDS]
    assert traces == [everything(Seeded(seed)) for seed in SEEDS]
    assert len({tuple(trace) for trace in traces}) == len(SEEDS)


def test_traces_do_not_depend_on_the_process() -> None:
    """A process with other string hashes gives the same traces."""
    script = (
        "import sys\n"
        "from unit.testing.sim.test_simulation import all_traces\n"
        "sys.stdout.write(all_traces())"
    )
    for hash_seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", script],
            env=environment(PYTHONHASHSEED=hash_seed, PYTHONUTF8="1"),
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert found.stdout.decode() == all_traces()


def all_traces() -> str:
    """Return the traces of all seeds, which another process must reproduce."""
    return "\n\n".join("\n".join(everything(Seeded(seed))) for seed in SEEDS)


def test_a_recording_can_be_replayed() -> None:
    """Replaying the picks of a seeded run gives its trace. After the last pick follow ordinary ones."""
    recording = Recording(Seeded(3))
    trace = everything(recording)
    replayed = Replayed(recording.indexes)
    assert everything(replayed) == trace
    assert replayed.exhausted
    first_half = Replayed(recording.indexes[: len(recording.indexes) // 2])
    assert everything(first_half)[:20] == trace[:20]
    assert first_half.exhausted


def test_a_pick_that_is_out_of_range_is_the_last_one() -> None:
    """So a replay still works after the code has changed."""
    assert Replayed((7,)).pick("", [1.0, 1.0]) == 1


def test_picks_are_named() -> None:
    """A recording names each decision for people."""
    recording = Recording(Replayed((1,)))
    with Simulation(recording, latencies=(1.0, 2.0)) as simulation:
        simulation.latency("A")
    [pick] = recording.picks
    assert (pick.what, pick.index, pick.of) == ("A latency", 1, 2)


# -- a bench: one node, one store, one table -------------------------------------------------------


class Bench:
    """One node with its ports, and the servers behind them; faults happen where they are forced."""

    def __init__(self, *forced: Forced, rate: float = 1.0, offset: float = 0.0, **options: Any) -> None:
        self.forced = forced
        self.simulation = Simulation(Replayed(()), faults=Faults(forced=forced), **options)
        self.objects = MemoryStore(clock=self.simulation.server_clock(), new_id=self.simulation.new_id)
        clock = self.simulation.server_clock()
        self.items = MemoryTable(parse_table_url("memory://"), LEASE_SCHEMA, clock=clock)
        self.items.create()
        self.simulation.add_sweeper(has_expired_items(self.items, clock), self.items.remove_expired)
        self.node = self.simulation.node("A", rate=rate, offset=offset)
        self.store = SimulatedStore(self.node, self.objects)
        self.table = SimulatedTable(self.node, self.items)

    def run(self, program: Callable[[], object]) -> Any:
        """Run a program until the world ends; return its result, or the error that it raised."""
        results: list[object] = []

        def attempt() -> None:
            try:
                results.append(program())
            except CommitError as error:
                results.append(error)

        self.node.start(attempt)
        with self.simulation:
            self.simulation.run()
        ordered = Counter(forced.fault for forced in self.forced)
        assert self.simulation.injected == ordered, "the forced faults did not happen, or more did"
        return results[0] if results else None

    def there(self, path: str = "k") -> bytes | None:
        """Return the body that the store really holds."""
        return None if self.objects.begin_head(path)().info is None else self.objects.get(path).data


def item(**attributes: str | int) -> dict[str, str | int]:
    """Return an item of the bench's table."""
    return {"path": "k", "etag": "*", **attributes}


# -- each fault ------------------------------------------------------------------------------------


def test_lost_request() -> None:
    """A lost request changes nothing, and its sender gives up with an unknown outcome."""
    bench = Bench(Forced("A put k", Fault.LOST_REQUEST))
    assert isinstance(bench.run(lambda: bench.store.put("k", b"1")), OutcomeUnknown)
    assert (bench.there(), bench.simulation.now) == (None, bench.simulation.patience)


def test_lost_read() -> None:
    """A lost read fails as unavailable, because it has no outcome that matters."""
    bench = Bench(Forced("A get k", Fault.LOST_REQUEST))
    bench.objects.put("k", b"1")
    assert isinstance(bench.run(lambda: bench.store.get("k")), Unavailable)


def test_lost_response() -> None:
    """A request whose answer is lost takes effect, and its sender gives up with an unknown outcome."""
    bench = Bench(Forced("A put k", Fault.LOST_RESPONSE))
    assert isinstance(bench.run(lambda: bench.store.put("k", b"1")), OutcomeUnknown)
    assert (bench.there(), bench.simulation.now) == (b"1", 2.0)


def test_delayed_request() -> None:
    """A request delayed by less than the sender's patience is answered late."""
    bench = Bench(Forced("A put k", Fault.DELAYED, seconds=1.5))
    assert not isinstance(bench.run(lambda: bench.store.put("k", b"1")), CommitError)
    assert (bench.there(), bench.simulation.now) == (b"1", 1.5)


def test_request_delayed_beyond_patience() -> None:
    """A request delayed by more takes effect after its sender has given up."""
    bench = Bench(Forced("A put k", Fault.DELAYED, seconds=5.0))
    seen: list[object] = []

    def program() -> None:
        with pytest.raises(OutcomeUnknown):
            bench.store.put("k", b"1")
        seen.append((bench.node.clock.monotonic(), bench.there()))

    bench.run(program)
    assert seen == [(2.0, None)]
    assert (bench.there(), bench.simulation.now) == (b"1", 5.0)


def test_duplicated_request() -> None:
    """A duplicated request is answered at once, and takes effect again later, over later writes."""
    bench = Bench(Forced("A put k", Fault.DUPLICATED, seconds=5.0))

    def program() -> None:
        bench.store.put("k", b"1")
        bench.node.clock.sleep(1)
        bench.store.put("k", b"2")
        assert bench.there() == b"2"

    assert bench.run(program) is None
    assert (bench.there(), bench.simulation.now) == (b"1", 5.0)


def test_repeated_request() -> None:
    """The sender of a request that is repeated on the way gets only the second answer."""
    bench = Bench(Forced("A put k", Fault.REPEATED))
    assert isinstance(bench.run(lambda: bench.store.put("k", b"1", condition=IfAbsent())), AlreadyExists)
    assert (bench.there(), bench.simulation.now) == (b"1", 0.0)


def test_failed_after() -> None:
    """An error 5xx after applying leaves the outcome unknown, at once."""
    bench = Bench(Forced("A delete k", Fault.FAILED_AFTER))
    bench.objects.put("k", b"1")
    assert isinstance(bench.run(lambda: bench.store.delete("k")), OutcomeUnknown)
    assert (bench.there(), bench.simulation.now) == (None, 0.0)


def test_conflict() -> None:
    """A request that is answered with a conflict has no effect."""
    bench = Bench(Forced("A put k", Fault.CONFLICT))
    assert isinstance(bench.run(lambda: bench.store.put("k", b"1", condition=IfAbsent())), Conflict)
    assert bench.there() is None


def test_only_conditions_conflict() -> None:
    """An unconditional request to the store never gets a conflict, even if one is forced."""
    bench = Bench(Forced("A put k", Fault.CONFLICT))
    with pytest.raises(AssertionError, match="the forced faults did not happen"):
        bench.run(lambda: bench.store.put("k", b"1"))
    assert bench.there() == b"1"


def test_throttled() -> None:
    """A throttled request has no effect, and its error says so."""
    bench = Bench(Forced("A put k", Fault.THROTTLED))
    assert isinstance(bench.run(lambda: bench.store.put("k", b"1")), Unavailable)
    assert (bench.there(), bench.simulation.now) == (None, 0.0)


def test_partial_bulk_deletion() -> None:
    """After a partial bulk deletion every second object stays and is reported."""
    bench = Bench(Forced("A delete_many 4", Fault.PARTIAL))
    paths = ["a", "b", "c", "d"]
    for path in paths:
        bench.objects.put(path, b"")
    errors = bench.run(lambda: bench.store.delete_many(iter(paths)))
    assert set(errors) == {"b", "d"}
    assert all(isinstance(error, Unavailable) for error in errors.values())
    assert [path for path in paths if bench.there(path) is not None] == ["b", "d"]


def test_paused_node() -> None:
    """A paused node does not notice the pause, but its clock and the other nodes have gone on."""
    bench = Bench(Forced("A clock", Fault.PAUSED, nth=2, seconds=7.0))
    moments: list[object] = []
    other = bench.simulation.node("B")
    rival = SimulatedStore(other, bench.objects)
    other.start(lambda: rival.put("k", b"B"), after=3)

    def program() -> None:
        moments.append((bench.node.clock.monotonic(), bench.there()))
        moments.append((bench.node.clock.monotonic(), bench.there()))

    bench.run(program)
    assert moments == [(0.0, None), (7.0, b"B")]


def test_a_pause_before_a_request() -> None:
    """A node can be paused between its last look at the clock and the sending of its request."""
    bench = Bench(Forced("A put k", Fault.PAUSED, seconds=7.0))
    bench.run(lambda: bench.store.put("k", b"1"))
    assert [line for line in bench.simulation.trace if "A1: put" in line] == ["    7.000  A A1: put k"]


def test_crashed_node() -> None:
    """A node that dies sends nothing more, but its sent requests arrive; then it restarts."""
    bench = Bench(Forced("A put k", Fault.CRASHED))
    lives: list[object] = []

    def program() -> None:
        bench.table.begin_put(item(generation=1))
        lives.append("sent")
        bench.store.put("k", b"1")
        lives.append("never")

    def again() -> None:
        lives.append((bench.node.clock.monotonic(), bench.node.crashes))

    bench.node.start(program, restart=again, restart_after=4.0)
    with bench.simulation:
        bench.simulation.run()
    assert bench.simulation.injected == {Fault.CRASHED: 1}
    assert lives == ["sent", (4.0, 1)]
    assert bench.there() is None
    assert bench.items.get(Key("k", "*")) == item(generation=1)


def test_without_a_restart_a_node_stays_dead() -> None:
    """A node that dies without a restart leaves nothing that runs."""
    bench = Bench(Forced("A sleep", Fault.CRASHED))
    bench.run(lambda: bench.node.clock.sleep(1))
    assert (bench.node.running, bench.node.crashes, bench.simulation.now) == (False, 1, 0.0)


def test_a_node_can_die_again() -> None:
    """A restarted program that dies is restarted again."""
    bench = Bench(Forced("A put k", Fault.CRASHED), Forced("A put k", Fault.CRASHED, nth=2))
    bench.node.start(lambda: bench.store.put("k", b"1"), restart=lambda: bench.store.put("k", b"again"))
    with bench.simulation:
        bench.simulation.run()
    assert (bench.there(), bench.node.crashes, bench.simulation.now) == (b"again", 2, 2.0)


def test_dead_code_does_nothing() -> None:
    """Clean-up code of a dead process does not reach the servers."""
    bench = Bench(Forced("A put k", Fault.CRASHED))
    bench.objects.put("old", b"")

    def program() -> None:
        try:
            bench.store.put("k", b"1")
        finally:
            bench.store.delete("old")

    bench.run(program)
    assert bench.there("old") == b""


def test_a_sweep_drops_expired_items() -> None:
    """Only expired items are dropped, at the forced moment."""
    bench = Bench(Forced("table sweep", Fault.SWEPT))
    left: list[object] = []

    def program() -> None:
        bench.table.put(item(ttl=int(EPOCH) + 5))
        bench.table.put({**item(ttl=int(EPOCH) + 50), "etag": "later"})
        for _ in range(2):
            bench.node.clock.sleep(4)
            left.append(bench.table.get(Key("k", "*")) is not None)

    bench.run(program)
    assert left == [True, False]
    assert bench.items.get(Key("k", "later")) is not None


def test_faults_of_the_table() -> None:
    """Requests to a table have the same faults as requests to a store."""
    outcomes: dict[Fault, object] = {
        Fault.LOST_REQUEST: (OutcomeUnknown, False),
        Fault.LOST_RESPONSE: (OutcomeUnknown, True),
        Fault.FAILED_AFTER: (OutcomeUnknown, True),
        Fault.CONFLICT: (Conflict, False),
        Fault.THROTTLED: (Unavailable, False),
        Fault.REPEATED: (ConditionFailed, True),
    }
    for fault, expected in outcomes.items():
        bench = Bench(Forced("A table.put k *", fault))
        error = bench.run(partial(bench.table.put, item(), condition=Absent()))
        assert (type(error), bench.items.get(Key("k", "*")) is not None) == expected, fault


# -- when faults happen ----------------------------------------------------------------------------


def test_a_forced_fault_happens_at_one_visit() -> None:
    """A forced fault happens only at the given visit of its point."""
    bench = Bench(Forced("A put k", Fault.THROTTLED, nth=3))
    seen: list[bool] = []

    def program() -> None:
        for _ in range(4):
            try:
                bench.store.put("k", b"1")
                seen.append(True)
            except Unavailable:
                seen.append(False)

    bench.run(program)
    assert seen == [True, True, False, True]


def many_puts(faults: Faults, puts: int, seed: int = 0) -> Simulation:
    """Run a node that puts an object `puts` times."""
    simulation = Simulation(Seeded(seed), faults=faults)
    node = simulation.node("A")
    store = SimulatedStore(node, MemoryStore())

    def program() -> None:
        for _ in range(puts):
            with contextlib.suppress(CommitError):
                store.put("k", b"1")

    node.start(program)
    with simulation:
        simulation.run()
    return simulation


def test_rates_are_probabilities() -> None:
    """A fault happens about as often as its rate says, and faults without a rate never."""
    rates = {Fault.LOST_REQUEST: 0.2, Fault.THROTTLED: 0.05, Fault.CONFLICT: 0.5}
    injected = many_puts(Faults(rates=rates), 4000).injected
    assert set(injected) == {Fault.LOST_REQUEST, Fault.THROTTLED}  # plain puts do not conflict
    assert 700 < injected[Fault.LOST_REQUEST] < 900
    assert 150 < injected[Fault.THROTTLED] < 250


def test_faults_are_limited_in_number_and_time() -> None:
    """There are at most `most` faults, and none from `until` on."""
    always = {Fault.LOST_REQUEST: 1.0}
    assert many_puts(Faults(rates=always, most=3), 10).injected == {Fault.LOST_REQUEST: 3}
    limited = many_puts(Faults(rates=always, until=6.0), 10)
    assert limited.injected == {Fault.LOST_REQUEST: 3}
    assert limited.now == 6.0


def test_forced_faults_do_not_count() -> None:
    """Forced faults happen beyond `most`, and after `until`."""
    faults = Faults(most=0, until=0.0, forced=(Forced("A put k", Fault.LOST_REQUEST),))
    assert many_puts(faults, 2).injected == {Fault.LOST_REQUEST: 1}


def test_lengths_are_picked_from_the_grid() -> None:
    """Each delay is one of the given values, all with the same probability."""
    faults = Faults(rates={Fault.DELAYED: 1.0}, delays=(0.5, 1.0, 1.5))
    trace = many_puts(faults, 300).trace
    lengths = Counter(line.split(" by ")[1] for line in trace if " by " in line)
    assert set(lengths) == {"0.5 s]", "1 s]", "1.5 s]"}
    assert min(lengths.values()) > 70


@pytest.mark.parametrize(
    "options",
    [
        {"rates": {Fault.CRASHED: 1.1}},
        {"rates": {Fault.CRASHED: 0.6, Fault.PAUSED: 0.6}},
        {"delays": ()},
        {"delays": (-1.0,)},
    ],
)
def test_impossible_faults_are_refused(options: Mapping[str, Any]) -> None:
    """Rates that are no probabilities, and negative delays, are refused."""
    with pytest.raises(ValueError):
        Faults(**options)


# -- clocks ----------------------------------------------------------------------------------------


def test_clocks_have_rates_and_offsets() -> None:
    """A node sleeps, waits and dates by its own clock, which no other part uses."""
    bench = Bench(Forced("A put k", Fault.LOST_REQUEST), rate=2.0, offset=100.0)

    def program() -> object:
        bench.node.clock.sleep(10)
        with pytest.raises(OutcomeUnknown):
            bench.store.put("k", b"1")
        return bench.node.clock.monotonic(), bench.node.clock.epoch() - EPOCH

    assert bench.run(program) == (12.0, 112.0)
    assert bench.simulation.now == 6.0


def test_server_clocks() -> None:
    """A server has its own clock, and refuses expired requests by it."""
    simulation = Simulation(Replayed(()))
    clock = simulation.server_clock(rate=3.0, offset=-50.0)
    node = simulation.node("A")
    store = SimulatedStore(node, MemoryStore(clock=clock))
    errors: list[object] = []

    def program() -> None:
        time = store.begin_head("k")().store_time
        assert time == EPOCH - 50 + 30
        node.clock.sleep(10.1)
        for seconds in (31, 30):
            try:
                store.put("k", b"1", expiry=RequestExpiry(time, seconds))
                errors.append(None)
            except CommitError as error:
                errors.append(type(error).__name__)

    node.start(program, after=10.0)
    with simulation:
        simulation.run()
    assert errors == [None, "RequestExpired"]


def test_a_store_that_ignores_expiry_takes_late_requests() -> None:
    """Its capabilities say that it does not enforce expiry."""
    bench = Bench()
    without_expiry = SimulatedStore(bench.node, bench.objects, enforces_expiry=False)
    bench.run(lambda: without_expiry.put("k", b"1", expiry=RequestExpiry(int(EPOCH) - 100, 1)))
    assert bench.there() == b"1"
    assert not without_expiry.capabilities.enforced


def test_invalid_uses_of_clocks_are_refused() -> None:
    """The rate of a clock must be positive, and the clock of a server cannot sleep."""
    with Simulation(Replayed(())) as simulation:
        with pytest.raises(ValueError):
            simulation.server_clock(rate=0)
        with pytest.raises(NotImplementedError):
            simulation.server_clock().sleep(1)


# -- nodes and their end ---------------------------------------------------------------------------


def test_a_world_that_does_not_end_is_stuck() -> None:
    """A run that takes more steps than allowed is stopped, and its error says where."""
    simulation = Simulation(Replayed(()))
    node = simulation.node("A")

    def forever() -> None:
        while True:
            node.clock.sleep(1)

    node.start(forever)
    with simulation, pytest.raises(Stuck, match="next: A goes on"):
        simulation.run(steps=50)
    assert simulation.steps == 50


def test_a_run_can_stop_in_the_middle() -> None:
    """A run that stopped at a moment can be continued."""
    bench = Bench()
    bench.node.start(lambda: bench.node.clock.sleep(10))
    with bench.simulation:
        bench.simulation.run(until=5)
        assert bench.node.running
        bench.simulation.run()
        assert not bench.node.running


def test_close_ends_all_nodes() -> None:
    """Code that is running when the world ends is unwound, and nothing is restarted."""
    bench = Bench()
    ended: list[str] = []

    def program() -> None:
        try:
            bench.node.clock.sleep(10)
        except Crashed:
            ended.append("A")
            raise

    bench.node.start(program, restart=lambda: ended.append("again"))
    with bench.simulation:
        bench.simulation.run(until=5)
    assert ended == ["A"]
    assert not bench.node.running
    bench.simulation.close()
    bench.simulation.run()
    assert ended == ["A"]


def test_an_error_of_a_program_ends_the_run() -> None:
    """The error is raised to the caller."""
    bench = Bench()

    def program() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        bench.run(program)


def test_names_of_nodes_are_unique() -> None:
    """The trace identifies nodes by their names."""
    with Simulation(Replayed(())) as simulation:
        simulation.node("A")
        with pytest.raises(ValueError):
            simulation.node("A")


# -- the ports -------------------------------------------------------------------------------------


def one_by_one(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call one after another instead of racing, because a node has only one thread."""
    outcomes: list[Any] = []
    for call in calls:
        try:
            outcomes.append(call())
        except CommitError as error:
            outcomes.append(error)
    return outcomes


@pytest.fixture
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlog.testing.contract.assertions.race", one_by_one)
    monkeypatch.setattr("commitlog.testing.contract.table.race", one_by_one)


@pytest.mark.usefixtures("_no_threads")
def test_a_simulated_store_keeps_the_contract() -> None:
    """Without faults, a simulated store is an `ObjectStore`."""
    bench = Bench(latencies=(0.001,))
    assert bench.run(lambda: check_object_store(bench.store)) is None


@pytest.mark.usefixtures("_no_threads")
def test_a_simulated_table_keeps_the_contract() -> None:
    """Without faults, a simulated table is a `Table`."""
    bench = Bench(latencies=(0.001,))
    assert bench.run(lambda: check_table(bench.table)) is None


def test_a_table_may_not_return_old_items() -> None:
    """If a table does not return the old item with a failed condition, the client must read it."""
    bench = Bench()
    bench.items.put(item(generation=3))
    silent = SimulatedTable(bench.node, bench.items, returns_old_item=False)
    error = bench.run(lambda: silent.put(item(), condition=Equals("generation", 2)))
    assert isinstance(error, ConditionFailed)
    assert not error.item_known


def creators(simulation: Simulation, server: ObjectStore, names: str) -> list[str]:
    """Let each node create the same object; return the list that will hold the winners."""
    won: list[str] = []

    def program(name: str, store: ObjectStore) -> None:
        with contextlib.suppress(AlreadyExists, OutcomeUnknown):
            store.put("k", name.encode(), condition=IfAbsent())
            won.append(name)

    for name in names:
        node = simulation.node(name)
        node.start(partial(program, name, SimulatedStore(node, server)))
    return won


def test_any_store_can_be_the_server(tmp_path: Path) -> None:
    """A store of the user works in a simulation unchanged; here, a store of files."""
    simulation = Simulation(
        Seeded(5), faults=Faults(rates={Fault.LOST_RESPONSE: 0.3}, until=20), latencies=(0.1, 0.2)
    )
    files = LocalStore(str(tmp_path))
    won = creators(simulation, files, "ABC")
    with simulation:
        simulation.run()
    assert len(won) <= 1
    assert files.get("k").data.decode() in (won or "ABC")


class Forgetful(MemoryStore):
    """A store that ignores the conditions of writes."""

    def _allow(self, key: str, condition: Any, expiry: Any) -> None:
        super()._allow(key, None, expiry)


def test_a_wrong_store_is_found() -> None:
    """`explore` finds that the store breaks its promises without any fault."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        simulation = Simulation(choices)
        server = Forgetful(new_id=simulation.new_id)
        won = creators(simulation, server, "AB")
        simulation.add_state(store_state(server))

        def judge() -> None:
            assert len(won) == 1, won

        return simulation, judge

    assert explore(build).shortest is not None
