"""Reading ahead: the next blocks of a large file are requested while the reader works on one.

`ReadAhead` is the limit on the blocks that are read ahead. `ReadAhead.blocks` yields the blocks of a
range in order. `SequentialReader` reads any ranges, and reads ahead once they follow each other.

Every block is read by the function that the caller passes in. If it raises for a block, as it should
when the file is not the version that was opened any more, that error takes the place of the block, and
no later block is handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TypeAlias

from commitlog._util.fork import renew_in_child
from commitlog._util.tracing import carried

__all__ = [
    "BLOCKS_AHEAD",
    "NO_READ_AHEAD",
    "READ_AHEAD",
    "ReadAhead",
    "ReadRange",
    "SequentialReader",
]

#: Returns the bytes ``[start, end)`` of a file. Thread-safe.
ReadRange: TypeAlias = Callable[[int, int], bytes]

#: A `SequentialReader` reads ahead after so many reads that began where the one before ended.
_READS_IN_SEQUENCE = 2


class ReadAhead:
    """A limit on the blocks that are read ahead, for all its readers together. Thread-safe.

    A block counts from the start of its request until the reader takes it. A reader for which there is
    no room reads its next block in its own thread. So readers never wait for each other, and memory is
    bounded: `limit` blocks in all, and for each reader the block that it works on and the one it takes.

    Usable in a child process after a fork, where the limit starts again.

    Args:
        limit: maximum number of blocks; 0: each block is read when it is asked for, without a thread.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget the blocks of the parent's threads, in a child process."""
        # Appending to and popping from a list are atomic, so this needs no lock.
        self._room = [None] * self.limit

    def blocks(
        self,
        read: ReadRange,
        start: int,
        end: int,
        *,
        block_size: int,
        ramp_up: bool = False,
    ) -> Generator[bytes]:
        """Yield the bytes ``[start, end)`` in blocks of `block_size` bytes, in order.

        A single block is read in the caller's thread. For more, there are up to `limit` threads. They
        end with the generator: when it is exhausted, is closed, or raises the error of `read`. Blocks
        that have not begun then are not read, and those under way are awaited.

        Args:
            read: reads a block.
            start, end: offsets in bytes.
            block_size: bytes of a block; the last one may be shorter.
            ramp_up: whether to read at most as much ahead as was read before. It is for readers that may
                stop early. Otherwise all of `limit` is used from the start.

        >>> list(READ_AHEAD.blocks(lambda start, end: b"abcde"[start:end], 0, 5, block_size=2))
        [b'ab', b'cd', b'e']
        """
        blocks = _Blocks(self, read, start, end, block_size, 1 if ramp_up else self.limit)
        with closing(blocks):
            while (block := blocks.take()) is not None:
                yield block

    def acquire(self) -> bool:
        """Make room for a block; return whether there was room."""
        try:
            self._room.pop()
        except IndexError:
            return False
        return True

    def release(self) -> None:
        """Give back the room of a block."""
        self._room.append(None)


#: The number of blocks that a process reads ahead. S3 needs about one request at a time for each 85 to
#: 90 MB/s (https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-design-patterns.html).
BLOCKS_AHEAD = 8

#: The limit for files on a server, shared by all readers of this process.
READ_AHEAD = ReadAhead(BLOCKS_AHEAD)

#: For files on this machine, which answer before another thread could ask.
NO_READ_AHEAD = ReadAhead(0)


