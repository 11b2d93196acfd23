"""The judge of histories: accepted and refused histories, and a comparison with all possible orders."""

from __future__ import annotations

import math
import pickle
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import CommitError
from commitlog.stores.memory import MemoryStore
from commitlog.testing import (
    Action,
    Call,
    CheckUndecided,
    History,
    NotLinearizable,
    Outcome,
    RecordedStore,
    Recorder,
    check_linearizable,
)
from commitlog.testing.counterexample import Counterexample, timeline
from commitlog.testing.linearization import linearize
from support.selection import examples

LIMIT = 100_000

REFUSED, NOTHING, UNKNOWN = Outcome.CONTRADICTED, Outcome.NOTHING, Outcome.UNKNOWN


def do(
    what: str,
    invoked: float,
    returned: float = math.inf,
    outcome: Outcome = Outcome.DONE,
    *,
    client: str = "A",
    key: str = "k",
) -> Call:
    """Return the call that `what` describes: an action, the expected version, then the other one."""
    action, *words = what.split()
    expected = words.pop(0) if action in ("replace", "remove") else None
    return Call(
        client=client,
        action=Action(action),
        key=key,
        expected=expected,
        version=words[0] if words else None,
        outcome=outcome,
        invoked=invoked,
        returned=returned,
    )


#: Histories that a correct store may produce.
EXPLAINED = {
    "nothing": [],
    "one after the other": [
        do("create a", 1, 2),
        do("read a", 3, 4),
        do("replace a b", 5, 6),
        do("read b", 7, 8),
        do("remove b", 9, 10),
        do("read", 11, 12),
        do("create c", 13, 14),
    ],
    "a read sees a write under way, or not yet": [
        do("create a", 1, 10),
        do("read", 2, 3),
        do("read a", 4, 5),
    ],
    "overlapping writes in the order that fits": [
        do("replace b c", 1, 9),
        do("replace a b", 2, 9),
        do("create a", 3, 9),
    ],
    "moments that touch are in no order": [do("read a", 1, 2), do("create a", 2, 3)],
    "a loser of a race": [do("create a", 1, 4), do("create b", 2, 3, REFUSED)],
    "creation after removal": [
        do("create a", 1, 2),
        do("create b", 3, 9, REFUSED),
        do("remove a", 4, 5),
        do("create c", 6, 7),
    ],
    "a refused replacement of what is gone": [
        do("create a", 1, 2),
        do("remove a", 3, 4),
        do("replace a b", 5, 6, REFUSED),
        do("remove a", 5, 6, REFUSED),
    ],
    "a failure that says nothing": [do("create a", 1, 2, NOTHING), do("read", 3, 4)],
    "an unknown write that happened": [do("create a", 1, outcome=UNKNOWN), do("read a", 3, 4)],
    "an unknown write that never did": [do("create a", 1, outcome=UNKNOWN), do("read", 3, 4)],
    "an unknown write that takes effect late": [
        do("create a", 1, outcome=UNKNOWN),
        do("read", 3, 4),
        do("create b", 5, 6),
        do("remove b", 7, 8),
        do("read a", 9, 10),
    ],
    "an unknown write that nobody saw, but that was in the way": [
        do("create a", 1, outcome=UNKNOWN),
        do("create b", 3, 4, REFUSED),
    ],
    "an unknown replacement that nobody saw, but that was in the way": [
        do("create a", 1, 2),
        do("replace a b", 3, outcome=UNKNOWN),
        do("replace a c", 5, 6, REFUSED),
    ],
    "an unknown removal that was in the way": [
        do("create a", 1, 2),
        do("remove a", 3, outcome=UNKNOWN),
        do("read a", 5, 6),
        do("read", 7, 8),
        do("create b", 9, 10),
    ],
    "an unknown write on an unknown write": [
        do("replace a b", 1, outcome=UNKNOWN),
        do("create a", 2, outcome=UNKNOWN),
        do("read", 3, 4),
        do("read b", 5, 6),
    ],
    "a read without answer": [do("read", 1, outcome=UNKNOWN), do("read", 1, 2, NOTHING)],
    "of two ways to the same version only one goes on": [
        do("read z", 0, 100),
        do("create a", 1, 20),
        do("remove a", 1, 20),
        do("create b", 1, 30),
        do("remove b", 1, 30),
        do("read b", 2, 3),
        do("read a", 10, 11),
        do("create z", 40, 41),
    ],
    "of two ways to the same version only one leaves the unknown calls that are needed": [
        do("replace a x", 0, outcome=UNKNOWN),
        do("remove x", 0, outcome=UNKNOWN),
        do("remove a", 0, outcome=UNKNOWN),
        do("create a", 1, 2),
        do("read", 3, 4),
        do("create a", 5, 6),
        do("read x", 7, 8),
    ],
    "keys are apart": [do("create a", 1, 2), do("read", 3, 4, key="other")],
}


