"""Work on many files in a command: parallel jobs, their progress, and a report if it ends early.

`run_jobs` runs the jobs of a command in parallel, shows a progress bar and collects failures.
`Progress` counts completed files. If the command ends early, it prints the count and how to resume.
"""

from __future__ import annotations

import contextlib
import errno
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import click
from attrs import frozen

from commitlog._util.concurrency import Executor
from commitlog._util.fork import WorkLock
from commitlog.cli.exit_status import Exit, FailureCollector, Interrupted, TooManyFailures
from commitlog.cli.output import note, printable, progress_file
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
from commitlog.transfer import BLOCK_SIZE, Advance, Transfer, drop_files

__all__ = [
    "MAX_FAILURES",
    "THREADS",
    "FileOperation",
    "Join",
    "Progress",
    "effort_of",
    "run_jobs",
    "threads_option",
]

C = TypeVar("C", bound=Callable[..., Any])

#: The default number of files that are processed concurrently.
THREADS = 8

#: The number of failures in a row after which a command does not try the rest. Only failures of a
#: service or of this machine count.
MAX_FAILURES = 8

#: The effort of a file in addition to its bytes, for the time of its requests.
_FILE_EFFORT = 64 * 1024

#: The maximum number of files that are counted for a report.
_MAX_COUNTED = 100_000

_SERVICE_ERRORS = (Unavailable, OutcomeUnknown, RequestExpired, BucketNotFound, TableNotFound)

#: Errors that the same command would meet again.
_PERMANENT_ERRORS = (AlreadyExists, IsADirectory, NotADirectory)

_MACHINE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ENOTCONN}
)

#: Takes the results of several jobs, and an executor. Returns the outcome of each
#: job, which may be an error.
Join: TypeAlias = Callable[[Sequence[Any], Executor], Sequence[Any]]


