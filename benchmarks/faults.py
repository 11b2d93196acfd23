#!/usr/bin/env python
"""The effect of failing jobs on rows: with Spark's own committer, and with ours.

    ./run bench faults [--quick] [--only local|s3a] [--json FILE]

Jobs run in a real Spark, and drivers are killed by a real SIGKILL. Gates hold the tasks, so that the
point of failure is deterministic. Rows are counted by a reader that lists the directory.
docs/benchmarks.md explains the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fault_jobs import (
    ALL,
    BASE,
    COMPLETING,
    ROWS,
    Books,
    Gate,
    begin_base,
    books,
    numbers,
    tasks_done,
    when,
)
from fault_outcomes import Outcome, show, table_of
from fault_sites import Directory, LocalSite, Place, Site
from s3a_faults import CompletionGate, killed_completing, s3a_site, two_jobs_with_speculation
from s3a_spark import S3aWriter
from spark_writers import Writer

#: Files of the watched job, each in a partition directory of its own.
WATCHED_PARTITIONS = 100


def failing_overwrite(writer: Writer, place: Place) -> Outcome:
    """Fail one task of an overwriting job, after the other two tasks are done."""
    begin_base(writer, place)
    gate = Gate.new(place.gate, task=2)
    with _running(
        lambda: writer.write(numbers(writer, BASE, gate), place.path, mode="overwrite"), gate
    ) as job:
        _until_held(gate, job)
        when(lambda: tasks_done(writer.session) == 2, "the other tasks")
        gate.open("fail")
        assert job.exception() is not None, "the job was to fail"
    found = books(place, range(BASE))
    return Outcome(
        scenario="a job that overwrites fails",
        writer=writer.name,
        found=_old_and_new(found),
        right=not (found.lost or found.surplus),
    )


def concurrent_appends(writer: Writer, place: Place) -> Outcome:
    """Run a second job to its end while the first job is in the middle of a task."""
    begin_base(writer, place)
    before = place.first_files() if isinstance(place, Directory) else 0
    gate = Gate.new(place.gate, task=0)
    with _running(lambda: writer.write(numbers(writer, BASE, gate), place.path), gate) as job:
        _until_held(gate, job)
        if writer.opens_first and isinstance(place, Directory):
            when(lambda: place.first_files() > before, "the file of the task that is held")
        writer.write(numbers(writer, BASE + ROWS), place.path)
        gate.open()
        error = job.exception()
    found = books(place, range(BASE + 2 * ROWS))
    said = "both report success" if error is None else f"one fails ({_short(error)})"
    return Outcome(
        scenario="two jobs append at once",
        writer=writer.name,
        found=f"{found}, of {BASE + 2 * ROWS}; {said}",
        right=error is None and not (found.lost or found.surplus),
    )


def killed_append(writer: Writer, place: Place) -> list[Outcome]:
    """Check an append whose driver was killed with two of three tasks done, then run it again."""
    after = books(place, range(BASE))
    writer.write(numbers(writer, BASE), place.path)
    found = books(place, ALL)
    return [
        Outcome(
            scenario="a driver that appends is killed",
            writer=writer.name,
            found=str(after) if after.surplus else f"{after.rows} rows, as before",
            right=not (after.lost or after.surplus),
        ),
        Outcome(
            scenario="… and the append is run again",
            writer=writer.name,
            found=f"{found}, of {len(ALL)}",
            right=not (found.lost or found.surplus),
        ),
    ]


def killed_overwrite(writer: Writer, place: Place) -> list[Outcome]:
    """Check an overwrite whose driver was killed with two of three tasks done, then run it again."""
    after = books(place, range(BASE))
    writer.write(numbers(writer, BASE), place.path, mode="overwrite")
    found = books(place, range(BASE, BASE + ROWS))
    return [
        Outcome(
            scenario="a driver that overwrites is killed",
            writer=writer.name,
            found=_old_and_new(after),
            right=not (after.lost or after.surplus),
        ),
        Outcome(
            scenario="… and the overwrite is run again",
            writer=writer.name,
            found=f"{found}, of {ROWS}",
            right=not (found.lost or found.surplus),
        ),
    ]


def _old_and_new(found: Books) -> str:
    new = f", {found.surplus} of {ROWS} new ones" if found.surplus else ""
    return f"{BASE - found.lost} of {BASE} old rows{new}"


def reading_meanwhile(writer: Writer, place: Place) -> list[Outcome]:
    """Read repeatedly while a job of many files is committed."""
    frame = writer.session.range(0, WATCHED_PARTITIONS, 1, 1).selectExpr("id", "id as part")
    listed: set[int] = set()
    logged: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            listed.add(place.shown())
            if writer.logged:
                logged.add(place.logged())

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            writer.write(frame, place.path, partition_by=["part"])
        finally:
            over.set()
        looking.result()
    found = books(place, range(WATCHED_PARTITIONS))
    assert not (found.lost or found.surplus), str(found)
    outcomes = []
    if not writer.hidden:
        outcomes.append(_seen("a reader that lists, during a job", writer, listed))
    if writer.logged:
        assert place.logged() == WATCHED_PARTITIONS
        outcomes.append(_seen("a reader of the log, during a job", writer, logged))
    return outcomes


def _seen(scenario: str, writer: Writer, counts: set[int]) -> Outcome:
    parts = sorted(counts - {0, WATCHED_PARTITIONS})
    text = f"sees {parts[0]} … {parts[-1]} of {WATCHED_PARTITIONS} files" if parts else "all or nothing"
    return Outcome(scenario=scenario, writer=writer.name, found=text, right=not parts)


@contextlib.contextmanager
def _running(job: Callable[[], None], gate: Gate) -> Iterator[Future[None]]:
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(job)
        except BaseException:
            # The pool waits for the job, and the job waits at the gate.
            gate.open("fail", wait=False)
            raise


def _until_held(gate: Gate, job: Future[None]) -> None:
    when(lambda: gate.reached.exists() or job.done(), "the task that is held")
    if job.done():
        job.result()


def _short(error: BaseException) -> str:
    """Return the name of the first cause in the JVM, or in Python."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"[:80]
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getClass().getSimpleName())


