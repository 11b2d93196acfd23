"""The options of the data source, checked before anything is touched.

Imports connect, and the names of modes and codecs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Literal, Protocol, cast, get_args

from attrs import field, frozen

from commitlog.commit import ConditionalStore
from commitlog.connect import connect
from commitlog.errors import ConfigurationError
from commitlog.outputs import Mode, Output, Visibility
from commitlog.spark.formats import FORMATS
from commitlog.urls import SECRET_OPTIONS, SERVICE_OPTIONS, Url, parse_store_url, parse_table_url

__all__ = ["ReadOptions", "WriteOptions"]

_SERVICE = sorted(SERVICE_OPTIONS | SECRET_OPTIONS)
_OF_TABLE = [name for name in _SERVICE if name != "addressing_style"]


def _camel(name: str) -> str:
    """Return the spelling that the documentation uses.

    Spark's own pattern for what to hide (spark.redaction.regex) matches accessKeyId, not access_key_id.

    >>> _camel("table.access_key_id")
    'table.accessKeyId'
    """
    head, *words = name.split("_")
    return head + "".join(word.capitalize() for word in words)


_PLACE = tuple(map(_camel, ["path", "commit", "table", *_SERVICE, *(f"table.{n}" for n in _OF_TABLE)]))
_READ = (*_PLACE, "rollForward", "version")
_JOB = ("jobId", "ifExists", "onDuplicate", "partitionOverwriteMode", "visibility", "attempt")
_FILES = ("fileFormat", "compression", "partitionBy", "sortBy", "targetFileBytes", "targetFileRows")
# Spark hands the options of a streaming query on as they are.
_WRITE = (*_PLACE, *_JOB, *_FILES, "mergeSchema", "checkpointLocation", "queryName")


@frozen(kw_only=True)
class ReadOptions:
    """Where an output is, and what of it to read.

    Attributes:
        url: of the directory that is the output, or its absolute path.
        connection: further arguments of `commitlog.connect`. There may be credentials among them, so
            they are never shown.
        table: URL of the table that leases are kept in, or None.
        table_options: what completes that URL; never shown either.
        roll_forward: whether a reader finishes what a driver that died had committed; see
            `Output.snapshot`.
        version: the version to read; None for the last one.
    """

    url: str
    connection: Mapping[str, str] = field(repr=False)
    table: str | None
    table_options: Mapping[str, str] = field(repr=False)
    roll_forward: bool = True
    version: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = _Given(options, _READ)
        return cls(
            **_place(given),
            roll_forward=given.choice("rollForward", ("true", "false")) == "true",
            version=given.count("version"),
        )

    def open(self) -> ConditionalStore:
        """Open the store. Nothing is sent before it is used."""
        table = self.table and parse_table_url(self.table).with_options(self.table_options)
        return connect(self.url, table=table, **cast(dict[str, Any], self.connection))


@frozen(kw_only=True)
class WriteOptions(ReadOptions):
    """Where an output is, and what to do to it.

    Attributes:
        job_id: what is written under one job id is committed at most once; None for a new one.
        if_exists: ``append``; or ``error`` or ``ignore`` if an output that has data is to be left alone.
        on_duplicate: ``error`` or ``skip``: what to do about a job that was committed before.
        dynamic: whether overwriting is confined to the partitions that have new rows.
        merge_schema: whether rows may have columns that the output lacks, and lack columns of it.
        visibility: who is to see the files; None: as before.
        attempt: what makes the attempt unlike all others, if the caller has to know its name.
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
    dynamic: bool
    merge_schema: bool
    visibility: Visibility | None
    attempt: str | None
    file_format: str
    compression: str
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    target_file_bytes: int | None
    target_file_rows: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = _Given(options, _WRITE)
        file_format = given.choice("fileFormat", tuple(FORMATS))
        return cls(
            **_place(given),
            job_id=given.get("jobId"),
            if_exists=given.choice("ifExists", ("append", "error", "ignore")),
            on_duplicate=given.choice("onDuplicate", ("error", "skip")),
            dynamic=given.choice("partitionOverwriteMode", ("static", "dynamic")) == "dynamic",
            merge_schema=given.choice("mergeSchema", ("false", "true")) == "true",
            visibility=given.choice("visibility", get_args(Visibility))
            if given.get("visibility")
            else None,
            attempt=given.get("attempt"),
            file_format=file_format,
            compression=given.choice("compression", tuple(FORMATS[file_format].compressions)),
            partition_by=given.names("partitionBy"),
            sort_by=given.names("sortBy"),
            target_file_bytes=given.count("targetFileBytes"),
            target_file_rows=given.count("targetFileRows"),
        )

    def mode(self, overwrite: bool) -> Mode:
        """Return the mode of a job, Spark's save mode being ``overwrite`` or ``append``."""
        if not overwrite:
            return "append" if self.if_exists == "append" else "error"
        if self.if_exists != "append":
            raise ConfigurationError("option ifExists goes with save mode append, not with overwrite")
        return "overwrite-partitions" if self.dynamic else "overwrite"


