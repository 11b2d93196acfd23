"""Any data in place of a record is read as a valid record, or refused with a typed error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from attrs import evolve
from hypothesis import strategies as st

from commitlog.errors import CorruptRecord, FormatTooNew, InvalidPath
from commitlog.oplog.codec import FORMAT, Document, decode, encode
from commitlog.outputs import AbortRecord, Batch, CommitRecord, DataFile, Job, Mode, StagedFile
from commitlog.outputs.job import attempt_of
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.records import (
    NEWEST,
    ExpiryRecord,
    Manifest,
    Success,
    document_of,
    records_of,
)
from commitlog.paths import check_path
from commitlog.stores import Staged
from support.fuzzing import (
    Properties,
    damaged_bytes,
    damaged_json,
    dumps,
    outcome,
    replaced,
    says,
    sealed,
    texts,
    wild_json,
    wild_scalars,
    wild_texts,
)

fuzz = Properties()

KINDS = frozenset({"commit", "abort", "expiry", "pending", "success", "operation", "decision"})
ATTEMPT = "0123456789abcdef" * 2

FILE = DataFile(
    path=f"day=1/part-00000-{ATTEMPT}-c000.csv",
    size=8,
    nonce="n" * 32,
    rows=2,
    partition={"day": "1", "city": None},
    stats={"id": (1, 7, 0), "at": ("2026-11-21", None, 3)},
)
COMMIT = CommitRecord(
    version=1,
    job_id="daily",
    attempt=ATTEMPT,
    mode="append",
    time=1_800_000_000.5,
    files=(FILE, DataFile(path=f"part-00001-{ATTEMPT}-c000.csv", size=0, nonce="m")),
    schema='{"type":"struct","fields":[]}',
)
ABORT = AbortRecord(version=1, attempts={ATTEMPT: "daily", ATTEMPT[::-1]: None}, time=1_800_000_000.0)
PENDING = PendingJob(
    job_id="daily",
    attempt=ATTEMPT,
    files=(
        StagedFile(
            staged=Staged(
                path=FILE.path, upload_id="u1", size=8, nonce="n" * 32, parts=('"e1"', '"e2"')
            ),
            rows=2,
            partition={"day": "1"},
        ),
    ),
)
MANIFEST = Manifest(
    name=f"{ATTEMPT}-00000.jsonl.gz", sha256="0" * 64, files=10_000, rows=None, bytes=2**40
)
MANY = evolve(
    COMMIT,
    files=(),
    manifests=(MANIFEST, evolve(MANIFEST, rows=7)),
    mode="overwrite-partitions",
    visibility="logged",
    batch=Batch("stream", 7),
)
NAMING = evolve(
    COMMIT, mode="rewrite", replaced=("x.csv", "day=1/y.csv"), replaced_manifests=(MANIFEST,)
)
SHARED = document_of(
    [
        evolve(COMMIT, uploads=(("u1", ('"e1"', '"e2"')), ("u2", ()))),
        evolve(COMMIT, job_id="other", attempt=ATTEMPT[::-1], files=(), uploads=()),
    ]
)
EXPIRY = ExpiryRecord(version=1, before=17, time=1_800_000_000.0)
SUCCESS = Success.of(COMMIT)


def read(data: bytes) -> Document:
    return decode(data, KINDS, path="log/1.json")


RECORDS: dict[str, Document] = {
    name: read(encode(record.to_document()))
    for name, record in {
        "commit": COMMIT,
        "commit of many": MANY,
        "commit that names files": NAMING,
        "abort": ABORT,
        "expiry": EXPIRY,
        "pending": PENDING,
        "pending of many": evolve(PENDING, files=(), manifests=(MANIFEST,)),
        "success": SUCCESS,
    }.items()
}


def parse(document: Document) -> Any:
    """Return the record in `document`."""
    match document.kind:
        case "pending":
            return PendingJob.from_document(document)
        case "success":
            return Success.from_document(document)
    (record,) = records_of(1, document)
    return record


def check_sound(record: Any, stored: Mapping[str, Any]) -> None:
    """Check that `record` equals the `stored` fields, and that it is valid and round-trips."""
    again = read(encode(record.to_document()))
    assert parse(again) == record
    assert says(stored, again.body)
    if isinstance(record, (CommitRecord, AbortRecord, ExpiryRecord)):
        assert type(record.time) is float and math.isfinite(record.time)
    if isinstance(record, CommitRecord):
        assert attempt_of(record.attempt) == record.attempt
        for file in record.files:
            check_path(file.path)
            assert type(file.size) is int and 0 <= file.size < 2**63
    if isinstance(record, AbortRecord):
        assert all(attempt_of(attempt) == attempt for attempt in record.attempts)


# -- the envelope ------------------------------------------------------------------------------------


@fuzz(300, data=st.binary(max_size=80) | wild_json.map(lambda value: dumps(value).encode()))
def test_other_data_than_a_record_is_refused(data: bytes) -> None:
    """Arbitrary bytes and arbitrary JSON are refused as corrupt or as newer."""
    assert isinstance(outcome(lambda: read(data), CorruptRecord, FormatTooNew), Exception)


@fuzz(
    400,
    data=st.sampled_from(sorted(RECORDS)).flatmap(
        lambda kind: st.tuples(st.just(kind), damaged_bytes(encode(RECORDS[kind])))
    ),
)
def test_damaged_bytes_never_change_the_content_of_a_record(data: tuple[str, bytes]) -> None:
    """A damaged record is refused, or has the same content."""
    kind, damaged = data
    found = outcome(lambda: read(damaged), CorruptRecord, FormatTooNew)
    assert isinstance(found, Exception) or found == RECORDS[kind]


def test_a_truncated_record_is_corrupt() -> None:
    """This holds for every prefix of a record."""
    for document in RECORDS.values():
        data = encode(document)
        for length in range(len(data)):
            with pytest.raises(CorruptRecord, match=r"log/1\.json"):
                read(data[:length])


@fuzz(200, format=wild_scalars, body=st.dictionaries(texts, wild_json, max_size=3))
def test_a_format_is_known_newer_or_corrupt(format: object, body: Mapping[str, Any]) -> None:
    """A record with a higher format number is newer, and one with an invalid number is corrupt."""
    found = outcome(lambda: read(sealed("commit", body, format)), CorruptRecord, FormatTooNew)
    if isinstance(found, FormatTooNew):
        assert type(format) is int and format > FORMAT
    elif isinstance(found, Document):
        assert type(format) is int and format == FORMAT


@fuzz(300, body=st.dictionaries(texts, wild_json, max_size=4))
def test_a_record_that_is_read_can_be_written_again(body: Mapping[str, Any]) -> None:
    """Even with a correct checksum, a record contains only JSON values."""
    found = outcome(lambda: read(sealed("operation", body)), CorruptRecord)
    if isinstance(found, Document):
        assert read(encode(found)) == found


@pytest.mark.parametrize("hole", ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"'])
def test_a_record_without_a_canonical_form_has_no_valid_checksum(hole: str) -> None:
    """Not even an empty checksum is accepted."""
    for checksum in ('""', "null", "false", "0"):
        text = f'{{"checksum":{checksum},"format":1,"kind":"operation","x":{hole}}}'
        with pytest.raises(CorruptRecord, match="checksum"):
            read(text.encode())


def test_no_depth_of_nesting_breaks_the_decoder() -> None:
    """Up to a hundred levels a record is written and read. Deeper ones are refused both ways."""
    value: Any = 1
    for depth in range(1, 800):
        document = Document("operation", {"x": value})
        if depth <= 100:
            assert read(encode(document)) == document
        else:
            with pytest.raises(ValueError, match="deep"):
                encode(document)
            with pytest.raises(CorruptRecord):
                read(sealed("operation", document.body))
        value = [value]


def test_a_cycle_is_refused() -> None:
    """A value that contains itself, even twice, is refused at once."""
    body: dict[str, Any] = {}
    body["x"] = body["y"] = [body]
    with pytest.raises(ValueError, match="Circular"):
        encode(Document("operation", body))


# -- records of outputs ------------------------------------------------------------------------------


def check_body(kind: str, body: Any) -> None:
    """Check that a record with this body and a correct checksum is corrupt, or read as stored."""
    if isinstance(body, dict):
        found = outcome(
            lambda: parse(read(sealed(RECORDS[kind].kind, body))), CorruptRecord, FormatTooNew
        )
        if isinstance(found, FormatTooNew):
            assert isinstance(body["mode"], str) and body["mode"] not in get_args(Mode)
        elif not isinstance(found, Exception):
            check_sound(found, json.loads(dumps(body)))


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_an_invalid_or_missing_field_is_corrupt(kind: str) -> None:
    """Any value of a field is read as stored, or makes the record corrupt."""
    for body in replaced(dict(RECORDS[kind].body)):
        check_body(kind, body)


@fuzz(
    500,
    data=st.sampled_from(sorted(RECORDS)).flatmap(
        lambda kind: st.tuples(st.just(kind), damaged_json(dict(RECORDS[kind].body)))
    ),
)
def test_a_damaged_body_is_valid_or_corrupt(data: tuple[str, Any]) -> None:
    """Even with a correct checksum, a damaged body makes no impossible record."""
    check_body(*data)


@fuzz(100, kind=st.sampled_from(sorted(RECORDS)), name=texts, value=wild_json)
def test_unknown_fields_are_ignored(kind: str, name: str, value: Any) -> None:
    """A field that a later release adds to a format has no effect in this release."""
    body = {**RECORDS[kind].body, f"later {name}": value}
    found = outcome(lambda: parse(read(sealed(RECORDS[kind].kind, body))), CorruptRecord)
    if isinstance(found, Exception):
        assert "checksum" in str(found) or "JSON" in str(found)
    else:
        assert found == parse(RECORDS[kind])


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("abort", {"time": 10**400}),
        ("abort", {"time": "nan"}),
        ("abort", {"time": True}),
        ("abort", {"attempts": {"../../x": None}}),
        ("commit", {"files": {}}),
        ("commit", {"files": ""}),
        ("commit", {"manifests": {}}),
        ("commit", {"mode": None}),
        ("commit that names files", {"replaced": ["../x"]}),
        ("commit that names files", {"replaced_manifests": {}}),
        ("commit", {"visibility": None}),
        ("commit", {"batch": ["stream"]}),
        ("expiry", {"before": "17"}),
        ("commit", {"attempt": "../pending/x"}),
        ("success", {"version": 10**400}),
        ("pending", {"attempt": ""}),
    ],
)
def test_the_error_names_the_corrupt_record(kind: str, fields: dict[str, Any]) -> None:
    """The message also says that the object is unchanged."""
    of = RECORDS[kind].kind
    with pytest.raises(CorruptRecord, match=rf"'log/1\.json' is not a valid {of}.*left as it is"):
        parse(read(sealed(of, {**RECORDS[kind].body, **fields})))


@pytest.mark.parametrize(
    "fields",
    [
        {"path": "../../etc/passwd"},
        {"path": "/etc/passwd"},
        {"path": "a\0b"},
        {"size": -1},
        {"size": 2**63},
        {"rows": 1.0},
        {"partition": {"ab": 1}},
        {"partition": ["ab"]},
        {"partition": [["day", "1"], ["day", "2"]]},
        {"stats": {"id": [1, 2]}},
        {"stats": {"id": [[1], 2, 0]}},
        {"stats": {"id": [1, 2, -1]}},
    ],
)
def test_an_impossible_file_is_corrupt(fields: dict[str, Any]) -> None:
    """Paths that lead out of the output, impossible sizes, and duplicate columns."""
    for kind in ("commit", "pending"):
        [first, *rest] = RECORDS[kind].body["files"]
        body = {**RECORDS[kind].body, "files": [{**first, **fields}, *rest]}
        with pytest.raises(CorruptRecord):
            parse(read(sealed(kind, body)))


@fuzz(200, name=wild_texts)
def test_any_name_has_an_attempt_or_none(name: str) -> None:
    """The attempt of a foreign name is None, and no error is raised."""
    found = attempt_of(name)
    assert found is None or len(found) == 32
    job = Job(job_id="daily", attempt=ATTEMPT)
    assert outcome(lambda: job.check_name(f"{name}-{ATTEMPT}-c"), InvalidPath)


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed)} examples")


def check_shared(body: Any) -> None:
    """Check that a record of several jobs with this body is corrupt or too new, or read as stored."""

    def parse_shared(data: bytes) -> Any:
        return records_of(1, decode(data, frozenset({"commits"}), path="log/1.json", newest=NEWEST))

    if isinstance(body, dict):
        found = outcome(
            lambda: parse_shared(sealed("commits", body, NEWEST)), CorruptRecord, FormatTooNew
        )
        if not isinstance(found, Exception):
            assert len(found) > 1 and all(len(each.staged()) in (0, len(each.files)) for each in found)
            again = document_of(found)
            assert parse_shared(encode(again)) == found
            assert says(json.loads(dumps(body)), again.body)
        with pytest.raises(CorruptRecord):
            parse_shared(sealed("commits", body))


def test_a_shared_record_is_sound_or_corrupt() -> None:
    """Any value of a field is read as stored, or makes the record corrupt."""
    check_shared(dict(SHARED.body))
    for body in replaced(dict(SHARED.body)):
        check_shared(body)


@fuzz(200, body=damaged_json(dict(SHARED.body)))
def test_a_damaged_shared_record_is_valid_or_corrupt(body: Any) -> None:
    """Even with a correct checksum, a damaged body makes no impossible record."""
    check_shared(body)
