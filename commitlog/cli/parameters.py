"""Types of command-line parameters: durations, sizes and times."""

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
        name: the name of the type in the help of a command.
        parse: returns the value of a text. A `ConfigurationError` is reported as wrong usage of the
            option, with status 2.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text. Return a default that is not a text unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


def parse_moment(text: str) -> int:
    """Parse a time in ISO 8601, in UTC unless it has an offset. Return epoch milliseconds.

    Raises `ConfigurationError` for an invalid time, or one before 1970.

    >>> parse_moment("2026-11-21T08:00:00Z") - parse_moment("20261121:070000")
    3600000
    """
    try:
        # Takes any character before the time, as in yyyyMMdd:HHmmss, which Hadoop writes.
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a time: write 2026-11-21T08:00:00Z") from None
    utc = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    if utc.timestamp() < 0:
        raise ConfigurationError(f"{text!r} is before 1970")
    return int(utc.timestamp() * 1000)


#: A duration in seconds: a number, or a number with one of the units s, m, h, d.
DURATION = ParsedParameter("duration", parse_seconds)

#: A size in bytes: a number, or a number with one of the units KiB, MiB, GiB.
SIZE = ParsedParameter("size", parse_bytes)

#: A time in epoch milliseconds.
MOMENT = ParsedParameter("time", parse_moment)
