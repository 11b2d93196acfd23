"""The commands ``commitlog ingest``, which need only the state table."""

from __future__ import annotations

import inspect
import io
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from click.testing import CliRunner, Result
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from commitlog.cli import main
from commitlog.cli.ingest.commands import ingest
from commitlog.cli.ingest.report import listing_progress
from commitlog.clock import SystemClock
from commitlog.errors import InputUnreadable
from commitlog.ingest import (
    INGEST_SCHEMA,
    IngestAdmin,
    IngestSettings,
    PathFilter,
    Pinned,
    Slice,
    SourceMetadata,
    StateTable,
)
from commitlog.ingest.source_metadata import SETTINGS
from commitlog.stores.open import open_store
from commitlog.tables.api import Key, Table
from commitlog.tables.open import open_table
from commitlog.urls import parse_store_url
from support.ingest import Checkpoint, Engine
from support.servers import Ministack


@define
class Site:
    """A directory, a state table, and queries that read the directory.

    Attributes:
        input: URL of the store.
        state: URL of the table.
        env: the environment of commands.
        secret: a text that they must not print.
    """

    input: str
    state: str
    env: dict[str, str] = field(factory=dict)
    secret: str = "geheim"
    checkpoints: dict[str, Checkpoint] = field(factory=dict)

    def put(self, path: str, body: bytes) -> None:
        """Put an object."""
        with closing(open_store(self.input)) as store:
            store.put(path, body)

    def batch(self, source: str, *, bad: str = "", **settings: Any) -> None:
        """Run a batch of a query; of files that are `bad` all but the first two bytes are damaged."""

        def decode(pinned: Pinned, slice: Slice) -> Iterator[list[tuple[str, str, int]]]:
            path = slice.file.path
            yield [(path, slice.file.etag, byte) for byte in pinned.get(path, end=2).data]
            if path == bad:
                raise InputUnreadable(f"no JSON \x1b[2J in {path}", offset=2)

        given = IngestSettings(source=source, unreadable="quarantine", **settings)
        with closing(open_store(self.input)) as store, closing(self.table()) as table:
            engine = Engine(
                store=store,
                table=table,
                settings=given,
                clock=SystemClock(),
                checkpoint=self.checkpoints.setdefault(source, Checkpoint()),
                decode=decode,
            )
            StateTable(table, source).describe(
                SourceMetadata(url=self.input, format="json", settings=given)
            )
            engine.batch()

    def table(self) -> Table:
        """Open the state table."""
        return open_table(self.state, INGEST_SCHEMA)

    def run(self, *words: str, answer: str = "") -> Result:
        """Run a command. Check that its output has no secret and no control characters."""
        done = CliRunner(env=self.env).invoke(
            main,
            ["ingest", *words, "--state", self.state],
            input=answer,
        )
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert self.secret not in done.output
        assert "\x1b" not in done.output
        return done

    def lines(self, *words: str) -> list[dict[str, Any]]:
        """Return the JSON objects that a command printed, one a line."""
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]


def families(text: str) -> dict[str, Metric]:
    """Return the metric families that Prometheus's own parser finds in `text`, by name."""
    assert text.endswith("# EOF\n")
    parsed = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {family.name: family for family in parsed}


