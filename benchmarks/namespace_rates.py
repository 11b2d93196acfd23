"""Operations per second of one client, of eight processes and of eight threads, and of JuiceFS.

A process opens its own connections to each namespace, before any time is taken; the threads of a process
share them. All clients work in one directory at the same time. Each round measures every case once, in a
shuffled order, and a ratio is the median of the ratios within a round.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any, Self

from attrs import frozen
from measure import ratio
from namespace_juicefs import JUICEFS, JUICEFS_CONTENT, JuicefsVolume
from namespace_sites import Site, fill, made_up

from commitlog._util.ids import random_id
from commitlog.namespace import Namespace
from commitlog.testing.processes import ProcessOwner

__all__ = ["BODY", "LISTED", "Case", "Crew", "RateSizes", "measure_rates"]

#: Files of the listed directory.
LISTED = 1_000

BODY = b"x" * 256

_PROCESSES, _THREADS = "processes", "threads"

#: The kinds and operations of JuiceFS that are measured.
_OF_JUICEFS = ((JUICEFS, "write"), (JUICEFS, "link"), (JUICEFS_CONTENT, "write"))


@frozen(kw_only=True)
class RateSizes:
    """Sizes of the measurement.

    Attributes:
        clients: number of clients that work at the same time, compared with one.
        shards: numbers of shards of the directory.
        seconds: duration of one measurement.
        rounds: measurements of each case.
    """

    clients: int
    shards: Sequence[int]
    seconds: float
    rounds: int


def _write(lake: Namespace, directory: str) -> None:
    lake.write(f"{directory}/{random_id()}", BODY, parents=False)


def _link(lake: Namespace, directory: str) -> None:
    name = random_id()
    lake.link(f"{directory}/{name}", made_up(name), parents=False)


def _stat(lake: Namespace, directory: str) -> None:
    lake.stat(f"{directory}/part-000007")


def _list(lake: Namespace, directory: str) -> None:
    assert sum(1 for _ in lake.list(directory)) == LISTED


#: The operation and its directory. New files are in a different directory from the files looked up.
_OPERATIONS: dict[str, tuple[Callable[[Namespace, str], None], str]] = {
    "write": (_write, "new"),
    "link": (_link, "new"),
    "stat": (_stat, "old"),
    "list": (_list, "old"),
}
#: The operations that change something: only they differ if there is a log.
_CHANGES = ("write", "link")


@frozen(kw_only=True)
class Case:
    """What is measured.

    Attributes:
        kind: kind of the site, or `JUICEFS`, or `JUICEFS_CONTENT`.
        log: whether the namespace keeps a log.
        operation: the operation.
        clients: number of clients that work at the same time.
        of: whether the clients are ``processes`` or ``threads`` of one process.
        shards: number of shards of the directory.
    """

    kind: str
    log: bool
    operation: str
    clients: int
    of: str
    shards: int


def _serve(sites: Sequence[Site], orders: Connection) -> None:
    """Measure as ordered, in a process of its own, until there are no more orders."""
    with ExitStack() as stack:
        lakes = [site.open() for site in sites]
        for lake in lakes:
            stack.callback(lake.close)
        while (order := orders.recv()) is not None:
            number, operation, directory, threads, seconds = order
            work, lake = _OPERATIONS[operation][0], lakes[number]
            lake.stat(directory)  # opens the connection, and reads the directory
            orders.send("ready")
            orders.recv()
            orders.send(_rate_of_threads(lambda: work(lake, directory), threads, seconds))  # noqa: B023


def _rate_of_threads(work: Callable[[], None], threads: int, seconds: float) -> float:
    rates: list[float] = []

    def repeat() -> None:
        count, start = 0, time.perf_counter()
        now = start
        while now < start + seconds:
            work()
            count += 1
            now = time.perf_counter()
        # Each counts with its own time, so that a slow last call does not reduce the rate of others.
        rates.append(count / (now - start))

    if threads == 1:
        repeat()
    else:
        running = [threading.Thread(target=repeat) for _ in range(threads)]
        for each in running:
            each.start()
        for each in running:
            each.join()
    assert len(rates) == threads, "a thread has failed"
    return sum(rates)


class Crew(ProcessOwner):
    """Processes that have opened the same sites, and work when they are told to.

    Args:
        sites: the sites.
        processes: number of processes.
    """

    def __init__(self, sites: Sequence[Site], processes: int) -> None:
        self._sites = sites
        self._count = processes
        self._orders: list[Connection] = []
        self._processes: list[Any] = []

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # Clients share no state.
        for _ in range(self._count):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(self._sites, theirs), daemon=True)
            process.start()
            theirs.close()  # so that the death of a process is noticed
            self._orders.append(ours)
            self._processes.append(process)

    def stop(self) -> None:
        """End the processes. Idempotent."""
        for process in self._processes:
            process.terminate()
            process.join()
        self._processes.clear()

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def rate(
        self, number: int, operation: str, shards: int, *, processes: int, threads: int, seconds: float
    ) -> float:
        """Return the operations per second of all clients together in a site, given its number."""
        directory = f"{_OPERATIONS[operation][1]}-{shards}"
        at_work = self._orders[:processes]
        for each in at_work:
            each.send((number, operation, directory, threads, seconds))
        for each in at_work:
            each.recv()
        for each in at_work:
            each.send("go")
        return sum(each.recv() for each in at_work)


def measure_rates(
    sites: Mapping[tuple[str, bool], tuple[Site, Namespace]],
    sizes: RateSizes,
    say: Callable[[str], None],
    *,
    juicefs: JuicefsVolume | None = None,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure all cases; return one row for each, and the ratios.

    Args:
        sites: site and namespace, by kind of the site and whether the namespace keeps a log.
        sizes: the sizes.
        say: is told of the progress.
        juicefs: a volume of JuiceFS to compare with; None: it is left out.
    """
    numbers = {place: number for number, place in enumerate(sites)}
    cases = list(_cases(sites, sizes))
    if juicefs is not None:
        cases += [
            Case(kind=kind, log=False, operation=operation, clients=clients, of=_THREADS, shards=1)
            for kind, operation in _OF_JUICEFS
            if kind == JUICEFS or juicefs.waits
            for clients in (1, sizes.clients)
        ]
    for _, lake in sites.values():
        for shards in sizes.shards:
            fill(lake, f"old-{shards}", LISTED, shards=shards)
            lake.make_directory(f"new-{shards}", shards=shards)
    rates: dict[Case, list[float]] = {case: [] for case in cases}
    order = random.Random(1)
    with Crew([site for site, _ in sites.values()], sizes.clients) as crew:

        def measure(case: Case, seconds: float) -> float:
            if juicefs is not None and case.kind == JUICEFS_CONTENT:
                return juicefs.copies_per_second(threads=case.clients, body=BODY, seconds=seconds)
            if juicefs is not None and case.kind == JUICEFS:
                size = len(BODY) if case.operation == "write" else 0
                return juicefs.creations_per_second(threads=case.clients, size=size, seconds=seconds)
            threads = case.of == _THREADS
            return crew.rate(
                numbers[case.kind, case.log],
                case.operation,
                case.shards,
                processes=1 if threads else case.clients,
                threads=case.clients if threads else 1,
                seconds=seconds,
            )

        for case in cases:  # each process does its one-time work, such as opening connections
            measure(case, 0.01)
        for number in range(sizes.rounds):
            say(f"rates, round {number + 1} of {sizes.rounds}: {len(cases)} cases")
            for case in order.sample(cases, len(cases)):
                rates[case].append(measure(case, sizes.seconds))
    rows = [
        {
            "site": case.kind,
            "log": case.log,
            "operation": case.operation,
            "clients": case.clients,
            "of": case.of,
            "shards": case.shards,
            "per_second": round(statistics.median(found), 1),
        }
        for case, found in rates.items()
    ]
    return rows, _ratios(rates, sizes)


