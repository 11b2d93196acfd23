"""Work on many files: several at a time, with progress, and not ended by what fails."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import click
from attrs import frozen

from commitlog._util import concurrency
from commitlog.cli.exit_status import Trials
from commitlog.cli.output import progress_file
from commitlog.cli.progress import Headway
from commitlog.cli.streams import PIECE
from commitlog.errors import CommitError
from commitlog.namespace import LINK_BATCH_SIZE, Mapper

__all__ = ["THREADS", "Advance", "Job", "Together", "effort", "threads_option", "work"]

C = TypeVar("C", bound=Callable[..., Any])

#: The default number of files that are processed concurrently.
THREADS = 8

#: The effort of a file in addition to its bytes, for the time of its requests.
_FILE = 64 * 1024

#: Called with the number of completed bytes; raises an exception to cancel the rest.
Advance = Callable[[int], object]


class _Stopped(Exception):
    """The cancellation of the remaining work."""


@frozen(kw_only=True)
class Job:
    """An operation on one file.

    Attributes:
        what: its name in messages.
        do: performs the operation and reports its progress.
        part: see `Trials.failed`.
        effort: its effort, in addition to the progress that it reports.
        files: the number of files that it counts as in the progress.
    """

    what: str
    do: Callable[[Advance], Any]
    part: bool = False
    effort: int = _FILE
    files: int = 1


@frozen(kw_only=True)
class Together:
    """A step after the jobs, which handles several results at a time.

    Attributes:
        do: takes the results of several jobs and a mapper that works in parallel; returns the outcome of
            each, which may be an error.
        drop: takes the unused results of jobs after the work was cancelled.
    """

    do: Callable[[Sequence[Any], Mapper], Sequence[Any]]
    drop: Callable[[Sequence[Any]], object]


def threads_option(command: C) -> C:
    """Add the option for the number of concurrent files to `command`."""
    return click.option(
        "--threads",
        metavar="N",
        type=click.IntRange(min=1),
        default=THREADS,
        show_default=True,
        help="Files that go at a time.",
    )(command)


def effort(*, files: int, bytes: int) -> int:
    """Return the effort of `files` files with `bytes` bytes in total, for `work`."""
    return files * _FILE + bytes


def work(
    jobs: Iterable[Job],
    trials: Trials,
    *,
    label: str,
    length: Callable[[], int],
    threads: int = THREADS,
    all_or_none: bool = False,
    together: Together | None = None,
    done: Callable[[Any], object] = lambda outcome: None,
    headway: Headway | None = None,
) -> None:
    """Run `jobs` in several threads. Jobs are taken from the iterable when a thread is free.

    Args:
        jobs: the jobs.
        trials: receives the errors.
        label: the label of the progress bar.
        length: returns the effort of all jobs; called only to show the progress bar.
        threads: the number of concurrent jobs.
        all_or_none: whether to stop after the first error.
        together: the step after the jobs, for several results at a time.
        done: called in this thread with the outcome of each successful job.
        headway: receives the progress.

    Raises `GaveUp` if the rest would probably fail for the same reason, unless `all_or_none` is set.
    """
    headway = headway or Headway()
    stop = threading.Event()
    lock = threading.Lock()
    total = 0
    if sys.stderr.isatty():
        with contextlib.suppress(CommitError, OSError):  # the jobs will report the same error
            total = length()

    def do(job: Job) -> Any:
        with headway.going():
            advance(job.effort)
            try:
                outcome = job.do(advance)
            except (CommitError, OSError) as error:
                headway.missed(job.what, error, job.files)
                raise
            if together is None:
                headway.came(job.files)
            return outcome

    def join(together: Together, group: Sequence[tuple[Job, Any]]) -> Sequence[Any]:
        with headway.going():
            outcomes = together.do([made for _, made in group], readers.map)
            for (job, _), outcome in zip(group, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    headway.missed(job.what, outcome, job.files)
                else:
                    headway.came(job.files)
            return outcomes

    def advance(step: int) -> None:
        if stop.is_set():
            raise _Stopped
        with lock:
            bar.update(step)

    def settled(job: Job, outcome: Any) -> None:
        match outcome:
            case BrokenPipeError():  # of standard output
                raise outcome
            case _Stopped():
                pass
            case CommitError() | OSError():
                with lock:
                    if total >= PIECE:
                        click.echo(err=True)  # the bar is on this line
                    trials.failed(job.what, outcome, part=job.part)
                if all_or_none:
                    stop.set()
                else:
                    headway.check()
            case Exception():
                raise outcome
            case _:
                done(outcome)

    def wanted() -> Iterator[Job]:
        for job in jobs:
            if stop.is_set():
                return
            yield job

    bar = click.progressbar(length=total, label=label, file=progress_file(hidden=total < PIECE))
    with (
        bar,
        ThreadPoolExecutor(threads) as executor,
        ThreadPoolExecutor(1) as joiner,
        ThreadPoolExecutor(LINK_BATCH_SIZE) as readers,
    ):
        how: dict[str, Any] = {"executor": executor, "ahead": 2 * threads, "stop": stop.set}
        if together is None:
            concurrency.work(wanted(), do, settled, **how)
            return
        concurrency.work_in_groups(
            wanted(),
            do,
            partial(join, together),
            settled,
            joiner=joiner,
            most=LINK_BATCH_SIZE,
            drop=together.drop,
            **how,
        )