class Progress:
    """The completed files of a command. If the command ends early, it reports them. Thread-safe.

    Args:
        done: the report of the completed files, behind their number: "were uploaded to
            commitlog://lake/a".
        resume: how to process the other files; "" if unknown.
        files: yields an item for each file of the command; None if unknown.
        exceptions: other changes that the command makes: "new directories".
        after_failures: whether to report also if some files failed.

    Attributes:
        silent: whether other code reports an interrupt.

    All of them can be set later, when they are known.
    """

    def __init__(
        self,
        done: str = "",
        *,
        resume: str = "",
        files: Callable[[], Iterable[object]] | None = None,
        exceptions: str = "",
        after_failures: bool = False,
    ) -> None:
        self.done = done
        self.resume = resume
        self.files = files
        self.exceptions = exceptions
        self.after_failures = after_failures
        self.silent = False
        self._completed = self._changes = self._unknown = self._running = self._failed = 0
        self._failures_in_a_row = 0
        self._is_unknown = False
        self._last: BaseException | None = None
        self._lock = WorkLock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record that an operation is in progress."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def succeed(self, files: int) -> None:
        """Record that this number of files is complete. 0 stands for another change."""
        with self._lock:
            self._changes += 1
            self._completed += files
            if files:
                self._failures_in_a_row = 0

    def fail(self, name: str, error: BaseException, files: int) -> None:
        """Record the failure of an operation.

        Args:
            name: the name of the operation in messages.
            error: the error. One error of several files that were made together counts once.
            files: the number of files that the operation stands for.
        """
        with self._lock:
            if isinstance(error, OutcomeUnknown):
                self._is_unknown = True
                self._unknown += files
            self._failed += not isinstance(error, _PERMANENT_ERRORS)
            if error is not self._last and self._is_general(name, error):
                self._failures_in_a_row += 1
            self._last = error

    def _is_general(self, name: str, error: BaseException) -> bool:
        """Return whether other files will probably fail with the same error."""
        match error:
            case AccessDenied():  # of one file, if others were permitted; of all after a token expired
                return not self._completed or "ExpiredToken" in str(error)
            case CommitError():
                return isinstance(error, _SERVICE_ERRORS)
            case OSError():
                return error.errno in _MACHINE_ERRORS and error.filename != name
        return False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the failure of a step that runs in this thread."""
        try:
            yield
        except (CommitError, OSError) as error:
            self.fail(name, error, files=0)
            raise

    def check(self) -> None:
        """Raise `TooManyFailures` if the last operations failed and the others probably would."""
        if self._failures_in_a_row >= MAX_FAILURES:
            raise TooManyFailures(f"gave up after {MAX_FAILURES} failures in a row")

    @contextmanager
    def reported(self, failures: FailureCollector) -> Iterator[None]:
        """Report the completed files if the command ends early.

        Raises `Interrupted` for an interrupt, unless it is one already, and `TooManyFailures`, both with
        the report as their message.
        """
        try:
            yield
        except TooManyFailures as error:
            # Not every failure has been printed at this point.
            status = max(failures.status, Exit.UNKNOWN if self._is_unknown else failures.status)
            message = f"{error}; no operation is in progress; {self.report()}"
            raise TooManyFailures(message, status) from error
        except Interrupted:
            raise
        except KeyboardInterrupt as error:
            if self.silent:
                raise
            raise Interrupted(self.report()) from error
        if self.after_failures and self._failed and (self._changes or self._is_unknown):
            note(self.report(when=" after you have fixed the errors"))

    def report(self, *, when: str = "") -> str:
        """Return the state of all files, and how to resume, and when."""
        if not self.done:
            return "nothing was changed"
        clauses = [f"{self._completed}{self._total()} {printable(self.done)}"]
        if self._running:
            clauses.append("operations in progress may or may not complete")
        elif self._unknown:
            clauses.append(f"the outcome of {self._unknown} more is unknown")
        else:
            exceptions = f", except for {self.exceptions}" if self.exceptions else ""
            clauses.append(f"nothing else was changed{exceptions}")
        if self.resume:
            clauses.append(f"to resume{when}: {self.resume}")
        return "; ".join(clauses)

    def _total(self) -> str:
        if self.files is None:
            return ""
        with suppress(CommitError, OSError):
            total = sum(1 for _ in islice(self.files(), _MAX_COUNTED))
            return f" of {'more than ' * (total == _MAX_COUNTED)}{total} files"
        return " files"


@frozen(kw_only=True)
class FileOperation:
    """An operation on one file.

    Attributes:
        name: its name in messages.
        run: performs the operation and reports its progress.
        part: see `FailureCollector.add`.
        effort: its effort, in addition to the progress that it reports.
        files: the number of files that it stands for in `Progress`.
    """

    name: str
    run: Callable[[Advance], Any]
    part: bool = False
    effort: int = _FILE_EFFORT
    files: int = 1


def threads_option(command: C) -> C:
    """Add the option for the number of concurrent files to `command`."""
    return click.option(
        "--threads",
        metavar="N",
        type=click.IntRange(min=1),
        default=THREADS,
        show_default=True,
        help="Number of concurrent files.",
    )(command)


def effort_of(*, files: int, bytes: int) -> int:
    """Return the effort of `files` files with `bytes` bytes in total, for `run_jobs`."""
    return files * _FILE_EFFORT + bytes


def run_jobs(
    jobs: Iterable[FileOperation],
    failures: FailureCollector,
    *,
    label: str,
    effort: Callable[[], int],
    threads: int = THREADS,
    all_or_none: bool = False,
    join: Join | None = None,
    done: Callable[[Any], object] = lambda outcome: None,
    progress: Progress | None = None,
) -> None:
    """Run `jobs` in several threads. A job is taken from the iterable when a thread is free.

    Args:
        jobs: the jobs.
        failures: receives the errors.
        label: the label of the progress bar.
        effort: returns the effort of all jobs; called only to show the progress bar.
        threads: the number of concurrent jobs.
        all_or_none: whether to stop after the first error.
        join: a second step, for the results of several jobs at a time. The results are files as in
            `commitlog.transfer.link_files`: their content is removed if the work ends early.
        done: called in this thread with the outcome of each successful job.
        progress: receives the progress.

    Raises `TooManyFailures` if the rest would probably fail for the same reason, unless `all_or_none` is
    set.
    """
    counter = progress or Progress()
    transfer = Transfer(threads)
    lock = threading.Lock()
    total = 0
    if sys.stderr.isatty():
        with contextlib.suppress(CommitError, OSError):  # the jobs will report the same error
            total = effort()
    is_shown = total >= BLOCK_SIZE
    bar = click.progressbar(length=total, label=label, file=progress_file(hidden=not is_shown))

    def advance(step: int) -> None:
        transfer.check()
        with lock:
            bar.update(step)

    def run(job: FileOperation) -> Any:
        with counter.running():
            advance(job.effort)
            try:
                outcome = job.run(advance)
            except (CommitError, OSError) as error:
                counter.fail(job.name, error, job.files)
                raise
            if join is None:
                counter.succeed(job.files)
            return outcome

    def run_join(group: Sequence[tuple[FileOperation, Any]], executor: Executor) -> Sequence[Any]:
        assert join is not None
        with counter.running():
            outcomes = join([result for _, result in group], executor)
            for (job, _), outcome in zip(group, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    counter.fail(job.name, outcome, job.files)
                else:
                    counter.succeed(job.files)
            return outcomes

    def settle(job: FileOperation, outcome: Any) -> None:
        match outcome:
            case BrokenPipeError():  # of standard output
                raise outcome
            case CommitError() | OSError():
                with lock:
                    if is_shown:
                        click.echo(err=True)  # the bar is on this line
                    failures.add(job.name, outcome, part=job.part)
                if all_or_none:
                    transfer.cancel()
                else:
                    counter.check()
            case Exception():
                raise outcome
            case _:
                done(outcome)

    with bar:
        if join is None:
            transfer.run(jobs, run, settle)
        else:
            transfer.run_in_groups(jobs, run, run_join, settle, drop=drop_files)
