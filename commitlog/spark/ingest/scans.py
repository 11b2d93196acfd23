"""Plans of file scans: what the format ``commitlog_ingest_spark`` asks of the commit agent.

That format is in Java, in the committer's jar, and Spark's own readers read its files. Which files a
batch has is decided here, by the same `Ingest` as for the format ``commitlog_ingest``, with the same
state and the same offsets. So a query may change from one format to the other, with its checkpoint.

Spark's readers do not know versions of files. So each file of a batch has a *version text*, which a task
compares after it has read the file: the etag, or what identifies a file on a disk. An object that has
changed fails the task, and the query. At its next start the batch is *replayed*: its files are compared
before they are read, and the policies ``changed`` and ``missing`` apply to those that differ.

Inferred columns are those of Python's readers, cleaning and notifications are those of `Ingest`: the
agent holds the queue and cleans in the background.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from attrs import field, frozen

from commitlog._util.fork import WorkLock
from commitlog.clock import SystemClock
from commitlog.errors import (
    ConfigurationError,
    InputChanged,
    InputMissing,
    InputUnreadable,
    NotSupported,
)
from commitlog.ingest import File, Ingest, Pinned, Quarantine, Slice, SourceMetadata
from commitlog.ingest.offset import Offset
from commitlog.paths import check_path
from commitlog.spark.committer.s3a import s3_connection
from commitlog.spark.ingest.cleaning import BackgroundCleaner
from commitlog.spark.ingest.columns import (
    METADATA_COLUMN,
    RowBuilder,
    check_metadata,
    inferred_columns,
    metadata_values,
)
from commitlog.spark.ingest.options import (
    PYTHON_FORMAT,
    SPARK_FORMAT,
    IngestOptions,
    SourceOptions,
    check_reader,
    split_options,
)
from commitlog.spark.schema import check_columns, dump_schema, load_schema, nullable
from commitlog.urls import parse_store_url

__all__ = ["ScanOptions", "ScanPlanner"]

_PYTHON = f"use format {PYTHON_FORMAT!r}"

#: Options of Spark's readers by format, unless the query gives them, with names in lower case. Content
#: that does not fit fails the query, and times without a zone are UTC, as when Python reads. Avro files
#: may have any name. Early dates of Parquet fail the query unless the file has a mark of its calendar.
_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "avro": {"ignoreextension": "true"},
    "csv": {"mode": "FAILFAST", "enforceschema": "false", "timezone": "UTC"},
    "json": {"mode": "FAILFAST", "timezone": "UTC"},
    "orc": {},
    "parquet": {"datetimerebasemode": "EXCEPTION", "int96rebasemode": "EXCEPTION"},
    "text": {},
}

#: Settings of Hadoop for files on a disk. Its default looks for a file with checksums next to each file,
#: and fails at a colon in a name.
_LOCAL_FILES: Mapping[str, str] = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}

#: Formats of files with a header or a footer, which are never empty.
_NEVER_EMPTY = ("avro", "orc", "parquet")

#: The columns of files of a format that has no others.
_FIXED: Mapping[str, Sequence[str]] = {"text": ("value",)}

#: Options of Spark's file source that name files. Here the source does.
_OF_LISTINGS = (
    *("basepath", "cleansource", "filenameonly", "latestfirst", "maxcachedfiles"),
    *("modifiedafter", "modifiedbefore", "recursivefilelookup", "sourcearchivedir"),
)
#: Options with which Spark's readers would drop content without a trace, and the values that keep it.
_LOSSLESS: Mapping[str, str] = {
    "ignorecorruptfiles": "false",
    "ignoreextension": "true",
    "ignoremissingfiles": "false",
}
#: Options that only Python's readers have, also those of formats, which Spark's would ignore.
_OF_PYTHON = ("slicebytes", "rescuedcolumn", "maxrecordbytes", "maxblockbytes")

#: Number of objects that are compared at the same time.
_REQUESTS = 16

#: Cost in bytes of opening a file, by which Spark fills its partitions: on S3, and on a disk.
_OPEN_COST = 1024 * 1024
_LOCAL_OPEN_COST = 128 * 1024

#: Etag of a file that another program wrote: inode, size, and time in nanoseconds.
_WEAK = re.compile(r"weak-([0-9a-f]+)-([0-9a-f]+)-([0-9a-f]+)")

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


@frozen(kw_only=True)
class ScanOptions:
    """Options of a query whose files Spark reads.

    Attributes:
        ingest: the options of the source.
        spark: the options of Spark's reader.
    """

    ingest: SourceOptions
    spark: Mapping[str, str]

    @property
    def has_lines(self) -> bool:
        """Whether an empty file has no record."""
        whole = self.spark.get("wholetext", "false").lower() == "true"
        return self.ingest.format not in _NEVER_EMPTY and not whole

    @classmethod
    def parse(cls, options: Mapping[str, str], *, inferred: bool = False) -> ScanOptions:
        """Return the options from Spark.

        Args:
            options: all options.
            inferred: whether the columns are to be inferred.

        Raises `ConfigurationError` for a wrong one, and `NotSupported` for one that only Python's
        readers satisfy.
        """
        check_reader(options, "python", PYTHON_FORMAT)
        own, rest = split_options(options)
        ingest = SourceOptions.parse(own)
        format = ingest.format
        if format not in _DEFAULTS:
            raise NotSupported(
                f"format {SPARK_FORMAT!r} reads {', '.join(_DEFAULTS)}, not {format}: {_PYTHON}"
            )
        given = {name.lower().replace("_", "") for name in options}
        for name in _OF_PYTHON:
            if name in given:
                raise NotSupported(f"option {name} is one of Python's readers: {_PYTHON}")
        if inferred and ingest.new_columns is None:
            raise NotSupported(
                "if columns are inferred, new columns stop the query, and Spark's readers ignore them:"
                f" set newColumns to ignore, give columns with .schema(…), or {_PYTHON}"
            )
        if (ingest.new_columns or "ignore") != "ignore":
            raise NotSupported(f"Spark's readers ignore new columns; to find them, {_PYTHON}")
        if inferred and ingest.metadata:
            raise NotSupported(
                f"the column {METADATA_COLUMN} of inferred columns has offsets of records, which Spark's"
                f" readers do not know: give columns with .schema(…), or {_PYTHON}"
            )
        if ingest.settings.unreadable != "fail":
            raise NotSupported(f"Spark's readers quarantine nothing: leave out unreadable, or {_PYTHON}")
        spark = {name.lower(): value for name, value in rest.items()}
        if format == "orc" and "timezone" in spark:
            raise NotSupported(
                f"Spark's reader of ORC has no option timeZone: leave it out, or {_PYTHON}"
            )
        for name in _OF_LISTINGS:
            if name in spark:
                raise ConfigurationError(f"option {name} does not apply: the source names the files")
        for name, lossless in _LOSSLESS.items():
            if spark.get(name, lossless).lower() != lossless:
                raise NotSupported(f"option {name} would lose records without a trace: leave it out")
        kept = dict.fromkeys(("ignorecorruptfiles", "ignoremissingfiles"), "false")
        place = _LOCAL_FILES if ingest.local else {}
        return cls(ingest=ingest, spark={**_DEFAULTS[format], **place, **spark, **kept})


@frozen(kw_only=True)
class _Planned:
    """A slice of a batch, and the columns in its path."""

    epoch: int
    slice: Slice
    values: Mapping[str, pa.Scalar]

    @property
    def file(self) -> File:
        return self.slice.file


@frozen(kw_only=True)
class _Query:
    """The source of a running query, open.

    Attributes:
        options: its options.
        fields: the names of the fields of the column with metadata, if there is one.
        builder: knows its columns.
        store: the store.
        ingest: the source.
        quarantine: stores problems.
        cleaner: cleans the source, if it is to be cleaned.
        resources: closes all of it.
        plans: the last plan, by the texts of its offsets.
        described: whether its settings are stored.
        lock: held by each call.
    """

    options: ScanOptions
    fields: Sequence[str]
    builder: RowBuilder
    store: Any
    ingest: Ingest
    quarantine: Quarantine
    cleaner: BackgroundCleaner | None
    resources: ExitStack = field(repr=False)
    plans: dict[tuple[str | None, str], list[_Planned]] = field(factory=dict, repr=False)
    described: threading.Event = field(factory=threading.Event, repr=False)
    lock: WorkLock = field(factory=WorkLock, repr=False)


class ScanPlanner:
    """Plans the batches of the streaming queries of a driver. Thread-safe.

    Each request has ``query``: an id of the started query; ``options``: all options that Spark passes,
    with the path; ``schema``: the columns in Spark's JSON (for `check` also None, to infer them);
    ``hadoop``: the settings of S3A, or None. So any process can answer it, also one that replaces
    another. Every request can be repeated.
    """

    def __init__(self) -> None:
        self._queries: dict[str, _Query] = {}
        self._lock = WorkLock()

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Check the options and columns of a query; create the table of its state if that is a file.

        Columns that are not given are inferred, by the rules of Python's readers, and kept in the state.

        Returns:
            ``schema``: the columns in Spark's JSON; ``format``: the format of the files; ``options``:
            those for Spark's reader; ``open_cost`` and ``partition_bytes``: sizes in bytes for Spark's
            partitions, the latter None for Spark's own; ``scheme``, ``authority``, ``root``: the place
            of the files in Hadoop's terms; ``cleans``: whether `commit` is to be called.

        Raises the errors of `ScanOptions.parse`, `NotSupported` for columns, `TableNotFound`, and those
        of `inferred_columns`.
        """
        schema = request["schema"]
        options = ScanOptions.parse(request["options"], inferred=schema is None)
        if schema is not None:
            _builder(request)
            check_metadata(load_schema(schema), wanted=options.ingest.metadata)
        options.ingest.check_table()
        if schema is None:
            schema = _inferred(request)
            _builder({**request, "schema": schema})
        given = {name.lower().replace("_", "") for name in request["options"]}
        url = parse_store_url(options.ingest.url)
        local = url.scheme == "file"
        return {
            "schema": schema,
            "format": options.ingest.format,
            "options": dict(options.spark),
            "open_cost": _LOCAL_OPEN_COST if local else _OPEN_COST,
            "partition_bytes": options.ingest.partition_bytes if "partitionbytes" in given else None,
            "scheme": "file" if local else "s3a",
            "authority": None if local else url.name,
            "root": url.name if local else "/" + url.prefix,
            "cleans": options.ingest.settings.cleans,
        }

    def latest_offset(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the offset after ``start`` as ``offset``, and as ``report`` with the counters.

        Args:
            request: ``start``: the text of an offset, or None at the beginning; ``finite``: whether the
                query ends with the files that exist now.

        The offset is ``start`` if there is nothing new. Raises as `Ingest.latest_offset`.
        """
        query = self._query(request)
        with query.lock:
            if request["finite"]:
                query.ingest.finish()
            text = request["start"]
            start = query.ingest.initial_offset() if text is None else json.loads(text)
            latest = query.ingest.latest_offset(start)
            if not query.described.is_set():
                _describe(query)
            report = json.dumps(query.ingest.counters().to_json(latest))
            if latest == start and query.cleaner is not None:
                query.cleaner.begin(idle=True)
            return {"offset": text if latest == start else json.dumps(latest), "report": report}

    def plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shape of the batch between the offsets ``start`` (None: the beginning) and ``end``.

        Returns:
            ``groups``: for each set of columns that paths of files have, the names of these columns;
            ``bytes``: the size of the files; ``count``: their number; ``largest``: the size of one.

        Raises as `Ingest.partitions`, and `InputUnreadable` or `InvalidPath` for a path.
        """
        query = self._query(request)
        with query.lock:
            planned = _planned(query, request["start"], request["end"])
            groups = list(dict.fromkeys(tuple(each.values) for each in planned))
            sizes = [each.slice.size for each in planned]
            return {
                "groups": groups,
                "bytes": sum(sizes),
                "count": len(sizes),
                "largest": max(sizes, default=0),
            }

    def files(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the files of a batch to read; arguments as for `plan`.

        Returns:
            ``files``, each with ``path``: the path in the file system; ``size`` in bytes; ``modified``:
            the time in milliseconds; ``version``: the version text; ``group``: the index of its group;
            ``values``: those of the group's columns and of the metadata, as texts.

        A batch that was planned before this query started is compared with the store. Raises
        `InputChanged` and `InputMissing` if the policy is ``fail``; otherwise stores a problem, and
        leaves the file out. Raises `InputUnreadable` for an empty file of a format that has none, and
        `ConfigurationError` for a part of a file, which Spark cannot read.
        """
        query = self._query(request)
        with query.lock:
            planned = _planned(query, request["start"], request["end"])
            for each in planned:
                _check_whole(each.slice)
            groups = list(dict.fromkeys(tuple(each.values) for each in planned))
            root = parse_store_url(query.options.ingest.url)
            top = root.name if query.options.ingest.local else "/" + root.prefix
            found = []
            for each, version in zip(planned, _versions(query, planned), strict=True):
                if version is None:
                    continue
                if not each.file.size and query.options.has_lines:
                    continue  # Spark's readers fail at one whose name says that it is compressed
                if not each.file.size and query.options.ingest.format in _NEVER_EMPTY:
                    raise InputUnreadable(f"{each.file.path!r} is empty: the format has no such file")
                about = metadata_values(each.file, query.store.url) if query.fields else {}
                values = [_text(value.as_py()) for value in each.values.values()]
                found.append(
                    {
                        "path": os.path.join(top, each.file.path),
                        "size": each.file.size,
                        "modified": int(each.file.modified * 1000),
                        "version": version,
                        "group": groups.index(tuple(each.values)),
                        "values": values + [_text(about[name]) for name in query.fields],
                    }
                )
            return {"files": found}

    def commit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Record that the query has committed the batches up to the offset ``end``, and begin to clean.

        Raises as `Ingest.commit`, and the error of the last cleaning if it needs the user.
        """
        query = self._query(request)
        with query.lock:
            query.ingest.commit(json.loads(request["end"]))
            if query.cleaner is not None:
                query.cleaner.begin()
        return {}

    def stop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """End the cleaning after its current step, and close the source of a query."""
        with self._lock:
            query = self._queries.pop(request["query"], None)
        if query is not None:
            with query.lock:
                query.resources.close()
        return {}

    def _query(self, request: Mapping[str, Any]) -> _Query:
        """Return the source of a query; open it if this process has not done so."""
        name = request["query"]
        with self._lock:
            found = self._queries.get(name)
        if found is not None:
            return found
        opened = _opened(request)
        with self._lock:
            found = self._queries.setdefault(name, opened)
        if found is not opened:
            opened.resources.close()
        return found


def _builder(request: Mapping[str, Any]) -> tuple[RowBuilder, Sequence[str]]:
    """Return what knows the columns, and the fields of the column with metadata."""
    schema = load_schema(request["schema"])
    check_columns(schema)
    builder = RowBuilder(nullable(schema), "ignore", "")
    fields: Sequence[str] = ()
    if METADATA_COLUMN in schema.names and METADATA_COLUMN not in builder.content.names:
        fields = schema[METADATA_COLUMN].dataType.names  # type: ignore[attr-defined]
        if "offset" in fields:
            raise NotSupported(f"Spark's readers do not know offsets of records: {_PYTHON}")
    return builder, fields


def _opened(request: Mapping[str, Any]) -> _Query:
    options = ScanOptions.parse(request["options"])
    builder, fields = _builder(request)
    ingest = options.ingest
    with ExitStack() as resources:
        connection = _connection(request, ingest)
        store = resources.enter_context(ingest.opened_store(connection))
        table = resources.enter_context(ingest.opened_table())
        queue = resources.enter_context(ingest.opened_queue())
        cleaner = None
        if ingest.settings.cleans:
            cleaner = resources.enter_context(BackgroundCleaner(ingest, connection))
        return _Query(
            options=options,
            fields=fields,
            builder=builder,
            store=store,
            ingest=Ingest(store, table, ingest.settings, notifications=queue),
            quarantine=Quarantine(table, ingest.settings.source, clock=SystemClock()),
            cleaner=cleaner,
            resources=resources.pop_all(),
        )


def _connection(request: Mapping[str, Any], ingest: SourceOptions) -> dict[str, Any]:
    """Return the arguments of `connect` for the store: those of S3A, and options of the source."""
    url = parse_store_url(ingest.url)
    of_reader: dict[str, Any] = {}
    if url.scheme == "s3":
        # Those of the files' reader, so that both see the same objects.
        of_reader = s3_connection(request["hadoop"], url.name).arguments()
    return {**of_reader, **ingest.connection}


def _inferred(request: Mapping[str, Any]) -> str:
    """Return the inferred columns of a source."""
    try:
        options = IngestOptions.parse(request["options"])
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{error}. Columns are inferred by the rules of format {PYTHON_FORMAT!r}, which has fewer"
            " options than Spark's readers: give columns with .schema(…)"
        ) from error
    with options.opened_store(_connection(request, options)) as store:
        return dump_schema(inferred_columns(options, store))


def _describe(query: _Query) -> None:
    """Store the settings of the query for operators, once the query has claimed the source."""
    options = query.options.ingest
    metadata = SourceMetadata(
        url=str(options.store_url), format=options.format, settings=options.settings
    )
    query.ingest.state.describe(metadata)
    query.described.set()


def _planned(query: _Query, start: str | None, end: str) -> list[_Planned]:
    """Return the slices of a batch, in order."""
    known = query.plans.get((start, end))
    if known is not None:
        return known
    source = query.options.ingest.settings.source
    begin = Offset(source=source, epoch=0).to_json() if start is None else json.loads(start)
    found = []
    in_directory: dict[str, dict[str, pa.Scalar]] = {}
    for partition in query.ingest.partitions(begin, json.loads(end)):
        for each in partition.slices:
            path = check_path(each.file.path)
            directory = path.rpartition("/")[0]
            if directory not in in_directory:
                in_directory[directory] = _values(query, path)
            values = in_directory[directory]
            found.append(_Planned(epoch=partition.epoch, slice=each, values=values))
    query.plans.clear()
    query.plans[start, end] = found
    return found


def _values(query: _Query, path: str) -> dict[str, pa.Scalar]:
    """Return the values of columns that do not come from a file's content.

    They are in its path; and a column that no file of the format has is null, which Spark's readers of
    such formats refuse.
    """
    found = query.builder.path_columns(path)
    fixed = _FIXED.get(query.options.ingest.format)
    if fixed is None:
        return found
    return {
        each.name: found.get(each.name, pa.scalar(None, each.type))
        for each in query.builder.content
        if each.name in found or each.name not in fixed
    }


def _check_whole(slice: Slice) -> None:
    if not slice.whole or slice.skip:
        raise ConfigurationError(
            f"{slice.file.path!r} is to be read in part, because Python's readers have begun it. Spark"
            f" reads whole files: {_PYTHON} until the file is read"
        )


def _versions(query: _Query, planned: Sequence[_Planned]) -> list[str | None]:
    """Return the version texts of the files; None for a file to leave out."""

    policies, local = query.options.ingest.settings, query.options.ingest.local
    epochs = {each.epoch for each in planned}
    left_out = {slice for epoch in epochs for slice in query.quarantine.undelivered(epoch)}

    def version(each: _Planned) -> str | None:
        if each.slice in left_out:
            return None
        replayed = each.epoch != query.ingest.planned
        try:
            return _version(query, each.file, local=local, replayed=replayed)
        except InputChanged as error:
            if policies.changed == "fail":
                raise
            query.quarantine.report(each.epoch, each.slice, "changed", str(error))
        except InputMissing as error:
            if policies.missing == "fail":
                raise
            query.quarantine.report(each.epoch, each.slice, "missing", str(error))
        return None

    if local:
        return [version(each) for each in planned]
    with ThreadPoolExecutor(_REQUESTS) as executor:
        return list(executor.map(version, planned))


def _version(query: _Query, file: File, *, local: bool, replayed: bool) -> str:
    """Return the version text of a file; compare the file if that is necessary.

    Raises `InputChanged`, `InputMissing`.
    """
    pinned = Pinned(query.store, file)
    if not local:
        if replayed:
            pinned.check()
        return file.etag.strip('"')
    weak = _WEAK.fullmatch(file.etag)
    if weak is not None and not replayed:
        inode, size, nanoseconds = (int(part, 16) for part in weak.groups())
        return _text_of_file(inode, size, nanoseconds)
    # The store knows versions that tasks in Java cannot see. If the file is replaced in between, the
    # store finds that it changed.
    try:
        found = os.stat(os.path.join(query.options.ingest.url, file.path), follow_symlinks=False)
    except FileNotFoundError:
        raise InputMissing(f"{file.path!r} was listed, but does not exist any more") from None
    pinned.check()
    return _text_of_file(found.st_ino, found.st_size, found.st_mtime_ns)


def _text_of_file(inode: int, size: int, nanoseconds: int) -> str:
    # Some JVMs read times in microseconds only.
    return f"{inode}-{size}-{nanoseconds // 1000}"


def _text(value: object) -> str | None:
    """Return a value as the Java half reads it; times are microseconds since 1970, dates are days."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return str((value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND)
    if isinstance(value, datetime.date):
        return str((value - _EPOCH.date()).days)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (int, str, decimal.Decimal)):
        return str(value)
    raise NotSupported(f"a directory's column has values of type {type(value).__name__}: {_PYTHON}")
