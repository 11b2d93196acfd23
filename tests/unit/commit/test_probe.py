"""The findings of the probe about correct stores, and about incorrect ones."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from commitlog._util.concurrency import SERIAL
from commitlog.clock import SystemClock
from commitlog.commit.probe import _FEWEST, RACERS, ROUNDS, THREADS, probe
from commitlog.commit.probe_report import FORMAT, Kind, ProbeReport
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotSupported,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.stores.api import Condition, IfAbsent, ObjectStore, PutResult, WriteOperation
from commitlog.stores.memory import MemoryStore
from commitlog.stores.open import open_store
from commitlog.testing import ManualClock
from support.commit import Script, ScriptedStore, raising

CONDITIONS = [kind for kind in Kind if kind is not Kind.REQUEST_EXPIRY]


class Racy(ScriptedStore):
    """Honours each condition alone, but lets all racers win on every third path."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), Script(), ignores=False)
        self._paths: list[str] = []

    def publish(self, staged: Any, *, condition: Condition | None = None, **options: Any) -> PutResult:
        if self.inner.begin_head(staged.path)().info is None:
            self._paths.append(staged.path)
        if staged.path in self._paths[2::3]:
            condition = None
        return self.inner.publish(staged, condition=condition, **options)


def test_a_store_that_enforces_everything_is_proven() -> None:
    """No object of the probe remains."""
    store = MemoryStore()
    with ThreadPoolExecutor(THREADS) as executor:
        probe_report = probe(store, executor=executor)
    assert all(probe_report.proves(kind) for kind in Kind), [
        row for row in probe_report.rows if not row.ok
    ]
    assert not list(store.list()) and not list(store.list_staged())


def test_a_store_that_ignores_conditions_is_detected() -> None:
    """It reports success, but its effects show the defect."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=True)
    probe_report = probe(store, executor=SERIAL, clock=ManualClock())
    assert not any(probe_report.proves(kind) for kind in CONDITIONS)
    refused = [row for row in probe_report.rows if row.check == "refuse" and row.kind in CONDITIONS]
    assert {row.got for row in refused} == {"done, and it took effect"}
    assert not list(store.list())


def test_a_race_with_several_winners_is_detected() -> None:
    """Such a store honours each condition alone."""
    probe_report = probe(Racy(), kinds=[Kind.PUBLISH_IF_ABSENT], executor=SERIAL, clock=ManualClock())
    assert [(row.check, row.ok) for row in probe_report.rows] == [
        ("accept", True),
        ("refuse", True),
        ("race", False),
    ]
    assert probe_report.rows[-1].got == f"{RACERS} winners in a round"
    assert not probe_report.proves(Kind.PUBLISH_IF_ABSENT)


class CheckThenWrite(ScriptedStore):
    """Checks the condition of a put, and stores the object some time later.

    Args:
        window: returns the seconds in between, from the size of the body.
        arrival: returns the seconds that a request takes to arrive.
        atomic_before: number of paths on which it does both in one step, before it begins to err.
    """

    def __init__(
        self,
        window: Callable[[int], float],
        *,
        arrival: Callable[[], float] = lambda: 0,
        atomic_before: int = 0,
    ) -> None:
        super().__init__(MemoryStore(), Script(), ignores=False)
        self.sizes: list[int] = []
        self._window = window
        self._arrival = arrival
        self._atomic_before = atomic_before
        self._paths: dict[str, None] = {}

    def put(self, path: str, body: Any, **options: Any) -> PutResult:
        if options.get("condition") is None:
            return self.inner.put(path, body, **options)
        time.sleep(self._arrival())
        self._paths.setdefault(path)
        self.sizes.append(len(body))
        if list(self._paths).index(path) < self._atomic_before:
            return self.inner.put(path, body, **options)
        if self.inner.begin_head(path)().info is not None:
            raise AlreadyExists("there")
        time.sleep(self._window(len(body)))
        return self.inner.put(path, body, **{**options, "condition": None})


def _proves(store: ObjectStore, rounds: int = ROUNDS) -> bool:
    with ThreadPoolExecutor(THREADS) as executor:
        report = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=executor, rounds=rounds)
    assert not list(store.list())
    return report.proves(Kind.PUT_IF_ABSENT)


def test_a_store_that_checks_and_then_writes_is_detected_each_time() -> None:
    """By docs/protocol.md, a window of 1 ms is missed less than once in a million probes.

    That is if the requests of a race arrive evenly over 37 ms. They begin within 20 ms.
    """
    assert (1 - 1 / 37) ** (RACERS * ROUNDS) < 1e-6
    assert (1 - 1 / 14) ** (RACERS * _FEWEST) < 1e-6
    assert not any(_proves(CheckThenWrite(lambda _: 0.001)) for _ in range(30))


def test_a_store_that_errs_in_one_of_the_last_races_is_detected() -> None:
    """The number of races is that of the stated chance."""
    many = CheckThenWrite(lambda _: 0.02, atomic_before=ROUNDS - 4)
    assert not _proves(many)
    assert _proves(CheckThenWrite(lambda _: 0.02, atomic_before=ROUNDS), rounds=8)


def test_the_starts_of_racers_vary() -> None:
    """The first connection is always 4 ms faster than the others. Equal starts would never meet."""
    first: list[int] = []

    def arrival() -> float:
        first.append(threading.get_ident())
        return 0 if len(first) % RACERS == 1 else 0.004

    assert not _proves(CheckThenWrite(lambda _: 0.0015, arrival=arrival))


def test_the_bodies_of_racers_differ() -> None:
    """A store may check when a body begins, and write when it is complete."""
    store = CheckThenWrite(lambda size: size / 1e8)
    assert not _proves(store)
    assert len({size >> 10 for size in store.sizes}) == RACERS


def test_races_that_did_not_begin_together_prove_nothing() -> None:
    """This machine is too slow to race. The report says so."""

    class Slow(SystemClock):
        def monotonic(self) -> float:
            return next(ticks) / 10

    ticks = itertools.count()
    with ThreadPoolExecutor(THREADS) as executor:
        report = probe(
            MemoryStore(), kinds=[Kind.PUT_IF_ABSENT], executor=executor, clock=Slow(), rounds=4
        )
    assert not report.proves(Kind.PUT_IF_ABSENT)
    assert "were not sent together" in report.rows[-1].got


def test_a_store_that_is_slow_in_races_is_raced_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe does not take minutes."""
    monkeypatch.setattr("commitlog.commit.probe._CLOSE", math.inf)
    clock = ManualClock()

    class Slow(ScriptedStore):
        def put(self, path: str, body: Any, **options: Any) -> PutResult:
            clock.advance(0.11)
            return super().put(path, body, **options)

    store = Slow(MemoryStore(), Script(), ignores=False)
    report = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL, clock=clock, rounds=ROUNDS)
    assert report.rows[-1].got == f"one winner in {_FEWEST} of {_FEWEST} rounds" and report.rows[-1].ok


