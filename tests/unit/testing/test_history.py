"""Histories: the records of calls, in memory and in files, also if the client dies."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    CommitError,
    CorruptRecord,
    FormatTooNew,
    LeaseTimeout,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    TableNotFound,
    Unavailable,
)
from commitlog.stores.api import ObjectData, PutResult
from commitlog.stores.memory import MemoryStore
from commitlog.testing import Action, Call, History, Outcome, RecordedStore, Recorder
from commitlog.testing.history import FORMAT, head_line
from commitlog.testing.recorded_store import VERSION


def make_call(**changes: Any) -> Call:
    """Return a creation, with `changes`."""
    given = {
        "client": "A",
        "action": Action.CREATE,
        "key": "k",
        "version": "w1",
        "outcome": Outcome.DONE,
        "invoked": 1.0,
        "returned": 2.0,
    }
    return Call(**{**given, **changes})


# -- calls -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"expected": "w0"},
        {"version": None},
        {"action": Action.REPLACE},
        {"action": Action.REPLACE, "expected": "w0", "version": None},
        {"action": Action.REMOVE, "version": None},
        {"action": Action.REMOVE, "expected": "w0"},
        {"action": Action.READ, "expected": "w0"},
        {"action": Action.READ, "outcome": Outcome.CONTRADICTED},
        {"outcome": Outcome.UNKNOWN},
        {"returned": math.inf},
        {"returned": 0.5},
        {"returned": math.nan},
        {"invoked": -math.inf},
        {"invoked": math.inf, "returned": math.inf, "outcome": Outcome.UNKNOWN},
    ],
)
def test_an_inconsistent_call_is_refused(changes: dict[str, Any]) -> None:
    """The versions, the outcome and the moments of a call must agree."""
    with pytest.raises(ValueError):
        make_call(**changes)


@pytest.mark.parametrize("changes", [{"client": 1}, {"key": b"k"}, {"version": 1}, {"invoked": "1"}])
def test_fields_of_other_types_are_refused(changes: dict[str, Any]) -> None:
    """Fields of a call are text or numbers."""
    with pytest.raises(TypeError):
        make_call(**changes)


@pytest.mark.parametrize(
    ("action", "outcome", "writes"),
    [
        (Action.CREATE, Outcome.DONE, True),
        (Action.CREATE, Outcome.UNKNOWN, True),
        (Action.CREATE, Outcome.CONTRADICTED, False),
        (Action.CREATE, Outcome.NOTHING, False),
        (Action.READ, Outcome.DONE, False),
        (Action.READ, Outcome.UNKNOWN, False),
    ],
)
def test_which_calls_write(action: Action, outcome: Outcome, writes: bool) -> None:
    """A call writes, or may write, unless it is a read or known to have done nothing."""
    returned = math.inf if outcome is Outcome.UNKNOWN else 2.0
    assert make_call(action=action, outcome=outcome, returned=returned).writes == writes


def test_a_history_is_in_order() -> None:
    """Calls are ordered by their begin, in the whole history and for each key."""
    late, early, other = make_call(invoked=2), make_call(invoked=1), make_call(key="a", invoked=1.5)
    history = History([late, early, other])
    assert history.calls == (early, other, late)
    assert history.by_key() == {"a": History([other]), "k": History([early, late])}
    assert list(history.by_key()) == ["a", "k"]


# -- recorders ---------------------------------------------------------------------------------------


def test_moments_are_in_the_order_of_events() -> None:
    """Even on a clock that stands still, a later event has a later moment."""
    recorder = Recorder(now=lambda: 5.0)
    first = recorder.begin("A", Action.READ, "k")
    second = recorder.begin("B", Action.READ, "k")
    recorder.end(second, Outcome.DONE)
    recorder.end(first, Outcome.DONE)
    third = recorder.begin("A", Action.READ, "k")
    recorder.end(third, Outcome.DONE)
    a, b, c = recorder.history()
    moments = [a.invoked, b.invoked, b.returned, a.returned, c.invoked, c.returned]
    assert sorted(set(moments)) == moments
    assert moments[0] == 5.0
    assert moments[-1] == pytest.approx(5.0)


def test_moments_come_from_the_clock() -> None:
    """If the clock moves, its readings are the moments."""
    recorder = Recorder(now=iter([3.0, 7.0]).__next__)
    recorder.end(recorder.begin("A", Action.READ, "k"), Outcome.DONE)
    (call,) = recorder.history()
    assert (call.invoked, call.returned) == (3.0, 7.0)


def test_a_call_that_does_not_end_is_unknown() -> None:
    """A call without an end has an unknown outcome, as a call that ended with one."""
    recorder = Recorder()
    recorder.begin("A", Action.CREATE, "k", version="w1")
    recorder.end(recorder.begin("B", Action.CREATE, "k", version="w2"), Outcome.UNKNOWN)
    assert [(call.outcome, call.returned) for call in recorder.history()] == [
        (Outcome.UNKNOWN, math.inf),
        (Outcome.UNKNOWN, math.inf),
    ]


def test_a_call_ends_once() -> None:
    """Ending a call twice is an error of the caller."""
    recorder = Recorder()
    number = recorder.begin("A", Action.READ, "k")
    recorder.end(number, Outcome.DONE)
    with pytest.raises(ValueError, match="ended before"):
        recorder.end(number, Outcome.DONE)


def test_the_first_version_of_an_etag_is_kept() -> None:
    """The version of an etag is found with and without quotes, and does not change."""
    recorder = Recorder()
    assert recorder.version_of("e") is None
    recorder.learn('"e"', "w1")
    recorder.learn("e", "w2")
    assert recorder.version_of("e") == recorder.version_of('"e"') == "w1"


# -- files -------------------------------------------------------------------------------------------

_words = st.text(max_size=4)
_moments = st.floats(-1e9, 1e9)


@st.composite
def _calls(draw: st.DrawFn) -> Call:
    action, outcome = draw(st.sampled_from(Action)), draw(st.sampled_from(Outcome))
    if action is Action.READ and outcome is Outcome.CONTRADICTED:
        outcome = Outcome.DONE
    invoked, returned = sorted([draw(_moments), draw(_moments)])
    conditional = action in (Action.REPLACE, Action.REMOVE)
    # A read that did not end has seen nothing.
    sees = action is Action.READ and outcome is not Outcome.UNKNOWN and draw(st.booleans())
    return Call(
        client=draw(_words),
        action=action,
        key=draw(_words),
        expected=draw(_words) if conditional else None,
        version=draw(_words) if action in (Action.CREATE, Action.REPLACE) or sees else None,
        outcome=outcome,
        invoked=invoked,
        returned=math.inf if outcome is Outcome.UNKNOWN else returned,
        name=draw(_words),
    )


@given(calls=st.lists(_calls(), max_size=5))
def test_a_dumped_history_is_loaded_unchanged(
    tmp_path_factory: pytest.TempPathFactory, calls: list[Call]
) -> None:
    """All fields survive, including every bit of the moments."""
    path = tmp_path_factory.mktemp("dump") / "history"
    History(calls).dump(path)
    assert History.load(path) == History(calls)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Neither a dump nor a recorder writes to an existing file."""
    path = tmp_path / "history"
    History().dump(path)
    with pytest.raises(FileExistsError):
        History().dump(path)
    with pytest.raises(FileExistsError):
        Recorder(path=path)


