"""What is done once in each of Spark's Python workers. Imports nothing of the project."""

from __future__ import annotations

import gc

__all__ = ["settle"]


def settle() -> None:
    """Let the garbage collector pass over what this process has imported, from now on.

    For use at the begin of a task. Spark's daemon has each worker collect its garbage after each task,
    which takes tens of milliseconds only to look at the same modules again (pyspark 4.3, daemon.py).
    Idempotent: what later tasks leave behind is collected as ever.
    """
    if not gc.get_freeze_count():
        gc.freeze()
