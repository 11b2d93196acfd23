"""Failures of jobs on S3: drivers that are killed while they complete uploads, and speculative tasks."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from fault_jobs import (
    ALL,
    BASE,
    COMPLETED,
    COMPLETING,
    COMPLETING_FILES,
    append_by_id,
    books,
    when,
)
from fault_outcomes import Outcome
from fault_sites import Place, S3aSite
from measure import kind_of
from s3a_spark import FAULT_COMMITTERS, S3aCommitter, S3aWriter, settings_of, spark_jars
from servers import Seaweedfs

from commitlog.spark import committer_jar
from commitlog.testing.proxy import Hazard, Proxy, ProxyFault
from support.spark_cluster import Cluster, Gate, Visitor

__all__ = ["CompletionGate", "killed_completing", "s3a_site", "two_jobs_with_speculation"]


#: Rows of each job with speculative attempts: more than Spark buffers between a file and a Python
#: worker, so that the file is open when the task waits.
_SPECULATED = 40_000


@contextlib.contextmanager
def s3a_site(top: Path) -> Iterator[tuple[S3aSite, CompletionGate]]:
    """Start a server and a proxy in front of it; yield the site, and the gate for uploads."""
    # The latency lets a reader look between two uploads that a driver completes.
    with Seaweedfs() as server, Proxy(server.endpoint_url, latency={"PUBLISH": 0.1}) as proxy:
        buckets = {committer.name: server.new_bucket() for committer in FAULT_COMMITTERS}
        settings = settings_of(server, proxy, FAULT_COMMITTERS, buckets)
        site = S3aSite(str(top), server.options, settings, buckets)
        completing = {buckets[each.name] for each in FAULT_COMMITTERS if each.completes}
        yield site, CompletionGate(proxy, completing)


class CompletionGate:
    """Holds the jobs of `COMPLETING` once they have completed `COMPLETED` uploads.

    Args:
        proxy: the proxy; it holds further requests forever.
        buckets: the buckets of these jobs.
    """

    def __init__(self, proxy: Proxy, buckets: set[str]) -> None:
        self._proxy = proxy
        self._prefixes = [f"/{bucket}/{COMPLETING}/" for bucket in buckets]
        for prefix in self._prefixes:
            # A fault without a delay precedes the hazard. The rows before the job are an upload, too.
            fault = ProxyFault(kind="PUBLISH", action="delay", path=prefix, times=1 + COMPLETED)
            proxy.inject(fault)
        forever = Hazard(
            kinds=("PUBLISH",), action="delay", rate=1, path=f"/{COMPLETING}/", seconds=(3_600, 3_600)
        )
        proxy.endanger([forever])
        self._seen: Counter[str] = Counter()

    def wait(self) -> None:
        """Return once all jobs are held."""
        when(self._all_held, "the uploads that are held")

    def _all_held(self) -> bool:
        for request in self._proxy.requests():
            if kind_of(request) == "complete upload":
                self._seen.update(prefix for prefix in self._prefixes if f" {prefix}" in request)
        return all(self._seen[prefix] > 1 + COMPLETED for prefix in self._prefixes)

    def open(self) -> None:
        """Let all later requests pass. Those that are held stay so."""
        self._proxy.endanger([])


def killed_completing(writer: S3aWriter, place: Place) -> list[Outcome]:
    """Check an append whose driver was killed with some uploads completed, then run it again."""
    # Either the old rows are right, or all of them.
    after, all_rows = books(place, range(BASE)), books(place, ALL)
    whole = not (after.lost or after.surplus) or not (all_rows.lost or all_rows.surplus)
    outcomes = [
        Outcome(
            scenario="a driver that completes uploads is killed: a reader that lists",
            writer=writer.name,
            found=f"{after.rows} rows, of {BASE} or {len(ALL)}",
            right=whole,
        )
    ]
    if writer.logged:
        files = place.logged()
        outcomes.append(
            Outcome(
                scenario="… a reader of the log",
                writer=writer.name,
                found="all or nothing" if files in (1, 1 + COMPLETING_FILES) else f"{files} files",
                right=files in (1, 1 + COMPLETING_FILES),
            )
        )
    append_by_id(writer, place)
    found = books(place, ALL)
    outcomes.append(
        Outcome(
            scenario="… and the job is run again, with its id",
            writer=writer.name,
            found=f"{found}, of {len(ALL)}",
            right=not (found.lost or found.surplus),
        )
    )
    return outcomes


def two_jobs_with_speculation(site: S3aSite, say: Callable[[str], None]) -> list[Outcome]:
    """Let two applications append to one directory at once, on clusters with speculative execution."""
    say("starting two clusters")
    with contextlib.ExitStack() as stack:
        clusters = []
        for name in ("first", "second"):
            scratch = site.top / name
            scratch.mkdir()
            jars = ",".join([spark_jars(), str(committer_jar())])
            conf = {**site.settings, "spark.commitlog.python": sys.executable}
            clusters.append(stack.enter_context(Cluster(scratch, jars, conf)))
        outcomes = []
        for committer in FAULT_COMMITTERS:
            say(f"speculation: {committer.name}")
            outcomes.append(_speculate(*clusters, committer, site))
        return outcomes


def _speculate(first: Cluster, second: Cluster, committer: S3aCommitter, site: S3aSite) -> Outcome:
    """Commit the first job while both attempts at a task of the second are writing."""
    path = "speculation"
    url = f"s3a://{site.buckets[committer.name]}/{path}"
    with Gate() as gate, Gate() as other:
        for cluster, at in ((first, gate), (second, other)):
            cluster.save(
                at,
                source="parquet",
                url=url,
                options={},
                rows=_SPECULATED,
                conf=dict(committer.settings),
            )
        loser, winner = first.visitor(gate), first.visitor(gate)
        waiting = second.visitor(other), second.visitor(other)
        winner.let_go_on()
        errors = [first.answer()]
        loser.let_go_on()
        for visitor in waiting:
            visitor.let_go_on()
        # If these attempts fail, others come.
        threading.Thread(target=_let_all_go_on, args=(other,), daemon=True).start()
        errors.append(second.answer())
        for cluster in (first, second):
            cluster.settle()
    for visitor in (loser, winner, *waiting):
        visitor.__exit__()
    return _outcome_of_two(site, committer, path, [error for error in errors if error])


def _let_all_go_on(gate: Gate) -> None:
    with contextlib.suppress(OSError):  # the gate is closed
        while True:
            Visitor(gate.socket.accept()[0]).let_go_on()


def _outcome_of_two(site: S3aSite, committer: S3aCommitter, path: str, errors: list[str]) -> Outcome:
    found = Counter(site.prefix(committer.name, path, hidden=committer.hidden).numbers())
    lost = sum(max(0, 2 - found[number]) for number in range(_SPECULATED))
    surplus = found.total() - (2 * _SPECULATED - lost)
    causes = [re.findall(r"Caused by: [\w.$]*?(\w+)[:\n]", error) for error in errors]
    names = ", ".join(
        each[-1] if each else error[:80] for each, error in zip(causes, errors, strict=True)
    )
    reports = f"{len(errors)} of 2 fails ({names})" if errors else "both report success"
    return Outcome(
        scenario="two jobs append at once, with speculative attempts",
        writer=committer.name,
        found=f"{found.total()} rows, of {2 * _SPECULATED}; {reports}",
        right=not (errors or lost or surplus),
    )


def _cause(error: str) -> str:
    """Return the name of the first cause in a stack trace of Java."""
    causes = re.findall(r"Caused by: [\w.$]*?(\w+)(?::|$)", error, re.M)
    return causes[-1] if causes else error.partition("\n")[0][:80]
