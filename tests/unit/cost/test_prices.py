"""Price tables, and the bill of a month."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from commitlog.cost import US_EAST_1, PriceTable, Usage, Workload, operations
from commitlog.errors import ConfigurationError


def _edited(**changes: Any) -> str:
    return json.dumps({**json.loads(US_EAST_1.to_json()), **changes})


def test_a_price_table_can_be_edited() -> None:
    """The prices of another region replace those of the package."""
    table = PriceTable.from_json(_edited(region="eu-west-9", s3_put_per_thousand=0.01))
    assert table == evolve(US_EAST_1, region="eu-west-9", s3_put_per_thousand=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        _edited(s3_put_per_thousand=-1),
        _edited(s3_put_per_thousand="much"),
        _edited(s3_put_per_thousand=float("nan")),
        _edited(s3_put_per_thousand=float("inf")),
        _edited(s3_put_per_thousand=None),
        _edited(date="today"),
        _edited(region=7),
        _edited(sources="here"),
        _edited(more=1),
    ],
)
def test_a_wrong_price_table_is_refused(text: str) -> None:
    """The error says what is wrong; no price is guessed."""
    with pytest.raises(ConfigurationError, match="price table"):
        PriceTable.from_json(text)


def test_each_price_counts() -> None:
    """Each price changes the bill of a month in proportion."""
    usage = Usage(
        put_requests=3e6, get_requests=5e6, write_units=7e6, read_units=11e6, queue_requests=1e7
    )
    assert US_EAST_1.dollars(usage) == pytest.approx(15 + 2 + 4.375 + 1.375 + 4)
    free = Usage(free_requests=1e9)
    assert US_EAST_1.dollars(free) == 0


def test_provisioned_capacity_is_cheaper_if_it_is_used() -> None:
    """One write unit a second is one capacity unit; a table that is rarely used needs as many."""
    month = Usage(write_units=730 * 3600, read_units=730 * 3600)
    whole = US_EAST_1.dollars(month, billing="provisioned", utilization=1)
    assert whole == pytest.approx(730 * (0.00065 + 0.00013))
    assert US_EAST_1.dollars(month, billing="provisioned", utilization=0.5) == pytest.approx(2 * whole)
    for wrong in (0.0, 1.1, float("nan")):
        with pytest.raises(ConfigurationError):
            US_EAST_1.dollars(month, billing="provisioned", utilization=wrong)


def test_the_first_gigabytes_are_free_but_their_recovery_is_not() -> None:
    """An idle table costs nothing while all tables together are small."""
    assert US_EAST_1.storage_dollars(25e9) == 0
    assert US_EAST_1.storage_dollars(25e9, recovery=True) == pytest.approx(5)
    assert US_EAST_1.storage_dollars(27e9) == pytest.approx(0.5)


def test_a_month_has_a_line_for_each_operation_in_it() -> None:
    """Operations that do not happen have none."""
    assert not list(Workload().lines())
    month = Workload(conditional_writes=10, refused=0.5, leases=True, jobs=2, objects=150)
    write, job, objects = month.lines()
    assert write.usage == 5 * operations.conditional_write(leases=True) + (
        5 * operations.conditional_write(leases=True, refused=True)
    )
    assert job.usage == 2 * operations.output_job(100, leases=True)
    assert (objects.times, objects.usage) == (
        150,
        operations.ingest_epoch(100, listed_keys=1_000) + operations.ingest_epoch(50, listed_keys=1_000),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": -1},
        {"refused": 1.5},
        {"refused": float("nan")},
        {"names": float("inf")},
        {"epoch_files": 0},
        {"epoch_files": 1_001},
    ],
)
def test_a_wrong_number_is_refused(wrong: dict[str, Any]) -> None:
    """Numbers are finite and not negative, shares at most 1."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Workload(**wrong)
