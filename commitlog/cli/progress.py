"""How far a command has come with many files: told when it does not get to the end, with the way on."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from commitlog.cli.exit_status import Exit, GaveUp, Interrupted, Trials
from commitlog.cli.output import note, printable
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    CommitError,
    IsADirectory,
    NotADirectory,
    OutcomeUnknown,
    RequestExpired,
    TableNotFound,
    Unavailable,
)

__all__ = ["PATIENCE", "Headway"]

#: Failures of a service, with no success in between, after which the rest is not tried.
PATIENCE = 8

#: Files that are counted to tell how many there are in all.
_COUNTED = 100_000

_SERVICE = (Unavailable, OutcomeUnknown, RequestExpired, BucketNotFound, TableNotFound)
#: What is not mended by trying again.
_IN_THE_WAY = (AlreadyExists, IsADirectory, NotADirectory)

_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ENOTCONN}
)


class Headway:
    """What became of the files of a command. Thread-safe.

    Args:
        done: what is said of those that it was done with: "were uploaded to commitlog://lake/a".
        go_on: what is to be run for the others; "" if that is not known.
        files: yields something for each file that there is to do; None if that is not known.
        beside: what else may have been done.
        partly: whether it is told, too, how far it came when some of it has failed.

    Attributes:
        silent: whether all that is told by others.

    All of them can be set later, when they are known.
    """

    def __init__(
        self,
        done: str = "",
        *,
        go_on: str = "",
        files: Callable[[], Iterable[object]] | None = None,
        beside: str = "",
        partly: bool = False,
    ) -> None:
        self.done = done
        self.go_on = go_on
        self.files = files
        self.beside = beside
        self.partly = partly
        self.silent = False
        self._made = self._changes = self._unknown = self._under_way = self._failed = 0
        self._in_a_row = 0
        self._in_doubt = False
        self._last: BaseException | None = None
        self._lock = threading.Lock()

    @contextmanager
    def going(self) -> Iterator[None]:
        """Note that something is under way."""
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def came(self, files: int) -> None:
        """Note that so many files are done with; 0: something else is, which is not counted."""
        with self._lock:
            self._changes += 1
            self._made += files
            if files:
                self._in_a_row = 0

    def missed(self, what: str, error: BaseException, files: int) -> None:
        """Note that something, which messages call `what` and counts for so many files, has failed.

        One error of several files that went together counts once.
        """
        with self._lock:
            if isinstance(error, OutcomeUnknown):
                self._in_doubt = True
                self._unknown += files
            self._failed += not isinstance(error, _IN_THE_WAY)
            if error is not self._last and self._is_of_service(what, error):
                self._in_a_row += 1
            self._last = error

    def _is_of_service(self, what: str, error: BaseException) -> bool:
        """Tell whether others will hardly fare better."""
        match error:
            case AccessDenied():  # of one file, if others were permitted; of none, once a token expires
                return not self._made or "ExpiredToken" in str(error)
            case CommitError():
                return isinstance(error, _SERVICE)
            case OSError():
                return error.errno in _MACHINE and error.filename != what
        return False

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Do something in this thread, and note if it fails."""
        try:
            yield
        except (CommitError, OSError) as error:
            self.missed(what, error, files=0)
            raise

    def check(self) -> None:
        """Raise `GaveUp` if nothing came of the last that were tried, for what is not theirs."""
        if self._in_a_row >= PATIENCE:
            raise GaveUp(f"gave up after {PATIENCE} failures in a row")

    @contextmanager
    def told(self, trials: Trials) -> Iterator[None]:
        """Have all that ends early say how far it has come.

        Raises `Interrupted` for an interrupt, unless it is one already, and `GaveUp` with all that.
        """
        try:
            yield
        except GaveUp as error:
            # Not all that has failed by now was told.
            status = max(trials.worst, Exit.UNKNOWN if self._in_doubt else trials.worst)
            raise GaveUp(f"{error}; nothing is under way; {self.state()}", status) from error
        except Interrupted:
            raise
        except KeyboardInterrupt as error:
            if self.silent:
                raise
            raise Interrupted(self.state()) from error
        if self.partly and self._failed and (self._changes or self._in_doubt):
            note(self.state(when=" once that is mended"))

    def state(self, *, when: str = "") -> str:
        """Return what is known of all, and how to go on, and when."""
        if not self.done:
            return "nothing was changed"
        said = [f"{self._made}{self._of_all()} {printable(self.done)}"]
        if self._under_way:
            said.append("what was under way may or may not happen")
        elif self._unknown:
            said.append(f"of {self._unknown} more nobody knows")
        else:
            said.append(f"{self.beside}nothing else was changed")
        if self.go_on:
            said.append(f"to go on{when}: {self.go_on}")
        return "; ".join(said)

    def _of_all(self) -> str:
        if self.files is None:
            return ""
        with suppress(CommitError, OSError):  # nobody can tell just now
            total = sum(1 for _ in islice(self.files(), _COUNTED))
            return f" of {'more than ' * (total == _COUNTED)}{total} files"
        return " files"
