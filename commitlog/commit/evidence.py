"""What is known of a store's conduct: measured once, and agreed upon by all who share a table.

A probe costs hundreds of requests, and two probes of a store that fails only in some races may
disagree. So where there is a table, the first finding about a bucket is kept in it, and every other
client of that table goes by it. ``commitlog probe --table`` replaces what is kept.

Imports the ground floor, the ports and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from attrs import evolve

from commitlog.commit.bucket import BUCKETS, Bucket
from commitlog.commit.probe import Mapper, probe
from commitlog.commit.verdict import Kind, Row, Verdict
from commitlog.errors import ConfigurationError, CorruptRecord, OutcomeUnknown, Unavailable
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Absent, ConditionFailed, Item, Key, Table, TableCondition

__all__ = ["FINDINGS", "Evidence", "Findings"]

#: What the hash keys of findings start with. No object's path can: it has a segment ``..``.
FINDINGS = BUCKETS.hash


class Findings:
    """What probes found, kept in a table of leases, an item for each bucket and kind. Thread-safe.

    Args:
        table: where (`commitlog.commit.record.LEASE_SCHEMA`).
        store: whose conduct it is; all prefixes of a bucket share their findings.
        bucket: tells under which URL the findings of the bucket are kept: that of the client which came
            first. Its endpoint may be spelled in another way than that of `store`.
        check: makes sure that the table fits; called before each use, so it has to remember that it did.

    The items have no TTL: clients that went by a finding must not meet others that go by a new one. They
    hold strings and numbers alone, as all items of such a table have to.
    """

    def __init__(
        self, table: Table, store: ObjectStore, *, bucket: Bucket, check: Callable[[], None]
    ) -> None:
        self._table = table
        self._store = store
        self._check = check
        self._bucket = bucket

    def get(self, kind: Kind) -> tuple[Row, ...]:
        """Return what is kept of `kind`; nothing, if it was never measured.

        Raises `CorruptRecord`, and what `Bucket.name` does.
        """
        self._check()
        item = self._table.get(Key(FINDINGS + self._url(kind), kind.value))
        return () if item is None else self._rows(item, kind)

    def agree(self, kind: Kind, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """Keep `rows` unless there are others by now; return what is kept.

        Raises `Unavailable` if that cannot be told.
        """
        try:
            self._put(kind, rows, Absent())
        except (ConditionFailed, OutcomeUnknown) as error:
            kept = self.get(kind)
            if not kept:
                raise Unavailable(
                    f"what was found of {self._bucket.url} could not be kept in the table ({error}); "
                    "nothing was sent, try again"
                ) from error
            return kept
        return rows

    def replace(self, verdict: Verdict) -> None:
        """Keep all of `verdict`, whatever was kept before.

        Do it while no writer is at work: some would go on as they began. Raises `ConfigurationError` if
        it is of another bucket.
        """
        _check_bucket(verdict, self._store)
        self._check()
        self._bucket.renew()
        for kind in Kind:
            if verdict.measured(kind):
                self._put(kind, verdict.of(kind), None)

    def _put(self, kind: Kind, rows: tuple[Row, ...], condition: TableCondition | None) -> None:
        self._check()
        url = self._url(kind)
        verdict = Verdict(url=url, rows=rows).to_json()
        item: Item = {"path": FINDINGS + url, "etag": kind.value, "verdict": verdict}
        self._table.put(item, condition=condition)

    def _url(self, kind: Kind) -> str:
        """Return the URL under which findings of that kind are kept.

        Whether an expired request is refused may depend on the way that it takes (a proxy may sign it
        again), and clients need not agree on it to exclude one another.
        """
        return self._bucket.url if kind is Kind.FENCE else self._bucket.name()

    def _rows(self, item: Item, kind: Kind) -> tuple[Row, ...]:
        text = item.get("verdict")
        try:
            if not isinstance(text, str):
                raise CorruptRecord("it is no text")
            rows = Verdict.from_json(text).rows
            if not rows or any(row.kind is not kind for row in rows):
                raise CorruptRecord("it has no rows, or some of another kind")
        except CorruptRecord as error:
            raise CorruptRecord(
                f"what was found about {kind.value} of {self._bucket.url} is corrupt in the table "
                f"({error}); nothing was sent. Stop the writers, and run 'commitlog probe --table' again"
            ) from error
        return rows


class Evidence:
    """What is known of a store's conduct, measured when it is first asked for. Thread-safe.

    Args:
        store: the store.
        verdict: what was measured before, or None. It spares measuring; what is kept goes before it.
            `ConfigurationError` is raised if it is of another bucket.
        findings: what all clients of a table go by, or None.
        executor: opens what races are run on, see `probe`; without it nothing is ever proven.
        words: makes words that nobody else ever makes.
        lock: entered while something is found out, so that threads which ask at the same time measure
            once. Without one each measures, on paths of its own, and all go by what is found first.
    """

    def __init__(
        self,
        store: ObjectStore,
        verdict: Verdict | None,
        *,
        findings: Findings | None,
        executor: Callable[[], AbstractContextManager[Mapper]] | None,
        words: Callable[[], str],
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        if verdict is not None:
            _check_bucket(verdict, store)
        self._store = store
        self._lock = nullcontext() if lock is None else lock
        #: What all clients of the table go by, or None.
        self.findings = findings
        self._executor = executor
        self._words = words
        self._given = Verdict(url=store.url, rows=()) if verdict is None else verdict
        # Entries are only ever added, each in one step, so that no thread can undo another's.
        self._found: dict[Kind, tuple[Row, ...]] = {}
        self._proven: dict[Kind, bool] = {}
        self._bare: dict[Kind, bool] = {}

    @property
    def verdict(self) -> Verdict:
        """All that is known so far."""
        found = dict(self._found)
        rows = (row for kind in Kind for row in found.get(kind) or self._given.of(kind))
        return evolve(self._given, rows=rows)

    def proves(self, kind: Kind) -> bool:
        """Tell whether the store does right by requests of that kind.

        Nothing is measured where the implementation itself sees to it.
        """
        if self._store.capabilities.enforced:
            return True
        if kind not in self._proven:
            with self._lock:
                if kind not in self._found:
                    self._found.setdefault(kind, self._find(kind))
            self._proven[kind] = self.verdict.proves(kind)
        return self._proven[kind]

    def needs_bare(self, kind: Kind) -> bool:
        """Tell whether the store enforces that kind with bare etags alone."""
        if self._store.capabilities.enforced or not self.proves(kind):
            return False
        if kind not in self._bare:
            self._bare[kind] = self.verdict.needs_bare(kind)
        return self._bare[kind]

    def _find(self, kind: Kind) -> tuple[Row, ...]:
        """Return what goes for all clients: what is kept, else what was given, else what is measured."""
        kept = () if self.findings is None else self.findings.get(kind)
        given = self._given.of(kind)
        rows = kept or given or self._measure(kind)
        # A measurement without races proves nothing, and must not stand in the way of one with them.
        if self.findings is None or kept or not (given or self._executor):
            return rows
        return self.findings.agree(kind, rows)

    def _measure(self, kind: Kind) -> tuple[Row, ...]:
        with nullcontext() if self._executor is None else self._executor() as executor:
            return probe(self._store, kinds=[kind], executor=executor, words=self._words).rows


def _check_bucket(verdict: Verdict, store: ObjectStore) -> None:
    """Raise `ConfigurationError` if `verdict` tells of another bucket than that of `store`.

    What a store enforces by itself is not up to any verdict.
    """
    if not store.capabilities.enforced and not verdict.is_of(store.url):
        raise ConfigurationError(
            f"the verdict is of {verdict.url}, but the store is {store.url}, which may ignore what the "
            "other one honours. Probe it, too, or name bucket and endpoint as they were for the probe"
        )
