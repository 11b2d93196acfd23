"""Pauses between attempts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from commitlog._util.retry import Backoff
from commitlog.errors import Busy, Unavailable
from commitlog.testing import ManualClock


def test_pauses_grow_up_to_the_cap() -> None:
    """They are drawn from zero to a bound that doubles with each attempt, up to the cap."""
    backoff = Backoff(base=0.1, cap=1.0, random=Random(7))
    for attempt, bound in ((0, 0.1), (1, 0.2), (3, 0.8), (4, 1.0), (10_000, 1.0)):
        pauses = [backoff.pause(attempt) for _ in range(200)]
        assert 0 <= min(pauses) < 0.2 * bound
        assert 0.8 * bound < max(pauses) <= bound


def test_a_seeded_source_makes_a_run_reproducible() -> None:
    """Two policies with random sources of the same seed make the same pauses."""
    one, other = (Backoff(random=Random(7)) for _ in range(2))
    assert [one.pause(9) for _ in range(5)] == [other.pause(9) for _ in range(5)]


def test_forked_processes_do_not_pause_alike() -> None:
    """Otherwise they would conflict again at each attempt."""
    backoff = Backoff()
    backoff.pause(0)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork in a process with threads
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


def test_there_is_no_pause_before_the_first_attempt_or_after_the_last() -> None:
    """Three attempts have two pauses."""
    clock = ManualClock()
    ends = [clock.monotonic() for _ in Backoff(tries=3).attempts(clock)]
    assert ends[0] == 0 < ends[1] < ends[2] == clock.monotonic()


class Flaky:
    """A call that fails with the given errors, one after the other, and then returns "done"."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_a_call_is_retried_after_the_given_errors() -> None:
    """Its result is returned, and there is a pause before each next try and no other."""
    clock, alike = ManualClock(), ManualClock()
    call = Flaky(KeyError("one"), ValueError("two"))
    backoff, other = (Backoff(tries=3, random=Random(7)) for _ in range(2))
    assert backoff.retry(clock, call, on=(KeyError, ValueError)) == "done"
    assert call.calls == len(list(other.attempts(alike))) == 3
    assert clock.monotonic() == alike.monotonic() > 0


@pytest.mark.parametrize("when", [lambda error: True, lambda error: "no" not in str(error)])
def test_other_errors_are_raised_at_once(when: Callable[[KeyError], bool]) -> None:
    """This holds for errors of another class, and for errors that `when` rejects."""
    clock = ManualClock()
    call = Flaky(KeyError("no") if when(KeyError("no")) is False else ValueError("no"))
    with pytest.raises((KeyError, ValueError), match="no"):
        Backoff(tries=3).retry(clock, call, on=KeyError, when=when)
    assert (call.calls, clock.monotonic()) == (1, 0)


def test_the_error_of_the_last_try_is_raised() -> None:
    """It is raised itself, or as the cause of another error. No pause follows it."""
    clock = ManualClock()
    with pytest.raises(KeyError, match="two"):
        Backoff(tries=2).retry(clock, Flaky(KeyError("one"), KeyError("two")), on=KeyError)
    before = clock.monotonic()
    with pytest.raises(ValueError, match=r"after 1 try: 'one'") as caught:
        Backoff(tries=1).retry(
            clock,
            Flaky(KeyError("one")),
            on=KeyError,
            exhausted=lambda error: ValueError(f"after 1 try: {error}"),
        )
    assert isinstance(caught.value.__cause__, KeyError)
    assert clock.monotonic() == before


def test_a_hook_runs_before_each_next_try() -> None:
    """It runs after the pause, and gets the error. An error that it raises ends the tries."""
    clock = ManualClock()
    seen: list[tuple[str, float]] = []

    def hook(error: KeyError) -> None:
        seen.append((str(error), clock.monotonic()))
        if len(seen) == 2:
            raise ValueError("enough")

    call = Flaky(KeyError("one"), KeyError("two"), KeyError("three"))
    with pytest.raises(ValueError, match="enough"):
        Backoff(tries=4).retry(clock, call, on=KeyError, before_next=hook)
    assert [said for said, _ in seen] == ["'one'", "'two'"]
    assert 0 < seen[0][1] < seen[1][1]
    assert call.calls == 2


def test_no_try_follows_a_failure_after_the_deadline() -> None:
    """The first try is always made."""
    clock = ManualClock()
    steady = Backoff(base=1, cap=1, tries=100)
    call = Flaky(*[KeyError("down")] * 100)
    with pytest.raises(KeyError):
        steady.retry(clock, call, on=KeyError, deadline=10)
    assert 10 <= clock.monotonic() <= 11
    late = Flaky(KeyError("down"))
    with pytest.raises(KeyError):
        steady.retry(clock, late, on=KeyError, deadline=10)
    assert late.calls == 1


@pytest.mark.parametrize("wrong", [{"base": 0}, {"cap": -1.0}, {"tries": 0}])
def test_an_impossible_policy_is_refused(wrong: dict[str, Any]) -> None:
    """A policy has at least one attempt, and positive pauses."""
    with pytest.raises(ValueError):
        Backoff(**wrong)


def test_a_call_that_has_waited_for_a_lock_is_not_repeated() -> None:
    """Each try would wait as long."""
    calls: list[int] = []

    def wait() -> None:
        calls.append(1)
        raise Busy("locked")

    with pytest.raises(Busy):
        Backoff().retry(ManualClock(), wait, on=Unavailable)
    assert len(calls) == 1