def test_an_interrupt_ends_a_probe_at_once() -> None:
    """The store may not answer, and cleaning up would take minutes. Scratch objects remain."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)

    def interrupt(_perform: Any) -> Any:
        raise KeyboardInterrupt

    store.script.next("put", None, interrupt)
    with pytest.raises(KeyboardInterrupt):
        probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL, clock=ManualClock())
    assert len(list(store.list())) == 1


def test_a_winner_whose_object_was_overwritten_is_detected() -> None:
    """One request was successful, but the object is from another request."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=True)

    def conflicts(perform: Any) -> Any:
        perform()
        raise Conflict("but it took effect")

    warm_up = [None, None, raising(AlreadyExists("there"))]
    store.script.next("put", *warm_up, *([None] + [conflicts] * 7) * 8)
    probe_report = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL, clock=ManualClock())
    assert [row.ok for row in probe_report.rows] == [True, True, False]


def test_a_race_without_a_winner_proves_nothing() -> None:
    """If every racer gets a conflict, no request could ever succeed."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=True)
    warm_up = [None, None, raising(AlreadyExists("there"))]
    store.script.next("put", *(warm_up + [raising(Conflict("busy"))] * RACERS * 8) * 3)
    probe_report = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL, clock=ManualClock())
    assert [row.ok for row in probe_report.rows] == [True, True, False]
    assert probe_report.rows[-1].got == "one winner in 0 of 8 rounds"


def test_a_store_with_wrong_responses_is_detected() -> None:
    """The object counts, not the response."""

    def refused_but_done(perform: Any) -> Any:
        perform()
        raise AlreadyExists("there")

    def done_but_nothing(_perform: Any) -> Any:
        return PutResult(path="", etag="")

    store = ScriptedStore(MemoryStore(), Script(), ignores=True)
    store.script.next("put", done_but_nothing, None, refused_but_done)
    rows = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL, clock=ManualClock()).rows
    assert [(row.check, row.got, row.ok) for row in rows] == [
        ("accept", "done", False),
        ("refuse", "AlreadyExists, and it took effect", False),
    ]
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    store.script.next("put", None, done_but_nothing)
    first = probe(store, kinds=[Kind.PUT_IF_MATCH], executor=SERIAL, clock=ManualClock()).rows[0]
    assert (first.got, first.ok) == ("done", False)


def test_without_a_race_nothing_is_proven() -> None:
    """Each condition alone is not enough."""
    probe_report = probe(MemoryStore())
    assert all(row.ok for row in probe_report.rows)
    assert not any(probe_report.proves(kind) for kind in CONDITIONS)
    assert probe_report.proves(Kind.REQUEST_EXPIRY)


@pytest.mark.parametrize(
    "error", [NotSupported("501"), OutcomeUnknown("500"), Conflict("409")], ids=lambda e: str(e)
)
def test_unexpected_responses_are_findings(error: Exception) -> None:
    """They are recorded and prove nothing, if every attempt gets them."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    # An error that may come from the network is tried three times: two conditional puts and a plain one
    # each.
    store.script.next("put", *[raising(error), None, None] * 3)
    probe_report = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL, clock=ManualClock())
    assert probe_report.rows[0].got == type(error).__name__
    assert [row.check for row in probe_report.rows] == ["accept", "refuse"]
    assert not probe_report.proves(Kind.PUT_IF_ABSENT)


