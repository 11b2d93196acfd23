"""Options of the data sources, read by their documented names.

All formats of this package locate and open stores and tables by the same options. `JobOptions` are those
of every job that writes. Further options are in the modules of `commitlog.spark.targets`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from attrs import frozen

from commitlog._util.parsing import parse_bytes, parse_seconds
from commitlog.errors import AlreadyExists, ConfigurationError, JobAlreadyCommitted, NotSupported
from commitlog.files import OUTPUT_FORMATS
from commitlog.tabular import FileOptions
from commitlog.urls import (
    SECRET_OPTIONS,
    SERVICE_OPTIONS,
    Url,
    parse_queue_url,
    parse_store_url,
    parse_table_url,
)

__all__ = [
    "JOB",
    "JobOptions",
    "OptionReader",
    "camel",
    "connection_names",
    "connection_of",
    "locate_queue",
    "locate_store",
    "locate_table",
    "queue_names",
]

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


class OptionReader:
    """Options by their documented names. Letter case and underscores do not count.

    Args:
        options: the options from Spark.
        known: the documented names.
        unlisted: further names that the caller checks itself. Error messages do not list them.

    Raises `ConfigurationError` for an unknown option, and for one that has two different values.
    """

    def __init__(
        self, options: Mapping[str, str], known: Sequence[str], unlisted: Sequence[str] = ()
    ) -> None:
        spelled = {name.lower(): name for name in (*known, *unlisted)}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            documented = spelled.get(name.lower().replace("_", ""))
            if documented is None and name == "paths":  # Spark makes it of load([a, b])
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
        """Return the value of an option that must be one of `allowed`; by default the first."""
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
        """Return a positive whole number, or None if the option is missing."""
        value = self._values.get(name)
        if value is not None and not (value.isdecimal() and len(value) < 20 and int(value)):
            raise ConfigurationError(f"option {name} is {value!r}: give a whole number from 1 on")
        return None if value is None else int(value)

    def seconds(self, name: str) -> float | None:
        """Return a duration in seconds, or None if the option is missing; see `parse_seconds`."""
        return self._parsed(name, parse_seconds)

    def size(self, name: str) -> int | None:
        """Return a number of bytes, or None if the option is missing; see `parse_bytes`."""
        return self._parsed(name, parse_bytes)

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        value = self._values.get(name)
        try:
            return None if value is None else parse(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"option {name}: {error}") from None

    def some(self, names: Iterable[str], prefix: str = "") -> dict[str, str]:
        """Return the present options among `names`, each spelled with `prefix`, by name."""
        values = {name: self._values.get(camel(prefix + name)) for name in names}
        return {name: value for name, value in values.items() if value is not None}


# -- stores and tables -------------------------------------------------------------------------------


def queue_names(queue: str) -> tuple[str, ...]:
    """Return the options that locate a queue; `queue` is the option that names it."""
    return tuple(map(camel, [queue, *(f"{queue}.{name}" for name in _OF_TABLE)]))


def connection_names(table: str) -> tuple[str, ...]:
    """Return the options that locate a store and a table; `table` is the option that names the table.

    >>> [name for name in connection_names("state") if "region" in name]
    ['region', 'state.region']
    """
    return tuple(map(camel, ["path", table, *_SERVICE, *(f"{table}.{name}" for name in _OF_TABLE)]))


def locate_store(options: OptionReader, url: str | None = None) -> tuple[str, dict[str, str]]:
    """Return the URL of a store, and the other arguments of `open_store`.

    Args:
        options: the options.
        url: the URL; None for the value of option ``path``.

    Returns the absolute path of a local directory in place of its URL.

    Raises `ConfigurationError` if the URL is missing, invalid, of a store in memory, or has credentials.
    """
    url = options.get("path") if url is None else url
    if not url:
        raise ConfigurationError("no path given: pass its URL to save(…) or load(…)")
    parsed = parse_store_url(url)
    _refuse_secrets("path", parsed)
    if parsed.scheme == "memory":
        raise ConfigurationError("a memory:// store is gone with its process, and Spark has many")
    # Workers may run in another directory.
    return parsed.name if parsed.scheme == "file" else url, connection_of(options)


def connection_of(options: OptionReader) -> dict[str, str]:
    """Return the arguments of `open_store` except for the URL."""
    return options.some(_SERVICE)


def locate_table(options: OptionReader, name: str) -> tuple[str | None, dict[str, str]]:
    """Return the URL of the table in option `name`, and the other arguments of `open_table`.

    The URL is None if the option is missing.

    Raises `ConfigurationError` if the URL is invalid, of a table in memory, or has credentials, or if
    there are options of a table but not the table.
    """
    table = options.get(name)
    connection = options.some(_OF_TABLE, f"{name}.")
    if table is not None:
        parsed = parse_table_url(table)
        _refuse_secrets(name, parsed)
        if parsed.scheme == "memory":
            raise ConfigurationError("a memory:// table is gone with its process, and Spark has many")
    elif connection:
        raise ConfigurationError(f"options {name}.… go with option {name}, which is missing")
    return table, connection


def locate_queue(options: OptionReader, name: str) -> Url | None:
    """Return the URL of the queue in option `name`, with its other options; None without one.

    Raises `ConfigurationError` if the URL is invalid or has credentials, or if there are options of a
    queue but not the queue.
    """
    queue = options.get(name)
    connection = options.some(_OF_TABLE, f"{name}.")
    if queue is None:
        if connection:
            raise ConfigurationError(f"options {name}.… go with option {name}, which is missing")
        return None
    parsed = parse_queue_url(queue)
    _refuse_secrets(name, parsed)
    return parsed.with_options(connection)


def _refuse_secrets(option: str, url: Url) -> None:
    # Spark shows the values of these options in plans and in its event log.
    leaked = sorted(SECRET_OPTIONS & set(url.options))
    if leaked:
        name = camel(leaked[0] if option == "path" else f"{option}.{leaked[0]}")
        raise ConfigurationError(
            f"the URL of option {option} must not have {leaked[0]}, because Spark prints it:"
            f" give it as option {name}"
        )


# -- jobs --------------------------------------------------------------------------------------------

#: The options that `JobOptions` reads.
JOB = (
    *("jobId", "ifExists", "onDuplicate", "mergeSchema", "partitionOverwriteMode"),
    *("fileFormat", "compression", "partitionBy", "sortBy", "targetFileBytes", "targetFileRows"),
    # Spark also passes these two options of streaming queries.
    *("checkpointLocation", "queryName"),
)


@frozen(kw_only=True)
class JobOptions(FileOptions):
    """Options of a job and of the files that its tasks write; see `FileOptions`.

    Attributes:
        job_id: id of the job, which is committed at most once; None for a new one.
        if_exists: ``append``; or ``error`` or ``ignore`` to leave a target with data unchanged.
        on_duplicate: ``error`` or ``skip``, for a job that was committed before.
        merge_schema: whether rows may have additional columns, and lack existing ones.
        dynamic: whether an overwrite replaces only the partitions that get new rows.
    """

    job_id: str | None
    if_exists: Literal["append", "error", "ignore"]
    on_duplicate: Literal["error", "skip"]
    merge_schema: bool
    dynamic: bool

    @classmethod
    def parse(cls, options: OptionReader) -> JobOptions:
        """Return the options `JOB`; raise `ConfigurationError` for a wrong one."""
        file_format = options.choice("fileFormat", tuple(OUTPUT_FORMATS))
        return cls(
            job_id=options.get("jobId"),
            if_exists=options.choice("ifExists", ("append", "error", "ignore")),
            on_duplicate=options.choice("onDuplicate", ("error", "skip")),
            merge_schema=options.flag("mergeSchema"),
            dynamic=options.choice("partitionOverwriteMode", ("static", "dynamic")) == "dynamic",
            file_format=file_format,
            compression=options.choice("compression", tuple(OUTPUT_FORMATS[file_format].compressions)),
            partition_by=options.names("partitionBy"),
            sort_by=options.names("sortBy"),
            target_file_bytes=options.count("targetFileBytes"),
            target_file_rows=options.count("targetFileRows"),
        )

    def mode(self, overwrite: bool) -> Literal["append", "error", "overwrite", "overwrite-partitions"]:
        """Return the mode of a job; `overwrite` tells Spark's save mode from ``append``.

        Without partition columns, a dynamic overwrite replaces everything, as Spark's own writers do.

        Raises `ConfigurationError` if an overwrite has option ``ifExists``.
        """
        if not overwrite:
            return "append" if self.if_exists == "append" else "error"
        if self.if_exists != "append":
            raise ConfigurationError("option ifExists goes with save mode append, not with overwrite")
        return "overwrite-partitions" if self.dynamic and self.partition_by else "overwrite"

    def check_stream(self, overwrite: bool) -> None:
        """Raise unless micro-batches can be written with these options.

        Raises `NotSupported` for output mode ``complete``, for which `overwrite` is True, and
        `ConfigurationError` for options of batch queries.
        """
        if overwrite:
            raise NotSupported(
                "output mode 'complete' would replace everything with each batch: use 'append'"
            )
        if self.job_id is not None or self.if_exists != "append" or self.dynamic:
            raise ConfigurationError(
                "options jobId, ifExists and partitionOverwriteMode apply to batch queries only: each"
                " batch of a stream is a job of its own that appends"
            )

    def skips(self, error: AlreadyExists) -> bool:
        """Return whether a job ends without rows and without an error, in place of `error`."""
        if isinstance(error, JobAlreadyCommitted):
            return self.on_duplicate == "skip"
        return self.if_exists == "ignore"
