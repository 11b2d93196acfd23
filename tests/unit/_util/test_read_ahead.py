"""Reading ahead: order, the limit on blocks, an early end, and reads in sequence."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from commitlog._util.read_ahead import NO_READ_AHEAD, ReadAhead, SequentialReader
from support.fork import in_child

BODY = bytes(range(100))
WAIT = 30


class Source:
    """A file whose reads are noted, and held while `held` is set."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.threads: set[threading.Thread] = set()
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()
        self.failing: Callable[[int], bool] = lambda start: False
        self._lock = threading.Lock()
        self.under_way = self.most = 0

    def read(self, start: int, end: int) -> bytes:
        """Return the range, or raise `OSError` for a failing one."""
        with self._lock:
            self.ranges.append((start, end))
            self.threads.add(threading.current_thread())
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.begun.release()
        assert self.open.wait(WAIT)
        with self._lock:
            self.under_way -= 1
        if self.failing(start):
            raise OSError(f"no block at {start}")
        return BODY[start:end]

    def ended(self) -> bool:
        """Return whether all threads have ended that read, other than this one."""
        for thread in self.threads - {threading.current_thread()}:
            thread.join(WAIT)
        return not any(each.is_alive() for each in self.threads - {threading.current_thread()})


@pytest.fixture
def source() -> Iterator[Source]:
    """A file, whose threads have ended afterwards."""
    found = Source()
    yield found
    found.open.set()
    assert found.ended()


@pytest.fixture
def ahead() -> Iterator[ReadAhead]:
    """A limit of four blocks, which all have been given back afterwards."""
    limit = ReadAhead(4)
    yield limit
    taken = deque(iter(limit.acquire, False))
    assert len(taken) == 4


# -- blocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 4, 50])
@pytest.mark.parametrize("ramp_up", [False, True])
@pytest.mark.parametrize(
    ("start", "end", "size"), [(0, 0, 8), (0, 8, 8), (0, 9, 8), (0, 100, 8), (3, 99, 8), (5, 5, 1)]
)
def test_blocks_are_in_order_and_each_is_read_once(
    source: Source, limit: int, ramp_up: bool, start: int, end: int, size: int
) -> None:
    """Every limit yields the same blocks, and no request is added."""
    blocks = ReadAhead(limit).blocks(source.read, start, end, block_size=size, ramp_up=ramp_up)
    expected = [(first, min(first + size, end)) for first in range(start, end, size)]
    assert list(blocks) == [BODY[first:last] for first, last in expected]
    assert sorted(source.ranges) == expected


def test_slow_first_block_does_not_change_the_order(ahead: ReadAhead) -> None:
    """The first block ends last, and is yielded first."""
    others = threading.Semaphore(0)

    def read(start: int, end: int) -> bytes:
        if start:
            others.release()
        else:
            assert all(others.acquire(timeout=WAIT) for _ in range(3))
        return BODY[start:end]

    assert b"".join(ahead.blocks(read, 0, 100, block_size=10)) == BODY


@pytest.mark.parametrize("limit", [0, 4])
def test_a_single_block_takes_no_thread(source: Source, limit: int) -> None:
    """Small files, and local ones, are read in the caller's thread."""
    assert list(ReadAhead(limit).blocks(source.read, 0, 10, block_size=10)) == [BODY[:10]]
    assert list(NO_READ_AHEAD.blocks(source.read, 0, 100, block_size=50)) == [BODY[:50], BODY[50:]]
    assert source.threads == {threading.current_thread()}


def test_the_limit_is_reached_and_not_exceeded(source: Source, ahead: ReadAhead) -> None:
    """Four requests are under way at once, and no fifth begins before a block is taken."""
    source.open.clear()
    blocks = ahead.blocks(source.read, 0, 100, block_size=10)
    with ThreadPoolExecutor(1) as reader:
        first = reader.submit(next, blocks)
        assert all(source.begun.acquire(timeout=WAIT) for _ in range(4))
        assert len(source.ranges) == 4 and not ahead.acquire()
        source.open.set()
        assert first.result() == BODY[:10]
    assert source.begun.acquire(timeout=WAIT)  # the place of the block that was taken
    assert len(source.ranges) == 5
    assert b"".join(blocks) == BODY[10:]
    assert source.most == 4


