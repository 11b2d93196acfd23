"""Mutants of the versions of Lance tables."""

from __future__ import annotations

from collections.abc import Iterable

from commitlog.lance.versions import TableVersions
from commitlog.testing.sim import Fault
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import UNEXPLAINED, Setting, racing
from sim.lance.actions import commit

__all__ = ["LANCE"]


def _committing(names: Iterable[str], *faults: Fault) -> Setting:
    """Return the setting of writers that create the same version, natively."""
    nodes = tuple(names)

    def setting(code, enforces_expiry):  # type: ignore[no-untyped-def]
        programs = {name: commit(code.get(TableVersions)) for name in nodes}
        return racing(programs, *faults, mode="native")(code, enforces_expiry)

    return setting


LANCE: tuple[Mutant, ...] = (
    Mutant(
        name="version of a Lance table copied without a condition",
        where="lance.md#how-it-works",
        rule="a version is created by one copy-if-absent",
        edit=Edit(
            (
                "TableVersions._create",
                "self._store.copy_if_absent(source, target).etag",
                "self._store.copy(source, target).etag",
            )
        ),
        setting=_committing("AB"),
        caught=UNEXPLAINED,
        story="Both writers create the version, and the rows of the first one are lost.",
    ),
    Mutant(
        name="lost answer of a version of a Lance table reported as a conflict",
        where="lance.md#how-it-works",
        rule="an unknown outcome is settled by the bytes of the version, or stays unknown",
        edit=Edit(
            (
                "TableVersions.create",
                "except (AlreadyExists, OutcomeUnknown) as error:",
                (
                    "except OutcomeUnknown as error:\n"
                    "    raise AlreadyExists(str(error)) from error\n"
                    "except AlreadyExists as error:"
                ),
            )
        ),
        setting=_committing("A", Fault.LOST_RESPONSE),
        caught=UNEXPLAINED,
        story=(
            "A's copy is performed, and its answer lost. A is told that another writer was first, and"
            " would add its rows again."
        ),
    ),
    Mutant(
        name="own repeated copy of a version of a Lance table reported as a conflict",
        where="lance.md#how-it-works",
        rule="a refusal is a success if the version has the bytes of the staged manifest",
        edit=Edit(
            (
                "TableVersions._read_back",
                "if found.data == mine:",
                "if found.data == mine and isinstance(failure, OutcomeUnknown):",
            )
        ),
        setting=_committing("A", Fault.REPEATED),
        caught=UNEXPLAINED,
        story="A proxy sends A's copy twice, and passes on the refusal of the second.",
    ),
    Mutant(
        name="refusal of a version of a Lance table taken for a success",
        where="lance.md#how-it-works",
        rule="a refusal is a success only if the version has the bytes of the staged manifest",
        edit=Edit(("TableVersions._read_back", "if found.data == mine:", "if found.data:")),
        setting=_committing("AB"),
        caught=UNEXPLAINED,
        story="B is refused because A was first, finds A's manifest, and takes it for its own.",
    ),
)
