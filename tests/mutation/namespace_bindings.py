"""Mutants of bound directories: synchronising them with the store, hiding entries, and pruning."""

from __future__ import annotations

from typing import Any

from commitlog.namespace import Namespace
from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import Setting, naming
from sim.namespace.actions import Program, delete, gc, list_, read, rename, write
from sim.namespace.bindings.actions import bind, prune, sync
from sim.namespace.bindings.world import BindingWorld

__all__ = ["NAMESPACE_BINDINGS"]

_WHERE = "namespace.md#a-directory-that-others-write-to-too"


def _bind(namespace: Namespace) -> None:
    """Bind a directory to a prefix with one object, of which the table knows nothing."""
    namespace.store.put("raw/a", b"a")
    namespace.bindings.bind("raw/", "in", max_age=0.0)


def _bind_two(namespace: Namespace) -> None:
    """The same with two objects."""
    namespace.store.put("raw/b", b"b")
    _bind(namespace)


def _lose(namespace: Namespace) -> None:
    """The one object was taken into the table, which is believed, and others have removed it since."""
    _bind(namespace)
    namespace.bindings.bind("raw/", "in", max_age=None)
    namespace.bindings.sync()
    namespace.store.delete("raw/a")


def _lose_below(namespace: Namespace) -> None:
    """The same in a directory below."""
    namespace.store.put("raw/d/a", b"a")
    namespace.bindings.bind("raw/", "in", max_age=None)
    namespace.bindings.sync()
    namespace.store.delete("raw/d/a")


def _renew(namespace: Namespace) -> None:
    """The one object was deleted, and others have stored another one since."""
    _bind(namespace)
    namespace.delete("in/a")
    namespace.store.put("raw/a", b"new")


def _hide(namespace: Namespace) -> None:
    """The one object was deleted from the directory, which is not bound any more."""
    _bind(namespace)
    namespace.delete("in/a")
    namespace.bindings.unbind("in")


def _binding(*programs: Program, prepare: Any = _bind, **options: Any) -> Setting:
    clients = dict(zip("AB", programs, strict=False))
    return naming(clients, kind=BindingWorld, prepare=prepare, **options)


