"""Streams for one file: `OpenFile` reads, `FileWriter` writes."""

from __future__ import annotations

from collections.abc import Callable

from commitlog._util.request_stats import part_of
from commitlog.errors import ConfigurationError
from commitlog.namespace.model.data import Data
from commitlog.namespace.status import Status
from commitlog.namespace.write.content import Content
from commitlog.stores.api import Sink, Staged, StageWriter
from commitlog.stores.body import STAGE_ABOVE

__all__ = ["FileWriter", "OpenFile"]


class OpenFile:
    """A file as it was when it was opened. Thread-safe; holds no resources.

    Attributes:
        status: of the file.
        data: refers to its content.
    """

    def __init__(self, status: Status, content: Content) -> None:
        assert status.data is not None
        self.status = status
        self.data: Data = status.data
        self._content = content
        self._recorder = content.recorder

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.status.size

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request to a server, so that several at a time take less time."""
        return not self._content.store.capabilities.enforced

    @part_of("open")
    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes ``[start, end)``; all of them by default.

        Raises `ObjectChanged` if they are gone: the file was overwritten or deleted, and the grace
        period of the namespace is over, or another program changed the store.
        """
        return self._content.read(self.data, start, end)


class FileWriter(Sink):
    """A writer of one file's content, in parts. Not thread-safe.

    As a context manager it aborts unless `commit` or `finish` was called. It never hides an exception.
    """

    def __init__(self, content: Content, link: Callable[[Data], Status]) -> None:
        self._content = content
        self._recorder = content.recorder
        self._link = link
        self._buffer = bytearray()
        self._stage: StageWriter | None = None
        self._staged: Staged | None = None
        self._copied: Data | None = None
        self._open = True

    @part_of("open_writer")
    def _append(self, data: memoryview) -> None:
        self._check_open()
        if self._copied is not None:
            raise ConfigurationError("the content is a copy: no bytes can be appended to it")
        if self._stage is None and len(self._buffer) + len(data) > STAGE_ABOVE:
            self._stage = self._content.open_upload()
            self._stage.write(self._buffer)
            self._buffer = bytearray()
        if self._stage is None:
            self._buffer += data
        else:
            self._stage.write(data)

    @part_of("open_writer")
    def copy(self, source: OpenFile) -> int:
        """Have the store copy the content of `source`; return its length in bytes.

        The copy is an independent object. Stores copy at most 5 GiB in one request: use `write` for a
        larger file.

        Raises `ConfigurationError` if the writer has content already, and `ObjectChanged` if the object
        of `source` is gone or was replaced.
        """
        self._check_open()
        if self._buffer or self._stage is not None or self._copied is not None:
            raise ConfigurationError("content was written already: a copy has to be the whole content")
        self._copied = self._content.copy(source.data)
        return self._copied.size

    @part_of("open_writer")
    def commit(self) -> Status:
        """Make the file from the written content; return its status.

        Raises the errors of `Namespace.write`. If storing the content failed, call `commit` again. If
        the content was stored and making the file failed, the content is removed, unless the outcome is
        unknown: then start with another writer.
        """
        return self._link(self.finish())

    @part_of("open_writer")
    def finish(self) -> Data:
        """Store the content without making a file; return the argument for `Namespace.link`.

        The caller then owns the object: if no file comes to refer to it, the caller has to remove it.
        Raises `Unavailable`; then call `finish` again. Raises `ConfigurationError` if a write has
        failed; see `Sink.write`.
        """
        self._check_open()
        self._check_whole()
        if self._copied is not None:
            data = self._copied
        elif self._stage is None:
            data = self._content.put(self._buffer)
        else:
            if self._staged is None:
                self._staged = self._stage.finish()
            data = self._content.publish(self._staged)
        self._open = False
        return data

    @part_of("open_writer")
    def abort(self) -> None:
        """Discard the content, unless it is committed. Idempotent."""
        if not self._open:
            return
        self._open = False
        self._buffer = bytearray()
        if self._copied is not None:
            self._content.remove(self._copied)
        elif self._staged is not None:
            self._content.abort(self._staged)
        elif self._stage is not None:
            self._stage.abort()

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the writer is committed or aborted already")
