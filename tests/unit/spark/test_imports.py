"""The imports of Spark's Python processes, and their garbage collection."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import commitlog.spark
import commitlog.spark.ingest
import commitlog.spark.inputs


def test_objects_before_the_first_task_are_excluded_from_garbage_collection() -> None:
    """Later objects are collected as usual."""
    code = """
import gc, weakref
from commitlog.spark.tasks import freeze_gc
class Ring: pass
freeze_gc()
frozen = gc.get_freeze_count()
ring = Ring()
ring.ring = ring
gone = weakref.ref(ring)
del ring
freeze_gc()
assert gc.get_freeze_count() <= frozen
gc.collect()
assert gone() is None
assert frozen > 1000
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_process_imports_what_it_needs() -> None:
    """Spark starts many processes: those that write know no formats of input, and others only one."""
    code = """
import sys
import commitlog.spark.batch
assert not {"commitlog.namespace", "commitlog.spark.inputs"} & set(sys.modules)
from commitlog.spark.inputs import INPUTS
INPUTS["text"]
from commitlog.spark.ingest import IngestDataSource
assert not {f"commitlog.spark.inputs.{name}" for name in ("avro", "csv", "orc")} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("package", [commitlog.spark, commitlog.spark.ingest, commitlog.spark.inputs])
def test_all_that_is_named_is_there(package: ModuleType) -> None:
    """What a package names is found in it, and a misspelt name is told as ever."""
    assert {name for name in package.__all__ if getattr(package, name) is not None} <= set(dir(package))
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        package.nothing_of_this_name  # noqa: B018
