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
        rule=(
            "an object that is older than the grace window before the start of a sweep existed at "
            "that start"
        ),
        edit=Edit(("Planner._begin", "else began - settings.grace", "else began")),
        setting=reading({"A": {"batches": 2, "every": 6.0}}, [Upload("b"), Upload("a", at=5, age=8)]),
        caught=_LOST,
        story=(
            "The upload of a began before the first listing, and ended after it. The time of a is "
            "that of its begin, so a counts as known."
        ),
    ),
    Mutant(
        name="the watermark counted from the end of a sweep",
        where="ingest.md#memory-of-files",
        rule="a complete sweep has handled all objects that existed at its *start*",
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
            "During the sweep, a appears before the current key. At the end of the sweep, a is as old "
            "as the grace window is long."
        ),
    ),
    Mutant(
        name="an object at the edge of the window not remembered",
        where="ingest.md#memory-of-files",
        rule="an object is known by its time if it is *more* than the grace window older than the sweep",
        edit=Edit(
            (
                "Planner._sweep",
                "recent = info.last_modified >= sweep.watermark",
                "recent = info.last_modified > sweep.watermark",
            )
        ),
        setting=reading({"A": {"batches": 2}}, [Upload("a", age=10)]),
        caught=_TWICE,
        story=(
            "The object is exactly as old as the window is long: it is neither remembered nor known "
            "by its time."
        ),
    ),
    Mutant(
        name="delivered files forgotten with their epoch",
        where="ingest.md#storage-layout",
        rule="the row of a file that must be remembered stays until it is below the watermark",
        edit=Edit(("SeenFiles.removable", "if row.below(watermarks):", "if True:")),
        setting=reading({"A": {"batches": 4}}, [Upload(name) for name in "abc"]),
        caught=_TWICE,
        story=(
            "The row of the first epoch is removed two epochs later, and its file counts as new again."
        ),
    ),
    Mutant(
        name="rows of another driver not read",
        where="ingest.md#memory-of-files",
        rule="an object above the watermark is known if the table remembers it",
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
        story="B delivers b. A continues, and remembers only what it knew before.",
    ),
    Mutant(
        name="a version identified by its path alone",
        where="ingest.md#memory-of-files",
        rule="an object is known if it is remembered by its path *and etag*",
        edit=Edit(("SeenFiles.look", "if etag != _short(file.etag):", "if False:")),
        setting=reading({"A": {"batches": 2, "every": 6.0}}, [Upload("a"), Upload("a", at=3, size=2)]),
        caught=_LOST,
        story="The object is overwritten, and its new version is taken for the old one, which was read.",
    ),
    Mutant(
        name="files of the tail not remembered",
        where="ingest.md#keys-that-grow",
        rule="files that the tail delivers are remembered for the grace window",
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
        name="the watermark of the tail used for all keys",
        where="ingest.md#keys-that-grow",
        rule="keys that the boundary passes keep their watermark until the body is swept",
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
            "The listings of the tail continue, and a appears before the boundary. When the sweep of "
            "the body reaches a, the watermark of the tail is past its time, though no listing of the "
            "tail had a."
        ),
    ),
    Mutant(
        name="files of the tail handed out again by the body",
        where="ingest.md#keys-that-grow",
        rule=(
            "every object that the boundary passes is below the watermark of the sweep that has just "
            "listed it, or is remembered"
        ),
        edit=Edit(
            (
                "Planner._list",
                "taken = {_version(entry) for entry, _ in builder.entries}",
                "taken = admitted",
            )
        ),
        setting=reading(
            {"A": {"batches": 1}},
            [Upload("a", age=60), Upload("b")],
            settings={"ordered": True, "remember": "everything", "max_files": 3},
        ),
        caught=_TWICE,
        story=(
            "The boundary moves over a at the end of the tail. In the same call the sweep of the body "
            "finds a, which the table does not remember yet."
        ),
    ),
    Mutant(
        name="a finite run that ends with a sweep that had begun before",
        where="ingest.md#keys-that-grow",
        rule="a run that must end sweeps all keys, from the beginning",
        edit=Edit(("SourceState.finish", "(1 if self.tail is None else 2)", "1")),
        setting=reading(
            {"A": {"batches": 1}, "B": {"batches": 9, "after": 2.0, "finite": True}},
            [Upload("b"), Upload("c"), Upload("a", at=1)],
        ),
        caught="a finite run has ended",
        story="A's unfinished sweep has passed a when a appears. B ends with that sweep.",
    ),
    Mutant(
        name="a finite run that leaves out the body",
        where="ingest.md#keys-that-grow",
        rule="a run that must end sweeps the whole tail *and* the whole body",
        edit=Edit(("SourceState.finish", "bodies = 1 if self.body is None else 2", "bodies = 0")),
        setting=reading(
            {"A": {"batches": 2}, "B": {"batches": 9, "after": 9.0, "finite": True}},
            [Upload("b", age=60), Upload("c"), Upload("a", at=5), Upload("d", at=5)],
            settings={"ordered": True},
        ),
        caught="a finite run has ended",
        story="The sweep of the tail is complete, and a is in the body.",
    ),
)