class _Blocks:
    """The blocks of one range, taken in order. Not thread-safe."""

    def __init__(
        self,
        ahead: ReadAhead,
        read: ReadRange,
        start: int,
        end: int,
        block_size: int,
        window: int,
    ) -> None:
        self._ahead = ahead
        self._read = read
        self._position = start
        self._end = end
        self._block_size = block_size
        self._window = window
        self._limit = ahead.limit
        self._begun: deque[Future[bytes]] = deque()
        self._executor: ThreadPoolExecutor | None = None

    def take(self) -> bytes | None:
        """Return the next block, and begin the following ones; None at the end."""
        if not self._begun and self._position + self._block_size < self._end:
            self._begin()
        if self._begun:
            future = self._begun.popleft()
            try:
                block = future.result()
            finally:
                self._ahead.release()
        elif self._position < self._end:
            block = self._read(*self._next_range())
        else:
            return None
        self._begin()
        self._window = min(self._window + 1, self._limit)
        return block

    def close(self, *, wait: bool = True) -> None:
        """Begin no more blocks, and end the threads. Idempotent.

        Args:
            wait: whether to wait for the blocks under way. If not, they still count until they end.
        """
        self._position = self._end
        while self._begun:
            future = self._begun.pop()
            future.cancel()
            future.add_done_callback(lambda _: self._ahead.release())
        if self._executor is not None:
            self._executor.shutdown(wait=wait, cancel_futures=True)

    def _begin(self) -> None:
        while self._position < self._end and len(self._begun) < self._window and self._ahead.acquire():
            try:
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(self._limit, "commitlog-read-ahead")
                future = self._executor.submit(carried(self._read), self._position, self._block_end())
            except RuntimeError:  # no thread can start, as at the end of the interpreter
                self._ahead.release()
                self._limit = self._window = 0
                return
            self._begun.append(future)
            self._position = self._block_end()

    def _block_end(self) -> int:
        return min(self._position + self._block_size, self._end)

    def _next_range(self) -> tuple[int, int]:
        start, self._position = self._position, self._block_end()
        return start, self._position


class SequentialReader:
    """Reads ranges of a file, and reads ahead while they follow each other. Not thread-safe.

    A range is one request, until two ranges in a row have begun where the one before ended. From then on
    the file is read in blocks, and at most as much is read ahead as was read in sequence before. A range
    elsewhere drops the blocks. So a reader that seeks, such as one of Parquet, reads at most as much in
    vain as it has read in sequence.

    A file that is read whole in one call, and a range of more than two blocks, are no sequences: the
    former is read in blocks, several at a time, and the latter is one request.

    Usable in a child process after a fork.

    Args:
        read: reads a range.
        size: bytes of the file.
        block_size: bytes of a block.
        ahead: the limit.
    """

    def __init__(self, read: ReadRange, size: int, *, block_size: int, ahead: ReadAhead) -> None:
        self._read = read
        self._size = size
        self._block_size = block_size
        self._ahead = ahead
        self._position = 0
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Drop the blocks; in a child process, their threads are not there."""
        self._in_sequence = 0
        self._blocks: _Blocks | None = None
        self._rest = memoryview(b"")

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes ``[start, end)``, within the file. Raises the errors of the function."""
        follows, self._position = start == self._position and start > 0, end
        is_large = end - start > 2 * self._block_size
        if is_large and (start, end) == (0, self._size):
            blocks = self._ahead.blocks(self._read, start, end, block_size=self._block_size)
            return b"".join(blocks) if self._ahead.limit else self._read(start, end)
        if not follows or is_large:
            self.close()
            return self._read(start, end)
        self._in_sequence += 1
        if self._blocks is None:
            if self._in_sequence < _READS_IN_SEQUENCE or not self._ahead.limit:
                return self._read(start, end)
            self._blocks = _Blocks(self._ahead, self._read, start, self._size, self._block_size, 1)
        try:
            return self._taken(self._blocks, end - start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the blocks. The threads end when their requests do. Usable again after that."""
        blocks = self._blocks
        self.renew()
        if blocks is not None:
            # Not waiting: a finalizer may call this, in any thread.
            blocks.close(wait=False)

    def _taken(self, blocks: _Blocks, size: int) -> bytes:
        parts = [self._rest[:size]]
        self._rest = self._rest[size:]
        missing = size - len(parts[0])
        while missing and (block := blocks.take()) is not None:
            parts.append(memoryview(block)[:missing])
            self._rest = memoryview(block)[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)
