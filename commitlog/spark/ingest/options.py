"""Options of the source ``commitlog_ingest``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from attrs import field, frozen

from commitlog.errors import ConfigurationError, TableNotFound
from commitlog.files import INPUT_FORMATS, InputFormat, NewColumns
from commitlog.ingest import INGEST_SCHEMA, IngestSettings, PathFilter
from commitlog.ingest.settings import Clean, Starting
from commitlog.ingest.source import PARTITION_BYTES
from commitlog.spark.options import (
    OptionReader,
    connection_names,
    locate_queue,
    locate_store,
    locate_table,
    queue_names,
)
from commitlog.stores.api import ObjectStore
from commitlog.stores.local.tree import RESERVED
from commitlog.stores.open import open_store
from commitlog.tables.api import Table
from commitlog.tables.open import open_table
from commitlog.urls import Url, parse_store_url, parse_table_url

if TYPE_CHECKING:
    from commitlog.aws.sqs import SqsQueue

__all__ = [
    "PYTHON_FORMAT",
    "READERS",
    "SPARK_FORMAT",
    "IngestOptions",
    "SourceOptions",
    "check_reader",
    "split_options",
]

#: The format whose files Python workers read.
PYTHON_FORMAT = "commitlog_ingest"

#: The format whose files Spark's own readers read; see `commitlog.spark.ingest.scans`. It is in Java:
#: Spark would refuse two implementations of one name.
SPARK_FORMAT = "commitlog_ingest_spark"

_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger", "maxFileAge", "sliceBytes", "listLimit")
_WHICH = ("glob", "pathGlobFilter", "hiddenFiles", "startingFrom", "ordered")
_KNOWN = ("source", "grace", "remember")
_CLEANING = ("cleanSource", "sourceArchiveDir", "cleanDelay")
_POLICIES = ("changed", "missing", "unreadable", "newColumns")
_COLUMNS = ("fileFormat", "metadata", "rescuedColumn", "sampleFiles", "partitionBytes")
_NOTIFICATIONS = (*queue_names("notifications"), "listingInterval")
_OWN = (
    *connection_names("state"),
    *_NOTIFICATIONS,
    *_LIMITS,
    *_WHICH,
    *_KNOWN,
    *_CLEANING,
    *_POLICIES,
    *_COLUMNS,
    "reader",
)

#: Values of option ``reader``: whether Python or Spark reads the files. Each has a format of its own.
READERS = ("auto", "python", "spark")

# Characters of a glob. A question mark is not one of them: it begins the options of a URL.
_GLOB = re.compile(r"[*{\[]")

#: Number of seconds for which a received notification is hidden from other receivers.
VISIBLE_AFTER = 300

#: Suffixes of the files of an SQLite database.
_OF_SQLITE = ("", "-wal", "-shm", "-journal")

#: Valid epoch seconds. A value outside of them is a time in other units, or a date.
_EPOCH_SECONDS = (1e8, 1e11)


@frozen(kw_only=True)
class SourceOptions:
    """Location of the input and the state, and the options of a source, whoever reads its files.

    Attributes:
        url: URL of the directory or prefix above all input, or its absolute path.
        connection: further options of the store. They may contain credentials, so they are never shown.
        state: URL of the table of the state.
        state_options: further options of that table; never shown either.
        notifications: URL of the queue of notifications with all of its options, or None.
        settings: settings of the source; see `commitlog.ingest`.
        format: the name of the format of the files, one of `INPUT_FORMATS`.
        new_columns: policy for columns that the query does not know; None: ``fail`` if the columns are
            inferred, else ``ignore``.
        metadata: whether to add a column with the metadata of each record's file.
        rescued_column: name of the column for rescued values.
        sample_files: number of files that are read to infer columns.
        partition_bytes: size in bytes of the input of a task.
    """

    url: str
    connection: Mapping[str, str] = field(repr=False)
    state: str
    state_options: Mapping[str, str] = field(repr=False)
    notifications: Url | None
    settings: IngestSettings
    format: str
    new_columns: NewColumns | None
    metadata: bool
    rescued_column: str
    sample_files: int
    partition_bytes: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options of a source; raise `ConfigurationError` for a wrong one.

        Those of the format of the files are not among them; see `split_options`.
        """
        return cls(**_of_source(OptionReader(options, _OWN), _format(options)))

    @property
    def store_url(self) -> Url:
        """The URL of the store with all options. Its text does not show credentials."""
        return parse_store_url(self.url).with_options(self.connection)

    @property
    def local(self) -> bool:
        """Whether the input is a directory of this machine."""
        return self.store_url.scheme == "file"

    def opened_store(
        self, connection: Mapping[str, Any] | None = None
    ) -> AbstractContextManager[ObjectStore]:
        """Open the store of the input for a context. Nothing is sent before it is used.

        Args:
            connection: further arguments of `open_store`, which count before those in the URL, and after
                the options of the source.
        """
        if connection is None:
            return closing(open_store(self.store_url))
        return closing(open_store(parse_store_url(self.url), **{**connection, **self.connection}))

    def opened_queue(self) -> AbstractContextManager[SqsQueue | None]:
        """Open the queue of notifications, if there is one, for a context. Nothing is sent before."""
        if self.notifications is None:
            return nullcontext()
        # Imported here, because a local directory needs no client of AWS.
        from commitlog.aws.sqs import SqsQueue

        return closing(SqsQueue(self.notifications, visible_after=VISIBLE_AFTER))

    def opened_table(self) -> AbstractContextManager[Table]:
        """Open the table of the state for a context. Nothing is sent before it is used."""
        location = parse_table_url(self.state).with_options(self.state_options)
        return closing(open_table(location, INGEST_SCHEMA))

    def check_table(self) -> None:
        """Create the table of the state if it is a file.

        Raises:
            TableNotFound: there is no table, and it is not a file.
            ConfigurationError: the default directory of the state cannot be created.
        """
        url = parse_table_url(self.state)
        with self.opened_table() as table:
            if url.scheme == "sqlite":
                self._make_state_directory(url)
                table.create()
                return
            try:
                table.check()
            except TableNotFound:
                raise TableNotFound(
                    f"there is no table {url} for the state: create it with"
                    f" `commitlog table create --for ingest {url}`"
                ) from None

    def _make_state_directory(self, url: Url) -> None:
        """Create the default directory of the state. Another directory may be misspelt."""
        directory = os.path.dirname(url.name)
        if self.state == _default_state(self.url):
            try:
                os.mkdir(directory)
            except FileExistsError:
                pass
            except OSError as error:
                raise ConfigurationError(
                    f"the state cannot be kept in {directory}: {error.strerror}. Create the directory to"
                    " read, or name a table in option state"
                ) from error


