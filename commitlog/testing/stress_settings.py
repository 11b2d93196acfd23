"""Settings of a stress run."""

from __future__ import annotations

from attrs import field, frozen, validators

from commitlog.commit.conditional import Mode
from commitlog.commit.probe_report import ProbeReport
from commitlog.errors import ConfigurationError
from commitlog.urls import Url, parse_store_url, parse_table_url

__all__ = ["Stress"]


def _store_url(value: str | Url) -> Url:
    return parse_store_url(value) if isinstance(value, str) else value


def _table_url(value: str | Url | None) -> Url | None:
    return parse_table_url(value) if isinstance(value, str) else value


@frozen(kw_only=True)
class Stress:
    """The settings of a run.

    Attributes:
        store: an S3 store or a local directory. If the endpoint begins with ``http://``, workers reach
            the store through the fault-injecting proxy. Otherwise the only faults are killed and stopped
            workers.
        table: the table of the leases, or None to use the store's own conditions. The run creates the
            table if it does not exist. The proxy serves DynamoDB under the same condition as the store.
        mode: the mode of `ConditionalStore`. Without a table it must be ``native``.
        seconds: for how long faults are injected. The final writes and the check take additional time.
        workers: number of concurrent processes.
        foreign: how many workers are clients of the crate ``object_store``, through obstore. They need
            the mode ``lease``, and a store and a table at ``http://`` endpoints. No expiry fences their
            requests, and a stop may last a second: a `skew` of 2 gives them enough time.
        seed: seed of the plan.
        timeout, skew: `LeaseSettings.timeout` and `LeaseSettings.max_clock_skew_rate`.
        rate: the share of requests that each sort of fault strikes; 0 injects none.
        interval: average number of seconds between two signals.
        grace: number of seconds after the last fault in which every worker must write every path.
        probe_report: the known properties of the store. By default, the run probes the store.
        whole_reads: the argument of `RecordedStore`.

    Raises `ConfigurationError` if settings contradict each other.
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
    probe_report: ProbeReport | None = None
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
        """Return whether worker `worker`, counted from 0, is foreign. The last workers are."""
        return worker >= self.workers - self.foreign

    @property
    def store_address(self) -> str | None:
        """The address of the store for the proxy, or None if the proxy cannot serve it."""
        return _address(self.store) if self.store.scheme == "s3" else None

    @property
    def table_address(self) -> str | None:
        """The address of the table for the proxy, or None if the proxy cannot serve it."""
        return None if self.table is None else _address(self.table)


def _address(url: Url) -> str | None:
    endpoint = url.options.get("endpoint_url", "")
    return endpoint if endpoint.startswith("http://") else None
