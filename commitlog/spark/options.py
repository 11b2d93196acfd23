"""Options of the data sources, checked, by their documented names.

All formats of this package share the options that locate a store and a table and connect to them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, cast, get_args

from attrs import field, frozen

from commitlog._util.concurrency import Executor
from commitlog._util.parsing import parse_bytes, parse_seconds
from commitlog.commit import ConditionalStore
from commitlog.connect import connect
from commitlog.errors import ConfigurationError
from commitlog.outputs import Mode, OnRewrite, Output, Visibility
from commitlog.spark.formats import FORMATS
from commitlog.urls import SECRET_OPTIONS, SERVICE_OPTIONS, Url, parse_store_url, parse_table_url

__all__ = [
    "JOB",
    "JobOptions",
    "OpenOutput",
    "OptionReader",
    "ReadOptions",
    "TailOptions",
    "WriteOptions",
    "camel",
    "connection_names",
    "connection_of",
    "is_namespace",
    "place_of",
    "table_of",
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


def connection_names(table: str) -> tuple[str, ...]:
    """Return the options that locate a store and a table; `table` is the option that names the table.

    >>> [name for name in connection_names("state") if "region" in name]
    ['region', 'state.region']
    """
    return tuple(map(camel, ["path", table, *_SERVICE, *(f"{table}.{name}" for name in _OF_TABLE)]))


class OptionReader:
    """Options by their documented names. Letter case and underscores do not count.

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


def place_of(given: OptionReader, url: str | None = None) -> tuple[str, dict[str, str]]:
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


def connection_of(given: OptionReader) -> dict[str, str]:
    """Return what `open_store` is to be given besides a URL."""
    return given.some(_SERVICE)


def table_of(given: OptionReader, name: str) -> tuple[str | None, dict[str, str]]:
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


#: The options that `JobOptions` reads.
JOB = (
    *("jobId", "ifExists", "onDuplicate", "mergeSchema"),
    *("fileFormat", "compression", "partitionBy", "sortBy", "targetFileBytes", "targetFileRows"),
)


@frozen(kw_only=True, slots=False)  # of two base classes, only one may have slots
class JobOptions:
    """Options of a job and of the files that its tasks write.

    Attributes:
        job_id: id of the job, which is committed at most once; None for a new one.
        if_exists: ``append``; or ``error`` or ``ignore`` to leave a place with data unchanged.
        on_duplicate: ``error`` or ``skip``, for a job that was committed before.
        merge_schema: whether rows may have additional columns, and lack existing ones.
        file_format: one of `FORMATS`.
        compression: one of the format's.
        partition_by: names of the columns that become directories.
        sort_by: names of the columns that each file is sorted by.
        target_file_bytes: size from which on a file is complete; None for any.
        target_file_rows: most rows of a file; None for any number.
    """

    job_id: str | None
    if_exists: Literal["append", "error", "ignore"]
    on_duplicate: Literal["error", "skip"]
    merge_schema: bool
    file_format: str
    compression: str
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    target_file_bytes: int | None
    target_file_rows: int | None

    @staticmethod
    def parse_job_options(given: OptionReader) -> dict[str, Any]:
        """Return the attributes, as the options `JOB` say. Raises `ConfigurationError`."""
        file_format = given.choice("fileFormat", tuple(FORMATS))
        return {
            "job_id": given.get("jobId"),
            "if_exists": given.choice("ifExists", ("append", "error", "ignore")),
            "on_duplicate": given.choice("onDuplicate", ("error", "skip")),
            "merge_schema": given.flag("mergeSchema"),
            "file_format": file_format,
            "compression": given.choice("compression", tuple(FORMATS[file_format].compressions)),
            "partition_by": given.names("partitionBy"),
            "sort_by": given.names("sortBy"),
            "target_file_bytes": given.count("targetFileBytes"),
            "target_file_rows": given.count("targetFileRows"),
        }

    def save_mode(self, overwrite: bool) -> Literal["append", "error", "overwrite"]:
        """Return what ``ifExists`` makes of Spark's save mode, which is ``overwrite`` or ``append``."""
        if not overwrite:
            return "append" if self.if_exists == "append" else "error"
        if self.if_exists != "append":
            raise ConfigurationError("option ifExists goes with save mode append, not with overwrite")
        return "overwrite"


#: Files of a batch of a stream, unless a number is given.
MAX_FILES = 1000

_PLACE = (*connection_names("table"), "commit")
_READ = (*_PLACE, "rollForward", "version", "filters")
_TAIL = ("startingVersion", "onRewrite", "maxFilesPerTrigger", "maxBytesPerTrigger")
_OF_OUTPUTS = ("partitionOverwriteMode", "visibility", "attempt")
# Spark hands the options of a streaming query on as they are.
_WRITE = (*_PLACE, *JOB, *_OF_OUTPUTS, "checkpointLocation", "queryName")


