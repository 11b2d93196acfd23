"""Concurrent clients of one namespace that crash and lose answers, compared with a simple tree.

Hypothesis draws the operations, and faults at some of their requests: another client changes something,
the process dies, the request or its answer is lost, or the request arrives after it was given up. After
each step all invariants hold (`support.namespace.Auditor`), the tree equals the simple tree after the
changes that took effect, in their order, and no change took effect after its caller got an error that
excludes it.

With `stable_paths` every change is made to the entry at its path at the moment at which it takes effect.
Without it, a change may be made to a directory that another client has just renamed. Then the simple
tree is copied from the real one, after a check that no file was lost that no client deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeVar

import pytest
from attrs import define, field, frozen
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from commitlog._util.ids import random_id
from commitlog.errors import CommitError, Conflict, OutcomeUnknown
from commitlog.namespace import Data, Namespace
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.namespace import QUICK, Auditor, InterceptedTable, Model, ServiceTable, outcome, stored
from support.selection import examples

T = TypeVar("T")

LAKE = "lake"
SEEDS = st.integers(0, 2**32)

#: Stands for the number of the first write request. Most interesting faults happen before it.
FIRST_WRITE = -1


@frozen
class Write:
    """A write of a file, in one call or in several."""

    path: str
    overwrite: bool
    parents: bool
    body: bytes
    bits: bool

    def run(self, namespace: Namespace) -> object:
        """Perform it."""
        if not self.bits:
            return namespace.write(self.path, self.body, overwrite=self.overwrite, parents=self.parents)
        writer = namespace.open_writer(self.path, overwrite=self.overwrite, parents=self.parents)
        with writer:
            writer.write(self.body)
            return writer.commit()

    def apply(self, model: Model) -> None:
        """Apply it to the simple tree."""
        model.write(self.path, self.body, overwrite=self.overwrite, parents=self.parents)


@frozen
class Make:
    """The creation of a directory."""

    path: str
    shards: int

    def run(self, namespace: Namespace) -> object:
        """Perform it."""
        return namespace.make_directory(self.path, shards=self.shards)

    def apply(self, model: Model) -> None:
        """Apply it to the simple tree."""
        model.make_directory(self.path)


@frozen
class Rename:
    """A rename."""

    source: str
    target: str
    overwrite: bool

    def run(self, namespace: Namespace) -> object:
        """Perform it."""
        return namespace.rename(self.source, self.target, overwrite=self.overwrite)

    def apply(self, model: Model) -> None:
        """Apply it to the simple tree."""
        model.rename(self.source, self.target, overwrite=self.overwrite)


@frozen
class Replace:
    """A replacement of one directory by another."""

    source: str
    target: str
    overwrite = True

    def run(self, namespace: Namespace) -> object:
        """Perform it."""
        return namespace.replace(self.source, self.target)

    def apply(self, model: Model) -> None:
        """Apply it to the simple tree."""
        model.replace(self.source, self.target)


@frozen
class Link:
    """A link of existing objects as files."""

    files: Mapping[str, bytes]
    overwrite: bool
    parents: bool

    @property
    def path(self) -> str:
        """The path of one of the files."""
        return next(iter(self.files))

    def run(self, namespace: Namespace) -> object:
        """Perform it."""
        data = {path: _stored(namespace, body) for path, body in self.files.items()}
        return namespace.link_many(data, overwrite=self.overwrite, parents=self.parents)

    def apply(self, model: Model) -> None:
        """Apply it to the simple tree."""
        model.link_many(self.files, overwrite=self.overwrite, parents=self.parents)


@frozen
class LinkInto:
    """A bulk link of one file in a directory."""

    directory: str
    name: str
    body: bytes

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{self.directory}/{self.name}"

    def run(self, namespace: Namespace) -> object:
        """Perform it."""
        namespace.bulk_link(self.directory, {self.name: _stored(namespace, self.body)})

    def apply(self, model: Model) -> None:
        """Apply it to the simple tree."""
        model.write(self.path, self.body, overwrite=False, parents=False)


def _stored(namespace: Namespace, body: bytes) -> Data:
    return stored(namespace.store, f"stored/{random_id()}", body)


@frozen
class Remove:
    """A deletion."""

    path: str
    recursive: bool

    def run(self, namespace: Namespace) -> object:
        """Perform it."""
        return namespace.delete(self.path, recursive=self.recursive)

    def apply(self, model: Model) -> None:
        """Apply it to the simple tree."""
        model.delete(self.path, recursive=self.recursive)


@frozen
class Quiet:
    """An operation that changes no path: attributes, resharding, emptying the trash, garbage."""

    path: str
    what: str

    def run(self, namespace: Namespace) -> object:
        """Perform it."""
        match self.what:
            case "attributes":
                return namespace.set_attributes(self.path, attributes={"x": "1"})
            case "grow":
                shards = namespace.stat(self.path).entry.shards.now
                return namespace.reshard(self.path, shards=min(2 * shards, 4))
            case "sweep":
                return namespace.maintenance.empty_trash()
        return namespace.maintenance.gc()

    def apply(self, model: Model) -> None:
        """Change nothing."""


_RARELY = (False, False, True)

Operation = Write | Make | Rename | Replace | Link | LinkInto | Remove | Quiet

#: Faults of a write request. Tables repeat reads themselves.
FAULTS = ("dies before", "dies after", "request lost", "answer lost", "late", "conflict")


class Draw:
    """Draws from one seed. Hypothesis draws the seeds; its own values cover too little.

    Args:
        seed: the seed.
        focus: paths that another operation uses; most draws are near these.
    """

    def __init__(self, seed: int, focus: Sequence[str] = ()) -> None:
        self.random = Random(seed)
        self._focus = [tuple(path.split("/")) for path in focus]

    def one_of(self, *options: T) -> T:
        """Return one of the options."""
        return self.random.choice(options)

    def faults(self) -> dict[int, str]:
        """Return the faults of some write requests, by number."""
        return {self.one_of(0, 0, 1, 2): self.one_of(*FAULTS) for _ in range(self.one_of(0, 0, 1, 1, 2))}

    def operation(self, model: Model) -> Operation:
        """Return an operation that a client might run on this tree."""
        flag = self.one_of(False, True)
        match self.one_of(
            *("write", "write", "link", "bulk link", "make", "delete", "quiet"),
            *("rename", "rename", "rename", "rename over", "replace"),
        ):
            case "write":
                body = self.random.randbytes(self.one_of(1, 2, 3))
                path = self.one_of(self.free, self.there, self.file, self.anywhere)(model)
                return Write(path, flag, self.one_of(True, True, False), body, self.one_of(*_RARELY))
            case "make":
                path = self.one_of(self.free, self.anywhere)(model)
                return Make(path, self.one_of(1, 1, 2))
            case "rename":
                return Rename(self.there(model), self.free(model), flag)
            case "rename over":
                either = self.one_of(self.there, self.anywhere)
                return Rename(self.there(model), either(model), flag)
            case "replace":
                either = self.one_of(self.there, self.there, self.anywhere)
                return Replace(self.there(model), either(model))
            case "link":
                paths = [self.one_of(self.free, self.file, self.anywhere)(model) for _ in range(3)]
                bodies = {path: self.random.randbytes(1) for path in paths[self.one_of(0, 1) :]}
                return Link(bodies, flag, self.one_of(True, True, False))
            case "bulk link":
                directory, _, name = self.free(model).rpartition("/")
                return LinkInto(directory or self.there(model), name, self.random.randbytes(2))
            case "delete":
                return Remove(self.there(model), flag)
        path = self.one_of(self.there(model), "")
        return Quiet(path, self.one_of("attributes", "grow", "sweep", "collect"))

    def there(self, model: Model) -> str:
        """Return a path that exists."""
        near = [each for each in self._near() if each in model.nodes]
        return "/".join(self.random.choice(near or sorted(model.nodes)[1:] or [("a",)]))

    def file(self, model: Model) -> str:
        """Return the path of a file, if there is any."""
        files = [each for each, body in sorted(model.nodes.items()) if body is not None]
        return self.there(model) if not files else "/".join(self.random.choice(files))

    def free(self, model: Model) -> str:
        """Return a path that may be free, in an existing directory."""
        directories = [each for each, body in sorted(model.nodes.items()) if body is None]
        near = [each for each in self._near() if each in directories]
        directories = near or directories
        return "/".join([*self.random.choice(directories), self.one_of(*"abcd")])

    def _near(self) -> list[tuple[str, ...]]:
        if not self._focus or self.one_of(True, False, False):
            return []
        path = self.random.choice(self._focus)
        return [each for each in (path, path, path[:-1], path[:-2]) if each]

    def anywhere(self, _: Model) -> str:
        """Return any path."""
        return "/".join(self.one_of(*"abc") for _ in range(self.one_of(1, 2, 3)))


class Dies(BaseException):
    """The end of a client's process."""


