#!/usr/bin/env python
"""The effect of failing jobs on rows: with Spark's own committer, and with ours.

    ./run bench faults [--quick] [--json FILE]

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
from typing import Any

from attrs import frozen
from fault_jobs import (
    BASE,
    ROWS,
    Books,
    Gate,
    begin_base,
    books,
    contenders,
    directory_of,
    numbers,
    session,
    tasks_done,
    when,
)
from spark_writers import Writer, listed_files

import commitlog
from commitlog.outputs import Output

#: Files of the watched job, each in a partition directory of its own.
WATCHED_PARTITIONS = 100

ALL = range(BASE + ROWS)


@frozen(kw_only=True)
class Outcome:
    """The outcome of one scenario with one writer.

    Attributes:
        scenario: the event.
        writer: name of the writer.
        found: the observed state, as text.
        right: whether the observed state is correct.
    """

    scenario: str
    writer: str
    found: str
    right: bool


def failing_overwrite(writer: Writer, path: Path) -> Outcome:
    """Fail one task of an overwriting job, after the other two tasks are done."""
    begin_base(writer, path)
    gate = Gate.new(path.with_suffix(".gate"), task=2)
    with _running(
        lambda: writer.write(numbers(writer, BASE, gate), path, mode="overwrite"), gate
    ) as job:
        _until_held(gate, job)
        when(lambda: tasks_done(writer.session) == 2, "the other tasks")
        gate.open("fail")
        assert job.exception() is not None, "the job was to fail"
    found = books(path, range(BASE))
    return Outcome(
        scenario="a job that overwrites fails",
        writer=writer.name,
        found=_old_and_new(found),
        right=not (found.lost or found.surplus),
    )


def concurrent_appends(writer: Writer, path: Path) -> Outcome:
    """Run a second job to its end while the first job is in the middle of a task."""
    begin_base(writer, path)
    before = _first_files(path)
    gate = Gate.new(path.with_suffix(".gate"), task=0)
    with _running(lambda: writer.write(numbers(writer, BASE, gate), path), gate) as job:
        _until_held(gate, job)
        if writer.opens_first:
            when(lambda: _first_files(path) > before, "the file of the task that is held")
        writer.write(numbers(writer, BASE + ROWS), path)
        gate.open()
        error = job.exception()
    found = books(path, range(BASE + 2 * ROWS))
    said = "both report success" if error is None else f"one fails ({_short(error)})"
    return Outcome(
        scenario="two jobs append at once",
        writer=writer.name,
        found=f"{found}, of {BASE + 2 * ROWS}; {said}",
        right=error is None and not (found.lost or found.surplus),
    )


def _first_files(path: Path) -> int:
    """Return the number of files of first tasks, visible or not."""
    return sum(1 for _ in path.rglob("part-00000-*.parquet"))


def killed_append(writer: Writer, path: Path) -> list[Outcome]:
    """Check an append whose driver was killed with two of three tasks done, then run it again."""
    after = books(path, range(BASE))
    writer.write(numbers(writer, BASE), path)
    found = books(path, ALL)
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


def killed_overwrite(writer: Writer, path: Path) -> list[Outcome]:
    """Check an overwrite whose driver was killed with two of three tasks done, then run it again."""
    after = books(path, range(BASE))
    writer.write(numbers(writer, BASE), path, mode="overwrite")
    found = books(path, range(BASE, BASE + ROWS))
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


def reading_meanwhile(writer: Writer, path: Path) -> list[Outcome]:
    """Read repeatedly while a job of many files is committed."""
    frame = writer.session.range(0, WATCHED_PARTITIONS, 1, 1).selectExpr("id", "id as part")
    listed: set[int] = set()
    logged: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            listed.add(len(listed_files(path)))
            if writer.logged:
                logged.add(_files_by_log(path))

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            writer.write(frame, path, partition_by=["part"])
        finally:
            over.set()
        looking.result()
    found = books(path, range(WATCHED_PARTITIONS))
    assert not (found.lost or found.surplus), str(found)
    outcomes = [_seen("a reader that lists, during a job", writer, listed)]
    if writer.logged:
        assert _files_by_log(path) == WATCHED_PARTITIONS
        outcomes.append(_seen("a reader of the log, during a job", writer, logged))
    return outcomes


def _files_by_log(path: Path) -> int:
    with commitlog.connect(str(path)) as store:
        return len(Output(store).snapshot(roll_forward=False).files)


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
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"[:80]


@contextlib.contextmanager
def _doomed_driver(top: Path) -> Iterator[Callable[[], None]]:
    """Start a driver. Yield a function that kills it once all of its jobs are held."""
    driver = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fault_jobs.py")), str(top)],
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

    def kill_when_ready() -> None:
        assert driver.stdout is not None
        line = driver.stdout.readline()
        kill()
        assert line == "ready\n", "the driver that was to be killed has failed; its error is on stderr"

    try:
        yield kill_when_ready
    finally:
        kill()


def _run(top: Path, rounds: int, say: Callable[[str], None]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with _doomed_driver(top) as kill:
        say("starting Spark twice")
        scratch = top / "main"
        scratch.mkdir()
        spark = session(scratch)
        try:
            ways = contenders(spark)
            for turn in range(rounds):
                for writer in ways:
                    say(f"round {turn + 1}: {writer.name}")
                    for scenario in (failing_overwrite, concurrent_appends, reading_meanwhile):
                        path = directory_of(top, writer, f"{scenario.__name__}-{turn}")
                        path.parent.mkdir(exist_ok=True)
                        came = scenario(writer, path)
                        outcomes += came if isinstance(came, list) else [came]
            say("killing the driver of all the other jobs")
            kill()
            for writer in ways:
                say(f"after the kill: {writer.name}")
                outcomes += killed_append(writer, directory_of(top, writer, "killed-append"))
                outcomes += killed_overwrite(writer, directory_of(top, writer, "killed-overwrite"))
        finally:
            spark.stop()
    return outcomes


def main() -> None:
    """Run all scenarios, print the outcomes, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what came of it")
    arguments = parser.parse_args()
    started = datetime.datetime.now(datetime.UTC)

    def say(what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as scratch:
        outcomes = _run(Path(scratch), 1 if arguments.quick else 3, say)
    if arguments.json:
        report = {
            "outcomes": table_of(outcomes),
            "date": started.date().isoformat(),
            "quick": arguments.quick,
            "versions": {
                **{p: importlib.metadata.version(p) for p in ("commitlog-store", "pyspark", "pyarrow")},
                "python": platform.python_version(),
            },
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    _show(outcomes)


def table_of(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Return one row for each scenario and writer, with the outcome of its rounds."""
    cells: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        cells.setdefault((outcome.scenario, outcome.writer), []).append(outcome)
    return [
        {
            "scenario": scenario,
            "writer": writer,
            "rounds": len(cell),
            "wrong": sum(not outcome.right for outcome in cell),
            # Of several outcomes, report the worst.
            "found": min(cell, key=lambda outcome: outcome.right).found,
        }
        for (scenario, writer), cell in cells.items()
    ]


def _show(outcomes: list[Outcome]) -> None:
    """Print a Markdown table in which wrong outcomes are bold."""
    table = table_of(outcomes)
    ways = list(dict.fromkeys(row["writer"] for row in table))
    cells = {(row["scenario"], row["writer"]): row for row in table}
    print("| " + " | ".join(["scenario", *ways]) + " |")
    print("|---" * (1 + len(ways)) + "|")
    for scenario in dict.fromkeys(row["scenario"] for row in table):
        line = [_cell(cells.get((scenario, way))) for way in ways]
        print("| " + " | ".join([scenario, *line]) + " |")


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    if not row["wrong"]:
        return str(row["found"])
    times = f" ({row['wrong']} of {row['rounds']} times)" if row["rounds"] > 1 else ""
    return f"**{row['found']}**{times}"


if __name__ == "__main__":
    main()
