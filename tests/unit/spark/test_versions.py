"""Parts of the data sources that an older PySpark lacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from commitlog.errors import NotSupported
from commitlog.spark import CommitlogDataSource
from commitlog.spark.ingest import IngestDataSource

COLUMNS = StructType([StructField("id", LongType())])

#: The parts by their names in errors, as Spark calls them with the options of the format.
PARTS: dict[str, Callable[[dict[str, str]], Any]] = {
    "write": lambda options: CommitlogDataSource(options).writer(COLUMNS, False),
    "writeStream with format commitlog": lambda options: CommitlogDataSource(options).streamWriter(
        COLUMNS, False
    ),
    "readStream with format commitlog": lambda options: CommitlogDataSource(options).streamReader(
        COLUMNS
    ),
    "format commitlog_ingest": IngestDataSource,
}


@pytest.mark.parametrize(
    ("part", "first"),
    [
        ("write", "4.0"),
        ("writeStream with format commitlog", "4.1"),
        ("readStream with format commitlog", "4.2"),
        ("format commitlog_ingest", "4.2"),
    ],
)
@pytest.mark.parametrize("found", ["4.0.5", "4.1.0.dev2", "4.2.0", "4.10.1"])
def test_a_part_that_a_version_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str, part: str, first: str
) -> None:
    """The error names the first version that has it, and that version is accepted."""
    monkeypatch.setattr(pyspark, "__version__", found)
    has_it = [int(each) for each in found.split(".")[:2]] >= [int(each) for each in first.split(".")]
    message = (
        rf"^{part} needs PySpark {first} or newer, and this is PySpark {found}, in .*: use Spark {first}"
    )
    expected: AbstractContextManager[Any] = (
        nullcontext() if has_it else pytest.raises(NotSupported, match=message)
    )
    with expected:
        PARTS[part]({"path": str(tmp_path)})
    assert has_it or not list(tmp_path.iterdir())
