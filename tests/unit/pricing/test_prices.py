"""Prices of requests and of storage."""

from __future__ import annotations

import pytest
from pricing import US_EAST_1, Usage

from commitlog.errors import ConfigurationError


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