@pytest.mark.parametrize(
    ("error", "before"),
    [(Conflict("409"), 0), *((OutcomeUnknown("lost"), before) for before in range(4))],
    ids=str,
)
def test_one_lost_response_is_no_finding(error: Exception, before: int) -> None:
    """The network may have lost it, with or without a condition, so the check is repeated."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    store.script.next("put", *[None] * before, raising(error))
    assert probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL, clock=ManualClock()).proves(
        Kind.PUT_IF_ABSENT
    )


def test_lost_responses_of_a_probe_are_not_an_unknown_outcome() -> None:
    """Only a scratch object is in doubt. The caller's own write has not started."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    store.script.next("put", *[None, raising(OutcomeUnknown("lost"))] * 3)
    with pytest.raises(Unavailable, match="could not be probed"):
        probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL, clock=ManualClock())


def test_a_denial_is_no_finding() -> None:
    """Nothing was measured, so there is no report. The scratch objects are removed."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    store.script.next("put", None, None, raising(AccessDenied("no")))
    with pytest.raises(AccessDenied):
        probe(store, kinds=[Kind.PUT_IF_ABSENT])
    assert not list(store.list())


def test_objects_are_removed_without_the_permission_to_list_uploads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every new process probes again, so objects that stay would add up."""
    store = MemoryStore()
    denied = raising(AccessDenied("s3:ListBucketMultipartUploads"))
    with monkeypatch.context() as patch:
        patch.setattr(store, "list_staged", denied)
        probe(
            store, kinds=[Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT], executor=SERIAL, clock=ManualClock()
        )
    assert not list(store.list())


def test_an_expiry_that_the_client_cannot_send_is_not_probed() -> None:
    """The report says that the client cannot send expiries."""
    store = ScriptedStore(MemoryStore(), Script(), request_expiry=False)
    (row,) = probe(store, kinds=[Kind.REQUEST_EXPIRY]).rows
    assert not row.ok and "cannot" in row.got
    assert "put" not in store.script.log


def test_only_measured_conditions_have_a_kind() -> None:
    """No method here offers a conditional copy over an existing object."""
    assert Kind.of(WriteOperation.PUT, IfAbsent()) is Kind.PUT_IF_ABSENT
    assert Kind.of(WriteOperation.DELETE, IfAbsent()) is None


def test_a_probe_report_round_trips() -> None:
    """`connect(probe_report=…)` takes the output of ``commitlog probe --json``."""
    probe_report = probe(
        MemoryStore(),
        kinds=[Kind.PUT_IF_ABSENT, Kind.REQUEST_EXPIRY],
        executor=SERIAL,
        clock=ManualClock(),
    )
    again = ProbeReport.from_json(probe_report.to_json())
    assert again == probe_report
    assert again.proves(Kind.REQUEST_EXPIRY) and again.measured(Kind.PUT_IF_ABSENT)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", CorruptRecord),
        ("[]", CorruptRecord),
        ('{"format": 1, "url": "s3://b", "rows": [{"kind": "no such"}]}', CorruptRecord),
        (f'{{"format": {FORMAT + 1}, "url": "s3://b", "rows": []}}', FormatTooNew),
    ],
)
def test_other_texts_than_probe_reports_are_refused(text: str, error: type[Exception]) -> None:
    """A report in a newer format is refused, too."""
    with pytest.raises(error):
        ProbeReport.from_json(text)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("server", "missing"),
    [
        ("ministack", {Kind.COPY_IF_ABSENT}),
        ("seaweedfs", {Kind.PUBLISH_IF_ABSENT, Kind.PUBLISH_IF_MATCH}),
        ("juicefs", set(CONDITIONS)),
    ],
)
def test_the_defects_of_real_servers_are_detected(
    server: str, missing: set[Kind], request: pytest.FixtureRequest
) -> None:
    """One ignores the condition of a copy, one lets several publishers win, one ignores everything."""
    running = request.getfixturevalue(server)
    store = open_store(f"s3://{running.new_bucket()}/below", **running.options)
    # SeaweedFS takes a second for each contended put, so probe its known failures and one other kind.
    kinds = [Kind.DELETE_IF_MATCH, *missing] if server == "seaweedfs" else CONDITIONS
    with ThreadPoolExecutor(THREADS) as executor:
        probe_report = probe(store, kinds=kinds, executor=executor)
    assert {kind for kind in kinds if not probe_report.proves(kind)} == missing
    assert not list(store.list()) and not list(store.list_staged())
