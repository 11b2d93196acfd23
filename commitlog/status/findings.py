"""The kinds of findings, and the reports in which they are.

The names of kinds are part of the interface: scripts, metrics and alerts use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from attrs import field, frozen, validators

from commitlog.commit.holding import Holding
from commitlog.ingest import Backlog, SourceStatus
from commitlog.namespace import NamespaceInspection
from commitlog.outputs import OutputHistory, OutputInspection

__all__ = [
    "FINDING_KINDS",
    "FindingKind",
    "LeaseInspection",
    "LookSettings",
    "Report",
    "SourceInspection",
    "SourcesInspection",
    "StatusFinding",
    "TargetKind",
]

#: What a look can be at. leases: a table of leases. ingest: a table with the state of sources.
TargetKind: TypeAlias = Literal["output", "namespace", "leases", "ingest"]


@frozen(kw_only=True)
class LookSettings:
    """The ages from which a look reports something, and the bound of its cost. Ages are in seconds.

    Attributes:
        dead_after: a job without a sign of life for so long is dead; see `Output.recover`.
        publish_within: a committed job is published within this time, if its driver is alive.
        stale_after: replaced files, garbage, trash and uploads of a namespace are removed within this
            time, if the collection runs often enough.
        pending_after: a change that is pending in the log of a namespace for so long is overdue.
        max_lag: a file waits no longer for a query that reads a source.
        max_log: number of old decisions in the log of a namespace from which it should be compacted.
        lease_ttl: the setting `ttl` of the writers that use leases.
        skew_rate: the setting `max_clock_skew_rate` of clients that wait for leases.
        limit: most items of each listing that are read.
        full: read every listing to its end, and list the files of outputs and the input of sources.
        history: number of records at the end of the log of an output that are read for its history; 0:
            no history.

    Raises `ValueError` for a negative age or history, or a bound below 1.
    """

    dead_after: float = field(default=86_400.0, validator=validators.ge(0))
    publish_within: float = field(default=600.0, validator=validators.ge(0))
    stale_after: float = field(default=7 * 86_400.0, validator=validators.ge(0))
    pending_after: float = field(default=3600.0, validator=validators.ge(0))
    max_lag: float = field(default=3600.0, validator=validators.ge(0))
    max_log: int = field(default=10_000, validator=validators.ge(1))
    lease_ttl: float = field(default=3600.0, validator=validators.ge(0))
    skew_rate: float = field(default=3.0, validator=validators.ge(1))
    limit: int = field(default=10_000, validator=validators.ge(1))
    full: bool = False
    history: int = field(default=0, validator=validators.ge(0))

    @property
    def bound(self) -> int | None:
        """The most items of each listing; None for no bound."""
        return None if self.full else self.limit


@frozen(kw_only=True)
class FindingKind:
    """A kind of finding.

    Attributes:
        name: its name, which does not change.
        targets: the kinds of targets that can have it.
        meaning: what it means, and what is lost if nothing is done.
    """

    name: str
    targets: tuple[TargetKind, ...]
    meaning: str


def _kinds(*kinds: FindingKind) -> Mapping[str, FindingKind]:
    return MappingProxyType({kind.name: kind for kind in kinds})


#: The kinds of findings by name.
FINDING_KINDS: Mapping[str, FindingKind] = _kinds(
    FindingKind(
        name="dead-job",
        targets=("output", "namespace"),
        meaning="A job that is not committed shows no sign of life. Its files take space; readers do not"
        " see them.",
    ),
    FindingKind(
        name="unpublished-job",
        targets=("output",),
        meaning="A job is committed, and its driver did not publish its files in time. Listings lack"
        " files of it. If something else removes its uploads, its rows are lost.",
    ),
    FindingKind(
        name="abandoned-uploads",
        targets=("output", "namespace"),
        meaning="Uploads that no program will complete take space. No listing of objects shows them.",
    ),
    FindingKind(
        name="garbage",
        targets=("output", "namespace"),
        meaning="Objects that no reader needs any more take space: the collection does not run.",
    ),
    FindingKind(
        name="trash",
        targets=("namespace",),
        meaning="Deleted files and directories take space: the collection does not run.",
    ),
    FindingKind(
        name="damaged-record",
        targets=("output", "namespace", "leases", "ingest"),
        meaning="A stored record cannot be read, or contradicts another one. It was left unchanged.",
    ),
    FindingKind(
        name="log-drift",
        targets=("namespace",),
        meaning="Changes are pending in the log, though their clients ended: a restore could not tell"
        " whether they happened.",
    ),
    FindingKind(
        name="long-log",
        targets=("namespace",),
        meaning="The log has many old changes: a restore takes longer than it has to.",
    ),
    FindingKind(
        name="fenced",
        targets=("namespace",),
        meaning="The log belongs to another table, into which the namespace was restored. This table"
        " cannot be changed.",
    ),
    FindingKind(
        name="missing-store",
        targets=("namespace",),
        meaning="The store lacks the object that identifies it: it is not mounted, or another store.",
    ),
    FindingKind(
        name="overdue-lease",
        targets=("leases",),
        meaning="A lease was not released in time: its holder has died, or does not know its outcome, or"
        " clocks disagree. The next writer of that key waits.",
    ),
    FindingKind(
        name="ingest-lag",
        targets=("ingest",),
        meaning="A file waits for too long: the query is stopped, or does not keep up.",
    ),
    FindingKind(
        name="quarantined",
        targets=("ingest",),
        meaning="Some input could not be read, and was not delivered.",
    ),
    FindingKind(
        name="unreachable-input",
        targets=("ingest",),
        meaning="The input of a source cannot be listed, so its lag is not known.",
    ),
)


@frozen(kw_only=True)
class StatusFinding:
    """A finding of a look.

    Attributes:
        kind: name of its kind.
        count: number of jobs, uploads, objects, changes, leases, files or records.
        bytes: their size; None if it is not known.
        age: age in seconds of the oldest; None if it is not known.
        text: details in one line, for people.
        command: the command line to run next.
        source: id of the source that has it; only for a table with the state of sources.
    """

    kind: str = field(validator=validators.in_(FINDING_KINDS))
    count: int
    bytes: int | None = None
    age: float | None = None
    text: str
    command: str
    source: str | None = None


@frozen(kw_only=True)
class LeaseInspection:
    """A table of leases.

    Attributes:
        now: epoch seconds by the clock of this machine.
        format: format of the table; None if it has no version marker.
        held: number of leases that are held, not overdue.
        overdue: leases that are older than their timeout and not released, the oldest first.
        released: number of released leases whose records are still in the table.
        damage: messages about records that cannot be read.
        complete: whether the whole table was read.
    """

    now: float
    format: int | None
    held: int
    overdue: tuple[Holding, ...]
    released: int
    damage: tuple[str, ...]
    complete: bool


@frozen(kw_only=True)
class SourceInspection:
    """A source of ingest.

    Attributes:
        status: its status from the state table.
        url: URL of its input; None if no query has stored it.
        backlog: the waiting files; None if the input was not listed.
        lag: age in seconds of the oldest waiting file that was listed, or 0; None if the input was not
            listed.
        unreachable: the message if the input could not be listed; None if it was.
    """

    status: SourceStatus
    url: str | None
    backlog: Backlog | None
    lag: float | None
    unreachable: str | None = None


@frozen(kw_only=True)
class SourcesInspection:
    """A table with the state of sources.

    Attributes:
        now: epoch seconds by the clock of this machine.
        format: format of the table; None if it has no version marker.
        sources: its sources, sorted by id.
        damage: messages about records that cannot be read.
        complete: whether the whole table, and every input, was read.
    """

    now: float
    format: int | None
    sources: tuple[SourceInspection, ...]
    damage: tuple[str, ...]
    complete: bool


def _in_order(findings: Iterable[StatusFinding]) -> tuple[StatusFinding, ...]:
    kinds = list(FINDING_KINDS)
    return tuple(sorted(findings, key=lambda each: (kinds.index(each.kind), each.source or "")))


@frozen(kw_only=True)
class Report:
    """The result of a look at one target.

    Attributes:
        url: URL of the target, without credentials.
        kind: the kind of the target.
        inspection: what was found there.
        findings: what needs attention, in the order of `FINDING_KINDS`.
        history: the last commits of an output, with `LookSettings.history`; else None.
    """

    url: str
    kind: TargetKind
    inspection: OutputInspection | NamespaceInspection | LeaseInspection | SourcesInspection
    findings: tuple[StatusFinding, ...] = field(converter=_in_order)
    history: OutputHistory | None = None
