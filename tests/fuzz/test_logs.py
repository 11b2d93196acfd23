"""Damage to one object of an output or of an operation log.

A call that needs the object gets an error that names it, other calls succeed, and no committed data is
lost.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import strategies as st

import commitlog
from commitlog._util.retry import Backoff
from commitlog.cli import main
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    CorruptRecord,
    FormatTooNew,
    JobAlreadyCommitted,
    NotFound,
    PublishIncomplete,
)
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.oplog.codec import decode, encode
from commitlog.outputs import CommitRecord, Output, RecoveryReport
from commitlog.outputs.records import records_of
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.fuzzing import (
    HOSTILE,
    Properties,
    damaged_bytes,
    damaged_json,
    dumps,
    outcome,
    replaced,
    scratch,
    sealed,
)
from support.outputs import Death, HookedStore, open_output, stage_some, visible

fuzz = Properties()

LOG = "out/_commitlog"
KINDS = frozenset({"commit", "abort", "pending", "success", "operation", "decision"})


class World:
    """A store with an output and an operation log, left by live and dead drivers.

    Version 1 is complete, 2 is an abort, 3 is committed but not published, and `dead` is prepared but
    not committed. Two of the operations are decided, and two are not.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        ids = (f"{number:024x}" for number in range(1, 1000))
        self.store = MemoryStore(clock=self.clock)
        self._ids = ids
        output = self.output()
        first = output.begin("first")
        output.commit(first, stage_some(output, first))
        output.abort(output.begin("given up"))
        self.hidden = self._die("publish", "hidden")
        self.dead = self._die("put", "dead", f"{LOG}/0000")
        log = self.log()
        for number in range(4):
            operation = log.begin({"number": number})
            if number < 2:
                log.decide(operation, list(Decision)[number])
            self.clock.advance(1)
        self.clock.advance(1000)

    def output(self, store: Any = None) -> Output:
        return Output(
            ConditionalStore(store or self.store, clock=self.clock, backoff=Backoff(tries=2)),
            "out",
            clock=self.clock,
            backoff=Backoff(tries=2),
            new_id=lambda: next(self._ids),
        )

    def log(self) -> OperationLog:
        store = ConditionalStore(self.store, clock=self.clock, backoff=Backoff(tries=2))
        return OperationLog(store, "ops", clock=self.clock, new_id=lambda: next(self._ids))

    def _die(self, name: str, job_id: str, prefix: str = "") -> str:
        """Commit a job, and die at the first mutation of that name; return its attempt."""

        def hook(called: str, path: str, mutation: Callable[[], Any]) -> Any:
            if called == name and path.startswith(prefix):
                raise Death
            return mutation()

        output = self.output(HookedStore(self.store, hook))
        job = output.begin(job_id)
        with suppress(Death):
            output.commit(job, stage_some(output, job))
        return job.attempt

    @property
    def records(self) -> list[str]:
        """The paths of all stored objects except data."""
        return [info.path for info in self.store.list() if info.path.startswith((LOG, "out/_S", "ops"))]

    def put(self, path: str, data: bytes) -> None:
        self.store.put(path, data)

    def check(self) -> None:
        """Check that no file of a committed job is lost: it is visible, or its upload exists."""
        uploads = {upload.path for upload in self.store.list_staged()}
        shown = visible(self.store)
        for version in (1, 3):
            with suppress(CommitError):
                path = f"{LOG}/{version:020d}.json"
                for record in records_of(version, decode(self.store.get(path).data, KINDS, path=path)):
                    for file in record.files if isinstance(record, CommitRecord) else ():
                        assert file.path in shown or f"out/{file.path}" in uploads, "data is lost"


def recover(log: OperationLog) -> tuple[Operation, ...]:
    return log.recover(lambda operation: Decision.ROLLED_BACK, older_than=0)


def commit(output: Output) -> CommitRecord:
    job = output.begin("new")
    return output.commit(job, stage_some(output, job))


