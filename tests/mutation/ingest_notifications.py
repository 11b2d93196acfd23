"""Mutants of a source with notifications: objects that a message and a listing both deliver."""

from __future__ import annotations

from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import reading
from sim.ingest.actions import Upload

__all__ = ["INGEST_NOTIFICATIONS"]

_TWICE = "was delivered 2 times"

INGEST_NOTIFICATIONS: tuple[Mutant, ...] = (
    Mutant(
        name="a notified file not remembered",
        where="ingest.md#notifications",
        rule="an object that a notification names is remembered like one that the listing found",
        edit=Edit(
            ("Planner._admit", "rest = builder.add(whole, recent=True)", "rest = builder.add(whole)")
        ),
        setting=reading(
            {"A": {"batches": 3, "every": 8.0}},
            [Upload("a", age=60), Upload("b", at=5.0)],
            messages=((6.0, "b"),),
            settings={"listing_interval": 10.0},
        ),
        caught=_TWICE,
        story="The next listing takes b for new.",
    ),
    Mutant(
        name="an object that a sweep has passed judged by the watermark before it",
        where="ingest.md#notifications",
        rule="the state table decides whether the version that a message names is new",
        edit=Edit(("Planner._known_at", "if sweep is None or path > sweep.cursor:", "if True:")),
        setting=reading(
            {"A": {"batches": 2, "every": 4.0}},
            [Upload("a", age=60), Upload("b", age=60)],
            messages=((3.0, "a"),),
        ),
        caught=_TWICE,
        story=(
            "The sweep has delivered a, and does not remember it: its time is below the watermark that"
            " the sweep will set. The message about a comes before the sweep is complete."
        ),
    ),
)