def values(family: Metric, **labels: str) -> list[float]:
    """Return the values of samples that have `labels`."""
    return [each.value for each in family.samples if labels.items() <= each.labels.items()]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty directory, and an empty table."""
    site = Site(f"file://{tmp_path}/in", f"sqlite://{tmp_path}/state.db")
    with closing(site.table()) as table:
        table.create()
    return site


@pytest.fixture
def busy(site: Site) -> Site:
    """A source that has read one of four files and could not read another one, and a finished one."""
    for path, body in {"a/1": b"123", "b/bad": b"1234", "c": b"12345", "d\u2028x": b"123456"}.items():
        site.put(path, body)
    site.batch("events", bad="b/bad", max_files=2)
    site.batch("other", names=PathFilter(glob="a/*"))
    return site


def test_status_shows_a_source(busy: Site) -> None:
    """Delivered, waiting and unreadable files, and the settings of the query."""
    events, other = busy.lines("status")
    assert [events["source"], other["source"]] == ["events", "other"]
    assert (events["epoch"], events["files"], events["bytes"]) == (1, 2, 7)
    assert (events["url"], events["format"]) == (busy.input, "json")
    assert events["problems"] == {"changed": 0, "missing": 0, "unreadable": 1}
    assert (events["cursor"], events["sweeps"], events["rest"], events["passed_over"]) == (
        "b/bad",
        0,
        0,
        0,
    )
    assert (events["backlog"]["files"], events["backlog"]["bytes"]) == (2, 11)
    assert events["backlog"]["oldest"]["path"] == "c"
    assert 0 <= events["backlog"]["oldest"]["age"] < 60
    assert events["settings"]["max_files"] == 2
    assert (other["backlog"], other["cursor"]) == ({"files": 0, "bytes": 0, "oldest": None}, None)
    assert other["settings"]["names"] == {"glob": "a/*", "name": None, "hidden": False}
    [one] = busy.lines("status", "other", "--no-backlog")
    assert (one["source"], one["backlog"]) == ("other", None)


def test_status_as_text(busy: Site) -> None:
    """One line for each value. Only settings other than the default are shown."""
    shown = busy.run("status").stdout
    for line in (
        "delivered     2 files, 7 bytes",
        "problems      1 unreadable",
        "waiting       2 files, 11 bytes; the oldest for",
        "settings      max_files=2, unreadable=quarantine",
        "settings      glob=a/*, unreadable=quarantine",
    ):
        assert line in shown, line
    assert "waiting" not in busy.run("status", "--no-backlog").stdout


def test_files_lists_waiting_and_unreadable_files(busy: Site) -> None:
    """Both kinds, or the requested one, with details."""
    problem, *waiting = busy.lines("files", "events")
    assert [each["path"] for each in waiting] == ["c", "d\u2028x"]
    assert {each["state"] for each in waiting} == {"waiting"}
    assert (waiting[0]["size"], waiting[0]["start"], waiting[0]["end"]) == (5, 0, 5)
    assert (problem["path"], problem["state"], problem["size"]) == ("b/bad", "unreadable", 4)
    assert (problem["offset"], problem["epoch"], problem["records"]) == (2, 1, 2)
    assert "no JSON" in problem["error"]
    assert [each["path"] for each in busy.lines("files", "events", "--problems")] == ["b/bad"]
    assert len(busy.lines("files", "events", "--waiting")) == 2
    assert len(busy.lines("files", "events", "--waiting", "--problems")) == 3
    shown = busy.run("files", "events").stdout
    assert "epoch 1" in shown and "after 2 records at byte 2: no JSON \\x1b[2J in b/bad" in shown
    assert "d\\u2028x" in shown


def test_problems_need_the_state_table_only(busy: Site) -> None:
    """The input is not opened for them. A source that does not exist is no source without problems."""
    with closing(busy.table()) as table:
        table.delete(Key("events", SETTINGS))
    assert [each["path"] for each in busy.lines("files", "events", "--problems")] == ["b/bad"]
    assert busy.run("files", "events").exit_code == 2
    missing = busy.run("files", "evnts", "--problems", "--input", busy.input)
    assert missing.exit_code == 1 and "has no state" in missing.stderr


def test_an_input_that_is_not_mounted_is_an_error(busy: Site, tmp_path: Path) -> None:
    """Its listing would be empty, and nothing would seem to wait."""
    (tmp_path / "in").rename(tmp_path / "away")
    for words in (["status", "events"], ["files", "events", "--waiting"]):
        done = busy.run(*words)
        assert done.exit_code != 0 and "mount it" in done.stderr


def test_a_source_has_to_be_named_if_there_are_several(busy: Site) -> None:
    """Only `status` works on all sources."""
    for words in (["files"], ["retry", "--all"], ["reset", "--yes"], ["status", "--input", busy.input]):
        done = busy.run(*words)
        assert done.exit_code == 2
        assert "'events', 'other'" in done.stderr


def test_retry_delivers_unreadable_files_again(busy: Site) -> None:
    """Either paths or --all is required. The retried slices are printed."""
    assert busy.run("retry", "events").exit_code == 2
    assert busy.run("retry", "events", "--all", "--path", "c").exit_code == 2
    missing = busy.run("retry", "events", "--path", "nowhere")
    assert missing.exit_code == 1 and "nowhere" in missing.stderr
    [again] = busy.lines("retry", "events", "--path", "b/bad")
    assert (again["path"], again["start"], again["end"], again["skip"]) == ("b/bad", 0, 4, 2)
    assert busy.lines("files", "events", "--problems") == []
    assert [each["path"] for each in busy.lines("files", "events")] == ["b/bad", "c", "d\u2028x"]
    nothing = busy.run("retry", "events", "--all")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "nothing" in nothing.stderr


def test_retry_of_a_retried_path_says_so(busy: Site) -> None:
    """After a lost answer the command is repeated, and must not say that all data could be read."""
    busy.run("retry", "events", "--path", "b/bad")
    again = busy.run("retry", "events", "--path", "b/bad")
    assert again.exit_code == 1 and "retried already" in again.stderr


def test_examples_are_valid(site: Site) -> None:
    """The example in the help of each command is no wrong usage."""
    site.put("a", b"1")
    site.batch("events")
    for name, command in ingest.commands.items():
        example = inspect.cleandoc(command.help or "").partition("Example:\n")[2]
        words = example.replace("SOURCE", "events").split()
        assert words[:3] == ["commitlog", "ingest", name]
        assert "Usage:" not in site.run(*words[2:]).output, name


def test_retry_of_all_problems(busy: Site) -> None:
    """Every problem of the source is retried."""
    busy.batch("events", bad="c", max_files=1)
    assert set(busy.run("retry", "events", "--all").stdout.splitlines()) == {"b/bad", "c"}


def test_reset_deletes_one_source_after_confirmation(busy: Site) -> None:
    """Without a confirmation nothing is deleted. Other sources stay."""
    for answer in ("n\n", ""):
        done = busy.run("reset", "events", answer=answer)
        assert done.exit_code == 2
        assert "2 files" in done.stderr
    assert len(busy.lines("status", "--no-backlog")) == 2
    yes = busy.run("reset", "events", answer="y\n")
    assert yes.exit_code == 0 and "items" in yes.stdout
    assert [each["source"] for each in busy.lines("status")] == ["other"]
    with closing(busy.table()) as table:
        assert list(table.query("events")) == []
    again = busy.run("reset", "events", "--yes")
    assert again.exit_code == 1 and "has no state of source" in again.stderr
    [reported] = busy.lines("reset", "--yes")
    assert reported["source"] == "other" and reported["items"] >= 2


def test_reset_detects_an_active_query(busy: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the state changes before the answer, nothing is deleted."""
    assert "it started to list its input" in busy.run("reset", "events", answer="n\n").stderr

    def answer(*_: object, **__: object) -> bool:
        busy.batch("events", max_files=1)
        return True

    monkeypatch.setattr("click.confirm", answer)
    done = busy.run("reset", "events")
    assert done.exit_code == 3 and "stop it first" in done.stderr
    assert busy.lines("status", "events")[0]["files"] == 3


