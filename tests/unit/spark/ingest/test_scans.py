"""The plans of file scans, without Spark: the requests of a source in Java, and their answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from commitlog.errors import (
    ConfigurationError,
    InputChanged,
    InputMissing,
    InputUnreadable,
    NotSupported,
    StateMismatch,
)
from commitlog.ingest import Ingest, IngestAdmin, Problem
from commitlog.spark.ingest.options import IngestOptions
from commitlog.spark.ingest.scans import ScanOptions, ScanPlanner
from commitlog.stores.local.store import LocalStore


def struct(**types: Any) -> dict[str, Any]:
    """Return columns as Spark describes them."""
    columns = {"nullable": True, "metadata": {}}
    fields = [{"name": name, "type": kind, **columns} for name, kind in types.items()]
    return {"type": "struct", "fields": fields}


def columns(**types: Any) -> str:
    """Return a schema of Spark as JSON."""
    return json.dumps(struct(**types))


@frozen
class Source:
    """A query of a driver, whichever agent serves it.

    Attributes:
        directory: the directory that it reads.
        options: further options.
        schema: its columns.
        agent: the agent.
    """

    directory: Path
    options: dict[str, str] = field(factory=dict)
    schema: str = field(factory=lambda: columns(value="string"))
    agent: ScanPlanner = field(factory=ScanPlanner)

    def request(self, **more: Any) -> dict[str, Any]:
        """Return a request."""
        options = {"path": str(self.directory), "fileformat": "text", **self.options}
        asked = {"query": "q", "options": options, "schema": self.schema, "hadoop": None, **more}
        found: dict[str, Any] = json.loads(json.dumps(asked))
        return found

    def next(self, start: str | None = None, *, finite: bool = False) -> str | None:
        """Return the offset after `start`."""
        self.agent.check(self.request())
        answer = self.agent.latest_offset(self.request(start=start, finite=finite))
        found: str | None = answer["offset"]
        return found

    def files(self, start: str | None, end: str | None) -> list[dict[str, Any]]:
        """Return the files of a batch."""
        assert end is not None
        self.agent.plan(self.request(start=start, end=end))
        found: list[dict[str, Any]] = self.agent.files(self.request(start=start, end=end))["files"]
        return found

    def problems(self) -> list[Problem]:
        """Return the problems of the source."""
        options = ScanOptions.parse(self.request()["options"]).ingest
        with options.opened_store() as store, options.opened_table() as table:
            return list(IngestAdmin(store, table, options.settings).problems())


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A source of a directory, with two files."""
    (tmp_path / "day=1").mkdir()
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "day=1/b ü").write_text("bb\n")
    return Source(tmp_path)


def names(files: list[dict[str, Any]]) -> list[str]:
    """Return the last parts of the paths of files."""
    return [os.path.basename(each["path"]) for each in files]


def test_a_batch_is_planned_once(source: Source) -> None:
    """Every agent answers with the same files for the same offsets, and then there is nothing new."""
    end = source.next()
    files = source.files(None, end)
    assert [each["path"] for each in files] == [
        f"{source.directory}/{name}" for name in ("a", "day=1/b ü")
    ]
    assert [each["size"] for each in files] == [2, 3]
    assert source.next(end) == end
    other = Source(source.directory)
    assert other.files(None, end) == files
    (source.directory / "c").write_text("c\n")
    later = other.next(end)
    assert names(other.files(end, later)) == ["c"]


def test_a_finite_query_ends(source: Source) -> None:
    """It finds the files that there are, in batches of the given size."""
    small = Source(source.directory, {"maxfilespertrigger": "1"})
    first = small.next(finite=True)
    second = small.next(first, finite=True)
    assert names([*small.files(None, first), *small.files(first, second)]) == ["a", "b ü"]
    assert small.next(second, finite=True) == second


def test_an_empty_source_has_no_offset(tmp_path: Path) -> None:
    """Spark starts no batch then."""
    assert Source(tmp_path).next() is None


def test_values_of_directories_and_metadata_are_texts(tmp_path: Path) -> None:
    """Files with the same columns in their paths are a group. Text has no others: they are null."""
    for name in ("day=2026-01-02/n=07/x=1.5", "day=__HIVE_DEFAULT_PARTITION__/n=1/x=NaN", "plain"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "f").write_text("f\n")
    metadata = struct(file_name="string", file_size="long")
    schema = columns(value="string", day="date", n="integer", x="double", _metadata=metadata)
    source = Source(tmp_path, schema=schema)
    end = source.next()
    plan = source.agent.plan(source.request(start=None, end=end))
    assert [list(group) for group in plan["groups"]] == [["day", "n", "x"]]
    assert plan["bytes"] == 6
    values = [(each["group"], each["values"]) for each in source.files(None, end)]
    assert values == [
        (0, ["20455", "7", "1.5", "f", "2"]),
        (0, [None, "1", "NaN", "f", "2"]),
        (0, [None, None, None, "f", "2"]),
    ]
    as_csv = Source(tmp_path, {"fileformat": "csv", "source": "csv"}, schema=schema)
    end = as_csv.next()
    plan = as_csv.agent.plan(as_csv.request(start=None, end=end))
    assert [list(group) for group in plan["groups"]] == [["day", "n", "x"], []]
    assert [each["group"] for each in as_csv.files(None, end)] == [0, 0, 1]


