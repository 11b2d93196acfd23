"""Checks of the `ObjectStore` contract on staged uploads."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from commitlog.errors import AlreadyExists, CommitError, NotFound, OutcomeUnknown, PreconditionFailed
from commitlog.stores.api import NONCE, IfAbsent, IfMatch, PutResult, Staged, WriteOperation, same_etag
from commitlog.testing.contract.assertions import assert_raises
from commitlog.testing.contract.store_run import StoreRun, race

__all__ = ["STAGE_CHECKS"]


def _check_publish(run: StoreRun) -> None:
    for number, data in enumerate((b"", b"x", b"0123456789" * 100_000)):
        path = run.path(f"staged/{number}")
        staged = run.store.stage(path, io.BytesIO(data), metadata={"kind": "x"})
        assert (staged.path, staged.size) == (path, len(data)), f"staged: {staged}"
        run.assert_holds(path, None, "staging")
        listed = [info for info in run.store.list_staged(path) if info.upload_id == staged.upload_id]
        assert [info.path for info in listed] == [path], f"list_staged gives {listed}"
        assert listed[0].initiated > 0, f"list_staged gives {listed}"
        # a client sends it through a log, perhaps to another machine
        result = run.store.publish(pickle.loads(pickle.dumps(staged)))
        run.assert_holds(path, data, "publishing")
        info = run.store.head(path)
        assert result.path == path and same_etag(result.etag, info.etag), f"publish says {result}"
        assert dict(info.metadata) == {"kind": "x", NONCE: staged.nonce}, f"metadata: {info.metadata}"
        if run.forgets_uploads:
            _assert_gone(run, staged)
        else:
            with suppress(NotFound):
                run.store.publish(staged)
        run.assert_holds(path, data, "publishing twice")


def _assert_gone(run: StoreRun, staged: Staged) -> None:
    assert_raises(NotFound, "publishing an upload that is gone", run.store.publish, staged)
    left = [info for info in run.store.list_staged(staged.path) if info.upload_id == staged.upload_id]
    assert not left, f"an upload that is gone is listed: {left}"
    run.store.abort(staged)


def _check_nonces(run: StoreRun) -> None:
    path = run.path("nonces")
    one, two = run.store.stage(path, b"1"), run.store.stage(path, b"2", metadata={NONCE: "mine"})
    assert one.nonce and one.nonce != two.nonce, "a nonce is empty, or used twice"
    assert two.nonce == "mine", "the given nonce is not used"
    run.store.publish(two)
    assert run.store.head(path).nonce == "mine", "the published object has another nonce"
    run.store.publish(one)
    assert run.store.head(path).nonce == one.nonce, "the published object has another nonce"
    run.assert_holds(path, b"1", "publishing over another object")


def _check_abort(run: StoreRun) -> None:
    path = run.path("aborted")
    run.store.put(path, b"kept")
    staged = run.store.stage(path, b"dropped")
    for _ in range(2):
        run.store.abort(staged)
    _assert_gone(run, staged)
    run.assert_holds(path, b"kept", "an abort")
    listed = run.store.stage(path, b"dropped")
    (info,) = run.store.list_staged(path)
    run.store.abort(info)
    _assert_gone(run, listed)
    published = run.store.stage(path, b"published")
    run.store.publish(published)
    run.store.abort(published)
    run.assert_holds(path, b"published", "the abort of a published upload")


def _check_writer(run: StoreRun) -> None:
    path = run.path("writer")
    with run.store.begin_stage(path) as writer:
        for chunk in (b"one ", bytearray(b"two "), memoryview(b"three")):
            assert writer.write(chunk) == len(chunk), "write does not return the length"
        run.assert_holds(path, None, "writing to an upload")
        staged = writer.finish()
        writer.abort()
    assert_raises(CommitError, "writing to a finished upload", writer.write, b"x")
    run.store.publish(staged)
    run.assert_holds(path, b"one two three", "publishing the upload of a writer")

    class Failure(Exception):
        pass

    try:
        with run.store.begin_stage(path) as writer:
            writer.write(b"half")
            raise Failure
    except Failure:
        pass
    else:
        raise AssertionError("a writer swallowed an exception")
    writer.abort()
    left = list(run.store.list_staged(path))
    assert not left, f"a writer that failed left its upload: {left}"
    assert_raises(CommitError, "finishing an aborted upload", writer.finish)
    run.assert_holds(path, b"one two three", "a failed writer")


def _check_aborted_by_others(run: StoreRun) -> None:
    path = run.path("lost")
    with run.store.begin_stage(path) as writer:
        writer.write(b"x")
        for info in run.store.list_staged(path):
            run.store.abort(info)
        try:
            staged = writer.finish()
        except NotFound:
            return
    assert_raises(NotFound, "publishing an aborted upload", run.store.publish, staged)
    run.assert_holds(path, None, "publishing an aborted upload")


def _check_conditions(run: StoreRun) -> None:
    if run.honours(WriteOperation.PUBLISH, IfAbsent):
        path = run.path("publish-if-absent")
        run.store.put(path, b"there")
        staged = run.store.stage(path, b"staged")
        assert_raises(
            AlreadyExists,
            "publish to a path that is taken",
            run.store.publish,
            staged,
            condition=IfAbsent(),
        )
        run.assert_holds(path, b"there", "a refused publish")
        run.store.delete(path)
        run.store.publish(staged, condition=IfAbsent())
        run.assert_holds(path, b"staged", "a publish that was refused at first")
    if run.honours(WriteOperation.PUBLISH, IfMatch):
        path = run.path("publish-if-match")
        old, new = run.store.put(path, b"1").etag, run.store.put(path, b"2").etag
        update = run.store.stage(path, b"staged")
        assert_raises(
            PreconditionFailed,
            "publish with an old etag",
            run.store.publish,
            update,
            condition=IfMatch(old),
        )
        run.store.publish(update, condition=IfMatch(new))
        run.assert_holds(path, b"staged", "a publish that was refused at first")


def _check_list_staged(run: StoreRun) -> None:
    base = run.path("uploads/")
    names = ("a", "a/b", "b", "é/c") if run.nested else ("a", "b/a", "b/c", "é/c")
    staged = [run.store.stage(base + name, b"") for name in names]
    other = run.store.stage(run.path("uploads-else"), b"")
    for prefix in ("", "a", "b", "é/"):
        found = sorted(info.path for info in run.store.list_staged(base + prefix))
        assert found == sorted(base + n for n in names if n.startswith(prefix)), f"{prefix!r}: {found}"
    for upload in (*staged, other):
        run.store.abort(upload)
    assert not list(run.store.list_staged(base)), "aborted uploads are listed"


def _check_racing_publishers(run: StoreRun) -> None:
    """Concurrent recoveries publish the same upload: the object must be complete, and that upload."""
    for number in range(run.keys):
        path = run.path(f"published-by-all/{number}")
        staged = run.store.stage(path, b"whole")
        outcomes = race([partial(run.store.publish, staged)] * run.threads)
        for outcome in outcomes:
            fine = isinstance(outcome, PutResult | NotFound | OutcomeUnknown)
            assert fine, f"a racing publish ended in {outcome!r}"
        run.assert_holds(path, b"whole", "racing publishers")
        assert run.store.head(path).nonce == staged.nonce, "the published object has another nonce"


STAGE_CHECKS: tuple[Callable[[StoreRun], None], ...] = (
    _check_publish,
    _check_nonces,
    _check_abort,
    _check_writer,
    _check_aborted_by_others,
    _check_conditions,
    _check_list_staged,
    _check_racing_publishers,
)
