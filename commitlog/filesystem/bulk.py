"""Batches of files: their concurrency, progress callbacks and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import frozen
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from commitlog._util.concurrency import work, work_in_groups
from commitlog.errors import ConfigurationError
from commitlog.namespace import FILES_OF_A_LINK, Mapper

__all__ = ["Batch", "Plan", "Together", "files_at_a_time", "planned"]

S = TypeVar("S")
M = TypeVar("M")

#: The name of a new file, and its source.
Pair: TypeAlias = tuple[Any, S]

#: Makes files of stored content, with a mapper that works in parallel. Returns an outcome for each file,
#: which may be an exception.
Together: TypeAlias = Callable[[Sequence[tuple[Pair[S], M]], Mapper], Sequence[object]]

#: The default number of concurrent files, and the number that "all" stands for, which is fsspec's own.
_USUAL, _MOST = 16, 128

#: The number of concurrent large files. The store keeps several parts of each in memory to send them.
_LARGE = 4


class _Broken(Exception):
    """The cancellation of a file that is in progress."""


class _Told(Callback):
    """The progress of one file, passed on to its callback. It also cancels the file on request.

    The callback need not be thread-safe: a lock ensures that one thread calls it at a time.
    """

    def __init__(self, callback: Callback, lock: threading.Lock, stopped: threading.Event) -> None:
        super().__init__()
        self._callback = callback
        self._lock = lock
        self._stopped = stopped

    def set_size(self, size: int) -> None:
        with self._lock:
            self._callback.set_size(size)

    def relative_update(self, inc: int = 1) -> None:
        if self._stopped.is_set():
            raise _Broken
        with self._lock:
            self._callback.relative_update(inc)


class Batch(Generic[S]):
    """The same operation on several files. An instance can be used once.

    When a file fails, no other is started, and files in progress are cancelled where possible.

    Args:
        wanted: the name of each new file, and its source.
        what: a participle for the note that is added to an error.
        at_once: the maximum number of concurrent files.
        callback: an fsspec callback. It is updated for each completed file, and branched for each file.
        passed_over: returns whether an error of a file is ignored.
    """

    def __init__(
        self,
        wanted: Mapping[Any, S],
        what: str,
        *,
        at_once: int,
        callback: Callback = DEFAULT_CALLBACK,
        passed_over: Callable[[BaseException], bool] = lambda error: False,
    ) -> None:
        self.large = threading.Semaphore(_LARGE)
        self._wanted = wanted
        self._what = what
        self._at_once = max(1, min(at_once, len(wanted)))
        self._callback = callback
        self._passed_over = passed_over
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._done = 0
        self._failures: list[Exception] = []
        with self._lock:
            callback.set_size(len(wanted))

    def run(
        self,
        call: Callable[[Any, S, Callback], M],
        together: Together[S, M] | None = None,
        drop: Callable[[Sequence[M]], object] = lambda left: None,
    ) -> None:
        """Call `call` with each name, its source, and the callback for its progress.

        With `together`, the results of `call` are then passed to it in groups. After an interrupt,
        `drop` gets the results that were not used.

        Raises the first error, with a note of the number of other errors and of completed files.
        Completed files stay as they are.
        """

        def one(pair: Pair[S]) -> M:
            if self._stopped.is_set():
                raise _Broken
            with self._branched(pair) as child:
                return call(*pair, child)

        if together is None and len(self._wanted) == 1:
            [pair] = self._wanted.items()
            try:
                one(pair)  # works during interpreter shutdown too, when no thread can start
            except Exception as error:
                if not self._passed_over(error):
                    raise
            self._settled(pair, None)
            return
        with (
            ThreadPoolExecutor(self._at_once, "commitlog-files") as executor,
            ThreadPoolExecutor(1, "commitlog-link") as joiner,
            ThreadPoolExecutor(FILES_OF_A_LINK, "commitlog-read") as readers,
        ):
            how: dict[str, Any] = {
                "executor": executor,
                "ahead": 2 * self._at_once,
                "stop": self._stopped.set,
            }
            if together is None:
                work(self._pairs(), one, self._settled, **how)
            else:
                how |= {"joiner": joiner, "most": FILES_OF_A_LINK, "drop": drop}

                def join(group: Sequence[tuple[Pair[S], M]]) -> Sequence[Any]:
                    return together(group, readers.map)

                work_in_groups(self._pairs(), one, join, self._settled, **how)
        if self._failures:
            raise self._noted(self._failures[0])

    def _pairs(self) -> Iterator[Pair[S]]:
        for pair in self._wanted.items():
            if self._stopped.is_set():
                return
            yield pair

    @contextmanager
    def _branched(self, pair: Pair[S]) -> Iterator[_Told]:
        with self._lock:
            child = self._callback.branched(pair[1], pair[0])
        try:
            yield _Told(child, self._lock, self._stopped)
        finally:
            with self._lock:
                child.close()

    def _settled(self, pair: Pair[S], outcome: object) -> None:
        if not isinstance(outcome, Exception):
            self._done += 1
        elif not self._passed_over(outcome):
            self._stopped.set()
            if not isinstance(outcome, _Broken):
                self._failures.append(outcome)
            return
        with self._lock:
            self._callback.relative_update(1)

    def _noted(self, error: Exception) -> Exception:
        if len(self._wanted) > 1:
            more = len(self._failures) - 1
            error.add_note(
                f"{self._done} of {len(self._wanted)} paths were {self._what} before, and stay so;"
                f" {more or 'no'} more failed; the rest was not begun, or broken off"
            )
        return error


def files_at_a_time(batch_size: int | None) -> int:
    """Return the number of concurrent files for fsspec's option `batch_size`.

    >>> [files_at_a_time(number) for number in (None, 4, -1)]
    [16, 4, 128]
    """
    if batch_size is None:
        return _USUAL
    if batch_size == -1:
        return _MOST
    if batch_size < 1:
        raise ConfigurationError(f"batch_size is {batch_size}: it is a number of files, or -1 for all")
    return batch_size


class _Planner:
    """A stand-in for a file system that records the operation on each file.

    Paths that were found by a pattern, or below a directory, are not looked up again one by one.
    """

    def __init__(self, fs: AbstractFileSystem) -> None:
        self._fs = fs
        self.found: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def _note(self, *paths: Any, **_: Any) -> None:
        self.calls.append(paths)

    cat_file = cp_file = get_file = put_file = _note

    expand_path = AbstractFileSystem.expand_path

    def glob(self, path: str, **kwargs: Any) -> list[str]:
        return self._seen(self._fs.glob(path, **kwargs, detail=True))

    def find(self, path: str, *, detail: bool, **kwargs: Any) -> list[str]:
        return self._seen(self._fs.find(path, **kwargs, detail=True))

    def _seen(self, found: dict[str, dict[str, Any]]) -> list[str]:
        self.found.update(found)
        return list(found)

    def isdir(self, path: str) -> bool:
        found = self.found.get(path)
        return bool(self._fs.isdir(path) if found is None else found["type"] == "directory")


@frozen
class Plan:
    """The operations on files that a call of fsspec consists of.

    Attributes:
        pairs: the paths of each operation: one path, or source and target.
        directories: the source paths that are known to be directories.
        returned: the result of fsspec's method.
    """

    pairs: list[tuple[Any, ...]]
    directories: set[str]
    returned: Any


def planned(fs: AbstractFileSystem, method: str, *paths: Any, **how: Any) -> Plan:
    """Return the operations that fsspec's own `method` would perform.

    The many rules for target paths thus remain those of fsspec. A path may be a `pathlib.Path`.
    """
    planner = _Planner(fs)
    returned = getattr(AbstractFileSystem, method)(planner, *map(stringify_path, paths), **how)
    known = {path for path, info in planner.found.items() if info["type"] == "directory"}
    return Plan(planner.calls, known, returned)