def test_reset_of_a_damaged_source(busy: Site) -> None:
    """A source with an unreadable state can be deleted; `status` shows the other source and fails."""
    with closing(busy.table()) as table:
        table.put({"source": "events", "item": "list", "body": b"?"})
        table.put({"source": "events", "item": SETTINGS, "body": b"?"})
    done = busy.run("status", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stderr)["what"] == "events"
    assert json.loads(done.stdout)["source"] == "other"
    assert busy.run("reset", "events", answer="y\n").exit_code == 0


def test_metrics_are_valid_openmetrics(busy: Site) -> None:
    """Prometheus's own parser returns their names, types and labels."""
    found = families(busy.run("status", "--openmetrics").stdout)
    events = {"source": "events"}
    expected = {
        "epoch": ("gauge", 1),
        "files": ("counter", 2),
        "bytes": ("counter", 7),
        "sweeps": ("counter", 0),
        "rest_bytes": ("gauge", 0),
        "passed_over": ("counter", 0),
        "backlog_files": ("gauge", 2),
        "backlog_bytes": ("gauge", 11),
    }
    for name, (kind, value) in expected.items():
        family = found.pop(f"commitlog_ingest_{name}")
        assert (family.type, values(family, **events)) == (kind, [value]), name
        assert len(family.samples) == 2
    problems = found.pop("commitlog_ingest_problems")
    assert values(problems, **events, kind="unreadable") == [1]
    assert len(problems.samples) == 6
    [age] = values(found.pop("commitlog_ingest_backlog_oldest_seconds"), **events)
    assert 0 <= age < 60
    assert not found
    without = families(busy.run("status", "--openmetrics", "--no-backlog").stdout)
    assert without["commitlog_ingest_backlog_files"].samples == []
    assert busy.run("status", "--openmetrics", "--json").exit_code == 2


