"""The progress of the steps of checks, repairs and restores in partitions."""

from __future__ import annotations

from collections import defaultdict

import pytest

from commitlog.namespace import StepProgress
from commitlog.namespace.partitioned.dataset import SerialEngine
from support.damage import filled, lose
from support.restore import World


@pytest.fixture
def at() -> World:
    """A namespace of which some files are lost."""
    at = filled()
    for number in range(5):
        at.lake.write(f"many/{number}", b"1")
        lose(at, f"many/{number}")
    at.clock.advance(1)
    return at


def watched(at: World) -> dict[str, list[StepProgress]]:
    """Let the engine of a namespace show its progress; return it by step."""
    shown: dict[str, list[StepProgress]] = defaultdict(list)
    at.engine = SerialEngine(
        partitions=2, progress=lambda now: shown[now.step].append(now), clock=at.clock
    )
    return shown


def test_a_check_and_a_repair_show_their_steps(at: World) -> None:
    """The table gives the number of its items, and the findings are known."""
    shown = watched(at)
    items = at.table.describe().item_count
    findings = at.check(at.lake, grace=0).findings
    assert shown["reading the table"][-1].total == items
    assert shown["reading the table"][-1].done >= len(list(at.table.scan())) - 1
    assert shown["reading the log"][-1].done and shown["reading the log"][-1].total is None
    at.repair(at.lake, findings, dry_run=False)
    assert [(now.done, now.total) for now in shown["repairing"]] == [(5, 5)]


def test_a_restore_shows_its_steps(at: World) -> None:
    """The number of records is known once they are in the log of the new epoch."""
    shown = watched(at)
    at.restorer(at.lost()).restore()
    last = shown["writing the table"][-1]
    assert last.done == last.total
    assert shown["writing the log"][-1].done == last.done
    assert shown["reading the log"]


def test_long_steps_are_shown_while_they_last() -> None:
    """The rate and the remaining time follow from the number of records."""
    clock = filled().clock
    shown: list[StepProgress] = []
    engine = SerialEngine(progress=shown.append, clock=clock)

    def slowly(numbers: object) -> list[int]:
        clock.advance(1)
        return list(range(1000))

    with engine.counting("counting", lambda: 4000) as counter:
        assert len(engine.distribute([1, 2, 3]).map(slowly).map(counter.count).collect()) == 3000
    assert [now.done for now in shown] == [1000, 2000, 3000, 3000]
    assert [now.rate for now in shown][-1] == 1000
    assert [now.remaining for now in shown][-1] == 1


@pytest.mark.parametrize(
    ("done", "total", "seconds", "remaining"),
    [
        (0, 10, 5.0, None),
        (5, None, 5.0, None),
        (5, 10, 0.0, None),
        (5, 10, 5.0, 5.0),
        (15, 10, 5.0, 0.0),
    ],
)
def test_the_remaining_time_may_be_unknown(
    done: int, total: int | None, seconds: float, remaining: float | None
) -> None:
    """More records than expected leave no time."""
    now = StepProgress(step="x", done=done, total=total, seconds=seconds)
    assert now.remaining == remaining