def test_readers_share_the_limit_and_do_not_wait(source: Source, ahead: ReadAhead) -> None:
    """A reader for which there is no room reads its blocks itself."""
    hoarder = ahead.blocks(source.read, 0, 100, block_size=10)
    assert next(hoarder) == BODY[:10]
    assert not ahead.acquire()
    own: set[threading.Thread] = set()

    def read(start: int, end: int) -> bytes:
        own.add(threading.current_thread())
        return BODY[start:end]

    assert b"".join(ahead.blocks(read, 0, 100, block_size=10)) == BODY
    assert own == {threading.current_thread()}
    hoarder.close()


def test_ramp_up_reads_no_more_ahead_than_was_read(source: Source) -> None:
    """After n blocks, at most n others were requested, up to the limit."""
    blocks = ReadAhead(4).blocks(source.read, 0, 100, block_size=10, ramp_up=True)
    for taken in range(1, 11):
        assert next(blocks) == BODY[10 * taken - 10 : 10 * taken]
        expected = min(taken + min(taken, 4), 10)
        while len(source.ranges) < expected:
            assert source.begun.acquire(timeout=WAIT)
        assert len(source.ranges) == expected


def test_an_error_takes_the_place_of_its_block(source: Source, ahead: ReadAhead) -> None:
    """Blocks before it are yielded, and none after it, even if they are there already."""
    source.failing = lambda start: start == 30
    blocks = ahead.blocks(source.read, 0, 100, block_size=10)
    assert [next(blocks) for _ in range(3)] == [BODY[:10], BODY[10:20], BODY[20:30]]
    with pytest.raises(OSError, match="no block at 30"):
        next(blocks)
    assert list(blocks) == []
    assert source.ended() and len(source.ranges) < 10


@pytest.mark.parametrize("how", ["close", "throw", "drop"])
def test_an_early_end_leaves_no_thread(source: Source, ahead: ReadAhead, how: str) -> None:
    """A closed, failed or dropped iterator begins no other block, and gives its room back."""
    blocks = ahead.blocks(source.read, 0, 100, block_size=10)
    next(blocks)
    if how == "close":
        blocks.close()
    elif how == "throw":
        with pytest.raises(BrokenPipeError):
            blocks.throw(BrokenPipeError())
    else:
        del blocks
        gc.collect()
    assert len(source.ranges) <= 5
    assert not any(each.is_alive() for each in source.threads - {threading.current_thread()})


