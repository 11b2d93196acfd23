"""Probe results of a store: measured once, and shared by all clients of a table.

A probe costs hundreds of requests, and two probes of a store that fails only in some races may
disagree. So the first result for a bucket is kept in the table, if there is one, and all other clients
of the table use it. ``commitlog probe --table`` replaces the kept results.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from attrs import evolve

from commitlog._util.concurrency import OpenExecutor
from commitlog.clock import Clock
from commitlog.commit.bucket_identity import BUCKETS, BucketIdentity
from commitlog.commit.probe import probe
from commitlog.commit.probe_report import Kind, ProbeReport, ProbeResult
from commitlog.errors import ConfigurationError, CorruptRecord, OutcomeUnknown, Unavailable
from commitlog.stores.api import Dialect, IfAbsent, IfMatch, ObjectStore, Versioning, WriteOperation
from commitlog.tables.api import Absent, ConditionFailed, Item, Key, Table, TableCondition

__all__ = ["FINDINGS", "ProbeCache", "StoredReports"]

#: Prefix of the hash keys of results. No path of an object can have it: it has a segment ``..``.
FINDINGS = BUCKETS.hash


class StoredReports:
    """Probe results in a table of leases, an item for each bucket and kind. Thread-safe.

    Args:
        table: the table (`commitlog.commit.record.LEASE_SCHEMA`).
        store: the probed store; all prefixes of a bucket share their results.
        bucket: gives the URL under which the results of the bucket are kept: that of the first client.
            Its endpoint may be spelled differently from that of `store`.
        check: makes sure that the table fits; called before each use, so it must remember that it did.

    The items have no TTL: clients that use one result must not meet others that use a new one. They
    hold only strings and numbers, as all items of such a table must.
    """

    def __init__(
        self, table: Table, store: ObjectStore, *, bucket: BucketIdentity, check: Callable[[], None]
    ) -> None:
        self._table = table
        self._store = store
        self._check = check
        self._bucket = bucket

    def get(self, kind: Kind) -> tuple[ProbeResult, ...]:
        """Return the kept results of `kind`; empty if it was never measured.

        Raises `CorruptRecord`, and the errors of `BucketIdentity.name`.
        """
        self._check()
        kept = self._kept(kind)
        return () if kept is None else kept.rows

    def report(self) -> ProbeReport:
        """Return all kept results; without rows if nothing was measured. Errors as `get`."""
        self._check()
        found = [kept for kind in Kind if (kept := self._kept(kind)) is not None]
        states = (kept.versioning for kept in found if kept.versioning is not None)
        rows = (row for kept in found for row in kept.rows)
        return ProbeReport(url=self._bucket.url, rows=rows, versioning=next(states, None))

    def agree(
        self, kind: Kind, rows: tuple[ProbeResult, ...], *, versioning: Versioning | None = None
    ) -> tuple[ProbeResult, ...]:
        """Keep `rows` unless results are already kept; return the kept ones.

        Raises `Unavailable` if the outcome is not known.
        """
        try:
            self._put(kind, rows, Absent(), versioning)
        except (ConditionFailed, OutcomeUnknown) as error:
            kept = self.get(kind)
            if not kept:
                raise Unavailable(
                    f"the probe results of {self._bucket.url} could not be stored in the table "
                    f"({error}); nothing was sent, try again"
                ) from error
            return kept
        return rows

    def replace(self, probe_report: ProbeReport) -> None:
        """Keep all of `probe_report` in place of earlier results.

        Do this while no writer is active: some would continue with the earlier results. Raises
        `ConfigurationError` if the report is of another bucket.
        """
        _check_bucket(probe_report, self._store)
        self._check()
        self._bucket.renew()
        for kind in Kind:
            if probe_report.measured(kind):
                self._put(kind, probe_report.of(kind), None, probe_report.versioning)

    def _kept(self, kind: Kind) -> ProbeReport | None:
        item = self._table.get(Key(FINDINGS + self._url(kind), kind.value))
        return None if item is None else self._parse(item, kind)

    def _put(
        self,
        kind: Kind,
        rows: tuple[ProbeResult, ...],
        condition: TableCondition | None,
        versioning: Versioning | None,
    ) -> None:
        self._check()
        url = self._url(kind)
        probe_report = ProbeReport(url=url, rows=rows, versioning=versioning).to_json()
        item: Item = {"path": FINDINGS + url, "etag": kind.value, "verdict": probe_report}
        self._table.put(item, condition=condition)

    def _url(self, kind: Kind) -> str:
        """Return the URL under which results of that kind are kept.

        Whether an expired request is refused may depend on its route (a proxy may sign it again), and
        clients need not agree on it to exclude one another.
        """
        return self._bucket.url if kind is Kind.REQUEST_EXPIRY else self._bucket.name()

    def _parse(self, item: Item, kind: Kind) -> ProbeReport:
        text = item.get("verdict")
        try:
            if not isinstance(text, str):
                raise CorruptRecord("it is not text")
            kept = ProbeReport.from_json(text)
            if not kept.rows or any(row.kind is not kind for row in kept.rows):
                raise CorruptRecord("it has no rows, or some of another kind")
        except CorruptRecord as error:
            raise CorruptRecord(
                f"the probe results for {kind.value} of {self._bucket.url} are corrupt in the table "
                f"({error}); nothing was sent. Stop the writers, and run 'commitlog probe --table' again"
            ) from error
        return kept


class ProbeCache:
    """Results of probes of a store, measured on first use. Thread-safe.

    Args:
        store: the store.
        probe_report: an earlier measurement, or None. It saves the probe; results in the table take
            precedence. `ConfigurationError` is raised if it is of another bucket.
        findings: the results that all clients of a table share, or None.
        open_executor: opens an executor for races, see `probe`; without it nothing is ever proven.
        new_id: makes unique ids.
        clock: times races; the system's by default.
        lock: held during a measurement, so that threads which ask at the same time measure once.
            Without it each thread measures, on its own paths, and all use the first result.
    """

    def __init__(
        self,
        store: ObjectStore,
        probe_report: ProbeReport | None,
        *,
        findings: StoredReports | None,
        open_executor: OpenExecutor | None,
        new_id: Callable[[], str],
        clock: Clock | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        if probe_report is not None:
            _check_bucket(probe_report, store)
        self._store = store
        self._lock = nullcontext() if lock is None else lock
        #: The results that all clients of the table share, or None.
        self.findings = findings
        self._open_executor = open_executor
        self._new_id = new_id
        self._clock = clock
        self._initial = ProbeReport(url=store.url, rows=()) if probe_report is None else probe_report
        # Entries are only added, each in one step, so no thread can undo the change of another.
        self._found: dict[Kind, tuple[ProbeResult, ...]] = {}
        self._dialects: dict[Kind, Dialect | None] = {}
        self._versioning = self._initial.versioning

    @property
    def report(self) -> ProbeReport:
        """All results known so far."""
        found = dict(self._found)
        rows = (row for kind in Kind for row in found.get(kind) or self._initial.of(kind))
        return evolve(self._initial, rows=rows, versioning=self._versioning)

    def proves(self, kind: Kind) -> bool:
        """Return whether the store handles requests of that kind correctly, in some dialect.

        Nothing is measured if the implementation itself enforces it. Raises `ConfigurationError` if the
        kind is proven, but only in dialects that the store was opened without.
        """
        return self.dialect(kind) is not None

    def dialect(self, kind: Kind) -> Dialect | None:
        """Return the dialect for conditions of that kind; None if none is proven. See `proves`."""
        if self._store.capabilities.enforced:
            return Dialect.STANDARD
        if kind not in self._dialects:
            with self._lock:
                if kind not in self._found:
                    self._found.setdefault(kind, self._find(kind))
            self._dialects[kind] = self._choose(kind)
        return self._dialects[kind]

    def _choose(self, kind: Kind) -> Dialect | None:
        proven = self.report.dialects(kind)
        operation, _, wanted = kind.value.partition("-if-")
        if not wanted or not proven:
            return next(iter(proven), None)
        condition = IfAbsent if wanted == "absent" else IfMatch
        spoken = self._store.capabilities.dialects_of(WriteOperation(operation), condition)
        for dialect in proven:
            if dialect in spoken:
                return dialect
        # The other clients of the table rely on the store, so this one cannot take leases instead.
        raise ConfigurationError(
            f"by the probe report, {self._store.url} honours {kind.label} with dialect="
            f"{proven[0].value}, and it was opened with dialect={spoken[0].value}; nothing was sent. "
            "Leave the option out, or probe the store with it"
        )

    def _find(self, kind: Kind) -> tuple[ProbeResult, ...]:
        """Return the results for all clients: from the table, else the initial report, else measured."""
        kept = () if self.findings is None else self.findings.get(kind)
        initial = self._initial.of(kind)
        rows = kept or initial or self._measure(kind)
        # A measurement without races proves nothing, and must not prevent one with races.
        if self.findings is None or kept or not (initial or self._open_executor):
            return rows
        return self.findings.agree(kind, rows, versioning=self._versioning)

    def _measure(self, kind: Kind) -> tuple[ProbeResult, ...]:
        with nullcontext() if self._open_executor is None else self._open_executor() as executor:
            report = probe(
                self._store, kinds=[kind], executor=executor, new_id=self._new_id, clock=self._clock
            )
        if report.versioning is not None:
            self._versioning = report.versioning
        return report.rows


def _check_bucket(probe_report: ProbeReport, store: ObjectStore) -> None:
    """Raise `ConfigurationError` if `probe_report` is of another bucket than that of `store`.

    A probe report does not affect conditions that the store enforces by itself.
    """
    if not store.capabilities.enforced and not probe_report.is_of(store.url):
        raise ConfigurationError(
            f"the probe report is of {probe_report.url}, but the store is {store.url}, which may "
            "ignore what the other one honours. Probe it, too, or name bucket and endpoint as they were "
            "for the probe"
        )
