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
        rule="when an object of others leaves its name, the same transaction leaves a tombstone there",
        edit=Edit(
            (
                "leave_tombstone",
                "if tombstone is not None:\n    change.put(",
                "if False:\n    change.put(",
            )
        ),
        setting=_binding([delete("in/a")]),
        caught="what was deleted is back: .*",
        story="The object is there, and a file again, as soon as the row is gone.",
    ),
    Mutant(
        name="objects taken whatever was deleted since they were listed",
        where=_WHERE,
        rule="what was deleted does not come back with the next listing, whoever lists",
        edit=Edit(
            (
                "_add_unstored",
                'Absent() if tombstone is None else Equals("word", tombstone.change_id)',
                "None",
            )
        ),
        setting=_binding([sync("in")], [delete("in/a")]),
        caught="has taken in/a from the store, which is not to be seen",
        story="A has listed the object. B deletes the file before A makes one of it.",
    ),
    Mutant(
        name="rows of objects that are gone removed whatever they are by now",
        where=_WHERE,
        rule="what the namespace has made itself is as its row says",
        edit=Edit(
            (
                "plan_sync",
                "change.delete(each.row.key, each.row.unchanged())",
                "change.delete(each.row.key, None)",
            )
        ),
        setting=_binding([sync("in")], [write("in/a", b"own")], prepare=_lose),
        caught="I5|there is no",
        story="Others have removed the object. B has written a file of its name since A has listed.",
    ),
    Mutant(
        name="a directory synchronised though something could not be taken",
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
        caught="says that in is synchronised, and .* was not so",
        story=(
            "B has deleted one file, so the transaction that was to bring that and another is refused, "
            "and nobody looks for the other one any more."
        ),
    ),
    Mutant(
        name="a directory synchronised since its rows were written",
        where=_WHERE,
        rule="a listing, or `sync`, makes the rows agree with the store, and notes when it began",
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
        caught="says that in is synchronised, and .* was not so",
        story="What others have stored after the listing is older than what the directory says.",
    ),
    Mutant(
        name="a directory not synchronised that is renamed meanwhile",
        where=_WHERE,
        rule="`sync` follows a directory that is renamed meanwhile",
        edit=Edit(("Bindings._sync", "if path is None:", "if True:")),
        setting=_binding([sync("in")], [rename("in/d", "in/e")], prepare=_lose_below),
        caught="sync of A is done, and in/e/a is .*, not .*nothing",
        story=(
            "A has listed the directory above, and B renames the one below. A says that it is done, and "
            "the file is still there whose object others had removed before."
        ),
    ),
    Mutant(
        name="tombstones read after the rows",
        where=_WHERE,
        rule="what is there all the time is in a listing",
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
        caught=r"list of A is told \('done', \(\)\), and it was never so",
        story=(
            "A has read the rows. B overwrites the file that was an object alone until then, and leaves "
            "a tombstone: A takes it for deleted."
        ),
    ),
    Mutant(
        name="a name that is hidden taken for nothing",
        where=_WHERE,
        rule="an entry wins over a tombstone of its name",
        edit=Edit(("Overlay.compare", "if current != row:", "if False:")),
        setting=_binding([read("in/a")], [write("in/a", b"own")]),
        caught="read of A is told NotFound, and it was never so",
        story="B overwrites the file between the moments at which A reads its row and its tombstone.",
    ),
    Mutant(
        name="a tombstone pruned that hides an object behind a file",
        where=_WHERE,
        rule="`prune` removes tombstones whose objects are gone or replaced",
        edit=Edit(
            (
                "_Comparison.list_store",
                "if name in unneeded and self.tombstones[name].hides(info):",
                "if name not in self.visible and name in unneeded "
                "and self.tombstones[name].hides(info):",
            )
        ),
        setting=_binding([write("in/a", b"own"), prune(), delete("in/a")]),
        caught="what was deleted is back: .*",
        story="The file that covered the object is deleted, and there is what it had replaced.",
    ),
    Mutant(
        name="a tombstone pruned whichever it is",
        where=_WHERE,
        rule="what was deleted does not come back, whoever lists, and whoever dies",
        edit=Edit(
            (
                "Pruner._remove_tombstones",
                'Delete(each.key, Equals("word", each.change_id)) for each in tombstones',
                "Delete(each.key) for each in tombstones",
            )
        ),
        setting=_binding([prune("in")], [delete("in/a")], prepare=_renew),
        caught="what was deleted is back|pruning has brought back",
        story=(
            "The tombstone hides an object that others have replaced. B deletes the new one, and A "
            "removes B's tombstone for the one it has seen."
        ),
    ),
    Mutant(
        name="tombstones pruned of a directory that is bound by now",
        where=_WHERE,
        rule="in a directory that is not bound, tombstones hide nothing, and all of them go",
        edit=Edit(
            (
                "Pruner._remove_tombstones",
                "check=Check(directory.key, directory.unchanged())",
                "check=None",
            )
        ),
        setting=_binding([prune("in")], [bind("raw/", "in", max_age=0.0), list_("in")], prepare=_hide),
        caught="what was deleted is back: .*|pruning has brought back .*",
        story="B binds the directory again after A has seen that it is not bound.",
    ),
    Mutant(
        name="objects of others removed as garbage",
        where=_WHERE,
        rule="objects are never moved or removed",
        edit=Edit(
            (
                "Collector._collect",
                "errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])",
                "errors = self._remove([garbage.data.path for garbage in batch])",
            )
        ),
        setting=_binding([delete("in/a"), 1.0, gc()], grace=0.0),
        caught="is somebody else's, and was changed",
        story="Others find their object gone.",
    ),
)
