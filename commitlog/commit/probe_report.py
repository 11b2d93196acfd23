"""What a store was seen to enforce, as a record that can be kept."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable

from attrs import asdict, evolve, field, fields, frozen, validators

from commitlog.errors import CommitError, CorruptRecord, FormatTooNew
from commitlog.stores.api import Condition, IfAbsent, Operation
from commitlog.urls import bucket_of

__all__ = ["BARE", "FORMAT", "Kind", "ProbeReport", "ProbeResult"]

#: Newest format of a report as JSON. Format 2 has a kind that is proven only with bare etags. A client
#: that reads only format 1 would take leases for that kind, and other clients would not.
FORMAT = 2


#: The end of the name of a check with a bare etag, without quotes.
BARE = " bare"


class Kind(enum.Enum):
    """A kind of request whose conditions are measured."""

    PUT_IF_ABSENT = "put-if-absent"
    PUT_IF_MATCH = "put-if-match"
    COPY_IF_ABSENT = "copy-if-absent"
    PUBLISH_IF_ABSENT = "publish-if-absent"
    PUBLISH_IF_MATCH = "publish-if-match"
    DELETE_IF_MATCH = "delete-if-match"
    REQUEST_EXPIRY = "fence"

    @classmethod
    def of(cls, operation: Operation, condition: Condition) -> Kind | None:
        """Return the kind of a request, or None if it is never measured."""
        suffix = "absent" if isinstance(condition, IfAbsent) else "match"
        return _KINDS.get(f"{operation.value}-if-{suffix}")

    @property
    def label(self) -> str:
        """The name that is shown to users. The value is the name in stored reports.

        >>> Kind.REQUEST_EXPIRY.label, Kind.REQUEST_EXPIRY.value
        ('request-expiry', 'fence')
        """
        return self.name.lower().replace("_", "-")

    @property
    def checks(self) -> frozenset[str]:
        """The checks that all have to come out right before the kind is relied on."""
        if self is Kind.REQUEST_EXPIRY:
            return frozenset({"accept", "refuse"})
        if self.value.endswith("absent"):
            return frozenset({"accept", "refuse", "race"})
        return frozenset({"accept", "refuse", "refuse missing", "race"})

    @property
    def bare_checks(self) -> frozenset[str]:
        """The same checks, made with etags without their quotes."""
        return frozenset(check + BARE for check in self.checks)


_KINDS = {kind.value: kind for kind in Kind}


@frozen(kw_only=True)
class ProbeResult:
    """The result of one test of a probe.

    Attributes:
        kind: the kind of request.
        check: ``accept``: the condition holds; ``refuse``: it does not; ``refuse missing``: there is no
            object to match; ``race``: many requests at once, and one may win. With `BARE` at its
            end: the etag has no quotes.
        expected: the expected outcome, as text.
        got: the actual outcome.
        ok: whether the outcome is as expected.
    """

    kind: Kind = field(converter=Kind)
    check: str = field(validator=validators.instance_of(str))
    expected: str = field(validator=validators.instance_of(str))
    got: str = field(validator=validators.instance_of(str))
    ok: bool = field(validator=validators.instance_of(bool))


def _tuple(rows: Iterable[ProbeResult]) -> tuple[ProbeResult, ...]:
    return tuple(rows)


@frozen(kw_only=True)
class ProbeReport:
    """The results of a probe of one store. Measure again after an upgrade of the store.

    Attributes:
        url: URL of the probed store, without credentials.
        rows: the tests.

    >>> row = ProbeResult(
    ...     kind="fence", check="refuse", expected="RequestExpired", got="stored", ok=False)
    >>> report = ProbeReport(url="s3://bucket", rows=[row])
    >>> ProbeReport.from_json(report.to_json()) == report, report.proves(Kind.REQUEST_EXPIRY)
    (True, False)
    """

    url: str = field(validator=validators.instance_of(str))
    rows: tuple[ProbeResult, ...] = field(converter=_tuple)

    def is_of(self, url: str) -> bool:
        """Return whether the report is of the bucket at `url`, by the same endpoint and any prefix.

        >>> report = ProbeReport(url="s3://bucket/a?region=eu-west-1", rows=())
        >>> report.is_of("s3://bucket"), report.is_of("s3://bucket?endpoint_url=http://host:9")
        (True, False)
        """
        if self.url == url:
            return True
        try:
            return bucket_of(self.url) == bucket_of(url)
        except CommitError:
            return False

    def measured(self, kind: Kind) -> bool:
        """Return whether there are results of that kind."""
        return bool(self.of(kind))

    def proves(self, kind: Kind) -> bool:
        """Return whether all checks of that kind were made, and passed each time.

        They passed with quoted etags, or with bare ones (`needs_bare`).
        """
        return self._passes(kind, kind.checks) or self._passes(kind, kind.bare_checks)

    def needs_bare(self, kind: Kind) -> bool:
        """Return whether the kind is proven only with bare etags, as on Ceph."""
        return self.proves(kind) and not self._passes(kind, kind.checks)

    def _passes(self, kind: Kind, checks: frozenset[str]) -> bool:
        passed = {row.check for row in self.of(kind) if row.ok}
        failed = {row.check for row in self.of(kind) if not row.ok}
        return checks <= passed - failed

    def of(self, kind: Kind) -> tuple[ProbeResult, ...]:
        """Return the tests of that kind."""
        return tuple(row for row in self.rows if row.kind is kind)

    def with_rows(self, rows: tuple[ProbeResult, ...]) -> ProbeReport:
        """Return the report with these rows added."""
        return evolve(self, rows=self.rows + rows)

    def to_json(self) -> str:
        """Return the report as a JSON object."""
        rows = [{**asdict(row), "kind": row.kind.value} for row in self.rows]
        format = FORMAT if any(self.needs_bare(kind) for kind in Kind) else 1
        return json.dumps({"format": format, "url": self.url, "rows": rows}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> ProbeReport:
        """Return the report that `to_json` has made. Unknown fields are ignored.

        Raises `CorruptRecord` and `FormatTooNew`.
        """
        try:
            value = json.loads(text)
            format = value["format"]
            if type(format) is not int or format < 1:
                raise ValueError(f"its format is {format!r}")
            if format > FORMAT:
                raise FormatTooNew(f"the probe report has format {format}; this library reads {FORMAT}")
            rows = value["rows"]
            if not isinstance(rows, list):
                raise ValueError("its rows are not a list")
            names = [attribute.name for attribute in fields(ProbeResult)]
            known = [ProbeResult(**{name: row[name] for name in names}) for row in rows]
            return cls(url=value["url"], rows=known)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise CorruptRecord(f"this is not a probe report: {error}") from error