@pytest.mark.parametrize("calls", EXPLAINED.values(), ids=EXPLAINED)
def test_a_history_of_a_correct_store_is_accepted(calls: list[Call]) -> None:
    """Some order of its calls explains the history."""
    check_linearizable(calls)


#: Histories that a correct store must not produce, and the calls that prove it.
WRONG: dict[str, tuple[list[Call], list[int]]] = {
    "lost update": (
        [
            do("create a", 1, 2),
            do("read a", 3, 4),
            do("replace a b", 5, 8),
            do("replace a c", 6, 7, client="B"),
            do("read b", 9, 10),
        ],
        [2, 3],
    ),
    "two winners": ([do("create a", 1, 4), do("create b", 2, 3), do("read a", 5, 6)], [0, 1]),
    "two winners of one removal": (
        [
            do("create a", 1, 2),
            do("remove a", 3, 4),
            do("create b", 5, 9),
            do("create c", 6, 8),
            do("read c", 10, 11),
        ],
        [2, 3],
    ),
    "two removals": ([do("create a", 1, 2), do("remove a", 3, 6), do("remove a", 4, 5)], [1, 2]),
    "stale read": (
        [do("create a", 1, 2), do("replace a b", 3, 4), do("read b", 5, 6), do("read a", 5, 7)],
        [1, 3],
    ),
    "stale read of absence": (
        [do("read", 1, 2), do("create a", 3, 4), do("replace a b", 5, 6), do("read", 7, 8)],
        [2, 3],
    ),
    "resurrection": (
        [do("create a", 1, 2), do("remove a", 3, 4), do("read", 5, 6), do("read a", 7, 8)],
        [1, 3],
    ),
    "a version that nobody wrote": ([do("create a", 1, 2), do("read x", 3, 4)], [1]),
    "a version from the future": ([do("read a", 1, 2), do("create a", 3, 4)], [0]),
    "an update of what never was": ([do("create a", 1, 2), do("replace x b", 3, 4)], [1]),
    "a failed write that took effect": ([do("create a", 1, 2, NOTHING), do("read a", 3, 4)], [1]),
    "a refused write that took effect": (
        [do("create a", 1, 2), do("create b", 3, 4, REFUSED), do("read b", 5, 6)],
        [2],
    ),
    "a refusal without cause": ([do("create a", 1, 2, REFUSED), do("create b", 3, 4)], [0]),
    "a refusal of what fits": (
        [do("create a", 1, 2), do("replace a b", 3, 4, REFUSED), do("read a", 5, 6)],
        [0, 1],
    ),
    "an unknown write seen before it began": (
        [do("read a", 1, 2), do("create a", 3, outcome=UNKNOWN)],
        [0],
    ),
    "an unknown write seen, and then not": (
        [do("create a", 1, outcome=UNKNOWN), do("read a", 3, 4), do("read", 5, 6)],
        [1, 2],
    ),
    "an unknown write that happens twice": (
        [
            do("create a", 1, outcome=UNKNOWN),
            do("read a", 2, 3),
            do("remove a", 4, 5),
            do("create b", 6, 7),
            do("remove b", 8, 9),
            do("read a", 10, 11),
        ],
        [2, 5],
    ),
    "an unknown update over a later version": (
        [
            do("create a", 1, 2),
            do("replace a b", 3, outcome=UNKNOWN),
            do("replace a c", 4, 5),
            do("read b", 6, 7),
        ],
        [2, 3],
    ),
    "one unknown write for two that were in the way": (
        [
            do("create a", 1, 2),
            do("replace a b", 3, outcome=UNKNOWN),
            do("replace a c", 4, 5, REFUSED),
            do("replace a d", 6, 7),
        ],
        [0, 2, 3],
    ),
    "another than a write that was under way for long": (
        [
            do("replace a b", 0, 20),
            *(do("read", at, at + 1) for at in (2, 4, 6, 8)),
            do("create a", 10, 11),
            do("read x", 30, 31),
        ],
        [6],
    ),
    "the second of two keys": (
        [do("create a", 1, 2, key="a"), do("read a", 3, 4, key="a"), do("read b", 1, 2)],
        [2],
    ),
}