CALLS: Mapping[str, Callable[[World], object]] = {
    "snapshot": lambda world: world.output().snapshot(),
    "look": lambda world: world.output().snapshot(roll_forward=False),
    "records": lambda world: list(world.output().records()),
    "tail": lambda world: list(world.output().log(after=1)),
    "begin": lambda world: world.output().begin("new"),
    "begin some": lambda world: world.output().begin(),
    "begin again": lambda world: world.output().begin("hidden"),
    "commit": lambda world: commit(world.output()),
    "recover": lambda world: world.output().recover(older_than=0),
    "pending": lambda world: list(world.log().pending()),
    "history": lambda world: list(world.log().history()),
    "recover operations": lambda world: recover(world.log()),
    "compact": lambda world: world.log().compact(),
}
ALLOWED = (CorruptRecord, FormatTooNew, PublishIncomplete, JobAlreadyCommitted, NotFound, AlreadyExists)


def check_call(world: World, call: str, path: str) -> None:
    """Check that a call after damage to `path` succeeds, or raises an error that names the path."""
    found = outcome(lambda: CALLS[call](world), *ALLOWED)
    if isinstance(found, (CorruptRecord, FormatTooNew)):
        assert path in str(found), f"{call} with damage to {path}: {found}"
    elif isinstance(found, Exception):
        assert call in ("begin again", "look", "snapshot"), f"{call} with damage to {path}: {found!r}"
    world.check()


def test_an_undamaged_world_works() -> None:
    """Without damage all calls but one succeed, so the other tests are meaningful."""
    for name, call in CALLS.items():
        world = World()
        found = outcome(lambda: call(world), JobAlreadyCommitted)  # noqa: B023
        assert isinstance(found, JobAlreadyCommitted) is (name == "begin again")
        world.check()
    report = World().output().recover(older_than=0)
    assert (report.completed, len(report.aborted), report.uploads) == ((3,), 1, 2)


@fuzz(150, call=st.sampled_from(sorted(CALLS)), data=st.data())
def test_any_damage_to_one_object_is_tolerated(call: str, data: st.DataObject) -> None:
    """One stored object is damaged or removed, before any of the calls."""
    world = World()
    path = data.draw(st.sampled_from(world.records))
    world.put(path, data.draw(damaged_bytes(world.store.get(path).data)))
    check_call(world, call, path)


@fuzz(150, call=st.sampled_from(sorted(CALLS)), data=st.data())
def test_any_body_with_a_correct_checksum_is_tolerated(call: str, data: st.DataObject) -> None:
    """One object has other content with a correct checksum."""
    world = World()
    path = data.draw(st.sampled_from(world.records))
    document = decode(world.store.get(path).data, KINDS, path=path)
    body = data.draw(damaged_json(dict(document.body), st.sampled_from(HOSTILE)))
    if isinstance(body, dict):
        world.put(path, sealed(document.kind, body))
        # A text or a number that is as valid as the old one makes another valid record.
        found = outcome(lambda: CALLS[call](world), *ALLOWED, CommitError)
        if isinstance(found, CorruptRecord):
            assert "out/_" in str(found) or "ops/" in str(found) or "Output(" in str(found)


@fuzz(60, call=st.sampled_from(sorted(CALLS)), data=st.data())
def test_another_record_in_its_place_is_tolerated(call: str, data: st.DataObject) -> None:
    """A valid record is copied over another one, as by an incorrect restore."""
    world = World()
    source, target = data.draw(st.tuples(*[st.sampled_from(world.records)] * 2))
    world.put(target, world.store.get(source).data)
    outcome(lambda: CALLS[call](world), *ALLOWED, CommitError)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", CorruptRecord),
        (b"{", CorruptRecord),
        (b"\0" * 300, CorruptRecord),
        (b"[" * 100_000, CorruptRecord),
        (b'{"format": 1, "checksum": "", "x": NaN}', CorruptRecord),
        (b'{"format": 3}', FormatTooNew),
    ],
)
def test_an_unreadable_record_is_reported_to_every_call_that_needs_it(
    content: bytes, error: type[CommitError]
) -> None:
    """The error names its path, and the record is not changed."""
    needs: dict[str, list[str]] = {
        f"{LOG}/00000000000000000001.json": [
            *("snapshot", "look", "records", "begin", "begin again", "commit", "recover")
        ],
        f"{LOG}/00000000000000000003.json": [
            *("snapshot", "records", "tail", "begin", "begin again", "commit", "recover")
        ],
    }
    world = World()
    pending = [path for path in world.records if path.startswith("ops/pending")]
    decided = [path for path in world.records if path.startswith("ops/decided")]
    needs |= {path: ["pending", "recover operations"] for path in pending}
    needs |= {path: ["history"] for path in decided}
    needs |= {f"{LOG}/pending/{world.dead}.json": ["recover"]}
    needs |= {f"{LOG}/pending/{world.hidden}.json": ["recover", "snapshot", "begin again"]}
    for path, calls in needs.items():
        for call in calls:
            world = World()
            world.put(path, content)
            with pytest.raises(error, match=path):
                CALLS[call](world)
            world.check()
            assert world.store.get(path).data == content, "it was not left as it was"


