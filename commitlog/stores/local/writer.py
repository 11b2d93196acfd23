"""An upload into a local directory, from its first byte to its complete and durable body."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress

from commitlog.errors import ConfigurationError, NotFound
from commitlog.stores.api import NONCE, Staged, StageWriter
from commitlog.stores.local.file_io import BUFFER, full_sync
from commitlog.stores.local.index import Row, Upload
from commitlog.stores.local.scratch import Base
from commitlog.stores.local.tree import explained

__all__ = ["LocalWriter"]


class LocalWriter(StageWriter):
    """See `StageWriter`.

    Args:
        base: where the body is kept.
        record: what names the upload; the writer begins it.
        path: where it will appear, as the caller of the store named it.
        row: what the object will have, its nonce among the metadata.
    """

    def __init__(self, base: Base, record: Upload, path: str, row: Row) -> None:
        self._base = base
        self._path = path
        self._upload_id = record.upload_id
        self._row = row
        with ExitStack() as opened:
            # In one transaction, so that a crash alone can part the body from its record.
            with explained(repr(path)), base.index.recording(durable=False) as transaction:
                transaction.stage(record)
                file = base.staged_file(record.upload_id)
                self._sink = opened.enter_context(open(file, "xb", BUFFER))
            opened.pop_all()  # from here on, `finish` or `abort` closes it

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """See `StageWriter.write`."""
        self._check_open()
        with explained(repr(self._path)):
            return self._sink.write(data)

    def finish(self) -> Staged:
        """See `StageWriter.finish`. Durable, if the store is."""
        self._check_open()
        with explained(repr(self._path)):
            self._sink.flush()
            if self._base.tree.durable:
                full_sync(self._sink.fileno())
            found = os.fstat(self._sink.fileno())
            with self._base.index.recording() as transaction:
                if transaction.upload(self._upload_id) is None:
                    raise NotFound(f"the upload of {self._path!r} was aborted by somebody else")
                transaction.record(found, self._row)
            self._base.sync_staged()
            self._sink.close()
        return Staged(
            path=self._path,
            upload_id=self._upload_id,
            size=found.st_size,
            nonce=self._row.metadata[NONCE],
        )

    def abort(self) -> None:
        """See `StageWriter.abort`."""
        if not self._sink.closed:
            with suppress(OSError):  # the buffered bytes are not needed
                self._sink.close()
            with explained(repr(self._path)):
                self._base.drop_staged(self._upload_id)

    def _check_open(self) -> None:
        if self._sink.closed:
            raise ConfigurationError(f"the upload of {self._path!r} is finished or aborted already")
