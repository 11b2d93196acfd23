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
    forget_directory,
    fsck,
    move,
    repair,
    restore,
    same_names,
    share_object,
    share_object_before,
)
from sim.namespace.maintenance.world import MaintenanceWorld

__all__ = ["NAMESPACE_MAINTENANCE"]

_TREE: Mapping[str, Any] = {"made": ("d",), "files": {"d/f": b"0"}}

#: A file names the object of another one.
_SHARED: Mapping[str, Any] = {
    "made": ("d",),
    "files": {"d/f": b"0", "d/g": b"1"},
    "kind": MaintenanceWorld,
    "damage": share_object,
    "spared": ("record-differs", "object-shared"),
    "moments": False,
}

NAMESPACE_MAINTENANCE: tuple[Mutant, ...] = (
    Mutant(
        name="a log that is cut before there is a base",
        where="namespace.md#when-the-table-is-lost",
        rule="the base is written whole before any of the entries is removed",
        edit=Edit(("Compactor._save", "if not changed:\n    return True", "return True")),
        setting=naming({"C": [compact_log()]}, after={"C": A_DAY}, kind=MaintenanceWorld, **_TREE),
        caught="the names cannot be made again",
        story="Whoever loses the table now has lost all names: nothing tells of what was removed.",
    ),
    Mutant(
        name="a compaction of what is needed to decide",
        where="namespace.md#when-the-table-is-lost",
        rule="what came after a change that is pending stays in the log, since `recover` needs it",
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
        caught="I8: .* is logged as committed, and was not done",
        story=(
            "A has died before it could overwrite the file, and B has overwritten it. That the version "
            "that A has seen was replaced by B is in the base, where nobody looks for it: so it seems "
            "that it was A who did."
        ),
    ),
    Mutant(
        name="a restore that begins with the marker",
        where="namespace.md#when-the-table-is-lost",
        rule="the marker comes last, and before that nobody finds a namespace",
        edit=Edit(
            (
                "Restorer.restore",
                "writer = RestoreWriter(",
                "claim.finish(metadata.to_item())\nwriter = RestoreWriter(",
            ),
            ("Restorer.restore", "claim.finish(metadata.to_item())\nnotify(", "notify("),
        ),
        setting=naming({"R": [restore()]}, kind=MaintenanceWorld, **_TREE),
        caught="restored is something else than there was",
        story="Should R die now, there would be a namespace of which nothing is there.",
    ),
    Mutant(
        name="a restore that removes what another one has written",
        where="namespace.md#when-the-table-is-lost",
        rule="of two that restore it at once the one goes on that began last",
        edit=Edit(
            (
                "RestoreClaim.remove_all",
                "self.table.transact([*batch, self.precondition])",
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
        caught="restored is something else than there was",
        story=(
            "R's removal of what was there before is on its way for a while, in which S restores it "
            "all. What arrives then takes that away, and leaves S's marker."
        ),
    ),
    Mutant(
        name="a restore whose late requests write after its end",
        where="namespace.md#when-the-table-is-lost",
        rule="a request that is late writes nothing once the restore has ended",
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
            "The network delivers a request of the restore a second time, after R has renamed the file "
            "that it wrote, and the file is there twice. (Each record is sent by itself here, as the "
            "last one of many may be.)"
        ),
    ),
    Mutant(
        name="a change of a table that the log does not belong to any more",
        where="namespace.md#when-the-table-is-lost",
        rule="a client looks whether another table has taken the log before it sends a change",
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
        caught="I8: .* is logged as committed, and was not done",
        story=(
            "R restores the namespace into another table, and makes a directory there. A makes one of "
            "that name in the table that R took for lost, and is told that it did. The log has both, "
            "and they have one place."
        ),
    ),
    Mutant(
        name="a restore of what the log said before it was claimed",
        where="namespace.md#when-the-table-is-lost",
        rule="what was changed before the log was claimed is in what is restored",
        edit=Edit(
            ("Restorer.restore", "if self._digest() == (contents.epoch, contents.digest):", "if True:")
        ),
        setting=naming(
            {"A": [make_directory("tried")], "R": [restore(decide=Decision.ROLLED_BACK)]},
            kind=MaintenanceWorld,
            exact=False,
            **_TREE,
        ),
        caught="by the log it was",
        story=(
            "R reads the log. Before it claims the log, A makes a directory, and is told so. R restores "
            "what it has read."
        ),
    ),
    Mutant(
        name="objects of others collected",
        where="namespace.md#objects-that-were-there-before",
        rule="an object stays where it is when its file is renamed, overwritten or deleted",
        edit=Edit(
            (
                "Collector._collect",
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
        caught="is gone, which is not the namespace's",
        story="The file was of an object that somebody else has stored; that is gone with it.",
    ),
    Mutant(
        name="a finding that is not looked at again",
        where="namespace.md#checking",
        rule="what a scan seems to show is read again, and told if it is still as it was",
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
        caught="a check tells what is not so",
        story=(
            "Between two pages of K's scan A renames the directory. One page has its entry of before "
            "that, the other that of after it, so it seems to have two names."
        ),
    ),
    Mutant(
        name="a check that compares versions alone",
        where="namespace.md#checking",
        rule="each record is compared, whole, with the one that the log has",
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
            "A file names the object of another one. The log has the right one, and the same version: "
            "so R goes by the table alone, has the two share the object, and logs that."
        ),
    ),
    Mutant(
        name="a repair that goes by the table first",
        where="namespace.md#checking",
        rule="what the log says is repaired first",
        edit=Edit(("_ORDER", '"record-differs": 2,', "")),
        setting=naming({"R": [repair(same_names)]}, **_SHARED),
        caught="I5: an object that was named is there, but nothing knows it",
        story=(
            "R finds that two files have one object, and that one of them differs from the log. It "
            "repairs the first of these, and the new version outranks that of the log."
        ),
    ),
    Mutant(
        name="a repair that takes the content of a file for garbage",
        where="namespace.md#checking",
        rule="an object is listed as garbage by a repair only if no other file has it",
        edit=Edit(
            (
                "_Fix._is_referenced",
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
            "An older row of a file names the object of another one. R puts what the log has in its "
            "place, and the object that the row had on the list of garbage: it would be collected."
        ),
    ),
    Mutant(
        name="a repair of what has changed since",
        where="namespace.md#checking",
        rule="a repair is one transaction, on condition that everything is as it was found",
        edit=Edit(
            (
                "_Fix.write_again",
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
            "R writes the directory anew, as it has found it, and as one version more. That version is "
            "there already: A's, whose attributes are gone."
        ),
    ),
)
