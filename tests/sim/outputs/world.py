"""Worlds of outputs.

An `OutputWorld` has one output, and any number of nodes that run programs of `sim.outputs.actions`.
`sim.outputs.judge` follows the mutations of its store. At the end of a run, `OutputWorld.judge` recovers
once without faults, and checks the result.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import (
    CommitError,
    Conflict,
    LeaseTimeout,
    NotFound,
    Unavailable,
)
from commitlog.outputs import Job, Output, RecoveryReport, StagedFile, Visibility
from commitlog.tables.memory import MemoryTable
from commitlog.testing import ManualClock
from commitlog.testing.sim import (
    Choices,
    Node,
    SimulatedStore,
    SimulatedTable,
    Simulation,
    World,
    has_expired_items,
    store_state,
    table_state,
)
from commitlog.urls import parse_table_url
from sim.leases.world import SMALL
from sim.nodes import ACCURATE, ClockSkew, check_ended, fixed_backoff, start_lives, world_builder
from sim.outputs.actions import Client, Program
from sim.outputs.judge import Truth, WatchedStore, content


class OutputWorld:
    """One output, and nodes that use it.

    Args:
        simulation: the simulation, with its faults and latencies.
        nodes: the clock of each node, by the node's name.
        leases: whether the store ignores conditions, so that clients use leases.
        logged: whether only the log shows the files.
        s3a: whether S3A writes the files of drivers: the uploads have no nonce, each has a name of its
            own, and S3A leaves a record of it.
        staged: whether records are large, and therefore staged first. A recovery may drop the upload.
        shared: whether jobs may share a record, which has their uploads.
        busy: whether clients know from the beginning that others commit at the same time.
        before: jobs that were committed before the beginning, each with one file.
        denied: for each node, by its name, the mutations that it has no permission for; see
            `SimulatedStore`.
        trusts_any_404: whether clients trust any 404.
        foreign: initial files of another program, such as ``p=x/old``.
        below: directories of partitions, such as ``p=x``, that are outputs, each with one file.
        store, table: the clocks of the servers.
        backoff: returns the retry policy of a node, given its name.
        connect: makes an output, such as a mutated one, with the arguments of `Output`.

    Attributes:
        truth: the true state of the output.
        outcomes: the number of calls with each outcome.
        known_jobs: the jobs that were begun, as other processes know them, with their files once these
            are staged.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        leases: bool = False,
        logged: bool = False,
        s3a: bool = False,
        staged: bool = False,
        shared: bool = False,
        busy: bool = False,
        before: tuple[str, ...] = (),
        denied: Mapping[str, tuple[str, ...]] | None = None,
        trusts_any_404: bool = False,
        foreign: tuple[str, ...] = (),
        below: tuple[str, ...] = (),
        store: ClockSkew = ACCURATE,
        table: ClockSkew = ACCURATE,
        backoff: Callable[[str], Backoff] = fixed_backoff,
        connect: Callable[..., Output] = Output,
    ) -> None:
        self.simulation = simulation
        self.outcomes: Counter[str] = Counter()
        self.visibility: Visibility = "logged" if logged else "listed"
        self.s3a = s3a
        self.staged = staged
        self._shared = shared
        self._busy = busy
        self._denied = denied or {}
        self._trusts_any_404 = trusts_any_404
        #: Errors that any call may raise. They prove that nothing happened.
        self.trouble: tuple[type[CommitError], ...] = (Unavailable, Conflict, LeaseTimeout)
        if staged:
            self.trouble += (NotFound,)
        self._server = WatchedStore(
            clock=simulation.server_clock(rate=store.rate, offset=store.offset),
            new_id=simulation.new_id,
            conditions=not leases,
        )
        self.truth: Truth = self._server.truth
        self.known_jobs: dict[str, tuple[Job, tuple[StagedFile, ...] | None]] = {}
        self._backoff = backoff
        self._connect = connect
        self._items: MemoryTable | None = None
        if leases:
            clock = simulation.server_clock(rate=table.rate, offset=table.offset)
            items = self._items = MemoryTable(parse_table_url("memory://"), LEASE_SCHEMA, clock=clock)
            items.create()
            simulation.add_state(table_state(items))
            simulation.add_sweeper(has_expired_items(items, clock), items.remove_expired)
        for number, job_id in enumerate(before):
            output = self._output_without_faults(f"before {number}")
            job = output.begin(job_id, visibility=self.visibility)
            path = job.file_name(0)
            output.commit(job, [output.stage(job, path, content(job_id, path), rows=1)])
        for name in foreign:
            self.truth.leave(name, b"rows of another program")
        for directory in below:
            self.truth.below += (directory,)
            other = self._output_without_faults(f"before {directory}", f"out/{directory}")
            job = other.begin()
            record = other.commit(job, [other.stage(job, job.file_name(0), b"rows by path", rows=1)])
            self.truth.adopt(directory, [file.path for file in record.files])
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=skew.rate, offset=skew.offset)
            for name, skew in nodes.items()
        }
        simulation.add_state(store_state(self._server))
        simulation.add_state(self.truth.state)
        simulation.add_state(self._jobs)

    def start(self, name: str, program: Program, **options: Any) -> None:
        """Start a program on the node of that name; for options see `sim.nodes.start_lives`."""
        start_lives(self.nodes[name], partial(self._client, name), program, **options)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if a run that has ended is wrong; return `outcomes`.

        Every program has ended, unless its node crashed and was not restarted. After a recovery without
        faults, exactly the committed files are visible, and a second recovery does nothing. Then garbage
        collection removes all files that no version needs.
        """
        check_ended(self.nodes)
        output = self._output_without_faults("judge")
        records = self.truth.records
        first = output.recover(older_than=0)
        for directory in self.truth.below:
            other = self._output_without_faults(f"judge {directory}", f"out/{directory}")
            other.recover(older_than=0)
            self.truth.check_below(directory, other.state().files)
        assert not first.lost, "a recovery reports replaced files as lost"
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
            store,
            "out",
            clock=node.clock,
            backoff=self._backoff(name),
            new_id=_hexadecimal(node.new_id),
            share_records=self._shared,
        )
        if self._busy:
            output._ready.note_busy()
        return Client(world=self, node=node, output=output)

    def _check_readers(self, output: Output) -> None:
        for roll_forward in (True, False):
            snapshot = output.snapshot(roll_forward=roll_forward)
            assert snapshot.version == self.truth.last
            self.truth.check_snapshot(snapshot)
        assert output.state().files.keys() == self.truth.files(self.truth.last).keys()

    def _output_without_faults(self, name: str, path: str = "out") -> Output:
        """Return a client without faults or latencies."""
        self.simulation.perform(name, lambda: None)  # stored objects get their ids from this name
        clock = ManualClock()
        ids = (f"{name} {number}" for number in range(1_000_000))
        return Output(
            ConditionalStore(self._server, clock=clock, new_id=lambda: next(ids)),
            path,
            clock=clock,
            new_id=_hexadecimal(lambda: next(ids)),
        )

    def _jobs(self) -> Hashable:
        return frozenset((attempt, files is None) for attempt, (_, files) in self.known_jobs.items())


def _hexadecimal(new_id: Callable[[], str]) -> Callable[[], str]:
    return lambda: hashlib.sha256(new_id().encode()).hexdigest()


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
    """Return a world for `explore`.

    Args:
        programs: the program of each node, by the node's name.
        simulation: makes the simulation, with its faults.
        clocks: the clocks of nodes that are not correct.
        restart: the program that each node starts after a crash, by the node's name.
        after: the start time of each node that does not start at the beginning.
        outcomes: a counter to which the outcomes of all completed runs are added.
        options: those of `OutputWorld`, except `nodes`.
    """

    def start(world: OutputWorld, name: str) -> None:
        world.start(
            name,
            programs[name],
            after=(after or {}).get(name, 0.0),
            restart=(restart or {}).get(name),
        )

    return world_builder(
        partial(OutputWorld, **options),
        start,
        nodes=programs,
        simulation=simulation,
        clocks=clocks,
        outcomes=outcomes,
    )
