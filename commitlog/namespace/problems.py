"""What can be wrong with a namespace: the kinds, how bad each is, what it means, and what repairs it.

Imports the records and the `Table` port.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen

from commitlog.tables.api import Item, Key

__all__ = ["PROBLEMS", "Finding", "Problem", "Severity"]


class Severity(enum.IntEnum):
    """How bad something is; the worst is 0."""

    LOST = 0
    """Data or names are lost, or will be if nothing is done."""
    BROKEN = 1
    """Something cannot be found, listed, changed or removed."""
    UNTIDY = 2
    """It costs space, or the log says less than it should."""


@frozen(kw_only=True)
class Problem:
    """A kind of what can be wrong.

    Attributes:
        name: of the kind.
        severity: how bad it is.
        invariant: which one is broken, as docs/namespace.md numbers them.
        meaning: what is so.
        repair: what repairs it, for people.
        fix: whether `repair` does so.
        asked: whether `repair` does so only if the kind is named.
    """

    name: str
    severity: Severity
    invariant: str
    meaning: str
    repair: str
    fix: bool = True
    asked: bool = False


@frozen(kw_only=True)
class Finding:
    """Something that is wrong, with the records that say so.

    Attributes:
        problem: the kind.
        path: where; paths that no longer begin at the root begin with an id in brackets.
        detail: more about it, for people.
        records: the records that it is based on, as they are.
        missing: keys under which there is nothing.
        object: path of the object it is about.
        id: of the file or directory it is about.
        size: bytes of an object that nothing names.
        logged: what the log says of that, if it differs.
        waits: whether something that is pending in the log has to be decided, or something else to be
            repaired, before this is.
        tombstone: what the log has in its place, if the table has neither.
    """

    problem: Problem
    path: str
    detail: str = ""
    records: tuple[Item, ...] = field(default=(), hash=False)
    missing: tuple[Key, ...] = ()
    object: str | None = None
    id: str | None = None
    size: int = 0
    logged: Item | None = field(default=None, hash=False)
    waits: bool = False
    tombstone: Item | None = field(default=None, hash=False)

    def __str__(self) -> str:
        more = f": {self.detail}" if self.detail else ""
        return f"{self.problem.name} at {self.path!r}{more}"


_LOST, _BROKEN, _UNTIDY = Severity.LOST, Severity.BROKEN, Severity.UNTIDY

_KINDS = (
    Problem(
        name="no-marker",
        severity=_BROKEN,
        invariant="",
        meaning="there are records, but not the one that says which format they have",
        repair="the marker is taken from the log; without one, restore the table from a backup",
    ),
    Problem(
        name="corrupt-record",
        severity=_LOST,
        invariant="",
        meaning="a record cannot be read, or its item in the table cannot",
        repair="an entry, a tombstone and garbage are taken from the log, a directory record and a gate"
        " are made of the entry, root and trash are made again; a tombstone or garbage that the log does"
        " not have goes; else restore it from a backup of the table, or use a newer library",
    ),
    Problem(
        name="wrong-marker",
        severity=_BROKEN,
        invariant="I8",
        meaning="the marker says something else than the log, or the log has none: the namespace could"
        " not be restored, or is changed without its log",
        repair="it is put as the log has it; if the log has none, it is written again, with the log",
    ),
    Problem(
        name="misplaced-record",
        severity=_UNTIDY,
        invariant="",
        meaning="a directory record or gate is under a key at which nothing looks for one",
        repair="it goes",
    ),
    Problem(
        name="bad-name",
        severity=_LOST,
        invariant="I9",
        meaning="an entry has a name that no path has, or is a file where jobs under way have their"
        " directory",
        repair="it comes into lost+found",
    ),
    Problem(
        name="strange-record",
        severity=_UNTIDY,
        invariant="",
        meaning="a record is of no kind that this library knows",
        repair="none: a newer library, or something else, may have written it",
        fix=False,
    ),
    Problem(
        name="no-root",
        severity=_BROKEN,
        invariant="I3",
        meaning="root or trash has no entry, so nothing can be found, or deleted",
        repair="the entry is made again",
    ),
    Problem(
        name="directory-named-twice",
        severity=_BROKEN,
        invariant="I1",
        meaning="two entries name one directory",
        repair="the one stays that the log has; without a log, the one that the directory record names,"
        " and if that names neither, none",
    ),
    Problem(
        name="file-named-twice",
        severity=_BROKEN,
        invariant="I1",
        meaning="two entries have the id of one file",
        repair="the one stays that the log has; if it has none, the one of the higher version, and if"
        " they have the same, each becomes a file of its own",
    ),
    Problem(
        name="no-directory-record",
        severity=_BROKEN,
        invariant="I1",
        meaning="a directory cannot be moved, or deleted, since nothing says which entry names it",
        repair="the record is made of the entry",
    ),
    Problem(
        name="wrong-directory-record",
        severity=_BROKEN,
        invariant="I2",
        meaning="the record of a directory names another entry than the one that there is",
        repair="the record is made of the entry",
    ),
    Problem(
        name="nameless-directory",
        severity=_LOST,
        invariant="I1",
        meaning="no entry names a directory, so no path leads to what is in it",
        repair="it comes into lost+found; if nothing is in it, it goes",
    ),
    Problem(
        name="unreachable-entry",
        severity=_LOST,
        invariant="I3",
        meaning="entries are in a directory that there is no record of",
        repair="the directory is made again, in lost+found",
    ),
    Problem(
        name="cycle",
        severity=_LOST,
        invariant="I3",
        meaning="directories are in each other, and no path leads to them",
        repair="one of them comes into lost+found",
    ),
    Problem(
        name="no-gate",
        severity=_BROKEN,
        invariant="I7",
        meaning="nothing can be added to a shard of a directory, and it cannot be deleted",
        repair="the gate is made again",
    ),
    Problem(
        name="wrong-gate",
        severity=_BROKEN,
        invariant="I7",
        meaning="a gate tells of another number of shards than the directory",
        repair="the gate is made again",
    ),
    Problem(
        name="stray-gate",
        severity=_BROKEN,
        invariant="I7",
        meaning="there is a gate for a directory that was deleted: entries could be added to it",
        repair="it goes",
    ),
    Problem(
        name="wrong-shard",
        severity=_LOST,
        invariant="I9",
        meaning="an entry is in a shard in which nobody looks",
        repair="it is moved to where it is looked for",
    ),
    Problem(
        name="name-twice",
        severity=_LOST,
        invariant="I9",
        meaning="a directory has two entries of one name, and only the first is found",
        repair="the other comes into lost+found",
    ),
    Problem(
        name="object-named-twice",
        severity=_LOST,
        invariant="I5",
        meaning="two files have one object: when one is deleted, the other loses its content",
        repair="the object is no longer removed with either; it stays in the store for good",
    ),
    Problem(
        name="garbage-in-use",
        severity=_LOST,
        invariant="I5",
        meaning="the content of a file is listed as garbage, and would be removed",
        repair="it is taken off the list",
    ),
    Problem(
        name="garbage-listed-twice",
        severity=_UNTIDY,
        invariant="I5",
        meaning="an object is listed as garbage twice",
        repair="the later of the records goes",
    ),
    Problem(
        name="unlisted-garbage",
        severity=_UNTIDY,
        invariant="I5",
        meaning="the log lists an object as garbage, which is there, and the table does not: it would"
        " never be removed",
        repair="it is listed again",
    ),
    Problem(
        name="stray-tombstone",
        severity=_UNTIDY,
        invariant="",
        meaning="something is hidden from a directory that there is no record of",
        repair="it goes",
    ),
    Problem(
        name="object-missing",
        severity=_LOST,
        invariant="I4",
        meaning="the object of a file is gone",
        repair="none, its content is lost: restore a version of the object, or delete the file",
        fix=False,
    ),
    Problem(
        name="object-changed",
        severity=_LOST,
        invariant="I4",
        meaning="the object of a file has been replaced, other than through the namespace",
        repair="none: adopt what is there now, or restore the version of the object that the file names",
        fix=False,
    ),
    Problem(
        name="out-of-date",
        severity=_UNTIDY,
        invariant="I4",
        meaning="others have changed or removed the object of a file of a bound directory, and the"
        " directory was not synchronised since",
        repair="none: `sync` makes the table agree with the store",
        fix=False,
    ),
    Problem(
        name="no-mark",
        severity=_BROKEN,
        invariant="",
        meaning="the store does not have the mark by which the namespace knows it: it is another store,"
        " or the mark was removed; nothing is collected, pruned or synchronised",
        repair="the mark is stored again; only if asked for by name, when this is the right store",
        asked=True,
    ),
    Problem(
        name="unnamed-object",
        severity=_UNTIDY,
        invariant="I5",
        meaning="nothing names an object that a namespace has stored; its writer died, or another table"
        " has a namespace in the same store",
        repair="it is listed as garbage, and looked for once more before it is removed; only if asked"
        " for by name, when no other table has this store",
        asked=True,
    ),
    Problem(
        name="names-unknown",
        severity=_UNTIDY,
        invariant="I5",
        meaning="nobody can tell which objects nothing names, since a record that may name some, of any"
        " namespace of the table, or an entry of the log cannot be read, or a namespace is being"
        " restored",
        repair="none: repair that record first, with a library that can read it, or end the restore",
        fix=False,
    ),
    Problem(
        name="log-newer",
        severity=_LOST,
        invariant="I8",
        meaning="the log has a later version than the table, which was restored from an older backup, or"
        " has lost writes",
        repair="what the log says is done; what has lost its path to something that the log has there,"
        " or does not know, comes into lost+found",
    ),
    Problem(
        name="record-differs",
        severity=_LOST,
        invariant="I8",
        meaning="table and log have the same version of a file or directory, and say different things"
        " of it: the table was changed other than through the namespace",
        repair="what the log says is done; an object that only the table names stays in the store",
    ),
    Problem(
        name="row-newer",
        severity=_UNTIDY,
        invariant="I8",
        meaning="the table has a version that the log does not know: it could not be restored",
        repair="the version is written anew, with the log",
    ),
    Problem(
        name="fenced",
        severity=_BROKEN,
        invariant="I8",
        meaning="the log belongs to another table, into which the namespace was restored: this table"
        " cannot be changed, and was not compared with the log",
        repair="none: open the other table; or, if this one is right, take the log back"
        " (`namespace relog --take-over`)",
        fix=False,
    ),
    Problem(
        name="unreadable-log",
        severity=_BROKEN,
        invariant="I8",
        meaning="an entry of the log cannot be read: the namespace could not be restored, and was not"
        " compared with its log",
        repair="none: restore the object that has the entry from a backup, or from an older version; or"
        " write the log again from the table (`namespace relog`)",
        fix=False,
    ),
    Problem(
        name="pending-change",
        severity=_UNTIDY,
        invariant="I8",
        meaning="a change is neither committed nor rolled back in the log: its client died, or could not"
        " write down that it succeeded (drift)",
        repair="it is decided as `recover` does, if records or the log tell",
    ),
)

#: All kinds, by name.
PROBLEMS: Mapping[str, Problem] = MappingProxyType({kind.name: kind for kind in _KINDS})
