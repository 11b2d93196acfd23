"""Work on many files: several at a time, taken as there is room, and what becomes of failures."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from commitlog.cli.exit_status import Exit, GaveUp, Trials
from commitlog.cli.progress import PATIENCE
from commitlog.cli.transfer import THREADS, Advance, Job, Together, effort, work
from commitlog.errors import InvalidPath, NotFound, Unavailable
from commitlog.namespace import Mapper


def do(jobs: Iterator[Job], trials: Trials, *, all_or_none: bool = False) -> None:
    """Do jobs of which nothing is shown."""
    work(jobs, trials, label="working", length=lambda: 0, all_or_none=all_or_none)


def test_what_fails_is_told_and_the_rest_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """Each failure has its line, and the status is the highest."""
    done: list[int] = []

    def job(number: int, advance: Advance) -> None:
        if number % 10 == 3:
            raise NotFound(f"no {number}")
        done.append(number)

    trials = Trials()
    do((Job(what=f"{n}", do=partial(job, n)) for n in range(50)), trials)
    assert sorted(done) == [number for number in range(50) if number % 10 != 3]
    assert (trials.failures, trials.worst) == (5, Exit.FAILED)
    assert sorted(capsys.readouterr().err.splitlines())[0] == "commitlog: 13: no 13"


@pytest.mark.parametrize("jobs", [3, 10_000])
def test_all_or_none_stops_at_the_first_failure(jobs: int) -> None:
    """What was not begun is not begun any more, and what goes on ends at its next step."""
    begun: list[int] = []
    ended: list[int] = []

    def job(number: int, advance: Advance) -> None:
        begun.append(number)
        if number == 0:
            raise NotFound("no")
        patience = time.monotonic() + 60
        while time.monotonic() < patience:
            time.sleep(0.001)  # as long as a step takes
            advance(1)
        ended.append(number)

    trials = Trials()
    do((Job(what="", do=partial(job, n)) for n in range(jobs)), trials, all_or_none=True)
    assert trials.failures == 1
    assert len(begun) <= 2 * THREADS + 1
    assert not ended


def test_jobs_are_taken_as_there_is_room() -> None:
    """A listing of any length is not held in memory: few jobs wait."""
    taken = done = most = 0
    lock = threading.Lock()

    def job(advance: Advance) -> None:
        nonlocal done
        with lock:
            done += 1

    def jobs() -> Iterator[Job]:
        nonlocal taken, most
        for _ in range(500):
            with lock:
                taken += 1
                most = max(most, taken - done)
            yield Job(what="", do=job)

    do(jobs(), Trials())
    assert done == 500
    assert most <= 3 * THREADS + 1


def test_mistakes_are_not_failures() -> None:
    """An error that nobody meant to raise ends the work, and comes out of it."""

    def mistake(advance: Advance) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        do((Job(what="", do=mistake) for _ in range(1000)), Trials())


def test_a_reader_that_goes_away_is_no_failure_of_a_file() -> None:
    """The command ends by it, as any does whose standard output is closed."""

    def printing(advance: Advance) -> None:
        raise BrokenPipeError

    trials = Trials()
    with pytest.raises(BrokenPipeError):
        do((Job(what="", do=printing) for _ in range(3)), trials)
    assert trials.failures == 0


def test_files_count_beside_their_bytes() -> None:
    """Many small files are work, too, and worth showing."""
    assert effort(files=2, bytes=10) == 2 * effort(files=1, bytes=0) + 10
    assert effort(files=0, bytes=10) == 10


def failing(*errors: BaseException | None) -> Iterator[Job]:
    """Yield jobs that fail with these errors, each anew, or do not."""

    def job(error: BaseException | None, advance: Advance) -> None:
        if error is not None:
            raise type(error)(*error.args)

    for number, error in enumerate(errors):
        yield Job(what=f"{number}", do=partial(job, error))


def test_what_is_of_the_service_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    """After some failures in a row; the rest is not tried, and the status is that of the errors."""
    trials = Trials()
    with pytest.raises(GaveUp, match="8 failures in a row"):
        do(failing(*[Unavailable("gone")] * 10_000), trials)
    assert 1 <= trials.failures <= PATIENCE
    assert trials.worst == Exit.FAILED
    full = OSError(errno.ENOSPC, "No space left on device", "target")
    with pytest.raises(GaveUp):
        do(failing(*[full] * 10_000), Trials())


def test_a_success_in_between_lets_it_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """However often the service fails, if it does not do so for long."""
    trials = Trials()
    work(
        failing(*[*[Unavailable("gone")] * (PATIENCE - 1), None] * 20),
        trials,
        label="working",
        length=lambda: 0,
        threads=1,
    )
    assert trials.failures == 20 * (PATIENCE - 1)


@pytest.mark.parametrize(
    "error", [NotFound("x"), PermissionError(errno.EACCES, "denied", "x"), InvalidPath("x")]
)
def test_what_is_of_a_file_does_not_end_it(error: Exception) -> None:
    """However many there are."""
    trials = Trials()
    do(failing(*[error] * 100), trials)
    assert trials.failures == 100


def test_one_error_of_many_files_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A transaction that fails is one failure, however many files it had."""
    lost = [Unavailable("gone") for _ in range(PATIENCE - 1)]
    left = list(lost)

    def together(group: Sequence[object], mapper: Mapper) -> list[Exception]:
        return [left.pop() if left else lost[0]] * len(group)

    trials = Trials()
    work(
        failing(*[None] * 50),
        trials,
        label="working",
        length=lambda: 0,
        together=Together(do=together, drop=lambda group: None),
    )
    assert trials.failures == 50