NAMESPACE_BINDINGS: tuple[Mutant, ...] = (
    Mutant(
        name="a deletion without a tombstone",
        where=_WHERE,
        rule=(
            "when an object of another program loses its name, the same transaction puts a tombstone "
            "at that name"
        ),
        edit=Edit(
            (
                "leave_tombstone",
                "if tombstone is not None:\n    change.put(",
                "if False:\n    change.put(",
            )
        ),
        setting=_binding([delete("in/a")]),
        caught="a deleted entry is visible again: .*",
        story="The object still exists, so it is a file again as soon as the row is gone.",
    ),
    Mutant(
        name="objects recorded although they were deleted since the listing",
        where=_WHERE,
        rule="a deleted entry does not come back with the next listing of any client",
        edit=Edit(
            (
                "_add_unstored",
                'Absent() if tombstone is None else Equals("change_id", tombstone.change_id)',
                "None",
            )
        ),
        setting=_binding([sync("in")], [delete("in/a")]),
        caught="recorded in/a, which is not visible",
        story="A has listed the object. B deletes the file before A records it.",
    ),
    Mutant(
        name="rows of missing objects removed without a condition",
        where=_WHERE,
        rule="the row counts for entries that the namespace has made itself",
        edit=Edit(
            (
                "plan_sync",
                "change.delete(each.row.key, each.row.unchanged())",
                "change.delete(each.row.key, None)",
            )
        ),
        setting=_binding([sync("in")], [write("in/a", b"own")], prepare=_lose),
        caught="I5|recorded objects, but removed",
        story=(
            "Other programs have removed the object. B has written a file with its name since A's "
            "listing."
        ),
    ),
    Mutant(
        name="a directory marked as synchronised after a refusal",
        where=_WHERE,
        rule="a directory is synchronised when its rows agree with the store",
        edit=Edit(
            (
                "Synchronizer.sync_listing",
                "except PlanOutdated:\n    complete = False\n"
                "    if self.planning.tree.reread(directory) != directory:",
                "except PlanOutdated:\n    if self.planning.tree.reread(directory) != directory:",
            )
        ),
        setting=_binding([sync("in")], [delete("in/a")], prepare=_bind_two),
        caught="marked in as synchronised, but .* was different",
        story=(
            "B has deleted one file, so the transaction that was to record that object and another is "
            "refused. The other object is not recorded either."
        ),
    ),
    Mutant(
        name="the time of a synchronisation taken after the listing",
        where=_WHERE,
        rule="a listing, or `sync`, makes the rows agree with the store, and records when it began",
        edit=Edit(
            (
                "Synchronizer.sync_listing",
                "directory = self._record_sync(directory, listing.began)",
                "directory = self._record_sync(directory, self.planning.now())",
            )
        ),
        setting=_binding(
            [sync()],
            others=[0.5, ("raw/n", b"n")],
            forced=(Forced("A table.transact", Fault.DELAYED, 1, 1),),
        ),
        caught="marked in as synchronised, but .* was different",
        story=(
            "Other programs have stored an object after the listing, and before the time in the "
            "directory."
        ),
    ),
    Mutant(
        name="a renamed directory not synchronised",
        where=_WHERE,
        rule="`sync` follows a directory that is renamed meanwhile",
        edit=Edit(("Bindings._sync", "if path is None:", "if True:")),
        setting=_binding([sync("in")], [rename("in/d", "in/e")], prepare=_lose_below),
        caught="sync of A succeeded, but in/e/a is .*, not .*nothing",
        story=(
            "A has listed the parent, and B renames the directory. A reports success, but the "
            "directory still has the file whose object other programs had removed before."
        ),
    ),
    Mutant(
        name="tombstones read after the rows",
        where=_WHERE,
        rule="a listing has all entries that exist during the whole call",
        edit=Edit(
            (
                "_Comparison.read_rows",
                "self.tombstones = {each.name: each for each in "
                "self.overlay.tree.tombstones(self.directory)}",
                (
                    "rows = list(self.overlay.tree.entries(self.directory, after=after))\n"
                    "self.tombstones = {each.name: each for each in "
                    "self.overlay.tree.tombstones(self.directory)}"
                ),
            ),
            (
                "_Comparison.read_rows",
                "for row in self.overlay.tree.entries(self.directory, after=after):",
                "for row in rows:",
            ),
        ),
        setting=_binding([list_("in")], [write("in/a", b"own")]),
        caught=r"list of A got \('done', \(\)\), which was never correct",
        story=(
            "A has read the rows. B overwrites a file that was only an object until then, and puts a "
            "tombstone. A takes the file for deleted."
        ),
    ),
    Mutant(
        name="a hidden name taken for missing",
        where=_WHERE,
        rule="an entry wins over a tombstone of its name",
        edit=Edit(("Overlay.compare", "if current != row:", "if False:")),
        setting=_binding([read("in/a")], [write("in/a", b"own")]),
        caught="read of A got NotFound, which was never correct",
        story="B overwrites the file after A reads its row, and before A reads its tombstone.",
    ),
    Mutant(
        name="a tombstone pruned that hides an object behind a file",
        where=_WHERE,
        rule="`prune` removes only tombstones whose objects are gone or replaced",
        edit=Edit(
            (
                "_Comparison.list_store",
                "if name in unneeded and self.tombstones[name].hides(info):",
                "if name not in self.visible and name in unneeded "
                "and self.tombstones[name].hides(info):",
            )
        ),
        setting=_binding([write("in/a", b"own"), prune(), delete("in/a")]),
        caught="a deleted entry is visible again: .*",
        story="The file that covered the object is deleted, and the deleted object appears again.",
    ),
    Mutant(
        name="a tombstone pruned without a condition",
        where=_WHERE,
        rule="a deleted entry does not come back, even if a client lists or dies",
        edit=Edit(
            (
                "Pruner._remove_tombstones",
                'Delete(each.key, Equals("change_id", each.change_id)) for each in tombstones',
                "Delete(each.key) for each in tombstones",
            )
        ),
        setting=_binding([prune("in")], [delete("in/a")], prepare=_renew),
        caught="a deleted entry is visible again|pruning has brought back",
        story=(
            "The tombstone hides an object that other programs have replaced. B deletes the new "
            "object, and A removes B's tombstone instead of the old one."
        ),
    ),
    Mutant(
        name="tombstones pruned of a directory that was bound meanwhile",
        where=_WHERE,
        rule="in a directory that is not bound, tombstones hide nothing, and all of them are removed",
        edit=Edit(
            (
                "Pruner._remove_tombstones",
                "check=Check(directory.key, directory.unchanged())",
                "check=None",
            )
        ),
        setting=_binding([prune("in")], [bind("raw/", "in", max_age=0.0), list_("in")], prepare=_hide),
        caught="a deleted entry is visible again: .*|pruning has brought back .*",
        story="A has seen that the directory is not bound. Then B binds it again.",
    ),
    Mutant(
        name="objects of other programs removed as garbage",
        where=_WHERE,
        rule="objects of other programs are never moved or removed",
        edit=Edit(
            (
                "GarbageCollector._collect",
                "errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])",
                "errors = self._remove([garbage.data.path for garbage in batch])",
            )
        ),
        setting=_binding([delete("in/a"), 1.0, gc()], grace=0.0),
        caught="was changed, but belongs to another program",
        story="The object of another program is gone.",
    ),
)
