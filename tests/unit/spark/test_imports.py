"""The imports of Spark's Python processes, and their garbage collection."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import commitlog.files
import commitlog.spark
import commitlog.spark.ingest


def test_objects_before_the_first_task_are_excluded_from_garbage_collection() -> None:
    """Objects that are created later are collected as usual."""
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


def test_a_process_imports_the_formats_that_it_needs() -> None:
    """Spark starts many processes; each reads or writes one or two formats."""
    code = """
import sys
import commitlog.spark.batch
assert not {"commitlog.namespace", "commitlog.ingest"} & set(sys.modules)
from commitlog.files import INPUT_FORMATS, output_format_of
def loaded():
    found = {name.removeprefix("commitlog.files.") for name in sys.modules}
    return found & {"parquet", "orc", "arrow_ipc", "text", "binary"} | {
        name for name in ("avro", "csv", "json") if f"{name}.format" in found
    }
assert not loaded()
output_format_of("part-0.zstd.orc")
assert loaded() == {"orc"}
INPUT_FORMATS["text"]
from commitlog.spark.ingest import IngestDataSource
assert loaded() == {"orc", "text"}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("package", [commitlog.spark, commitlog.spark.ingest, commitlog.files])
def test_each_exported_name_exists(package: ModuleType) -> None:
    """A package has all names in ``__all__``, and raises the usual error for another name."""
    assert {name for name in package.__all__ if getattr(package, name) is not None} <= set(dir(package))
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        package.nothing_of_this_name  # noqa: B018
