"""Foreign files: those in an output's directory that no job of the output wrote.

Readers that list the directory read them with the output's own files; readers of the log do not. So a
job that replaces everything, or whole partitions, must replace them too: its commit record names them,
and they are removed after the commit point, by the driver or by the process that completes the job. They
are named with their etags, because another program may write the same name again, and that file stays.

As in Spark, names that begin with ``_`` or ``.`` do not count as files, except directories such as
``_day=1``. But a job that replaces everything, or partitions, also replaces there the files from which
readers take the names of data files (`METADATA`). A directory with its own log is another output. If it
is a partition of this one, its files are replaced through its log, so that its readers see no hole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from attrs import field, frozen

from commitlog.errors import NotSupported
from commitlog.oplog.validate import count, mapping, maybe_text, path, text
from commitlog.stores.api import ObjectInfo, same_etag

__all__ = [
    "NULL",
    "ForeignFile",
    "OutputListing",
    "check_below",
    "lies_in",
    "parents_of",
    "partition_in",
    "roots_of",
    "survey",
]

#: The directory of rows that have no value, as Hive calls it.
NULL = "__HIVE_DEFAULT_PARTITION__"

#: Names of files, and of a directory of files, that tell readers which data files there are: those of
#: Parquet summaries, and of Spark's streaming sink.
METADATA = frozenset({"_metadata", "_common_metadata", "_spark_metadata"})

_LOG = "_commitlog"

#: Names of directories in which other table formats keep their logs.
_TABLES = frozenset({"_delta_log", ".hoodie"})


@frozen(kw_only=True)
class ForeignFile:
    """A file in the directory of an output that none of its jobs wrote.

    Attributes:
        path: path relative to the output.
        size: bytes.
        etag: as the store lists it; the file was written again if it has another one. "" in the log of
            another output.
        output: the directory of the output below this one whose log has the file, or None.
    """

    path: str
    size: int
    etag: str
    output: str | None = None

    @property
    def is_metadata(self) -> bool:
        """True if it holds no rows, but tells readers which files do; see `METADATA`."""
        return not METADATA.isdisjoint(self.path.split("/"))

    def is_same(self, other: ForeignFile | None) -> bool:
        """Return whether `other`, a file under the same path, is unchanged."""
        return other is not None and self.size == other.size and same_etag(self.etag, other.etag)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as they are stored."""
        fields = {"path": self.path, "size": self.size, "etag": self.etag}
        return fields if self.output is None else {**fields, "output": self.output}

    @classmethod
    def from_json(cls, item: object) -> ForeignFile:
        """Return the file that `item` describes; for use in `build`."""
        fields = mapping(item)
        return cls(
            path=path(fields["path"]),
            size=count(fields["size"]),
            etag=text(fields["etag"]),
            output=maybe_text(fields.get("output")),
        )


@frozen(kw_only=True)
class OutputListing:
    """What a listing of an output shows, its own files included. Paths are relative to the output.

    Attributes:
        files: the files that readers read, and those that tell them what to read.
        outputs: the directories of other outputs.
        tables: directories in which other table formats keep their logs.
    """

    files: list[ForeignFile] = field(factory=list)
    outputs: set[str] = field(factory=set)
    tables: set[str] = field(factory=set)

    def add(self, other: OutputListing) -> None:
        """Add what another listing shows."""
        self.files.extend(other.files)
        self.outputs.update(other.outputs)
        self.tables.update(other.tables)


def survey(infos: Iterable[ObjectInfo], top: str) -> OutputListing:
    """Return what a listing of an output shows.

    Args:
        infos: the listing.
        top: the path of the output with a slash at its end, or ""; the result is relative to it.
    """
    found = OutputListing()
    for info in infos:
        name = info.path.removeprefix(top)
        segments = name.split("/")
        first = next((n for n, segment in enumerate(segments) if _is_hidden(segment)), None)
        if first is None or segments[first] in METADATA:
            found.files.append(ForeignFile(path=name, size=info.size, etag=info.etag))
        elif 0 < first < len(segments) - 1 and segments[first] == _LOG:
            found.outputs.add("/".join(segments[:first]))
        elif segments[first] in _TABLES:
            found.tables.add("/".join(segments[: first + 1]))
    return found


def check_below(found: OutputListing) -> None:
    """Raise `NotSupported` if a job cannot replace all rows that a listing shows.

    These are outputs that are no partitions, and tables of other formats, whose logs would be wrong.
    """
    others = [each for each in found.outputs if not all("=" in part for part in each.split("/"))]
    for each in sorted(others):
        raise NotSupported(
            f"{each!r} is an output of its own, and no partition of the output above it that the job was"
            " to overwrite: overwrite or remove it by itself, or write to another directory"
        )
    for each in sorted(found.tables):
        raise NotSupported(
            f"{each!r} is the log of a table of another format, whose files the job was to replace:"
            " overwrite the table with its own tools, or remove it, or write to another directory"
        )


def partition_in(path: str) -> dict[str, str | None]:
    """Return the values that the directories of `path` tell; directories that tell none do not count.

    >>> partition_in("year=2013/city=a%2Fb/part-0.parquet"), partition_in("job-1/city=%s/" % NULL)
    ({'year': '2013', 'city': 'a/b'}, {'city': None})
    """
    named = (segment for segment in path.split("/")[:-1] if "=" in segment)
    pairs = (map(unquote, segment.split("=", 1)) for segment in named)
    return {name: None if value == NULL else value for name, value in pairs}


def lies_in(path: str, partitions: Collection[Mapping[str, str | None]]) -> bool:
    """Return whether the directories of `path` lead into one of `partitions`.

    A partition without values has the files that are in no partition. Names are compared without case:
    a directory may spell a column otherwise than the log does.

    >>> lies_in("P=1/q=2/f", [{"p": "1"}]), lies_in("p=1/f", [{}]), lies_in("day/f", [{}])
    (True, False, True)
    """
    there = _folded(partition_in(path))
    return any(_folded(each) <= there if each else not there for each in partitions)


def _folded(partition: Mapping[str, str | None]) -> set[tuple[str, str | None]]:
    return {(name.lower(), value) for name, value in partition.items()}


def roots_of(directories: Iterable[str]) -> Iterator[str]:
    """Yield those of `directories` that are below no other one: listing them shows all that is in any.

    >>> list(roots_of(["a=1/b=2/", "a=10/", "a=1/"])), list(roots_of(["a=1/", ""]))
    (['a=1/', 'a=10/'], [''])
    """
    last: str | None = None
    for directory in sorted(set(directories)):
        if last is None or not directory.startswith(last):
            last = directory
            yield directory


def parents_of(directories: Iterable[str]) -> list[str]:
    """Return the directories above `directories`, below the output.

    >>> parents_of(["a=1/b=2/", "a=1/b=3/c=4/", "a=2/"]), parents_of([""])
    (['a=1/', 'a=1/b=3/'], [])
    """
    return sorted({parent + "/" for each in directories for parent in _above(each[:-1])})


def _is_hidden(segment: str) -> bool:
    # An empty one, or this suffix, marks a directory in a store that has none.
    hidden = segment.startswith(".") or (segment.startswith("_") and "=" not in segment)
    return hidden or not segment or segment.endswith(("_$folder$", "._COPYING_"))


def _above(path: str) -> Iterator[str]:
    """Yield the directories that `path` is in, without slashes at their ends."""
    end = path.rfind("/")
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)