@pytest.mark.parametrize(("calls", "proof"), WRONG.values(), ids=WRONG)
def test_a_history_of_a_wrong_store_is_refused(calls: list[Call], proof: list[int]) -> None:
    """The error shows the calls that prove that no order exists, and no other calls."""
    with pytest.raises(NotLinearizable) as raised:
        check_linearizable(calls)
    assert raised.value.key == "k"
    assert raised.value.example is not None
    shown = {
        (call.action, call.expected, call.version, call.invoked) for call in raised.value.example.calls
    }
    wanted = [calls[number] for number in proof]
    assert shown == {(call.action, call.expected, call.version, call.invoked) for call in wanted}


def test_the_error_shows_calls_and_an_order() -> None:
    """It has the key, the calls as bars and as text, and the longest order that fits."""
    calls = [
        do("create a", 1, outcome=UNKNOWN, client="B"),
        do("read a", 2, 3),
        do("remove a", 4, 6),
        do("create b", 5, 7, REFUSED),
        do("read a", 8, 9, client="C"),
    ]
    with pytest.raises(NotLinearizable) as raised:
        check_linearizable(calls)
    assert str(raised.value).splitlines() == [
        "no order of the calls on 'k' explains their results; "
        "2 of 5 calls prove it, whatever became of the others:",
        "  |---|          #1 A: remove 'a': done",
        "          |---|  #2 C: read: 'a'",
        "the longest order that fits: #1",
        "'a' is from B: create 'a': unknown",
    ]


def test_overlapping_calls_have_overlapping_bars() -> None:
    """The bars show the order of all events, and a bar without an end goes to the margin."""
    calls = [do("create a", 1, 4), do("create b", 2, outcome=UNKNOWN), do("read x", 3, 5)]
    assert timeline(calls) == [
        "  |-----------|          #1 A: create 'a': done",
        "      |---------------?  #2 A: create 'b': unknown",
        "          |-------|      #3 A: read: 'x'",
    ]


def test_many_calls_fit_the_page() -> None:
    """With any number of events a bar is not longer than a line."""
    calls = [do("read", number, number + 100) for number in range(200)]
    assert max(line.index("#") for line in timeline(calls)) < 70


def test_origins_are_the_writes_of_shown_versions() -> None:
    """The error names the writer of each version in the shown calls, unless it is one of them."""
    calls = [
        do("create a", 1, 2),
        do("remove a", 3, 4),
        do("create b", 5, 6),
        do("replace a c", 5, 6, REFUSED),
        do("create d", 7, 8),
    ]
    example = Counterexample.of(calls, limit=LIMIT)
    assert example.calls == (calls[2], calls[4])
    assert example.origins == ()
    example = Counterexample.of([*calls[:2], do("read a", 5, 6)], limit=LIMIT)
    assert example.origins == (calls[0],)
    example = Counterexample.of(
        [calls[0], do("replace a c", 3, 4, REFUSED), do("read a", 5, 6)], limit=LIMIT
    )
    assert example.calls[0] == calls[0]
    assert example.origins == ()


def test_a_failed_write_that_was_read_is_named() -> None:
    """If only a failed call can have written the version that was read, the message names the call."""
    calls = [do("create a", 1, 2, NOTHING, client="B"), do("read a", 3, 4)]
    with pytest.raises(NotLinearizable, match="'a' is from B: create 'a': nothing happened"):
        check_linearizable(calls)


def test_the_error_survives_pickling() -> None:
    """A judge in another process can raise it."""
    with pytest.raises(NotLinearizable) as raised:
        check_linearizable([do("read x", 1, 2)])
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.key, copy.example) == (
        str(raised.value),
        "k",
        raised.value.example,
    )


# -- comparison with all possible orders ----------------------------------------------------------------


def explained(calls: Sequence[Call]) -> bool:
    """Try every order of the calls, with and without those whose outcome is unknown."""
    certain = [call for call in calls if call.outcome in (Outcome.DONE, REFUSED)]
    maybe = [call for call in calls if call.outcome is UNKNOWN and call.action is not Action.READ]
    return _goes_on(None, certain, maybe)