@contextlib.contextmanager
def _doomed_driver(site: Site) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Start a driver. Yield a function that kills it once all of its jobs are held.

    The argument of the function waits for the jobs that the proxy holds.
    """
    driver = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fault_jobs.py")), site.dump()],
        # The driver ends when this pipe closes, in case this process ends before it has killed it.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # The process group includes the JVM, so the kill ends both. Python workers end by themselves.
        start_new_session=True,
    )

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()

    def kill_when_ready(wait: Callable[[], None]) -> None:
        assert driver.stdout is not None
        line = driver.stdout.readline()
        if line == "ready\n":
            wait()
        kill()
        assert line == "ready\n", "the driver that was to be killed has failed; its error is on stderr"

    try:
        yield kill_when_ready
    finally:
        kill()


def _run(
    site: Site, completions: CompletionGate | None, rounds: int, say: Callable[[str], None]
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with _doomed_driver(site) as kill:
        say("starting Spark twice")
        scratch = site.top / "main"
        scratch.mkdir()
        spark = site.start(scratch)
        try:
            ways = site.writers(spark)
            for turn in range(rounds):
                for writer in ways:
                    say(f"round {turn + 1}: {writer.name}")
                    for scenario in (failing_overwrite, concurrent_appends, reading_meanwhile):
                        came = scenario(writer, site.place(writer, f"{scenario.__name__}-{turn}"))
                        outcomes += came if isinstance(came, list) else [came]
            say("killing the driver of all the other jobs")
            kill(completions.wait if completions else lambda: None)
            if completions:
                completions.open()
            for writer in ways:
                say(f"after the kill: {writer.name}")
                outcomes += killed_append(writer, site.place(writer, "killed-append"))
                outcomes += killed_overwrite(writer, site.place(writer, "killed-overwrite"))
                if isinstance(writer, S3aWriter) and writer.completes:
                    outcomes += killed_completing(writer, site.place(writer, COMPLETING))
        finally:
            spark.stop()
    return outcomes


def _run_local(top: Path, rounds: int, say: Callable[[str], None]) -> list[Outcome]:
    return _run(LocalSite(str(top)), None, rounds, say)


def _run_s3a(top: Path, rounds: int, say: Callable[[str], None]) -> list[Outcome]:
    with s3a_site(top) as (site, completions):
        outcomes = _run(site, completions, rounds, say)
        return outcomes + two_jobs_with_speculation(site, say)


_PARTS = {"local": _run_local, "s3a": _run_s3a}


def main() -> None:
    """Run all scenarios, print the outcomes, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, within a minute")
    parser.add_argument("--only", choices=_PARTS, help="write to local directories, or to S3 by S3A")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what came of it")
    arguments = parser.parse_args()
    started = datetime.datetime.now(datetime.UTC)

    def say(what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr)

    rounds = 1 if arguments.quick else 3
    outcomes: dict[str, list[Outcome]] = {}
    for part in [arguments.only] if arguments.only else _PARTS:
        with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as scratch:
            outcomes[part] = _PARTS[part](Path(scratch), rounds, say)
    if arguments.json:
        report = {
            "outcomes": table_of(outcomes.get("local", [])),
            "s3a": table_of(outcomes.get("s3a", [])),
            "date": started.date().isoformat(),
            "quick": arguments.quick,
            "versions": {
                **{p: importlib.metadata.version(p) for p in ("commitlog-store", "pyspark", "pyarrow")},
                "python": platform.python_version(),
            },
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    for part in outcomes.values():
        show(part)


if __name__ == "__main__":
    main()
