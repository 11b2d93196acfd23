"""What is done once in each of Spark's Python workers."""

from __future__ import annotations

import subprocess
import sys


def test_settled_once() -> None:
    """What is there at the first task is not looked at again; what comes later is collected."""
    code = """
import gc, weakref
from commitlog.spark.workers import settle
class Ring: pass
settle()
frozen = gc.get_freeze_count()
ring = Ring()
ring.ring = ring
gone = weakref.ref(ring)
del ring
settle()
assert gc.get_freeze_count() <= frozen
gc.collect()
assert gone() is None
assert frozen > 1000
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_workers_of_outputs_do_not_import_formats_of_input() -> None:
    """Each worker imports the package; what reads files of others is for those that do."""
    code = "import commitlog.spark, sys; assert 'commitlog.spark.inputs' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
