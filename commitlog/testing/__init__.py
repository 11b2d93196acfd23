"""The public test kit: contract checks and a clock that a test turns by hand."""

from commitlog.testing.clock import ManualClock

__all__ = ["ManualClock"]
