"""The contract of the `Table` port, as one function that any table can be passed to.

Needs no test framework: a broken rule raises `AssertionError` that says which.
"""

from __future__ import annotations

from commitlog.tables.api import Table
from commitlog.testing.table_item_checks import ITEM_CHECKS
from commitlog.testing.table_race_checks import (
    RACE_CHECKS,
    TRANSACTION_CHECKS,
    check_no_transactions,
)
from commitlog.testing.table_run import Run

__all__ = ["check_table"]


def check_table(
    table: Table,
    *,
    transactions: bool = True,
    returns_old_item: bool = True,
    empty_values: bool = True,
    threads: int = 8,
    keys: int = 12,
) -> None:
    """Check that `table` keeps the rules of the port. Raises `AssertionError` if it does not.

    The table must exist. It may be in use: only keys of a new random prefix are written, and a few
    dozen small items are left behind.

    Args:
        table: what to check.
        transactions: False if the service has none: `Table.transact` must then say so.
        returns_old_item: False if the service does not tell what a failed condition had found.
        empty_values: False if the service cannot store empty strings and binaries.
        threads: how many race each other.
        keys: how many keys they race for.

    >>> from commitlog.tables import TableSchema
    >>> from commitlog.tables.open import open_table
    >>> table = open_table("memory://", TableSchema(hash_key="path", range_key="etag"))
    >>> table.create()
    True
    >>> check_table(table)
    """
    run = Run(
        table=table,
        returns_old_item=returns_old_item,
        empty_values=empty_values,
        threads=threads,
        keys=keys,
    )
    transaction_checks = TRANSACTION_CHECKS if transactions else (check_no_transactions,)
    for check in (*ITEM_CHECKS, *RACE_CHECKS, *transaction_checks):
        check(run)
