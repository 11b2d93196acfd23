"""Types of command-line parameters: spans of time, sizes and moments."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from commitlog._util.parsing import parse_bytes, parse_seconds
from commitlog.errors import ConfigurationError

__all__ = ["DURATION", "MOMENT", "SIZE", "ParsedParameter", "parse_moment"]

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    # Generic from click 8.4 on.
    _ParamType = click.ParamType


class ParsedParameter(_ParamType):
    """A parameter that a function parses.

    Args:
        name: name of the type, as the help of a command shows it.
        parse: returns the value of a text. Its `ConfigurationError` is shown as wrong usage of the
            option, with status 2.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text. A default that is not a text is returned as it is."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


def parse_moment(text: str) -> int:
    """Return a moment in epoch milliseconds: ISO 8601, in UTC unless it has an offset.

    Raises `ConfigurationError` if it is none, or is before 1970.

    >>> parse_moment("2026-11-21T08:00:00Z") - parse_moment("20261121:070000")
    3600000
    """
    try:
        # Takes any character before the time, as in yyyyMMdd:HHmmss, which Hadoop writes.
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is no time: write 2026-11-21T08:00:00Z") from None
    utc = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    if utc.timestamp() < 0:
        raise ConfigurationError(f"{text!r} is before 1970")
    return int(utc.timestamp() * 1000)


#: A span of time in seconds: a number, or a number with one of the units s, m, h, d.
DURATION = ParsedParameter("duration", parse_seconds)

#: A size in bytes: a number, or a number with one of the units KiB, MiB, GiB.
SIZE = ParsedParameter("size", parse_bytes)

#: A moment in epoch milliseconds.
MOMENT = ParsedParameter("time", parse_moment)
