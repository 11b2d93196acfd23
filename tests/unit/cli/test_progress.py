"""Parallel jobs of a command: how many run at a time, and what happens after failures."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from commitlog._util.concurrency import Executor
from commitlog.cli.exit_status import Exit, FailureCollector, TooManyFailures
from commitlog.cli.progress import MAX_FAILURES, THREADS, FileOperation, effort_of, run_jobs
from commitlog.errors import InvalidPath, NotFound, Unavailable
from commitlog.transfer import Advance


def run(jobs: Iterator[FileOperation], failures: FailureCollector, *, all_or_none: bool = False) -> None:
    """Run jobs without a progress bar."""
    run_jobs(jobs, failures, label="working", effort=lambda: 0, all_or_none=all_or_none)


def test_each_failure_is_printed_and_other_jobs_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Each failure is one line. The status is the highest of all."""
    done: list[int] = []

    def job(number: int, advance: Advance) -> None:
        if number % 10 == 3:
            raise NotFound(f"no {number}")
        done.append(number)

    failures = FailureCollector()
    run((FileOperation(name=f"{n}", run=partial(job, n)) for n in range(50)), failures)
    assert sorted(done) == [number for number in range(50) if number % 10 != 3]
    assert (failures.count, failures.status) == (5, Exit.FAILED)
    assert sorted(capsys.readouterr().err.splitlines())[0] == "commitlog: 13: no 13"


@pytest.mark.parametrize("jobs", [3, 10_000])
def test_all_or_none_stops_at_the_first_failure(jobs: int) -> None:
    """No other job starts, and running jobs end at their next step."""
    started: list[int] = []
    ended: list[int] = []

    def job(number: int, advance: Advance) -> None:
        started.append(number)
        if number == 0:
            raise NotFound("no")
        patience = time.monotonic() + 60
        while time.monotonic() < patience:
            time.sleep(0.001)  # the duration of a step
            advance(1)
        ended.append(number)

    failures = FailureCollector()
    run((FileOperation(name="", run=partial(job, n)) for n in range(jobs)), failures, all_or_none=True)
    assert failures.count == 1
    assert len(started) <= 2 * THREADS + 1
    assert not ended


def test_few_jobs_wait_for_a_thread() -> None:
    """A listing of any length is not held in memory."""
    taken = done = most = 0
    lock = threading.Lock()

    def job(advance: Advance) -> None:
        nonlocal done
        with lock:
            done += 1

    def jobs() -> Iterator[FileOperation]:
        nonlocal taken, most
        for _ in range(500):
            with lock:
                taken += 1
                most = max(most, taken - done)
            yield FileOperation(name="", run=job)

    run(jobs(), FailureCollector())
    assert done == 500
    assert most <= 3 * THREADS + 1


def test_unexpected_errors_end_the_work() -> None:
    """An error that is neither of this library nor of the system is raised."""

    def fail(advance: Advance) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run((FileOperation(name="", run=fail) for _ in range(1000)), FailureCollector())


def test_a_closed_standard_output_is_not_a_failure_of_a_file() -> None:
    """It ends the command."""

    def write(advance: Advance) -> None:
        raise BrokenPipeError

    failures = FailureCollector()
    with pytest.raises(BrokenPipeError):
        run((FileOperation(name="", run=write) for _ in range(3)), failures)
    assert failures.count == 0


def test_effort_counts_files_and_bytes() -> None:
    """Many small files take effort, too."""
    assert effort_of(files=2, bytes=10) == 2 * effort_of(files=1, bytes=0) + 10
    assert effort_of(files=0, bytes=10) == 10


def failing(*errors: BaseException | None) -> Iterator[FileOperation]:
    """Yield jobs that fail with copies of these errors, or succeed for None."""

    def job(error: BaseException | None, advance: Advance) -> None:
        if error is not None:
            raise type(error)(*error.args)

    for number, error in enumerate(errors):
        yield FileOperation(name=f"{number}", run=partial(job, error))


def test_many_failures_of_a_service_end_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    """After several failures in a row the rest is not tried. The status is that of the errors."""
    failures = FailureCollector()
    with pytest.raises(TooManyFailures, match="8 failures in a row"):
        run(failing(*[Unavailable("gone")] * 10_000), failures)
    assert 1 <= failures.count <= MAX_FAILURES
    assert failures.status == Exit.FAILED
    full = OSError(errno.ENOSPC, "No space left on device", "target")
    with pytest.raises(TooManyFailures):
        run(failing(*[full] * 10_000), FailureCollector())


def test_a_success_resets_the_number_of_failures(capsys: pytest.CaptureFixture[str]) -> None:
    """A service that fails often, but not many times in a row, does not end the work."""
    failures = FailureCollector()
    run_jobs(
        failing(*[*[Unavailable("gone")] * (MAX_FAILURES - 1), None] * 20),
        failures,
        label="working",
        effort=lambda: 0,
        threads=1,
    )
    assert failures.count == 20 * (MAX_FAILURES - 1)


@pytest.mark.parametrize(
    "error", [NotFound("x"), PermissionError(errno.EACCES, "denied", "x"), InvalidPath("x")]
)
def test_failures_of_single_files_do_not_end_the_work(error: Exception) -> None:
    """There can be any number of them."""
    failures = FailureCollector()
    run(failing(*[error] * 100), failures)
    assert failures.count == 100


def test_one_error_of_many_files_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A transaction that fails is one failure, for any number of files."""
    lost = [Unavailable("gone") for _ in range(MAX_FAILURES - 1)]
    left = list(lost)

    def join(group: Sequence[object], executor: Executor) -> list[Exception]:
        return [left.pop() if left else lost[0]] * len(group)

    failures = FailureCollector()
    run_jobs(
        failing(*[None] * 50),
        failures,
        label="working",
        effort=lambda: 0,
        join=join,
    )
    assert failures.count == 50