def _goes_on(state: str | None, certain: list[Call], maybe: list[Call]) -> bool:
    if not certain:
        return True
    for call in [*certain, *maybe]:
        if any(other.returned < call.invoked for other in certain):
            continue
        if call.action is Action.READ:
            after = state if state == call.version else "impossible"
        elif call.outcome is REFUSED:
            after = state if state != call.expected else "impossible"
        else:
            after = call.version if state == call.expected else "impossible"
        rest = [other for other in certain if other is not call], [o for o in maybe if o is not call]
        if after != "impossible" and _goes_on(after, *rest):
            return True
    return False


@st.composite
def any_calls(draw: st.DrawFn) -> list[Call]:
    """Draw a few calls that need not fit together; versions may repeat."""
    calls = []
    for _ in range(draw(st.integers(0, 6))):
        action = draw(st.sampled_from(Action))
        outcome = draw(st.sampled_from([Outcome.DONE] * 3 + [UNKNOWN] * 2 + [REFUSED, NOTHING]))
        if action is Action.READ and outcome is REFUSED:
            outcome = Outcome.DONE
        invoked, returned = sorted([draw(st.integers(0, 9)), draw(st.integers(0, 9))])
        word = st.sampled_from("abc")
        calls.append(
            Call(
                client="A",
                action=action,
                key="k",
                expected=draw(word) if action in (Action.REPLACE, Action.REMOVE) else None,
                version=(
                    draw(word)
                    if action in (Action.CREATE, Action.REPLACE)
                    else draw(st.one_of(st.none(), word))
                    if action is Action.READ
                    else None
                ),
                outcome=outcome,
                invoked=invoked,
                returned=math.inf if outcome is UNKNOWN else returned,
            )
        )
    return calls


def register(
    rng: random.Random, *, clients: int, each: int, unknown: float = 0.2, late: float = 20.0
) -> list[Call]:
    """Return calls of clients on one correct register, which answers and acts with random delays.

    Args:
        rng: the source of all random choices.
        clients: number of clients; each makes one call after another.
        each: number of calls of each client.
        unknown: part of the writes whose answers are lost. Half of those take effect.
        late: longest delay until such a write takes effect, where a call takes up to 1.
    """
    events: list[tuple[float, int, str]] = []
    spans: list[tuple[float, float]] = []
    for _ in range(clients):
        moment = rng.random()
        for _ in range(each):
            begin = moment + rng.random() / 10
            moment = begin + rng.random()
            events.append((begin, len(spans), "begin"))
            spans.append((begin, moment))
    calls: dict[int, Call] = {}
    state, past = None, [None]
    while events:
        event = min(events)
        events.remove(event)
        moment, number, what = event
        if what == "begin":
            calls[number] = call = _beginning(
                rng, number, spans[number], rng.choice([state, *past[-3:]])
            )
            lost = call.action is not Action.READ and rng.random() < unknown
            effect = rng.uniform(*spans[number])
            if lost:
                calls[number] = evolve(call, outcome=UNKNOWN, returned=math.inf)
                effect = moment + rng.random() * rng.choice([1, late])
            if not lost or rng.random() < 0.5:
                events.append((effect, number, "effect"))
            continue
        call = calls[number]
        if call.action is Action.READ:
            calls[number] = evolve(call, version=state)
        elif state == call.expected:
            state = call.version
            past.append(state)
        elif call.outcome is not UNKNOWN:
            calls[number] = evolve(call, outcome=REFUSED)
    return list(calls.values())


def _beginning(rng: random.Random, number: int, span: tuple[float, float], expected: str | None) -> Call:
    """Return a call that expects a version, or no version."""
    if rng.random() < 0.3:
        action, expected = Action.READ, None
    elif expected is None:
        action = Action.CREATE
    else:
        action = Action.REMOVE if rng.random() < 0.3 else Action.REPLACE
    writes = action in (Action.CREATE, Action.REPLACE)
    return Call(
        client=f"client-{number}",
        action=action,
        key="k",
        expected=expected,
        version=f"w{number}" if writes else None,
        outcome=Outcome.DONE,
        invoked=span[0],
        returned=span[1],
    )


@st.composite
def spoilt_calls(draw: st.DrawFn) -> list[Call]:
    """Draw a few calls on a correct register, and change the outcome or version of one."""
    rng = draw(st.randoms(use_true_random=False))
    calls = register(rng, clients=draw(st.integers(2, 3)), each=2, unknown=0.4, late=3)
    number = draw(st.integers(0, len(calls) - 1))
    call = calls[number]
    if call.action is Action.READ:
        calls[number] = evolve(call, version=draw(st.sampled_from([None, *_versions(calls)])))
    elif call.outcome is not UNKNOWN:
        calls[number] = evolve(call, outcome=draw(st.sampled_from([Outcome.DONE, REFUSED, NOTHING])))
    return draw(st.permutations(calls))


