"""Checks of the `Table` contract under competition, and of transactions.

Imports the port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from commitlog.errors import NotSupported, TransactionCanceled
from commitlog.tables.api import (
    Absent,
    Check,
    ConditionFailed,
    Delete,
    Equals,
    Key,
    Put,
    Write,
)
from commitlog.testing.table_run import Run, assert_raises, assert_reason, assert_stored, cases

__all__ = ["RACE_CHECKS", "TRANSACTION_CHECKS", "check_no_transactions"]

# -- races ------------------------------------------------------------------------------------------


def _check_racing_creates(run: Run) -> None:
    winners: list[tuple[int, int]] = []

    def create(racer: int, start: Callable[[], object]) -> None:
        for i in range(run.keys):
            start()
            try:
                run.table.put(run.item(run.key(f"race-{i}"), {"owner": racer}), condition=Absent())
            except ConditionFailed:
                continue
            winners.append((i, racer))

    run.race(create)
    for i in range(run.keys):
        won = [racer for key, racer in winners if key == i]
        assert len(won) == 1, f"{len(won)} of {run.threads} racing creates won"
        key = run.key(f"race-{i}")
        assert_stored(run, key, run.item(key, {"owner": won[0]}), "racing creates")


def _check_racing_generations(run: Run) -> None:
    key = run.key("generations")
    run.table.put(run.item(key, {"generation": 0}))
    rounds = 3

    def count(_racer: int, start: Callable[[], object]) -> None:
        start()
        for _ in range(rounds):
            while not _increment(run, key):
                pass

    run.race(count)
    wanted = run.item(key, {"generation": rounds * run.threads})
    assert_stored(run, key, wanted, "racing compare-and-swaps, one of which was lost")


def _increment(run: Run, key: Key) -> bool:
    seen = _generation(run, key)
    try:
        run.table.put(run.item(key, {"generation": seen + 1}), condition=Equals("generation", seen))
    except ConditionFailed:
        return False
    return True


def _generation(run: Run, key: Key) -> int:
    item = run.table.get(key)
    assert item is not None and type(item["generation"]) is int
    return item["generation"]


# -- transactions -----------------------------------------------------------------------------------


def _check_transactions(run: Run) -> None:
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


def _check_transaction_conditions(run: Run) -> None:
    beside = run.key("beside")
    for i, (key, stored, condition) in enumerate(cases(run, "transact-if")):
        mark = run.item(beside, {"n": i})
        write: Write = (Check(key, condition), Put(run.item(key), condition), Delete(key, condition))[
            i % 3
        ]
        canceled = _canceled(run, [write, Put(mark)])
        assert (canceled is None) == condition.holds(stored), f"{write} over {stored}: {canceled!r}"
        if canceled is None:
            assert_stored(run, beside, mark, "a transaction")
        else:
            assert_reason(run, canceled.reasons[0], stored)
            assert_stored(run, key, stored, "a transaction that was canceled")


def _canceled(run: Run, writes: Sequence[Write]) -> TransactionCanceled | None:
    """Try a transaction, and return why it did not happen."""
    try:
        run.table.transact(writes)
    except TransactionCanceled as error:
        return error
    return None


def _check_racing_transactions(run: Run) -> None:

    def create_both(racer: int, start: Callable[[], object]) -> None:
        for i in range(run.keys):
            pair = [run.key(f"pair-{i}-{side}") for side in ("left", "right")]
            # In opposite orders, which would deadlock a table that locks item by item.
            pair = pair[:: 1 if racer % 2 else -1]
            start()
            _canceled(run, [Put(run.item(key, {"owner": racer}), Absent()) for key in pair])

    run.race(create_both)
    for i in range(run.keys):
        found = [run.table.get(run.key(f"pair-{i}-{side}")) for side in ("left", "right")]
        owners = {None if item is None else item["owner"] for item in found}
        assert len(owners) == 1 and None not in owners, f"a pair was created in part: {found}"


def _check_transfers(run: Run) -> None:
    accounts = [run.key("account-a"), run.key("account-b")]
    for key in accounts:
        run.table.put(run.item(key, {"generation": 0}))

    def transfer(racer: int, start: Callable[[], object]) -> None:
        start()
        source, target = accounts[:: 1 if racer % 2 else -1]
        while not _transfer(run, source, target):
            pass

    run.race(transfer)
    total = sum(_generation(run, key) for key in accounts)
    assert total == 0, f"racing transactions made {total} out of nothing"


def _transfer(run: Run, source: Key, target: Key) -> bool:
    writes = []
    for key, change in ((source, -1), (target, 1)):
        seen = _generation(run, key)
        writes.append(Put(run.item(key, {"generation": seen + change}), Equals("generation", seen)))
    return _canceled(run, writes) is None


def check_no_transactions(run: Run) -> None:
    """Check that a table without transactions says so, and does nothing."""
    key = run.key("transact")
    assert_raises(NotSupported, run.table.transact, [Put(run.item(key))])
    assert_stored(run, key, None, "a transaction on a table that has none")


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
