"""How leases are kept: the settings that a user gives, checked when they are given.

A settings record that exists is one under which the lease protocol's argument holds
(`commitlog.commit.lease`); a combination that breaks it is refused here.
"""

from __future__ import annotations

import os
import re

from attrs import field, frozen

from commitlog.errors import ConfigurationError
from commitlog.urls import Url, parse_table_url

__all__ = ["DynamoCommit", "LeaseSettings", "SqliteCommit", "parse_dynamo"]

#: A signed expiry counts whole seconds. A store may truncate its own clock to seconds, which costs one
#: second; truncating the rest of the lease costs up to one; and the request itself needs at least one.
MIN_TIMEOUT = 3.0

#: Seconds. Clients refuse records with larger numbers than 64 bits hold, so none must be written.
MAX_TTL = 1e12


@frozen(kw_only=True)
class LeaseSettings:
    """Settings for acquiring leases and for waiting for those of others. Thread-safe.

    Args:
        timeout: length of a lease in seconds, at least 3. It bounds one small request under the lease,
            not the upload of a large body. Longer: fewer renewals on a slow store; shorter: less
            waiting after a writer died.
        max_clock_skew_rate: how many times faster any clock (a writer's or the store's) may run than any
            other, at least 1. A waiter waits for the holder's timeout times this.
        ttl: seconds after which the table may drop a record, at least
            2 × timeout × max_clock_skew_rate: a record must outlive every client that has read it. At
            most 10¹².
        test_interval: seconds between two looks while waiting.
        max_wait: most seconds to wait for other holders before `LeaseTimeout`; None: as long as it
            takes, which for one dead holder is its timeout × max_clock_skew_rate.
        min_bandwidth: bytes of a request's body that reach the store in each second, at least. Requests
            that are sent at the same time share a link, so this is the link's rate divided by the number
            of writers that use it at once. Leases keep `reserve` seconds for a body, and bodies above
            `largest_body` are staged first, before the lease is taken. Infinite: bodies take no time.

    Raises:
        ConfigurationError: a value, or a relation between them, is out of range.

    >>> LeaseSettings(timeout=20.0, ttl=60.0)
    Traceback (most recent call last):
    commitlog.errors.ConfigurationError: ttl is 60.0 s; it must be at least 2 × timeout × ...
    """

    timeout: float = 20.0
    max_clock_skew_rate: float = 3.0
    ttl: float = 3600.0
    test_interval: float = 0.1
    max_wait: float | None = None
    min_bandwidth: float = 64 * 1024.0

    def __attrs_post_init__(self) -> None:
        if not MIN_TIMEOUT <= self.timeout < float("inf"):
            raise ConfigurationError(
                f"timeout is {self.timeout} s; it must be at least {MIN_TIMEOUT} s, for the expiry that "
                "the store enforces counts whole seconds"
            )
        if not 1 <= self.max_clock_skew_rate < float("inf"):
            raise ConfigurationError(
                f"max_clock_skew_rate is {self.max_clock_skew_rate}; it must be at least 1"
            )
        least = 2 * self.timeout * self.max_clock_skew_rate
        if not least <= self.ttl < float("inf"):
            raise ConfigurationError(
                f"ttl is {self.ttl} s; it must be at least 2 × timeout × max_clock_skew_rate = {least} s"
            )
        if self.ttl > MAX_TTL:
            raise ConfigurationError(f"ttl is {self.ttl} s; it must be at most {MAX_TTL:.0f} s")
        if not 0 < self.test_interval <= self.timeout:
            raise ConfigurationError(
                f"test_interval is {self.test_interval} s; it must be above 0 and at most timeout"
            )
        if self.max_wait is not None and not self.max_wait >= 0:
            raise ConfigurationError(f"max_wait is {self.max_wait} s; it must be 0 or more")
        if not self.min_bandwidth > 0:
            raise ConfigurationError(
                f"min_bandwidth is {self.min_bandwidth} bytes a second; it must be above 0"
            )

    @property
    def reserve(self) -> float:
        """The last seconds of a lease, in which no request is begun.

        A store checks the expiry of a request when the request begins. These seconds are for the rest of
        it: its body arrives in them, and the store applies it. They are an eighth of the timeout, or
        none if bodies take no time.
        """
        return 0.0 if self.min_bandwidth == float("inf") else self.timeout / 8

    @property
    def largest_body(self) -> float:
        """Bytes of the largest body that is sent under a lease; it arrives within `reserve`."""
        return self.min_bandwidth * self.timeout / 8

    def reserve_for(self, body: int) -> float:
        """Return the seconds to reserve for a request with a body of so many bytes."""
        return max(self.reserve, body / self.min_bandwidth)

    @property
    def timeout_ms(self) -> int:
        """The timeout as it is stored, in whole milliseconds."""
        return round(self.timeout * 1000)


