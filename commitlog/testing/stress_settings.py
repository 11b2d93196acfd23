"""What a stress run is to be like. Imports errors, URLs, and what is known of stores."""

from __future__ import annotations

from attrs import field, frozen, validators

from commitlog.commit.conditional import Mode
from commitlog.commit.verdict import Verdict
from commitlog.errors import ConfigurationError
from commitlog.urls import Url, parse_store_url, parse_table_url

__all__ = ["Stress"]


def _store_url(value: str | Url) -> Url:
    return parse_store_url(value) if isinstance(value, str) else value


def _table_url(value: str | Url | None) -> Url | None:
    return parse_table_url(value) if isinstance(value, str) else value


@frozen(kw_only=True)
class Stress:
    """What a run is to be like.

    Attributes:
        store: an S3 store or a local directory. A bucket at an ``http://`` endpoint is reached through
            the fault-injecting proxy; at any other, workers are killed and stopped, and that is all.
        table: where leases are, or None to rest on the store's own conditions. It is created if need
            be. For DynamoDB as for the store.
        mode: as of `ConditionalStore`. Without a table it has to be ``native``.
        seconds: how long faults go on. The last writes and the judging come on top.
        workers: how many processes work at the same time.
        foreign: how many of them are clients of the crate ``object_store``, through obstore; with
            ``lease`` and a store and table at ``http://`` endpoints. Nothing fences them off, and they
            may be held up for a second: a `skew` of 2 leaves them time.
        seed: what the plan is drawn from.
        timeout, skew: `LeaseSettings.timeout` and `LeaseSettings.max_clock_skew_rate`.
        rate: share of requests that each sort of fault strikes; 0 for none.
        interval: seconds from one signal to the next, on average.
        grace: seconds after the last fault within which every worker has to have written every path.
        verdict: what is taken for known of the store; what it does is measured by default.
        whole_reads: as of `RecordedStore`.

    Raises `ConfigurationError` for what does not go together.
    """

    store: Url = field(converter=_store_url)
    table: Url | None = field(default=None, converter=_table_url)
    mode: Mode = "lease"
    seconds: float = field(default=10.0, validator=validators.gt(0))
    workers: int = field(default=4, validator=validators.ge(1))
    foreign: int = 0
    seed: int = 0
    timeout: float = 3.0
    skew: float = 1.5
    rate: float = field(default=0.02, validator=[validators.ge(0), validators.le(1)])
    interval: float = field(default=1.0, validator=validators.gt(0))
    grace: float = field(default=60.0, validator=validators.gt(0))
    verdict: Verdict | None = None
    whole_reads: bool = True

    def __attrs_post_init__(self) -> None:
        if self.store.scheme == "memory" or (self.table and self.table.scheme == "memory"):
            raise ConfigurationError("processes share no memory: give a store and a table that they do")
        if (self.table is None) != (self.mode == "native"):
            raise ConfigurationError("a table goes with mode 'lease' or 'auto', none with 'native'")
        if not 0 <= self.foreign <= self.workers:
            raise ConfigurationError("foreign must be between 0 and the number of workers")
        if self.foreign and (self.mode != "lease" or None in (self.store_address, self.table_address)):
            raise ConfigurationError(
                "foreign writers need mode 'lease', and S3 and DynamoDB at http:// endpoints"
            )

    def is_foreign(self, worker: int) -> bool:
        """Tell whether the worker of that number, counted from 0, is a foreign one: the last are."""
        return worker >= self.workers - self.foreign

    @property
    def store_address(self) -> str | None:
        """Where a proxy can stand before the store, or None."""
        return _address(self.store) if self.store.scheme == "s3" else None

    @property
    def table_address(self) -> str | None:
        """Where a proxy can stand before the table, or None."""
        return None if self.table is None else _address(self.table)


def _address(url: Url) -> str | None:
    endpoint = url.options.get("endpoint_url", "")
    return endpoint if endpoint.startswith("http://") else None
