"""The contract check of tables: it must catch a table that breaks a rule."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve

from commitlog.clock import SystemClock
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import Unavailable
from commitlog.tables.api import (
    ConditionFailed,
    Delete,
    InFlight,
    Item,
    ItemPage,
    Key,
    Put,
    TableCondition,
    Write,
)
from commitlog.tables.memory import MemoryTable
from commitlog.tables.rules import check_writes, judge
from commitlog.testing import check_table
from commitlog.urls import parse_table_url

#: Enough time for another thread to enter the race. The value is not critical.
GAP = 0.001


class _Mutant(MemoryTable):
    def __init__(self) -> None:
        super().__init__(parse_table_url("memory://"), LEASE_SCHEMA, clock=SystemClock())
        self.create()


class _IgnoresConditions(_Mutant):
    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        return super().begin_put(item)


class _ChecksThenActs(_Mutant):
    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        if condition is not None and condition.holds(self.get(self.schema.key_of(item))):
            time.sleep(GAP)
            condition = None
        return super().begin_put(item, condition=condition)


class _TransactsOneByOne(_Mutant):
    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        check_writes(self.schema, writes, token)
        for write in writes:
            super().transact([write])
            time.sleep(GAP)


class _ChecksThenTransacts(_Mutant):
    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        keys = check_writes(self.schema, writes, token)
        judge([(key, write, self.get(key)) for key, write in zip(keys, writes, strict=True)])
        time.sleep(GAP)
        super().transact([evolve(write, condition=None) for write in writes if isinstance(write, Put)])
        super().transact([Delete(write.key) for write in writes if isinstance(write, Delete)])


class _FailsInARace(_Mutant):
    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        pending = super().begin_put(item, condition=condition)

        def wait() -> None:
            try:
                pending()
            except ConditionFailed:
                if "/race-" in str(item["path"]):
                    raise Unavailable("busy") from None
                raise

        return wait


class _TakesAnySegment(_Mutant):
    def scan_page(self, *, segment: int = 0, segments: int = 1, **options: Any) -> ItemPage:
        segments = max(segments, 1)
        return super().scan_page(segment=segment % segments, segments=segments, **options)


class _RefusesArgumentsInItsOwnWords(_Mutant):
    def get(self, key: Key) -> Item | None:
        try:
            return super().get(key)
        except ValueError as error:
            raise KeyError(str(error)) from error


@pytest.mark.parametrize(
    "mutant",
    [
        *(_IgnoresConditions, _ChecksThenActs, _TransactsOneByOne, _ChecksThenTransacts),
        *(_FailsInARace, _TakesAnySegment, _RefusesArgumentsInItsOwnWords),
    ],
)
def test_a_table_that_breaks_a_rule_is_caught(mutant: type[_Mutant]) -> None:
    """Each mutant breaks one rule of the port, and the check raises AssertionError."""
    with pytest.raises(AssertionError):
        check_table(mutant())
