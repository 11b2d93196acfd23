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
        story="The driver dies between the two, and the files of the epoch are on no list.",
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
        story="The driver dies between the two. The file is remembered, and in no epoch.",
    ),
    Mutant(
        name="the list row replaced whatever it is",
        where="ingest.md#epochs",
        rule="an epoch is stored on condition that the list row is still the one that was read",
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
            "A's request is on its way for long. When it arrives, B has gone on to the second epoch, "
            "and the list row goes back to the first."
        ),
    ),
    Mutant(
        name="a lost answer taken for success",
        where="ingest.md#epochs",
        rule="a lost answer is settled by reading the list row again",
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
        story="The request was lost, and the engine logs an epoch that there is not.",
    ),
    Mutant(
        name="a read that is not pinned to the version that was listed",
        where="ingest.md#guarantees",
        rule="a slice is read from the version that was listed, or not at all",
        edit=Edit(
            (
                "Pinned.get",
                "if not same_etag(data.etag, self.file.etag) or data.size != self.file.size:",
                "if False:",
            )
        ),
        setting=reading(
            _ONE,
            [Upload("a"), Upload("a", at=1)],
            forced=(Forced("A get a", Fault.DELAYED, 1, 3),),
        ),
        caught=_TWICE,
        story="The object is overwritten after it was listed, and its new version is read twice.",
    ),
    Mutant(
        name="a problem whose storing stays open taken for stored",
        where="ingest.md#unreadable-input",
        rule="what is quarantined is stored before the task ends",
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
        story="The object is repaired, and nobody knows what of it was not delivered.",
    ),
    Mutant(
        name="a slice that is read again delivered from its start",
        where="ingest.md#unreadable-input",
        rule="of what is handed out again, only what was not delivered is",
        edit=Edit(("Fetch._read", "missing = slice.skip - records", "missing = -records")),
        setting=reading(
            _ONE, [Upload("a", size=4)], broken={"a": 2}, settings={"unreadable": "quarantine"}
        ),
        caught=_TWICE,
        story="Its first two records were delivered before it could not be read.",
    ),
    Mutant(
        name="a slice that is read again wanted for ever",
        where="ingest.md#unreadable-input",
        rule="what is wanted goes with the epoch that hands it out, in one transaction",
        edit=Edit(("Planner.plan", "removed.append(range)", "pass")),
        setting=reading(
            _ONE, [Upload("a", size=4)], broken={"a": 2}, settings={"unreadable": "quarantine"}
        ),
        caught=_TWICE,
        story="Each epoch hands it out.",
    ),
)
