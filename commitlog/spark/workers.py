"""Setup of Spark's Python workers, done once in each."""

from __future__ import annotations

import gc

__all__ = ["freeze_gc"]


def freeze_gc() -> None:
    """Exclude all current objects, such as imported modules, from garbage collection.

    Call it at the begin of a task. Spark's daemon makes each worker collect garbage after each task,
    which takes tens of milliseconds only to scan the same modules again (pyspark 4.3, daemon.py).
    Idempotent: garbage of later tasks is collected as usual.
    """
    if not gc.get_freeze_count():
        gc.freeze()
