"""Rules for the paths of objects.

A path is relative to the opened store: no leading slash, no empty, ``.`` or ``..`` segment.
An invalid path is refused, not repaired: two spellings of one object would mean two leases on it.
"""

from __future__ import annotations

import re

from commitlog.errors import InvalidPath

__all__ = ["MAX_PATH_BYTES", "check_path", "check_prefix", "join"]

#: Longest key that S3 takes, in bytes of UTF-8 ("Naming Amazon S3 objects").
MAX_PATH_BYTES = 1024

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Matches most paths: printable ASCII, no segment that begins with a dot. They need no further check.
_ORDINARY = re.compile(r"[ -\-0-~][ -.0-~]*(?:/[ -\-0-~][ -.0-~]*)*")


def check_path(path: str) -> str:
    """Return `path` unchanged, or raise `InvalidPath` with the reason.

    >>> check_path("a/b c/ü.parquet")
    'a/b c/ü.parquet'
    >>> check_path("/a")
    Traceback (most recent call last):
    commitlog.errors.InvalidPath: path '/a' starts with '/': paths are relative to the store's root
    """
    if isinstance(path, str) and len(path) <= MAX_PATH_BYTES and _ORDINARY.fullmatch(path):
        return path
    _check_text(path)
    if not path:
        raise InvalidPath("the path is empty: name an object below the store's root")
    if path.startswith("/"):
        raise InvalidPath(f"path {path!r} starts with '/': paths are relative to the store's root")
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidPath(f"path {path!r} has the segment {segment!r}: remove it")
    return path


def check_prefix(prefix: str) -> str:
    """Return `prefix` unchanged if some path could start with it, else raise `InvalidPath`.

    >>> check_prefix("a/b/"), check_prefix("a/b"), check_prefix("")
    ('a/b/', 'a/b', '')
    """
    _check_text(prefix)
    if prefix.startswith("/"):
        raise InvalidPath(f"prefix {prefix!r} starts with '/': it is relative to the store's root")
    if any(segment in ("", ".", "..") for segment in prefix.split("/")[:-1]):
        raise InvalidPath(f"prefix {prefix!r} has an empty, '.' or '..' segment: remove it")
    return prefix


def join(prefix: str, path: str) -> str:
    """Return `path` below `prefix`, which may be empty and may end in a slash.

    >>> join("lake", "a/b"), join("lake/", "a/b"), join("", "a/b")
    ('lake/a/b', 'lake/a/b', 'a/b')
    """
    return f"{prefix.rstrip('/')}/{path}" if prefix else path


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise InvalidPath(f"a path is a str, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidPath(f"path {text!r} is not valid Unicode") from None
    if size > MAX_PATH_BYTES:
        raise InvalidPath(f"path is {size} bytes of UTF-8; the longest allowed is {MAX_PATH_BYTES}")
    if _CONTROL.search(text):
        raise InvalidPath(f"path {text!r} has a control character: no store keeps it reliably")
