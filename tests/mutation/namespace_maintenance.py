"""Mutants of the maintenance of a namespace: log compaction, restore, checks, repairs, collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commitlog.oplog import Decision
from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import naming
from sim.namespace.actions import (
    Program,
    delete,
    gc,
    link,
    make_directory,
    read,
    recover,
    rename,
    set_attributes,
    write,
)
from sim.namespace.maintenance.actions import (
    A_DAY,
    compact_log,
    copy,
    forget_directory,
    fsck,
    move,
    repair,
    restore,
    rewrite_log,
    same_names,
    share_object,
    share_object_before,
)
from sim.namespace.maintenance.world import MaintenanceWorld
from sim.nodes import ClockSkew

__all__ = ["NAMESPACE_MAINTENANCE"]

_TREE: Mapping[str, Any] = {"made": ("d",), "files": {"d/f": b"0"}}

#: The world of a file that is created and removed.
_CREATED: Mapping[str, Any] = {**_TREE, "kind": MaintenanceWorld, "moments": False}

#: A file names the object of another one.
_SHARED: Mapping[str, Any] = {
    "made": ("d",),
    "files": {"d/f": b"0", "d/g": b"1"},
    "kind": MaintenanceWorld,
    "damage": share_object,
    "spared": ("record-differs", "object-shared"),
    "moments": False,
}

#: A client dies after it has created a file, and another one removes the file and compacts the log.
_LATE: Mapping[str, Program] = {
    "A": [write("d/g", b"1")],
    "B": [
        *(10.0, delete("d/g"), A_DAY, recover(older_than=10.0), compact_log()),
        *(A_DAY, compact_log()),
    ],
}

#: The clock of the first client is ahead.
_AHEAD = {"A": ClockSkew(offset=A_DAY)}

#: The same after a compaction that left one operation in the log.
_LATER: Mapping[str, Program] = {
    "A": [A_DAY, 5.0, write("d/g", b"1")],
    "B": [
        *(A_DAY, write("d/f", b"2"), compact_log()),
        *(10.0, delete("d/g"), A_DAY, recover(older_than=10.0), compact_log()),
        *(A_DAY, compact_log()),
    ],
}

NAMESPACE_MAINTENANCE: tuple[Mutant, ...] = (
    Mutant(
        name="a log that is cut before its checkpoint is complete",
        where="namespace.md#when-the-table-is-lost",
        rule="the checkpoint is complete before any entry is removed",
        edit=Edit(("Compactor._save", "if not changed:\n    return True", "return True")),
        setting=naming({"C": [compact_log()]}, after={"C": A_DAY}, kind=MaintenanceWorld, **_TREE),
        caught="the namespace cannot be restored",
        story="A client that loses the table now loses all names: the removed entries are nowhere else.",
    ),
    Mutant(
        name="a compaction of entries that a recovery needs",
        where="namespace.md#when-the-table-is-lost",
        rule="entries after a pending change stay in the log, because `recover` needs them",
        edit=Edit(
            ("OperationLog.compact", "old = [entry for entry in old if entry.written < bound]", "")
        ),
        setting=naming(
            {
                "A": [write("d/f", b"1")],
                "B": [10.0, write("d/f", b"2"), A_DAY, compact_log(), recover(older_than=10.0)],
            },
            Fault.CRASHED,
            kind=MaintenanceWorld,
            moments=False,
            **_TREE,
        ),
        caught="I8: .* is logged as committed, but did not happen",
        story=(
            "A has died before it could overwrite the file, and B has overwritten it. Only the "
            "checkpoint shows that B replaced the version that A saw, and `recover` does not read it. "
            "So it considers A's change as done."
        ),
    ),
    Mutant(
        name="a compaction that forgets a removal too early",
        where="namespace.md#when-the-table-is-lost",
        rule="a removal is kept until the log has no operation any more that the census counted",
        edit=Edit(
            (
                "_Round.is_census_over",
                "return self.before is None or self.before.counted.isdisjoint(self.present)",
                "return True",
            )
        ),
        setting=naming(_LATE, Fault.CRASHED, clocks=_AHEAD, **_CREATED),
        caught="restored records differ",
        story=(
            "A dies before it can log that its file exists. B removes the file. `recover` decides A's "
            "change after the removal, so the removal is folded first. If it is forgotten when A's "
            "change is folded, the file is back in the log."
        ),
    ),
    Mutant(
        name="a compaction that forgets removals after the census",
        where="namespace.md#when-the-table-is-lost",
        rule="only removals that were folded until the census are dropped after it",
        edit=Edit(
            ("_Round.merged", "state.item is not None or state.taken > last", "state.item is not None")
        ),
        setting=naming(_LATER, Fault.CRASHED, **_CREATED),
        caught="restored records differ",
        story=(
            "The first compaction counts the operations. Then A creates a file and dies, and B removes "
            "it. When all counted operations are gone, A's change, which began later, is not."
        ),
    ),
    Mutant(
        name="a census of the pending operations alone",
        where="namespace.md#when-the-table-is-lost",
        rule="a census counts decided operations too",
        edit=Edit(
            (
                "OperationLog.compact",
                "listed(entry.name)\nundecided.pop(entry.name, None)",
                "undecided.pop(entry.name, None)",
            )
        ),
        setting=naming(_LATE, Fault.CRASHED, clocks=_AHEAD, **_CREATED),
        caught="restored records differ",
        story="A's change is decided by then, but its decision is too young to be folded.",
    ),
    Mutant(
        name="a restore that begins with the metadata record",
        where="namespace.md#when-the-table-is-lost",
        rule="the metadata record is written last; before that, no client finds a namespace",
        edit=Edit(
            (
                "Restorer.restore",
                "writer = RestoreWriter(",
                "claim.finish(metadata.to_item())\nwriter = RestoreWriter(",
            ),
            ("Restorer.restore", "claim.finish(metadata.to_item())\nnotify(", "notify("),
        ),
        setting=naming({"R": [restore()]}, kind=MaintenanceWorld, **_TREE),
        caught="restored records differ",
        story="If R dies now, the table has a metadata record, but no entries.",
    ),
    Mutant(
        name="a restore that removes the records of a later one",
        where="namespace.md#when-the-table-is-lost",
        rule="of two restores at once, the one that began last continues",
        edit=Edit(
            (
                "RestoreClaim.remove_all",
                "self.table.transact([*batch, self.removal])",
                "self.table.transact(batch)",
            )
        ),
        setting=naming(
            {"R": [restore(replace=True)], "S": [0.5, restore(replace=True)]},
            forced=(Forced("R table.transact", Fault.DELAYED, 3, 1),),
            kind=MaintenanceWorld,
            backup=True,
            **_TREE,
        ),
        caught="restored records differ",
        story=(
            "R's removal of the old records is late, and S restores the namespace meanwhile. When R's "
            "request arrives, it removes these records, but leaves S's metadata record."
        ),
    ),
    Mutant(
        name="a restore that fences a namespace that was restored meanwhile",
        where="namespace.md#when-the-table-is-lost",
        rule="a restore claims the epoch after the newest one that it saw when it began",
        edit=Edit(("Epochs.claim", "number=after.number + 1", "number=self.newest().number + 1")),
        setting=naming(
            {"R": [restore()], "S": [1.0, restore(), move(), write("d/g", b"1")]},
            forced=(Forced("R list log/epochs/", Fault.PAUSED, 3, 30.0),),
            kind=MaintenanceWorld,
            **_TREE,
        ),
        caught="all restores have ended, but the restored table cannot be changed",
        story=(
            "R is paused before it claims the log, and S restores the namespace meanwhile. R claims the "
            "log when it wakes, and then finds that S has the table."
        ),
    ),
    Mutant(
        name="a restore that replaces a namespace that was restored meanwhile",
        where="namespace.md#when-the-table-is-lost",
        rule="a restore claims the table only if the metadata record is as it saw it when it began",
        edit=Edit(
            (
                "RestoreClaim.begin",
                "table.transact([Put(own, seen), *unless], token=id)",
                "table.transact([Put(own, seen)], token=id)",
            )
        ),
        setting=naming(
            {
                "R": [restore(replace=True)],
                "S": [1.0, restore(replace=True), move(), write("d/g", b"1")],
            },
            forced=(Forced("R table.get lake/r/restore -", Fault.PAUSED, 2, 30.0),),
            kind=MaintenanceWorld,
            backup=True,
            **_TREE,
        ),
        caught="strange-record",
        story=(
            "R is paused before it claims the table, and S restores the namespace meanwhile. R's claim "
            "would let it remove the records that S's clients use."
        ),
    ),
    Mutant(
        name="a restore that removes its own records",
        where="namespace.md#when-the-table-is-lost",
        rule="a late request to remove old records has no effect once new ones are written",
        edit=Edit(
            (
                "RestoreClaim.remove_all",
                "self.table.transact([*batch, self.removal])",
                "self.table.transact([*batch, self.precondition])",
            )
        ),
        setting=naming(
            {"R": [restore(replace=True)]},
            forced=(Forced("R table.transact", Fault.DUPLICATED, 3),),
            kind=MaintenanceWorld,
            backup=True,
            **_TREE,
        ),
        caught="restored records differ",
        story=(
            "The network delivers R's removal of the old records a second time, after R has restored "
            "them. On a cluster, a task that was taken for dead does the same."
        ),
    ),
    Mutant(
        name="a rewrite of the log that ends after a later one",
        where="namespace.md#when-the-table-is-lost",
        rule="of two rewrites of the log at once, the one that began last continues",
        edit=Edit(
            (
                "LogRewriter._predecessor",
                "if NamespaceMetadata.from_item(found).epoch.number > epoch.number:\n"
                "    raise self._superseded()",
                "",
            )
        ),
        setting=naming({"R": [rewrite_log()], "S": [rewrite_log()]}, kind=MaintenanceWorld, **_TREE),
        caught="the table cannot be changed",
        story=(
            "R sees that no later epoch is claimed. S claims one and ends. R puts its own epoch into "
            "the metadata record. Both have succeeded, but the log has a later epoch than the table."
        ),
    ),
    Mutant(
        name="a rewrite of the log that leaves the rest to an earlier one",
        where="namespace.md#when-the-table-is-lost",
        rule="of two rewrites of the log at once, the one that began last continues",
        edit=Edit(("namespace.log.rewrite:_TRIES", "_TRIES = 3", "_TRIES = 1")),
        setting=naming({"R": [rewrite_log()], "S": [rewrite_log()]}, kind=MaintenanceWorld, **_TREE),
        caught="the table cannot be changed",
        story=(
            "R ends after S has claimed the next epoch, and before S ends. S finds R's metadata record, "
            "and gives up. Nobody else ends the epoch of S, which fences the table."
        ),
    ),
    Mutant(
        name="a restore whose late requests write after its end",
        where="namespace.md#when-the-table-is-lost",
        rule="a late request of a restore has no effect after its end",
        edit=Edit(
            ("namespace.log.restore_writer:_WINDOW", "_WINDOW = 32", "_WINDOW = 1"),
            (
                "RestoreWriter._put_together",
                "for item in missing), self.claim.precondition])",
                "for item in missing)])",
            ),
        ),
        setting=naming(
            {"R": [restore(), move(), rename("d/f", "d/g"), rename("d", "e")]},
            Fault.DUPLICATED,
            kind=MaintenanceWorld,
            **_TREE,
        ),
        caught="I1|I2|I5",
        story=(
            "The network delivers a request of the restore a second time, after R has renamed the "
            "restored file. Then the file exists twice. (In this world each record has its own "
            "request, as the last of many may have.)"
        ),
    ),
    Mutant(
        name="a change of a table that has lost its log",
        where="namespace.md#when-the-table-is-lost",
        rule="before it sends a change, a client checks whether another table has taken over the log",
        edit=Edit(("FencedLog.run", "self.epochs.check(epoch)\nyield", "yield")),
        setting=naming(
            {
                "A": [read("d/f"), 40.0, make_directory("tried")],
                "R": [20.0, restore(), move(), make_directory("tried")],
            },
            kind=MaintenanceWorld,
            exact=False,
            **_TREE,
        ),
        caught="I8: .* is logged as committed, but did not happen",
        story=(
            "R restores the namespace into another table, and makes a directory there. A successfully "
            "makes a directory of that name in the old table. The log has both, with the same "
            "position."
        ),
    ),
    Mutant(
        name="a restore from a log that was read before its claim",
        where="namespace.md#when-the-table-is-lost",
        rule="a restore has all changes from before the claim of the log",
        edit=Edit(("Restorer.restore", "if contents.is_current():", "if True:")),
        setting=naming(
            {"A": [make_directory("tried")], "R": [restore(decide=Decision.ROLLED_BACK)]},
            kind=MaintenanceWorld,
            exact=False,
            **_TREE,
        ),
        caught="but by the log it is",
        story=(
            "R reads the log. Before R claims it, A makes a directory successfully. R restores what "
            "it has read."
        ),
    ),
    Mutant(
        name="a read-only copy that misses what a compaction has moved",
        where="namespace.md#which-table-the-log-belongs-to",
        rule="a copy that was read while the log was compacted is read again",
        edit=Edit(("Restorer._read_log", "if contents.is_whole():", "if True:")),
        setting=naming(
            {
                "C": [
                    18_000.0,
                    write("d/f", b"1"),
                    A_DAY - 18_000,
                    compact_log(),
                    18_000.5,
                    compact_log(),
                ],
                "R": [A_DAY + 18_000, copy()],
            },
            forced=(Forced("R list log/decided/", Fault.DELAYED, 2, 1),),
            kind=MaintenanceWorld,
            **_TREE,
        ),
        caught="restored records differ",
        story=(
            "R finds the first checkpoint. Then C writes the second one, with the new version of the "
            "file, and removes its entry. R does not find the entry, and copies the old version."
        ),
    ),
    Mutant(
        name="objects of other programs collected",
        where="namespace.md#objects-that-were-there-before",
        rule=(
            "the object of another program stays where it is when its file is renamed, overwritten or "
            "deleted"
        ),
        edit=Edit(
            (
                "GarbageCollector._collect",
                "errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])",
                "errors = self._remove([garbage.data.path for garbage in batch])",
            )
        ),
        setting=naming(
            {"A": [link({"d/g": b"1"}), delete("d/g"), 1.0, gc()]},
            kind=MaintenanceWorld,
            grace=0.0,
            **_TREE,
        ),
        caught="is gone, but belongs to another program",
        story="The file named an object of another program, which is removed with it.",
    ),
    Mutant(
        name="a finding that is not confirmed",
        where="namespace.md#checking",
        rule="the records of a finding are read again, and it is reported only if it still holds",
        edit=Edit(
            (
                "Confirmer.confirmed",
                "if not self._still_holds(finding):\n    continue\nif _is_of_log(finding):",
                "if _is_of_log(finding):",
            ),
            (
                "Confirmer._log_still_agrees",
                "return same and not touched and self._still_holds(finding)",
                "return same and not touched",
            ),
        ),
        setting=naming(
            {"K": [fsck()], "A": [0.5, rename("d", "e/d")]},
            forced=(Forced("K table.scan", Fault.DELAYED, 2, 1),),
            kind=MaintenanceWorld,
            page=3,
            made=("d", "e"),
        ),
        caught="a check has false findings",
        story=(
            "A renames the directory between two pages of K's scan. One page has its old entry, the "
            "other its new one, so the directory seems to have two names."
        ),
    ),
    Mutant(
        name="a check that compares versions alone",
        where="namespace.md#checking",
        rule="each record is compared with all fields of the record in the log",
        edit=Edit(
            (
                "Survey._compare",
                'self.logged.pop(f"e/{entry.id}", None) != number',
                'self.logged.pop(f"e/{entry.id}", 0) >> 64 != number >> 64',
            )
        ),
        setting=naming({"R": [repair(same_names)]}, **_SHARED),
        caught="I5: an object that was named is there, but nothing knows it",
        story=(
            "A file names the object of another one. The log has the right object, with the same "
            "version. So R relies on the table alone, lets both files share the object, and logs "
            "that."
        ),
    ),
    Mutant(
        name="a repair that uses the table before the log",
        where="namespace.md#checking",
        rule="findings that the log can decide are repaired first",
        edit=Edit(("_ORDER", '"record-differs": Stage.LOG,', "")),
        setting=naming({"R": [repair(same_names)]}, **_SHARED),
        caught="I5: an object that was named is there, but nothing knows it",
        story=(
            "Two files share an object, and one of them differs from the log. R repairs the shared "
            "object first, and gives a file a newer version than the log has."
        ),
    ),
    Mutant(
        name="a repair that takes the content of a file for garbage",
        where="namespace.md#checking",
        rule="a repair lists an object as garbage only if no other file has it",
        edit=Edit(
            (
                "_RepairPlan._is_referenced",
                'return bool(names[row.data.path] - {f"{row.key.hash} {row.key.range}"})',
                "return False",
            )
        ),
        setting=naming(
            {"R": [repair(same_names, times=1), 1.0, gc()]},
            **{**_SHARED, "damage": share_object_before, "spared": ("log-newer", "object-shared")},
            grace=0.0,
        ),
        caught="I5: garbage-in-use",
        story=(
            "An older row of a file names the object of another one. R replaces the row by that of "
            "the log, and lists the object of the old row as garbage, which would be collected."
        ),
    ),
    Mutant(
        name="a repair of a record that has changed",
        where="namespace.md#checking",
        rule="a repair is one transaction, on condition that the records have not changed",
        edit=Edit(
            (
                "_RepairPlan.write_again",
                "    new = evolve(new, data=data)\nself._put(new, entry.unchanged())",
                "    new = evolve(new, data=data)\nself._put(new, None)",
            )
        ),
        setting=naming(
            {"R": [repair()], "A": [0.5, set_attributes("d", x="1")]},
            forced=(Forced("R table.transact", Fault.DELAYED, 1, 1),),
            kind=MaintenanceWorld,
            damage=forget_directory,
            spared=("no-directory-record",),
            moments=False,
            **_TREE,
        ),
        caught="I6",
        story=(
            "R writes the directory again as it found it, with the next version. A has written that "
            "version already, and A's attributes are lost."
        ),
    ),
)
