"""Compression and text around an open file, which close and discard what is below, as fsspec's do not.

A compressor does not close the file that it writes to, and a text wrapper closes it even when its block
ends with an exception: the one would leave a file unwritten, and the other would show half of one.

Imports fsspec and errors.
"""

from __future__ import annotations

import codecs
import contextlib
import io
from collections.abc import Iterator
from typing import Any

from fsspec.compression import compr
from fsspec.core import get_compression

from commitlog.errors import CommitError

__all__ = ["Compressed", "Text", "layered"]


class Compressed:
    """What a compressor offers, and the file below it goes where it goes."""

    def __init__(self, outer: Any, inner: Any) -> None:
        self._outer = outer
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    @property
    def closed(self) -> bool:
        """Whether the file below is closed: as soon as something could not be written to it, too."""
        return bool(self._inner.closed)

    def close(self) -> None:
        """Finish the compressed content, and close the file."""
        if not self.closed:
            self._outer.close()
            self._inner.close()

    def discard(self) -> None:
        """Drop what was written; close the file."""
        with contextlib.suppress(CommitError):  # it writes what it has left
            self._outer.close()
        self._inner.discard()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._outer)

    def __enter__(self) -> Compressed:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class Text(io.TextIOWrapper):
    """A text wrapper that discards what is below if its block ends with an exception.

    One that is never closed leaves that to what is below, where Python's closes it.
    """

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.buffer.discard()  # type: ignore[attr-defined]

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # it is closed, or was never open
            self.detach()


def layered(
    file: Any, path: str, mode: str, compression: str | None, text: dict[str, Any] | None
) -> Any:
    """Return a file, with compression (a name, or "infer") and text around it, if they are wanted.

    Text in UTF-16 or UTF-32 that is written begins with a byte order mark.
    """
    method = get_compression(path, compression)
    if method is not None:
        file = Compressed(compr[method](file, mode=mode[0]), file)
    if text is None:
        return file
    wrapped = Text(file, **text)
    marked = codecs.lookup(wrapped.encoding).name in ("utf-16", "utf-32")
    if marked and mode[0] != "r" and not file.seekable():
        # Python leaves it out where it cannot seek, and nobody could tell the order of the bytes then.
        file.write("".encode(wrapped.encoding))
    return wrapped
