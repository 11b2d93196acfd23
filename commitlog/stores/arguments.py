"""Checks of arguments that every store makes in the same way, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping

from commitlog.errors import ConfigurationError

__all__ = ["check_metadata", "check_page", "check_range"]

#: The limit of S3 for user metadata, keys and values together ("Working with object metadata").
MAX_METADATA_BYTES = 2048

#: The limit of S3 for one page of a listing ("ListObjectsV2").
MAX_PAGE = 1000


def check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of `metadata`, or raise `ConfigurationError` and say what no store would keep.

    >>> check_metadata({"made-by": "me"})
    {'made-by': 'me'}
    >>> check_metadata({"Made-By": "me"})
    Traceback (most recent call last):
    commitlog.errors.ConfigurationError: metadata key 'Made-By': use ASCII letters in lower case, ...
    """
    for name, value in metadata.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigurationError(f"metadata has {name!r}: {value!r}; keys and values are text")
        if not name or not name.isascii() or name != name.lower() or not _is_token(name):
            raise ConfigurationError(
                f"metadata key {name!r}: use ASCII letters in lower case, digits, '-', '_' and '.'"
            )
        if not value.isascii() or not (value == "" or value.isprintable()) or value != value.strip():
            raise ConfigurationError(
                f"metadata value of {name!r}: use printable ASCII, without space at its ends"
            )
    size = sum(len(name) + len(value) for name, value in metadata.items())
    if size > MAX_METADATA_BYTES:
        raise ConfigurationError(
            f"metadata is {size} bytes; the most that is kept is {MAX_METADATA_BYTES}"
        )
    return dict(metadata)


def check_page(delimiter: str, limit: int) -> None:
    """Raise `ConfigurationError` unless a listing can be asked for in this way."""
    if delimiter not in ("", "/"):
        raise ConfigurationError(f"delimiter {delimiter!r}: only '' and '/' are supported")
    if not 1 <= limit <= MAX_PAGE:
        raise ConfigurationError(f"limit {limit}: ask for 1 to {MAX_PAGE} entries a page")


def check_range(start: int, end: int | None) -> None:
    """Raise `ConfigurationError` unless ``[start, end)`` is a range of bytes, an empty one included."""
    if start < 0 or (end is not None and end < start):
        raise ConfigurationError(f"range [{start}, {end}): needs 0 <= start <= end")


def _is_token(name: str) -> bool:
    return all(char.isalnum() or char in "-_." for char in name)