@frozen(kw_only=True)
class IngestOptions(SourceOptions):
    """Options of a source whose files Python reads.

    Attributes:
        input: the format of the files, with its options.
    """

    input: InputFormat

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> IngestOptions:
        """Return the options from Spark; raise `ConfigurationError` for a wrong one."""
        format = _format(options)
        kind = INPUT_FORMATS[format]
        found = OptionReader(options, (*_OWN, *kind.options))
        fields = _of_source(found, format)
        of_format = {known: found.get(known) for known in kind.options}
        given = {known: value for known, value in of_format.items() if value is not None}
        return cls(**fields, input=kind(given))


def check_reader(options: Mapping[str, str], other: str, format: str) -> None:
    """Raise `ConfigurationError` if option ``reader`` demands the other way to read.

    Args:
        options: the options from Spark.
        other: the value that this format cannot satisfy.
        format: the format that can.
    """
    value = _spelled(options).get("reader")
    if value is not None and value.lower() == other:
        raise ConfigurationError(f"option reader is {other!r}: use format {format!r}")


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the source, and those that only a reader of files knows.

    >>> split_options({"file_format": "csv", "header": "true"})
    ({'file_format': 'csv'}, {'header': 'true'})
    """
    own = {name.lower() for name in _OWN}
    is_own = {name: name.lower().replace("_", "") in own for name in options}
    return (
        {name: value for name, value in options.items() if is_own[name]},
        {name: value for name, value in options.items() if not is_own[name]},
    )


def _spelled(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower().replace("_", ""): value for name, value in options.items()}


def _of_source(found: OptionReader, format: str) -> dict[str, Any]:
    """Return the fields of `SourceOptions`; `format` is the name of the format of the files."""
    found.choice("reader", READERS)
    url, glob, connection = _locate(found)
    state, state_options = locate_table(found, "state")
    state = _default_state(url) if state is None else state
    if state is None:
        raise ConfigurationError(
            "option state is missing: name the table for the state of the source, such as"
            " dynamodb://ingest"
        )
    settings = _settings(found, parse_store_url(url), glob)
    _check_state_place(parse_store_url(url), parse_table_url(state), settings.names)
    return {
        "url": url,
        "connection": connection,
        "state": state,
        "state_options": state_options,
        "notifications": _notifications(found, parse_store_url(url)),
        "settings": settings,
        "format": format,
        "new_columns": _new_columns(found),
        "metadata": found.flag("metadata"),
        "rescued_column": found.get("rescuedColumn") or "_rescued",
        "sample_files": found.count("sampleFiles") or 10,
        "partition_bytes": found.size("partitionBytes") or PARTITION_BYTES,
    }


def _format(options: Mapping[str, str]) -> str:
    """Return the documented name of the format of the files."""
    name = _spelled(options).get("fileformat")
    known = {each.lower(): each for each in INPUT_FORMATS}
    if name is None or name.lower() not in known:
        said = "is missing" if name is None else f"is {name!r}"
        raise ConfigurationError(f"option fileFormat {said}; known: {', '.join(INPUT_FORMATS)}")
    return known[name.lower()]


def _locate(options: OptionReader) -> tuple[str, str | None, dict[str, str]]:
    """Return the URL above all input, the glob of the input, and further options of the store."""
    glob = options.get("glob")
    path, mark, query = (options.get("path") or "").partition("?")
    segments = path.split("/")
    first = next((number for number, each in enumerate(segments) if _GLOB.search(each)), None)
    if first is None:
        url, connection = locate_store(options)
        return url, glob, connection
    if "://" in path and first == 2:
        raise ConfigurationError("the glob in the path is in the name of the bucket: name one bucket")
    if glob is not None:
        raise ConfigurationError("there is a glob in the path, and option glob as well: give one")
    # Quoted characters in a URL are not globs.
    glob = "/".join(segments[first:])
    url, connection = locate_store(options, "/".join(segments[:first]) + mark + query)
    return url, glob, connection


def _new_columns(options: OptionReader) -> NewColumns | None:
    new: NewColumns | None = None
    if options.get("newColumns"):
        new = options.choice("newColumns", get_args(NewColumns))
    if new != "rescue" and options.get("rescuedColumn"):
        raise ConfigurationError("option rescuedColumn goes with newColumns=rescue")
    return new


def _default_state(url: str) -> str | None:
    """Return the URL of a table next to the input, or None if the input is not a local directory."""
    parsed = parse_store_url(url)
    if parsed.scheme != "file":
        return None
    return str(Url(scheme="sqlite", name=os.path.join(parsed.name, RESERVED, "ingest.sqlite")))


def _check_state_place(url: Url, state: Url, names: PathFilter) -> None:
    """Raise `ConfigurationError` if the query would read its own state: each batch would change it."""
    if url.scheme != "file" or state.scheme != "sqlite":
        return
    # A link leads to the same file.
    location = os.path.relpath(os.path.realpath(state.name), os.path.realpath(url.name))
    within = location.split(os.sep)
    if within[0] == os.pardir or RESERVED in within:
        return
    if any(names.wants("/".join(within) + suffix) for suffix in _OF_SQLITE):
        raise ConfigurationError(
            f"the state {state} is a file that the query would read: each batch would make the next one."
            " Put it outside of the directory that is read, leave option state out, or leave the file"
            " out with option glob or pathGlobFilter"
        )


def _settings(options: OptionReader, url: Url, glob: str | None) -> IngestSettings:
    local = url.scheme == "file"
    location = str(Url(scheme=url.scheme, name=url.name, prefix=url.prefix))
    clean = options.choice("cleanSource", get_args(Clean))
    if clean != "archive" and options.get("sourceArchiveDir"):
        raise ConfigurationError("option sourceArchiveDir goes with cleanSource=archive")
    values = {
        "max_files": options.count("maxFilesPerTrigger"),
        "max_bytes": options.size("maxBytesPerTrigger"),
        "max_file_age": options.seconds("maxFileAge"),
        "grace": options.seconds("grace"),
        "slice_bytes": options.size("sliceBytes"),
        "list_limit": options.count("listLimit"),
        "changed": options.get("changed"),
        "missing": options.get("missing"),
        "unreadable": options.get("unreadable"),
        "listing_interval": options.seconds("listingInterval"),
        "clean": clean,
        "clean_delay": options.seconds("cleanDelay"),
        "archive": _archive(options, url) if clean == "archive" else None,
        # A file that is moved into a directory keeps its old time.
        "remember": options.get("remember") or ("everything" if local else None),
    }
    return IngestSettings(
        source=options.get("source") or location,
        names=PathFilter(
            glob=glob, name=options.get("pathGlobFilter"), hidden=options.flag("hiddenFiles")
        ),
        starting_from=_starting(options.get("startingFrom") or "all"),
        ordered=options.flag("ordered"),
        **{name: value for name, value in values.items() if value is not None},
    )


def _notifications(options: OptionReader, url: Url) -> Url | None:
    queue = locate_queue(options, "notifications")
    if queue is None and options.get("listingInterval"):
        raise ConfigurationError("option listingInterval goes with option notifications")
    if queue is not None and url.scheme != "s3":
        raise ConfigurationError("option notifications is for s3:// URLs, and the path is a directory")
    return queue


def _archive(options: OptionReader, url: Url) -> str:
    """Return the prefix of archived objects in the bucket, or in the directory that is read."""
    location = options.get("sourceArchiveDir")
    if not location:
        raise ConfigurationError("cleanSource=archive needs sourceArchiveDir, the place of the archive")
    archive = parse_store_url(location)
    below = archive.prefix
    if url.scheme == "file" == archive.scheme:
        below = os.path.relpath(archive.name, url.name).replace(os.sep, "/")
    same = archive.scheme == url.scheme and (archive.name == url.name or url.scheme == "file")
    if not same or below in ("", ".") or below.split("/")[0] == os.pardir:
        where = "below the directory that is read" if url.scheme == "file" else f"in s3://{url.name}"
        raise ConfigurationError(
            f"sourceArchiveDir is {location!r}, and must be a directory {where}, such as '_archive'"
            " there"
        )
    return f"{below}/"


def _starting(text: str) -> Starting:
    """Return ``all``, ``latest``, or the epoch second in `text`.

    >>> _starting("latest"), _starting("1700000000"), _starting("2023-11-14T22:13:20Z")
    ('latest', 1700000000.0, 1700000000.0)
    """
    if text == "all" or text == "latest":
        return text  # type: ignore[return-value]
    advice = "give all, latest, or a time such as 2026-11-21T00:00:00Z"
    try:
        second = float(text)
    except ValueError:
        pass
    else:
        # Milliseconds would be thousands of years ahead, and 20261121 would be a day of 1970.
        if second and not _EPOCH_SECONDS[0] <= second < _EPOCH_SECONDS[1]:
            raise ConfigurationError(
                f"option startingFrom is {text!r}, no epoch second between 1973 and 5138: {advice}"
            )
        return second
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"option startingFrom is {text!r}: {advice}") from None
    # A time without a zone must be the same moment on each machine.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