def _cases(sites: Mapping[tuple[str, bool], object], sizes: RateSizes) -> list[Case]:
    cases = []
    for kind, log in sites:
        for operation in _CHANGES if log else _OPERATIONS:
            for shards in sizes.shards[:1] if log else sizes.shards:
                for clients, of in (
                    (1, _PROCESSES),
                    (sizes.clients, _PROCESSES),
                    (sizes.clients, _THREADS),
                ):
                    cases.append(
                        Case(
                            kind=kind,
                            log=log,
                            operation=operation,
                            clients=clients,
                            of=of,
                            shards=shards,
                        )
                    )
    return cases


def _ratios(rates: Mapping[Case, list[float]], sizes: RateSizes) -> dict[str, float]:
    """Return the ratios: several clients to one, with a log to without, with a log to JuiceFS."""

    def found(kind: str, operation: str, clients: int, of: str, *, log: bool = False) -> list[float]:
        shards = sizes.shards[0]
        case = Case(kind=kind, log=log, operation=operation, clients=clients, of=of, shards=shards)
        return rates.get(case, [])

    ratios: dict[str, float] = {}
    most = sizes.clients
    kinds = {case.kind for case in rates if case.kind not in (JUICEFS, JUICEFS_CONTENT)}
    for kind in sorted(kinds):
        for operation in _OPERATIONS:
            one = found(kind, operation, 1, _PROCESSES)
            for of, name in ((_PROCESSES, "clients"), (_THREADS, "threads")):
                several = found(kind, operation, most, of)
                ratios[f"{operation}_rate_{most}_{name}_over_1_{kind}"] = ratio(several, one)
        for operation in _CHANGES:
            for clients, of, name in (
                (most, _THREADS, ""),
                (most, _PROCESSES, "_processes"),
                (1, _PROCESSES, "_1_client"),
            ):
                logged = found(kind, operation, clients, of, log=True)
                if logged:
                    without = found(kind, operation, clients, of)
                    name = f"{operation}_with_log_over_without_{kind}{name}"
                    ratios[name] = ratio(logged, without)
    for kind, operation in _OF_JUICEFS:
        for clients, name in ((most, ""), (1, "_1_client")):
            theirs = found(kind, operation, clients, _THREADS)
            of = _THREADS if clients > 1 else _PROCESSES
            mine = found("sqlite", operation, clients, of, log=True)
            if theirs and mine:
                what = "juicefs_sqlite" if kind == JUICEFS else "juicefs_content_sqlite"
                ratios[f"{operation}_with_log_over_{what}{name}"] = ratio(mine, theirs)
    return {name: round(value, 3) for name, value in ratios.items()}