# -- continued recovery ------------------------------------------------------------------------------


def test_a_corrupt_pending_entry_does_not_stop_the_recovery_of_others() -> None:
    """All other jobs are completed or aborted. The error names the entry and has instructions."""
    world = World()
    path = f"{LOG}/pending/{world.dead}.json"
    other = world._die("put", "also dead", f"{LOG}/0000")
    world.put(path, b"{")
    with pytest.raises(CorruptRecord, match=f"{path}.*Once it is removed"):
        world.output().recover(older_than=0)
    assert len(visible(world.store)) == 4, "version 3 was not published"
    assert [record for record in world.output().records() if other in getattr(record, "attempts", ())]
    left = {upload.path for upload in world.store.list_staged()}
    assert left and all(world.dead in upload for upload in left), "its uploads are not to be touched"

    world.store.delete(path)
    report = world.output().recover(older_than=0)
    assert report.aborted == {world.dead: None} and report.uploads == 2
    assert not list(world.store.list_staged())


def test_a_corrupt_entry_of_a_committed_job_does_not_stop_later_ones() -> None:
    """Later jobs are published. `_SUCCESS` stays before the corrupt one, whose uploads are kept."""
    world = World()
    world.put(f"{LOG}/pending/{world.hidden}.json", b"{")
    later = world._die("publish", "later")
    with pytest.raises(CorruptRecord, match=r"'hidden' is committed as version 3.*2 of its files"):
        world.output().recover(older_than=0)
    assert {path for path in visible(world.store) if later in path}
    assert json.loads(world.store.get("out/_SUCCESS").data)["version"] == 1
    assert {upload.path for upload in world.store.list_staged() if world.hidden in upload.path}
    world.check()


def test_a_corrupt_entry_of_a_visible_job_is_ignored() -> None:
    """If its driver died after publishing all files, the entry is no longer needed."""
    world = World()
    path = f"{LOG}/pending/{world.hidden}.json"
    for upload in world.output()._publisher.uploads(world.hidden):
        entry = json.loads(world.store.get(path).data)
        [file] = [file for file in entry["files"] if upload.path.endswith(file["path"])]
        staged = commitlog.stores.Staged(
            path=upload.path,
            upload_id=upload.upload_id,
            size=file["size"],
            nonce=file["nonce"],
            parts=tuple(file["parts"]),
        )
        world.store.publish(staged)
    world.put(path, b"{")
    assert world.output().snapshot().version == 3
    assert not list(world.store.list(path))
    assert json.loads(world.store.get("out/_SUCCESS").data)["version"] == 3


def test_a_job_with_lost_files_does_not_stop_later_ones() -> None:
    """A lifecycle rule removed the uploads of one committed job. A later job is still published."""
    world = World()
    for upload in list(world.store.list_staged()):
        if world.hidden in upload.path:
            world.store.abort(upload)
    later = world._die("publish", "later")
    [lost] = world.output().recover(older_than=0).lost
    assert (lost.job_id, len(lost.files)) == ("hidden", 2)
    assert {path for path in visible(world.store) if later in path}
    assert json.loads(world.store.get("out/_SUCCESS").data)["version"] == 1


def test_a_pending_entry_of_a_newer_release_is_kept() -> None:
    """A release that cannot read it neither aborts its attempt nor drops its uploads."""
    world = World()
    world.put(f"{LOG}/pending/{world.dead}.json", b'{"format": 3}')
    with pytest.raises(FormatTooNew):
        world.output().recover(older_than=0)
    assert {upload.path for upload in world.store.list_staged() if world.dead in upload.path}
    assert len(visible(world.store)) == 4


