"""Reading and writing one file bit by bit: `OpenFile` and `FileWriter`.

Imports its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable

from commitlog.errors import ConfigurationError
from commitlog.namespace.content import Content
from commitlog.namespace.data import Data
from commitlog.namespace.recording import part_of
from commitlog.namespace.status import Status
from commitlog.stores.api import Sink, Staged, StageWriter

__all__ = ["FileWriter", "OpenFile"]

#: Content up to this size is sent in one request.
_BUFFER = 8 * 1024 * 1024


class OpenFile:
    """A file as it was when it was opened. Thread-safe; holds nothing open.

    Attributes:
        status: the file.
        data: where its content is.
    """

    def __init__(self, status: Status, content: Content) -> None:
        assert status.data is not None
        self.status = status
        self.data: Data = status.data
        self._content = content
        self._recorder = content.recorder

    @part_of("open")
    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes ``[start, end)``; all of them by default.

        Raises `ObjectChanged` if they are gone: the file was overwritten or deleted longer ago than the
        grace of the namespace, or somebody changed the store.
        """
        return self._content.read(self.data, start, end)


class FileWriter(Sink):
    """Takes the content of a file bit by bit. Not thread-safe.

    As a context manager it aborts unless `commit` or `finish` was called; it never hides an exception.
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

    @part_of("begin_write")
    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`; return its length in bytes."""
        self._check_open()
        if self._copied is not None:
            raise ConfigurationError("the content is a copy: nothing can be appended to it")
        view = memoryview(data)
        if self._stage is None and len(self._buffer) + view.nbytes > _BUFFER:
            self._stage = self._content.begin()
            self._stage.write(self._buffer)
            self._buffer = bytearray()
        if self._stage is None:
            self._buffer += view
        else:
            self._stage.write(view)
        return view.nbytes

    @part_of("begin_write")
    def copy(self, source: OpenFile) -> int:
        """Have the store copy the content of a file that it has; return its length in bytes.

        The copy is an object of its own. Stores copy no more than 5 GiB at once: write what is larger.

        Raises `ConfigurationError` if there is content already, and `ObjectChanged` if the object of
        `source` is gone, or another.
        """
        self._check_open()
        if self._buffer or self._stage is not None or self._copied is not None:
            raise ConfigurationError("something was written already: a copy is the whole content")
        self._copied = self._content.copy(source.data)
        return self._copied.size

    @part_of("begin_write")
    def commit(self) -> Status:
        """Make the file, with all that was written; return it.

        Errors as of `Namespace.write`. If the content could not be stored, it can be tried again; if it
        could, and the file could not be made, it is dropped, unless the outcome is unknown: begin anew.
        """
        return self._link(self.finish())

    @part_of("begin_write")
    def finish(self) -> Data:
        """Store the content, and make no file of it yet; return what `Namespace.link` takes.

        The object is the caller's from then on: nobody else removes it if nothing comes to name it.
        Raises `Unavailable`, after which it can be tried again.
        """
        self._check_open()
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

    @part_of("begin_write")
    def abort(self) -> None:
        """Drop what was written, unless it is committed. Idempotent."""
        if not self._open:
            return
        self._open = False
        self._buffer = bytearray()
        if self._copied is not None:
            self._content.drop(self._copied)
        elif self._staged is not None:
            self._content.abandon(self._staged)
        elif self._stage is not None:
            self._stage.abort()

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the file is committed, or aborted")
