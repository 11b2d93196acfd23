"""New objects of a plain store: their places, and the writers of their content.

`StorePath` writes an object in one call, with a condition or without. `ObjectWriter` takes the content
in parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from attrs import frozen

from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, Conflict, NotFound, OutcomeUnknown, Unavailable
from commitlog.paths import check_path
from commitlog.stores.api import NONCE, Sink, Staged, StageWriter
from commitlog.stores.body import STAGE_ABOVE

__all__ = ["ObjectWriter", "StorePath"]


@frozen(kw_only=True)
class StorePath:
    """A path in a plain store, of an existing or a new object or directory. Thread-safe.

    Attributes:
        store: the store.
        path: the path in the store; "" for its root.
        root: the path of the store's root in the file system.
        clock: waits between attempts.
        backoff: the retry policy for writes without a condition.

    Writes with ``overwrite=False`` are those of `ConditionalStore`: they happened, raise an error that
    proves that nothing happened, or raise `OutcomeUnknown`.

    Writes with ``overwrite=True`` replace whatever is there. After a lost answer they are sent again.
    The earlier attempt may still reach the store, after a later write of any client, and replace it: no
    store can refuse it, since it has no condition.
    """

    store: ConditionalStore
    path: str
    root: str
    clock: Clock
    backoff: Backoff

    def open_writer(self, *, overwrite: bool) -> ObjectWriter:
        """Begin an object. Without `overwrite`, it must be new: `AlreadyExists` is raised now or later.

        Raises `InvalidPath`, and `NotSupported` if the store has no way to enforce the condition.
        """
        return ObjectWriter(self, overwrite=overwrite)

    def copy(self, writer: object, source: object, origin: object) -> None:
        """Return None: content that becomes visible later cannot be copied inside a store."""

    def drop(self, data: Staged) -> None:
        """Drop an upload that was not published."""
        self.store.abort(data)

    def check_absent(self, *, staged: bool = False) -> None:
        """Raise `AlreadyExists` or `NotSupported`; see `ConditionalStore.check_absent`."""
        self.store.check_absent(self.path, staged=staged)

    def write(self, value: bytes | bytearray | memoryview, *, overwrite: bool) -> None:
        """Make an object from bytes. Raises `AlreadyExists`, and the errors of a write."""
        if not overwrite:
            self.store.put_if_absent(self.path, value)
            return
        nonce = random_id()
        self._overwrite(lambda: self.store.put(self.path, value, metadata={NONCE: nonce}), nonce)

    def publish(self, staged: Staged, *, overwrite: bool) -> None:
        """Make an upload visible. If it was not published, drop it, unless the outcome is unknown."""
        if not overwrite:
            self.store.publish_if_absent(staged, abort=True)
            return
        try:
            self._overwrite(lambda: self.store.publish(staged), staged.nonce)
        except OutcomeUnknown:
            raise
        except CommitError:
            with contextlib.suppress(CommitError):
                self.store.abort(staged)
            raise

    def copy_from(self, source: str) -> None:
        """Let the store copy an object of its own to this path, up to 5 GiB. Raises `NotFound`."""
        self._overwrite(lambda: self.store.copy(source, self.path), None)

    def _overwrite(self, send: Callable[[], object], nonce: str | None) -> None:
        """Send a write without a condition until it succeeds or is refused.

        Raises `OutcomeUnknown` if an answer was lost and no later attempt succeeded, and the object does
        not have the nonce.
        """
        lost: OutcomeUnknown | None = None

        def attempt() -> object:
            nonlocal lost
            try:
                return send()
            except OutcomeUnknown as error:
                lost = error
                raise

        try:
            self.backoff.retry(self.clock, attempt, on=(Conflict, OutcomeUnknown, Unavailable))
        except CommitError as failure:
            if isinstance(failure, NotFound) and nonce is not None:
                # A lost attempt published the upload, or something on the way sent the request twice and
                # passed on the second answer; unless something else removed the upload.
                try:
                    info = self.store.begin_head(self.path)().info
                except CommitError as error:
                    lost = lost or OutcomeUnknown(str(error))
                else:
                    if info is not None and info.nonce == nonce:
                        return
            if lost is None:
                raise
            raise OutcomeUnknown(
                f"an answer to the write of {self.path!r} was lost, and then: {failure}. Read it later,"
                " or write it again"
            ) from lost


class ObjectWriter(Sink):
    """The content of a new object, in parts. Not thread-safe.

    Up to `STAGE_ABOVE` bytes are kept in memory; more are staged as an upload, which is invisible until
    it is published.

    Args:
        target: the place of the object.
        overwrite: whether it may replace an object.
    """

    def __init__(self, target: StorePath, *, overwrite: bool) -> None:
        self._target = target
        self._overwrite = overwrite
        self._buffer = bytearray()
        self._stage: StageWriter | None = None
        self._open = True
        check_path(target.path)
        if not overwrite:
            target.check_absent()

    def _append(self, data: memoryview) -> None:
        if self._stage is None and len(self._buffer) + len(data) <= STAGE_ABOVE:
            self._buffer += data
        else:
            self._staged().write(data)

    def commit(self) -> None:
        """Make the object. Raises the errors of `StorePath.write`; only one call is possible.

        Raises `ConfigurationError` if a write has failed; see `Sink.write`.
        """
        self._check_whole()
        if self._stage is None:
            self._open = False
            self._target.write(bytes(self._buffer), overwrite=self._overwrite)
            return
        staged = self._stage.finish()
        self._open = False
        self._target.publish(staged, overwrite=self._overwrite)

    def finish(self) -> Staged:
        """Store the content as an upload and return it, for `StorePath.publish`.

        Raises `ConfigurationError` if a write has failed; see `Sink.write`.
        """
        self._check_whole()
        staged = self._staged().finish()
        self._open = False
        return staged

    def abort(self) -> None:
        """Drop the content, unless `commit` or `finish` was called and may have stored it."""
        if self._open and self._stage is not None:
            self._stage.abort()
        self._open = False

    def _staged(self) -> StageWriter:
        if self._stage is None:
            if not self._overwrite:
                self._target.check_absent(staged=True)
            self._stage = self._target.store.begin_stage(self._target.path)
            self._stage.write(self._buffer)
            self._buffer = bytearray()
        return self._stage
