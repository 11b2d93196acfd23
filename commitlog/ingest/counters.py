"""What a source has done, as a driver knows it without asking anybody: for progress and metrics.

Imports its siblings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import asdict, evolve, fields_dict, frozen

from commitlog.ingest.files import Slice
from commitlog.ingest.head import Head
from commitlog.ingest.planning import Plan

__all__ = ["Counters"]

_KEY = "counters"


@frozen(kw_only=True)
class Counters:
    """Counters of one source, as of the last call of `Ingest.latest_offset` that came to an end.

    Attributes:
        source: its id.
        revision: how often its list row was written.
        epoch: number of the last epoch that was planned.
        files: files that were handed out, ever; one that was cut counts in each epoch that has some.
        bytes: bytes that were handed out, ever.
        epoch_files: files of the epoch that the call told of; 0 if there was none.
        epoch_bytes: its bytes.
        epoch_slices: its slices.
        listed: objects that the call listed.
        seconds: how long that took, with all that goes with it.
        caught_up: whether the call came to the end of a listing, and all that it found is handed out.
        rest: bytes that are left of the last file.
        passed_over: objects that were too old when they were listed, ever.
        problems: slices that could not be read, and were not handed out again: as of at most a minute
            ago, and the first thousand at most.
    """

    source: str
    revision: int = 0
    epoch: int = 0
    files: int = 0
    bytes: int = 0
    epoch_files: int = 0
    epoch_bytes: int = 0
    epoch_slices: int = 0
    listed: int = 0
    seconds: float = 0.0
    caught_up: bool = False
    rest: int = 0
    passed_over: int = 0
    problems: int = 0

    def at(self, head: Head, slices: Iterable[Slice] = ()) -> Counters:
        """Return the counters of a source with that list row, of which `slices` are handed out."""
        handed_out = list(slices)
        return Counters(
            source=head.source,
            revision=head.revision,
            epoch=head.epoch,
            files=head.files,
            bytes=head.bytes,
            epoch_files=len({each.file.path for each in handed_out}),
            epoch_bytes=sum(each.size for each in handed_out),
            epoch_slices=len(handed_out),
            rest=0 if head.rest is None else head.rest.size,
            passed_over=head.passed_over,
            problems=self.problems,
        )

    def with_plan(self, plan: Plan, seconds: float) -> Counters:
        """Return the counters once `plan` was made in so many seconds, and is carried out."""
        slices = (each for row in plan.rows for entry in row.entries for each in entry.to_slices())
        head = evolve(plan.head, revision=plan.head.revision + plan.needed)
        return evolve(
            self.at(head, slices),
            listed=self.listed + plan.listed,
            seconds=self.seconds + seconds,
            caught_up=plan.caught_up,
        )

    def to_json(self, offset: Mapping[str, Any]) -> dict[str, Any]:
        """Return `offset` with the counters in it, for a query's progress."""
        return {**offset, _KEY: asdict(self)}

    @classmethod
    def from_json(cls, value: object) -> Counters | None:
        """Return the counters that `to_json` has put into `value`; None if there are none.

        Those that a newer release has added are left out.
        """
        told = value.get(_KEY) if isinstance(value, dict) else None
        if not isinstance(told, dict) or not isinstance(told.get("source"), str):
            return None
        return cls(**{name: told[name] for name in fields_dict(cls) if name in told})
