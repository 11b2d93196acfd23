"""The page of costs: its tables are those of the counts and prices, and its sums are right."""

from __future__ import annotations

from cost_page import PAGE, filled
from pricing import US_EAST_1, Usage, operations


def test_the_tables_are_up_to_date() -> None:
    """Write them with ``python benchmarks/cost_page.py``."""
    text = PAGE.read_text()
    assert filled(text) == text


def test_the_page_names_the_date_of_the_prices() -> None:
    """Readers see how old the prices are, and where to look for new ones."""
    text = PAGE.read_text()
    assert US_EAST_1.date in text
    assert not [url for url in US_EAST_1.sources.values() if url not in text]


def test_sums_in_the_text_are_right() -> None:
    """Each ratio and sum outside of the tables is that of the counts and prices."""
    text = " ".join(PAGE.read_text().split())
    dollars = US_EAST_1.dollars
    native, leased = (dollars(operations.conditional_write(leases=leases)) for leases in (False, True))
    listing = dollars(operations.ingest_poll(listed_keys=1_000_000))
    epoch = dollars(operations.ingest_epoch(10, listed_keys=1_000_000))
    single = 10_000 * dollars(operations.create_file())
    bulk = dollars(operations.bulk_link(10_000))
    unit = Usage(write_units=1)
    provisioned = dollars(unit, billing="provisioned") / dollars(unit)
    for statement in (
        f"A lease adds {leased / native - 1:.0%} to the price of a put".replace("%", " %"),
        f"it is {100 * listing / epoch:.1f} % of the price",
        f"${730 * US_EAST_1.dynamodb_wcu_hour:.2f} for a write capacity unit and"
        f" ${730 * US_EAST_1.dynamodb_rcu_hour:.2f} for a read capacity unit",
        f"costs {100 * provisioned:.0f} % of one on demand",
    ):
        assert statement in text
    assert 12.5 < single / bulk < 13.5, "a thirteenth of the price"
    with_log, without = (dollars(operations.delete_file(log=log)) for log in (True, False))
    assert with_log > 2 * without
    assert dollars(operations.create_file()) > 2 * dollars(operations.create_file(log=False))
