"""Worlds for tests of outputs on the simulator: drivers, recoveries, readers, and who else comes by.

An `OutputWorld` has one output, whose server is watched (`sim.outputs.model`), and any number of nodes
that run programs (`drive`, `recover`, `read`, …). Programs check each answer against what is true at the
moment at which they get it. When all is over, `OutputWorld.judge` recovers once, without faults, and
looks whether everything is as it should be.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeAlias

from attrs import frozen

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    JobAborted,
    JobAlreadyCommitted,
    LeaseTimeout,
    NotFound,
    OutcomeUnknown,
    PublishIncomplete,
    Unavailable,
)
from commitlog.outputs import Batch, Job, Mode, Output, RecoveryReport, StagedFile, Visibility
from commitlog.outputs.compaction import plan
from commitlog.outputs.state import State
from commitlog.tables.memory import MemoryTable
from commitlog.testing import ManualClock
from commitlog.testing.sim import (
    Choices,
    Exploration,
    Node,
    SimulatedStore,
    SimulatedTable,
    Simulation,
    World,
    explore,
    has_expired_items,
    store_state,
    table_state,
)
from commitlog.urls import parse_table_url
from sim.leases.world import SMALL
from sim.nodes import ClockSkew, fixed_backoff
from sim.outputs.model import TOP, Truth, WatchedStore, content

#: A clock that goes right.
_RIGHT = ClockSkew()


class OutputWorld:
    """One output, and nodes that work on it.

    Args:
        simulation: where it all happens.
        nodes: the clock of each node, by name.
        leases: whether the store ignores conditions, so that all is done under leases.
        logged: whether only the log shows the files.
        staged: whether records are so large that they are uploads before they are records, which a
            recovery may drop.
        before: jobs that were committed before the beginning, each with one file.
        remembered: number of decided attempts that a state knows, if the library was given another one.
        denied: for the node of each name, the mutations that it has no permission for; see
            `SimulatedStore`.
        trusts_any_404: whether clients take any 404 for the store's.
        foreign: files that another program left there before the beginning, such as ``p=x/old``.
        store, table: the servers' clocks.
        backoff: how the node of that name backs off.
        connect: makes an output, such as a mutated one, with the arguments of `Output`.

    Attributes:
        truth: what is so.
        outcomes: how often was told what.
        handed_out: the jobs that were begun, as they travel between processes, with the files that were
            staged, once they are.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        leases: bool = False,
        logged: bool = False,
        staged: bool = False,
        before: tuple[str, ...] = (),
        remembered: int = 1_000,
        denied: Mapping[str, tuple[str, ...]] | None = None,
        trusts_any_404: bool = False,
        foreign: tuple[str, ...] = (),
        store: ClockSkew = _RIGHT,
        table: ClockSkew = _RIGHT,
        backoff: Callable[[str], Backoff] = fixed_backoff,
        connect: Callable[..., Output] = Output,
    ) -> None:
        self.simulation = simulation
        self.outcomes: Counter[str] = Counter()
        self.visibility: Visibility = "logged" if logged else "listed"
        self.staged = staged
        self._denied = denied or {}
        self._trusts_any_404 = trusts_any_404
        #: What any call may raise: nothing happened, and nothing follows from it.
        self.trouble: tuple[type[CommitError], ...] = (Unavailable, Conflict, LeaseTimeout)
        if staged:
            self.trouble += (NotFound,)
        self._server = WatchedStore(
            clock=simulation.server_clock(rate=store.rate, offset=store.offset),
            new_id=simulation.new_id,
            conditions=not leases,
        )
        self.truth: Truth = self._server.truth
        self.truth.remembered = remembered
        self.handed_out: dict[str, tuple[Job, tuple[StagedFile, ...] | None]] = {}
        self._backoff = backoff
        self._connect = connect
        self._items: MemoryTable | None = None
        if leases:
            clock = simulation.server_clock(rate=table.rate, offset=table.offset)
            items = self._items = MemoryTable(parse_table_url("memory://"), LEASE_SCHEMA, clock=clock)
            items.create()
            simulation.add_state(table_state(items))
            simulation.add_sweeper(has_expired_items(items, clock), items.sweep)
        for number, job_id in enumerate(before):
            output = self._past_misfortune(f"before {number}")
            job = output.begin(job_id, visibility=self.visibility)
            path = job.file_name(0)
            output.commit(job, [output.stage(job, path, content(job_id, path), rows=1)])
        for name in foreign:
            self.truth.leave(name, b"rows of another program")
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=ticks.rate, offset=ticks.offset)
            for name, ticks in nodes.items()
        }
        simulation.add_state(store_state(self._server))
        simulation.add_state(self.truth.state)
        simulation.add_state(self._jobs)

    def start(
        self,
        name: str,
        program: Program,
        *,
        after: float = 0.0,
        restart: Program | None = None,
        restart_after: float = 1.0,
    ) -> None:
        """Let a program run on the node of that name; if it dies, `restart` does, if there is one.

        Each life has an output of its own. Times are as of `Node.start`.
        """

        def live(what: Program) -> Callable[[], object]:
            return lambda: what(self._client(name))

        self.nodes[name].start(
            live(program),
            after=after,
            restart=None if restart is None else live(restart),
            restart_after=restart_after,
        )

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if something is wrong in a run that has ended; return `outcomes`.

        Every program is over, unless its node died for good. One recovery without faults leaves all
        committed files visible and nothing else, and another one finds nothing to do. What no version
        needs is collected then.
        """
        stuck = [name for name, node in self.nodes.items() if node.running]
        assert not stuck, f"the programs of {stuck} wait for nothing"
        output = self._past_misfortune("judge")
        records = self.truth.records
        first = output.recover(older_than=0)
        assert not first.lost, "a recovery reports files as lost that are replaced"
        self.truth.check_clean()
        assert self.truth.records == records + bool(first.aborted)
        assert first.live == ()
        before = store_state(self._server)()
        assert output.recover(older_than=0) == RecoveryReport()
        assert store_state(self._server)() == before, "a second recovery changes something"
        self._check_readers(output)
        output.gc(older_than=0)
        self.truth.check_collected()
        assert output.gc(older_than=0).removed == 0
        self._check_readers(output)
        return self.outcomes

    # inside

    def _client(self, name: str) -> Client:
        node = self.nodes[name]
        leased = self._items is not None
        store = ConditionalStore(
            SimulatedStore(
                node,
                self._server,
                conditions=not leased,
                denied=self._denied.get(name, ()),
                trusts_any_404=self._trusts_any_404,
            ),
            table=SimulatedTable(node, self._items) if self._items else None,
            mode="lease" if leased else "auto",
            settings=SMALL,
            clock=node.clock,
            backoff=self._backoff(name),
            new_id=node.new_id,
        )
        output = self._connect(
            store, "out", clock=node.clock, backoff=self._backoff(name), new_id=_hexadecimal(node.new_id)
        )
        return Client(world=self, node=node, output=output)

    def _check_readers(self, output: Output) -> None:
        for roll_forward in (True, False):
            snapshot = output.snapshot(roll_forward=roll_forward)
            assert snapshot.version == self.truth.last
            self.truth.check_snapshot(snapshot)
        assert output.state().files.keys() == self.truth.files(self.truth.last).keys()

    def _past_misfortune(self, name: str) -> Output:
        """Return the output as somebody sees it whose requests are performed at once."""
        self.simulation.perform(name, lambda: None)  # what is stored is named after it
        clock = ManualClock()
        words = (f"{name} {number}" for number in range(1_000_000))
        return Output(
            ConditionalStore(self._server, clock=clock, new_id=lambda: next(words)),
            "out",
            clock=clock,
            new_id=_hexadecimal(lambda: next(words)),
        )

    def _jobs(self) -> Hashable:
        return frozenset((attempt, files is None) for attempt, (_, files) in self.handed_out.items())


def _hexadecimal(word: Callable[[], str]) -> Callable[[], str]:
    return lambda: hashlib.sha256(word().encode()).hexdigest()


@frozen(kw_only=True)
class Client:
    """One life of a node: what its program works with.

    Attributes:
        world: where it lives.
        node: the node.
        output: its own view of the output.
    """

    world: OutputWorld
    node: Node
    output: Output

    @property
    def truth(self) -> Truth:
        """What is so."""
        return self.world.truth

    def knows(self, fact: object) -> None:
        """Note what is true as a call begins: its answer is checked against that."""
        self.node.note(f"could know {fact}")

    def tell(self, what: str, outcome: object = "done") -> None:
        """Note what a call came to."""
        came_to = type(outcome).__name__ if isinstance(outcome, CommitError) else str(outcome)
        self.world.outcomes[f"{what}: {came_to}"] += 1
        self.node.note(f"{what}: {came_to}")

    @contextlib.contextmanager
    def trouble(self, what: str, *others: type[CommitError]) -> Iterator[None]:
        """End a call that fails as any call may, or by `others`; nothing follows from that."""
        try:
            yield
        except PublishIncomplete as error:
            self.truth.check_committed(error)
            self.tell(what, error)
        except (*self.world.trouble, OutcomeUnknown, *others) as error:
            self.tell(what, error)


#: What a node does. An error that a call may raise ends that call, and is no error of the program.
Program: TypeAlias = Callable[[Client], object]


def drive(
    job_id: str,
    *,
    files: int = 1,
    mode: Mode = "append",
    partition: str | None = None,
    lost: bool = False,
    beats: bool = False,
    batch: Batch | None = None,
    schema: str | None = None,
    abort: bool = True,
) -> Program:
    """Begin a job, stage its files, commit, and abort as Spark does if that fails.

    Args:
        job_id: the job.
        files: how many.
        mode: see `Output.begin`.
        partition: the one that all files are in.
        lost: whether the first file is staged by another task attempt, too, which lost its race.
        beats: whether to give a sign of life before the commit, and one after it, since it was late.
        batch: the batch of a stream that the job is; `job_id` is its id.
        schema: the columns; the job is not begun if the output has others.
        abort: whether to abort after an error.
    """

    def fit(state: State) -> str:
        if mode != "overwrite" and state.schema not in (None, schema):
            raise Conflict("the output has other columns")
        return schema or ""

    def program(client: Client) -> None:
        truth, output = client.truth, client.output
        committed = truth.commit_of(job_id) is not None
        client.knows(committed)
        job: Job | None = None
        with client.trouble("begin"):
            try:
                job = output.begin(
                    job_id,
                    mode=mode,
                    schema=fit if schema else None,
                    visibility=client.world.visibility,
                    batch=batch,
                )
            except JobAlreadyCommitted as error:
                commit = truth.check_superseded(error, job_id, batch)
                assert truth.is_whole(commit), "begin says that all files are visible"
                client.tell("begin", error)
            except AlreadyExists as error:
                assert mode == "error" and (truth.commits or truth.strangers)
                client.tell("begin", error)
        if job is None:
            return
        assert not committed, "a job was begun that was committed before"
        client.world.handed_out[job.attempt] = job, None
        if beats:
            _beat(client, job)
        staged = _stage(client, job, files, partition, lost=lost)
        if staged is not None:
            client.world.handed_out[job.attempt] = job, staged
            if _commit(client, job, staged):
                if beats:
                    _beat(client, job)
                return
        if abort:
            _abort(client, job, staged or ())

    return program


def _beat(client: Client, job: Job) -> None:
    with client.trouble("beat"):
        client.output.heartbeat(job.attempt)


def _stage(
    client: Client, job: Job, count: int, partition: str | None = None, *, lost: bool = False
) -> tuple[StagedFile, ...] | None:
    where = "" if partition is None else f"p={partition}/"
    paths = [where + job.file_name(task) for task in range(count)]
    values = {} if partition is None else {"p": partition}

    def stage(path: str, data: bytes) -> StagedFile:
        return client.output.stage(job, path, data, rows=1, partition=values)

    with client.trouble("stage", NotFound):  # a recovery may have dropped an upload before its end
        if lost and paths:
            stage(paths[0], b"of a task that lost its race")
        return tuple(stage(path, content(job.job_id, path)) for path in paths)
    return None


def _commit(client: Client, job: Job, files: tuple[StagedFile, ...]) -> bool:
    """Commit; tell whether that succeeded."""
    truth = client.truth
    try:
        record = client.output.commit(job, files)
    except PublishIncomplete as error:
        client.tell("commit", error)
        truth.check_committed(error, job.attempt)
        return False
    except OutcomeUnknown as error:
        client.tell("commit", error)
        return False
    except ConfigurationError as error:
        assert job.attempt in truth.shared
        client.tell("commit", error)
        return False
    except (*client.world.trouble, JobAborted, AlreadyExists, NotFound) as error:
        client.tell("commit", error)
        truth.deny(job.attempt, error)
        if isinstance(error, JobAborted):
            assert job.attempt in truth.aborted
        elif isinstance(error, NotFound):  # of its list of files, as two callers wrote it
            assert client.world.staged or job.attempt in truth.aborted
        elif isinstance(error, JobAlreadyCommitted):
            truth.check_superseded(error, job.job_id, job.batch)
        elif isinstance(error, AlreadyExists):
            assert job.mode == "error" and (truth.commits or truth.strangers)
        return False
    client.tell("commit")
    commit = truth.commits[job.attempt]
    assert commit.version == record.version and truth.is_whole(commit)
    return True


def _abort(client: Client, job: Job, files: tuple[StagedFile, ...]) -> None:
    truth = client.truth
    with client.trouble("abort"):
        record = client.output.abort(job, files)
        if record is None:
            assert job.attempt in truth.aborted
        else:
            assert truth.commits[job.attempt].version == record.version
        client.tell("abort", "done" if record is None else "is committed")


def write_again(name: str) -> Program:
    """Write a file as another program does, in the place of one that was there before."""

    def program(client: Client) -> None:
        with client.trouble("write"):
            client.output.store.put(TOP + name, b"rows that came later")
            client.tell("write")

    return program


def recover(*, older_than: float = 0.0, times: int = 1, every: float = 1.0) -> Program:
    """Recover, `times` times, `every` so many seconds."""

    def program(client: Client) -> None:
        for number in range(times):
            if number:
                client.node.clock.sleep(every)
            waited_for = client.truth.lost - client.truth.replaced.keys()
            if client.truth.lost:
                client.knows(f"{len(waited_for)} lost files")
            # A recovery goes by the server's clock, or by its own where the server tells none. Servers
            # tell whole seconds, so an attempt may count as up to one second older (`Output.recover`).
            young = {
                attempt
                for attempt, at in client.truth.signs.items()
                if at > client.truth.server.clock.epoch() - max(0.0, older_than - 1)
            }
            with client.trouble("recover"):
                report = client.output.recover(older_than=older_than)
                assert report.aborted.keys() <= set(client.truth.decided)
                versions = {commit.version for commit in client.truth.commits.values()}
                assert versions >= set(report.completed)
                lost = {path for each in report.lost for path in each.files}
                assert lost <= waited_for, "a recovery reports files as lost that are replaced"
                aborts = "aborts" if report.aborted else "done"
                if client.world.visibility == "listed" and client.node.clock.rate == 1:
                    assert not young & report.aborted.keys(), "a live attempt is taken for dead"
                client.tell("recover", "reports a loss" if report.lost else aborts)

    return program


def gc(*, older_than: float = 0.0, times: int = 1, every: float = 1.0) -> Program:
    """Collect garbage, `times` times, `every` so many seconds."""

    def program(client: Client) -> None:
        for number in range(times):
            if number:
                client.node.clock.sleep(every)
            with client.trouble("gc"):
                report = client.output.gc(older_than=older_than)
                assert report.recovery.aborted.keys() <= set(client.truth.decided)
                assert report.expired <= client.truth.expired
                client.tell("gc", "removes" if report.removed else "done")

    return program


def compact(*, times: int = 1, every: float = 1.0) -> Program:
    """Merge files into larger ones, `times` times, `every` so many seconds: one group at a time."""

    def program(client: Client) -> None:
        for number in range(times):
            if number:
                client.node.clock.sleep(every)
            begun = _begin_rewrite(client)
            if begun is not None:
                client.world.handed_out[begun[0].attempt] = begun
                if not _commit(client, *begun):
                    _abort(client, *begun)

    return program


def _begin_rewrite(client: Client) -> tuple[Job, tuple[StagedFile, ...]] | None:
    output = client.output
    with client.trouble("compact", NotFound):  # others may remove what it is about to read
        groups = plan(output.snapshot().files, kind=lambda _: "", min_files=2)
        if not groups:
            client.tell("compact", "nothing")
            return None
        files = groups[0].files
        job = output.begin(mode="rewrite", replaces=[file.path for file in files])
        data = b"\n".join(output.store.get(output.locate(file)).data for file in files)
        partition = files[0].partition
        path = "".join(f"{name}={value}/" for name, value in partition.items()) + job.file_name(0)
        staged = output.stage(job, path, data, rows=groups[0].rows, partition=partition)
        client.tell("compact")
        return job, (staged,)
    return None


def read(*, times: int = 1, every: float = 1.0, roll_forward: bool = True) -> Program:
    """Take snapshots, `times` times, `every` so many seconds, and read the log along."""

    def program(client: Client) -> None:
        truth = client.truth
        last = 0
        for number in range(times):
            if number:
                client.node.clock.sleep(every)
            with client.trouble("read"):
                known = truth.last if roll_forward else truth.success
                client.knows(known)
                snapshot = client.output.snapshot(roll_forward=roll_forward)
                truth.check_snapshot(snapshot)
                assert snapshot.version >= max(last, known), "a reader goes back"
                last = snapshot.version
                client.tell("read", "something" if last else "nothing")
            with client.trouble("log"):
                seen = [record.version for record in client.output.log(after=last)]
                later = [c.version for c in truth.commits.values() if c.version > last]
                assert seen == later[: len(seen)]

    return program


def abort_one() -> Program:
    """Abort, from another process, the job that was begun last, whoever is at work on it."""
    return _with_job_of_another(lambda client, job, _: _abort(client, job, ()))


def commit_again(*, others: bool = False) -> Program:
    """Commit, from another process, the job that was begun last; `others`: with other files."""

    def call(client: Client, job: Job, files: tuple[StagedFile, ...] | None) -> None:
        if files is not None:
            client.truth.share(job.attempt)
            _commit(client, job, () if others else files)

    return _with_job_of_another(call)


def lose_uploads() -> Program:
    """Remove the uploads of committed jobs, as a lifecycle rule on abandoned uploads does."""
    return lambda client: client.truth.lose()


def stage_late() -> Program:
    """Stage a file, as a task that is not known to run any more, for the job that was begun last."""
    return _with_job_of_another(lambda client, job, _: _stage(client, job, 1))


def _with_job_of_another(
    call: Callable[[Client, Job, tuple[StagedFile, ...] | None], object],
) -> Program:
    def program(client: Client) -> object:
        for _ in range(10):
            if client.world.handed_out:
                job, files = list(client.world.handed_out.values())[-1]
                client.node.note(f"is handed {job.attempt}" + ("" if files is None else " with files"))
                return call(client, job, files)
            client.node.clock.sleep(1)
        return None

    return program


def in_turn(*programs: Program) -> Program:
    """Run programs one after the other."""

    def program(client: Client) -> None:
        for each in programs:
            each(client)

    return program


def world_of(
    programs: Mapping[str, Program],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    clocks: Mapping[str, ClockSkew] | None = None,
    restart: Mapping[str, Program] | None = None,
    after: Mapping[str, float] | None = None,
    outcomes: Counter[str] | None = None,
    **options: Any,
) -> World:
    """Return what `explore` builds worlds with.

    Args:
        programs: what the node of each name does.
        simulation: makes the simulation, with what faults there are to be.
        clocks: clocks of the nodes that do not go right.
        restart: what the node of that name does after it died.
        after: when the node of that name starts, if it is not at the beginning.
        outcomes: where to add up what was told in the runs that came to their end.
        options: those of `OutputWorld`, other than its nodes.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        nodes = {name: (clocks or {}).get(name, _RIGHT) for name in programs}
        world = OutputWorld(simulation(choices), nodes=nodes, **options)
        for name, program in programs.items():
            world.start(
                name,
                program,
                after=(after or {}).get(name, 0.0),
                restart=(restart or {}).get(name),
            )

        def judge() -> None:
            told = world.judge()
            if outcomes is not None:
                outcomes.update(told)

        return world.simulation, judge

    return build


def explored(world: World) -> Exploration:
    """Explore a world, print how large it is, and make sure that all of it was seen and all is well."""
    begun = time.process_time()
    found = explore(world)
    seconds = time.process_time() - begun
    print(f"{found.states:9,} states {found.runs:9,} runs {seconds:7.1f} s of CPU", end="")
    worst = found.shortest
    assert worst is None, "\n".join((*worst.trace, str(worst.error)))
    assert found.complete
    return found
