"""The plans of file scans, without Spark: the requests of a source in Java, and their answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from commitlog.clock import SystemClock
from commitlog.errors import (
    ConfigurationError,
    InputChanged,
    InputMissing,
    InputUnreadable,
    NotFound,
    NotSupported,
    StateMismatch,
)
from commitlog.ingest import Ingest, IngestAdmin, InputProblem, Quarantine, StateTable
from commitlog.spark.ingest import IngestDataSource
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

    def problems(self) -> list[InputProblem]:
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


def test_a_file_that_was_left_out_is_in_no_later_attempt(source: Source) -> None:
    """If it comes back, it is in another batch, and in that one alone."""
    end = source.next()
    path, away = source.directory / "a", source.directory / "_a"
    path.rename(away)
    first, second = (Source(source.directory, {"missing": "skip"}) for _ in range(2))
    assert names(first.files(None, end)) == ["b ü"]
    away.rename(path)
    assert names(second.files(None, end)) == ["b ü"]
    assert names(second.files(end, second.next(end))) == ["a"]


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


def test_a_file_whose_first_records_python_has_delivered_is_refused(source: Source) -> None:
    """Spark would deliver them again, though the rest of the file is a single slice."""
    end = source.next()
    options = ScanOptions.parse(source.request()["options"]).ingest
    with options.opened_store() as store, options.opened_table() as table:
        slice, _ = StateTable(table, options.settings.source).slices(1)
        problems = Quarantine(table, options.settings.source, clock=SystemClock())
        problems.report(1, slice, "unreadable", "bad", records=1)
        assert IngestAdmin(store, table, options.settings).retry()
    with pytest.raises(ConfigurationError, match=r"'a' is to be read in part"):
        source.files(end, source.next(end))


def test_an_empty_file_has_no_footer(tmp_path: Path) -> None:
    """A broken upload does not look like a file without rows."""
    (tmp_path / "a").touch()
    source = Source(tmp_path, {"fileformat": "parquet"})
    with pytest.raises(InputUnreadable, match="'a' is empty"):
        source.files(None, source.next())


@pytest.mark.parametrize("format", ["csv", "json", "text"])
def test_an_empty_file_has_no_lines(tmp_path: Path, format: str) -> None:
    """Spark's readers fail at an empty file whose name says that it is compressed."""
    (tmp_path / "a.gz").touch()
    (tmp_path / "b").write_text("{}\n")
    source = Source(tmp_path, {"fileformat": format})
    assert names(source.files(None, source.next())) == ["b"]
    if format == "text":
        whole = Source(tmp_path, {"source": "whole", "wholetext": "True"})
        assert names(whole.files(None, whole.next())) == ["a.gz", "b"]


def test_a_stopped_query_is_closed(source: Source) -> None:
    """Its resources are gone; a later request opens them again."""
    end = source.next()
    assert source.agent.stop(source.request()) == {}
    assert source.agent.stop(source.request()) == {}
    assert names(source.files(None, end)) == ["a", "b ü"]


# -- inferred columns ----------------------------------------------------------------------------------


def inferred(source: Source) -> dict[str, str]:
    """Return the columns that the agent infers, with their types."""
    schema = source.agent.check(source.request(schema=None))["schema"]
    return {each["name"]: each["type"] for each in json.loads(schema)["fields"]}


def test_columns_are_inferred_once(tmp_path: Path) -> None:
    """They are those of the first files and of their directories, whichever format asks later."""
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1/a").write_text('{"n":1,"s":"x"}\n')
    options = {"fileformat": "json", "newcolumns": "ignore"}
    first = inferred(Source(tmp_path, options))
    assert first == {"n": "long", "s": "string", "day": "string"}
    (tmp_path / "b").write_text('{"n":1.5,"more":true}\n')
    assert inferred(Source(tmp_path, options)) == first
    given = {"path": str(tmp_path), "fileFormat": "json"}
    python = IngestDataSource(given).schema()
    assert {each.name: each.dataType.typeName() for each in python} == first
    assert set(inferred(Source(tmp_path, {**options, "source": "other"}))) == {"n", "s", "more", "day"}


