"""The contract of the `Table` port, as one function that checks any table.

It needs no test framework: a broken rule raises `AssertionError` that names the rule. The checks of
single items are in `table_items`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from commitlog.errors import CommitError, NotSupported, TransactionCanceled
from commitlog.tables.api import (
    Absent,
    Check,
    ConditionFailed,
    Delete,
    Equals,
    Key,
    Put,
    Table,
    Write,
)
from commitlog.testing.contract.assertions import assert_raises, race
from commitlog.testing.contract.table_items import ITEM_CHECKS
from commitlog.testing.contract.table_run import TableRun, assert_reason, assert_stored, cases

__all__ = ["check_table"]

# -- races ------------------------------------------------------------------------------------------


def _check_racing_creates(run: TableRun) -> None:
    for i in range(run.keys):
        key = run.key(f"race-{i}")
        items = [run.item(key, {"owner": racer}) for racer in range(run.threads)]
        outcomes = race([partial(run.table.put, item, condition=Absent()) for item in items])
        won = _winner("create", outcomes, ConditionFailed)
        assert_stored(run, key, items[won], "racing creates")


def _winner(what: str, outcomes: Sequence[CommitError | None], otherwise: type[CommitError]) -> int:
    """Return the number of the only racer that won. All others must have raised `otherwise`."""
    for outcome in outcomes:
        expected = outcome is None or isinstance(outcome, otherwise)
        assert expected, f"a racing {what} ended in {outcome!r}"
    won = outcomes.count(None)
    assert won == 1, f"{won} of {len(outcomes)} racers won with a {what}"
    return outcomes.index(None)


def _check_racing_generations(run: TableRun) -> None:
    key = run.key("generations")
    run.table.put(run.item(key, {"generation": 0}))
    rounds = 3

    def count() -> None:
        for _ in range(rounds):
            while not _increment(run, key):
                pass

    _assert_all_end(race([count] * run.threads))
    wanted = run.item(key, {"generation": rounds * run.threads})
    assert_stored(run, key, wanted, "racing compare-and-swaps: an update was lost")


def _assert_all_end(outcomes: Sequence[CommitError | None]) -> None:
    for outcome in outcomes:
        assert outcome is None, f"a read or write in a race ended in {outcome!r}"


def _increment(run: TableRun, key: Key) -> bool:
    seen = _generation(run, key)
    try:
        run.table.put(run.item(key, {"generation": seen + 1}), condition=Equals("generation", seen))
    except ConditionFailed:
        return False
    return True


def _generation(run: TableRun, key: Key) -> int:
    item = run.table.get(key)
    assert item is not None and type(item["generation"]) is int
    return item["generation"]


# -- transactions -----------------------------------------------------------------------------------


def _check_transactions(run: TableRun) -> None:
    table = run.table
    old, new, gone, watched = (run.key(f"transact-{name}") for name in "abcd")
    table.transact([])
    for key in (old, gone, watched):
        table.put(run.item(key, {"generation": 1}))
    writes: list[Write] = [
        Put(run.item(new, {"generation": 1}), Absent()),
        Put(run.item(old, {"generation": 2}), Equals("generation", 1)),
        Delete(gone, Equals("generation", 1)),
        Check(watched, Equals("generation", 1)),
    ]
    table.transact(writes)
    after = {
        new: run.item(new, {"generation": 1}),
        old: run.item(old, {"generation": 2}),
        gone: None,
        watched: run.item(watched, {"generation": 1}),
    }
    for key, item in after.items():
        assert_stored(run, key, item, "a transaction")
    canceled = _canceled(run, [*writes, Delete(run.key("transact-e"))])
    assert canceled is not None, "a transaction happened though its conditions did not hold"
    assert len(canceled.reasons) == 5, f"{len(canceled.reasons)} reasons for 5 writes"
    for reason, key in zip(canceled.reasons, (new, old, gone), strict=False):
        assert_reason(run, reason, after[key])
    assert canceled.reasons[3:] == (None, None), "a reason for a condition that held"
    for key, item in after.items():
        assert_stored(run, key, item, "a transaction that was canceled")


def _check_transaction_conditions(run: TableRun) -> None:
    other = run.key("other")
    for i, (key, stored, condition) in enumerate(cases(run, "transact-if")):
        mark = run.item(other, {"n": i})
        write: Write = (Check(key, condition), Put(run.item(key), condition), Delete(key, condition))[
            i % 3
        ]
        canceled = _canceled(run, [write, Put(mark)])
        assert (canceled is None) == condition.holds(stored), f"{write} over {stored}: {canceled!r}"
        if canceled is None:
            assert_stored(run, other, mark, "a transaction")
        else:
            assert_reason(run, canceled.reasons[0], stored)
            assert_stored(run, key, stored, "a transaction that was canceled")


def _canceled(run: TableRun, writes: Sequence[Write]) -> TransactionCanceled | None:
    """Try a transaction; return its error, or None if it happened."""
    try:
        run.table.transact(writes)
    except TransactionCanceled as error:
        return error
    return None


def _check_racing_transactions(run: TableRun) -> None:
    for i in range(run.keys):
        pair = [run.key(f"pair-{i}-{side}") for side in ("left", "right")]
        # Half of them have the opposite order, which would deadlock a table that locks item by item.
        puts = [
            [Put(run.item(key, {"owner": racer}), Absent()) for key in pair[:: 1 if racer % 2 else -1]]
            for racer in range(run.threads)
        ]
        outcomes = race([partial(run.table.transact, writes) for writes in puts])
        won = _winner("transaction", outcomes, TransactionCanceled)
        for key in pair:
            assert_stored(run, key, run.item(key, {"owner": won}), "racing transactions")


def _check_transfers(run: TableRun) -> None:
    accounts = [run.key("account-a"), run.key("account-b")]
    for key in accounts:
        run.table.put(run.item(key, {"generation": 0}))

    def transfer(racer: int) -> None:
        source, target = accounts[:: 1 if racer % 2 else -1]
        while not _transfer(run, source, target):
            pass

    _assert_all_end(race([partial(transfer, racer) for racer in range(run.threads)]))
    total = sum(_generation(run, key) for key in accounts)
    assert total == 0, f"racing transfers changed the sum by {total}"


def _transfer(run: TableRun, source: Key, target: Key) -> bool:
    writes = []
    for key, change in ((source, -1), (target, 1)):
        seen = _generation(run, key)
        writes.append(Put(run.item(key, {"generation": seen + change}), Equals("generation", seen)))
    return _canceled(run, writes) is None


def check_no_transactions(run: TableRun) -> None:
    """Check that a table without transactions raises `NotSupported` and does nothing."""
    key = run.key("transact")
    why = "a transaction on a table that has none"
    assert_raises(NotSupported, why, run.table.transact, [Put(run.item(key))])
    assert_stored(run, key, None, why)


RACE_CHECKS = (
    _check_racing_creates,
    _check_racing_generations,
)
TRANSACTION_CHECKS = (
    _check_transactions,
    _check_transaction_conditions,
    _check_racing_transactions,
    _check_transfers,
)


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

    The table must exist. It may be in use: the check writes only keys of a new random prefix, and leaves
    a few dozen small items behind.

    Args:
        table: the table to check.
        transactions: False if the service has none: `Table.transact` must then raise `NotSupported`.
        returns_old_item: False if errors of failed conditions do not have the stored item.
        empty_values: False if the service cannot store empty strings and binaries.
        threads: number of racing threads.
        keys: number of keys that they race for.

    >>> from commitlog.tables import TableSchema
    >>> from commitlog.tables import open_table
    >>> table = open_table("memory://", TableSchema(hash_key="path", range_key="etag"))
    >>> table.create()
    True
    >>> check_table(table)
    """
    run = TableRun(
        table=table,
        returns_old_item=returns_old_item,
        empty_values=empty_values,
        threads=threads,
        keys=keys,
    )
    transaction_checks = TRANSACTION_CHECKS if transactions else (check_no_transactions,)
    for check in (*ITEM_CHECKS, *RACE_CHECKS, *transaction_checks):
        check(run)
