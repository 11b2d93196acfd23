"""Worlds for tests of sources on the simulator: drivers of one query, and a bucket that fills meanwhile.

An `IngestWorld` has one bucket, one state table and one checkpoint, which no fault reaches, and nodes
that run the query (`support.ingest.Engine`) as long as they live; a query that fails is started again.
When all is over, `IngestWorld.judge` runs the query to its end without faults: then each byte of each
version that was put, and not overwritten, has come exactly once; what could not be read is repaired for
that, and handed out again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen

from commitlog._util.retry import Backoff
from commitlog.errors import (
    Conflict,
    InputChanged,
    InputUnreadable,
    OutcomeUnknown,
    StateMismatch,
    Unavailable,
)
from commitlog.ingest import IngestAdmin, IngestSettings, Pinned, Slice
from commitlog.testing import ManualClock
from commitlog.testing.sim import (
    Choices,
    Fault,
    Node,
    SimulatedStore,
    SimulatedTable,
    Simulation,
    World,
    store_state,
    table_state,
)
from sim.nodes import ClockSkew, fixed_backoff
from support.ingest import (
    Bucket,
    Checkpoint,
    Engine,
    Record,
    Stop,
    records_of,
    state_table,
)
from support.library import GetClass, original

#: What ends a run of a query, which is then started again.
FAILS = (Unavailable, Conflict, OutcomeUnknown, Stop, StateMismatch, InputChanged)

#: A clock that goes right.
_RIGHT = ClockSkew()

_NONE: Mapping[str, int] = MappingProxyType({})

_STEPS = (Fault.PAUSED, Fault.CRASHED)

#: No world has so many batches.
_ENDLESS = 200


@frozen
class Upload:
    """An object that is put: when, how many bytes, and how much older it says it is, in seconds."""

    path: str
    at: float = 0.0
    size: int = 1
    age: float = 0.0


class IngestWorld:
    """One source, its query, and nodes that run it.

    Args:
        simulation: where it all happens.
        nodes: the clock of each node, by name.
        settings: of the source.
        uploads: what is put into the bucket.
        splits: whether files can be read in ranges.
        store: the store's clock.
        backoff: how the node of that name backs off.
        broken: from which byte on objects of these paths cannot be read, while the nodes run.
        code: returns the class that takes the place of a class of the library.

    Attributes:
        checkpoint: that of the query.
        outcomes: how often was told what.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        settings: IngestSettings,
        uploads: Sequence[Upload],
        splits: bool = False,
        store: ClockSkew = _RIGHT,
        backoff: Callable[[str], Backoff] = fixed_backoff,
        broken: Mapping[str, int] = _NONE,
        code: GetClass = original,
    ) -> None:
        self.simulation = simulation
        self._broken = dict(broken)
        self._code = code
        self._missed: list[str] = []
        self.settings = settings
        self.splits = splits
        self.checkpoint = Checkpoint()
        self.outcomes: Counter[str] = Counter()
        self._backoff = backoff
        self._clock = simulation.server_clock(rate=store.rate, offset=store.offset)
        self.bucket = Bucket(clock=self._clock, new_id=simulation.new_id)
        self.table = state_table(self._clock)
        #: The last version of each path, and how large all versions were.
        self.current: dict[str, str] = {}
        self.sizes: dict[tuple[str, str], int] = {}
        for number, upload in enumerate(uploads):
            if upload.at:
                simulation.after(upload.at, f"upload {number}", lambda upload=upload: self._put(upload))
            else:
                self._put(upload)
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=ticks.rate, offset=ticks.offset)
            for name, ticks in nodes.items()
        }
        simulation.add_state(store_state(self.bucket))
        simulation.add_state(table_state(self.table))
        simulation.add_state(self._told)

    def start(
        self,
        name: str,
        *,
        batches: int,
        every: float = 1.0,
        lives: int = 3,
        after: float = 0.0,
        finite: bool = False,
    ) -> None:
        """Let the node of that name run the query.

        Args:
            name: of the node.
            batches: how often each run of the query asks for a batch.
            every: seconds between two batches, and before a query that failed is started again.
            lives: how often the query is started, at most.
            after: when, in seconds.
            finite: it is to run until it has read all that was there when it was started.
        """
        node = self.nodes[name]

        def live() -> None:
            for life in range(lives):
                if life:
                    node.clock.sleep(every)
                engine = self._engine(name)
                there = dict(self.current)
                if finite:
                    engine.source.finish()
                try:
                    for number in range(batches):
                        if number:
                            node.clock.sleep(every)
                        more = engine.batch()
                        self._tell(node, "batch" if more else "nothing new")
                        if finite and not more:
                            self._missed += self._missing(there)
                            break
                    return
                except FAILS as error:
                    self._tell(node, type(error).__name__)

        node.start(live, restart=live, after=after)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if something is wrong in a run that has ended; return `outcomes`."""
        stuck = [name for name, node in self.nodes.items() if node.running]
        assert not stuck, f"the programs of {stuck} wait for nothing"
        self._check()
        assert not self._missed, f"a finite run has ended, and {self._missed[0]}"
        last = Engine(
            store=self.bucket,
            table=self.table,
            settings=self.settings,
            clock=ManualClock(),
            checkpoint=self.checkpoint,
            splits=self.splits,
            decode=self._decode,
            code=self._code,
        )
        self._drain(last)
        if self._broken:
            self._broken.clear()
            self._code(IngestAdmin)(self.bucket, self.table, self.settings, clock=ManualClock()).retry()
            self._drain(last)
        for missing in self._missing(self.current):
            raise AssertionError(missing)
        return self.outcomes

    # inside

    def _drain(self, engine: Engine) -> None:
        idle = 0
        for _ in range(_ENDLESS):
            try:
                idle = 0 if engine.batch() else idle + 1
            except StateMismatch as error:
                raise AssertionError(f"nobody can go on: {error}") from error
            self._check()
            if idle == len(self.sizes) + 2:
                return
        raise AssertionError("there is no end of batches")

    def _missing(self, current: Mapping[str, str]) -> list[str]:
        records = self.checkpoint.records
        return [
            f"byte {number} of {path} {etag} never came"
            for path, etag in current.items()
            for number in range(self.sizes[path, etag])
            if not records[path, etag, number] and number < self._broken.get(path, 99)
        ]

    def _decode(self, pinned: Pinned, slice: Slice) -> Iterator[list[Record]]:
        bad = self._broken.get(slice.file.path)
        for batch in records_of(pinned, slice):
            good = [record for record in batch if bad is None or record[2] < bad]
            if good:
                yield good
            if len(good) < len(batch):
                raise InputUnreadable("broken", offset=bad)

    def _engine(self, name: str) -> Engine:
        node = self.nodes[name]

        def step(what: str) -> None:
            node.point(f"step {what}", _STEPS)
            kept = self.checkpoint
            node.note(f"{what}: {len(kept.log)} begun, {kept.committed} done, {sorted(kept.sink)} kept")

        return Engine(
            store=SimulatedStore(node, self.bucket),
            table=SimulatedTable(node, self.table),
            settings=self.settings,
            clock=node.clock,
            checkpoint=self.checkpoint,
            splits=self.splits,
            step=step,
            backoff=self._backoff(name),
            new_id=node.new_id,
            decode=self._decode,
            code=self._code,
        )

    def _put(self, upload: Upload) -> None:
        # What names the request names the version.
        name = f"upload {len(self.sizes)} of {upload.path}"
        self.simulation.perform(name, lambda: self._put_now(upload))

    def _put_now(self, upload: Upload) -> None:
        modified = self._clock.epoch() - upload.age
        etag = self.bucket.put_at(upload.path, bytes(upload.size), modified)
        self.current[upload.path] = etag
        self.sizes[upload.path, etag] = upload.size
        self.simulation.note(f"{upload.path} is put: {etag}, {upload.age:g} s old")

    def _tell(self, node: Node, what: str) -> None:
        self.outcomes[what] += 1
        node.note(what)

    def _told(self) -> Any:
        kept = self.checkpoint
        log = tuple(tuple(offset.values()) for offset in kept.log)
        sink = tuple((number, tuple(records)) for number, records in sorted(kept.sink.items()))
        return log, kept.committed, sink, tuple(self._missed)

    def _check(self) -> None:
        for (path, etag, number), times in self.checkpoint.records.items():
            assert times == 1, f"byte {number} of {path} {etag} came {times} times"


def world_of(
    drivers: Mapping[str, Mapping[str, Any]],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    clocks: Mapping[str, ClockSkew] | None = None,
    outcomes: Counter[str] | None = None,
    **options: Any,
) -> World:
    """Return what `explore` builds worlds with.

    Args:
        drivers: the arguments of `IngestWorld.start` for the node of each name.
        simulation: makes the simulation, with what faults there are to be.
        clocks: clocks of the nodes that do not go right.
        outcomes: where to add up what was told in the runs that came to their end.
        options: those of `IngestWorld`, other than its nodes.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        nodes = {name: (clocks or {}).get(name, ClockSkew()) for name in drivers}
        world = IngestWorld(simulation(choices), nodes=nodes, **options)
        for name, arguments in drivers.items():
            world.start(name, **arguments)

        def judge() -> None:
            told = world.judge()
            if outcomes is not None:
                outcomes.update(told)

        return world.simulation, judge

    return build