@frozen(kw_only=True)
class ReadOptions:
    """Location of an output, and the options for reading it.

    Attributes:
        url: of the directory that is the output, or its absolute path.
        connection: further arguments of `commitlog.connect`. There may be credentials among them, so
            they are never shown.
        table: URL of the table that leases are kept in, or None.
        table_options: what completes that URL; never shown either.
        roll_forward: whether a reader finishes what a driver that died had committed; see
            `Output.snapshot`.
        version: the version to read; None for the last one.
        filters: files without a row that matches are skipped; see `parse_filters`. None: no filters.
    """

    url: str
    connection: Mapping[str, str] = field(repr=False)
    table: str | None
    table_options: Mapping[str, str] = field(repr=False)
    roll_forward: bool = True
    version: int | None = None
    filters: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = OptionReader(options, _READ)
        return cls(
            **_place(given),
            roll_forward=given.flag("rollForward", default=True),
            version=given.count("version"),
            filters=given.get("filters"),
        )

    @classmethod
    def parse_any(cls, options: Mapping[str, str]) -> ReadOptions:
        """Return the same while Spark does not say whether it is a stream: with or without its options.

        >>> ReadOptions.parse_any({"path": "/out", "startingversion": "latest"}).url
        '/out'
        """
        of_streams = {name.lower() for name in _TAIL}
        given = {name: value for name, value in options.items() if _lowered(name) not in of_streams}
        return cls.parse(given)

    def open(self) -> ConditionalStore:
        """Open the store. Nothing is sent before it is used."""
        table = self.table and parse_table_url(self.table).with_options(self.table_options)
        return connect(self.url, table=table, **cast(dict[str, Any], self.connection))


@frozen(kw_only=True)
class TailOptions(ReadOptions):
    """Location of an output, and the options for reading it as a stream.

    Attributes:
        starting: where a query begins that has no checkpoint yet; see `Tail.start`.
        on_rewrite: what to do about commits that remove rows; see `Output.tail`.
        max_files: most files of a batch.
        max_bytes: most bytes of a batch that has more than one file; None for any number.
    """

    starting: int | Literal["all", "latest"]
    on_rewrite: OnRewrite
    max_files: int
    max_bytes: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> TailOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = OptionReader(options, (*_READ, *_TAIL))
        if given.get("version") is not None:
            raise ConfigurationError("option version is of batch queries: give startingVersion")
        if given.get("filters") is not None:
            raise ConfigurationError("option filters is of batch queries: filter the rows of the stream")
        return cls(
            **_place(given),
            roll_forward=given.flag("rollForward", default=True),
            starting=_starting((given.get("startingVersion") or "all").lower()),
            on_rewrite=given.choice("onRewrite", get_args(OnRewrite)),
            max_files=given.count("maxFilesPerTrigger") or MAX_FILES,
            max_bytes=given.size("maxBytesPerTrigger"),
        )


def is_namespace(url: str) -> bool:
    """Return whether a URL names a directory in a namespace."""
    return url.startswith("commitlog://")


@frozen(kw_only=True)
class WriteOptions(ReadOptions, JobOptions):
    """Location of an output, and the options for writing to it.

    Attributes:
        dynamic: whether overwriting is confined to the partitions that have new rows.
        visibility: who is to see the files; None: as before.
        attempt: what makes the attempt unlike all others, if the caller has to know its name.
    """

    dynamic: bool
    visibility: Visibility | None
    attempt: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = OptionReader(options, _WRITE)
        return cls(
            **_place(given),
            dynamic=given.choice("partitionOverwriteMode", ("static", "dynamic")) == "dynamic",
            visibility=given.choice("visibility", get_args(Visibility))
            if given.get("visibility")
            else None,
            attempt=given.get("attempt"),
            **cls.parse_job_options(given),
        )

    def mode(self, overwrite: bool) -> Mode:
        """Return the mode of a job, Spark's save mode being ``overwrite`` or ``append``.

        Without partition columns, a dynamic overwrite replaces everything, as Spark's own writers do.
        """
        mode = self.save_mode(overwrite)
        by_partition = mode == "overwrite" and self.dynamic and self.partition_by
        return "overwrite-partitions" if by_partition else mode


class OpenOutput(Protocol):
    """Opens the output that options name. It is pickled along with readers and writers."""

    def __call__(self, options: ReadOptions, executor: Executor | None = None, /) -> Output:
        """Return it; nothing is sent before it is used."""


def _place(given: OptionReader) -> dict[str, Any]:
    """Return the attributes of `ReadOptions` that say where it is."""
    url, connection = place_of(given)
    table, table_options = table_of(given, "table")
    return {
        "url": url,
        "connection": {**connection, **given.some(["commit"])},
        "table": table,
        "table_options": table_options,
    }


def _lowered(name: str) -> str:
    return name.lower().replace("_", "")


def _starting(value: str) -> int | Literal["all", "latest"]:
    match value:
        case "all" | "latest":
            return value
    if not value.isdecimal():
        raise ConfigurationError(
            f"option startingVersion is {value!r}: give all, latest, or the number of a version"
        )
    return int(value)
