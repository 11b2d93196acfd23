"""Mutants of the tree of a namespace: directories that move, go, grow, and are swept."""

from __future__ import annotations

from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import naming
from sim.namespace.actions import (
    delete,
    empty_trash,
    read,
    rename,
    replace,
    reshard,
    set_attributes,
    write,
)

__all__ = ["NAMESPACE_MOVES"]

NAMESPACE_MOVES: tuple[Mutant, ...] = (
    Mutant(
        name="no check for cycles",
        where="namespace.md#how-it-works",
        rule="each directory that is above one of both parents alone still has the parent that was seen",
        edit=Edit(("links_to_check", "for chain in (here, there):", "for chain in ():")),
        setting=naming(
            {"A": [rename("a", "b/a")], "B": [rename("b", "a/b")]}, made=("a", "b"), stable=False
        ),
        caught="I3",
        story="Each goes below the other, and no path leads to either.",
    ),
    Mutant(
        name="a check for cycles on one side",
        where="namespace.md#how-it-works",
        rule="a check of the path from the new parent alone is not sufficient",
        edit=Edit(("links_to_check", "for chain in (here, there):", "for chain in (there,):")),
        setting=naming(
            {"A": [rename("a/b/c", "a/c")], "B": [rename("a/b", "b"), rename("a", "b/c/a")]},
            made=("a/b/c",),
            stable=False,
            exact=False,
        ),
        caught="I3",
        story=(
            "A has seen `c` below `b` below `a`. B moves `b` to the root and `a` below `c`. Then A "
            "moves `c` below `a`."
        ),
    ),
    Mutant(
        name="a moved directory whose record does not change",
        where="namespace.md#how-it-works",
        rule="the directory record names the new parent instead of the old one",
        edit=Edit(
            (
                "move_directory_record",
                "change.put(Directory(key=key, parent=new_parent, name=moved.name), before.named())",
                "change.check(key, before.named())",
            )
        ),
        setting=naming({"A": [rename("d", "e/d")]}, made=("d", "e")),
        caught="I2",
        story="Later checks for cycles use the old parent of the directory.",
    ),
    Mutant(
        name="an entry added without its guard record",
        where="namespace.md#how-it-works",
        rule="adding an entry writes a guard record of the directory, on condition that it exists",
        edit=Edit(
            (
                "add_entry",
                "if not change.writes_to(context.keys.guard(parent.id, place)):",
                "if False:",
            )
        ),
        setting=naming({"A": [write("d/f", b"1")], "B": [delete("d")]}, made=("d",), stable=False),
        caught="was added to a closed directory",
        story="B has deleted the empty directory. A's file is still added to it, and is lost.",
    ),
    Mutant(
        name="a directory listed before its guard records are read",
        where="namespace.md#how-it-works",
        rule="the removal of an empty directory reads its guard records, and then lists it",
        edit=Edit(
            (
                "close_empty_directory",
                "guards = read_guards(context, directory)",
                (
                    "first = next(context.tree.entries(directory, page=directory.shards.now), None)\n"
                    "guards = read_guards(context, directory)"
                ),
            ),
            (
                "close_empty_directory",
                "if next(context.tree.entries(directory, page=directory.shards.now), None) is not None:",
                "if first is not None:",
            ),
        ),
        setting=naming({"A": [delete("d")], "B": [write("d/f", b"1")]}, made=("d",)),
        caught="took effect despite DirectoryNotEmpty",
        story=(
            "B's file is added after A has listed the directory, and before A reads the guard "
            "records. So their condition holds."
        ),
    ),
    Mutant(
        name="a replaced directory that is not closed",
        where="namespace.md#how-it-works",
        rule="an entry may replace that of an empty directory, whose guard records are deleted",
        edit=Edit(("_plan_move", "close_empty_directory(context, change, target, replaced)", "pass")),
        setting=naming(
            {"A": [rename("d", "e", overwrite=True)], "B": [write("e/f", b"1")]},
            made=("d", "e"),
            stable=False,
        ),
        caught="I7",
        story=(
            "The replaced directory goes into the trash with its guard record. A client that has "
            "found it before can still add a file to it."
        ),
    ),
    Mutant(
        name="a deleted directory that is not closed",
        where="namespace.md#invariants",
        rule="a deleted directory has no guard records",
        edit=Edit(
            (
                "close_directory",
                'change.delete(context.keys.guard(directory.id, shard), Equals("shards", shards))',
                "pass",
            )
        ),
        setting=naming({"A": [delete("d", recursive=True)]}, made=("d",)),
        caught="I7",
        story="A client that has found it still adds files to it, perhaps after the sweeper has passed.",
    ),
    Mutant(
        name="a sweeper that forgets a directory that is not empty",
        where="namespace.md#how-it-works",
        rule="the sweeper forgets only empty directories",
        edit=Edit(
            (
                "TrashEmptier._remove_directory",
                "if next(table.query(self.keys.shard(trashed.id, shard)), None) is not None:",
                "if False:",
            )
        ),
        setting=naming(
            {"A": [delete("d", recursive=True), empty_trash()], "B": [set_attributes("d/f", x="1")]},
            made=("d",),
            files={"d/f": b"0"},
            stable=False,
            exact=False,
        ),
        caught="I1|I3",
        story=(
            "B has found the file before the deletion, and changes it while the sweeper is about to "
            "remove it. So the file is not removed, but its directory is forgotten."
        ),
    ),
    Mutant(
        name="resharding that forgets the old shards",
        where="namespace.md#storage-layout",
        rule="an entry is looked for in every shard that could have it since the directory was made",
        edit=Edit(
            (
                "plan_reshard",
                "shards=Shards(now=wanted.now, first=entry.shards.first)",
                "shards=Shards(now=wanted.now, first=wanted.now)",
            )
        ),
        setting=naming(
            {"A": [reshard("d", shards=4)]}, made=("d",), files={"d/1": b"0", "d/2": b"0", "d/3": b"0"}
        ),
        caught="I9",
        story="Existing files are not found any more.",
    ),
    Mutant(
        name="an entry added without a condition on the number of shards",
        where="namespace.md#how-it-works",
        rule="a guard record is written on condition that it has the expected number of shards",
        edit=Edit(("add_entry", 'change.id), Equals("shards", shards.now))', "change.id), None)")),
        setting=naming({"A": [reshard("d", shards=2)], "B": [write("d/f", b"1")]}, made=("d",)),
        caught="I7",
        story=(
            "B expects one shard, but A has doubled their number. B writes its own number into the "
            "guard record."
        ),
    ),
    Mutant(
        name="stable paths that are not checked",
        where="namespace.md#atomicity",
        rule=(
            "with `stable_paths=True` a change happens only if the whole path still leads to the same "
            "directory"
        ),
        edit=Edit(("require_stable_path", "if context.stable_paths:", "if False:")),
        setting=naming({"A": [write("d/f", b"1")], "B": [rename("d", "e")]}, made=("d",)),
        caught="took effect despite NotFound",
        story="B has renamed the directory, and A's file is at another path than A named.",
    ),
    Mutant(
        name="a name below a known directory that was replaced",
        where="namespace.md#how-it-works",
        rule="the answer for a name counts if the directories above are the remembered versions",
        edit=Edit(("Tree._look_ahead", "found.get(names[:-1]) != above", "False")),
        setting=naming(
            {"A": [read("a/f"), 1.0, read("a/f")], "B": [0.5, replace("n", "a")]},
            made=("a", "n"),
            files={"a/f": b"0", "n/f": b"1"},
            stable=False,
        ),
        caught="which was never correct",
        story="A remembers the old directory, and reads a file in it that nobody has at this path.",
    ),
    Mutant(
        name="a known directory recognised by its id",
        where="namespace.md#how-it-works",
        rule="the answer for a name counts if the directories above are the remembered versions",
        edit=Edit(
            (
                "Tree._look_ahead",
                "found.get(names[:-1]) != above",
                "names[:-1] not in found or found[names[:-1]].id != above.id",
            )
        ),
        setting=naming(
            {
                "A": [read("a/f"), 2.0, read("a/f")],
                "B": [
                    *(1.0, rename("a", "z"), 1.0),
                    *(write("z/f", b"2"), write("z/f", b"3"), rename("z", "a")),
                ],
            },
            made=("a",),
            files={"a/f": b"0"},
            stable=False,
        ),
        caught="which was never correct",
        story=(
            "A reads the file while the directory is elsewhere, and the directory after it is back. It "
            "returns content that was never at this path."
        ),
    ),
)