def _versions(calls: Sequence[Call]) -> list[str]:
    return sorted({call.version for call in calls if call.version is not None})


@settings(max_examples=examples(150, 400))
@given(calls=st.one_of(any_calls(), spoilt_calls()))
def test_the_judge_agrees_with_trying_every_order(calls: list[Call]) -> None:
    """The judge accepts a history if and only if some order explains it."""
    assert linearize(calls, limit=LIMIT).complete == explained(calls)


@settings(max_examples=examples(80, 200))
@given(calls=st.one_of(any_calls(), spoilt_calls()))
def test_the_order_that_is_found_is_valid(calls: list[Call]) -> None:
    """The calls in the order are explained by it, whether it is complete or not."""
    order = linearize(calls, limit=LIMIT).order
    moments = [
        evolve(
            call,
            invoked=place,
            returned=place,
            outcome=REFUSED if call.outcome is REFUSED else Outcome.DONE,
        )
        for place, call in enumerate(order)
    ]
    assert explained(moments)


@settings(max_examples=examples(100, 300))
@given(calls=spoilt_calls(), data=st.data())
def test_leaving_calls_out_refutes_no_valid_history(calls: list[Call], data: st.DataObject) -> None:
    """If all calls have an explanation, so has any subset while the others may happen at any time."""
    stays = data.draw(st.lists(st.booleans(), min_size=len(calls), max_size=len(calls)))
    kept = [call for call, stay in zip(calls, stays, strict=True) if stay]
    dropped = [call for call, stay in zip(calls, stays, strict=True) if not stay]
    if not linearize(kept, others=dropped, limit=LIMIT).complete:
        assert not explained(calls)


def test_others_may_have_happened_since_they_began() -> None:
    """The judge uses only the begin of the other calls."""
    kept = [do("create a", 5, outcome=UNKNOWN), do("read a", 2, 3)]
    assert linearize(kept, others=[do("create a", 1, 9, NOTHING)], limit=LIMIT).complete is False
    assert linearize(kept, others=[do("create a", 4, 9)], limit=LIMIT).complete is False
    assert linearize(kept, others=[do("create a", 1, 9)], limit=LIMIT).complete
    assert linearize(kept, others=[do("create a", 1, outcome=UNKNOWN)], limit=LIMIT).complete


@settings(max_examples=examples(80, 200))
@given(calls=st.one_of(any_calls(), spoilt_calls()))
def test_a_counterexample_is_one(calls: list[Call]) -> None:
    """The shown calls have no explanation, and would have one if any call were left out.

    This holds for the calls as known when the history first went wrong, without later answers.
    """
    calls = sorted(calls, key=lambda call: call.invoked)
    if explained(calls):
        return
    example = Counterexample.of(calls, limit=LIMIT)
    assert not explained(example.calls)
    assert len(example.order) < len(example.calls)
    moments = sorted({call.returned for call in calls if call.outcome is not UNKNOWN})
    known = next(cut for cut in (known_at(calls, moment) for moment in moments) if not explained(cut))
    for number in range(len(example.calls)):
        rest = [*example.calls[:number], *example.calls[number + 1 :]]
        others = list(known)
        for call in rest:
            others.remove(call)
        assert linearize(rest, others=others, limit=LIMIT).complete


def known_at(calls: list[Call], moment: float) -> list[Call]:
    """Return the calls as known at a moment: a call that has not returned may still take effect."""
    return [
        call if call.returned <= moment else evolve(call, outcome=UNKNOWN, returned=math.inf)
        for call in calls
        if call.invoked <= moment
    ]


