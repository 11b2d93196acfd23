"""Mutants of the epochs of a source: which versions it reads, and files that it cannot read."""

from __future__ import annotations

from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import reading
from sim.ingest.actions import Upload

__all__ = ["INGEST_EPOCHS"]

_LOST = "was never delivered"
_TWICE = "was delivered 2 times"

_ONE = {"A": {"batches": 2}}

INGEST_EPOCHS: tuple[Mutant, ...] = (
    Mutant(
        name="the place in the listing stored before the epoch",
        where="ingest.md#epochs",
        rule="files, place and number of an epoch are stored in *one transaction*",
        edit=Edit(
            (
                "StateTable.advance",
                "self._table.transact(writes)",
                "self._table.transact(writes[:1])\nself._table.transact(writes[1:])",
            )
        ),
        setting=reading(_ONE, [Upload("a"), Upload("b")], Fault.CRASHED),
        caught="the query cannot continue",
        story="The driver dies between the two writes, and no list has the files of the epoch.",
    ),
    Mutant(
        name="the files of an epoch stored before the place in the listing",
        where="ingest.md#epochs",
        rule="files, place and number of an epoch are stored in *one transaction*",
        edit=Edit(
            (
                "StateTable.advance",
                "self._table.transact(writes)",
                "self._table.transact(writes[1:] or writes)\nself._table.transact(writes[:1])",
            )
        ),
        setting=reading(_ONE, [Upload("a")], Fault.CRASHED),
        caught=_LOST,
        story="The driver dies between the two writes. The file is remembered, but is in no epoch.",
    ),
    Mutant(
        name="the list row replaced without a condition",
        where="ingest.md#epochs",
        rule="an epoch is stored on condition that the list row has not changed",
        edit=Edit(
            ("StateTable.advance", "Put(written.to_item(), old.unchanged())", "Put(written.to_item())")
        ),
        setting=reading(
            {"A": {"batches": 3}, "B": {"batches": 2, "lives": 1, "after": 2.0}},
            [Upload("a"), Upload("b")],
            forced=(Forced("A table.transact", Fault.DELAYED, 1, 5),),
        ),
        caught="the query cannot continue",
        story=(
            "A's request is late. When it arrives, B has stored the second epoch, and the list row "
            "goes back to the first."
        ),
    ),
    Mutant(
        name="a lost answer taken for success",
        where="ingest.md#epochs",
        rule="a lost answer is resolved by reading the list row again",
        edit=Edit(
            (
                "StateTable.advance",
                "except (TransactionCanceled, OutcomeUnknown):\n    return None",
                (
                    "except OutcomeUnknown:\n"
                    "    return written\n"
                    "except TransactionCanceled:\n"
                    "    return None"
                ),
            )
        ),
        setting=reading(_ONE, [Upload("a")], Fault.LOST_REQUEST),
        caught="the query cannot continue",
        story="The request was lost, and the engine logs an epoch that does not exist.",
    ),
    Mutant(
        name="a read that is not pinned to the listed version",
        where="ingest.md#guarantees",
        rule="a slice is read only from the version that was listed",
        edit=Edit(
            (
                "Pinned._compare",
                "if not same_etag(etag, self.file.etag) or size != self.file.size:",
                "if False:",
            )
        ),
        setting=reading(
            _ONE,
            [Upload("a"), Upload("a", at=1)],
            forced=(Forced("A get a", Fault.DELAYED, 1, 3),),
        ),
        caught=_TWICE,
        story="The object is overwritten after the listing, and its new version is read twice.",
    ),
    Mutant(
        name="a problem taken for stored after a lost answer",
        where="ingest.md#unreadable-input",
        rule="a task stores its quarantined slices before it ends",
        edit=Edit(
            (
                "Quarantine.report",
                "with suppress(ConditionFailed):",
                "with suppress(ConditionFailed, OutcomeUnknown, Unavailable):",
            ),
            ("Quarantine.report", "(OutcomeUnknown, Unavailable)", "()"),
        ),
        setting=reading(
            _ONE,
            [Upload("a", size=4)],
            Fault.LOST_REQUEST,
            broken={"a": 2},
            settings={"unreadable": "quarantine"},
        ),
        caught=_LOST,
        story="The object is repaired, but no row says which of its records were not delivered.",
    ),
    Mutant(
        name="a version that was planned taken for delivered",
        where="ingest.md#unreadable-input",
        rule="a version that was left out, and is there again, is delivered",
        edit=Edit(("SeenFiles.undelivered", "if not problems or", "if True or")),
        setting=reading(
            {"A": {"batches": 2, "every": 6.0}},
            [Upload("a"), Upload("a", at=1, size=2), Upload("a", at=5, again=True)],
            forced=(Forced("A get a", Fault.DELAYED, 1, 1.5),),
        ),
        caught=_LOST,
        story=(
            "The object is overwritten before it is read, and gets its first content again before it is "
            "listed. That version is remembered, so it counts as known."
        ),
    ),
    Mutant(
        name="a slice that was left out read by a later attempt",
        where="ingest.md#unreadable-input",
        rule="all attempts leave out the slices that one has left out",
        edit=Edit(("Fetch.read", "if each not in left_out", "if True")),
        setting=reading(
            {"A": {"batches": 2, "every": 6.0}},
            [Upload("a"), Upload("a", at=1, size=2), Upload("a", at=2, again=True)],
            Fault.CRASHED,
            forced=(Forced("A get a", Fault.DELAYED, 1, 1.5),),
        ),
        caught=_TWICE,
        story=(
            "The process dies after the slice was left out. The next attempt finds the first content "
            "again, and delivers it; so does the epoch that the problem leads to."
        ),
    ),
    Mutant(
        name="a slice that is read again delivered from its start",
        where="ingest.md#unreadable-input",
        rule="of a slice that is delivered again, only the undelivered records are",
        edit=Edit(("Fetch._read", "missing = slice.skip - records", "missing = -records")),
        setting=reading(
            _ONE, [Upload("a", size=4)], broken={"a": 2}, settings={"unreadable": "quarantine"}
        ),
        caught=_TWICE,
        story="The first two records had been delivered before the read failed.",
    ),
    Mutant(
        name="a wanted slice never removed",
        where="ingest.md#unreadable-input",
        rule="a wanted slice is removed by the transaction that stores its epoch",
        edit=Edit(("Planner.plan", "removed.append(range)", "pass")),
        setting=reading(
            _ONE, [Upload("a", size=4)], broken={"a": 2}, settings={"unreadable": "quarantine"}
        ),
        caught=_TWICE,
        story="Each epoch delivers the slice again.",
    ),
)
