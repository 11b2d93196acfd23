"""What is written to give a file or directory another path, where something else may be.

Imports the ground floor, its siblings and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from commitlog.errors import AlreadyExists, InvalidPath, IsADirectory, NotADirectory, NotFound
from commitlog.namespace.change import Change, Stale
from commitlog.namespace.cycles import links_to_check
from commitlog.namespace.items import attributes_of
from commitlog.namespace.keys import ROOT, split, split_new
from commitlog.namespace.linking import Linking
from commitlog.namespace.parts import check_expected
from commitlog.namespace.records import Entry, Gate
from commitlog.namespace.tree import Walk
from commitlog.tables.api import Equals

__all__ = ["Moving"]

_NEARER = "Rename it in steps: first to a directory that is nearer to both paths"


@frozen(kw_only=True)
class Moving(Linking):
    """Plans what gets another path. Thread-safe."""

    def rename(
        self, source: str, target: str, *, overwrite: bool, into: Entry | None = None
    ) -> tuple[Change | None, Entry]:
        """Plan that what is at `source` is at `target`; None if that is the same path.

        Given `into`, only if the directory above the target is still that version of it.
        """
        return self._move(source, target, overwrite=overwrite, whole=False, into=into)

    def replace(
        self,
        source: str,
        target: str,
        *,
        expected: Entry | None,
        inherit: Callable[[Entry], Mapping[str, str]] | None = None,
    ) -> tuple[Change | None, Entry]:
        """Plan that the directory at `source` is at `target`, and the one there in the trash.

        Given `inherit`, with the attributes that it returns for the one there, and only if nothing was
        added to that since.
        """
        from_names, to_names = split(source), split_new(target)
        if not to_names:
            raise InvalidPath("the root cannot be replaced")
        if from_names[: len(to_names)] == to_names != from_names:
            raise InvalidPath(
                f"{source!r} is in {target!r}, and would go into the trash with it: rename it to another"
                " directory first"
            )
        return self._move(source, target, overwrite=True, whole=True, expected=expected, inherit=inherit)

    def _move(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool,
        whole: bool,
        expected: Entry | None = None,
        into: Entry | None = None,
        inherit: Callable[[Entry], Mapping[str, str]] | None = None,
    ) -> tuple[Change | None, Entry]:
        from_names, to_names = split(source), split_new(target)
        if not from_names:
            raise InvalidPath("the root cannot be renamed")
        here = self.tree.walk(from_names)
        moving = self._existing(source, here)
        if whole and not moving.is_directory:
            raise NotADirectory(f"{source!r} is a file, and replaces no directory")
        if from_names == to_names:
            check_expected(target, moving, expected)
            check_expected("/".join(to_names[:-1]), here.found[-2], into)
            return None, moving
        if moving.is_directory and to_names[: len(from_names)] == from_names:
            raise InvalidPath(f"{source!r} cannot be moved below itself, to {target!r}")
        there = self.tree.walk(to_names, beside=here)
        replaced = None if there.missing else there.last
        above = there.found if replaced is None else there.found[:-1]
        self._check_target(target, there, moving, overwrite=overwrite)
        check_expected(target, replaced, expected)
        check_expected("/".join(to_names[:-1]), above[-1], into)
        if moving.id in _ids(there.found):
            raise Stale("what is to be moved was moved while it was looked for")
        if whole and replaced is not None and replaced.id in _ids(here.found):
            raise Stale("what is to be replaced was moved while it was looked for")
        old_parent, parent = here.found[-2], above[-1]
        key = self._place(parent, to_names[-1]) if replaced is None else replaced.key
        if key == moving.key:
            raise Stale("a directory was moved while it was looked for")
        what = "rename a directory" if moving.is_directory else "rename a file"
        change = Change(what, self.words(), key, _NEARER)
        gates: tuple[Gate, ...] | None = None
        attributes = moving.attributes
        if replaced is not None and inherit is not None:
            gates = self._gates(replaced)
            attributes = attributes_of({**attributes, **inherit(replaced)})
        moved = evolve(
            moving,
            key=key,
            version=moving.version + 1,
            word=change.word,
            updated=self._now(),
            attributes=attributes,
        )
        change.delete(moving.key, moving.unchanged())
        self._leave(change, old_parent, moving)
        if replaced is None:
            self._add(change, parent, moved)
        else:
            change.put(moved, replaced.unchanged())
            self._leave(change, parent, replaced)
            if not replaced.is_directory:
                self._drop_data(change, replaced)
            else:
                # Also if it is empty: it may have tombstones, and rows of objects that are gone.
                self._trash(change, parent.id, replaced)
                if gates is not None:
                    self._close_gates(change, replaced, gates)
                elif whole:
                    self._close(change, replaced)
                else:
                    self._close_empty(change, target, replaced)
        if moving.is_directory:
            self._redirect(change, moved, old_parent.id, moving.name, parent.id)
            for lower, upper in links_to_check(_ids(here.found[:-1]), _ids(above)):
                change.check(self.keys.directory(lower), Equals("parent", upper))
        if into is not None:  # before what is pinned: that says less
            change.check(into.key, into.unchanged())
        self._pin(change, here.found[:-1])
        self._pin(change, above)
        return change, moved

    def _check_target(self, target: str, there: Walk, moving: Entry, *, overwrite: bool) -> None:
        if there.missing:
            if not there.last.is_directory:
                raise NotADirectory(f"{target!r} leads through a file; nothing was renamed")
            if len(there.missing) > 1:
                raise NotFound(f"the directory of {target!r} does not exist; nothing was renamed")
        elif not overwrite or there.last.id == ROOT:
            raise AlreadyExists(f"there is something at {target!r} already; nothing was renamed")
        elif moving.is_directory and not there.last.is_directory:
            raise NotADirectory(f"{target!r} is a file, and no directory replaces it")
        elif there.last.is_directory and not moving.is_directory:
            raise IsADirectory(f"{target!r} is a directory, and no file replaces it")


def _ids(chain: Sequence[Entry]) -> list[str]:
    return [entry.id for entry in chain]
