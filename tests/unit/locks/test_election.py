"""Elections: one leader, its term, and its end."""

from __future__ import annotations

from typing import Any

import pytest

from commitlog._util.background import Foreground
from commitlog.commit import ConditionalStore
from commitlog.errors import LockLost, Unavailable
from commitlog.locks import Election, Lock, LockSettings, Term
from commitlog.stores import MemoryStore
from commitlog.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """The clock of all candidates."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ConditionalStore:
    """The store of the election."""
    return ConditionalStore(MemoryStore(clock=clock), clock=clock)


def _candidate(store: ConditionalStore, clock: ManualClock, **options: Any) -> Election:
    settings = LockSettings(timeout=10, margin=2)
    return Election(store, "e", settings=settings, clock=clock, background=Foreground(), **options)


def test_one_candidate_leads_until_it_steps_down(store: ConditionalStore, clock: ManualClock) -> None:
    """The next term has a larger token."""
    elected: list[Term] = []
    first = _candidate(store, clock, holder="one", on_elected=elected.append)
    second = _candidate(store, clock)
    term = first.campaign()
    assert term is not None and term.active and first.campaign() is term
    assert elected == [term]
    leader = second.leader()
    assert leader is not None and leader.description == "one"
    assert second.campaign(timeout=0) is None and second.term is None
    second.step_down()
    first.step_down()
    assert not term.active and first.term is None
    with pytest.raises(LockLost, match="term"):
        term.check()
    other = second.campaign(timeout=0)
    assert other is not None and other.token > term.token


def test_an_earlier_term_stays_over(store: ConditionalStore, clock: ManualClock) -> None:
    """Also while the same candidate leads again."""
    candidate = _candidate(store, clock)
    first = candidate.campaign()
    candidate.step_down()
    second = candidate.campaign()
    assert first is not None and second is not None
    assert (first.active, second.active) == (False, True)


def test_a_candidate_whose_callback_fails_steps_down(
    store: ConditionalStore, clock: ManualClock
) -> None:
    """Heartbeats would keep a leader that does nothing."""

    def fail(term: Term) -> None:
        raise ZeroDivisionError

    candidate = _candidate(store, clock, on_elected=fail)
    with pytest.raises(ZeroDivisionError):
        candidate.run(lambda term: None)
    assert candidate.term is None and candidate.leader() is None
    assert _candidate(store, clock).campaign(timeout=0) is not None


def test_a_leader_that_is_late_is_deposed(store: ConditionalStore, clock: ManualClock) -> None:
    """The callback is called once, with the term. Then it can campaign again."""
    deposed: list[Term] = []
    candidate = _candidate(store, clock, on_deposed=deposed.append)
    term = candidate.campaign()
    assert candidate.renew()
    clock.advance(9)
    assert not candidate.renew()
    assert term is not None and deposed == [term] and not term.active
    again = candidate.campaign()
    assert again is not None and again.token > term.token
    assert again.active and not term.active
    with pytest.raises(LockLost, match="term"):
        term.check()
    candidate.step_down()
    assert deposed == [term]


def test_a_candidate_runs_term_after_term(
    store: ConditionalStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost term, a failed request and another leader do not end the run; `stop` does."""
    terms: list[Term] = []
    other = Lock(store, "e", clock=clock, background=Foreground())
    other.acquire()
    candidate = _candidate(store, clock)
    acquire, failures = Lock.acquire, [Unavailable("down")]

    def fail_once(lock: Lock, *arguments: Any, **options: Any) -> bool:
        if failures:
            raise failures.pop()
        return acquire(lock, *arguments, **options)

    monkeypatch.setattr(Lock, "acquire", fail_once)

    def lead(term: Term) -> None:
        terms.append(term)
        if len(terms) == 1:
            clock.advance(9)
            term.check()

    candidate.run(lead, stop=lambda: len(terms) == 2)
    assert terms[0].token < terms[1].token
    assert candidate.leader() is None

    def fail(term: Term) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        candidate.run(fail)
    assert candidate.leader() is None
