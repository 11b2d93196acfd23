"""Compression and text layers around an open file, which close and discard the file correctly.

The standard layers do not. A compressor does not close the file that it writes to, so the file would
never appear. A text wrapper closes the file even after an exception, so an incomplete file would appear.
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
    """A compressor that also closes or discards the file below it."""

    def __init__(self, outer: Any, inner: Any) -> None:
        self._outer = outer
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    @property
    def closed(self) -> bool:
        """Whether the file below is closed, which is also the case after a failed write."""
        return bool(self._inner.closed)

    def close(self) -> None:
        """Finish the compressed content and close the file."""
        if not self.closed:
            self._outer.close()
            self._inner.close()

    def discard(self) -> None:
        """Remove the written content and close the file."""
        with contextlib.suppress(CommitError):  # closing the compressor writes its last bytes
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
    """A text wrapper that discards the file below if its ``with`` block ends with an exception.

    If the wrapper is never closed, it does not close the file below, unlike Python's own wrapper.
    """

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.buffer.discard()  # type: ignore[attr-defined]

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # closed already, or never open
            self.detach()


def layered(
    file: Any, path: str, mode: str, compression: str | None, text: dict[str, Any] | None
) -> Any:
    """Return a file with the requested layers: compression (a name, or "infer") and text.

    Written text in UTF-16 or UTF-32 begins with a byte order mark.
    """
    method = get_compression(path, compression)
    if method is not None:
        file = Compressed(compr[method](file, mode=mode[0]), file)
    if text is None:
        return file
    wrapped = Text(file, **text)
    marked = codecs.lookup(wrapped.encoding).name in ("utf-16", "utf-32")
    if marked and mode[0] != "r" and not file.seekable():
        # Without a seekable file Python omits the mark, and readers could not detect the byte order.
        file.write("".encode(wrapped.encoding))
    return wrapped