def record(path: Path) -> History:
    """Record a few calls to a file; return the history."""
    recorder = Recorder(path=path)
    store = RecordedStore(ConditionalStore(MemoryStore()), recorder, client="Ä")
    etag = store.put_if_absent("k", "w1").etag
    recorder.begin("B", Action.REMOVE, "k", expected="w1")
    store.put_if_match("k", "w2", etag=etag)
    with pytest.raises(PreconditionFailed):
        store.put_if_match("k", "w3", etag=etag)
    store.get("k")
    recorder.close()
    return recorder.history()


def test_a_recorder_writes_its_history(tmp_path: Path) -> None:
    """The file of a recorder holds the same history as its memory."""
    history = record(tmp_path / "history")
    assert len(history) == 5
    assert History.load(tmp_path / "history") == history


def test_histories_of_processes_are_merged(tmp_path: Path) -> None:
    """Files of several recorders make one history, ordered by moments."""
    calls = [make_call(invoked=moment, returned=9) for moment in (1, 2, 3)]
    History([calls[0], calls[2]]).dump(tmp_path / "one")
    History([calls[1]]).dump(tmp_path / "two")
    assert History.load(tmp_path / "one", tmp_path / "two") == History(calls)


def test_a_file_cut_short_anywhere_is_read(tmp_path: Path) -> None:
    """If a file ends in the middle of a line, all earlier lines count."""
    whole = record(tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    lines = data.splitlines(keepends=True)
    ends = [len(b"".join(lines[:count])) for count in range(len(lines) + 1)]
    for size in {max(0, end + more) for end in ends for more in (-30, -1, 0, 1)}:
        (tmp_path / "cut").write_bytes(data[:size])
        found = History.load(tmp_path / "cut")
        complete = data[:size].count(b"\n")
        assert len(found) == sum(b'"begin"' in line for line in lines[:complete])
        ended = sum(call.outcome is not Outcome.UNKNOWN for call in found)
        assert ended == sum(b'"end"' in line for line in lines[:complete])
        for call, full in zip(found, whole, strict=False):
            seen = None if call.action is Action.READ else full.version
            assert call in (full, evolve(full, outcome=Outcome.UNKNOWN, returned=math.inf, version=seen))


BEGIN = b'{"begin":0,"client":"A","action":"create","key":"k","version":"w1","name":"","at":1.0}\n'


@pytest.mark.parametrize(
    "lines",
    [
        [b"{}\n"],
        [b"[]\n"],
        [b"\xff\n"],
        [b'{"kind":"something else","format":1}\n'],
        [b'{"kind":"history","format":"1"}\n'],
        [b'{"kind":"history","format":0}\n'],
        [b'{"kind":"history","format":1.0}\n'],
        [head_line(), b"\n"],
        [head_line(), b"{\n", BEGIN],
        [head_line(), b"null\n"],
        [head_line(), b"[" * 100_000 + b"\n"],
        [head_line(), BEGIN, BEGIN],
        [head_line(), BEGIN.replace(b'"create"', b'"destroy"')],
        [head_line(), BEGIN.replace(b'"begin":0', b'"begin":[]')],
        [head_line(), BEGIN.replace(b'"k"', b"7")],
        [head_line(), BEGIN.replace(b"1.0", b"NaN")],
        [head_line(), BEGIN.replace(b'"name"', b'"surname"')],
        [head_line(), b'{"end":0,"outcome":"done","at":2.0}\n'],
        [head_line(), BEGIN, b'{"end":0,"outcome":"done"}\n'],
        [head_line(), BEGIN, b'{"end":0,"outcome":"unknown","at":2.0}\n'],
        [head_line(), BEGIN, b'{"end":0,"outcome":"done","at":0.5}\n'],
        [head_line(), BEGIN, b'{"end":0,"outcome":"done","at":2.0,"version":"w2"}\n'],
        [head_line(), BEGIN, b'{"end":0,"outcome":"done","at":2.0,"client":"B"}\n'],
        [head_line(), BEGIN, b'{"end":0,"outcome":"done","at":2.0}\n' * 2],
    ],
)
def test_a_corrupt_history_is_refused(tmp_path: Path, lines: list[bytes]) -> None:
    """A line that no recorder writes raises an error that names it; no line is skipped."""
    (tmp_path / "history").write_bytes(b"".join(lines))
    with pytest.raises(CorruptRecord, match=r"line \d of .*history"):
        History.load(tmp_path / "history")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """A file of a newer library asks for an upgrade, whatever its lines are."""
    (tmp_path / "history").write_bytes(b'{"kind":"history","format":%d}\n?\n' % (FORMAT + 1))
    with pytest.raises(FormatTooNew, match="upgrade"):
        History.load(tmp_path / "history")


VICTIM = """
import sys
from commitlog.commit.conditional import ConditionalStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import RecordedStore, Recorder

class Stopping(MemoryStore):
    def put(self, path, body, **options):
        if body == b"w2":
            print("here", flush=True)
            sys.stdin.read()
        return super().put(path, body, **options)

store = RecordedStore(ConditionalStore(Stopping()), Recorder(path=sys.argv[1]), client="A")
etag = store.put_if_absent("k", "w1").etag
store.put_if_match("k", "w2", etag=etag)
"""


def test_records_of_a_killed_process_are_kept(tmp_path: Path) -> None:
    """After SIGKILL the file has all records, and the call that was under way is unknown."""
    path = tmp_path / "history"
    command = [sys.executable, "-c", VICTIM, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
    first, second = History.load(path)
    assert (first.version, first.outcome) == ("w1", Outcome.DONE)
    assert (second.version, second.expected, second.outcome) == ("w2", "w1", Outcome.UNKNOWN)


# -- recorded stores ---------------------------------------------------------------------------------


class Failing(ConditionalStore):
    """A store whose calls all raise the same error."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(MemoryStore())

        def fail(*arguments: Any, **options: Any) -> None:
            raise error

        for name in (*CALLS, "rename_if_absent"):
            setattr(self, name, fail)


#: For each recorded name, a function that makes the call.
CALLS: dict[str, Any] = {
    "put_if_absent": lambda store: store.put_if_absent("k", "w2"),
    "put_if_match": lambda store: store.put_if_match("k", "w2", etag="e", expected="w1"),
    "copy_if_absent": lambda store: store.copy_if_absent("s", "k", version="w2"),
    "publish_if_absent": lambda store: store.publish_if_absent(store.stage("k", "w2"), version="w2"),
    "delete_if_match": lambda store: store.delete_if_match("k", etag="e", expected="w1"),
    "head": lambda store: store.head("k"),
    "get": lambda store: store.get("k"),
}
CREATES = ("put_if_absent", "copy_if_absent", "publish_if_absent")


def outcome_of(name: str, error: BaseException) -> Outcome:
    """Make a call that raises `error`, check that it is passed on, and return the recorded outcome."""
    recorder = Recorder()
    store = RecordedStore(Failing(error), recorder, client="A")
    with pytest.raises(type(error)) as raised:
        CALLS[name](store)
    assert raised.value is error
    (call,) = recorder.history()
    assert (call.client, call.name, call.key) == ("A", name, "k")
    return call.outcome


class Crash(BaseException):
    """The death of a simulated process."""


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "error", [OutcomeUnknown(), Crash(), KeyboardInterrupt(), RuntimeError("a bug")]
)
def test_an_unknown_outcome_is_recorded_as_unknown(name: str, error: BaseException) -> None:
    """So are the death of the client and errors that are not the library's."""
    assert outcome_of(name, error) is Outcome.UNKNOWN


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "error",
    [LeaseTimeout(), Unavailable(), NotSupported(), AccessDenied(), BucketNotFound(), TableNotFound()],
)
def test_a_failure_is_recorded_as_nothing(name: str, error: CommitError) -> None:
    """An error that says nothing about the object means that the call had no effect."""
    assert outcome_of(name, error) is Outcome.NOTHING


@pytest.mark.parametrize(
    ("name", "error", "outcome"),
    [
        *((name, AlreadyExists(), Outcome.CONTRADICTED) for name in CREATES),
        *((name, NotFound(), Outcome.NOTHING) for name in CREATES),
        ("put_if_match", PreconditionFailed(), Outcome.CONTRADICTED),
        ("delete_if_match", PreconditionFailed(), Outcome.CONTRADICTED),
        ("head", NotFound(), Outcome.DONE),
        ("get", NotFound(), Outcome.DONE),
    ],
)
def test_a_refusal_is_recorded_with_its_meaning(name: str, error: CommitError, outcome: Outcome) -> None:
    """A failed condition contradicts the expectation; a read that finds nothing is done."""
    assert outcome_of(name, error) is outcome


def entries(recorder: Recorder) -> list[tuple[str, str, str | None, str | None, str]]:
    """Return the recorded calls as short tuples."""
    return [
        (call.action.value, call.key, call.expected, call.version, call.outcome.value)
        for call in recorder.history()
    ]


def recorded() -> tuple[RecordedStore, Recorder]:
    """Return a recorded store in memory, and its recorder."""
    recorder = Recorder()
    return RecordedStore(ConditionalStore(MemoryStore()), recorder, client="A"), recorder


def test_each_method_is_recorded() -> None:
    """Every call on a store is in the history with the versions that it expected, wrote or read."""
    store, recorder = recorded()
    etag = store.put_if_absent("k", "w1").etag
    etag = store.put_if_match("k", "w2", etag=etag).etag
    store.copy_if_absent("k", "copy", version="w2")
    store.publish_if_absent(store.stage("staged", "w3"), version="w3")
    store.delete_if_match("k", etag=etag)
    assert store.get("copy").data == b"w2"
    assert store.head("staged").metadata[VERSION] == "w3"
    with pytest.raises(NotFound):
        store.head("k")
    assert entries(recorder) == [
        ("create", "k", None, "w1", "done"),
        ("replace", "k", "w1", "w2", "done"),
        ("create", "copy", None, "w2", "done"),
        ("create", "staged", None, "w3", "done"),
        ("remove", "k", "w2", None, "done"),
        ("read", "copy", None, "w2", "done"),
        ("read", "staged", None, "w3", "done"),
        ("read", "k", None, None, "done"),
    ]


class Torn(ConditionalStore):
    """A store that lets another writer replace the object within a read, `times` times.

    Such a read returns the old etag with the new body.
    """

    def __init__(self, times: float) -> None:
        super().__init__(MemoryStore())
        self.left = times
        self.put_if_absent("k", b"w0", metadata={VERSION: "w0"})

    def get(self, path: str, **options: Any) -> ObjectData:
        before = super().get(path, **options)
        if self.left <= 0:
            return before
        self.left -= 1
        word = before.data + b"+"
        self.put_if_match(path, word, etag=before.etag, metadata={VERSION: word.decode()})
        return evolve(super().get(path, **options), etag=before.etag)


class Taciturn(ConditionalStore):
    """A store that answers writes without an etag."""

    def put_if_absent(self, path: str, body: Any, **options: Any) -> PutResult:
        return evolve(super().put_if_absent(path, body, **options), etag="")


def test_an_empty_etag_has_no_version() -> None:
    """A write answered without an etag does not define the version of the empty etag."""
    store = RecordedStore(Taciturn(MemoryStore()), Recorder(), client="A")
    assert store.put_if_absent("k", "w1").etag == ""
    with pytest.raises(ValueError, match="not seen here"):
        store.put_if_match("k", "w2", etag="")


def test_a_torn_read_is_repeated() -> None:
    """A read with the etag of one version and the body of the next is repeated until two reads agree."""
    recorder, objects = Recorder(), Torn(times=3)
    store = RecordedStore(objects, recorder, client="A", whole_reads=False)
    found = store.get("k")
    assert (found.data, found.etag) == (b"w0+++", objects.head("k").etag)
    store.put_if_match("k", "w2", etag=found.etag)
    assert entries(recorder) == [
        ("read", "k", None, "w0+++", "done"),
        ("replace", "k", "w0+++", "w2", "done"),
    ]


def test_a_recorded_torn_read_is_contradicted() -> None:
    """Recorded as it is, it makes a history that no order explains: the version just read is refused."""
    recorder, objects = Recorder(), Torn(times=1)
    store = RecordedStore(objects, recorder, client="A")
    with pytest.raises(PreconditionFailed):
        store.put_if_match("k", "w2", etag=store.get("k").etag)
    assert entries(recorder) == [
        ("read", "k", None, "w0+", "done"),
        ("replace", "k", "w0+", "w2", "contradicted"),
    ]


def test_reads_that_never_agree_show_nothing() -> None:
    """A read of a path that is replaced between any two reads is given up after some attempts."""
    recorder = Recorder()
    store = RecordedStore(Torn(times=math.inf), recorder, client="A", whole_reads=False)
    with pytest.raises(Unavailable, match="another version"):
        store.get("k")
    assert entries(recorder) == [("read", "k", None, None, "nothing")]


def test_a_rename_is_two_calls() -> None:
    """It creates its target and removes its source; each call has its own outcome."""
    store, recorder = recorded()
    store.put_if_absent("s", "w1")
    store.rename_if_absent("s", "t", version="w1")
    with pytest.raises(NotFound):
        store.rename_if_absent("s", "t", version="w1")
    store.put_if_absent("s", "w2")
    with pytest.raises(AlreadyExists):
        store.rename_if_absent("s", "t", version="w2")
    assert [call for call in entries(recorder) if call[3] != "w2" or call[1] != "s"] == [
        ("create", "s", None, "w1", "done"),
        ("create", "t", None, "w1", "done"),
        ("remove", "s", "w1", None, "done"),
        ("create", "t", None, "w1", "nothing"),
        ("remove", "s", "w1", None, "contradicted"),
        ("create", "t", None, "w2", "contradicted"),
        ("remove", "s", "w2", None, "nothing"),
    ]
    names = [call.name for call in recorder.history() if call.key == "t"]
    assert names == ["rename_if_absent"] * 3


@pytest.mark.parametrize("error", [OutcomeUnknown(), Crash()])
def test_both_calls_of_an_unknown_rename_are_unknown(error: BaseException) -> None:
    """If the outcome of a rename is unknown, both its calls are recorded as unknown."""
    recorder = Recorder()
    with pytest.raises(type(error)):
        RecordedStore(Failing(error), recorder, client="A").rename_if_absent("s", "t", version="w1")
    assert entries(recorder) == [
        ("create", "t", None, "w1", "unknown"),
        ("remove", "s", "w1", None, "unknown"),
    ]


def test_foreign_objects_are_identified_by_their_bodies() -> None:
    """A GET learns the version of an object without metadata, and later a HEAD knows it."""
    store, recorder = recorded()
    foreign = store.unrecorded.put("k", b"theirs")
    store.head("k")
    assert store.get("k").data == b"theirs"
    store.head("k")
    store.put_if_match("k", "w2", etag=foreign.etag)
    assert entries(recorder) == [
        ("read", "k", None, None, "nothing"),
        ("read", "k", None, "theirs", "done"),
        ("read", "k", None, "theirs", "done"),
        ("replace", "k", "theirs", "w2", "done"),
    ]


def test_a_body_that_is_no_text_is_still_a_version() -> None:
    """Bytes that are no text are recorded as a version that no client wrote."""
    store, recorder = recorded()
    store.unrecorded.put("k", b"\xff")
    store.get("k")
    assert entries(recorder) == [("read", "k", None, "\\xff", "done")]


def test_an_unknown_etag_needs_the_expected_version() -> None:
    """Without the version the call is refused, and nothing is sent."""
    store, recorder = recorded()
    with pytest.raises(ValueError, match="pass `expected`"):
        store.put_if_match("k", "w2", etag="e")
    with pytest.raises(PreconditionFailed):
        store.delete_if_match("k", etag="e", expected="w1")
    assert entries(recorder) == [("remove", "k", "w1", None, "contradicted")]


def test_clients_in_threads_share_a_recorder() -> None:
    """All calls of many threads are recorded, each with its own moments."""
    recorder = Recorder()
    shared = ConditionalStore(MemoryStore())

    def work(client: str) -> None:
        store = RecordedStore(shared, recorder, client=client)
        for number in range(50):
            store.put_if_absent(f"{client}-{number}", f"w{number}")

    threads = [threading.Thread(target=work, args=(client,)) for client in "ABCD"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = recorder.history()
    assert len(history) == 200
    assert len({moment for call in history for moment in (call.invoked, call.returned)}) == 400
    assert all(call.outcome is Outcome.DONE for call in history)
