"""`PriceTable`: the prices of one region at a date, and the price of a usage."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from attrs import field, frozen, validators

from commitlog.errors import ConfigurationError
from pricing.usage import Usage

__all__ = ["US_EAST_1", "Billing", "PriceTable"]

#: How a table of DynamoDB is billed.
Billing: TypeAlias = Literal["on-demand", "provisioned"]

#: Hours and seconds of a month, as AWS counts them.
_MONTH_HOURS = 730
_MONTH_SECONDS = _MONTH_HOURS * 3600

_GB = 10**9


def _price() -> Any:
    return field(converter=float, validator=[validators.ge(0.0), validators.lt(inf)])


@frozen(kw_only=True)
class PriceTable:
    """Prices in US dollars. A table of your own region, or of your contract, can replace `US_EAST_1`.

    Attributes:
        region: the region.
        date: the date of the newest price, as ``YYYY-MM-DD``.
        sources: where each service publishes its prices.
        s3_put_per_thousand: PUT, COPY, POST and LIST requests to S3 Standard.
        s3_get_per_thousand: GET and all other requests.
        dynamodb_write_per_million: write request units on demand.
        dynamodb_read_per_million: read request units on demand.
        dynamodb_wcu_hour: a provisioned write capacity unit.
        dynamodb_rcu_hour: a provisioned read capacity unit.
        dynamodb_gb_month: a stored GB.
        dynamodb_free_gb: stored GB without a price, once for all tables of an account and region.
        dynamodb_pitr_gb_month: point-in-time recovery of a GB.
        sqs_per_million: requests to a standard queue.
    """

    region: str = field(validator=validators.instance_of(str))
    date: str = field(validator=[validators.instance_of(str), validators.matches_re(r"\d{4}-\d\d-\d\d")])
    sources: Mapping[str, str] = field(converter=MappingProxyType)
    s3_put_per_thousand: float = _price()
    s3_get_per_thousand: float = _price()
    dynamodb_write_per_million: float = _price()
    dynamodb_read_per_million: float = _price()
    dynamodb_wcu_hour: float = _price()
    dynamodb_rcu_hour: float = _price()
    dynamodb_gb_month: float = _price()
    dynamodb_free_gb: float = _price()
    dynamodb_pitr_gb_month: float = _price()
    sqs_per_million: float = _price()

    def dollars(
        self, usage: Usage, *, billing: Billing = "on-demand", utilization: float = 0.7
    ) -> float:
        """Return the price of the usage of a month.

        Args:
            usage: the requests and units.
            billing: of the tables. ``provisioned`` assumes that they come evenly over the month, and
                takes parts of a capacity unit, of which DynamoDB bills whole ones.
            utilization: with ``provisioned``, the share of the capacity that is used; 0.7 is the default
                of auto scaling.

        >>> round(US_EAST_1.dollars(Usage(put_requests=1_000_000, write_units=2_000_000)), 2)
        6.25
        """
        if not 0 < utilization <= 1:
            raise ConfigurationError(f"utilization must be above 0 and at most 1, not {utilization:g}")
        s3 = (
            usage.put_requests * self.s3_put_per_thousand + usage.get_requests * self.s3_get_per_thousand
        ) / 1_000
        if billing == "on-demand":
            writes = usage.write_units * self.dynamodb_write_per_million / 1_000_000
            reads = usage.read_units * self.dynamodb_read_per_million / 1_000_000
        else:
            second = _MONTH_SECONDS * utilization
            writes = usage.write_units / second * self.dynamodb_wcu_hour * _MONTH_HOURS
            reads = usage.read_units / second * self.dynamodb_rcu_hour * _MONTH_HOURS
        queue = usage.queue_requests * self.sqs_per_million / 1_000_000
        return s3 + writes + reads + queue

    def storage_dollars(self, stored_bytes: float, *, recovery: bool = False) -> float:
        """Return the price of what tables store for a month.

        Args:
            stored_bytes: bytes of all tables of the account in the region, with 100 bytes for each item
                that DynamoDB adds.
            recovery: whether point-in-time recovery is on.
        """
        stored = stored_bytes / _GB
        dollars = max(0.0, stored - self.dynamodb_free_gb) * self.dynamodb_gb_month
        return dollars + (stored * self.dynamodb_pitr_gb_month if recovery else 0.0)


#: List prices of US East (N. Virginia).
US_EAST_1 = PriceTable(
    region="us-east-1",
    # On-demand prices of DynamoDB were halved on this day. The others are older.
    date="2024-11-01",
    sources={
        "s3": "https://aws.amazon.com/s3/pricing/",
        "dynamodb_on_demand": "https://aws.amazon.com/dynamodb/pricing/on-demand/",
        "dynamodb_provisioned": "https://aws.amazon.com/dynamodb/pricing/provisioned/",
        "sqs": "https://aws.amazon.com/sqs/pricing/",
    },
    s3_put_per_thousand=0.005,
    s3_get_per_thousand=0.0004,
    dynamodb_write_per_million=0.625,
    dynamodb_read_per_million=0.125,
    dynamodb_wcu_hour=0.00065,
    dynamodb_rcu_hour=0.00013,
    dynamodb_gb_month=0.25,
    dynamodb_free_gb=25.0,
    dynamodb_pitr_gb_month=0.20,
    sqs_per_million=0.40,
)
