"""The findings of the probe about correct stores, and about incorrect ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from commitlog._util.concurrency import SERIAL
from commitlog.commit.probe import RACERS, probe
from commitlog.commit.probe_report import FORMAT, Kind, ProbeReport
from commitlog.errors import (
    AccessDenied,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotSupported,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.stores.api import Condition, IfAbsent, Operation, PutResult
from commitlog.stores.memory import MemoryStore
from commitlog.stores.open import open_store
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
    with ThreadPoolExecutor(RACERS) as executor:
        probe_report = probe(store, executor=executor)
    assert all(probe_report.proves(kind) for kind in Kind), [
        row for row in probe_report.rows if not row.ok
    ]
    assert not list(store.list()) and not list(store.list_staged())


def test_a_store_that_ignores_conditions_is_detected() -> None:
    """It reports success, but its effects show the defect."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=True)
    probe_report = probe(store, executor=SERIAL)
    assert not any(probe_report.proves(kind) for kind in CONDITIONS)
    refused = [row for row in probe_report.rows if row.check == "refuse" and row.kind in CONDITIONS]
    assert {row.got for row in refused} == {"done, and it took effect"}
    assert not list(store.list())


def test_a_race_with_several_winners_is_detected() -> None:
    """Such a store honours each condition alone."""
    probe_report = probe(Racy(), kinds=[Kind.PUBLISH_IF_ABSENT], executor=SERIAL)
    assert [(row.check, row.ok) for row in probe_report.rows] == [
        ("accept", True),
        ("refuse", True),
        ("race", False),
    ]
    assert probe_report.rows[-1].got == f"one winner in 16 of 24 rounds, up to {RACERS} in 8"
    assert not probe_report.proves(Kind.PUBLISH_IF_ABSENT)


def test_a_winner_whose_object_was_overwritten_is_detected() -> None:
    """One request was successful, but the object is from another request."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=True)

    def conflicts(perform: Any) -> Any:
        perform()
        raise Conflict("but it took effect")

    warm_up = [None, None, raising(_exists())]
    store.script.next("put", *warm_up, *([None] + [conflicts] * 7) * 6)
    probe_report = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL)
    assert [row.ok for row in probe_report.rows] == [True, True, False]


def test_a_race_without_a_winner_proves_nothing() -> None:
    """If every racer gets a conflict, no request could ever succeed."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=True)
    warm_up = [None, None, raising(_exists())]
    store.script.next("put", *(warm_up + [raising(Conflict("busy"))] * RACERS * 6) * 3)
    probe_report = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL)
    assert [row.ok for row in probe_report.rows] == [True, True, False]
    assert probe_report.rows[-1].got == "one winner in 0 of 6 rounds"


def _exists() -> Exception:
    from commitlog.errors import AlreadyExists

    return AlreadyExists("there")


def test_a_store_with_wrong_responses_is_detected() -> None:
    """The object counts, not the response."""

    def refused_but_done(perform: Any) -> Any:
        perform()
        raise _exists()

    def done_but_nothing(_perform: Any) -> Any:
        return PutResult(path="", etag="")

    store = ScriptedStore(MemoryStore(), Script(), ignores=True)
    store.script.next("put", done_but_nothing, None, refused_but_done)
    rows = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL).rows
    assert [(row.check, row.got, row.ok) for row in rows] == [
        ("accept", "done", False),
        ("refuse", "AlreadyExists, and it took effect", False),
    ]
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    store.script.next("put", None, done_but_nothing)
    first = probe(store, kinds=[Kind.PUT_IF_MATCH], executor=SERIAL).rows[0]
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
    probe_report = probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL)
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
    assert probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL).proves(Kind.PUT_IF_ABSENT)


def test_lost_responses_of_a_probe_are_not_an_unknown_outcome() -> None:
    """Only a scratch object is in doubt. The caller's own write has not started."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    store.script.next("put", *[None, raising(OutcomeUnknown("lost"))] * 3)
    with pytest.raises(Unavailable, match="could not be probed"):
        probe(store, kinds=[Kind.PUT_IF_ABSENT], executor=SERIAL)


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
        probe(store, kinds=[Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT], executor=SERIAL)
    assert not list(store.list())


def test_an_expiry_that_the_client_cannot_send_is_not_probed() -> None:
    """The report says that the client cannot send expiries."""
    store = ScriptedStore(MemoryStore(), Script(), request_expiry=False)
    (row,) = probe(store, kinds=[Kind.REQUEST_EXPIRY]).rows
    assert not row.ok and "cannot" in row.got
    assert "put" not in store.script.log


def test_only_measured_conditions_have_a_kind() -> None:
    """No method here offers a conditional copy over an existing object."""
    assert Kind.of(Operation.PUT, IfAbsent()) is Kind.PUT_IF_ABSENT
    assert Kind.of(Operation.DELETE, IfAbsent()) is None


def test_a_probe_report_round_trips() -> None:
    """`connect(probe_report=…)` takes the output of ``commitlog probe --json``."""
    probe_report = probe(MemoryStore(), kinds=[Kind.PUT_IF_ABSENT, Kind.REQUEST_EXPIRY], executor=SERIAL)
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
    with ThreadPoolExecutor(RACERS) as executor:
        probe_report = probe(store, kinds=kinds, executor=executor)
    assert {kind for kind in kinds if not probe_report.proves(kind)} == missing
    assert not list(store.list()) and not list(store.list_staged())