def test_a_foreign_file_among_pending_entries_is_reported_and_kept() -> None:
    """As an attempt, it would get an abort record and be removed."""
    world = World()
    world.put(f"{LOG}/pending/notes.json", b"{}")
    with pytest.raises(CorruptRecord, match=r"pending/notes\.json.*move it elsewhere"):
        world.output().recover(older_than=0)
    assert world.store.get(f"{LOG}/pending/notes.json").data == b"{}"
    assert len(visible(world.store)) == 4
    assert not [r for r in world.output().records() if "notes" in getattr(r, "attempts", ())]


def test_a_pending_entry_under_another_name_is_not_used() -> None:
    """An entry contains its attempt, so a copy under the name of another attempt is corrupt."""
    world = World()
    path = f"{LOG}/pending/{world.hidden}.json"
    world.put(path, world.store.get(f"{LOG}/pending/{world.dead}.json").data)
    with pytest.raises(CorruptRecord, match=f"{path}.*another attempt"):
        world.output().snapshot()


def test_all_damaged_entries_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The error is about the first one, and warnings name the others."""
    world = World()
    paths = [f"{LOG}/pending/{attempt}.json" for attempt in (world.dead, world.hidden)]
    for path in paths:
        world.put(path, b"{")
    with caplog.at_level(logging.WARNING), pytest.raises(CorruptRecord) as caught:
        world.output().recover(older_than=0)
    assert all(path in f"{caught.value}{caplog.text}" for path in paths)


def test_a_corrupt_operation_does_not_stop_the_recovery_of_others() -> None:
    """All others are decided. The error names the corrupt one."""
    world = World()
    first, second = [path for path in world.records if path.startswith("ops/pending")]
    world.put(first, b"{")
    with pytest.raises(CorruptRecord, match=first):
        recover(world.log())
    assert [path for path in world.records if path.startswith("ops/pending")] == [first]
    assert second.replace("pending", "decided") in world.records


def test_an_operation_whose_decision_is_corrupt_is_not_decided_again() -> None:
    """Every recovery gets an error, because a second decision might differ."""
    world = World()
    pending = [path for path in world.records if path.startswith("ops/pending")]
    decided = pending[0].replace("pending", "decided")
    world.put(decided, b"{")
    with pytest.raises(CorruptRecord, match=decided):
        recover(world.log())
    assert world.store.get(decided).data == b"{"
    assert pending[1].replace("pending", "decided") in world.records


# -- contradictory numbers ---------------------------------------------------------------------------


def success(version: int) -> bytes:
    body = {"version": version, "job": "x", "files": 0, "rows": 0, "bytes": 0}
    return sealed("success", body)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 10, 2**63 - 1])
def test_a_success_file_of_another_log_is_refused(version: int) -> None:
    """Otherwise a job would be committed behind a gap, where no reader looks.

    A reader that rolls forward reads no record twice, and notices a `_SUCCESS` that is ahead of the log.
    """
    for call in ("look", "recover", *(["snapshot"] if version > 2 else [])):
        world = World()
        world.put("out/_SUCCESS", success(version))
        with pytest.raises(CorruptRecord, match=rf"'out/_SUCCESS' and .* about version {version}"):
            CALLS[call](world)
        world.check()


@pytest.mark.parametrize("name", ["00000000000000000004", "00000000000000000005"])
def test_a_record_that_was_copied_to_another_number_is_detected(name: str) -> None:
    """Otherwise its rows would be read twice."""
    world = World()
    world.output().recover(older_than=0)
    assert world.output().snapshot().version == 3  # 4 is an abort
    job = world.output().begin("fifth")
    if name.endswith("4"):
        world.store.delete(f"{LOG}/{name}.json")
    world.put(f"{LOG}/{name}.json", world.store.get(f"{LOG}/00000000000000000001.json").data)
    with pytest.raises(CorruptRecord, match=r"'first'.*copy"):
        world.output().snapshot()
    assert job


def test_a_number_beyond_all_records_is_no_version() -> None:
    """A version with hundreds of digits is refused before it becomes a name."""
    world = World()
    world.put("out/_SUCCESS", success(10**300))
    # An invalid watermark is replaced, like that of another writer.
    assert world.output().snapshot().version == 3
    assert json.loads(world.store.get("out/_SUCCESS").data)["version"] == 3


# -- the command line --------------------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[Path]:
    """A local store with an output of two versions and an operation log."""
    with scratch() as directory, commitlog.connect(str(directory)) as store:
        output = Output(store, "out")
        for name in ("one", "two\x1b[2J\n"):
            job = output.begin(name)
            output.commit(job, [output.stage(job, job.file_name(0), b"1", rows=1)])
        log = OperationLog(store, "ops")
        for number in range(2):
            with log.run({"number": number}):
                pass
        log.begin({})
        yield directory


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def check_refusal(done: Result, path: str) -> None:
    """Check that a command failed with one line that names the object, in JSON if requested."""
    assert done.exit_code == 1
    [line] = done.stderr.splitlines()
    if line.startswith("{"):
        line = f"commitlog: {json.loads(line)['message']}"
    assert line.startswith("commitlog: ") and path in line and "Traceback" not in line
    assert "unexpected" not in line


def test_log_shows_the_versions_before_a_corrupt_record(place: Path) -> None:
    """After the readable versions, one line names the corrupt record."""
    record = "out/_commitlog/00000000000000000002.json"
    (place / record).write_bytes(b"{")
    for options in ((), ("--json",), ("--files",)):
        done = run("output", "log", f"{place}/out", *options)
        check_refusal(done, record)
        assert "one" in done.stdout or "part-" in done.stdout
    check_refusal(run("output", "recover", f"{place}/out"), record)


def test_log_of_operations_shows_the_entries_before_a_corrupt_one(place: Path) -> None:
    """After the readable entries, one line names the corrupt one."""
    last = max((place / "ops/decided").iterdir())
    last.write_bytes(b'{"format": 1}')
    for options in ((), ("--json",)):
        done = run("output", "log", "--operations", f"{place}/ops", *options)
        check_refusal(done, f"ops/decided/{last.name}")
        assert "committed" in done.stdout


def test_a_newer_format_is_reported_in_one_line(place: Path) -> None:
    """The line asks for an upgrade."""
    record = "out/_commitlog/00000000000000000002.json"
    (place / record).write_bytes(b'{"format": 7}')
    for command in ("log", "recover"):
        done = run("output", command, f"{place}/out")
        check_refusal(done, record)
        assert "upgrade" in done.stderr


def test_names_from_the_log_are_escaped_in_the_terminal(place: Path) -> None:
    """A job's name may contain control characters. It is shown escaped, in one line."""
    done = run("output", "log", f"{place}/out")
    assert "\x1b" not in done.stdout and r"two\x1b[2J\n" in done.stdout
    assert len(done.stdout.splitlines()) == 3
    [line] = [
        line
        for line in run("output", "log", "--json", f"{place}/out").stdout.splitlines()
        if "two" in line
    ]
    assert json.loads(line)["job"] == "two\x1b[2J\n"


