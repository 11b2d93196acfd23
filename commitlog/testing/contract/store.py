"""The contract of the `ObjectStore` port, as one function that checks any store.

It needs no test framework: a broken rule raises `AssertionError` that names the rule.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import cast

from commitlog.errors import (
    AccessDenied,
    BucketNotFound,
    CommitError,
    ConfigurationError,
    InvalidPath,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.stores.api import NONCE, ObjectStore, Staged, same_etag
from commitlog.stores.body import Body
from commitlog.testing.contract.assertions import assert_raises
from commitlog.testing.contract.store_conditions import CONDITION_CHECKS
from commitlog.testing.contract.store_listings import LIST_CHECKS
from commitlog.testing.contract.store_run import Conditions, StoreRun
from commitlog.testing.contract.store_uploads import STAGE_CHECKS

__all__ = ["CHECKS", "check_object_store"]


def check_object_store(
    store: ObjectStore,
    *,
    byte_order: bool = True,
    conditions: Conditions | None = None,
    races: Conditions | None = None,
    enforces_expiry: bool | None = None,
    nested: bool = True,
    fresh_etags: bool = True,
    forgets_uploads: bool = True,
    threads: int = 8,
    keys: int = 5,
) -> None:
    """Check that `store` keeps the rules of the port. Raises `AssertionError` if it does not.

    The error of a store that cannot be reached or used propagates: `Unavailable`, `AccessDenied`, ….

    The store may be in use: the check creates objects and uploads only below a new random prefix, and
    removes them at the end, also after a failure. The arguments leave out rules that a server is known
    not to keep; the defaults are the whole contract.

    Args:
        store: the store to check.
        byte_order: listings are in the byte order of UTF-8. If False, in any order that stays the same,
            and in which `ObjectStore.resume` continues, such as directory by directory.
        conditions: the conditions that the store enforces; by default, those of `store.capabilities`.
        races: those of `conditions` that hold for racing requests; by default, all of them.
        enforces_expiry: an expired request is refused; by default, if `store.capabilities` supports an
            expiry.
        nested: ``a`` and ``a/b`` can both be objects.
        fresh_etags: writing the same bytes again changes the etag. S3's etags depend on content.
        forgets_uploads: publishing an upload again is `NotFound`. Some servers remember it for a while
            and answer as they did the first time.
        threads: number of racing threads.
        keys: number of objects for each kind of race.

    >>> from commitlog.stores import MemoryStore
    >>> check_object_store(MemoryStore(), keys=1)
    """
    honoured = store.capabilities.conditions if conditions is None else conditions
    run = StoreRun(
        store=store,
        byte_order=byte_order,
        conditions=honoured,
        races=honoured if races is None else races,
        enforces_expiry=store.capabilities.request_expiry
        if enforces_expiry is None
        else enforces_expiry,
        nested=nested,
        fresh_etags=fresh_etags,
        forgets_uploads=forgets_uploads,
        threads=threads,
        keys=keys,
    )
    try:
        for check in CHECKS:
            _run(check, run)
    finally:
        for upload in store.list_staged(run.prefix):
            store.abort(upload)
        errors = store.delete_many([info.path for info in store.list(run.prefix)])
    assert not errors, f"the objects of this run could not be deleted: {errors}"
    left = [info.path for info in store.list(run.prefix)]
    assert not left, f"delete_many reported no error, but left {left}"
    uploads = list(store.list_staged(run.prefix))
    assert not uploads, f"aborted uploads are still there: {uploads}"


def _run(check: Callable[[StoreRun], None], run: StoreRun) -> None:
    try:
        check(run)
    except (AccessDenied, BucketNotFound, OutcomeUnknown, Unavailable):
        raise  # a store that keeps every rule may raise these, too
    except CommitError as error:
        raise AssertionError(f"a request was refused that the contract allows: {error!r}") from error


_NAMES = (
    "plain",
    "deep/er/than/that",
    "with space",
    "ü/日本語/🦆",
    "a+b&c=d%20e~(f)",
    "-._!*'",
    "x" * 200,
)
_DATA = bytes(range(256)) * 4096


def _check_bodies(run: StoreRun) -> None:
    bodies: tuple[tuple[Body, bytes], ...] = (
        (b"", b""),
        (b"\x00", b"\x00"),
        (bytearray(b"array"), b"array"),
        (memoryview(_DATA)[1:-1], _DATA[1:-1]),
        (memoryview(b"12345678").cast("I"), b"12345678"),
        (io.BytesIO(_DATA), _DATA),
        (_positioned(b"skipped, kept", 9), b"kept"),
        (io.BytesIO(), b""),
    )
    for number, (body, data) in enumerate(bodies):
        path = run.path(f"body-{number}")
        result = run.store.put(path, body)
        assert result.path == path, f"put to {path!r} returned the path {result.path!r}"
        run.assert_holds(path, data, f"a put of {data[:20]!r}")
        assert same_etag(run.store.head(path).etag, result.etag), "put and head differ in the etag"


def _check_no_bodies(run: StoreRun) -> None:
    path = run.path("no-body")
    for body in (None, "text", io.StringIO("text")):
        for send in (run.store.put, run.store.stage):
            assert_raises(TypeError, f"{body!r} is not a body", send, path, cast(Body, body))
    run.assert_holds(path, None, "refused bodies")


def _positioned(data: bytes, position: int) -> io.BytesIO:
    file = io.BytesIO(data)
    file.seek(position)
    return file


def _check_names(run: StoreRun) -> None:
    for name in _NAMES:
        run.store.put(run.path(name), name.encode())
    for name in _NAMES:
        run.assert_holds(run.path(name), name.encode(), "a put")
        assert run.store.key(run.path(name)).endswith(run.path(name)), "a key does not end in its path"
    if run.nested:
        run.store.put(run.path("both"), b"1")
        run.store.put(run.path("both/of/them"), b"2")
        run.assert_holds(run.path("both"), b"1", "a put below the object")
        run.assert_holds(run.path("both/of/them"), b"2", "a put below an object")


def _check_bad_paths(run: StoreRun) -> None:
    store, good = run.store, run.path("good")
    for bad in ("", "/x", "a//b", "a/", "./a", "a/../b", "..", "a\x00b", "a\nb", "\ud800", "é" * 513):
        staged = Staged(path=bad, upload_id="0" * 32, size=0, nonce="n")
        calls: tuple[Callable[[], object], ...] = (
            partial(store.key, bad),
            partial(store.head, bad),
            partial(store.get, bad),
            partial(store.put, bad, b""),
            partial(store.copy, bad, good),
            partial(store.copy, good, bad),
            partial(store.delete, bad),
            partial(store.delete_many, [bad]),
            partial(store.begin_stage, bad),
            partial(store.publish, staged),
        )
        for call in calls:
            assert_raises(InvalidPath, f"path {bad[:20]!r}", call)
    for bad in ("/x", "a//", "../", "a\x00"):
        assert_raises(InvalidPath, f"prefix {bad!r}", store.list_page, bad)


def _check_metadata(run: StoreRun) -> None:
    path, metadata = run.path("metadata"), {"made-by": "a check, 100%", "empty-not": "x", NONCE: "n1"}
    run.store.put(path, b"1", metadata=metadata)
    assert dict(run.store.head(path).metadata) == metadata, "head returns other metadata than put got"
    assert dict(run.store.get(path).metadata) == metadata, "get returns other metadata than put got"
    assert run.store.head(path).nonce == "n1", "head does not return the nonce"
    (listed,) = run.store.list(path)
    assert not listed.metadata, "a listing must leave metadata empty"
    run.store.put(path, b"2", metadata={"other": "1"})
    assert dict(run.store.head(path).metadata) == {"other": "1"}, (
        "metadata of a replaced object remained"
    )
    run.store.put(path, b"3")
    assert not run.store.head(path).metadata, "an object has metadata of an earlier one"
    for wrong in (
        {"Upper": "x"},
        {"": "x"},
        {"ü": "x"},
        {"a": "ü"},
        {"a": "1\r\nb: 2"},
        {"a": "x" * 2048},
    ):
        assert_raises(
            ConfigurationError, f"metadata {str(wrong)[:40]}", run.store.put, path, b"4", metadata=wrong
        )
    run.assert_holds(path, b"3", "puts with impossible metadata")


def _check_overwrite(run: StoreRun) -> None:
    path = run.path("overwritten")
    etags = [run.store.put(path, data).etag for data in (b"1", b"22", b"22")]
    run.assert_holds(path, b"22", "two overwrites")
    assert not same_etag(etags[0], etags[1]), "other bytes have the same etag"
    if run.fresh_etags:
        assert not same_etag(etags[1], etags[2]), "the same bytes written again have the same etag"


def _check_ranges(run: StoreRun) -> None:
    path, data = run.path("range"), b"0123456789"
    run.store.put(path, data)
    run.store.put(run.path("range-of-nothing"), b"")
    ranges: tuple[tuple[int, int | None], ...] = (
        *((0, 1), (0, 10), (3, 7), (9, 10), (9, None), (4, None)),
        *((5, 5), (0, 0), (8, 20), (10, None), (10, 12), (11, None), (50, 60)),
    )
    for start, end in ranges:
        found = run.store.get(path, start=start, end=end)
        assert found.data == data[start:end], f"range [{start}, {end}) gives {found.data!r}"
        assert found.size == len(data), f"the size with a range is that of the object, not {found.size}"
    for start, end in ((0, None), (0, 5), (3, None)):
        found = run.store.get(run.path("range-of-nothing"), start=start, end=end)
        assert (found.data, found.size) == (b"", 0), "a range of an empty object is empty"
    for start, end in ((-1, None), (5, 4), (0, -1)):
        assert_raises(
            ConfigurationError,
            f"range [{start}, {end})",
            run.store.get,
            path,
            start=start,
            end=end,
        )


def _check_missing(run: StoreRun) -> None:
    missing, target = run.path("missing"), run.path("target-of-missing")
    assert_raises(NotFound, "head of a missing object", run.store.head, missing)
    assert_raises(NotFound, "get of a missing object", run.store.get, missing)
    assert_raises(NotFound, "range of a missing object", run.store.get, missing, start=3)
    assert_raises(NotFound, "copy of a missing object", run.store.copy, missing, target)
    run.assert_holds(target, None, "a copy of a missing object")
    run.store.delete(missing)
    run.store.put(run.path("directory/object"), b"")
    assert_raises(NotFound, "head of a directory", run.store.head, run.path("directory"))
    run.store.delete(run.path("directory"))
    run.store.delete(run.path("directory/object/below"))
    run.assert_holds(run.path("directory/object"), b"", "deletes above and below it")


def _check_begin_head(run: StoreRun) -> None:
    path = run.path("head")
    before = run.store.begin_head(path)()
    result = run.store.put(path, b"x")
    one, two = run.store.begin_head(path), run.store.begin_head(run.path("no-head"))
    absent, present = two(), one()
    assert before.info is None and absent.info is None, "a head saw an object that was not there"
    assert present.info is not None, "a head did not see a put that had returned"
    assert same_etag(present.info.etag, result.etag), "a head saw another etag than put returned"
    for seen in (before, present):
        if seen.store_time is not None:
            assert isinstance(seen.store_time, int), "store_time is in whole seconds"
            lag = abs(seen.store_time - present.info.last_modified)
            assert lag < 3600, f"store_time and last_modified are {lag} s apart"


def _check_copy(run: StoreRun) -> None:
    source, target = run.path("copy/source"), run.path("copied/target")
    run.store.put(source, b"copied", metadata={NONCE: "n", "kind": "x"})
    for _ in range(2):
        result = run.store.copy(source, target)
        run.assert_holds(target, b"copied", "a copy")
        run.assert_holds(source, b"copied", "a copy from it")
        info = run.store.head(target)
        assert result.path == target, f"a copy to {target!r} returned the path {result.path!r}"
        assert same_etag(info.etag, result.etag), "copy and head differ in the etag"
        assert dict(info.metadata) == {NONCE: "n", "kind": "x"}, "a copy lost metadata"
        run.store.put(target, b"to be replaced")
    run.store.delete(source)
    run.assert_holds(target, b"to be replaced", "the delete of the source of its copy")


def _check_delete(run: StoreRun) -> None:
    path = run.path("deleted/deep/down")
    for data in (b"1", b"2"):
        run.store.put(path, data)
        run.store.delete(path)
        run.assert_holds(path, None, "a delete")


def _check_delete_many(run: StoreRun) -> None:
    assert not run.store.delete_many([]), "deleting nothing failed"
    there = [run.path(f"many/{number}/{number}") for number in range(12)]
    for path in there:
        run.store.put(path, b"")
    kept = there.pop()
    missing = [run.path(f"never/{number}") for number in range(1000)]
    errors = run.store.delete_many([*missing, *there, *there])
    assert not errors, f"deleting objects, some missing, gave errors: {errors}"
    for path in there:
        run.assert_holds(path, None, "delete_many")
    run.assert_holds(kept, b"", "delete_many of others")


_OBJECT_CHECKS: tuple[Callable[[StoreRun], None], ...] = (
    _check_bodies,
    _check_no_bodies,
    _check_names,
    _check_bad_paths,
    _check_metadata,
    _check_overwrite,
    _check_ranges,
    _check_missing,
    _check_begin_head,
    _check_copy,
    _check_delete,
    _check_delete_many,
)

#: All checks, in their order.
CHECKS = (*_OBJECT_CHECKS, *CONDITION_CHECKS, *LIST_CHECKS, *STAGE_CHECKS)
