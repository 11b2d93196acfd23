"""Mutants of the cleaning of a source: files that are removed too early, and newer versions of them."""

from __future__ import annotations

from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import reading
from sim.ingest.actions import Upload

__all__ = ["INGEST_CLEANING"]

_LOST = "was never delivered"

_DELETING = {"clean": "delete", "missing": "skip"}

INGEST_CLEANING: tuple[Mutant, ...] = (
    Mutant(
        name="files cleaned when their epoch is planned",
        where="ingest.md#cleaning",
        rule="the query has *committed* the epoch that completes the file",
        edit=Edit(
            ("Cleaner.clean", "due = commits.due(now - self._settings.clean_delay)", "due = state.epoch")
        ),
        setting=reading(
            {"A": {"batches": 1}, "C": {"steps": 1}},
            [Upload("a", age=60)],
            settings=_DELETING,
        ),
        caught="the query cannot continue",
        story="The epoch is in the table, and is taken for delivered before a task has read its file.",
    ),
    Mutant(
        name="a delivered file deleted without a condition",
        where="ingest.md#cleaning",
        rule="it is removed on condition of its etag",
        edit=Edit(
            (
                "Cleaner._clean",
                "self._store.delete_if_match(path, etag=found.etag)",
                "self._store.delete(path)",
            )
        ),
        setting=reading(
            {"A": {"batches": 2}, "C": {"steps": 1, "after": 4.0}},
            [Upload("a", age=60), Upload("b", age=60), Upload("a", at=6.0)],
            forced=(Forced("C delete a", Fault.DELAYED, 1, 5),),
            settings=_DELETING,
        ),
        caught=_LOST,
        story="The request is late. When it arrives, a is a new version, which nobody has read.",
    ),
    Mutant(
        name="whatever has the name of a delivered file deleted",
        where="ingest.md#cleaning",
        rule="the store still has the version that was delivered",
        edit=Edit(("Cleaner._clean", "if not _same_version(file, found):", "if False:")),
        setting=reading(
            {"A": {"batches": 2}, "C": {"steps": 1, "after": 4.0}},
            [Upload("a", age=60), Upload("b", age=60), Upload("a", at=3.0)],
            settings=_DELETING,
        ),
        caught=_LOST,
        story="The cleaner deletes the version that it finds, and it is a new one.",
    ),
    Mutant(
        name="a file with unreadable slices deleted",
        where="ingest.md#cleaning",
        rule="no slice of the file is a problem, and none waits to be read again",
        edit=Edit(
            (
                "Cleaner.clean",
                "(file.path, file.etag) not in undelivered",
                "True",
            )
        ),
        setting=reading(
            {"A": {"batches": 2}, "C": {"steps": 1, "after": 4.0}},
            [Upload("a", size=4, age=60), Upload("b", age=60)],
            broken={"a": 2},
            settings={**_DELETING, "unreadable": "quarantine"},
        ),
        caught=_LOST,
        story="The rest of a is in quarantine. When it could be read again, the object is gone.",
    ),
    Mutant(
        name="places of undelivered slices read while they change",
        where="ingest.md#cleaning",
        rule="no slice of the file is a problem, and none waits to be read again",
        edit=Edit(("Cleaner._undelivered", "if after.epoch == state.epoch:", "if True:")),
        setting=reading(
            {"A": {"batches": 4}, "O": {"retry_at": 1.5}, "C": {"steps": 1, "after": 1.7}},
            [Upload("a", size=4, age=60), *(Upload(path, age=60) for path in "bcd")],
            forced=(Forced("C table.query s", Fault.PAUSED, 3, 5),),
            broken={"a": 2},
            settings={**_DELETING, "unreadable": "quarantine", "remember": "everything"},
        ),
        caught=_LOST,
        story=(
            "C has read the problems, and stops. The operator O has retried the one of a. A reads its "
            "rest in an epoch, and it is a problem again. C finds it in none of the other places."
        ),
    ),
)
