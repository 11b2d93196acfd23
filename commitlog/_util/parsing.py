"""Parsing of durations, sizes with units and packed numbers; the check of a choice among words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from types import MappingProxyType

from commitlog.errors import ConfigurationError

__all__ = ["check_choice", "parse_bytes", "parse_seconds", "varint"]

_SECONDS = MappingProxyType({"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400})
_BYTES = MappingProxyType({"": 1, "k": 2**10, "m": 2**20, "g": 2**30})


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise `ConfigurationError` unless `value` is one of `choices`.

    Args:
        name: the name of the argument or setting, for the message.
        value: its value, of any type.
        choices: the allowed values, in the order of the message.

    >>> check_choice("mode", "error", ["append", "error"])
    >>> check_choice("mode", "upsert", ["append", "error"])
    Traceback (most recent call last):
    commitlog.errors.ConfigurationError: mode is 'upsert'; it must be one of append, error
    """
    known = tuple(choices)
    if value not in known:
        raise ConfigurationError(f"{name} is {value!r}; it must be one of {', '.join(known)}")


def parse_seconds(text: str) -> float:
    """Return a duration in seconds: a plain number of seconds, or a number with a unit s, m, h or d.

    Raises `ConfigurationError` for any other text.

    >>> parse_seconds("90"), parse_seconds("1.5h")
    (90.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = math.inf if match is None else float(match[1]) * _SECONDS[match[2]]
    if seconds == math.inf:
        raise ConfigurationError(f"{text!r} is not a duration: write 90s, 15m, 2h or 1d")
    return seconds


def parse_bytes(text: str) -> int:
    """Return a size in bytes: a plain number of bytes, or a number with a unit KiB, MiB or GiB.

    Raises `ConfigurationError` for any other text.

    >>> parse_bytes("512"), parse_bytes("1.5KiB"), parse_bytes("64m")
    (512, 1536, 67108864)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:([kmg])(?:i?b)?)?", text, re.IGNORECASE)
    size = math.inf if match is None else float(match[1]) * _BYTES[(match[2] or "").lower()]
    if size == math.inf:
        raise ConfigurationError(f"{text!r} is not a size: write 512, 64KiB, 128MiB or 1GiB")
    return int(size)


def varint(data: bytes, at: int) -> tuple[int, int]:
    r"""Return the number at an offset, in the variable length of protocol buffers, and its end.

    Raises `ValueError` if the number does not end within `data`.

    >>> varint(b"\x96\x01", 0)
    (150, 2)
    """
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("a number ends after its message")
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value, at + 1
        shift += 7
        at += 1
