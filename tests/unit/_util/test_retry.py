"""Pauses between attempts."""

from __future__ import annotations

import os
import warnings
from random import Random
from typing import Any

import pytest

from commitlog._util.retry import Backoff
from commitlog.testing import ManualClock


def test_pauses_grow_up_to_the_cap() -> None:
    """They are drawn from zero to a bound that doubles with each attempt, however many there are."""
    backoff = Backoff(base=0.1, cap=1.0, random=Random(7))
    for attempt, bound in ((0, 0.1), (1, 0.2), (3, 0.8), (4, 1.0), (10_000, 1.0)):
        pauses = [backoff.pause(attempt) for _ in range(200)]
        assert 0 <= min(pauses) < 0.2 * bound
        assert 0.8 * bound < max(pauses) <= bound


def test_a_seeded_source_makes_a_run_reproducible() -> None:
    """Two policies with sources of one seed pause alike."""
    one, other = (Backoff(random=Random(7)) for _ in range(2))
    assert [one.pause(9) for _ in range(5)] == [other.pause(9) for _ in range(5)]


def test_forked_processes_do_not_pause_alike() -> None:
    """Else they would meet again at each attempt."""
    backoff = Backoff()
    backoff.pause(0)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(backoff.pause(9)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = float(pipe.read())
    assert os.waitpid(child, 0)[1] == 0
    assert theirs != backoff.pause(9)


def test_nobody_sleeps_before_the_first_attempt_or_after_the_last() -> None:
    """Of three attempts two follow a pause."""
    clock = ManualClock()
    ends = [clock.monotonic() for _ in Backoff(tries=3).attempts(clock)]
    assert ends[0] == 0 < ends[1] < ends[2] == clock.monotonic()


@pytest.mark.parametrize("wrong", [{"base": 0}, {"cap": -1.0}, {"tries": 0}])
def test_a_policy_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """There is at least one attempt, and time passes between two."""
    with pytest.raises(ValueError):
        Backoff(**wrong)
