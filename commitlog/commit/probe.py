"""Measuring which conditions a store enforces: there are stores that answer 200 and ignore them.

Everything happens below a scratch prefix of its own, which is removed in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from math import ceil

from attrs import evolve, frozen

from commitlog._util.concurrency import Executor
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog._util.tracing import carried
from commitlog.clock import Clock, SystemClock
from commitlog.commit.mutation import matching
from commitlog.commit.probe_report import Kind, ProbeReport, ProbeResult, check_name
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    CommitError,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import (
    NONCE,
    Condition,
    Dialect,
    IfAbsent,
    IfMatch,
    ObjectInfo,
    ObjectStore,
    RequestExpiry,
    Versioning,
    WriteOperation,
)

__all__ = ["PREFIX", "RACERS", "ROUNDS", "THREADS", "probe"]

#: The prefix of scratch paths. Objects that a killed probe left there can be removed.
PREFIX = ".commitlog-probe-"

#: Requests of one race.
RACERS = 8
#: Races of a kind of request. A store that checks a condition, and stores the object 1 ms later, lets
#: several racers win if the second one checks within that time. Let the requests of a race arrive evenly
#: over s ms. Then one race misses the fault with a chance of (1 - 1/s)^8, and 64 races with
#: (1 - 1/s)^512: less than one in a million, up to s = 37.
ROUNDS = 64
#: After so many seconds, so many races suffice: up to s = 14. SeaweedFS takes a second for each.
_SECONDS, _FEWEST = 20.0, 24
#: Races that are under way at a time. They begin one after the other, so that they disturb each other
#: little, and a store that takes long for each does not delay the others.
_AT_ONCE = 4
#: Threads that the executor of a probe needs.
THREADS = RACERS * _AT_ONCE
#: Seconds between the starts of two races, and before the first: until then all threads wait.
_APART = 0.01
#: The racers begin at random times, over a random span of at most so many seconds: whatever makes some
#: requests slower than others, such as a new connection, does not keep them apart each time.
_SPAN = 0.008
#: A race counts if all its requests began within so many seconds. This leaves 17 ms to the network.
_CLOSE = 0.02
#: The races may take so many times the number that is needed, where this machine is too slow.
_PATIENCE = 16
#: Bytes of the body of each racer, in random order. A store that checks a condition when a request
#: begins has the object only when the body is there, which takes longer for larger ones.
_SIZES = (0, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10)

#: Results that say nothing about the store unless they occur in every try.
_PASSING = frozenset({"Conflict", "OutcomeUnknown"})
_TRIES = 3


@frozen
class _Racer:
    """A request that is ready to be sent, and the nonce that it would write."""

    nonce: str
    send: Callable[[], object]


@frozen
class _Test:
    """A kind of request to test, in a dialect."""

    kind: Kind
    operation: WriteOperation
    condition: type[IfAbsent] | type[IfMatch]
    dialect: Dialect = Dialect.STANDARD

    def on(self, etag: str) -> Condition:
        """Return the condition, on an object with `etag` if it is `IfMatch`."""
        return IfAbsent(self.dialect) if self.condition is IfAbsent else matching(etag, self.dialect)

    def row(self, check: str, expected: str, got: str, *, ok: bool) -> ProbeResult:
        """Return the result of a check."""
        name = check_name(check, self.dialect)
        return ProbeResult(kind=self.kind, check=name, expected=expected, got=got, ok=ok)


def probe(
    store: ObjectStore,
    *,
    kinds: Iterable[Kind] = tuple(Kind),
    executor: Executor | None = None,
    new_id: Callable[[], str] = random_id,
    clock: Clock | None = None,
    rounds: int = ROUNDS,
) -> ProbeReport:
    """Test how the store handles conditions and expired requests.

    Args:
        store: the store; all requests use one new prefix, and all objects are removed.
        kinds: the kinds to test; all by default. docs/protocol.md has the number of requests of each.
        executor: runs races, with `THREADS` threads. Without it there are no races, and nothing is
            proven: a store may honour each condition alone, and still let two racers win.
        new_id: makes unique ids.
        clock: times the races; the system's by default.
        rounds: number of races of each kind. Fewer than `ROUNDS` prove less.

    Where the store does not honour the standard condition, the headers of vendors are tried, see
    `commitlog.stores.s3.dialects`. One that a bucket with versions ignores is not proven if the store
    says that the bucket has, or had, versioning, whatever the checks show.

    A store that checks a condition, and stores the object 1 ms later or more, is taken for one that
    honours it with a chance below one in a million, see `ROUNDS` and docs/protocol.md. A shorter time
    is found less surely. After an interrupt, scratch objects may remain.

    Raises `AccessDenied`, `BucketNotFound` or `Unavailable` if nothing can be measured. Any other
    response is a result; a lost response or a conflict only if it happens every time.
    """
    probing = _Probe(
        store,
        executor,
        new_id,
        clock=SystemClock() if clock is None else clock,
        rounds=rounds,
    )
    return probing.run(kinds)


class _Probe:
    def __init__(
        self,
        store: ObjectStore,
        executor: Executor | None,
        new_id: Callable[[], str],
        *,
        clock: Clock,
        rounds: int,
    ) -> None:
        self._store = store
        self._executor = executor
        self._new_id = new_id
        self._clock = clock
        self._rounds = rounds
        self._random = Backoff().random
        self._versioning: Versioning | None = None
        # No directory of its own: some stores keep a directory that was once needed.
        self._root = f"{PREFIX}{new_id()}-"

    def run(self, kinds: Iterable[Kind]) -> ProbeReport:
        rows: list[ProbeResult] = []
        try:
            for kind in kinds:
                rows.extend(self._measure(kind))
        except Exception:
            self._clean_up()
            raise
        # Not after an interrupt: a store that does not answer would delay its end by minutes.
        self._clean_up()
        return ProbeReport(url=self._store.url, rows=rows, versioning=self._versioning)

    def _measure(self, kind: Kind) -> list[ProbeResult]:
        """Return the rows of one kind, in the standard dialect, and else in those of vendors."""
        if kind is Kind.REQUEST_EXPIRY:
            return self._repeated(self._expiry)
        name, _, wanted = kind.value.partition("-if-")
        test = _Test(kind, WriteOperation(name), IfAbsent if wanted == "absent" else IfMatch)
        capabilities = self._store.capabilities
        if not capabilities.carries(test.operation, test.on("x")):
            return [test.row("accept", "done", "the client cannot ask for it", ok=False)]
        spoken = capabilities.dialects_of(test.operation, test.condition)
        common = [evolve(test, dialect=dialect) for dialect in spoken if not dialect.is_vendors]
        rows = self._repeated(lambda: self._common(common)) if common else []
        for dialect in spoken:
            if dialect.is_vendors and not self._suffices(kind, rows):
                vendors = evolve(test, dialect=dialect)
                rows += self._repeated(partial(self._vendors, vendors))
        return rows

    def _repeated(self, make: Callable[[], Iterable[ProbeResult]]) -> list[ProbeResult]:
        """Return the rows of some checks; a lost answer may be the network's doing: try again."""
        rows: list[ProbeResult] = []
        for _ in range(_TRIES):
            lost = None
            try:
                rows = list(make())
            except OutcomeUnknown as error:
                lost = error
                continue
            if not any(row.got.partition(",")[0] in _PASSING for row in rows):
                break
        if lost is not None:
            # The unknown outcome is that of a scratch object: the caller's operation has not begun.
            raise Unavailable(
                f"{self._store.url} could not be probed, and nothing else was begun; try again. "
                f"The outcome for a scratch object is unknown: {lost}"
            ) from lost
        return rows

    def _suffices(self, kind: Kind, rows: Iterable[ProbeResult]) -> bool:
        """Return whether a dialect has passed all checks that were made: others need not be tried."""
        passed = {row.check for row in rows if row.ok}
        skipped = frozenset({"race"} if self._executor is None else ())
        return any({check_name(c, each) for c in kind.checks - skipped} <= passed for each in Dialect)

    # -- conditions ----------------------------------------------------------------------------------

    def _common(self, tests: Sequence[_Test]) -> Iterator[ProbeResult]:
        """Yield the rows of the standard conditions, with quoted etags or bare ones.

        The race comes last, and only if all is well without it.
        """
        rows: list[ProbeResult] = []
        chosen = tests[0]
        for test in tests:
            if not any(row.ok for row in rows) or test.kind is Kind.PUT_IF_MATCH:
                # A store that does not take quotes refuses each quoted etag. So the checks that follow
                # use bare ones there.
                before, row = rows[:], self._accept(test)
                chosen = test if row.ok and not any(row.ok for row in before) else chosen
                rows.append(row)
                yield row
        for row in self._refuse(chosen):
            rows.append(row)
            yield row
        checks = chosen.kind.checks_in(chosen.dialect)
        if all(row.ok for row in rows if row.check in checks) and self._executor is not None:
            yield self._race(chosen, self._executor)

    def _vendors(self, test: _Test) -> Iterator[ProbeResult]:
        """Yield the rows of a vendor's dialect, up to the first one that fails.

        The refusals come first: most other stores ignore the header.
        """
        for row in chain(self._refuse(test), (self._accept(test) for _ in range(1))):
            yield row
            if not row.ok:
                return
        if test.dialect.needs_unversioned:
            self._versioning = self._versioning or self._store.versioning()
            if self._versioning not in (None, Versioning.NEVER):
                # By the vendor's documents, the store ignores the header there.
                why = f"done, but the versioning of the bucket is {self._versioning.value}"
                yield test.row("accept", "done", why, ok=False)
                return
        if self._executor is not None:
            yield self._race(test, self._executor)

    def _accept(self, test: _Test) -> ProbeResult:
        """Return the row of a condition that holds."""
        etag, before = "", None
        path = self._path()
        if test.condition is IfMatch:
            path, before = self._existing()
            etag = before.etag
        racer = self._prepare(test.operation, path, test.on(etag))
        got, info = self._try(test, path, racer.send)
        if test.operation is WriteOperation.DELETE:
            changed = info is None
        else:
            changed = info is not None and (before is None or info.nonce != before.nonce)
            if changed and test.dialect.is_vendors and (info and info.nonce) != racer.nonce:
                # A writer would not recognize its own write after a lost answer.
                got = f"{got}, without its metadata"
        return test.row("accept", "done", got, ok=got == "done" and changed)

    def _refuse(self, test: _Test) -> Iterator[ProbeResult]:
        """Yield the rows of conditions that do not hold."""
        path, old = self._existing()
        error: type[CommitError] = AlreadyExists
        now = old
        if test.condition is IfMatch:
            error = PreconditionFailed
            self._store.put(path, self._new_id().encode(), metadata={NONCE: self._new_id()})
            now = self._store.head(path)
        if test.dialect is Dialect.GCS and now.version is None:
            # No other store understands the signature of its requests.
            why = "not tried: the store's answers have no generation"
            yield test.row("refuse", error.__name__, why, ok=False)
            return
        got, info = self._try(test, path, self._prepare(test.operation, path, test.on(old.etag)).send)
        yield self._refusal(test, "refuse", error, got, now, info)
        if test.condition is IfMatch:
            path = self._path()
            racer = self._prepare(test.operation, path, test.on(old.etag))
            got, info = self._try(test, path, racer.send)
            yield self._refusal(test, "refuse missing", error, got, None, info)

    def _refusal(
        self,
        test: _Test,
        check: str,
        error: type[CommitError],
        got: str,
        before: ObjectInfo | None,
        after: ObjectInfo | None,
    ) -> ProbeResult:
        same = (before and before.nonce) == (after and after.nonce)
        if not same:
            got += ", and it took effect"
        return test.row(check, error.__name__, got, ok=got == error.__name__)

    def _race(self, test: _Test, executor: Executor) -> ProbeResult:
        """Race for objects that are not there, or that have an etag. Stops once several have won."""
        counted = won = most = 0
        wanted, late = self._rounds, self._clock.monotonic() + _SECONDS
        for _ in range(_PATIENCE * ceil(self._rounds / _AT_ONCE)):
            for winners, close in self._race_some(test, executor):
                most = max(most, winners)
                counted += close
                won += close and winners == 1
            if self._clock.monotonic() > late:
                wanted = min(wanted, _FEWEST)
            if most > 1 or counted >= wanted:
                break
        got = f"one winner in {won} of {counted} rounds"
        if most > 1:
            got = f"{most} winners in a round"
        elif counted < wanted:
            got += f" of {wanted} that are needed: the requests of others were not sent together"
        # A round without a winner breaks no guarantee: all requests got a conflict.
        return test.row(
            "race", "one winner in each round", got, ok=most <= 1 and won > 0 and counted >= wanted
        )

    def _race_some(self, test: _Test, executor: Executor) -> list[tuple[int, bool]]:
        """Return of some races the number of winners, and whether their requests began together."""
        races = list(executor.map(carried(lambda _: self._target(test)), range(_AT_ONCE)))
        sizes = [size for _ in races for size in self._random.sample(_SIZES, RACERS)]
        entries = [race for race in races for _ in range(RACERS)]
        prepare = carried(lambda each: self._prepare(test.operation, *each[0], size=each[1]))
        racers = list(executor.map(prepare, zip(entries, sizes, strict=True)))
        first = self._clock.monotonic() + _APART
        starts: list[float] = []
        for number in range(_AT_ONCE):
            span = self._random.uniform(0, _SPAN)
            begin = first + number * _APART
            starts += [begin + self._random.uniform(0, span) for _ in range(RACERS)]

        def run(racer: _Racer, start: float) -> tuple[str | None, float]:
            self._clock.sleep(start - self._clock.monotonic())
            began = self._clock.monotonic()
            try:
                racer.send()
            except CommitError:
                return None, began
            return racer.nonce, began

        ends = list(executor.map(carried(lambda each: run(*each)), zip(racers, starts, strict=True)))
        groups = [ends[at : at + RACERS] for at in range(0, len(ends), RACERS)]
        judge = carried(lambda each: self._judge(each[0][0], each[1]))
        return list(executor.map(judge, zip(races, groups, strict=True)))

    def _target(self, test: _Test) -> tuple[str, Condition]:
        """Return the path of a race, and the condition of its requests."""
        if test.condition is IfAbsent:
            return self._path(), test.on("")
        path, before = self._existing()
        return path, test.on(before.etag)

    def _judge(self, path: str, ends: Sequence[tuple[str | None, float]]) -> tuple[int, bool]:
        """Return how many racers won; two also if the object is not that of the one that did."""
        winners = [nonce for nonce, _ in ends if nonce is not None]
        began = [time for _, time in ends]
        info = self._store.begin_head(path)().info
        many = len(winners)
        if many == 1 and (None if info is None else info.nonce) not in (winners[0], None):
            many = 2
        return many, max(began) - min(began) <= _CLOSE

    # -- expiry --------------------------------------------------------------------------------------

    def _expiry(self) -> Iterator[ProbeResult]:
        test = _Test(Kind.REQUEST_EXPIRY, WriteOperation.PUT, IfAbsent)
        path = self._path()
        now = self._store.begin_head(path)().store_time
        if not self._store.capabilities.request_expiry or now is None:
            why = "the store does not report its time" if now is None else "the client cannot ask for it"
            yield test.row("accept", "done", why, ok=False)
            return
        # It is late by as little as whole seconds allow. If answers are dated by another clock, such as
        # a proxy's, which is ahead of the one that checks expiries, the store takes the late request.
        for check, expiry, expected in (
            ("accept", RequestExpiry(now, 30), "done"),
            ("refuse", RequestExpiry(now - 3, 1), "RequestExpired"),
        ):
            put = partial(self._store.put, path, b"", expiry=expiry)
            got, _ = self._try(test, path, put)
            yield test.row(check, expected, got, ok=got == expected)

    # -- scratch objects -----------------------------------------------------------------------------

    def _path(self) -> str:
        return self._root + self._new_id()

    def _existing(self) -> tuple[str, ObjectInfo]:
        path = self._path()
        self._store.put(path, self._new_id().encode(), metadata={NONCE: self._new_id()})
        return path, self._store.head(path)

    def _prepare(
        self, operation: WriteOperation, path: str, condition: Condition, *, size: int = 0
    ) -> _Racer:
        """Return a request that is ready to be sent, with a body of `size` bytes or a few more."""
        nonce = self._new_id()
        metadata, body = {NONCE: nonce}, nonce.encode() + bytes(size)
        store = self._store
        if operation is WriteOperation.PUT:
            return _Racer(nonce, lambda: store.put(path, body, condition=condition, metadata=metadata))
        if operation is WriteOperation.COPY:
            source = self._path()
            store.put(source, body, metadata=metadata)
            return _Racer(nonce, lambda: store.copy(source, path, condition=condition))
        if operation is WriteOperation.PUBLISH:
            staged = store.stage(path, body, metadata=metadata)
            return _Racer(nonce, lambda: store.publish(staged, condition=condition))
        assert isinstance(condition, IfMatch)
        return _Racer(nonce, lambda: store.delete(path, condition=condition))

    def _try(self, test: _Test, path: str, send: Callable[[], object]) -> tuple[str, ObjectInfo | None]:
        try:
            send()
            got = "done"
        except (AccessDenied, BucketNotFound, Unavailable) as error:
            # Another vendor's store, or its policy, may refuse a header that it does not know.
            if not (test.dialect.is_vendors and isinstance(error, AccessDenied)):
                raise
            got = type(error).__name__
        except CommitError as error:
            got = type(error).__name__
        return got, self._store.begin_head(path)().info

    def _clean_up(self) -> None:
        with suppress(CommitError):
            for upload in list(self._store.list_staged(self._root)):
                self._store.abort(upload)
        with suppress(CommitError):  # also without the permission to list uploads
            self._store.delete_many([info.path for info in self._store.list(self._root)])
