"""Several files at a time: how many, what is told of them meanwhile, and what ends it.

Imports fsspec, `commitlog.crew`, errors and the namespace.
"""

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

from commitlog.crew import work, work_in_groups
from commitlog.errors import ConfigurationError
from commitlog.namespace import FILES_OF_A_LINK

__all__ = ["Batch", "Plan", "Together", "files_at_a_time", "planned"]

S = TypeVar("S")
M = TypeVar("M")

#: A name that is to be made, and of what.
Pair: TypeAlias = tuple[Any, S]

#: Makes files of what was stored for them; returns what became of each, which may be an exception.
Together: TypeAlias = Callable[[Sequence[tuple[Pair[S], M]]], Sequence[object]]

#: Files at a time, unless it is said otherwise; and the most that "all" means: fsspec's own number.
_USUAL, _MOST = 16, 128

#: Large files at a time. The store sends several parts of each at the same time, all of them in memory.
_LARGE = 4


class _Broken(Exception):
    """The rest of this file is not wanted any more."""


class _Told(Callback):
    """Tells the callback of one file how far it is; breaks it off when it is not wanted any more.

    Whoever wrote the callback need not think of threads: they take turns.
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
    """Several files, with each of which the same is done. For one use.

    When one fails, no other is begun, and those that are under way are broken off where they can be.

    Args:
        wanted: what each name is to be made of.
        what: participle, for the note that an error gets.
        at_once: most files at a time.
        callback: of fsspec, told of each file that is done, and asked for one for each.
        passed_over: tells whether an error of a file is no failure.
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
        """Call `call` with each name, what it is made of, and what is told how far that is.

        With `together`, that comes after it, for some of them at a time; `drop` is given what `call` has
        made for nothing, if there is an interrupt.

        Raises the error that came first. It has a note of how many others there are, and how many files
        are done, which stay as they are.
        """

        def one(pair: Pair[S]) -> M:
            if self._stopped.is_set():
                raise _Broken
            with self._branched(pair) as child:
                return call(*pair, child)

        if together is None and len(self._wanted) == 1:
            [pair] = self._wanted.items()
            try:
                one(pair)  # also when the interpreter ends, and there are no more threads
            except Exception as error:
                if not self._passed_over(error):
                    raise
            self._settled(pair, None)
            return
        with (
            ThreadPoolExecutor(self._at_once, "commitlog-files") as executor,
            ThreadPoolExecutor(1, "commitlog-link") as joiner,
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
                work_in_groups(self._pairs(), one, together, self._settled, **how)
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
    """Return how many files go at a time, if that is what fsspec's option says.

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
    """Stands in for a file system, and notes what is to be done with each file.

    What was found with a pattern, or below a directory, is not looked at again one by one.
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
    """What is to be done with files, one after the other.

    Attributes:
        pairs: the paths that are given with each: of one, or from and to.
        directories: those of the first that are known to be directories.
        returned: what fsspec returns.
    """

    pairs: list[tuple[Any, ...]]
    directories: set[str]
    returned: Any


def planned(fs: AbstractFileSystem, method: str, *paths: Any, **how: Any) -> Plan:
    """Return what fsspec's own `method` would do.

    So its rules of what goes where, which are many, stay its own. A path may be a `pathlib.Path`.
    """
    planner = _Planner(fs)
    returned = getattr(AbstractFileSystem, method)(planner, *map(stringify_path, paths), **how)
    known = {path for path, info in planner.found.items() if info["type"] == "directory"}
    return Plan(planner.calls, known, returned)
