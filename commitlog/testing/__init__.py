"""The public test kit: contract checks and a clock that a test turns by hand."""

from commitlog.testing.clock import ManualClock
from commitlog.testing.store_checks import check_object_store
from commitlog.testing.table_checks import check_table

__all__ = ["ManualClock", "check_object_store", "check_table"]
