"""One look at an output, a namespace, a table of leases or a table with the state of sources.

`look` takes an inspection, and applies the rules by which something needs attention. It only reads. Each
finding has the command to run next.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import closing

from commitlog._util.bounded import Bound
from commitlog.clock import Clock, SystemClock
from commitlog.commit.holding import Holding
from commitlog.commit.probe_cache import FINDINGS
from commitlog.commit.record import LEASE_SCHEMA, LOCKS, LeaseRecord
from commitlog.errors import (
    CommitError,
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    StateMismatch,
)
from commitlog.ingest import (
    INGEST_SCHEMA,
    Backlog,
    IngestAdmin,
    IngestSettings,
    SourceMetadata,
    StateTable,
)
from commitlog.ingest.source_state import STATE_KEY
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace, NamespaceInspection
from commitlog.outputs import AttemptStatus, Output, OutputInspection
from commitlog.paths import join
from commitlog.status.findings import (
    LeaseInspection,
    LookSettings,
    Report,
    SourceInspection,
    SourcesInspection,
    StatusFinding,
)
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.api import Item, Table, UnreadableItem
from commitlog.tables.rules import check_description

__all__ = ["look"]

_DEFAULTS = LookSettings()


def look(
    target: Output | Namespace | Table,
    *,
    url: str | None = None,
    settings: LookSettings = _DEFAULTS,
    open_input: Callable[[str], ObjectStore] = open_store,
    clock: Clock | None = None,
) -> Report:
    """Look at a target, and return what it is and what needs attention. Nothing is changed.

    Args:
        target: an output, a namespace, a table of leases, or a table with the state of sources.
        url: URL of the target for the report and its commands; by default that of the target itself.
        settings: ages and bounds.
        open_input: opens the store of a source from its URL, for reading; it is closed after its use.
        clock: the clock that the ages of leases and of waiting files are measured with.

    Cost: see `Output.inspect`, `Output.history` and `Maintenance.inspect`. Of a table, at most
    `LookSettings.limit` items are read, one request for each thousand; of a source also its problems,
    its remembered files, and at most `limit` objects of its input. With `LookSettings.full` there is no
    bound.

    Raises:
        NotFound: there is no such output, or no such namespace.
        FormatTooNew: a newer release wrote it: upgrade, and look again.
        ConfigurationError: a table is for something else.

    And the errors of stores and tables, such as `AccessDenied` and `TableNotFound`. Damaged records are
    findings.
    """
    clock = SystemClock() if clock is None else clock
    if isinstance(target, Output):
        return _look_at_output(target, url, settings)
    if isinstance(target, Namespace):
        return _look_at_namespace(target, url, settings)
    known = target.describe()
    if known.schema.key_names == INGEST_SCHEMA.key_names:
        check_description(known, INGEST_SCHEMA)
        return _look_at_sources(target, url or known.url, known.format, settings, open_input, clock)
    if known.schema.key_names == NAMESPACE_SCHEMA.key_names:
        raise ConfigurationError(
            f"{known.url} is a table of namespaces: look at commitlog://NAME, with this table as"
            " --metadata"
        )
    check_description(known, LEASE_SCHEMA)
    return _look_at_leases(target, url or known.url, known.format, settings, clock)


# -- outputs -------------------------------------------------------------------------------------------


def _look_at_output(output: Output, url: str | None, settings: LookSettings) -> Report:
    url = url or join(output.store.url.partition("?")[0], output.path)
    found = output.inspect(
        expire_after=settings.stale_after, limit=settings.bound, list_files=settings.full
    )
    if not found.exists:
        raise NotFound(f"there is no output at {url}, or no job has written to it yet")
    history = None
    if settings.history:
        history = output.history(last=settings.history, limit=settings.bound)
    findings = _of_output(found, url, settings)
    return Report(url=url, kind="output", inspection=found, findings=findings, history=history)


def _of_output(found: OutputInspection, url: str, settings: LookSettings) -> Iterator[StatusFinding]:
    recover = _command("output", "recover", url)
    late = [job for job in found.unpublished if found.now - job.time >= settings.publish_within]
    if late:
        versions = ", ".join(f"{job.version} (job {job.job_id!r})" for job in late[:3])
        yield StatusFinding(
            kind="unpublished-job",
            count=len(late),
            age=found.now - min(job.time for job in late),
            text=f"committed, but not published: version {versions}{_more(late, 3)}",
            command=recover,
        )
    # The uploads of a committed job that is not published are its files.
    mine = {job.attempt for job in found.unpublished}
    silent = [
        each
        for each in found.attempts
        if each.attempt not in mine and found.now - each.active >= settings.dead_after
    ]
    recover = _command("output", "recover", url, f"--older-than={settings.dead_after:g}s")
    dead = [each for each in silent if each.outcome == "open"]
    if dead:
        names = ", ".join(map(_name, dead[:3]))
        yield StatusFinding(
            kind="dead-job",
            count=len(dead),
            age=found.now - min(each.active for each in dead),
            text=f"no sign of life for {settings.dead_after:g} s: {names}{_more(dead, 3)}",
            command=recover,
        )
    abandoned = [each for each in silent if each.uploads]
    if abandoned:
        yield StatusFinding(
            kind="abandoned-uploads",
            count=sum(each.uploads for each in abandoned),
            age=found.now - min(each.began for each in abandoned),
            text=f"uploads of {len(abandoned)} attempts that will not be completed",
            command=recover,
        )
    if found.garbage_objects:
        yield StatusFinding(
            kind="garbage",
            count=found.garbage_objects,
            bytes=found.garbage_bytes,
            text=f"replaced, or left by dead jobs, more than {settings.stale_after:g} s ago",
            command=_command("output", "gc", url, f"--older-than={settings.stale_after:g}s"),
        )
    yield from _damage(found.damage, _command("output", "log", url))


def _name(attempt: AttemptStatus) -> str:
    return f"attempt {attempt.attempt}" if attempt.job_id is None else f"job {attempt.job_id!r}"


# -- namespaces ----------------------------------------------------------------------------------------


def _look_at_namespace(namespace: Namespace, url: str | None, settings: LookSettings) -> Report:
    found = namespace.maintenance.inspect(
        pending_after=settings.pending_after, stale_after=settings.stale_after, limit=settings.bound
    )
    return Report(
        url=url or f"commitlog://{namespace.name}",
        kind="namespace",
        inspection=found,
        findings=_of_namespace(found, namespace, settings),
    )


def _of_namespace(
    found: NamespaceInspection, namespace: Namespace, settings: LookSettings
) -> Iterator[StatusFinding]:
    def command(verb: str, *options: str) -> str:
        place = namespace.table.url.partition("?")[0]
        return _command("namespace", verb, namespace.name, *options, f"--metadata={place}")

    if found.missing_store is not None:
        yield StatusFinding(
            kind="missing-store",
            count=1,
            text=found.missing_store,
            command=command("describe"),
        )
    if found.fenced is not None:
        yield StatusFinding(kind="fenced", count=1, text=found.fenced, command=command("describe"))
    if found.log is not None and found.log.overdue:
        yield StatusFinding(
            kind="log-drift",
            count=found.log.overdue,
            age=found.log.oldest,
            text=f"changes that have been pending for {settings.pending_after:g} s or longer",
            command=command("recover", f"--older-than={settings.pending_after:g}s"),
        )
    if found.log is not None and found.log.settled >= settings.max_log:
        yield StatusFinding(
            kind="long-log",
            count=found.log.settled,
            text="decided changes that a compaction may fold into a checkpoint",
            command=command("compact"),
        )
    gc = command("gc")
    oldest = found.now - settings.stale_after
    dead = [active for active in found.jobs if active <= oldest]
    if dead:
        yield StatusFinding(
            kind="dead-job",
            count=len(dead),
            age=found.now - min(dead),
            text=f"jobs that were begun {settings.stale_after:g} s ago or earlier, and not published",
            command=gc,
        )
    if found.stale_uploads:
        yield StatusFinding(
            kind="abandoned-uploads",
            count=found.stale_uploads,
            text=f"uploads of content that were begun {settings.stale_after:g} s ago or earlier",
            command=gc,
        )
    if found.oldest_trash is not None and found.oldest_trash <= oldest:
        yield StatusFinding(
            kind="trash",
            count=found.trash,
            age=found.now - found.oldest_trash,
            text="files and directories are in the trash",
            command=gc,
        )
    if found.oldest_garbage is not None and found.oldest_garbage <= oldest:
        yield StatusFinding(
            kind="garbage",
            count=found.garbage_objects,
            bytes=found.garbage_bytes,
            age=found.now - found.oldest_garbage,
            text="objects without a file may be removed",
            command=gc,
        )
    yield from _damage(found.damage, command("fsck"))


# -- tables of leases ----------------------------------------------------------------------------------


def _look_at_leases(
    table: Table, url: str, format: int | None, settings: LookSettings, clock: Clock
) -> Report:
    now = clock.epoch()
    items = _Items(table, settings.bound)
    holdings: list[Holding] = []
    damage = items.damage
    for item in items:
        if str(item.get("path")).startswith((FINDINGS, LOCKS)):
            continue
        try:
            record = LeaseRecord.from_item(item)
        except CorruptRecord as error:
            damage.append(str(error))
            continue
        holdings.append(
            Holding.of(record, now=now, ttl=settings.lease_ttl, skew_rate=settings.skew_rate)
        )
    overdue = sorted((each for each in holdings if each.state == "overdue"), key=lambda each: -each.age)
    found = LeaseInspection(
        now=now,
        format=format,
        held=sum(each.state == "held" for each in holdings),
        overdue=tuple(overdue),
        released=sum(each.state == "released" for each in holdings),
        damage=tuple(damage),
        complete=items.bound.complete,
    )
    return Report(url=url, kind="leases", inspection=found, findings=_of_leases(found, url))


def _of_leases(found: LeaseInspection, url: str) -> Iterator[StatusFinding]:
    # A lease that can be reclaimed at once, and still was not: no client needs the key now.
    late = [each for each in found.overdue if each.age >= each.wait]
    if late:
        paths = [each.record.path for each in late]
        yield StatusFinding(
            kind="overdue-lease",
            count=len(late),
            age=late[0].age,
            text=f"the next writer waits for up to {max(each.wait for each in late):g} s:"
            f" {', '.join(map(repr, paths[:3]))}{_more(paths, 3)}",
            command=_command("lease", "break", url, *dict.fromkeys(paths[:10])),
        )
    yield from _damage(found.damage, _command("lease", "list", url))


# -- sources -------------------------------------------------------------------------------------------


def _look_at_sources(
    table: Table,
    url: str,
    format: int | None,
    settings: LookSettings,
    open_input: Callable[[str], ObjectStore],
    clock: Clock,
) -> Report:
    items = _Items(table, settings.bound)
    names = sorted(str(item["source"]) for item in items if item["item"] == STATE_KEY)
    damage = items.damage
    sources: list[SourceInspection] = []
    for name in names:
        try:
            sources.append(_inspect_source(table, name, settings, open_input, clock))
        except (CorruptRecord, StateMismatch) as error:
            damage.append(str(error))
    backlogs = [each.backlog for each in sources if each.backlog is not None]
    found = SourcesInspection(
        now=clock.epoch(),
        format=format,
        sources=tuple(sources),
        damage=tuple(damage),
        complete=items.bound.complete and all(each.complete for each in backlogs),
    )
    findings = [*_damage(damage, _command("ingest", "status", f"--state={url}"))]
    for each in sources:
        findings += _of_source(each, url, settings)
    return Report(url=url, kind="ingest", inspection=found, findings=findings)


def _inspect_source(
    table: Table,
    name: str,
    settings: LookSettings,
    open_input: Callable[[str], ObjectStore],
    clock: Clock,
) -> SourceInspection:
    metadata = StateTable(table, name).metadata()
    known = IngestSettings(source=name) if metadata is None else metadata.settings
    status = IngestAdmin(None, table, known, clock=clock).status()
    if metadata is None:
        return SourceInspection(status=status, url=None, backlog=None, lag=None)
    try:
        backlog = _backlog(table, metadata, settings, open_input, clock)
    except (CorruptRecord, FormatTooNew):
        raise
    except CommitError as error:
        return SourceInspection(
            status=status, url=metadata.url, backlog=None, lag=None, unreachable=str(error)
        )
    oldest = backlog.oldest
    lag = 0.0 if oldest is None else max(0.0, clock.epoch() - oldest.file.modified)
    return SourceInspection(status=status, url=metadata.url, backlog=backlog, lag=lag)


def _of_source(found: SourceInspection, url: str, settings: LookSettings) -> Iterator[StatusFinding]:
    name = found.status.source

    def files(option: str) -> str:
        return _command("ingest", "files", name, f"--state={url}", option)

    if found.status.problems:
        kinds = found.status.problems_by_kind.items()
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds if count)
        yield StatusFinding(
            kind="quarantined",
            count=found.status.problems,
            text=f"source {name!r} did not deliver some input: {counts}",
            command=files("--problems"),
            source=name,
        )
    if found.backlog is not None and found.lag is not None and found.lag > settings.max_lag:
        oldest = found.backlog.oldest
        path = "" if oldest is None else f"; the oldest is {oldest.file.path!r}"
        yield StatusFinding(
            kind="ingest-lag",
            count=found.backlog.files,
            bytes=found.backlog.bytes,
            age=found.lag,
            text=f"files wait for source {name!r}{path}",
            command=files("--waiting"),
            source=name,
        )
    if found.unreachable is not None:
        yield StatusFinding(
            kind="unreachable-input",
            count=1,
            text=f"source {name!r}: {found.unreachable}",
            command=files("--waiting"),
            source=name,
        )


def _backlog(
    table: Table,
    metadata: SourceMetadata,
    settings: LookSettings,
    open_input: Callable[[str], ObjectStore],
    clock: Clock,
) -> Backlog:
    with closing(open_input(metadata.url)) as store:
        admin = IngestAdmin(store, table, metadata.settings, clock=clock)
        return admin.backlog(limit=settings.bound)


# -- shared --------------------------------------------------------------------------------------------


class _Items:
    """The items of a table, up to a bound, and messages about those that cannot be read."""

    def __init__(self, table: Table, limit: int | None) -> None:
        self.bound = Bound(limit)
        self.damage: list[str] = []
        self._table = table

    def __iter__(self) -> Iterator[Item]:
        return self.bound.take(self._table.scan(unreadable=self._note))

    def _note(self, found: UnreadableItem) -> None:
        self.damage.append(found.reason)


def _damage(messages: Iterable[str], command: str) -> Iterator[StatusFinding]:
    found = list(messages)
    if found:
        yield StatusFinding(
            kind="damaged-record",
            count=len(found),
            text=f"{found[0]}{_more(found, 1)}",
            command=command,
        )


def _more(things: Sized, shown: int) -> str:
    count = len(things) - shown
    return f", and {count} more" if count > 0 else ""


def _command(*arguments: str) -> str:
    return shlex.join(("commitlog", *arguments))
