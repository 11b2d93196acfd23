"""The history of an output has the figures of its log, at a cost that does not grow with the log."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from commitlog._util.request_stats import RequestRecorder
from commitlog.errors import ConfigurationError
from commitlog.namespace import RequestStats
from commitlog.outputs import CommitRecord, Output, StagedFile
from commitlog.outputs.checkpoints import INTERVAL
from commitlog.outputs.pending import INLINE_FILES
from commitlog.stores.api import Staged
from commitlog.stores.counting_store import CountingStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import open_output

#: Longer than the log of any test here.
ALL = 10_000


def commit(output: Output, job_id: str, sizes: Sequence[int], mode: str = "append", p: int = 0) -> None:
    """Commit a job whose files, in one partition, have these sizes; only the log shows them."""
    live = output.snapshot().files
    replaces = [file.path for file in live[-2:]] if mode == "overwrite-files" else []
    job = output.begin(job_id, mode=mode, visibility="logged", replaces=replaces)  # type: ignore[arg-type]
    files = []
    for n, size in enumerate(sizes):
        path = f"out/_commitlog/data/p={p}/{job.file_name(n)}"
        staged = Staged(path=path, upload_id=f"u{n}", size=size, nonce=f"n{n}")
        files.append(StagedFile(staged=staged, rows=size // 10, partition={"p": str(p)}))
    output.commit(job, files)


def totals(output: Output) -> dict[int, tuple[int, int]]:
    """Return number and size of the files at each commit, from the state of the log at each version."""
    found = {}
    for record in output.log():
        files = output.state(until=record.version).files.values()
        found[record.version] = (len(files), sum(file.size for file in files))
    return found


def check(output: Output, last: int) -> list[int]:
    """Check a history against the whole log; return the versions whose totals are known."""
    history = output.history(last=last)
    records = list(output.records())[-last:]
    commits = [record for record in records if isinstance(record, CommitRecord)]
    assert [each.version for each in history.commits] == [each.version for each in commits]
    for each, record in zip(history.commits, commits, strict=True):
        assert (each.job_id, each.mode, each.time) == (record.job_id, record.mode, record.time)
        added = (each.added_files, each.added_bytes, each.added_rows)
        assert added == (record.file_count, record.bytes, record.rows)
    known = {c.version: (c.files, c.bytes) for c in history.commits if c.bytes is not None}
    expected = totals(output)
    assert known == {version: expected[version] for version in known}
    assert list(history.sizes) == sorted(file.size for file in output.state().files.values())
    assert history.last == records[-1].version
    assert history.first == records[0].version
    assert history.complete
    return list(known)


def test_the_whole_log() -> None:
    """All figures are known, whatever the modes of the jobs."""
    clock = ManualClock()
    output = open_output(MemoryStore(clock=clock), clock)
    modes = ["append", "append", "overwrite-partitions", "append", "overwrite-files", "overwrite"]
    for n in range(3 * INTERVAL + 4):
        commit(output, f"job-{n}", [n * 10, 7], modes[n % len(modes)], p=n % 2)
        clock.advance(60)
    assert check(output, ALL) == list(range(1, 3 * INTERVAL + 5))
    assert output.history().measured == 1


def test_appends_are_known_back_to_the_first_record_read() -> None:
    """Totals before the checkpoints follow from later ones."""
    output = open_output(MemoryStore())
    for n in range(5 * INTERVAL + 3):
        commit(output, f"job-{n}", [n])
    for last in (1, 2, 3, 4, INTERVAL, 4 * INTERVAL, 5 * INTERVAL + 2, 5 * INTERVAL + 3):
        assert len(check(output, last)) == last


def test_an_overwrite_makes_later_totals_known() -> None:
    """What the output held before it does not matter any more."""
    output = open_output(MemoryStore())
    for n in range(5 * INTERVAL):
        commit(output, f"job-{n}", [n, 1], "overwrite" if n % INTERVAL == 3 else "append")
    assert check(output, 4 * INTERVAL)[0] == INTERVAL + 4


def test_replaced_files_of_unknown_size_end_the_totals() -> None:
    """A figure that the records do not tell is left out rather than guessed."""
    output = open_output(MemoryStore())
    for n in range(5 * INTERVAL + 5):
        mode = "overwrite-partitions" if n == 2 * INTERVAL else "append"
        commit(output, f"job-{n}", [n, n], mode, p=n % 3)
    known = check(output, 4 * INTERVAL)
    assert known[0] == 2 * INTERVAL + 1 == output.history(last=4 * INTERVAL).measured
    assert check(output, ALL)[0] == 1


def test_a_compaction_of_recent_files_is_undone() -> None:
    """The sizes of the files that it replaced are in the records before it."""
    output = open_output(MemoryStore())
    for n in range(5 * INTERVAL + 5):
        commit(output, f"job-{n}", [n, n], "overwrite-files" if n == 2 * INTERVAL else "append")
    assert len(check(output, 4 * INTERVAL)) == 4 * INTERVAL


def test_long_lists_of_files_are_counted() -> None:
    """A job of many files has its figures in its record, and its sizes in manifests."""
    output = open_output(MemoryStore())
    commit(output, "big", range(INLINE_FILES + 1))
    commit(output, "small", [5])
    assert check(output, ALL) == [1, 2]
    assert output.history().commits[0].added_files == INLINE_FILES + 1


@pytest.mark.parametrize("seed", range(6))
def test_drawn_logs(seed: int) -> None:
    """Any mix of jobs and aborts, seen through windows of any length, has the figures of the log."""
    rng = random.Random(seed)
    output = open_output(MemoryStore())
    modes = ["append"] * 6 + ["overwrite-partitions", "overwrite-files", "overwrite"]
    commit(output, "first", [1, 2, 3])
    for n in range(rng.randrange(25, 60)):
        if rng.random() < 0.1:
            output.abort(output.begin(f"aborted-{n}", visibility="logged"))
        sizes = [rng.randrange(1000) for _ in range(rng.randrange(1, 4))]
        commit(output, f"job-{n}", sizes, rng.choice(modes), p=rng.randrange(3))
    for last in (1, 5, 17, 30, ALL):
        assert check(output, last)


def test_a_damaged_record_ends_the_history() -> None:
    """The figures on the readable side of it are there, and the history says that it lacks something."""
    store = MemoryStore()
    output = open_output(store)
    for n in range(2 * INTERVAL + 5):
        commit(output, f"job-{n}", [n])
    before = totals(output)
    store.put(f"out/_commitlog/{INTERVAL:020d}.json", b"not a record")
    history = output.history()
    assert (history.first, history.last, history.complete) == (INTERVAL + 1, 2 * INTERVAL + 5, False)
    assert {c.version: (c.files, c.bytes) for c in history.commits} == {
        version: total for version, total in before.items() if version > INTERVAL
    }
    store.put(f"out/_commitlog/{2 * INTERVAL + 3:020d}.json", b"not a record")
    history = output.history()
    assert (history.last, history.complete) == (2 * INTERVAL + 2, False)


def test_no_commit() -> None:
    """An output without records has an empty history."""
    history = open_output(MemoryStore()).history()
    assert (history.first, history.last, history.commits, history.sizes) == (1, 0, (), ())
    assert history.measured is None


def test_the_bounds() -> None:
    """At least one record is read; records after the last checkpoint are read up to the limit."""
    output = open_output(MemoryStore())
    for n in range(INTERVAL - 1):
        commit(output, f"job-{n}", [n])
    with pytest.raises(ConfigurationError):
        output.history(last=0)
    cut = output.history(limit=4)
    assert (cut.last, cut.complete) == (4, False)
    assert output.history(limit=None).complete


def test_the_cost_does_not_grow_with_the_log() -> None:
    """The number of requests depends on the number of records asked for."""
    costs = []
    for jobs in (6 * INTERVAL + 5, 30 * INTERVAL + 5):
        recorder = RequestRecorder()
        output = open_output(CountingStore(MemoryStore(), recorder))
        for n in range(jobs):
            output.commit(output.begin(f"job-{n}"), ())
        before = RequestStats.of("", recorder.counts()).total
        output.history(last=2 * INTERVAL)
        costs.append(RequestStats.of("", recorder.counts()).total - before)
    assert costs[0] == costs[1]
    assert costs[0].store_gets < 4 * INTERVAL
