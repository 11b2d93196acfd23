"""The kinds of problems that a check of a namespace finds, and the findings themselves."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen

from commitlog.tables.api import Item, Key

__all__ = ["PROBLEMS", "Finding", "Problem", "Severity"]


class Severity(enum.IntEnum):
    """The severity of a problem; the worst is 0."""

    LOST = 0
    """Data or names are lost, or will be lost if nothing is done."""
    BROKEN = 1
    """Something cannot be found, listed, changed or removed."""
    UNTIDY = 2
    """Space is wasted, or the log has less than it should."""


@frozen(kw_only=True)
class Problem:
    """A kind of problem.

    Attributes:
        name: name of the kind.
        severity: how bad the problem is.
        invariant: the broken invariant, numbered as in docs/namespace.md.
        meaning: description of the problem, for people.
        repair: description of the repair, for people.
        fix: whether `repair` can repair it.
        asked: whether `repair` repairs it only if the caller names this kind.
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
    """A problem found at one place, with the records that show it.

    Attributes:
        problem: the kind of problem.
        path: the path that has the problem; a path that does not begin at the root begins with an id in
            brackets.
        detail: details, for people.
        records: the records that show the problem, as they were read.
        missing: keys that have no record.
        object: path of the affected object.
        id: id of the affected file or directory.
        size: size of an unreferenced object, in bytes.
        logged: the record that the log has, if it differs.
        waits: whether the repair has to wait for a pending change to be decided, or for another repair.
        tombstone: the tombstone that the log has in place of a removed entry, if any.
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

    def to_json(self) -> dict[str, str | None]:
        """Return the fields for people and programs, without records."""
        return {
            "kind": self.problem.name,
            "severity": self.problem.severity.name.lower(),
            "path": self.path,
            "detail": self.detail,
            "object": self.object,
            "id": self.id,
        }

    def __str__(self) -> str:
        more = f": {self.detail}" if self.detail else ""
        return f"{self.problem.name} at {self.path!r}{more}"


_LOST, _BROKEN, _UNTIDY = Severity.LOST, Severity.BROKEN, Severity.UNTIDY

_KINDS = (
    Problem(
        name="no-metadata",
        severity=_BROKEN,
        invariant="",
        meaning="the namespace has records, but no metadata record, which gives their format",
        repair="copies the metadata record from the log; without a log, restore the table from a backup",
    ),
    Problem(
        name="corrupt-record",
        severity=_LOST,
        invariant="",
        meaning="a record, or its item in the table, cannot be read",
        repair="restores an entry, a tombstone or garbage from the log, rebuilds a directory record or"
        " a guard record from the entry, and creates root and trash again; removes a tombstone or"
        " garbage that the log does not have; otherwise restore the record from a backup of the table,"
        " or use a newer library",
    ),
    Problem(
        name="wrong-metadata",
        severity=_BROKEN,
        invariant="I8",
        meaning="the metadata record differs from the one in the log, or the log has none: the namespace"
        " could not be restored, or is changed without its log",
        repair="replaces the metadata record with the one from the log; if the log has none, writes it"
        " again and logs it",
    ),
    Problem(
        name="misplaced-record",
        severity=_UNTIDY,
        invariant="",
        meaning="a directory record or guard record has a key at which no reader looks for it",
        repair="removes the record",
    ),
    Problem(
        name="bad-name",
        severity=_LOST,
        invariant="I9",
        meaning="an entry has a name that no path can have, or is a file at the path of the staging"
        " directory of running jobs",
        repair="moves the entry into lost+found",
    ),
    Problem(
        name="strange-record",
        severity=_UNTIDY,
        invariant="",
        meaning="a record is of a kind that this library does not know",
        repair="none: a newer library or another program may have written it",
        fix=False,
    ),
    Problem(
        name="no-root",
        severity=_BROKEN,
        invariant="I3",
        meaning="the root or the trash has no entry, so nothing can be found or deleted",
        repair="creates the entry again",
    ),
    Problem(
        name="duplicate-directory",
        severity=_BROKEN,
        invariant="I1",
        meaning="two entries refer to the same directory",
        repair="keeps the entry that the log has; without a log, keeps the entry that the directory"
        " record names; if it names neither, changes nothing",
    ),
    Problem(
        name="duplicate-file",
        severity=_BROKEN,
        invariant="I1",
        meaning="two entries have the id of the same file",
        repair="keeps the entry that the log has; if the log has none, keeps the entry with the higher"
        " version; if the versions are equal, makes each entry a separate file",
    ),
    Problem(
        name="no-directory-record",
        severity=_BROKEN,
        invariant="I1",
        meaning="a directory has no directory record, which names its entry, so it cannot be moved or"
        " deleted",
        repair="rebuilds the record from the entry",
    ),
    Problem(
        name="wrong-directory-record",
        severity=_BROKEN,
        invariant="I2",
        meaning="the record of a directory names an entry other than the existing one",
        repair="rebuilds the record from the entry",
    ),
    Problem(
        name="orphan-directory",
        severity=_LOST,
        invariant="I1",
        meaning="no entry refers to a directory, so its contents have no path",
        repair="moves the directory into lost+found, or removes it if it is empty",
    ),
    Problem(
        name="unreachable-entry",
        severity=_LOST,
        invariant="I3",
        meaning="entries are in a directory that has no record",
        repair="creates the directory again, in lost+found",
    ),
    Problem(
        name="cycle",
        severity=_LOST,
        invariant="I3",
        meaning="directories contain each other, and have no path from the root",
        repair="moves one of them into lost+found",
    ),
    Problem(
        name="no-guard",
        severity=_BROKEN,
        invariant="I7",
        meaning="a shard of a directory has no guard record: nothing can be added to the shard, and the"
        " directory cannot be deleted",
        repair="creates the guard record again",
    ),
    Problem(
        name="wrong-guard",
        severity=_BROKEN,
        invariant="I7",
        meaning="a guard record and its directory have different numbers of shards",
        repair="writes the guard record again",
    ),
    Problem(
        name="stray-guard",
        severity=_BROKEN,
        invariant="I7",
        meaning="a deleted directory still has a guard record: entries could be added to it",
        repair="removes the guard record",
    ),
    Problem(
        name="wrong-shard",
        severity=_LOST,
        invariant="I9",
        meaning="an entry is in a shard in which readers do not look for it",
        repair="moves the entry to the right shard",
    ),
    Problem(
        name="duplicate-name",
        severity=_LOST,
        invariant="I9",
        meaning="a directory has two entries with the same name, and only the first is found",
        repair="moves the other entry into lost+found",
    ),
    Problem(
        name="object-shared",
        severity=_LOST,
        invariant="I5",
        meaning="two files have the same object: deleting one file removes the content of the other",
        repair="the object is no longer removed with either file; it stays in the store permanently",
    ),
    Problem(
        name="garbage-in-use",
        severity=_LOST,
        invariant="I5",
        meaning="the object of an existing file is listed as garbage, and would be removed",
        repair="removes the object from the list of garbage",
    ),
    Problem(
        name="duplicate-garbage",
        severity=_UNTIDY,
        invariant="I5",
        meaning="an object is listed as garbage twice",
        repair="removes the later of the two records",
    ),
    Problem(
        name="unlisted-garbage",
        severity=_UNTIDY,
        invariant="I5",
        meaning="the log lists an existing object as garbage, but the table does not: the object would"
        " never be removed",
        repair="lists the object as garbage again",
    ),
    Problem(
        name="stray-tombstone",
        severity=_UNTIDY,
        invariant="",
        meaning="a tombstone hides a name in a directory that has no record",
        repair="removes the tombstone",
    ),
    Problem(
        name="object-missing",
        severity=_LOST,
        invariant="I4",
        meaning="the object of a file does not exist",
        repair="none, the content is lost: restore a version of the object, or delete the file",
        fix=False,
    ),
    Problem(
        name="object-changed",
        severity=_LOST,
        invariant="I4",
        meaning="the object of a file was replaced without using the namespace",
        repair="none: import the current object, or restore the version of the object that the file"
        " names",
        fix=False,
    ),
    Problem(
        name="out-of-date",
        severity=_UNTIDY,
        invariant="I4",
        meaning="another program changed or removed the object of a file in a bound directory, and the"
        " directory was not synchronised since then",
        repair="none: `sync` updates the table from the store",
        fix=False,
    ),
    Problem(
        name="no-store-identity",
        severity=_BROKEN,
        invariant="",
        meaning="the store does not have the object that identifies it to the namespace: it is another"
        " store, or the object was removed; garbage collection, pruning and synchronisation do nothing",
        repair="stores the object again; only if you ask for this kind by name, after you made sure"
        " that this is the right store",
        asked=True,
    ),
    Problem(
        name="orphan-object",
        severity=_UNTIDY,
        invariant="I5",
        meaning="no record refers to an object that a namespace stored: its writer died, or another"
        " table has a namespace in the same store",
        repair="lists the object as garbage, and looks for references once more before it is removed;"
        " only if you ask for this kind by name, when no other table uses this store",
        asked=True,
    ),
    Problem(
        name="references-unknown",
        severity=_UNTIDY,
        invariant="I5",
        meaning="unreferenced objects cannot be determined: a record of any namespace of the table, or"
        " an entry of the log, cannot be read and may refer to objects, or a namespace is being"
        " restored",
        repair="none: repair that record first, with a library that can read it, or finish the restore",
        fix=False,
    ),
    Problem(
        name="log-newer",
        severity=_LOST,
        invariant="I8",
        meaning="the log has a later version than the table: the table was restored from an older"
        " backup, or lost writes",
        repair="applies the version of the log; an entry moves into lost+found if its path is taken by"
        " an entry of the log, or by one that the log does not know",
    ),
    Problem(
        name="record-differs",
        severity=_LOST,
        invariant="I8",
        meaning="the table and the log have the same version of a file or directory, with different"
        " contents: the table was changed without using the namespace",
        repair="applies the version of the log; an object that only the table names stays in the store",
    ),
    Problem(
        name="row-newer",
        severity=_UNTIDY,
        invariant="I8",
        meaning="the table has a version that the log does not have: it could not be restored",
        repair="writes the version again, and logs it",
    ),
    Problem(
        name="fenced",
        severity=_BROKEN,
        invariant="I8",
        meaning="the log belongs to another table, into which the namespace was restored: this table"
        " cannot be changed, and was not compared with the log",
        repair="none: open the other table; or, if this table is the right one, take the log back"
        " (`namespace rewrite-log --take-over`)",
        fix=False,
    ),
    Problem(
        name="unreadable-log",
        severity=_BROKEN,
        invariant="I8",
        meaning="an entry of the log cannot be read: the namespace could not be restored, and was not"
        " compared with its log",
        repair="none: restore the object of the log entry from a backup, or from an older version; or"
        " write the log again from the table (`namespace rewrite-log`)",
        fix=False,
    ),
    Problem(
        name="pending-change",
        severity=_UNTIDY,
        invariant="I8",
        meaning="a change is neither committed nor rolled back in the log: its client died, or could"
        " not record its success (drift)",
        repair="decides the change as `recover` does, if the records or the log show the outcome",
    ),
)

#: All kinds, by name.
PROBLEMS: Mapping[str, Problem] = MappingProxyType({kind.name: kind for kind in _KINDS})
