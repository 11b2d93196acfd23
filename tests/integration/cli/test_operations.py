"""The commands for operators: tables, leases, logs of outputs, recovery, the probe."""

from __future__ import annotations

import json
import re
import time
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import commitlog
from commitlog.cli import main
from commitlog.clock import SystemClock
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.errors import AccessDenied, OutcomeUnknown, Unavailable
from commitlog.oplog import OperationLog
from commitlog.outputs import Output
from commitlog.stores.api import Staged, StagedInfo
from commitlog.stores.local.store import LocalStore
from commitlog.tables.open import open_table
from commitlog.tables.sqlite import SqliteTable
from commitlog.testing import ManualClock
from support.outputs import Death, HookedStore, Once, open_output, stage_some
from support.servers import Ministack


def run(*words: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def lines(result: Result) -> list[dict[str, object]]:
    """Return the JSON objects that a command printed, one a line."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The URL of an empty table of leases."""
    url = f"sqlite://{tmp_path}/leases.db"
    assert run("table", "create", url).exit_code == 0
    return url


def record(path: str, *, age: float, timeout: int = 20_000, etag: str = "*") -> LeaseRecord:
    """Return a lease that was written `age` seconds ago by a writer with the default settings."""
    ttl = int(SystemClock().epoch() - age) + 3600
    return LeaseRecord(path=path, etag=etag, generation=3, timeout=timeout, ttl=ttl, owner="w1")


def write(table: str, *records: LeaseRecord) -> None:
    """Put lease records into the table."""
    opened = open_table(table, LEASE_SCHEMA)
    for each in records:
        opened.put(each.to_item())
    opened.close()


def test_an_existing_table_is_no_error(tmp_path: Path) -> None:
    """The message says that it exists."""
    url = f"sqlite://{tmp_path}/t.db"
    assert lines(run("table", "create", url, "--json")) == [{"url": url, "created": True}]
    assert lines(run("table", "create", url, "--json")) == [{"url": url, "created": False}]
    assert "exists already" in run("table", "create", url).stdout


def test_billing_and_tags_of_a_table(
    ministack: Ministack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new table is on demand. Tags are set again."""
    for name, value in (
        ("ACCESS_KEY_ID", "test"),
        ("SECRET_ACCESS_KEY", "test"),
        ("REGION", "us-east-1"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    service = ("--endpoint-url", ministack.endpoint_url, "--region", "us-east-1")
    url = f"dynamodb://t{uuid.uuid4().hex}"
    assert run("table", "create", url, "--tag", "team=a=b", "--tag", "cost=7", *service).exit_code == 0
    assert run("table", "create", url, "--tag", "cost=8", *service).exit_code == 0
    [info] = lines(run("table", "describe", url, "--json", *service))
    assert (info["billing"], info["tags"]) == ("on-demand", {"team": "a=b", "cost": "8"})
    assert "team=a=b" in run("table", "describe", url, *service).stdout


def test_invalid_tags_are_refused(tmp_path: Path) -> None:
    """Before the table is created."""
    url = f"sqlite://{tmp_path}/t.db"
    for tag, messages in (("a=b", "cannot have tags"), ("a", "not KEY=VALUE"), ("=b", "not KEY=VALUE")):
        done = run("table", "create", url, "--tag", tag)
        assert done.exit_code == 2 and messages in done.stderr
    assert not (tmp_path / "t.db").exists()


def test_table_of_ingest_state(tmp_path: Path) -> None:
    """It has other keys than a table of leases, and is not accepted as one."""
    url = f"sqlite://{tmp_path}/t.db"
    assert lines(run("table", "create", url, "--for", "ingest", "--json")) == [
        {"url": url, "created": True}
    ]
    [info] = lines(run("table", "describe", url, "--json"))
    assert (info["hash_key"], info["range_key"], info["ttl_attribute"]) == ("source", "item", None)
    assert "keys" in run("lease", "list", url).stderr


def test_table_info_shows_keys(table: str) -> None:
    """As text and as JSON: the keys, the TTL attribute and the format."""
    [info] = lines(run("table", "describe", table, "--json"))
    keys = {"url", "hash_key", "range_key", "ttl_attribute", "format", "created", "item_count"}
    assert set(info) == keys | {"billing", "tags"}
    assert info["billing"] is info["tags"] is None
    assert (info["hash_key"], info["range_key"], info["ttl_attribute"]) == ("path", "etag", "ttl")
    assert "hash key" in run("table", "describe", table).stdout


def test_the_message_for_a_missing_table_names_the_command(tmp_path: Path) -> None:
    """A missing table is a failure."""
    done = run("table", "describe", f"sqlite://{tmp_path}/none.db")
    assert done.exit_code == 1
    assert "commitlog table create" in done.stderr


def test_lease_list_shows_unreleased_leases(table: str) -> None:
    """Held and overdue ones; released ones only with --all."""
    write(table, record("a", age=5), record("b", age=50, etag='"e"'), record("c", age=5, timeout=0))
    shown = {row["path"]: row for row in lines(run("lease", "list", table, "--json"))}
    assert set(shown) == {"a", "b"}
    assert (shown["a"]["state"], shown["b"]["state"]) == ("held", "overdue")
    assert shown["b"]["etag"] == '"e"'
    assert shown["a"]["owner"] == "w1"
    everything = {row["path"]: row for row in lines(run("lease", "list", table, "--all", "--json"))}
    assert everything["c"]["state"] == "released"
    assert everything["c"]["reclaimable_within"] == 0


def test_lease_list_derives_age_and_wait(table: str) -> None:
    """The age comes from the ttl and the TTL setting, the wait from the timeout and the skew rate."""
    write(table, record("a", age=5))
    [row] = lines(run("lease", "list", table, "--json"))
    assert row["age"] == pytest.approx(5, abs=2)
    assert row["reclaimable_within"] == 60
    [row] = lines(run("lease", "list", table, "--json", "--ttl", "3500", "--skew-rate", "2"))
    assert row["age"] == pytest.approx(-95, abs=2)
    assert row["reclaimable_within"] == 40


@pytest.mark.parametrize("option", ["--ttl", "--skew-rate"])
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_ages_of_leases_are_numbers(table: str, option: str, number: str) -> None:
    """JSON has no others, and a lease of such an age is neither held nor overdue."""
    write(table, record("x", age=5))
    done = run("lease", "list", table, "--json", option, number)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--ttl and --skew-rate must be finite" in done.stderr


def test_lease_list_as_text(table: str) -> None:
    """The owner, the age and the wait are shown. Without leases nothing is printed."""
    assert run("lease", "list", table).stdout == ""
    write(table, record("dir/a", age=5), record("other", age=5))
    shown = run("lease", "list", table, "--prefix", "dir/").stdout
    assert "dir/a" in shown and "within 1 min 0 s" in shown and "w1" in shown
    assert "other" not in shown


def test_lease_list_survives_a_corrupt_record(table: str) -> None:
    """It is reported, the others are shown, and the status is 1."""
    write(table, record("a", age=5))
    open_table(table, LEASE_SCHEMA).put({"path": "x", "etag": "*", "generation": "seven"})
    done = run("lease", "list", table, "--json")
    assert done.exit_code == 1
    assert "'x'" in done.stderr
    assert json.loads(done.stdout)["path"] == "a"


def test_lease_list_shows_records_of_other_clients(table: str) -> None:
    """A record without an owner, as of object_store, is shown with owner null."""
    item = {**record("a", age=5).to_item()}
    del item["owner"]
    open_table(table, LEASE_SCHEMA).put(item)
    [row] = lines(run("lease", "list", table, "--json"))
    assert row["owner"] is None
    assert "unknown" in run("lease", "list", table).stdout


def records(table: str) -> dict[tuple[str, str], LeaseRecord]:
    """Return the lease records of the table by path and etag."""
    opened = open_table(table, LEASE_SCHEMA)
    found = [LeaseRecord.from_item(item) for item in opened.scan()]
    opened.close()
    return {(each.path, each.etag): each for each in found}


def test_lease_break_waits_and_releases_all_leases_on_a_path(table: str) -> None:
    """Those on every etag, and none on another path; the time is that of one wait."""
    held = [record("a", age=5, timeout=200), record("a", age=5, timeout=200, etag='"e"')]
    other = record("a/b", age=5, timeout=200)
    write(table, *held, other, record("a", age=5, timeout=0, etag='"f"'))
    start = time.monotonic()
    rows = lines(run("lease", "break", table, "a", "--json"))
    assert 0.6 <= time.monotonic() - start < 1.2
    assert [row["etag"] for row in rows] == ['"e"', "*"]
    assert {key: row[key] for row in rows for key in ("path", "owner", "wait", "broken", "dry_run")} == {
        "path": "a",
        "owner": "w1",
        "wait": pytest.approx(0.6),
        "broken": True,
        "dry_run": False,
    }
    found = records(table)
    assert [found["a", each.etag].timeout for each in held] == [0, 0]
    assert [found["a", each.etag].generation for each in held] == [4, 4]
    assert found["a/b", "*"] == other


def test_lease_break_says_what_it_waits_for(table: str) -> None:
    """On standard error; the result is on standard output."""
    write(table, record("a", age=5, timeout=100))
    done = run("lease", "break", table, "a")
    assert (done.exit_code, done.stdout) == (0, "a: released\n")
    assert "a: waiting for the holder, at most 0.3 s" in done.stderr


def test_lease_break_of_a_path_without_a_lease_is_done(table: str) -> None:
    """It may be repeated."""
    write(table, record("a", age=5, timeout=0))
    done = run("lease", "break", table, "a", "b")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "a: no lease is held" in done.stderr and "b: no lease is held" in done.stderr


def test_lease_break_on_trial_changes_nothing(table: str) -> None:
    """--dry-run shows the wait, and does not wait."""
    held = record("a", age=5)
    write(table, held)
    assert (
        "would break the lease on a after 1 min 0 s"
        in run("lease", "break", table, "a", "--dry-run").stdout
    )
    [row] = lines(run("lease", "break", table, "a", "--dry-run", "--json", "--skew-rate", "4"))
    assert (row["wait"], row["broken"], row["dry_run"]) == (80, False, True)
    assert records(table)["a", "*"] == held


def test_lease_break_gives_up_after_max_wait(table: str) -> None:
    """With status 1; the lease is unchanged, and the others are broken."""
    held = record("a", age=5)
    write(table, held, record("b", age=5, timeout=10))
    done = run("lease", "break", table, "a", "b", "--max-wait", "0.2s")
    assert (done.exit_code, done.stdout) == (1, "b: released\n")
    assert "'a' may write for another" in done.stderr
    assert records(table)["a", "*"] == held


def test_lease_break_has_no_way_to_wait_shorter(table: str) -> None:
    """The rate is the default or larger, and there is no --force."""
    for words in (["--skew-rate", "2.9"], ["--force"]):
        assert run("lease", "break", table, "a", *words).exit_code == 2
    assert run("lease", "break", table).exit_code == 2


def test_lease_break_of_an_unknown_outcome_has_status_4(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the table is lost, and the record cannot be read; without the former it is 1."""
    held = record("a", age=5, timeout=10)
    write(table, held)

    def down(*arguments: object) -> object:
        raise Unavailable("down")

    def lost(*arguments: object, **options: object) -> object:
        monkeypatch.setattr(SqliteTable, "get", down)
        raise OutcomeUnknown("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteTable, "get", down)
        done = run("lease", "break", table, "a")
    assert done.exit_code == 1 and "down" in done.stderr
    monkeypatch.setattr(SqliteTable, "begin_put", lost)
    done = run("lease", "break", table, "a")
    assert done.exit_code == 4 and "released or not" in done.stderr
    monkeypatch.undo()
    assert records(table)["a", "*"] == held


def test_lease_break_survives_a_corrupt_record(table: str) -> None:
    """It is reported, with status 1; leases on other paths are broken."""
    write(table, record("a", age=5, timeout=10))
    open_table(table, LEASE_SCHEMA).put({"path": "x", "etag": "*", "generation": "seven"})
    done = run("lease", "break", table, "x", "a")
    assert (done.exit_code, done.stdout) == (1, "a: released\n")
    assert "'x'" in done.stderr


# -- outputs -------------------------------------------------------------------------------------------


@pytest.fixture
def out(tmp_path: Path) -> str:
    """A local output with one committed job, and one that died after it had staged a file."""
    url = f"{tmp_path}/out"
    output = Output(commitlog.connect(url))
    job = output.begin("daily")
    output.commit(job, [output.stage(job, job.file_name(0, suffix=".txt"), b"12345", rows=2)])
    dead = output.begin("dead")
    output.stage(dead, dead.file_name(0, suffix=".txt"), b"never")
    return url


def test_log_shows_commits(out: str) -> None:
    """One line for each commit, with its job, files, rows and bytes."""
    [row] = lines(run("output", "log", out, "--json"))
    keys = {"version", "kind", "time", "job", "attempt", "mode", "files", "rows", "bytes"}
    assert set(row) == keys
    assert (row["version"], row["kind"], row["job"]) == (1, "commit", "daily")
    assert (row["files"], row["rows"], row["bytes"]) == (1, 2, 5)
    assert re.search(r"^ +1 .* append +daily +1 +2 +5$", run("output", "log", out).stdout, re.MULTILINE)
    assert run("output", "log", out, "--after", "1").stdout == ""


def test_log_lists_files(out: str) -> None:
    """--files prints each committed file, as it is on disk."""
    [name] = run("output", "log", out, "--files").stdout.split()
    assert Path(out, name).read_bytes() == b"12345"
    [row] = lines(run("output", "log", out, "--files", "--json"))
    assert set(row) == {"version", "job", "path", "size", "rows", "partition"}


def test_log_of_a_directory_inside_a_store(tmp_path: Path) -> None:
    """An output below the root of a larger local store is found."""
    store = commitlog.connect(str(tmp_path))
    store.put("x", b"")
    output = Output(store, "deep/out")
    job = output.begin("daily")
    output.commit(job, [output.stage(job, job.file_name(0), b"1")])
    [row] = lines(run("output", "log", f"{tmp_path}/deep/out", "--json"))
    assert row["job"] == "daily"


def test_log_shows_operations(tmp_path: Path) -> None:
    """The decided and the pending operations of an operation log, with their bodies."""
    operations = OperationLog(commitlog.connect(str(tmp_path)), "ops")
    with operations.run({"do": "rename"}):
        pass
    operations.begin({"do": "delete"})
    rows = lines(run("output", "log", f"{tmp_path}/ops", "--operations", "--json"))
    assert [set(row) for row in rows] == [{"id", "time", "decision", "operation"}] * 2
    assert [row["decision"] for row in rows] == ["committed", None]
    assert rows[1]["operation"] == {"do": "delete"}
    assert "pending" in run("output", "log", f"{tmp_path}/ops", "--operations").stdout
    assert run("output", "log", f"{tmp_path}/ops", "--operations", "--files").exit_code == 2


def test_recover_does_not_abort_active_jobs(out: str) -> None:
    """A job that was active a moment ago does not count as dead by default."""
    [report] = lines(run("output", "recover", out, "--json"))
    assert report["aborted"] == {}
    assert len(report["live"]) == 1
    assert "not changed" in run("output", "recover", out).stdout


def test_recover_rules_out_dead_jobs(out: str) -> None:
    """The upload of an older job is removed, and the log shows the abort."""
    [plan] = lines(run("output", "recover", out, "--older-than", "0s", "--dry-run", "--json"))
    [report] = lines(run("output", "recover", out, "--older-than", "0s", "--json"))
    assert plan == {**report, "dry_run": True}
    assert set(report) == {"completed", "aborted", "uploads", "live", "lost"}
    assert (len(report["aborted"]), report["uploads"], report["live"]) == (1, 1, [])
    assert [row["kind"] for row in lines(run("output", "log", out, "--json"))] == ["commit", "abort"]
    assert "aborted" in run("output", "log", out).stdout
    assert run("output", "recover", out, "--older-than", "0s").stdout.startswith(
        "nothing to recover at "
    )


@pytest.mark.parametrize("command", ["recover", "gc"])
def test_recover_reports_lost_files_and_the_job_to_run_again(tmp_path: Path, command: str) -> None:
    """The status is 1 as long as a committed job lacks files."""
    url = f"{tmp_path}/lake"
    with closing(LocalStore(url)) as store:
        output = open_output(store)
        job = output.begin("daily")
        files = stage_some(output, job)
        with pytest.raises(Death):  # after the pending entry and the record
            open_output(HookedStore(store, Once(3, "before"))).commit(job, files)
        lost, kept = store.list_staged()
        store.abort(lost)
    result = run("output", command, f"{url}/out")
    assert result.exit_code == 1
    assert "run job daily again under another id" in result.stdout
    assert f"lost {lost.path.removeprefix('out/')}\n" in result.stdout
    result = run("output", command, f"{url}/out", "--json")
    assert result.exit_code == 1
    [shown] = json.loads(result.stdout)["lost"]
    assert shown == {"job": "daily", "version": 1, "files": [lost.path.removeprefix("out/")]}
    assert Path(url, kept.path).exists(), "the other file is published"


def test_gc_removes_replaced_files(tmp_path: Path) -> None:
    """Of an output with visibility "logged". The log shows the expired versions."""
    url = f"{tmp_path}/logged"
    with commitlog.connect(url) as store:
        output = Output(store)
        for name in ("one", "two"):
            job = output.begin(name, mode="overwrite", visibility="logged")
            output.commit(job, [output.stage(job, job.file_name(0), name.encode())])
    assert run("output", "gc", url).stdout.startswith("nothing to remove at ")
    [plan] = lines(run("output", "gc", url, "--older-than", "0s", "--dry-run", "--json"))
    assert run("output", "gc", url, "--older-than", "0s", "--dry-run").stdout.startswith(
        "nothing was changed; "
    )
    [report] = lines(run("output", "gc", url, "--older-than", "0s", "--json"))
    assert plan == {**report, "dry_run": True}
    assert (report["expired"], report["removed"], report["aborted"]) == (2, 1, {})
    assert [row["kind"] for row in lines(run("output", "log", url, "--json"))] == [
        "commit",
        "commit",
        "expiry",
    ]
    assert "versions before 2 expired" in run("output", "log", url).stdout
    assert run("output", "gc", url, "--older-than", "0s").stdout == "versions before 2 have expired\n"


def test_invalid_durations_are_refused(out: str) -> None:
    """They are wrong usage."""
    assert run("output", "recover", out, "--older-than", "soon").exit_code == 2


# -- probe ---------------------------------------------------------------------------------------------


ONLY = ("--only", "put-if-absent", "--only", "delete-if-match")


def test_probe_of_a_local_directory(tmp_path: Path) -> None:
    """It enforces all conditions, and stays empty."""
    [verdict] = lines(run("probe", str(tmp_path), "--json", *ONLY))
    assert set(verdict) == {"format", "url", "rows", "proven", "dialects"}
    assert verdict["proven"] == ["put-if-absent", "delete-if-match"]
    assert "proven" in run("probe", str(tmp_path), *ONLY).stdout
    assert [path.name for path in tmp_path.iterdir()] == [".commitlog"]


def test_messages_name_an_empty_location(table: str, tmp_path: Path) -> None:
    """A user sees a mistyped URL. Standard output is empty."""
    for words, messages in (
        (("output", "log", f"{tmp_path}/typo"), f"no commit at file://{tmp_path}/typo/"),
        (("output", "log", f"{tmp_path}/typo", "--after", "3"), "after version 3"),
        (("lease", "list", table), "no lease is held"),
    ):
        done = run(*words)
        assert (done.exit_code, done.stdout) == (0, "")
        assert messages.rstrip("/") in done.stderr


def test_a_saved_probe_report_is_used(tmp_path: Path) -> None:
    """--probe-report takes the output of probe, and refuses anything else."""
    kept = tmp_path / "verdict.json"
    kept.write_text(run("probe", str(tmp_path), "--json", *ONLY).stdout)
    (tmp_path / "a").write_bytes(b"1")
    assert run("stat", f"{tmp_path}/a", "--probe-report", str(kept)).exit_code == 0
    kept.write_text("{}")
    done = run("stat", f"{tmp_path}/a", "--probe-report", str(kept))
    assert done.exit_code == 2 and str(kept) in done.stderr
    kept.unlink()
    assert run("stat", f"{tmp_path}/a", "--probe-report", str(kept)).exit_code == 2
    assert done.stderr.startswith("commitlog: ")


# -- uploads -----------------------------------------------------------------------------------------


def stage(root: Path, path: str, *, age: float) -> None:
    """Leave an upload that began `age` seconds ago, as a killed process does."""
    clock = ManualClock(SystemClock().epoch() - age)
    store = LocalStore(root, clock=clock)
    writer = store.begin_stage(path)
    writer.write(b"rows")
    writer.finish()
    store.close()


def staged(root: Path) -> list[str]:
    """Return the paths of all uploads."""
    return sorted(upload.path for upload in LocalStore(root).list_staged())


def test_uploads_are_listed_with_their_age(tmp_path: Path) -> None:
    """Uploads below the prefix, of the requested age."""
    stage(tmp_path, "in/new", age=60)
    stage(tmp_path, "in/old", age=864_000)
    stage(tmp_path, "elsewhere", age=60)
    words = ("upload", "list", "--root", f"{tmp_path}", f"file://{tmp_path}/in/")
    found = {str(each["url"]): each for each in lines(run(*words, "--json"))}
    assert set(found) == {f"file://{tmp_path}/in/new", f"file://{tmp_path}/in/old"}
    assert 60 <= float(str(found[f"file://{tmp_path}/in/new"]["age"])) < 600
    [old] = run(*words, "--older-than", "1d").stdout.splitlines()
    assert "10 d 0 h" in old and old.endswith("/in/old")


def test_old_uploads_are_aborted(tmp_path: Path) -> None:
    """Except below outputs and namespaces, where they may be files of a committed job."""
    stage(tmp_path, "in/new", age=60)
    stage(tmp_path, "in/old", age=864_000)
    stage(tmp_path, "in/out/day=1/part-0", age=864_000)
    LocalStore(tmp_path).put("in/out/_commitlog/00000000000000000001.json", b"")
    words = ("upload", "abort", "--root", f"{tmp_path}", f"file://{tmp_path}/in/")
    assert run(*words, "--dry-run").stdout.splitlines()[0] == f"would abort file://{tmp_path}/in/old"
    assert len(staged(tmp_path)) == 3
    [aborted, total] = lines(run(*words, "--json"))
    assert (aborted["url"], aborted["aborted"]) == (f"file://{tmp_path}/in/old", True)
    assert total == {"aborted": 1, "left": 1, "failed": 0}
    assert staged(tmp_path) == ["in/new", "in/out/day=1/part-0"]


@pytest.mark.parametrize("log", ["", "a/", "a/b/"])
def test_uploads_at_any_depth_below_a_log_are_left(tmp_path: Path, log: str) -> None:
    """The output or namespace may be the whole store, or the directory of the file."""
    stage(tmp_path, "a/b/part-0", age=864_000)
    LocalStore(tmp_path).put(f"{log}_commitlog/00000000000000000001.json", b"")
    [total] = lines(run("upload", "abort", "--root", f"{tmp_path}", f"file://{tmp_path}/a/", "--json"))
    assert total == {"aborted": 0, "left": 1, "failed": 0}
    assert staged(tmp_path) == ["a/b/part-0"]


def test_an_upload_that_cannot_be_aborted_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 1, and the others are aborted."""
    stage(tmp_path, "a", age=864_000)
    stage(tmp_path, "b", age=864_000)
    abort = LocalStore.abort

    def refuse(self: LocalStore, upload: Staged | StagedInfo) -> None:
        if upload.path == "a":
            raise AccessDenied("not yours")
        abort(self, upload)

    monkeypatch.setattr(LocalStore, "abort", refuse)
    done = run("upload", "abort", "--root", f"{tmp_path}", f"file://{tmp_path}/")
    assert done.exit_code == 1 and "not yours" in done.stderr
    assert staged(tmp_path) == ["a"]
