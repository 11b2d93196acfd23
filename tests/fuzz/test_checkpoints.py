"""Damage to the checkpoints, file lists and heartbeats of an output.

An unreadable checkpoint is skipped, and an invalid file list is corrupt. No call relies on data that
contradicts the log.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from attrs import asdict, evolve
from hypothesis import strategies as st

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import CorruptRecord, FormatTooNew, JobAlreadyCommitted
from commitlog.outputs import AbortRecord, Output, StagedFile
from commitlog.outputs.checkpoints import CheckpointHead, OutputCheckpoints
from commitlog.outputs.manifest import Manifests
from commitlog.outputs.records import DataFile, Manifest
from commitlog.outputs.state import State
from commitlog.stores import ObjectData, Staged
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.fuzzing import HOSTILE, Properties, damaged_bytes, damaged_json, dumps, outcome, replaced
from support.outputs import open_output, stage_some

fuzz = Properties()

ATTEMPT = "0123456789abcdef" * 2
STATE = State(
    version=20,
    commit=19,
    files={
        name: DataFile(
            path=name,
            size=8,
            nonce="n" * 32,
            rows=2,
            partition={"day": "1", "city": None},
            stats={"day": (1, 2, 0), "at": ("2026-11-21", None, None)},
        )
        for name in (f"part-00000-{ATTEMPT}-c000.csv", f"day=1/part-00001-{ATTEMPT}-c000.csv")
    },
    replaced={f"_commitlog/data/part-00000-{ATTEMPT}-c000.csv": 17},
    keys={"j:daily-ü": (3, 0), "j:hourly": (19, 0), "s:stream": (6, 4), f"a:{ATTEMPT}": (3, 1)},
    batches={"stream": (7, 18)},
    schema='{"type":"struct","fields":[]}',
    visibility="logged",
    expired=2,
    record_id=ATTEMPT,
)
PATH = f"checkpoints/{STATE.version:020d}.jsonl.gz"


def checkpoints(store: MemoryStore) -> OutputCheckpoints:
    return OutputCheckpoints(ConditionalStore(store), "checkpoints")


def packed(lines: list[Any]) -> bytes:
    return gzip.compress("\n".join(map(dumps, lines)).encode(), compresslevel=1)


def _data() -> tuple[bytes, str, bytes]:
    """Return a checkpoint, and the path and content of its segment."""
    store = MemoryStore()
    checkpoints(store).save(STATE)
    [segment] = [info.path for info in store.list("checkpoints/index-")]
    return store.get(PATH).data, segment, store.get(segment).data


DATA, SEGMENT, INDEX = _data()
LINES: list[Any] = [json.loads(line) for line in gzip.decompress(DATA).splitlines()]
SHARDS: list[Any] = [json.loads(line) for line in gzip.decompress(INDEX).splitlines()]


def in_members(lines: list[Any]) -> bytes:
    """Return a checkpoint of these lines."""
    head, *others = lines or [None]
    return gzip.compress(f"{dumps(head)}\n".encode()) + packed(others)


def segment_of(lines: list[Any]) -> bytes:
    """Return a segment of these lines, whose first one has the sizes of the shards if it had them."""
    head, *others = lines or [None]
    shards = [gzip.compress(f"{dumps(line)}\n".encode()) for line in others]
    if isinstance(head, dict) and head.get("shards") == SHARDS[0]["shards"]:
        head = {**head, "shards": [len(shard) for shard in shards]}
    return b"".join((gzip.compress(f"{dumps(head)}\n".encode()), *shards))


def stored(data: bytes = DATA, index: bytes = INDEX) -> OutputCheckpoints:
    """Return the checkpoints of a store with these two objects."""
    store = MemoryStore()
    store.put(PATH, data)
    store.put(SEGMENT, index)
    return checkpoints(store)


def check_checkpoint(data: bytes) -> None:
    """Check that the bytes are skipped, or are a state that round-trips; and what `begin` reads."""
    found = outcome(lambda: stored(data).load())
    assert isinstance(found, State)
    if found.version:
        again = MemoryStore()
        checkpoints(again).save(evolve(found, segments=(), keys=STATE.keys))
        loaded = checkpoints(again).load()
        assert evolve(loaded, segments=found.segments) == found
    for key, value in STATE.keys.items():
        head = outcome(lambda: stored(data).load_head([key]))  # noqa: B023
        assert isinstance(head, CheckpointHead)
        if head.state.version and head.state.segments:
            assert head.index.find([key]) == {key: value}


def check_index(index: bytes) -> None:
    """Check that a damaged segment is valid, or that its checkpoint is not used."""
    for key in STATE.keys:
        head = outcome(lambda: stored(index=index).load_head([key]))  # noqa: B023
        assert isinstance(head, CheckpointHead)


def check_bytes(index: bytes) -> None:
    """Check that `begin` finds the jobs in damaged bytes, or does not use them."""
    for key, value in STATE.keys.items():
        head = stored(index=index).load_head([key])
        assert not head.state.version or head.index.find([key]) == {key: value}


def test_a_checkpoint_round_trips() -> None:
    """The state that the other tests damage is valid."""
    state, keys = stored().load(), stored().load_keys()[1]
    assert keys == STATE.keys
    assert evolve(state, keys=keys, segments=(), indexed=0) == STATE


@pytest.mark.all
def test_a_checkpoint_with_an_invalid_field_is_skipped() -> None:
    """For any value of a field, the checkpoint is valid, or it is skipped."""
    for lines in replaced(LINES):
        if isinstance(lines, list):
            check_checkpoint(in_members(lines))


@fuzz(100, lines=damaged_json(LINES, st.sampled_from(HOSTILE)))
def test_a_damaged_checkpoint_is_valid_or_skipped(lines: Any) -> None:
    """Checkpoints with several damaged fields."""
    if isinstance(lines, list):
        check_checkpoint(in_members(lines))


@fuzz(100, data=damaged_bytes(DATA) | damaged_bytes("\n".join(map(dumps, LINES)).encode()))
def test_damaged_bytes_of_a_checkpoint_are_skipped(data: bytes) -> None:
    """Truncated, altered, or uncompressed bytes."""
    check_checkpoint(data)


@pytest.mark.all
def test_a_segment_with_an_invalid_field_is_not_used() -> None:
    """For any value of a field, the segment is valid, or its checkpoint is skipped."""
    for lines in replaced(SHARDS):
        if isinstance(lines, list):
            check_index(segment_of(lines))


@fuzz(100, lines=damaged_json(SHARDS, st.sampled_from(HOSTILE)))
def test_a_damaged_segment_is_valid_or_not_used(lines: Any) -> None:
    """Segments with several damaged fields."""
    if isinstance(lines, list):
        check_index(segment_of(lines))


@fuzz(150, data=damaged_bytes(INDEX) | damaged_bytes("\n".join(map(dumps, SHARDS)).encode()))
def test_damaged_bytes_of_a_segment_are_not_used(data: bytes) -> None:
    """Truncated, altered, or uncompressed bytes. No job id is taken for a new one."""
    check_bytes(data)


@pytest.mark.parametrize(
    "changes",
    [
        {0: {"format": 2}},
        {0: {"format": 4}},
        {0: {"version": 10}},
        {0: {"files": 3}},
        {0: {"record": 3}},
        {0: {"index": [["../x", 20, 4]]}},
        {0: {"index": [[1, 20, 4]]}},
        {0: {"batches": {"stream": [1]}}},
        {1: {"replaced": {"../../etc/passwd": 1}}},
    ],
)
def test_impossible_values_in_a_checkpoint_are_refused(changes: dict[int, dict[str, Any]]) -> None:
    """Another version than in its name, paths that lead out, and values of other types."""
    lines = [{**each, **changes.get(n, {})} for n, each in enumerate(LINES)]
    assert stored(in_members(lines)).load() == State()


@pytest.mark.parametrize(
    ("head", "shard"),
    [
        ({}, {"shard": 1}),
        ({}, {"shard": True, "keys": []}),
        ({}, {"keys": {"j:daily-ü": 3}}),
        ({}, {"keys": {"j:daily-ü": [3]}}),
        ({}, {"keys": {"j:daily-ü": [-3, 0]}}),
        ({}, {"keys": {"\ud800": [3, 0]}}),
        ({"format": 2}, {}),
        ({"kind": "checkpoint"}, {}),
        ({"until": 10}, {}),
        ({"keys": 3}, {}),
        ({"shards": []}, {}),
        ({"shards": [0]}, {}),
        ({"shards": [2**63 - 1, 2**63 - 1]}, {}),
    ],
)
def test_a_segment_with_impossible_values_is_not_used(
    head: dict[str, Any], shard: dict[str, Any]
) -> None:
    """The beginning of a job skips a checkpoint if its shard, or the size of it, is invalid."""
    first, second = SHARDS
    index = segment_of([{**first, **head}, {**second, **shard}])
    assert not stored(index=index).load_head(["j:daily-ü"]).state.version
    assert stored(index=segment_of(SHARDS)).load_head(["j:daily-ü"]).index.find(["j:daily-ü"])


def test_a_segment_that_lacks_keys_is_not_used_whole() -> None:
    """Readers of all job ids count them."""
    first, second = SHARDS
    keys = {key: value for key, value in second["keys"].items() if key != "j:hourly"}
    assert stored(index=segment_of([first, {**second, "keys": keys}])).load_keys() == (State(), {})


def test_other_files_next_to_checkpoints_are_ignored() -> None:
    """Names that are not numbers, and numbers in other digits."""
    store = MemoryStore()
    for name in ("notes", "٣" * 20, "1", f"{20:020d}.old", f"-{2:019d}"):
        store.put(f"checkpoints/{name}.jsonl.gz", packed(LINES))
    assert checkpoints(store).load() == State()


# -- lists of files ----------------------------------------------------------------------------------

FILES = [
    StagedFile(
        staged=Staged(path=f"part-{n}-{ATTEMPT}", upload_id=f"u{n}", size=n, nonce="n", parts=("e",)),
        rows=n,
        partition={"day": "1"},
        stats={"day": (1, 1, 0)},
    )
    for n in range(3)
]


def _manifest() -> tuple[Manifest, list[Any]]:
    store = MemoryStore()
    [manifest] = Manifests(ConditionalStore(store), "m").write(ATTEMPT, FILES)
    data = gzip.decompress(store.get(f"m/{manifest.name}").data)
    return manifest, [json.loads(line) for line in data.splitlines()]


MANIFEST, MANIFEST_LINES = _manifest()


def read_manifest(data: bytes, manifest: Manifest) -> list[StagedFile]:
    store = MemoryStore()
    store.put(f"m/{manifest.name}", data)
    return list(Manifests(ConditionalStore(store), "m").read(manifest))


def check_manifest(data: bytes) -> None:
    """Check that the bytes, with a correct checksum, are corrupt, or a list of the right length."""
    manifest = evolve(MANIFEST, sha256=hashlib.sha256(data).hexdigest())
    found = outcome(lambda: read_manifest(data, manifest), CorruptRecord, FormatTooNew)
    if isinstance(found, list):
        assert len(found) == manifest.files
        store = MemoryStore()
        [again] = Manifests(ConditionalStore(store), "m").write(ATTEMPT, found)
        assert list(Manifests(ConditionalStore(store), "m").read(again)) == found
    else:
        assert manifest.name in str(found)


def test_an_invalid_line_of_a_file_list_is_corrupt() -> None:
    """For any value of a line, the list is valid, or it is corrupt and named in the error."""
    for lines in replaced(MANIFEST_LINES):
        if isinstance(lines, list):
            check_manifest(packed(lines))


@fuzz(100, lines=damaged_json(MANIFEST_LINES, st.sampled_from(HOSTILE)))
def test_a_damaged_file_list_is_valid_or_corrupt(lines: Any) -> None:
    """Lists with several damaged lines."""
    if isinstance(lines, list):
        check_manifest(packed(lines))


@fuzz(100, data=damaged_bytes(packed(MANIFEST_LINES)))
def test_damaged_bytes_of_a_file_list_are_corrupt(data: bytes) -> None:
    """A list that does not match the checksum in its record is not read."""
    check_manifest(data)
    if hashlib.sha256(data).hexdigest() != MANIFEST.sha256:
        with pytest.raises(CorruptRecord, match="checksum"):
            read_manifest(data, MANIFEST)


def test_a_file_list_of_a_newer_format_is_refused() -> None:
    """It is recognised by its format alone."""
    data = packed([{"format": 2}, 1, "x"])
    with pytest.raises(FormatTooNew):
        read_manifest(data, evolve(MANIFEST, sha256=hashlib.sha256(data).hexdigest()))


# -- an output ---------------------------------------------------------------------------------------


@cache
def sample() -> tuple[ObjectData, ...]:
    """Return the objects of an output of twelve versions, with a checkpoint of the tenth."""
    store = MemoryStore(clock=ManualClock())
    for number in range(12):
        output = open_output(store, ManualClock())
        job = output.begin(f"job-{number}")
        output.commit(job, stage_some(output, job, 1))
    return tuple(store.get(info.path) for info in store.list())


class World:
    """A copy of that output, to be damaged."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        for data in sample():
            self.store.put(data.path, data.data, metadata=data.metadata)
        self.clock.advance(1000)

    def output(self) -> Output:
        return open_output(self.store, self.clock)

    @property
    def checkpoint(self) -> str:
        return f"out/_commitlog/checkpoints/{10:020d}.jsonl.gz"

    @property
    def segment(self) -> str:
        [path] = [info.path for info in self.store.list("out/_commitlog/checkpoints/index-")]
        return path

    def records(self) -> Iterator[str]:
        for version in range(1, 13):
            yield f"out/_commitlog/{version:020d}.json"