class OpenOutput(Protocol):
    """Opens the output that options name. It is pickled along with readers and writers."""

    def __call__(self, options: ReadOptions, executor: Executor | None = None, /) -> Output:
        """Return it; nothing is sent before it is used."""


class _Given:
    """Options by their documented names. Spark lowers them, and underscores do not count."""

    def __init__(self, options: Mapping[str, str], known: Sequence[str]) -> None:
        spelled = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            documented = spelled.get(name.lower().replace("_", ""))
            if documented is None:
                raise ConfigurationError(f"unknown option {name!r}; known: {', '.join(sorted(known))}")
            if self._values.setdefault(documented, value) != value:
                raise ConfigurationError(f"option {documented} is given twice, with different values")

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def choice(self, name: str, allowed: Sequence[str]) -> Any:
        value = self._values.get(name, allowed[0]).lower()
        if value not in allowed:
            raise ConfigurationError(f"option {name} is {value!r}; known: {', '.join(allowed)}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        parts = (self._values.get(name) or "").split(",")
        return tuple(part.strip() for part in parts if part.strip())

    def count(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is not None and not (value.isdecimal() and int(value)):
            raise ConfigurationError(f"option {name} is {value!r}: give a whole number from 1 on")
        return None if value is None else int(value)

    def some(self, names: Iterable[str], prefix: str = "") -> dict[str, str]:
        """Return the values of those of `names` that are given with `prefix`."""
        values = {name: self._values.get(_camel(prefix + name)) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def _place(given: _Given) -> dict[str, Any]:
    """Return the attributes of `ReadOptions`."""
    url, table = given.get("path"), given.get("table")
    of_table = given.some(_OF_TABLE, "table.")
    if not url:
        raise ConfigurationError("no place given: name the output's URL in save(…) or load(…)")
    parsed = parse_store_url(url)
    _without_secrets("path", parsed)
    if parsed.scheme == "memory":
        raise ConfigurationError("a memory:// store is gone with its process, and Spark has many")
    if table is not None:
        _without_secrets("table", parse_table_url(table))
    elif of_table:
        raise ConfigurationError("options table.… go with option table, which is missing")
    connection = given.some(["commit", *_SERVICE])
    # Workers may run in another directory.
    place = parsed.name if parsed.scheme == "file" else url
    return {"url": place, "connection": connection, "table": table, "table_options": of_table}


def _without_secrets(option: str, url: Url) -> None:
    # Spark shows the values of these options in plans and in its event log.
    leaked = sorted(SECRET_OPTIONS & set(url.options))
    if leaked:
        name = _camel(leaked[0] if option == "path" else f"{option}.{leaked[0]}")
        raise ConfigurationError(
            f"the URL of option {option} must not bear {leaked[0]}, for Spark prints it:"
            f" give it as option {name}"
        )
