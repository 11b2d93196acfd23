"""Options as Spark hands them over: by their documented names, each checked.

What every format of this package has in common: where a store and a table are, and how to reach them.
Imports units, urls and errors.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from commitlog.errors import ConfigurationError
from commitlog.units import parse_bytes, parse_seconds
from commitlog.urls import SECRET_OPTIONS, SERVICE_OPTIONS, Url, parse_store_url, parse_table_url

__all__ = ["Given", "camel", "connection_names", "connection_of", "place_of", "table_of"]

T = TypeVar("T")

_SERVICE = sorted(SERVICE_OPTIONS | SECRET_OPTIONS)
_OF_TABLE = [name for name in _SERVICE if name != "addressing_style"]


def camel(name: str) -> str:
    """Return the spelling that the documentation uses.

    Spark's own pattern for what to hide (spark.redaction.regex) matches accessKeyId, not access_key_id.

    >>> camel("table.access_key_id")
    'table.accessKeyId'
    """
    head, *words = name.split("_")
    return head + "".join(word.capitalize() for word in words)


def connection_names(table: str) -> tuple[str, ...]:
    """Return the options that say where a store is, and a table; `table` is the option that names it.

    >>> [name for name in connection_names("state") if "region" in name]
    ['region', 'state.region']
    """
    return tuple(map(camel, ["path", table, *_SERVICE, *(f"{table}.{name}" for name in _OF_TABLE)]))


class Given:
    """Options by their documented names. Spark lowers them, and underscores do not count.

    Args:
        options: as Spark hands them over.
        known: the documented names; another one is a `ConfigurationError`, as is one given twice.
        unlisted: more of them, which errors do not list, for they are refused where they are looked at.
    """

    def __init__(
        self, options: Mapping[str, str], known: Sequence[str], unlisted: Sequence[str] = ()
    ) -> None:
        spelled = {name.lower(): name for name in (*known, *unlisted)}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            documented = spelled.get(name.lower().replace("_", ""))
            if documented is None and name == "paths":  # what Spark makes of load([a, b])
                raise ConfigurationError("one path at a time: load each, and unite them (unionByName)")
            if documented is None:
                near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1)
                meant = f"; is it {spelled[near[0]]}?" if near else ""
                raise ConfigurationError(
                    f"unknown option {name!r}{meant}; known: {', '.join(sorted(known))}"
                )
            if self._values.setdefault(documented, value) != value:
                raise ConfigurationError(f"option {documented} is given twice, with different values")

    def get(self, name: str) -> str | None:
        """Return the value of an option, or None."""
        return self._values.get(name)

    def choice(self, name: str, allowed: Sequence[str]) -> Any:
        """Return which of `allowed` an option is; the first if it is not given."""
        value = self._values.get(name, allowed[0]).lower()
        if value not in allowed:
            raise ConfigurationError(f"option {name} is {value!r}; known: {', '.join(allowed)}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Return whether an option is true."""
        words = ("true", "false") if default else ("false", "true")
        return bool(self.choice(name, words) == "true")

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names that an option lists, separated by commas."""
        parts = (self._values.get(name) or "").split(",")
        return tuple(part.strip() for part in parts if part.strip())

    def count(self, name: str) -> int | None:
        """Return a whole number from 1 on, or None if it is not given."""
        value = self._values.get(name)
        if value is not None and not (value.isdecimal() and len(value) < 20 and int(value)):
            raise ConfigurationError(f"option {name} is {value!r}: give a whole number from 1 on")
        return None if value is None else int(value)

    def seconds(self, name: str) -> float | None:
        """Return a span of time in seconds, or None if it is not given; see `parse_seconds`."""
        return self._parsed(name, parse_seconds)

    def size(self, name: str) -> int | None:
        """Return a number of bytes, or None if it is not given; see `parse_bytes`."""
        return self._parsed(name, parse_bytes)

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        value = self._values.get(name)
        try:
            return None if value is None else parse(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"option {name}: {error}") from None

    def some(self, names: Iterable[str], prefix: str = "") -> dict[str, str]:
        """Return the values of those of `names` that are given with `prefix`."""
        values = {name: self._values.get(camel(prefix + name)) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def place_of(given: Given, url: str | None = None) -> tuple[str, dict[str, str]]:
    """Return the URL in option ``path``, or `url`, and what else `open_store` is to be given for it."""
    url = given.get("path") if url is None else url
    if not url:
        raise ConfigurationError("no place given: name its URL in save(…) or load(…)")
    parsed = parse_store_url(url)
    _without_secrets("path", parsed)
    if parsed.scheme == "memory":
        raise ConfigurationError("a memory:// store is gone with its process, and Spark has many")
    # Workers may run in another directory.
    return parsed.name if parsed.scheme == "file" else url, connection_of(given)


def connection_of(given: Given) -> dict[str, str]:
    """Return what `open_store` is to be given besides a URL."""
    return given.some(_SERVICE)


def table_of(given: Given, name: str) -> tuple[str | None, dict[str, str]]:
    """Return the URL of the table in option `name`, and what else `open_table` is to be given."""
    table = given.get(name)
    options = given.some(_OF_TABLE, f"{name}.")
    if table is not None:
        parsed = parse_table_url(table)
        _without_secrets(name, parsed)
        if parsed.scheme == "memory":
            raise ConfigurationError("a memory:// table is gone with its process, and Spark has many")
    elif options:
        raise ConfigurationError(f"options {name}.… go with option {name}, which is missing")
    return table, options


def _without_secrets(option: str, url: Url) -> None:
    # Spark shows the values of these options in plans and in its event log.
    leaked = sorted(SECRET_OPTIONS & set(url.options))
    if leaked:
        name = camel(leaked[0] if option == "path" else f"{option}.{leaked[0]}")
        raise ConfigurationError(
            f"the URL of option {option} must not bear {leaked[0]}, for Spark prints it:"
            f" give it as option {name}"
        )