CALLS: dict[str, Callable[[Output], object]] = {
    "snapshot": lambda output: len(output.snapshot().files),
    "look": lambda output: len(output.snapshot(roll_forward=False).files),
    "begin": lambda output: output.begin("new").base,
    "begin some": lambda output: output.begin().base,
    "recover": lambda output: output.recover(older_than=0).completed,
    "gc": lambda output: output.gc(older_than=0).removed,
}
SOUND = {"snapshot": 12, "look": 12, "begin": 12, "begin some": 12, "recover": (), "gc": 0}


@fuzz(80, call=st.sampled_from(sorted(CALLS)), data=st.data())
def test_damage_to_a_checkpoint_changes_no_result(call: str, data: st.DataObject) -> None:
    """All results follow from the log."""
    world = World()
    path = data.draw(st.sampled_from([world.checkpoint, world.segment]))
    world.store.put(path, data.draw(damaged_bytes(world.store.get(path).data)))
    assert outcome(lambda: CALLS[call](world.output())) == SOUND[call]
    with pytest.raises(JobAlreadyCommitted):
        world.output().begin("job-3")


def test_a_checkpoint_under_another_number_is_not_used() -> None:
    """A copy of an earlier checkpoint would hide jobs that were committed since."""
    world = World()
    data = world.store.get(world.checkpoint).data
    world.store.put(world.checkpoint.replace("10.jsonl", "12.jsonl"), data)
    for name, call in CALLS.items():
        assert call(world.output()) == SOUND[name]
    with pytest.raises(JobAlreadyCommitted):
        world.output().begin("job-11")