def test_text_has_its_column_before_there_are_files(tmp_path: Path) -> None:
    """Other formats need a file."""
    ignore = {"newcolumns": "ignore"}
    assert inferred(Source(tmp_path, ignore)) == {"value": "string"}
    with pytest.raises(NotFound, match="to infer the columns"):
        inferred(Source(tmp_path, {**ignore, "fileformat": "json", "source": "json"}))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, NotSupported, "set newColumns to ignore"),
        ({"newcolumns": "fail"}, NotSupported, "ignore new columns"),
        ({"newcolumns": "ignore", "metadata": "true"}, NotSupported, "offsets of records"),
        ({"newcolumns": "ignore", "encoding": "UTF-16"}, ConfigurationError, "UTF-8"),
        ({"newcolumns": "ignore", "locale": "de"}, ConfigurationError, "fewer options than Spark's"),
    ],
)
def test_columns_that_python_would_infer_otherwise_are_refused(
    tmp_path: Path, options: dict[str, str], error: type[Exception], said: str
) -> None:
    """Both formats read the same columns with the same policy, or the error says what to set."""
    (tmp_path / "a").write_text('{"n":1}\n')
    with pytest.raises(error, match=said):
        inferred(Source(tmp_path, {"fileformat": "json", **options}))


# -- cleaning ------------------------------------------------------------------------------------------


def left(source: Source) -> set[str]:
    """Return the names of the files in a directory."""
    return {path.name for path in source.directory.rglob("*") if path.is_file() and path.suffix == ".x"}


@pytest.fixture
def cleaned(tmp_path: Path) -> Source:
    """A source of two files that is cleaned, one file in a batch."""
    for name in ("a.x", "b.x"):
        (tmp_path / name).write_text(f"{name}\n")
    return Source(tmp_path, {"cleansource": "delete", "maxfilespertrigger": "1"})


def test_only_committed_batches_are_cleaned(cleaned: Source) -> None:
    """Spark tells of a commit when the next batch begins; the end of a query waits for the cleaning."""
    assert cleaned.agent.check(cleaned.request())["cleans"]
    first = cleaned.next()
    cleaned.files(None, first)
    second = cleaned.next(first)
    cleaned.files(first, second)
    cleaned.agent.stop(cleaned.request())
    assert left(cleaned) == {"a.x", "b.x"}
    cleaned.agent.commit(cleaned.request(end=first))
    cleaned.agent.stop(cleaned.request())
    assert left(cleaned) == {"b.x"}
    # The last batch before a restart, which Spark asks for again, and does not read.
    restarted = Source(cleaned.directory, cleaned.options)
    restarted.agent.plan(restarted.request(start=first, end=second))
    assert left(cleaned) == {"b.x"}
    restarted.agent.commit(restarted.request(end=second))
    restarted.agent.stop(restarted.request())
    assert left(cleaned) == set()


def test_a_commit_can_be_told_twice(cleaned: Source) -> None:
    """Another agent takes over, and the commit of an earlier batch changes nothing."""
    first = cleaned.next()
    cleaned.files(None, first)
    second = cleaned.next(first)
    cleaned.files(first, second)
    for end in (first, second, first, second):
        agent = Source(cleaned.directory, cleaned.options)
        agent.agent.commit(agent.request(end=end))
        agent.agent.stop(agent.request())
    assert left(cleaned) == set()
    with pytest.raises(StateMismatch, match="were cleaned"):
        cleaned.files(None, first)


def test_a_replaced_file_is_not_cleaned(cleaned: Source) -> None:
    """It is another version, which is delivered next."""
    first = cleaned.next()
    cleaned.files(None, first)
    (cleaned.directory / "a.x").write_text("of another version\n")
    cleaned.agent.commit(cleaned.request(end=first))
    cleaned.agent.stop(cleaned.request())
    assert left(cleaned) == {"a.x", "b.x"}
    second = cleaned.next(first)
    third = cleaned.next(second)
    assert names([*cleaned.files(first, second), *cleaned.files(second, third)]) == ["b.x", "a.x"]


