"""What a store was seen to enforce, as a record that can be kept."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable

from attrs import asdict, evolve, field, fields, frozen, validators

from commitlog.errors import CommitError, CorruptRecord, FormatTooNew
from commitlog.stores.api import Condition, Dialect, IfAbsent, Versioning, WriteOperation
from commitlog.urls import bucket_of

__all__ = ["FORMAT", "Kind", "ProbeReport", "ProbeResult", "check_name"]

#: Newest format of a report as JSON. Format 2 has a kind that is proven only with bare etags, format 3
#: one that is proven only in a vendor's dialect. A client that reads only earlier formats would take
#: leases for that kind, and other clients would not.
FORMAT = 3


def check_name(check: str, dialect: Dialect) -> str:
    """Return the name of a check in a dialect.

    >>> check_name("race", Dialect.STANDARD), check_name("race", Dialect.OSS)
    ('race', 'race oss')
    """
    return check if dialect is Dialect.STANDARD else f"{check} {dialect.value}"


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
    def of(cls, operation: WriteOperation, condition: Condition) -> Kind | None:
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

    def checks_in(self, dialect: Dialect) -> frozenset[str]:
        """Return the names of the same checks, made in a dialect."""
        return frozenset(check_name(check, dialect) for check in self.checks)


_KINDS = {kind.value: kind for kind in Kind}


@frozen(kw_only=True)
class ProbeResult:
    """The result of one test of a probe.

    Attributes:
        kind: the kind of request.
        check: ``accept``: the condition holds; ``refuse``: it does not; ``refuse missing``: there is no
            object to match; ``race``: many requests at once, and one may win. In another dialect
            than the standard one, its name follows, see `check_name`.
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
        versioning: whether the bucket kept versions at the time of the probe, or None: not asked, or not
            known.

    >>> row = ProbeResult(
    ...     kind="fence", check="refuse", expected="RequestExpired", got="stored", ok=False)
    >>> report = ProbeReport(url="s3://bucket", rows=[row])
    >>> ProbeReport.from_json(report.to_json()) == report, report.proves(Kind.REQUEST_EXPIRY)
    (True, False)
    """

    url: str = field(validator=validators.instance_of(str))
    rows: tuple[ProbeResult, ...] = field(converter=_tuple)
    versioning: Versioning | None = None

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
        """Return whether all checks of that kind were made, and passed each time, in some dialect."""
        return bool(self.dialects(kind))

    def dialects(self, kind: Kind) -> tuple[Dialect, ...]:
        """Return the dialects in which the kind is proven, those to prefer first."""
        passed = {row.check for row in self.of(kind) if row.ok}
        passed -= {row.check for row in self.of(kind) if not row.ok}
        return tuple(dialect for dialect in Dialect if kind.checks_in(dialect) <= passed)

    def needs_bare(self, kind: Kind) -> bool:
        """Return whether the kind is proven only with bare etags, as on Ceph."""
        return self.dialects(kind)[:1] == (Dialect.BARE,)

    def of(self, kind: Kind) -> tuple[ProbeResult, ...]:
        """Return the tests of that kind."""
        return tuple(row for row in self.rows if row.kind is kind)

    def with_rows(self, rows: tuple[ProbeResult, ...]) -> ProbeReport:
        """Return the report with these rows added."""
        return evolve(self, rows=self.rows + rows)

    def to_json(self) -> str:
        """Return the report as a JSON object."""
        rows = [{**asdict(row), "kind": row.kind.value} for row in self.rows]
        first = [found[0] for kind in Kind if (found := self.dialects(kind))]
        format = 3 if any(each.is_vendors for each in first) else 2 if Dialect.BARE in first else 1
        value: dict[str, object] = {"format": format, "url": self.url, "rows": rows}
        if self.versioning is not None:
            value["versioning"] = self.versioning.value
        return json.dumps(value, indent=2)

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
            state = value.get("versioning")
            versioning = None if state is None else Versioning(state)
            return cls(url=value["url"], rows=known, versioning=versioning)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise CorruptRecord(f"this is not a probe report: {error}") from error
