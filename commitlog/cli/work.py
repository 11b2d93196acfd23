"""Work on many files: several at a time, with progress, and not ended by what fails.

Imports exit statuses, what is noted of files, and how several things are done at a time.
"""

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

from commitlog import crew
from commitlog.cli.exits import Trials
from commitlog.cli.headway import Headway
from commitlog.cli.streams import PIECE
from commitlog.errors import CommitError
from commitlog.namespace import FILES_OF_A_LINK

__all__ = ["THREADS", "Advance", "Job", "Together", "effort", "threads_option", "work"]

C = TypeVar("C", bound=Callable[..., Any])

#: How many files are under way at a time, unless it is said otherwise.
THREADS = 8

#: What a file counts beside its bytes, for the time that its requests take.
_FILE = 64 * 1024

#: Told how many bytes were done; raises if the rest is not to be done.
Advance = Callable[[int], object]


class _Stopped(Exception):
    """The rest is not wanted any more."""


@frozen(kw_only=True)
class Job:
    """What is to be done with one file.

    Attributes:
        what: what messages call it.
        do: does it, and tells of its progress.
        part: see `Trials.failed`.
        effort: what it is, beside what it tells of.
        files: what it counts for where it is told how far all has come.
    """

    what: str
    do: Callable[[Advance], Any]
    part: bool = False
    effort: int = _FILE
    files: int = 1


@frozen(kw_only=True)
class Together:
    """What follows the jobs, for several at a time.

    Attributes:
        do: is given what some jobs have returned, and returns what became of each: it may be an error.
        drop: is given what jobs have returned for nothing, when the work is broken off.
    """

    do: Callable[[Sequence[Any]], Sequence[Any]]
    drop: Callable[[Sequence[Any]], object]


def threads_option(command: C) -> C:
    """Give `command` the option that says how many files go at a time."""
    return click.option(
        "--threads",
        metavar="N",
        type=click.IntRange(min=1),
        default=THREADS,
        show_default=True,
        help="Files that go at a time.",
    )(command)


def effort(*, files: int, bytes: int) -> int:
    """Return how much work some files are, for `work`."""
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
    """Do `jobs`, which are taken one by one as there is room, and whose errors go to `trials`.

    Args:
        jobs: what to do.
        trials: is told what failed.
        label: of the progress bar.
        length: returns the effort of all; called only if it is going to be shown.
        threads: jobs that are under way at a time.
        all_or_none: whether to stop when something has failed.
        together: what is done with several when they are done.
        done: is told, in this thread, what became of each that has not failed.
        headway: is told how far it has come.

    Raises `GaveUp` if the rest would hardly fare better than what has failed, and not `all_or_none`.
    """
    headway = headway or Headway()
    stop = threading.Event()
    lock = threading.Lock()
    total = 0
    if sys.stderr.isatty():
        with contextlib.suppress(CommitError, OSError):  # whatever it is, the jobs will meet with it
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
            outcomes = together.do([made for _, made in group])
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

    bar = click.progressbar(length=total, label=label, file=sys.stderr, hidden=total < PIECE)
    with bar, ThreadPoolExecutor(threads) as executor, ThreadPoolExecutor(1) as joiner:
        how: dict[str, Any] = {"executor": executor, "ahead": 2 * threads, "stop": stop.set}
        if together is None:
            crew.work(wanted(), do, settled, **how)
            return
        crew.work_in_groups(
            wanted(),
            do,
            partial(join, together),
            settled,
            joiner=joiner,
            most=FILES_OF_A_LINK,
            drop=together.drop,
            **how,
        )