@frozen  # what kw_only means for inherited fields depends on the version of attrs
class DynamoCommit(LeaseSettings):
    """Leases in a DynamoDB table, on whatever endpoint: every conditional call goes through one.

    Takes the settings of `LeaseSettings` and:

    Args:
        table: name of the table, the only positional argument.
        endpoint_url: endpoint of DynamoDB; default: that of the environment, never that of S3.
        region, profile, access_key_id, secret_access_key, session_token: likewise.

    The records are those of the Rust crate ``object_store`` up to 0.12 (``dynamo:TABLE``), so that its
    clients and ours exclude one another on one table.

    >>> DynamoCommit("commits", timeout=10.0).url
    'dynamodb://commits'
    """

    table: str
    endpoint_url: str | None = field(default=None, kw_only=True)
    region: str | None = field(default=None, kw_only=True)
    profile: str | None = field(default=None, kw_only=True)
    access_key_id: str | None = field(default=None, kw_only=True, repr=False)
    secret_access_key: str | None = field(default=None, kw_only=True, repr=False)
    session_token: str | None = field(default=None, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        parse_table_url(self.url)

    @property
    def url(self) -> str:
        """The table's URL, without options."""
        return f"dynamodb://{self.table}"

    @property
    def options(self) -> dict[str, str]:
        """The options that were given, as `commitlog.tables.open.open_table` takes them."""
        names = (
            "endpoint_url",
            "region",
            "profile",
            "access_key_id",
            "secret_access_key",
            "session_token",
        )
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@frozen
class SqliteCommit(LeaseSettings):
    """Leases in an SQLite file: for the processes of one machine, which share one clock.

    Takes the settings of `LeaseSettings` and:

    Args:
        file: path of the file, the only positional argument; it is made on first use. It must be on a
            disk of this machine, not on a network file system.

    >>> SqliteCommit("/data/commits.db").url
    'sqlite:///data/commits.db'
    """

    file: str = field(converter=os.fspath)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.file:
            raise ConfigurationError("SqliteCommit needs the path of a file")

    @property
    def url(self) -> str:
        """The table's URL."""
        return str(Url(scheme="sqlite", name=os.path.abspath(os.path.expanduser(self.file))))

    @property
    def options(self) -> dict[str, str]:
        """Always empty: SQLite has none."""
        return {}


def parse_dynamo(text: str) -> DynamoCommit:
    """Parse ``dynamo:TABLE`` or ``dynamo:TABLE:TIMEOUT_MS``, as ``object_store`` spells it.

    >>> parse_dynamo("dynamo:commits:30000").timeout
    30.0
    >>> parse_dynamo("dynamo:commits:soon")
    Traceback (most recent call last):
    commitlog.errors.ConfigurationError: commit 'dynamo:commits:soon': write dynamo:TABLE[:TIMEOUT_MS]
    """
    parts = text.split(":")
    if parts[0] != "dynamo" or len(parts) not in (2, 3) or not parts[1]:
        raise ConfigurationError(f"commit {text!r}: write dynamo:TABLE[:TIMEOUT_MS]")
    if len(parts) == 2:
        return DynamoCommit(parts[1])
    if not re.fullmatch("[0-9]{1,12}", parts[2]):
        raise ConfigurationError(f"commit {text!r}: write dynamo:TABLE[:TIMEOUT_MS]")
    timeout = int(parts[2]) / 1000
    defaults = LeaseSettings()
    # The crate has no setting for the TTL of so long a lease; a shorter one would void the argument.
    ttl = max(defaults.ttl, 2 * timeout * defaults.max_clock_skew_rate)
    return DynamoCommit(parts[1], timeout=timeout, ttl=ttl)
