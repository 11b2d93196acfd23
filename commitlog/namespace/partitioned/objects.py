"""The objects of a namespace's store, compared with its records in partitions.

`ObjectListing` is the port for a list of the objects: a listing of the store itself, or an inventory
that the store made earlier. An object may have changed since it was listed. So a listing only shows
which objects are suspect; HEAD decides.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import Protocol, TypeAlias

from attrs import define, field, frozen

from commitlog.namespace.fsck.cross_checks import (
    find_existing,
    has_content,
    is_looked_up,
    look_up,
)
from commitlog.namespace.fsck.readers import StoreReader
from commitlog.namespace.fsck.references import may_be_orphan
from commitlog.namespace.model.records import Entry, Record
from commitlog.namespace.partitioned.cycles import count
from commitlog.namespace.partitioned.dataset import Dataset, Engine, Keyed, OpenAccess
from commitlog.namespace.partitioned.listing import ListedRange, objects_in, ranges_of
from commitlog.namespace.write.content import content_prefixes, is_content_prefix
from commitlog.stores.api import ObjectInfo, ObjectStore

__all__ = [
    "ObjectListing",
    "OpenStoreOwner",
    "StoreListing",
    "StoreOwner",
    "StoredObjects",
    "cover",
    "list_directories",
]

#: Number of parts of a listing for each partition.
_PARTS = 4

#: Most directories that are listed for objects that no namespace has stored, and most ranges into which
#: the driver divides them.
_DIRECTORIES, _RANGES = 64, 256


class StoreOwner(Protocol):
    """Something that has a store: the parts of a namespace as a task opens them, or the namespace."""

    @property
    def store(self) -> ObjectStore:
        """The store."""


#: Opens something with a store, in any process.
OpenStoreOwner: TypeAlias = Callable[[], AbstractContextManager[StoreOwner]]


class ObjectListing(abc.ABC):
    """A list of the objects of a store. An object in it may have changed since, or be gone.

    Attributes:
        time: epoch seconds by the store's clock; all objects that were stored before, and still exist,
            are listed. None if the list is made when it is used.
    """

    time: float | None

    @abc.abstractmethod
    def objects(
        self, engine: Engine, open_access: OpenAccess, others: Dataset[str] | None
    ) -> Dataset[ObjectInfo]:
        """Return the content of namespaces in the store, and other objects.

        Args:
            engine: divides the work.
            open_access: opens the store in a task.
            others: paths of other objects that are needed, if there are any. The result may lack a few
                of them, which are looked up, and may have objects that are not needed.
        """


@frozen(kw_only=True)
class StoreListing(ObjectListing):
    """A listing of the store in many parts, made when it is used.

    The prefixes of content that the store has are listed, and some directories with most of the other
    objects that are needed. If there are only a few of these, they are left out.
    """

    time: None = field(default=None, init=False)

    def objects(
        self, engine: Engine, open_access: OpenAccess, others: Dataset[str] | None
    ) -> Dataset[ObjectInfo]:
        """See `ObjectListing.objects`."""
        found = [] if others is None else cover(others.map(cover).collect())
        directories = [each for each in found if is_directory(each)]
        starts = () if "" in directories else _starts(_PARTS * engine.partitions)
        content = engine.distribute(starts).map(partial(_list_content, open_access))
        return content.union(list_directories(engine, open_access, directories))


def _starts(count: int) -> list[str]:
    """Return the first digits of the prefixes of content: at least so many, unless there are fewer."""
    digits = next(digits for digits in (1, 2, 3) if digits == 3 or 16**digits >= count)
    return [f"{number:0{digits}x}" for number in range(16**digits)]


def _list_content(open_access: OpenAccess, starts: Iterator[str]) -> Iterator[ObjectInfo]:
    """Yield the objects below the prefixes of content that begin with some digits."""
    with open_access() as access:
        for start in starts:
            for prefix in _content_prefixes(access.store, start):
                yield from access.store.list(prefix)


def _content_prefixes(store: ObjectStore, start: str) -> Sequence[str]:
    """Return prefixes that have all content whose prefix begins with some digits, and little else."""
    page = store.list_page(start, delimiter="/")
    if page.next_token is not None:
        return content_prefixes(start)
    found = [each for each in page.prefixes if is_content_prefix(each)]
    return [start] if found and len(found) == len(page.prefixes) and not page.objects else found


def list_directories(
    engine: Engine, open_owner: OpenStoreOwner, directories: Sequence[str]
) -> Dataset[ObjectInfo]:
    """Return the objects below some directories of a store, which are listed in ranges.

    Args:
        engine: divides the work.
        open_owner: opens what has the store, in any process.
        directories: the directories, each with a slash at the end; none is below another.
    """
    ranges: list[ListedRange] = []
    if directories:
        count = max(1, min(_RANGES, _PARTS * engine.partitions) // len(directories))
        with open_owner() as owner:
            for each in directories:
                ranges += ranges_of(owner.store, each, count=count)
    return engine.distribute(ranges).map(partial(_list_ranges, open_owner))


def _list_ranges(open_owner: OpenStoreOwner, ranges: Iterator[ListedRange]) -> Iterator[ObjectInfo]:
    with open_owner() as owner:
        for each in ranges:
            yield from objects_in(owner.store, each)


def cover(paths: Iterable[str]) -> list[str]:
    """Return directories, with a slash at the end, and paths in no such directory: a few in all.

    Each of the given paths is among the paths or below a directory; "" is above all. While there are
    too many, the deepest ones are replaced by the directory above. The result can be part of `paths`.

    >>> cover([*(f"raw/{year}/{day}" for year in range(3) for day in range(30)), "a"])
    ['a', 'raw/0/', 'raw/1/', 'raw/2/']
    """
    found: set[str] = set()
    for path in paths:
        if _is_below(path, found):
            continue
        found = {each for each in found if not _is_below(each, {path})} | {path}
        while len(found) > _DIRECTORIES:
            depth = max(map(_depth, found))
            found = {_directory_above(each) if _depth(each) == depth else each for each in found}
            found = {each for each in found if not _is_below(each, found - {each})}
    return sorted(found)


def is_directory(prefix: str) -> bool:
    """Return whether a result of `cover` is a directory."""
    return prefix.endswith("/") or not prefix


def _is_below(path: str, prefixes: Collection[str]) -> bool:
    return path in prefixes or path.startswith(tuple(filter(is_directory, prefixes)))


def _depth(prefix: str) -> int:
    """Return the number of names in a prefix."""
    return prefix.removesuffix("/").count("/") + bool(prefix)


def _directory_above(prefix: str) -> str:
    above, slash, _ = prefix.removesuffix("/").rpartition("/")
    return above + slash


@define(kw_only=True)
class StoredObjects:
    """The comparison of a store with records. The objects are listed once.

    Args:
        engine: divides the work.
        open_access: opens table, store and log in a task.
        listing: the list of the objects.
    """

    engine: Engine
    open_access: OpenAccess
    listing: ObjectListing
    _listed: Dataset[ObjectInfo] | None = field(default=None, init=False)

    def differing(
        self, records: Dataset[Record], notify: Callable[[int], object]
    ) -> tuple[int, list[Entry]]:
        """Return the number of files that were compared, and those whose object is missing or differs.

        Args:
            records: all records of the namespace.
            notify: called with the number of listed objects.
        """
        files = records.map(_own_files).union(
            records.map(_by_directory_in_store).group(_looked_up_in_directory)
        )
        listed = self._list(files.map(_paths_of_others), notify)
        by_path: Dataset[Keyed[ObjectInfo | Entry | int]] = files.map(_by_object)
        by_path = by_path.union(listed.map(_by_path))
        found = by_path.group(_suspects).map(partial(_look_up, self.open_access)).collect()
        numbers = (each for each in found if isinstance(each, int))
        return sum(numbers), [each for each in found if isinstance(each, Entry)]

    def unreferenced(
        self,
        referenced: Dataset[Keyed[ObjectInfo | None]],
        find: Callable[[Collection[str]], Collection[str]],
        *,
        until: float,
        notify: Callable[[int], object],
    ) -> list[ObjectInfo]:
        """Return the content of namespaces to which no record refers, in the order of the paths.

        Args:
            referenced: the paths of objects to which records refer, as keys, each with order 0 and None.
            find: returns the referenced ones of some objects. A scan may miss a record that is moved
                meanwhile, so they are searched a second time.
            until: epoch seconds; younger objects are left out.
            notify: called with the number of listed objects.
        """
        listed = self._list(None, notify)
        by_path = referenced.union(listed.map(partial(_possible_orphans, until)))
        left = set(by_path.group(_unreferenced).collect())
        if left:
            left -= set(find(left))
        # Now, not when it was listed: garbage collection forgets an object after it has removed it.
        size = -(-len(left) // (_PARTS * self.engine.partitions))
        groups = self.engine.distribute(_groups(sorted(left), size))
        found = groups.map(partial(_existing, self.open_access, until)).collect()
        return sorted(found, key=lambda info: info.path)

    def _list(self, others: Dataset[str] | None, notify: Callable[[int], object]) -> Dataset[ObjectInfo]:
        """Return the listed objects, and report their number if they were not listed before."""
        if self._listed is None:
            self._listed = self.listing.objects(self.engine, self.open_access, others).keep()
            notify(count(self._listed))
        return self._listed


def _groups(items: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)] if size else []


# -- files and their objects ---------------------------------------------------------------------------

#: Orders of what belongs to the path of an object. The numbers of files have the path "".
_LISTED, _NAMED, _NUMBER = range(3)


def _own_files(records: Iterator[Record]) -> Iterator[Entry]:
    """Yield the files whose objects belong to the namespace: no binding concerns them."""
    for record in records:
        if isinstance(record, Entry) and record.data is not None and record.data.own:
            yield record


def _by_directory_in_store(records: Iterator[Record]) -> Iterator[Keyed[Entry]]:
    """Yield the other files by their directory, and the directories."""
    for record in records:
        if isinstance(record, Entry):
            if record.is_directory:
                yield record.id, (0, record.key.hash, record.name), record
            elif record.data is not None and not record.data.own:
                yield record.parent, (1, record.key.hash, record.name), record


def _looked_up_in_directory(id: str, entries: Iterator[Entry]) -> Iterator[Entry]:
    directories: list[Entry] = []
    for entry in entries:
        if entry.is_directory:
            directories.append(entry)
        elif is_looked_up(directories[0] if len(directories) == 1 else None, entry):
            yield entry


def _by_object(files: Iterator[Entry]) -> Iterator[Keyed[Entry | int]]:
    """Yield the files by their object, and the number of files."""
    number = 0
    for file in files:
        assert file.data is not None
        number += 1
        yield file.data.path, (_NAMED, file.key.hash, file.name), file
    yield "", (_NUMBER, "", ""), number


def _paths_of_others(files: Iterator[Entry]) -> Iterator[str]:
    """Yield the paths of objects that are not below a prefix of content."""
    for file in files:
        if file.data is not None and not is_content_prefix(file.data.path[:4]):
            yield file.data.path


def _by_path(listed: Iterator[ObjectInfo]) -> Iterator[Keyed[ObjectInfo]]:
    return ((info.path, (_LISTED, "", ""), info) for info in listed)


def _suspects(path: str, values: Iterator[ObjectInfo | Entry | int]) -> Iterator[Entry | int]:
    """Yield the files whose object is not listed with their content, and numbers of files."""
    info: ObjectInfo | None = None
    for value in values:
        if isinstance(value, ObjectInfo):
            info = value
        elif isinstance(value, int) or not _is_listed(value, info):
            yield value


def _is_listed(file: Entry, info: ObjectInfo | None) -> bool:
    return info is not None and file.data is not None and has_content(file.data, info)


def _look_up(open_access: OpenAccess, found: Iterator[Entry | int]) -> Iterator[Entry | int]:
    """Yield the suspect files whose objects are missing or changed, and the number of files."""
    numbers: list[int] = []

    def suspects() -> Iterator[Entry]:
        for each in found:
            if isinstance(each, int):
                numbers.append(each)
            else:
                yield each

    with open_access() as access:
        for _, odd in look_up(StoreReader.of(access.store), suspects()):
            yield from (entry for entry, _ in odd)
    yield sum(numbers)


# -- unreferenced objects ------------------------------------------------------------------------------


def _possible_orphans(until: float, listed: Iterator[ObjectInfo]) -> Iterator[Keyed[ObjectInfo | None]]:
    return ((info.path, 1, info) for info in listed if may_be_orphan(info, until))


def _unreferenced(path: str, values: Iterator[ObjectInfo | None]) -> Iterator[str]:
    if next(values) is not None:  # a reference comes first
        yield path


def _existing(
    open_access: OpenAccess, until: float, groups: Iterator[tuple[str, ...]]
) -> Iterator[ObjectInfo]:
    """Yield the objects that exist and are still old enough."""
    with open_access() as access:
        for info in find_existing(StoreReader.of(access.store), chain.from_iterable(groups)):
            if may_be_orphan(info, until):
                yield info