def test_names_of_sources_are_escaped_in_metrics(site: Site) -> None:
    """Any name of a source is read back unchanged."""
    name = 'a"b\\c\nd{},= #\u2028ü'
    site.put("a", b"1")
    site.batch(name)
    found = families(site.run("status", "--openmetrics").stdout)
    assert values(found["commitlog_ingest_files"], source=name) == [1]


def test_the_input_can_be_given(busy: Site, tmp_path: Path) -> None:
    """A moved input is given as an option. Commands that need no input do not use it."""
    os.rename(tmp_path / "in", tmp_path / "moved")
    gone = busy.run("status", "events", "--input", "s3://lake/nobody-may-list")
    assert gone.exit_code != 0
    assert "delivered     2 files" in gone.stdout and "waiting" not in gone.stdout
    assert "commitlog: events: " in gone.stderr
    [reported] = busy.lines("status", "events", "--input", str(tmp_path / "moved"))
    assert reported["backlog"]["files"] == 2
    secret = busy.run("status", "events", "--input", "s3://lake/?secret_access_key=geheim")
    assert secret.exit_code == 2


def test_a_source_without_metadata_needs_an_input(site: Site) -> None:
    """Missing sources and tables are reported."""
    assert "no source" in site.run("status").stderr
    assert "has no state" in site.run("status", "x", "--input", site.input).stderr
    site.put("a", b"1")
    site.batch("events")
    with closing(site.table()) as table:
        table.delete(StateTable(table, "events").metadata().key)  # type: ignore[union-attr]
    done = site.run("status")
    assert done.exit_code == 2 and "--input" in done.stderr
    assert "1 files" in done.stdout
    assert site.lines("status", "--input", site.input)[0]["settings"] is None
    for words in (["status"], ["status", "events"], ["files"], ["reset", "events", "--yes"]):
        nowhere = evolve(site, state=site.state + "x").run(*words)
        assert nowhere.exit_code == 1
        assert "there is no table" in nowhere.stderr and "create" not in nowhere.stderr