@pytest.mark.parametrize("call", ["snapshot", "begin", "begin some", "recover", "gc"])
def test_a_checkpoint_ahead_of_its_log_is_reported(call: str) -> None:
    """Lost records are not written again, because a commit behind a gap would never be read."""
    world = World()
    for path in list(world.records())[5:]:
        world.store.delete(path)
    with pytest.raises(CorruptRecord, match=r"checkpoint of version 10|about version 12"):
        CALLS[call](world.output())
    assert not world.store.begin_head("out/_commitlog/00000000000000000013.json")().info


def test_foreign_files_among_heartbeats_are_ignored() -> None:
    """As attempts, they would get abort records, and the log could not be read any more."""
    world = World()
    for name in (".DS_Store", "notes/x", "a" * 31):
        world.store.put(f"out/_commitlog/alive/{name}", b"mine")
    for _ in range(2):
        world.output().recover(older_than=0)
        world.output().gc(older_than=0)
    assert not [r for r in world.output().records() if isinstance(r, AbortRecord)]
    assert len(list(world.store.list("out/_commitlog/alive/"))) == 3


def test_foreign_files_in_the_directory_of_the_log_are_kept() -> None:
    """They are neither read nor removed."""
    world = World()
    places = ("", "pending/deep/", "manifests/", "checkpoints/", "data/", "unknown/")
    for place in places:
        world.store.put(f"out/_commitlog/{place}notes.txt", b"mine")
    for name, call in CALLS.items():
        assert call(world.output()) == SOUND[name]
    left = [info.path for info in world.store.list("out/") if info.path.endswith("notes.txt")]
    assert len(left) == len(places)


def test_a_damaged_file_list_is_reported_to_every_reader() -> None:
    """Without its list, the files of a job with many files are unknown."""
    world = World()
    output = world.output()
    job = output.begin("many")
    files = stage_some(output, job, 2)
    assert output.commit(job, files).version == 13
    manifests = Manifests(output.store, "out/_commitlog/manifests")
    [manifest] = manifests.write(job.attempt, files)
    assert set(asdict(manifest)) == {"name", "sha256", "files", "rows", "bytes"}
    world.store.put(manifests.path(manifest), b"damaged")
    with pytest.raises(CorruptRecord, match=manifest.name):
        list(manifests.read(manifest))
    world.store.delete(manifests.path(manifest))
    with pytest.raises(CorruptRecord, match="is missing"):
        list(manifests.read(manifest))


def test_an_undamaged_output_works() -> None:
    """Without damage there are no errors, so the other tests are meaningful."""
    for name, call in CALLS.items():
        assert call(World().output()) == SOUND[name]


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed)} examples")
