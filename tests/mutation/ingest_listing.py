"""Mutants of how a source lists: which files it knows, and which it remembers."""

from __future__ import annotations

from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import reading
from sim.ingest.actions import Upload

__all__ = ["INGEST_LISTING"]

_LOST = "was never delivered"
_TWICE = "was delivered 2 times"

INGEST_LISTING: tuple[Mutant, ...] = (
    Mutant(
        name="no grace window",
        where="ingest.md#memory-of-files",
        rule="an object that is older than the grace window before the begin of a sweep was there then",
        edit=Edit(("Planner._begin", "else began - settings.grace", "else began")),
        setting=reading({"A": {"batches": 2, "every": 6.0}}, [Upload("b"), Upload("a", at=5, age=8)]),
        caught=_LOST,
        story=(
            "The upload of a began before the first listing, and ended after it: a bears the time of "
            "its begin, and is taken for known."
        ),
    ),
    Mutant(
        name="the watermark counted from the end of a sweep",
        where="ingest.md#memory-of-files",
        rule="when a sweep has come to its end, what was there when it *began* has been dealt with",
        edit=Edit(
            (
                "Planner._tail_swept",
                "state.watermarks.raised(sweep.watermark)",
                "state.watermarks.raised(self.now() - self._settings.grace)",
            )
        ),
        setting=reading(
            {"A": {"batches": 4, "every": 6.0}},
            [Upload("b"), Upload("c"), Upload("d"), Upload("a", at=1)],
        ),
        caught=_LOST,
        story=(
            "While the sweep goes on, a turns up behind its back. When the sweep has come to its end, a "
            "is as old as the grace window is long."
        ),
    ),
    Mutant(
        name="an object at the edge of the window not remembered",
        where="ingest.md#memory-of-files",
        rule="an object is known by its time if it is *more* than the grace window older",
        edit=Edit(
            (
                "Planner._sweep",
                "recent = info.last_modified >= sweep.watermark",
                "recent = info.last_modified > sweep.watermark",
            )
        ),
        setting=reading({"A": {"batches": 2}}, [Upload("a", age=10)]),
        caught=_TWICE,
        story="The object is as old as the window is long: neither remembered nor known by its time.",
    ),
    Mutant(
        name="what was handed out forgotten with its epoch",
        where="ingest.md#storage-layout",
        rule="rows of files that have to be remembered stay until the watermark has passed them",
        edit=Edit(("SeenFiles.removable", "if row.below(watermarks):", "if True:")),
        setting=reading({"A": {"batches": 4}}, [Upload(name) for name in "abc"]),
        caught=_TWICE,
        story="Two epochs later the row of the first one goes, and its file is new again.",
    ),
    Mutant(
        name="what another driver has stored not looked at",
        where="ingest.md#memory-of-files",
        rule="an object above the watermark is known if it is remembered: in the table",
        edit=Edit(
            (
                "StateTable.update",
                "if seen_files.revision != state.revision:",
                "if not seen_files.revision:",
            )
        ),
        setting=reading(
            {"A": {"batches": 3, "every": 4.0}, "B": {"batches": 1, "after": 1.0}},
            [Upload("a"), Upload("b")],
        ),
        caught=_TWICE,
        story="B hands out b, and A, which goes on, remembers what it knew before.",
    ),
    Mutant(
        name="a version told by its path alone",
        where="ingest.md#memory-of-files",
        rule="an object is known if it is remembered by its path *and etag*",
        edit=Edit(("SeenFiles.look", "if etag != _short(file.etag):", "if False:")),
        setting=reading({"A": {"batches": 2, "every": 6.0}}, [Upload("a"), Upload("a", at=3, size=2)]),
        caught=_LOST,
        story="The object is overwritten, and its new version is taken for the one that was read.",
    ),
    Mutant(
        name="what the tail hands out not remembered",
        where="ingest.md#keys-that-grow",
        rule="what the tail hands out is remembered for the grace window",
        edit=Edit(
            (
                "Planner._sweep",
                "recent = info.last_modified >= sweep.watermark",
                "recent = info.last_modified >= sweep.watermark and upto is not None",
            )
        ),
        setting=reading(
            {"A": {"batches": 3}}, [Upload("a", age=60), Upload("b")], settings={"ordered": True}
        ),
        caught=_TWICE,
        story="The next call lists the tail again, and takes b for new.",
    ),
    Mutant(
        name="watermarks of the tail taken for those of all keys",
        where="ingest.md#keys-that-grow",
        rule="the watermark with which keys were settled stays with them until the body is swept",
        edit=Edit(
            (
                "Watermarks.of",
                "return self.steps[step][1] if step < len(self.steps) else self.tail",
                "return self.tail",
            )
        ),
        setting=reading(
            {"A": {"batches": 6, "every": 20.0}},
            [Upload("b"), Upload("c"), Upload("a", at=50, age=8)],
            settings={"ordered": True, "list_limit": 1},
        ),
        caught=_LOST,
        story=(
            "The listings of the tail go on, and a turns up below it. When the sweep of the body comes "
            "to a, they have been where it is not."
        ),
    ),
    Mutant(
        name="a finite run content with the end of a sweep that was under way",
        where="ingest.md#keys-that-grow",
        rule="a run that is to end sweeps all, from the beginning",
        edit=Edit(("SourceState.finish", "(1 if self.tail is None else 2)", "1")),
        setting=reading(
            {"A": {"batches": 1}, "B": {"batches": 9, "after": 2.0, "finite": True}},
            [Upload("b"), Upload("c"), Upload("a", at=1)],
        ),
        caught="a finite run has ended",
        story="The sweep that A left behind is past a when a turns up, and B ends with it.",
    ),
    Mutant(
        name="a finite run that leaves out the body",
        where="ingest.md#keys-that-grow",
        rule="a run that is to end sweeps all of the tail *and* all of the body",
        edit=Edit(("SourceState.finish", "bodies = 1 if self.body is None else 2", "bodies = 0")),
        setting=reading(
            {"A": {"batches": 2}, "B": {"batches": 9, "after": 9.0, "finite": True}},
            [Upload("b", age=60), Upload("c"), Upload("a", at=5), Upload("d", at=5)],
            settings={"ordered": True},
        ),
        caught="a finite run has ended",
        story="The tail has come to its end, and a lies below it.",
    ),
)
