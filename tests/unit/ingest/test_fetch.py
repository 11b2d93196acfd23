"""Reading of slices: pinned to the listed version, with policies for unreadable files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from commitlog._util.retry import Backoff
from commitlog.errors import (
    BucketNotFound,
    CorruptRecord,
    InputChanged,
    InputMissing,
    InputUnreadable,
    InvalidPath,
    OutcomeUnknown,
)
from commitlog.ingest import Fetch, File, IngestSettings, Partition, Pinned, Quarantine, Slice
from commitlog.testing import ManualClock
from support.ingest import Bucket, state_table


class Reader:
    """A bucket with one file of ten bytes, and its reader: a byte per record, two records per batch."""

    def __init__(self, **policies: Any) -> None:
        self.clock = ManualClock()
        self.store = Bucket(clock=self.clock)
        self.store.put("a", b"0123456789")
        self.table = state_table()
        self.problems = Quarantine(self.table, "s", clock=self.clock, backoff=Backoff(tries=3))
        settings = IngestSettings(source="s", remember="everything", **policies)
        self.fetch = Fetch(self.store, self.problems, settings)
        self.file = File.of(self.store.head("a"))
        self.before: Callable[[int], object] = lambda at: None
        self.bad: int | None = None

    def read(self, *slices: Slice, epoch: int = 1) -> str:
        """Return the records of slices as one text. After an error, `seen` has the text before it."""
        self.seen = ""
        partition = Partition(epoch, slices or (Slice(self.file, 0, 10),))
        for batch in self.fetch.read(
            partition, self._decode, count=len, drop=lambda batch, first: batch[first:]
        ):
            self.seen += batch
        return self.seen

    def _decode(self, pinned: Pinned, slice: Slice) -> Iterator[str]:
        for at in range(slice.start, slice.end, 2):
            self.before(at)
            if self.bad == at:
                raise InputUnreadable("no number", offset=at)
            yield pinned.get("a", start=at, end=min(at + 2, slice.end)).data.decode()


def test_slices_are_read_in_order() -> None:
    """The records of a partition are those of its slices, in order."""
    reader = Reader()
    assert reader.read(Slice(reader.file, 4, 7), Slice(reader.file, 0, 2)) == "45601"


def test_records_that_were_delivered_are_skipped() -> None:
    """A slice that is read again skips the delivered records, even within a batch."""
    reader = Reader()
    for skip in range(11):
        assert reader.read(Slice(reader.file, 0, 10, skip)) == "0123456789"[skip:]


def test_a_changed_object_yields_no_record_of_the_new_version() -> None:
    """It is reported as a problem, or the task fails."""
    for changed in ("again", "ignore"):
        reader = Reader(changed=changed)
        reader.store.put("a", b"abcdefghij")
        assert reader.read() == ""
        (problem,) = reader.problems
        assert (problem.kind, problem.records, problem.slice.file) == ("changed", 0, reader.file)
    reader = Reader(changed="fail")
    reader.store.put("a", b"abcdefghij")
    with pytest.raises(InputChanged, match="had etag"):
        reader.read()


def test_an_object_that_changes_while_it_is_read_fails_the_attempt() -> None:
    """Some records were delivered, so the attempt fails. The next attempt finds only the new version."""
    reader = Reader()
    reader.before = lambda at: reader.store.put("a", b"abcdefghij") if at == 4 else None
    with pytest.raises(InputChanged):
        reader.read()
    assert reader.seen == "0123" and not list(reader.problems)
    reader.before = lambda at: None
    assert reader.read() == ""
    assert len(list(reader.problems)) == 1


def test_a_missing_object_fails_the_task_or_is_reported() -> None:
    """It is an error unless `missing` is skip. A partly read object is always an error."""
    for missing in ("fail", "skip"):
        reader = Reader(missing=missing)
        reader.before = lambda at, reader=reader: reader.store.delete("a") if at == 4 else None
        with pytest.raises(InputMissing):
            reader.read()
        if missing == "fail":
            with pytest.raises(InputMissing, match="was listed, but does not exist"):
                reader.read()
        else:
            assert reader.read() == ""
            assert [problem.kind for problem in reader.problems] == ["missing"]


@pytest.mark.parametrize("change", ["changed", "missing"])
def test_an_object_that_is_gone_among_delivered_records_is_reported(change: str) -> None:
    """Nothing of the slice was yielded, so it can be left out as a whole."""
    reader = Reader(missing="skip")

    def disturb(at: int) -> None:
        if at == 4 and change == "missing":
            reader.store.delete("a")
        elif at == 4:
            reader.store.put("a", b"another one")

    reader.before = disturb
    assert reader.read(Slice(reader.file, 0, 10, 6)) == ""
    (problem,) = reader.problems
    assert (problem.kind, problem.records) == (change, 6)


def test_a_missing_bucket_is_not_a_missing_object() -> None:
    """A missing bucket fails the task under every policy."""
    reader = Reader(missing="skip")

    def gone(*_: Any, **__: Any) -> Any:
        raise BucketNotFound("no bucket")

    reader.store.get = gone  # type: ignore[method-assign]
    with pytest.raises(BucketNotFound):
        reader.read()


def test_an_unreadable_slice_is_quarantined_with_its_position() -> None:
    """The records before it are delivered. The problem has their number, and its own offset."""
    reader = Reader(unreadable="quarantine")
    reader.bad = 4
    assert reader.read() == "0123"
    assert reader.read() == "0123"  # another attempt
    (problem,) = reader.problems
    assert (problem.kind, problem.records, problem.offset) == ("unreadable", 4, 4)
    assert "no number" in problem.error
    reader.bad = 2
    assert reader.read(Slice(reader.file, 0, 10, 4), epoch=2) == ""
    assert sorted((each.epoch, each.records) for each in reader.problems) == [(1, 4), (2, 4)]


def test_an_unreadable_slice_fails_the_task_by_default() -> None:
    """The error is `CorruptRecord`, and no problem is stored."""
    reader = Reader()
    reader.bad = 4
    with pytest.raises(CorruptRecord):
        reader.read()
    assert not list(reader.problems)


def test_an_invalid_key_is_treated_like_unreadable_content() -> None:
    """Other tools write keys that are not valid paths. They are listed, and never skipped silently."""
    reader = Reader(unreadable="quarantine")
    odd = File("a//b", reader.file.etag, 10, 1.0)

    def decode(pinned: Pinned, slice: Slice) -> Iterator[str]:
        yield pinned.get(slice.file.path).data.decode()

    partition = Partition(1, (Slice(odd, 0, 10),))
    assert not list(reader.fetch.read(partition, decode, count=len, drop=lambda batch, _: batch))
    (problem,) = reader.problems
    assert (problem.kind, problem.slice.file.path) == ("unreadable", "a//b")
    failing = Reader()
    with pytest.raises(InvalidPath):
        list(failing.fetch.read(partition, decode, count=len, drop=lambda batch, _: batch))


def test_a_task_fails_if_its_problem_may_not_be_stored() -> None:
    """A slice is skipped only if its problem is stored."""
    reader = Reader(unreadable="quarantine")
    reader.bad = 0
    put, calls = reader.table.begin_put, 0

    def unsure(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        raise OutcomeUnknown("no answer")

    reader.table.begin_put = unsure  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        reader.read()
    assert calls == 3
    reader.table.begin_put = put  # type: ignore[method-assign]
    assert reader.read() == ""
    assert len(list(reader.problems)) == 1


def test_long_and_invalid_error_messages_are_bounded() -> None:
    """An error message is truncated, and invalid Unicode is replaced."""
    reader = Reader()
    reader.problems.report(1, Slice(reader.file, 0, 10), "unreadable", "x\ud800" * 10_000)
    (problem,) = reader.problems
    assert len(problem.error) == 2000