def test_a_problem_is_not_cleaned(cleaned: Source) -> None:
    """A version that was not delivered stays, if it is still there."""
    first = cleaned.next()
    path = cleaned.directory / "a.x"
    path.rename(cleaned.directory / "kept")
    path.write_text("for a moment\n")
    restarted = Source(cleaned.directory, cleaned.options)
    assert restarted.files(None, first) == []
    (cleaned.directory / "kept").rename(path)
    restarted.agent.commit(restarted.request(end=first))
    restarted.agent.stop(restarted.request())
    assert left(cleaned) == {"a.x", "b.x"}
    assert [each.kind for each in cleaned.problems()] == ["changed"]


def test_files_are_cleaned_after_a_delay(cleaned: Source) -> None:
    """A query that finds nothing new cleans too."""
    delayed = Source(cleaned.directory, {**cleaned.options, "cleandelay": "1d"})
    first = delayed.next()
    delayed.files(None, first)
    second = delayed.next(first)
    delayed.files(first, second)
    delayed.agent.commit(delayed.request(end=second))
    delayed.agent.stop(delayed.request())
    assert left(cleaned) == {"a.x", "b.x"}
    assert cleaned.next(second) == second
    cleaned.agent.stop(cleaned.request())
    assert left(cleaned) == set()


def test_files_are_archived(cleaned: Source) -> None:
    """They are moved to a directory that the query does not read."""
    archive = {"cleansource": "archive", "sourcearchivedir": f"{cleaned.directory}/_old"}
    archived = Source(cleaned.directory, {**cleaned.options, **archive})
    first = archived.next()
    archived.files(None, first)
    archived.agent.commit(archived.request(end=first))
    archived.agent.stop(archived.request())
    assert [path.name for path in (cleaned.directory / "_old").iterdir()] == ["a.x"]
    assert not (cleaned.directory / "a.x").exists()


def test_a_query_that_does_not_clean_is_not_told_of_commits(source: Source) -> None:
    """Its commits are implied, and nothing is removed if one is told."""
    assert not source.agent.check(source.request())["cleans"]
    end = source.next()
    source.files(None, end)
    assert source.agent.commit(source.request(end=end)) == {}
    assert (source.directory / "a").exists()


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
    assert options.ingest.format == "csv"
    assert dict(options.spark) == {
        "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "fs.file.impl.disable.cache": "true",
        "mode": "PERMISSIVE",
        "enforceschema": "false",
        "timezone": "UTC",
        "header": "true",
        "ignorecorruptfiles": "false",
        "ignoremissingfiles": "false",
    }


def test_spark_refuses_by_default_what_python_refuses(tmp_path: Path) -> None:
    """Its own defaults give nulls for content that does not fit, and other days for early ones."""
    lines = {"mode": "FAILFAST", "timezone": "UTC"}
    days = {"datetimerebasemode": "EXCEPTION", "int96rebasemode": "EXCEPTION"}
    for format, strict in ("json", lines), ("csv", lines), ("parquet", days):
        options = ScanOptions.parse({"path": str(tmp_path), "fileFormat": format})
        assert strict.items() <= options.spark.items()


def test_no_file_of_avro_is_left_out_for_its_name(tmp_path: Path) -> None:
    """By a setting of Hadoop, Spark's reader would skip files without the suffix."""
    given = {"path": str(tmp_path), "fileFormat": "AVRO"}
    options = ScanOptions.parse(given)
    assert (options.ingest.format, options.spark["ignoreextension"]) == ("avro", "true")
    with pytest.raises(NotSupported, match="would lose records"):
        ScanOptions.parse({**given, "ignoreExtension": "false"})


def test_avro_needs_no_reader_in_python(tmp_path: Path) -> None:
    """The agent may lack fastavro, as Spark reads the files."""
    code = """
import sys
from commitlog.spark.ingest.scans import ScanOptions
ScanOptions.parse({"path": sys.argv[1], "fileFormat": "avro"})
assert "fastavro" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fileFormat": "binaryFile"}, NotSupported),
        ({"fileFormat": "orc", "timeZone": "UTC"}, NotSupported),
        ({"slice_bytes": "1MiB"}, NotSupported),
        ({"maxRecordBytes": "1000"}, NotSupported),
        ({"newColumns": "fail"}, NotSupported),
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
