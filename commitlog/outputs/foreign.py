"""Foreign files: those in an output's directory that no job of the output wrote.

Readers that list the directory read them with the output's own files; readers of the log do not. So a
job that replaces everything, or whole partitions, must replace them too: its commit record names them,
and they are removed after the commit point, by the driver or by the process that completes the job. They
are named with their etags, because another program may write the same name again, and that file stays.

As in Spark, names that begin with ``_`` or ``.`` do not count as files, except directories such as
``_day=1``. A directory with its own log is another output, and is not touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from attrs import frozen

from commitlog.oplog.validate import count, mapping, path, text
from commitlog.stores.api import ObjectInfo, same_etag

__all__ = ["NULL", "ForeignFile", "data_files", "lies_in", "parents_of", "partition_in", "roots_of"]

#: The directory of rows that have no value, as Hive calls it.
NULL = "__HIVE_DEFAULT_PARTITION__"

_LOG = "_commitlog"


@frozen(kw_only=True)
class ForeignFile:
    """A file in the directory of an output that none of its jobs wrote.

    Attributes:
        path: path relative to the output.
        size: bytes.
        etag: as the store lists it; the file was written again if it has another one.
    """

    path: str
    size: int
    etag: str

    def is_same(self, other: ForeignFile | None) -> bool:
        """Return whether `other`, a file under the same path, is unchanged."""
        return other is not None and self.size == other.size and same_etag(self.etag, other.etag)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as they are stored."""
        return {"path": self.path, "size": self.size, "etag": self.etag}

    @classmethod
    def from_json(cls, item: object) -> ForeignFile:
        """Return the file that `item` describes; for use in `build`."""
        fields = mapping(item)
        return cls(path=path(fields["path"]), size=count(fields["size"]), etag=text(fields["etag"]))


def data_files(infos: Iterable[ObjectInfo], top: str) -> list[ForeignFile]:
    """Return the files that readers read in a listing of an output, including its own files.

    Args:
        infos: the listing.
        top: the path of the output with a slash at its end, or ""; the result is relative to it.
    """
    found, others = [], set()
    for info in infos:
        name = info.path.removeprefix(top)
        *directories, _ = segments = name.split("/")
        if _LOG in directories[1:]:
            others.add("/".join(directories[: directories.index(_LOG, 1)]))
        if not any(map(_is_hidden, segments)):
            found.append(ForeignFile(path=name, size=info.size, etag=info.etag))
    return [file for file in found if others.isdisjoint(_above(file.path))] if others else found


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

    A partition without values has the files that are in no partition.

    >>> lies_in("p=1/q=2/f", [{"p": "1"}]), lies_in("p=1/f", [{}]), lies_in("day/f", [{}])
    (True, False, True)
    """
    there = partition_in(path).items()
    return any(partition.items() <= there if partition else not there for partition in partitions)


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
