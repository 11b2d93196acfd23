"""Mutants of catalogs of Iceberg tables."""

from __future__ import annotations

from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import cataloguing
from sim.iceberg.world import ONE, TWO, clean, commit, create, drop, find, rename
from sim.nodes import in_sequence

__all__ = ["ICEBERG"]

_NEW = ("b", "new")

#: Records remember one change, so that a few commits are too many.
_SHORT = (("iceberg:REMEMBERED", "REMEMBERED = 32", "REMEMBERED = 1"),)

ICEBERG: tuple[Mutant, ...] = (
    Mutant(
        name="pointer of an Iceberg table moved without a condition",
        where="iceberg.md#rules",
        rule="a pointer is replaced only if it has the etag that was read",
        edit=Edit(
            (
                "CatalogRecords._write",
                "self._store.put_if_match(path, data, etag=replacing)",
                "self._store.put(path, data)",
            )
        ),
        # The second commits of both read an existing pointer.
        setting=cataloguing({"A": commit(ONE), "B": commit(ONE)}, commits=1),
        caught="was replaced",
        story="Two commits begin with the same metadata, and the later one overwrites the other.",
    ),
    Mutant(
        name="unknown commit to an Iceberg table reported as failed",
        where="iceberg.md#rules",
        rule="an outcome that the record does not show is unknown, not failed",
        edit=Edit(
            (
                "CatalogRecords._write",
                "if not _look(happened, unknown):\n    raise",
                "if not _look(happened, unknown):\n    raise PreconditionFailed('not moved')",
            ),
            limits=_SHORT,
        ),
        setting=cataloguing(
            {"A": commit(ONE), "B": commit(ONE, times=2)},
            forced=(Forced("A put pointers/one.json", Fault.LOST_RESPONSE),),
            commits=1,
        ),
        caught="is reported as failed, but happened",
        story=(
            "A's answer was lost, and so many commits followed that the pointer does not name A's any"
            " more. A reports a failure, and pyiceberg deletes the files of its commit."
        ),
    ),
    Mutant(
        name="unknown commit to an Iceberg table reported as done",
        where="iceberg.md#rules",
        rule="a lost answer is a success only if the record shows the write",
        edit=Edit(
            (
                "CatalogRecords._write",
                "if not _look(happened, unknown):\n    raise",
                "_look(happened, unknown)",
            )
        ),
        setting=cataloguing(
            {"A": commit(ONE), "B": commit(ONE)},
            forced=(Forced("A put pointers/one.json", Fault.LOST_REQUEST),),
        ),
        caught="is reported as done, but did not happen",
        story="A's request was lost, B's commit is there, and A reports a success.",
    ),
    Mutant(
        name="refusal of a repeated write believed",
        where="iceberg.md#rules",
        rule="a refused write is looked for before it is called a failure",
        edit=Edit(
            (
                "CatalogRecords._write",
                "shown = _look(happened, refused)",
                "shown = False",
            )
        ),
        setting=cataloguing({"A": rename(ONE, _NEW), "B": create(ONE)}, Fault.REPEATED),
        caught="is reported as failed, but happened",
        story=(
            "A proxy sends A's rename twice and passes on the refusal of the second. B's change follows,"
            " so the nonce of the record is not A's."
        ),
    ),
    Mutant(
        name="refusal of a write believed that the record has forgotten",
        where="iceberg.md#rules",
        rule="a refused write that the record may have forgotten is unknown, not failed",
        edit=Edit(
            (
                "Pointer.shows_move",
                "return None if self.version - since.version > REMEMBERED + 1 else False",
                "return False",
            ),
            limits=_SHORT,
        ),
        setting=cataloguing(
            {"A": commit(ONE), "B": commit(ONE, times=2)},
            forced=(Forced("A put pointers/one.json", Fault.REPEATED),),
            commits=1,
        ),
        caught="is reported as failed, but happened",
        story=(
            "A proxy sends A's commit twice and passes on the refusal of the second. Meanwhile so many"
            " commits followed that the pointer does not name A's any more."
        ),
    ),
    Mutant(
        name="oldest locations of an Iceberg table kept instead of the newest",
        where="iceberg.md#rules",
        rule="a pointer remembers the last locations before the present one",
        edit=Edit(("Pointer.moved", "[:REMEMBERED]", "[-REMEMBERED:]"), limits=_SHORT),
        setting=cataloguing({"A": commit(ONE), "B": commit(ONE)}, commits=1),
        caught="was replaced",
        story=(
            "A's pointer names an older location in place of the one before it. So a writer whose answer"
            " was lost no longer finds its own commit."
        ),
    ),
    Mutant(
        name="oldest changes of the names of a catalog kept instead of the newest",
        where="iceberg.md#rules",
        rule="a record of names remembers the last changes",
        edit=Edit(("Names.changed", "[:REMEMBERED]", "[-REMEMBERED:]"), limits=_SHORT),
        setting=cataloguing({"A": rename(ONE, _NEW)}),
        caught="is reported as done, but did not happen",
        story="The record has an older change in place of A's, so nothing shows that A made it.",
    ),
    Mutant(
        name="Iceberg table renamed onto another one",
        where="iceberg.md#rules",
        rule="a rename needs a name that is free",
        edit=Edit(("Names.rename_table", "self.require_free(target)", "pass")),
        setting=cataloguing({"A": rename(ONE, _NEW), "B": rename(TWO, _NEW)}),
        caught="lost their names without being dropped",
        story="A's table has no name any more, and its files look like garbage.",
    ),
    Mutant(
        name="first location of an Iceberg table taken for the present one",
        where="iceberg.md#rules",
        rule="a table without a pointer is looked up again",
        edit=Edit(
            (
                "CatalogRecords.find",
                "if self.names().table(table) != entry:\n    return self.find(table)",
                "pass",
            )
        ),
        setting=cataloguing({"A": find(ONE), "B": in_sequence(commit(ONE), drop(ONE))}),
        caught="was found at an old location",
        story=(
            "B drops the table between A's two reads. A finds no pointer and returns the metadata with"
            " which the table was created, without B's commit."
        ),
    ),
    Mutant(
        name="pointers listed after the names in a clean-up",
        where="iceberg.md#rules",
        rule="a clean-up lists pointers first, then reads the names",
        edit=Edit(
            (
                "CatalogRecords.leftovers",
                "listed = [info.path for info in self._store.list(_POINTERS)]",
                "present = self.names()\nlisted = [info.path for info in self._store.list(_POINTERS)]",
            ),
            (
                "CatalogRecords.leftovers",
                "for entry in self.names().tables.values()",
                "for entry in present.tables.values()",
            ),
        ),
        setting=cataloguing({"A": clean, "B": in_sequence(create(_NEW), commit(_NEW))}),
        caught="was deleted, and its table has a name",
        story="B creates a table after A has read the names, and A removes its pointer.",
    ),
)