@pytest.mark.parametrize("time", [1e300, -1e300, 2**62, -1])
def test_a_time_outside_of_the_calendar_is_shown_as_a_number(time: float, place: Path) -> None:
    """The log can still be read, because times are only for display."""
    path = place / "out/_commitlog/00000000000000000002.json"
    document = decode(path.read_bytes(), KINDS, path="x")
    path.write_bytes(sealed("commit", {**document.body, "time": time}))
    done = run("output", "log", f"{place}/out")
    assert done.exit_code == 0 and r"two\x1b[2J\n" in done.stdout


def test_any_record_causes_at_most_one_line_of_error(place: Path) -> None:
    """For any value of a field, the command ends with an exit status, and at most one line of error."""
    path = place / "out/_commitlog/00000000000000000002.json"
    document = decode(path.read_bytes(), KINDS, path="x")
    assert encode(document) == path.read_bytes()
    hostile = [value for value in HOSTILE if dumps(value) == json.dumps(value)][::4]
    for body in replaced(dict(document.body), hostile):
        if isinstance(body, dict):
            path.write_bytes(sealed("commit", body))
            done = run("output", "log", f"{place}/out")
            assert done.exit_code == 0 or check_refusal(done, path.name) is None


def test_recovery_of_an_undamaged_output_succeeds(place: Path) -> None:
    """Recovery without damage succeeds, so the refusals above are meaningful."""
    assert run("output", "recover", f"{place}/out").exit_code == 0
    assert isinstance(open_output(MemoryStore()).recover(older_than=0), RecoveryReport)


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed)} examples")