def test_files_are_streamed(busy: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files before an error are printed, as JSON and as text."""
    waiting = IngestAdmin.waiting

    def failing(self: IngestAdmin, **options: Any) -> Iterator[Slice]:
        yield next(waiting(self, **options))
        raise InputUnreadable("boom")

    monkeypatch.setattr(IngestAdmin, "waiting", failing)
    done = busy.run("files", "events", "--waiting", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["path"] == "c"


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_long_listing_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal it shows the number of listed objects; elsewhere nothing."""
    for stream, hidden, shown in (
        (Terminal(), False, True),
        (Terminal(), True, False),
        (io.StringIO(), False, False),
    ):
        monkeypatch.setattr("sys.stderr", stream)
        with listing_progress("listing", hidden=hidden) as listed:
            for _ in range(2500):
                listed()
        assert ("listing: 2500 objects" in stream.getvalue()) is shown
        assert stream.getvalue().count("\n") <= 1


@pytest.mark.servers
def test_on_s3_and_dynamodb(ministack: Ministack) -> None:
    """With credentials from the environment and the endpoint in both URLs. No secret is printed."""
    place = f"endpoint_url={ministack.endpoint_url}&region={ministack.region}"
    keys = f"&access_key_id={ministack.access_key_id}&secret_access_key={ministack.secret_access_key}"
    input = f"s3://{ministack.new_bucket()}/landing?{place}"
    state = f"dynamodb://{ministack.new_table_name()}?{place}"
    query = Site(input + keys, state + keys)
    with closing(query.table()) as table:
        table.create()
    query.put("a/1", b"123")
    query.put("täglich 100%", b"1234")
    query.batch("events", bad="a/1", max_files=1)
    env = {
        "AWS_ACCESS_KEY_ID": ministack.access_key_id,
        "AWS_SECRET_ACCESS_KEY": ministack.secret_access_key,
        "COMMITLOG_REGION": ministack.region,
    }
    site = Site(input, state, env, ministack.secret_access_key)
    [reported] = site.lines("status")
    assert reported["url"] == input
    assert (reported["files"], reported["backlog"]["files"], reported["problems"]["unreadable"]) == (
        1,
        1,
        1,
    )
    assert [each["path"] for each in site.lines("files")] == ["a/1", "täglich 100%"]
    assert site.run("retry", "--all").stdout == "a/1\n"
    families(site.run("status", "--openmetrics").stdout)
    assert site.lines("reset", "--yes")[0]["source"] == "events"
    assert site.run("status").exit_code == 1


def test_clean_deletes_what_is_due(site: Site) -> None:
    """Only files of committed batches, and none with data that could not be read."""
    for path, body in {"a": b"1", "b": b"1234", "c": b"12"}.items():
        site.put(path, body)
    settings: dict[str, Any] = {"max_files": 1, "remember": "everything"}
    site.batch("off", **settings)
    assert "set its cleanSource" in site.run("clean", "off").stderr
    for _ in range(3):
        site.batch("events", bad="b", clean="archive", archive="_old/", **settings)
    site.put("a", b"another")
    assert site.lines("clean", "events") == [{"source": "events", "files": 1, "gone": 0, "kept": 2}]
    assert site.run("clean", "events").stdout == "0 archived, 0 gone, 0 kept\n"
    with closing(open_store(site.input)) as store:
        assert [info.path for info in store.list()] == ["_old/c", "a", "b"]


def test_clean_looks_for_files_only_where_the_query_reads(site: Site, tmp_path: Path) -> None:
    """In another place, or below a directory that is not mounted, they are not taken for gone."""
    site.put("a", b"1")
    site.batch("events", clean="delete", remember="everything")
    site.batch("events", clean="delete", remember="everything")
    other = tmp_path / "other"
    other.mkdir()
    refused = site.run("clean", "--input", str(other))
    assert refused.exit_code == 2, refused.output
    assert f"reads {parse_store_url(site.input)}, and --input is file://{other}" in refused.stderr
    directory, away = tmp_path / "in", tmp_path / "away"
    directory.rename(away)
    assert "is not there" in site.run("clean").stderr
    away.rename(directory)
    assert site.lines("clean", "--input", site.input) == [
        {"source": "events", "files": 1, "gone": 0, "kept": 0}
    ]