# -- long histories ------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    rng=st.randoms(use_true_random=True),
    clients=st.integers(1, 12),
    unknown=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
)
def test_a_correct_register_is_accepted(rng: random.Random, clients: int, unknown: float) -> None:
    """Each of its calls takes effect at one moment."""
    check_linearizable(register(rng, clients=clients, each=200 // clients, unknown=unknown))


def spoil(calls: list[Call], how: str) -> Call:
    """Return a call that makes a long history wrong when it is added."""
    done = [call for call in calls if call.outcome is Outcome.DONE]
    end = max(call.returned for call in done)
    if how == "stale read":
        return do(f"read {next(call.version for call in done if call.version)}", end + 1, end + 2)
    if how == "two winners":
        winner = next(call for call in done[len(done) // 2 :] if call.action is Action.REPLACE)
        return evolve(winner, client="rival", version="rival")
    if how == "nothing is left":
        return do("read", end + 1, end + 2)
    # An unknown write is read at the end, though the version it expected was gone soon after it began.
    gone = {call.expected for call in done if call.action is not Action.READ}
    late = next(
        call for call in calls if call.outcome is UNKNOWN and call.expected in gone and call.version
    )
    return do(f"read {late.version}", end + 1, end + 2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["stale read", "two winners", "nothing is left", "ghost"])
def test_one_wrong_answer_in_a_long_history_is_found(how: str, seed: int) -> None:
    """Among a thousand calls, many with unknown outcomes, one wrong answer is found."""
    calls = register(random.Random(seed), clients=8, each=125, unknown=0.4)
    calls.append(spoil(calls, how))
    with pytest.raises(NotLinearizable) as raised:
        check_linearizable(calls)
    assert raised.value.example is not None
    assert len(raised.value.example.calls) <= 4
    assert raised.value.example.total == len(calls)


@pytest.mark.parametrize("seed", [1, 2])
def test_one_wrong_answer_to_many_clients_is_found(seed: int) -> None:
    """With thirty concurrent clients, the two calls that prove it are found too."""
    calls = register(random.Random(seed), clients=30, each=60, unknown=0.3)
    calls.append(spoil(calls, "stale read"))
    with pytest.raises(NotLinearizable, match="; 2 of 1801 calls prove it"):
        check_linearizable(calls)


def test_unknown_outcomes_without_effect_cost_little() -> None:
    """Hundreds of writes that may still happen hardly make the search longer than the history."""
    calls = register(random.Random(1), clients=10, each=200, unknown=0.0)
    writes = sum(call.writes for call in calls)
    calls += [do(f"create x{number}", number / 10, outcome=UNKNOWN) for number in range(300)]
    found = linearize(calls, limit=LIMIT)
    assert found.complete
    assert found.configurations < 1.1 * writes


def hard(pairs: int) -> list[Call]:
    """Return calls of which any of 2 ** pairs sets may have happened; none explains the last call."""
    calls = []
    for number in range(pairs):
        calls.append(do(f"create x{number}", 1, outcome=UNKNOWN))
        calls.append(do(f"remove x{number}", 1, outcome=UNKNOWN))
    return [*calls, do("read x", 2, 3)]


def test_a_search_that_takes_too_long_is_given_up() -> None:
    """The search ends at the limit of configurations with an error that the result is undecided."""
    with pytest.raises(CheckUndecided, match="1000 configurations"):
        check_linearizable(hard(20), limit=1000)
    with pytest.raises(NotLinearizable):
        check_linearizable(hard(5), limit=1000)


# -- a real store --------------------------------------------------------------------------------------


def test_threads_on_a_store_in_memory() -> None:
    """A history of threads that race for two keys of a `ConditionalStore` in memory has an order."""
    recorder = Recorder()
    shared = ConditionalStore(MemoryStore())

    def work(client: str) -> None:
        rng = random.Random(client)
        store = RecordedStore(shared, recorder, client=client)
        for number in range(60):
            path, word = rng.choice("ab"), f"{client}{number}"
            try:
                if rng.random() < 0.3:
                    store.put_if_absent(path, word)
                    continue
                seen = store.head(path) if rng.random() < 0.5 else store.get(path)
                if rng.random() < 0.3:
                    store.delete_if_match(path, etag=seen.etag)
                else:
                    store.put_if_match(path, word, etag=seen.etag)
            except CommitError:
                continue

    threads = [threading.Thread(target=work, args=(client,)) for client in "ABCD"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = recorder.history()
    check_linearizable(history)
    outcomes = {(call.action, call.outcome) for call in history}
    assert {(action, Outcome.DONE) for action in Action} <= outcomes
    assert (Action.CREATE, REFUSED) in outcomes


class Forgetful(MemoryStore):
    """A store that ignores conditions."""

    def put(self, path: str, body: Any, **options: Any) -> Any:
        return super().put(path, body, **{**options, "condition": None})


def test_a_store_that_ignores_conditions_is_caught() -> None:
    """Two creations that both succeed are refused, though no client sees a contradiction."""
    recorder = Recorder()
    for client in "AB":
        store = RecordedStore(ConditionalStore(Forgetful("memory://forgetful")), recorder, client=client)
        store.put_if_absent("k", client)
    with pytest.raises(NotLinearizable, match="'k'"):
        check_linearizable(History(recorder.history()))