def test_without_new_threads_the_reader_reads_itself(
    source: Source, ahead: ReadAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the interpreter no thread can start."""

    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    assert b"".join(ahead.blocks(source.read, 0, 100, block_size=10)) == BODY
    assert source.threads == {threading.current_thread()}


def test_a_child_process_has_the_whole_limit(ahead: ReadAhead) -> None:
    """Blocks of the parent process do not count in a child."""
    assert all(ahead.acquire() for _ in range(4)) and not ahead.acquire()
    in_child(lambda: None if ahead.acquire() else 1 / 0)
    for _ in range(4):
        ahead.release()


# -- reads in sequence --------------------------------------------------------------------------------


def reader(source: Source, ahead: ReadAhead) -> SequentialReader:
    """Return a reader with blocks of ten bytes."""
    return SequentialReader(source.read, 100, block_size=10, ahead=ahead)


def test_reads_in_sequence_are_read_ahead(source: Source, ahead: ReadAhead) -> None:
    """From the third read on, the file is read in blocks, and each byte once."""
    file = reader(source, ahead)
    steps = [(start, min(start + 7, 100)) for start in range(0, 100, 7)]
    assert b"".join(file.read(*step) for step in steps) == BODY
    assert source.ranges[:2] == steps[:2]
    ranges = sorted(source.ranges)
    assert ranges[2:] == [(start, min(start + 10, 100)) for start in range(14, 100, 10)]
    file.close()


def test_a_reader_that_seeks_costs_what_it_asks_for(source: Source, ahead: ReadAhead) -> None:
    """The pattern of Parquet: the end of the file, then columns, some of them next to each other."""
    file = reader(source, ahead)
    steps = [(92, 100), (80, 92), (0, 9), (9, 12), (20, 31), (31, 33), (40, 50), (10, 12), (0, 3)]
    assert [file.read(*step) for step in steps] == [BODY[slice(*step)] for step in steps]
    assert source.ranges == steps
    assert source.threads == {threading.current_thread()}


def test_large_ranges_in_sequence_are_one_request_each(source: Source, ahead: ReadAhead) -> None:
    """A row group, say, of more than two blocks."""
    file = reader(source, ahead)
    steps = [(0, 25), (25, 50), (50, 75), (75, 100)]
    assert [file.read(*step) for step in steps] == [BODY[slice(*step)] for step in steps]
    assert source.ranges == steps


def test_a_seek_drops_what_was_read_ahead(source: Source, ahead: ReadAhead) -> None:
    """The room is free again, and the reader reads ahead again once there is another sequence."""
    file = reader(source, ahead)
    for start in (0, 5, 10, 15):
        assert file.read(start, start + 5) == BODY[start : start + 5]
    assert file.read(3, 5) == BODY[3:5]
    assert source.ended()
    for start in range(60, 100, 5):
        assert file.read(start, start + 5) == BODY[start : start + 5]
    assert (70, 80) in source.ranges
    file.close()


def test_a_seek_from_the_middle_of_a_block_leaves_nothing_of_it(
    source: Source, ahead: ReadAhead
) -> None:
    """The bytes of a later sequence are those of its place."""
    reader = SequentialReader(source.read, 100, block_size=10, ahead=ahead)
    for first in (0, 50, 20):
        for start in range(first, first + 24, 3):
            assert reader.read(start, start + 3) == BODY[start : start + 3]
    reader.close()


def test_any_reads_return_the_bytes_that_were_asked_for(source: Source, ahead: ReadAhead) -> None:
    """Small and large ranges, in sequence or not, up to the end of the file."""
    for seed in range(40):
        random = Random(seed)
        file = reader(source, ahead)
        position = 0
        for step in range(25):
            if position == len(BODY) or random.random() < 0.15:
                position = random.randrange(len(BODY))
            size = random.choice((0, 1, 4, 7, 10, 13, 20, 25, 100))
            start, position = position, min(position + size, len(BODY))
            assert file.read(start, position) == BODY[start:position], (seed, step)
        file.close()


def test_a_whole_file_is_read_in_parallel(source: Source, ahead: ReadAhead) -> None:
    """In blocks, each once; a small one, or a local one, in one request."""
    assert reader(source, ahead).read(0, 100) == BODY
    assert len(source.ranges) == 10 and source.most <= 4
    small = Source()
    assert SequentialReader(small.read, 20, block_size=10, ahead=ahead).read(0, 20) == BODY[:20]
    assert reader(small, NO_READ_AHEAD).read(0, 100) == BODY
    assert small.ranges == [(0, 20), (0, 100)]


def test_a_failed_block_is_raised_and_read_again(source: Source, ahead: ReadAhead) -> None:
    """After an error the same range can be read again."""
    file = reader(source, ahead)
    file.read(0, 5)
    file.read(5, 10)
    source.failing = lambda start: start == 20
    assert file.read(10, 20) == BODY[10:20]
    with pytest.raises(OSError, match="no block at 20"):
        file.read(20, 30)
    source.failing = lambda start: False
    assert file.read(20, 30) == BODY[20:30]
    file.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_process_reads_by_itself(source: Source, ahead: ReadAhead) -> None:
    """The threads of the parent process are not there."""
    file = reader(source, ahead)
    for start in (0, 5, 10):
        file.read(start, start + 5)
    assert file._blocks is not None

    def read() -> None:
        assert file.read(15, 20) == BODY[15:20]
        assert source.ranges[-1] == (15, 20)

    in_child(read)
    file.close()
