"""Counters of a source for progress and metrics, kept by the driver without extra requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import asdict, evolve, fields_dict, frozen

from commitlog.ingest.files import Slice
from commitlog.ingest.planning import Plan
from commitlog.ingest.source_state import SourceState

__all__ = ["Counters"]

_KEY = "counters"


@frozen(kw_only=True)
class Counters:
    """Counters of one source, after the last call of `Ingest.latest_offset` that returned.

    Attributes:
        source: its id.
        revision: number of writes of the source's state row.
        epoch: number of the last planned epoch.
        files: total number of files handed out. A cut file counts once in each epoch that reads it.
        bytes: total number of bytes handed out.
        epoch_files: files of the epoch that the call returned; 0 if it returned none.
        epoch_bytes: bytes of that epoch.
        epoch_slices: slices of that epoch.
        listed: objects that the call listed.
        seconds: time that planning took, listing included.
        caught_up: whether the call reached the end of the listing and handed out all that it found.
        rest: bytes of the last file that are not handed out yet.
        passed_over: total number of objects that were skipped because they were too old when listed.
        problems: slices that could not be read and were not handed out again. The number is at most a
            minute old, and at most 1,000.
        notified: objects that the call handled because of notifications.
        unusable: notifications since the start of the driver that are no events of the bucket.
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
    notified: int = 0
    unusable: int = 0

    def at(self, state: SourceState, slices: Iterable[Slice] = ()) -> Counters:
        """Return the counters for the state `state`, when `slices` are handed out."""
        handed_out = list(slices)
        return Counters(
            source=state.source,
            revision=state.revision,
            epoch=state.epoch,
            files=state.files,
            bytes=state.bytes,
            epoch_files=len({each.file.path for each in handed_out}),
            epoch_bytes=sum(each.size for each in handed_out),
            epoch_slices=len(handed_out),
            rest=0 if state.rest is None else state.rest.size,
            passed_over=state.passed_over,
            problems=self.problems,
            unusable=self.unusable,
        )

    def with_plan(self, plan: Plan, seconds: float) -> Counters:
        """Return the counters after `plan`, which took `seconds` to make, is carried out."""
        slices = (each for row in plan.rows for entry in row.entries for each in entry.to_slices())
        state = evolve(plan.state, revision=plan.state.revision + plan.needed)
        return evolve(
            self.at(state, slices),
            listed=self.listed + plan.listed,
            notified=self.notified + len(plan.notified),
            seconds=self.seconds + seconds,
            caught_up=plan.caught_up,
        )

    def to_json(self, offset: Mapping[str, Any]) -> dict[str, Any]:
        """Return `offset` with the counters in it, for a query's progress."""
        return {**offset, _KEY: asdict(self)}

    @classmethod
    def from_json(cls, value: object) -> Counters | None:
        """Return the counters that `to_json` has put into `value`; None if there are none.

        Ignore counters that only a newer release knows.
        """
        fields = value.get(_KEY) if isinstance(value, dict) else None
        if not isinstance(fields, dict) or not isinstance(fields.get("source"), str):
            return None
        return cls(**{name: fields[name] for name in fields_dict(cls) if name in fields})
