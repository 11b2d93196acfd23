"""Checks of the `ObjectStore` contract on conditions, races and the expiry of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
)
from commitlog.stores.api import (
    Condition,
    IfAbsent,
    IfMatch,
    PutResult,
    RequestExpiry,
    WriteOperation,
    same_etag,
)
from commitlog.testing.contract.assertions import assert_raises
from commitlog.testing.contract.store_run import StoreRun, race

__all__ = ["CONDITION_CHECKS"]

_WRITES = (WriteOperation.PUT, WriteOperation.COPY, WriteOperation.PUBLISH)
_NO_ETAG = "00000000000000000000000000000000"


# -- conditions ------------------------------------------------------------------------------------


def _check_create(run: StoreRun) -> None:
    for operation in _WRITES:
        if not run.honours(operation, IfAbsent):
            continue
        path, why = run.path(f"create/{operation.value}"), f"{operation.value} to a path that is taken"
        result = run.write(operation, path, b"first", condition=IfAbsent())
        for data in (b"second", b"first"):
            assert_raises(AlreadyExists, why, run.write, operation, path, data, condition=IfAbsent())
        run.assert_holds(path, b"first", "a refused create")
        assert same_etag(run.store.head(path).etag, result.etag), "a refused create changed the etag"
        run.store.delete(path)
        run.write(operation, path, b"third", condition=IfAbsent())
        run.assert_holds(path, b"third", "a create after a delete")


def _check_update(run: StoreRun) -> None:
    for operation in _WRITES:
        if not run.honours(operation, IfMatch):
            continue
        path, none = run.path(f"update/{operation.value}"), IfMatch(_NO_ETAG)
        why = f"{operation.value} with an etag, where nothing is"
        assert_raises(PreconditionFailed, why, run.write, operation, path, b"0", condition=none)
        run.assert_holds(path, None, "a refused update of nothing")
        old = IfMatch(run.store.put(path, b"1").etag)
        new = run.write(operation, path, b"2", condition=old).etag.strip('"')
        why = f"{operation.value} with an old etag"
        assert_raises(PreconditionFailed, why, run.write, operation, path, b"3", condition=old)
        run.assert_holds(path, b"2", "a refused update")
        new = run.write(operation, path, b"4", condition=IfMatch(new)).etag.strip('"')
        run.write(operation, path, b"5", condition=IfMatch(f'"{new}"'))
        run.assert_holds(path, b"5", "updates with the etag bare and quoted")


def _check_conditional_delete(run: StoreRun) -> None:
    if not run.honours(WriteOperation.DELETE, IfMatch):
        return
    path = run.path("conditional-delete")
    assert_raises(
        PreconditionFailed,
        "delete with an etag, where nothing is",
        run.store.delete,
        path,
        condition=IfMatch(_NO_ETAG),
    )
    old = run.store.put(path, b"1").etag
    new = run.store.put(path, b"2").etag
    assert_raises(
        PreconditionFailed, "delete with an old etag", run.store.delete, path, condition=IfMatch(old)
    )
    run.assert_holds(path, b"2", "a refused delete")
    run.store.delete(path, condition=IfMatch(new))
    run.assert_holds(path, None, "a delete with the right etag")


def _check_not_supported(run: StoreRun) -> None:
    path = run.path("not-supported")
    etag = run.store.put(path, b"1").etag
    conditions: tuple[Condition, ...] = (IfAbsent(), IfMatch(etag))
    for operation in _WRITES:
        for condition in conditions:
            if not run.store.capabilities.carries(operation, condition):
                why = f"{operation.value} with {condition}, which the store does not list"
                assert_raises(NotSupported, why, run.write, operation, path, b"2", condition=condition)
    if not run.store.capabilities.carries(WriteOperation.DELETE, IfMatch(etag)):
        assert_raises(
            NotSupported,
            "delete with a condition, which the store does not list",
            run.store.delete,
            path,
            condition=IfMatch(etag),
        )
    run.assert_holds(path, b"1", "mutations that the store cannot do")


# -- races -----------------------------------------------------------------------------------------


def _check_racing_creates(run: StoreRun) -> None:
    for operation in _WRITES:
        if IfAbsent in run.races.get(operation, frozenset()) and run.honours(operation, IfAbsent):
            for number in range(run.keys):
                path = run.path(f"race/{operation.value}/{number}")
                _race_for(run, operation, path, IfAbsent())


def _check_racing_updates(run: StoreRun) -> None:
    for operation in _WRITES:
        if IfMatch in run.races.get(operation, frozenset()) and run.honours(operation, IfMatch):
            for number in range(run.keys):
                path = run.path(f"race-update/{operation.value}/{number}")
                etag = run.store.put(path, b"old").etag
                _race_for(run, operation, path, IfMatch(etag))


def _race_for(run: StoreRun, operation: WriteOperation, path: str, condition: Condition) -> None:
    bodies = [f"racer {number}".encode() for number in range(run.threads)]
    outcomes = race([partial(run.write, operation, path, body, condition=condition) for body in bodies])
    _assert_one_winner(run, operation, path, bodies, outcomes)


def _assert_one_winner(
    run: StoreRun,
    operation: WriteOperation,
    path: str,
    bodies: Sequence[bytes],
    outcomes: Sequence[PutResult | CommitError],
) -> None:
    won = [body for body, out in zip(bodies, outcomes, strict=True) if isinstance(out, PutResult)]
    unknown = [
        body for body, out in zip(bodies, outcomes, strict=True) if isinstance(out, OutcomeUnknown)
    ]
    for outcome in outcomes:
        expected = (PutResult, AlreadyExists, PreconditionFailed, OutcomeUnknown)
        assert isinstance(outcome, expected), f"a racing {operation.value} ended in {outcome!r}"
    assert len(won) <= 1, f"{len(won)} of {len(bodies)} racers won with {operation.value}: {won}"
    assert won or unknown, f"none of {len(bodies)} racers won with {operation.value}"
    found = run.store.get(path).data
    assert found in (won or unknown), f"{won} won with {operation.value}, but {found!r} is there"


def _check_racing_reads(run: StoreRun) -> None:
    path = run.path("whole")
    sizes = (1, 300_000)
    run.store.put(path, b"0" * sizes[0])

    def write(number: int) -> bytes:
        data = str(number).encode() * sizes[number % 2]
        run.store.put(path, data)
        return data

    def read() -> bytes:
        found = run.store.get(path)
        assert found.size == len(found.data), "size and content are of two versions"
        return found.data

    calls: list[Callable[[], bytes]] = [partial(write, number) for number in range(4)]
    for outcome in race(calls + [read] * 4):
        assert isinstance(outcome, bytes), f"a plain put or get ended in {outcome!r}"
        assert len(outcome) in sizes and len(set(outcome)) == 1, "an object was seen in part"


# -- request expiry ------------------------------------------------------------------------------------


def _mutations(run: StoreRun, expiry: RequestExpiry) -> Sequence[Callable[[], object]]:
    path = run.path("expiring")
    return (
        *(partial(run.write, operation, path, b"new", expiry=expiry) for operation in _WRITES),
        partial(run.store.delete, path, expiry=expiry),
    )


def _check_request_expiry(run: StoreRun) -> None:
    path = run.path("expiring")
    if not run.store.capabilities.request_expiry:
        run.store.put(path, b"old")
        for mutation in _mutations(run, RequestExpiry(1, 1)):
            assert_raises(NotSupported, "an expiry, which the store does not support", mutation)
        run.assert_holds(path, b"old", "mutations that the store cannot do")
        return
    for mutation in _mutations(run, run.expiry(60)):
        run.store.put(path, b"old")
        mutation()
        found = run.store.begin_head(path)().info
        done = found is None or run.store.get(path).data == b"new"
        assert done, "a mutation before its expiry did nothing"
    if run.enforces_expiry:
        run.store.put(path, b"old")
        for mutation in _mutations(run, run.expiry(-3600)):
            assert_raises(RequestExpired, "a mutation after its expiry", mutation)
        run.assert_holds(path, b"old", "mutations after their expiry")
        if run.honours(WriteOperation.PUT, IfAbsent):
            missing, expiry, why = (
                run.path("expiring-missing"),
                run.expiry(-3600),
                "a create after its expiry",
            )
            create = partial(run.store.put, missing, b"", condition=IfAbsent(), expiry=expiry)
            assert_raises(RequestExpired, why, create)
            run.assert_holds(missing, None, why)


CONDITION_CHECKS: tuple[Callable[[StoreRun], None], ...] = (
    _check_create,
    _check_update,
    _check_conditional_delete,
    _check_not_supported,
    _check_racing_creates,
    _check_racing_updates,
    _check_racing_reads,
    _check_request_expiry,
)
