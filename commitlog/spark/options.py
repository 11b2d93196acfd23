"""The options of the data source, checked before anything is touched.

Imports connect, and the names of modes and codecs.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Literal, Protocol, cast, get_args

from attrs import field, frozen

from commitlog.commit import ConditionalStore
from commitlog.connect import connect
from commitlog.errors import ConfigurationError
from commitlog.outputs import Mode, OnRewrite, Output, Visibility
from commitlog.spark.given import Given, connection_names, place_of, table_of
from commitlog.spark.jobs import JOB, JobOptions
from commitlog.urls import parse_table_url

__all__ = [
    "OpenOutput",
    "ReadOptions",
    "TailOptions",
    "WriteOptions",
    "is_lake",
]

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
        given = Given(options, _READ)
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
    """Where an output is, and how to follow it.

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
        given = Given(options, (*_READ, *_TAIL))
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


def is_lake(url: str) -> bool:
    """Tell whether a URL is of a directory in a namespace."""
    return url.startswith("commitlog://")


@frozen(kw_only=True)
class WriteOptions(ReadOptions, JobOptions):
    """Where an output is, and what to do to it.

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
        given = Given(options, _WRITE)
        return cls(
            **_place(given),
            dynamic=given.choice("partitionOverwriteMode", ("static", "dynamic")) == "dynamic",
            visibility=given.choice("visibility", get_args(Visibility))
            if given.get("visibility")
            else None,
            attempt=given.get("attempt"),
            **cls.told(given),
        )

    def mode(self, overwrite: bool) -> Mode:
        """Return the mode of a job, Spark's save mode being ``overwrite`` or ``append``."""
        mode = self.save_mode(overwrite)
        return "overwrite-partitions" if mode == "overwrite" and self.dynamic else mode


class OpenOutput(Protocol):
    """Opens the output that options name. It is pickled along with readers and writers."""

    def __call__(self, options: ReadOptions, executor: Executor | None = None, /) -> Output:
        """Return it; nothing is sent before it is used."""


def _place(given: Given) -> dict[str, Any]:
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