def test_versions_are_those_of_the_file_system(source: Source) -> None:
    """Any program may have written a file: tasks in Java do not know the tokens of the store."""
    with closing(LocalStore(source.directory)) as store:
        store.put("c", b"c\n")
    files = source.files(None, source.next())
    for each in files:
        found = os.stat(each["path"])
        assert each["version"] == f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns // 1000}"


CHANGES: list[tuple[Callable[[Path], object], str, type[Exception]]] = [
    (lambda path: path.write_text("other\n"), "changed", InputChanged),
    (lambda path: path.unlink(), "missing", InputMissing),
]


@pytest.mark.parametrize(("change", "kind", "error"), CHANGES)
def test_a_replayed_batch_leaves_out_what_is_not_as_listed(
    source: Source, change: Callable[[Path], object], kind: str, error: type[Exception]
) -> None:
    """The policies decide. A batch that this query has planned is left to its tasks."""
    end = source.next()
    change(source.directory / "a")
    assert names(source.files(None, end)) == ["a", "b ü"]
    strict = Source(source.directory, {kind: "fail"})
    with pytest.raises(error):
        strict.files(None, end)
    lenient = {"changed": "again", "missing": "skip"}
    again = Source(source.directory, {kind: lenient[kind]})
    assert names(again.files(None, end)) == ["b ü"]
    assert [(each.slice.file.path, each.kind) for each in again.problems()] == [("a", kind)]


def test_a_file_that_python_has_begun_is_refused(source: Source) -> None:
    """Spark reads whole files."""
    (source.directory / "big").write_text("x\n" * 2000)
    options = IngestOptions.parse(
        {"path": str(source.directory), "fileFormat": "text", "sliceBytes": "1000"}
    )
    options.check_table()
    with options.opened_store() as store, options.opened_table() as table:
        ingest = Ingest(store, table, options.settings, splits=options.input.splits)
        end = json.dumps(ingest.latest_offset(ingest.initial_offset()))
    with pytest.raises(ConfigurationError, match=r"'big' is to be read in part"):
        source.files(None, end)


def test_an_empty_file_has_no_footer(tmp_path: Path) -> None:
    """A broken upload does not look like a file without rows."""
    (tmp_path / "a").touch()
    source = Source(tmp_path, {"fileformat": "parquet"})
    with pytest.raises(InputUnreadable, match="'a' is empty"):
        source.files(None, source.next())
    text = Source(tmp_path, {"source": "text"})
    assert names(text.files(None, text.next())) == ["a"]


def test_a_stopped_query_is_closed(source: Source) -> None:
    """Its resources are gone; a later request opens them again."""
    end = source.next()
    assert source.agent.stop(source.request()) == {}
    assert source.agent.stop(source.request()) == {}
    assert names(source.files(None, end)) == ["a", "b ü"]


def test_another_checkpoint_is_refused(source: Source) -> None:
    """A source has one reader, as with Python's."""
    source.files(None, source.next())
    other = Source(source.directory)
    with pytest.raises(StateMismatch):
        other.next()


def test_options_are_divided(tmp_path: Path) -> None:
    """Those of the source are Python's; all others are those of Spark's reader, with exact defaults."""
    given = {"path": str(tmp_path), "fileFormat": "csv", "header": "true", "Mode": "PERMISSIVE"}
    options = ScanOptions.parse(given)
    assert options.ingest.input.name == "csv"
    assert dict(options.spark) == {
        "mode": "PERMISSIVE",
        "enforceschema": "false",
        "timezone": "UTC",
        "header": "true",
        "ignorecorruptfiles": "false",
        "ignoremissingfiles": "false",
    }


def test_notifications_are_refused() -> None:
    """Only Python's readers know them."""
    given = {"path": "s3://bucket/in", "state": "dynamodb://ingest", "notifications": "sqs://queue"}
    with pytest.raises(NotSupported, match="option notifications is not supported here"):
        ScanOptions.parse({**given, "fileFormat": "text"})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fileFormat": "avro"}, NotSupported),
        ({"slice_bytes": "1MiB"}, NotSupported),
        ({"newColumns": "fail"}, NotSupported),
        ({"cleanSource": "delete"}, NotSupported),
        ({"unreadable": "quarantine"}, NotSupported),
        ({"ignoreMissingFiles": "true"}, NotSupported),
        ({"reader": "Python"}, ConfigurationError),
        ({"metadata": "true"}, ConfigurationError),
    ],
)
def test_what_spark_cannot_do_is_refused(
    source: Source, options: dict[str, str], error: type[Exception]
) -> None:
    """The error says what to use."""
    given = {name.lower(): value for name, value in options.items()}
    with pytest.raises(error):
        source.agent.check(Source(source.directory, given).request())
