"""Measuring which conditions a store enforces: there are stores that answer 200 and ignore them.

Everything happens below a scratch prefix of its own, which is removed in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from attrs import frozen

from commitlog._util.concurrency import Executor
from commitlog._util.ids import random_id
from commitlog._util.tracing import carried
from commitlog.commit.mutation import bare, quoted
from commitlog.commit.probe_report import BARE, Kind, ProbeReport, ProbeResult
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
    IfAbsent,
    IfMatch,
    ObjectInfo,
    ObjectStore,
    Operation,
    RequestExpiry,
)

__all__ = ["PREFIX", "RACERS", "probe"]

#: The prefix of scratch paths. Objects that a killed probe left there can be removed.
PREFIX = ".commitlog-probe-"

#: Rounds of a race. Completing uploads is raced longest: a store is known where a quarter of the rounds,
#: of eight racers each, had several winners and the others none too many.
_ROUNDS = {Operation.PUT: 6, Operation.COPY: 6, Operation.DELETE: 6, Operation.PUBLISH: 24}
#: Requests of one race.
RACERS = 8

#: Results that say nothing about the store unless they occur in every try.
_PASSING = frozenset({"Conflict", "OutcomeUnknown"})
_TRIES = 3


@frozen
class _Racer:
    """A request that is ready to be sent, and the nonce that it would write."""

    nonce: str
    send: Callable[[], object]


def probe(
    store: ObjectStore,
    *,
    kinds: Iterable[Kind] = tuple(Kind),
    executor: Executor | None = None,
    new_id: Callable[[], str] = random_id,
) -> ProbeReport:
    """Test how the store handles conditions and expired requests.

    Args:
        store: the store; all requests use one new prefix, and all objects are removed.
        kinds: the kinds to test; all by default. docs/protocol.md has the number of requests of each.
        executor: runs races, eight requests at a time. Without it there are no races, and nothing is
            proven: a store may honour each condition alone, and still let two racers win.
        new_id: makes unique ids.

    A race with one winner is not a full proof. The race is run long enough to expose the stores that
    are known to fail.

    Raises `AccessDenied`, `BucketNotFound` or `Unavailable` if nothing can be measured. Any other
    response is a result; a lost response or a conflict only if it happens every time.
    """
    return _Probe(store, executor, new_id).run(kinds)


class _Probe:
    def __init__(self, store: ObjectStore, executor: Executor | None, new_id: Callable[[], str]) -> None:
        self._store = store
        self._executor = executor
        self._new_id = new_id
        # No directory of its own: some stores keep a directory that was once needed.
        self._root = f"{PREFIX}{new_id()}-"

    def run(self, kinds: Iterable[Kind]) -> ProbeReport:
        rows: list[ProbeResult] = []
        try:
            for kind in kinds:
                rows.extend(self._measure(kind))
        finally:
            self._clean_up()
        return ProbeReport(url=self._store.url, rows=rows)

    def _measure(self, kind: Kind) -> list[ProbeResult]:
        """Return the rows of one kind; a lost answer may be the network's doing: try again."""
        rows: list[ProbeResult] = []
        for _ in range(_TRIES):
            lost = None
            try:
                rows = list(self._expiry() if kind is Kind.REQUEST_EXPIRY else self._condition(kind))
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

    # -- conditions ----------------------------------------------------------------------------------

    def _condition(self, kind: Kind) -> Iterator[ProbeResult]:
        """Yield the rows of one kind; the race comes last, and only if all is well without it."""
        name, _, wanted = kind.value.partition("-if-")
        operation = Operation(name)
        absent = wanted == "absent"
        if not self._store.capabilities.carries(operation, IfAbsent() if absent else IfMatch("x")):
            yield ProbeResult(
                kind=kind, check="accept", expected="done", got="the client cannot ask for it", ok=False
            )
            return
        rows = list(self._absent(kind, operation) if absent else self._match(kind, operation))
        yield from rows
        is_bare = any(row.check.startswith("refuse") and row.check.endswith(BARE) for row in rows)
        checks = kind.bare_checks if is_bare else kind.checks
        if all(row.ok for row in rows if row.check in checks) and self._executor is not None:
            yield self._race(kind, operation, None if absent else _spelling(is_bare), self._executor)

    def _absent(self, kind: Kind, operation: Operation) -> Iterator[ProbeResult]:
        path = self._path()
        got, info = self._try(path, self._prepare(operation, path, IfAbsent()).send)
        done = got == "done" and info is not None
        yield ProbeResult(kind=kind, check="accept", expected="done", got=got, ok=done)
        path, before = self._existing()
        got, info = self._try(path, self._prepare(operation, path, IfAbsent()).send)
        yield self._refusal(kind, "refuse", AlreadyExists, got, before, info)

    def _match(self, kind: Kind, operation: Operation) -> Iterator[ProbeResult]:
        delete = operation is Operation.DELETE
        accepted: list[bool] = []
        for is_bare in (False, True):
            if not any(accepted) or kind is Kind.PUT_IF_MATCH:
                path, before = self._existing()
                condition = IfMatch(_spelling(is_bare)(before.etag))
                got, info = self._try(path, self._prepare(operation, path, condition).send)
                changed = info is None if delete else info is not None and info.nonce != before.nonce
                ok = got == "done" and changed
                check = "accept" + BARE * is_bare
                yield ProbeResult(kind=kind, check=check, expected="done", got=got, ok=ok)
                accepted.append(ok)
        # A store that does not take quotes refuses each quoted etag. So the checks that follow use bare
        # ones there.
        is_bare = accepted == [False, True]
        spell, end = _spelling(is_bare), BARE * is_bare
        path, old = self._existing()
        self._store.put(path, self._new_id().encode(), metadata={NONCE: self._new_id()})
        now = self._store.head(path)
        got, info = self._try(path, self._prepare(operation, path, IfMatch(spell(old.etag))).send)
        yield self._refusal(kind, "refuse" + end, PreconditionFailed, got, now, info)
        path = self._path()
        got, info = self._try(path, self._prepare(operation, path, IfMatch(spell(old.etag))).send)
        yield self._refusal(kind, "refuse missing" + end, PreconditionFailed, got, None, info)

    def _refusal(
        self,
        kind: Kind,
        check: str,
        error: type[CommitError],
        got: str,
        before: ObjectInfo | None,
        after: ObjectInfo | None,
    ) -> ProbeResult:
        same = (before and before.nonce) == (after and after.nonce)
        if not same:
            got += ", and it took effect"
        expected = error.__name__
        return ProbeResult(kind=kind, check=check, expected=expected, got=got, ok=got == expected)

    def _race(
        self, kind: Kind, operation: Operation, spell: Callable[[str], str] | None, executor: Executor
    ) -> ProbeResult:
        """Race for an object that is not there, or for one whose etag is spelled so."""
        rounds = _ROUNDS[operation]
        won = 0
        several: list[int] = []
        for _ in range(rounds):
            winners = self._race_once(operation, spell, executor)
            won += winners == 1
            if winners > 1:
                several.append(winners)
        got = f"one winner in {won} of {rounds} rounds"
        if several:
            got += f", up to {max(several)} in {len(several)}"
        # A round without a winner breaks no guarantee: all requests got a conflict.
        ok = not several and won > 0
        check = "race" + BARE * (spell is bare)
        return ProbeResult(kind=kind, check=check, expected="one winner in each round", got=got, ok=ok)

    def _race_once(
        self, operation: Operation, spell: Callable[[str], str] | None, executor: Executor
    ) -> int:
        """Return how many of the racers won; two also if the object is not that of the one that did."""
        condition: Condition
        if spell is None:
            path, condition = self._path(), IfAbsent()
        else:
            path, before = self._existing()
            condition = IfMatch(spell(before.etag))
        racers = [self._prepare(operation, path, condition) for _ in range(RACERS)]

        def run(racer: _Racer) -> str | None:
            try:
                racer.send()
            except CommitError:
                return None
            return racer.nonce

        winners = [nonce for nonce in executor.map(carried(run), racers) if nonce is not None]
        info = self._store.begin_head(path)().info
        if len(winners) == 1 and (None if info is None else info.nonce) not in (winners[0], None):
            return 2
        return len(winners)

    # -- expiry --------------------------------------------------------------------------------------

    def _expiry(self) -> Iterator[ProbeResult]:
        path = self._path()
        now = self._store.begin_head(path)().store_time
        if not self._store.capabilities.request_expiry or now is None:
            yield ProbeResult(
                kind=Kind.REQUEST_EXPIRY,
                check="accept",
                expected="done",
                got="the client cannot ask for it"
                if now is not None
                else "the store does not report its time",
                ok=False,
            )
            return
        # It is late by as little as whole seconds allow. If answers are dated by another clock, such as
        # a proxy's, which is ahead of the one that checks expiries, the store takes the late request.
        for check, expiry, expected in (
            ("accept", RequestExpiry(now, 30), "done"),
            ("refuse", RequestExpiry(now - 3, 1), "RequestExpired"),
        ):
            got, _ = self._try(path, partial(self._store.put, path, b"", expiry=expiry))
            yield ProbeResult(
                kind=Kind.REQUEST_EXPIRY, check=check, expected=expected, got=got, ok=got == expected
            )

    # -- scratch objects -----------------------------------------------------------------------------

    def _path(self) -> str:
        return self._root + self._new_id()

    def _existing(self) -> tuple[str, ObjectInfo]:
        path = self._path()
        self._store.put(path, self._new_id().encode(), metadata={NONCE: self._new_id()})
        return path, self._store.head(path)

    def _prepare(self, operation: Operation, path: str, condition: Condition) -> _Racer:
        """Return a request that is ready to be sent."""
        nonce = self._new_id()
        metadata, body = {NONCE: nonce}, nonce.encode()
        store = self._store
        if operation is Operation.PUT:
            return _Racer(nonce, lambda: store.put(path, body, condition=condition, metadata=metadata))
        if operation is Operation.COPY:
            source = self._path()
            store.put(source, body, metadata=metadata)
            return _Racer(nonce, lambda: store.copy(source, path, condition=condition))
        if operation is Operation.PUBLISH:
            staged = store.stage(path, body, metadata=metadata)
            return _Racer(nonce, lambda: store.publish(staged, condition=condition))
        assert isinstance(condition, IfMatch)
        return _Racer(nonce, lambda: store.delete(path, condition=condition))

    def _try(self, path: str, send: Callable[[], object]) -> tuple[str, ObjectInfo | None]:
        try:
            send()
            got = "done"
        except (AccessDenied, BucketNotFound, Unavailable):
            raise
        except CommitError as error:
            got = type(error).__name__
        return got, self._store.begin_head(path)().info

    def _clean_up(self) -> None:
        with suppress(CommitError):
            for upload in list(self._store.list_staged(self._root)):
                self._store.abort(upload)
            self._store.delete_many([info.path for info in self._store.list(self._root)])


def _spelling(is_bare: bool) -> Callable[[str], str]:
    return bare if is_bare else quoted