@define
class Client:
    """A client process.

    Attributes:
        wire: its connection to the table.
        namespace: its namespace.
    """

    wire: InterceptedTable
    namespace: Namespace


@define
class Running:
    """An operation in progress.

    Attributes:
        operation: the operation.
        others: seeds of operations of other clients, by the number of the request that follows.
        faults: faults of its write requests, by number.
        disturbed: whether other clients changed something in between.
        took_effect: number of times that it did.
        reported: outcome for its caller: "done", "failed" or "unknown"; empty while it runs.
    """

    operation: Operation
    others: dict[int, list[int]] = field(factory=dict)
    faults: dict[int, str] = field(factory=dict)
    disturbed: bool = False
    took_effect: int = 0
    reported: str = ""


class Namespaces(RuleBasedStateMachine):
    """Up to four clients, a table, a store, and a simple tree."""

    @initialize(stable=st.booleans(), clients=st.integers(2, 4))
    def begin(self, stable: bool, clients: int) -> None:
        """Create a namespace."""
        self.stable = stable
        self.clock = ManualClock()
        self.table = ServiceTable(clock=self.clock)
        self.store = MemoryStore(clock=self.clock)
        self.clients = [self._client() for _ in range(clients)]
        namespace = self.clients[0].namespace
        namespace.create()
        self.model = Model()
        for path in ("a/b/c", "b/c", "c/a"):
            namespace.make_directory(path)
            self.model.make_directory(path)
        self.auditor = Auditor(self.table, LAKE, self.store)
        self.fuzzy = False
        #: Requests that have not arrived yet, with their operations.
        self.late: list[tuple[Running, Callable[[], object]]] = []
        self.kept: set[str] = set()
        self.may_lose = False

    def _client(self) -> Client:
        wire = InterceptedTable(self.table)
        namespace = Namespace(
            wire,
            self.store,
            LAKE,
            clock=self.clock,
            backoff=QUICK,
            grace=0,
            stable_paths=self.stable,
        )
        return Client(wire, namespace)

    # steps

    @rule(seed=SEEDS)
    def alone(self, seed: int) -> None:
        """Without faults an operation changes the tree as the simple tree, or is refused as there."""
        draw = Draw(seed)
        operation = draw.operation(self.model)
        wanted = self.model.copy()
        refused = outcome(lambda: operation.apply(wanted))
        found = self._run(draw.one_of(0, 1, 2, 3), Running(operation))
        assert isinstance(operation, Quiet) or found is refused
        self._compare()

    @rule(seed=SEEDS)
    def disturbed(self, seed: int) -> None:
        """Run an operation with changes by other clients, or with faults."""
        draw = Draw(seed)
        running = Running(draw.operation(self.model), faults=draw.faults())
        for _ in range(draw.one_of(0, 1, 1, 2, 3)):
            at = draw.one_of(FIRST_WRITE, draw.random.randrange(7))
            running.others.setdefault(at, []).append(draw.random.getrandbits(32))
        self._run(draw.one_of(0, 1, 2, 3), running)
        self._compare()
        self.clock.advance(draw.one_of(0, 0, 0, 1))
        if draw.one_of(True, False):
            self._arrive()
            self._compare()

    def _arrive(self) -> None:
        """Let the late requests arrive."""
        late, self.late = self.late, []
        for running, perform in late:
            self._perform(running, perform, late=True)

    # inside

    def _run(self, number: int, running: Running) -> type[CommitError] | None:
        client = self.clients[number % len(self.clients)]
        requests = writes = 0
        failed: CommitError | None = None

        def step(what: str, perform: Callable[[], object]) -> None:
            nonlocal requests, writes
            requests += 1
            mutates = what not in ("get", "query", "scan")
            others = running.others.pop(requests - 1, [])
            if mutates:
                others += running.others.pop(FIRST_WRITE, [])
            for other in others:
                self._disturb(number, running, other)
            fault = None
            if mutates:
                writes += 1
                fault = running.faults.pop(writes - 1, None)
            if fault is None:
                self._perform(running, perform)
            else:
                self._go_wrong(fault, running, perform)

        client.wire.step = step
        try:
            running.operation.run(client.namespace)
        except Dies:
            running.reported = "unknown"
            self.clients[number % len(self.clients)] = self._client()
            return None
        except OutcomeUnknown as error:
            running.reported = "unknown"
            return type(error)
        except CommitError as error:
            running.reported = "failed"
            failed = error
        finally:
            client.wire.step = lambda what, perform: perform()
        if failed is not None:
            assert not running.took_effect, f"it failed with {failed!r}, but took effect"
            return type(failed)
        running.reported = "done"
        if not isinstance(running.operation, (Quiet, Make, Rename, Replace)):
            assert running.took_effect == 1, "it was done, but took no effect"
        return None

    def _disturb(self, number: int, running: Running, seed: int) -> None:
        others = [each for each in range(len(self.clients)) if each != number % len(self.clients)]
        running.disturbed = True
        operation = running.operation
        paths = [getattr(operation, name, "") for name in ("path", "source", "target")]
        draw = Draw(seed, [path for path in paths if path])
        operation = draw.operation(self.model)
        self._run(draw.one_of(*others), Running(operation, disturbed=self.fuzzy))

    def _go_wrong(self, fault: str, running: Running, perform: Callable[[], object]) -> None:
        match fault:
            case "dies before":
                raise Dies
            case "conflict":
                raise Conflict("somebody else was there; nothing happened")
            case "late":
                self.late.append((running, perform))
            case "dies after" | "answer lost":
                self._perform(running, perform)
        if fault == "dies after":
            raise Dies
        raise OutcomeUnknown("no answer")

    def _perform(self, running: Running, perform: Callable[[], object], *, late: bool = False) -> None:
        before = len(self.table.applied)
        try:
            perform()
        except CommitError:
            if late:
                return
            raise
        operation = running.operation
        if len(self.table.applied) == before:
            return
        if isinstance(operation, Quiet):
            return
        running.took_effect += 1
        assert running.took_effect == 1, "it took effect twice"
        assert running.reported in ("", "unknown"), (
            f"it was {running.reported}, and took effect after that"
        )
        self.may_lose |= isinstance(operation, Remove) or getattr(operation, "overwrite", False)
        if self.stable or not (running.disturbed or late or self.fuzzy):
            operation.apply(self.model)  # must succeed
        else:
            self.fuzzy = True

    def _compare(self) -> None:
        """Check all invariants, and that the tree equals the simple tree."""
        tree = self.auditor.audit()
        found = Model()
        for path, entry in tree.items():
            body = None if entry.data is None else self.store.get(entry.data.path).data
            found.nodes[tuple(path.split("/"))] = body
        files = {entry.id for entry in tree.values() if not entry.is_directory}
        if not self.fuzzy:
            assert found == self.model
        elif not self.may_lose:
            assert files >= self.kept, "files are gone that nobody deleted"
        self.model, self.fuzzy, self.may_lose, self.kept = found, False, False, files

    def teardown(self) -> None:
        """Empty the trash and collect all garbage in the end."""
        if not hasattr(self, "clients"):
            return
        self._arrive()
        self._compare()
        before = self.model.copy()
        namespace = self._client().namespace
        namespace.maintenance.empty_trash()
        self._compare()
        assert self.model == before
        self.clock.advance(1)
        collected = namespace.maintenance.gc()
        assert not collected.failed
        items = [str(item["place"]).split("/")[1:3] for item in self.table.scan()]
        left = [place for place in items if place[:2] == ["e", "trash"] or place[:1] == ["x"]]
        assert not left, "something stays in the trash"


Namespaces.TestCase.settings = settings(
    max_examples=examples(30, 100),
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


class TestNamespaces(Namespaces.TestCase):  # type: ignore[name-defined,misc]
    """No file is lost, no change is made twice, and none is made after it was reported as failed."""


@pytest.mark.campaign
class TestManyNamespaces(Namespaces.TestCase):  # type: ignore[name-defined,misc]
    """More and longer histories."""

    settings = settings(
        max_examples=2_000,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
