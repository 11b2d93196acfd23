"""The commands that create, fill and maintain namespaces."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner

from commitlog import connect
from commitlog.cli import main
from commitlog.cli.namespace.importing import prefix_in
from commitlog.clock import SystemClock
from commitlog.errors import AccessDenied, CommitError, ConfigurationError, OutcomeUnknown, Unavailable
from commitlog.namespace import NAMESPACE_SCHEMA, ImportReport, Namespace
from commitlog.namespace.maintenance import Maintenance
from commitlog.namespace.model.keys import Keys
from commitlog.namespaces import open_namespace
from commitlog.oplog import OperationLog
from commitlog.stores.local.store import LocalStore
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.tables.sqlite import SqliteTable
from commitlog.testing import ManualClock
from support.cli_namespace import URL, Desk
from support.servers import Ministack


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A metadata table, and a directory for content, both empty."""
    return Desk(names=f"sqlite://{tmp_path}/names.db", store=f"{tmp_path}/content", env={})


@pytest.fixture
def lake(desk: Desk) -> Desk:
    """A namespace without a log."""
    desk.ok("namespace", "create", "lake", "--no-log", "--store", desk.store)
    return desk


# -- creation ----------------------------------------------------------------------------------------


def test_create_list_and_info(desk: Desk) -> None:
    """A namespace is created once and listed by name; info shows its locations."""
    [made] = desk.lines("namespace", "create", "lake", "--store", desk.store)
    assert made == desk.lines("namespace", "describe", "lake")[0]
    keys = {"name", "metadata", "store", "log", "created", "format", "min_reader", "min_writer", "root"}
    assert set(made) == keys
    assert (made["name"], made["metadata"], made["store"]) == (
        "lake",
        desk.names,
        f"file://{desk.store}",
    )
    assert made["log"] == "_commitlog/namespaces/lake/log"
    assert set(made["root"]) == {"id", "version", "shards"}
    desk.ok("namespace", "create", "lake", "--store", desk.store)
    assert "no log" in desk.ok("namespace", "create", "land", "--no-log", "--store", desk.store)
    assert desk.ok("namespace", "list").split() == ["lake", "land"]
    assert desk.lines("namespace", "list") == [{"name": "lake"}, {"name": "land"}]
    assert made["log"] in desk.ok("namespace", "describe", "lake")


def test_create_requires_a_store(desk: Desk) -> None:
    """An invalid name is refused."""
    assert "--store" in desk.refused(2, "namespace", "create", "lake")
    desk.refused(2, "namespace", "create", "-", "--store", desk.store)
    desk.refused(2, "namespace", "create", "lake", "--store", "s3://b?secret_access_key=geheim")


def test_a_missing_namespace_is_a_failure(desk: Desk, lake: Desk) -> None:
    """It differs from a table that is not given."""
    for words in (["describe"], ["gc"], ["recover"]):
        assert "no namespace 'land'" in desk.refused(1, "namespace", *words, "land")
    elsewhere = Desk(names="", store="", env={})
    assert "COMMITLOG_METADATA" in elsewhere.refused(2, "namespace", "list")
    assert "COMMITLOG_METADATA" in elsewhere.refused(2, "fs", "ls", URL)


def test_the_message_for_a_missing_table_names_the_command(desk: Desk) -> None:
    """It creates a table for namespaces, not for leases, or restores the lost names."""
    messages = desk.refused(1, "fs", "ls", URL)
    assert (
        f"`commitlog table create {desk.names} --for namespaces`" in messages
        and "--for ingest" not in messages
    )
    assert "`commitlog namespace restore`" in messages
    desk.ok("table", "create", desk.names)
    assert "--for namespaces" in desk.refused(1, "namespace", "create", "lake", "--store", desk.store)


def test_tables_of_namespaces_are_created(desk: Desk) -> None:
    """For tables that are not created automatically."""
    assert "created" in desk.ok("table", "create", desk.names, "--for", "namespaces")
    assert "exists already" in desk.ok("table", "create", desk.names, "--for", "namespaces")
    assert "place" in desk.ok("table", "describe", desk.names)
    assert desk.ok("namespace", "list") == ""


def test_content_has_another_url_with_store(lake: Desk, tmp_path: Path) -> None:
    """With --store, for a directory mounted elsewhere; not for another kind of store."""
    lake.fill(a=b"1")
    (tmp_path / "content").rename(tmp_path / "moved")
    assert lake.ok("fs", "cat", f"{URL}/a", "--store", f"{tmp_path}/moved") == "1"
    assert "is in file://" in lake.refused(2, "fs", "cat", f"{URL}/a", "--store", "s3://bucket")


def test_reshard(lake: Desk) -> None:
    """A directory is spread over more partitions. Its names are found as before."""
    lake.fill(a__x=b"1")
    assert "8 shards" in lake.ok("namespace", "reshard", f"{URL}/a", "--shards", "8")
    lake.fill(a__y=b"2")
    assert lake.tree("a") == {"a/x": b"1", "a/y": b"2"}
    lake.refused(1, "namespace", "reshard", f"{URL}/a/x", "--shards", "2")
    lake.refused(2, "namespace", "reshard", f"{URL}/a", "--shards", "65")


# -- maintenance -------------------------------------------------------------------------------------


def test_gc_frees_removed_files(lake: Desk) -> None:
    """The trash becomes garbage, and garbage is removed after the grace period."""
    lake.fill(a__x=b"22", a__c__y=b"1", b=b"333")
    lake.ok("fs", "rm", "-r", f"{URL}/a")
    keys = {"abandoned", "files", "directories", "objects", "bytes", "uploads", "failed"}
    [first] = lake.lines("namespace", "gc", "lake")
    assert set(first) == keys
    assert (first["files"], first["directories"], first["objects"]) == (2, 2, 0)
    lake.ok("fs", "rm", f"{URL}/b")
    assert "objects removed: 0" in lake.ok("namespace", "gc", "lake", "--grace", "0s")
    lake.fill(c=b"4444")
    lake.ok("fs", "rm", f"{URL}/c", "--grace", "0s")
    [last] = lake.lines("namespace", "gc", "lake")
    assert (last["objects"], last["bytes"], last["failed"]) == (1, 4, [])


def test_gc_abandons_old_jobs(lake: Desk) -> None:
    """Jobs that began a week ago and were never published are removed; younger ones stay."""
    old, young = "0" * 32, "1" * 32
    for name, days in ((old, 8), (young, 6)):
        clock = ManualClock(epoch=SystemClock().epoch() - days * 86400)
        with open_namespace("lake", metadata=lake.names, clock=clock) as then:
            then.write(f".staging/{name}/x", b"1")
    [done] = lake.lines("namespace", "gc", "lake")
    assert done["abandoned"] == 1
    assert lake.tree(".staging") == {f".staging/{young}": None, f".staging/{young}/x": b"1"}


def test_gc_aborts_old_uploads(lake: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads that began a week ago. If they cannot be listed, the other work is done."""
    lake.fill(a=b"1")
    clock = ManualClock(epoch=SystemClock().epoch() - 8 * 86400)
    with closing(LocalStore(lake.store, clock=clock)) as store:
        store.begin_stage(f"abc/abc{'0' * 29}").finish()
        lake.ok("fs", "rm", f"{URL}/a", "--grace", "0s")
        with monkeypatch.context() as patch:
            refusal = AccessDenied("not you")
            patch.setattr(LocalStore, "list_staged", lambda *_: (_ for _ in ()).throw(refusal))
            done = lake.run("namespace", "gc", "lake", "--json")
        reported = {"error": "Failed", "status": 1, "what": "uploads", "message": "not you"}
        assert (done.exit_code, json.loads(done.stderr)) == (1, reported)
        assert (json.loads(done.stdout)["objects"], len(list(store.list_staged()))) == (1, 1)
        assert "uploads aborted: 1" in lake.ok("namespace", "gc", "lake")
        assert list(store.list_staged()) == []


def test_gc_reports_objects_that_the_store_refuses_to_delete(
    lake: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is named, the status is 1, and a later run removes it."""
    lake.fill(a=b"1", b=b"22")
    lake.ok("fs", "rm", f"{URL}/a", f"{URL}/b", "--grace", "0s")
    remove = LocalStore.delete_many

    def delete_many(self: LocalStore, paths: list[str]) -> dict[str, CommitError]:
        first, *rest = sorted(paths)
        remove(self, rest)
        return {first: AccessDenied("not you")}

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete_many", delete_many)
        done = lake.run("namespace", "gc", "lake", "--json")
    assert done.exit_code == 1
    reported = json.loads(done.stdout)
    assert reported["objects"] + len(reported["failed"]) == 2
    named = [json.loads(line)["what"] for line in done.stderr.splitlines()]
    assert named == [failed["what"] for failed in reported["failed"]]
    [again] = lake.lines("namespace", "gc", "lake")
    assert again["objects"] == len(reported["failed"])


def test_recover_decides_pending_changes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of a dead client are decided and printed with the decision."""
    desk.ok("namespace", "create", "lake", "--store", desk.store)
    assert "no pending change" in desk.ok("namespace", "recover", "lake")

    def die(self: OperationLog, *args: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OperationLog, "_conclude", die)
        assert desk.run("fs", "mkdir", f"{URL}/a").exit_code == 130
    assert "no pending change" in desk.ok("namespace", "recover", "lake")
    [decided] = desk.lines("namespace", "recover", "lake", "--older-than", "0s")
    assert set(decided) == {"id", "time", "decision"}
    assert decided["decision"] == "committed"
    assert desk.lines("namespace", "recover", "lake", "--older-than", "0s") == []


def test_compact_shortens_the_log(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only old decided changes are removed, and none from a young log."""
    desk.ok("namespace", "create", "lake", "--store", desk.store)
    desk.fill(a=b"1")
    assert desk.lines("namespace", "compact", "lake") == [{"operations": 0, "states": 0}]
    assert "changes removed from the log: 0" in desk.ok("namespace", "compact", "lake")
    assert "older_than" in desk.refused(2, "namespace", "compact", "lake", "--older-than", "1s")


def lose_names(desk: Desk) -> None:
    """Remove the table."""
    for file in Path(desk.names.removeprefix("sqlite://")).parent.glob("names.db*"):
        file.unlink()


def test_restore_from_the_log(desk: Desk) -> None:
    """Existing records stay, unless --replace is given."""
    where = ["--store", desk.store]
    desk.ok("namespace", "create", "lake", *where)
    desk.fill(a__x=b"1", b=b"22")
    desk.ok("fs", "mv", f"{URL}/a", f"{URL}/c")
    before = desk.lines("fs", "ls", "-R", URL)
    lose_names(desk)
    file = Path(desk.names.removeprefix("sqlite://"))
    assert "no log" in desk.refused(1, "namespace", "restore", "lake", "--store", f"{desk.store}-typo")
    assert not file.exists()
    file.write_bytes(b"damaged")
    assert "`commitlog namespace restore`" in desk.refused(1, "fs", "ls", URL)
    file.unlink()
    assert "--store" in desk.refused(2, "namespace", "restore", "lake")
    assert "no log of a namespace" in desk.refused(1, "namespace", "restore", "land", *where)
    [done] = desk.lines("namespace", "restore", "lake", *where)
    keys = {"files", "directories", "garbage", "records", "lost", "decided"}
    assert set(done) == keys | {"epoch", "found", "unreadable"}
    assert (done["files"], done["directories"], done["lost"], done["decided"]) == (2, 1, [], [])
    assert desk.lines("fs", "ls", "-R", URL) == before
    assert "--replace" in desk.refused(3, "namespace", "restore", "lake", *where)
    assert "files: 2, directories: 1" in desk.ok("namespace", "restore", "lake", "--replace", *where)
    assert desk.lines("fs", "ls", "-R", URL) == before


def test_a_restore_can_be_undone(desk: Desk) -> None:
    """A read-only copy does not affect the table in use. A restore fences it until it is undone."""
    where = ["--store", desk.store]
    desk.ok("namespace", "create", "lake", *where)
    desk.fill(a__x=b"1")
    drill = ["--metadata", f"{desk.names}-drill"]
    desk.ok("namespace", "restore", "lake", "--read-only", *where, *drill, "--write-units", "100000")
    assert desk.lines("fs", "ls", "-R", URL, *drill) == desk.lines("fs", "ls", "-R", URL)
    assert "as read-only" in desk.refused(2, "fs", "mkdir", f"{URL}/tried", *drill)
    desk.ok("fs", "mkdir", f"{URL}/tried")
    other = ["--metadata", f"{desk.names}-other"]
    desk.ok("namespace", "restore", "lake", *where, *other)
    desk.ok("fs", "mkdir", f"{URL}/theirs", *other)
    assert "belongs to another table" in desk.refused(1, "fs", "mkdir", f"{URL}/theirs")
    assert "fenced" in desk.run("namespace", "fsck", "lake", "--confirm-after", "0s").stdout
    rewrite_log = ["namespace", "rewrite-log", "lake", "--older-than", "0s"]
    assert "--take-over" in desk.refused(1, *rewrite_log)
    [done] = desk.lines(*rewrite_log, "--take-over")
    assert done == {"epoch": 2, "states": 5}
    desk.ok("fs", "mkdir", f"{URL}/ours")
    assert desk.run("namespace", "fsck", "lake", "--confirm-after", "0s").exit_code == 0
    assert "belongs to another table" in desk.refused(1, "fs", "mkdir", f"{URL}/more", *other)


def test_a_damaged_log_can_be_salvaged_and_rewritten(desk: Desk) -> None:
    """The readable rest is restored, and the loss is reported."""
    where = ["--store", desk.store]
    desk.ok("namespace", "create", "lake", *where)
    desk.fill(a__x=b"1", b=b"22")
    log = Path(desk.store.removeprefix("file://")) / "_commitlog/namespaces/lake/log/decided"
    last = max(log.glob("*.json"))
    last.write_bytes(b"cut")
    check = ["namespace", "fsck", "lake", "--confirm-after", "0s"]
    assert "namespace rewrite-log" in desk.run(*check).stdout
    drill = ["--metadata", f"{desk.names}-drill"]
    assert "--salvage" in desk.refused(1, "namespace", "restore", "lake", *where, *drill)
    done = desk.run("namespace", "restore", "lake", "--salvage", "--read-only", *where, *drill)
    assert (done.exit_code, last.name in done.stderr) == (1, True)
    assert [each["path"] for each in desk.lines("fs", "ls", "-R", URL, *drill)] == ["a", "a/x"]
    desk.ok("namespace", "rewrite-log", "lake", "--older-than", "0s")
    assert desk.run(*check).exit_code == 0
    before = desk.lines("fs", "ls", "-R", URL)
    lose_names(desk)
    desk.ok("namespace", "restore", "lake", *where)
    assert desk.lines("fs", "ls", "-R", URL) == before


def test_restore_reports_lost_content(desk: Desk) -> None:
    """Files whose objects are missing or replaced are named, with status 1."""
    where = ["--store", desk.store]
    desk.ok("namespace", "create", "lake", *where)
    desk.fill(a__x=b"1", b=b"22", c=b"")
    objects = {each["path"]: each["object"] for each in desk.lines("fs", "ls", "-R", URL)}
    lose_names(desk)
    desk.ok("rm", f"{desk.store}/{objects['a/x']}")
    desk.run("put", "-", f"{desk.store}/{objects['b']}", stdin=b"other")
    done = desk.run("namespace", "restore", "lake", *where, "--json")
    assert done.exit_code == 1
    reported = {each["path"]: each["changed"] for each in json.loads(done.stdout)["lost"]}
    assert reported == {"a/x": False, "b": True}
    assert "does not exist" in done.stderr and "was replaced" in done.stderr


def test_restore_requires_a_decision_for_unknown_outcomes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a change is printed, and nothing is written without a decision."""
    where = ["--store", desk.store]
    desk.ok("namespace", "create", "lake", *where)
    with monkeypatch.context() as patch:
        patch.setattr(SqliteTable, "transact", lambda *args, **settings: 1 / 0)
        patch.setattr(OperationLog, "_conclude", lambda *args, **settings: True)
        CliRunner(env={"COMMITLOG_METADATA": desk.names}).invoke(main, ["fs", "mkdir", f"{URL}/a"])
    lose_names(desk)
    messages = desk.refused(2, "namespace", "restore", "lake", *where)
    assert "make directories" in messages and "--undecided" in messages
    assert "no namespace" in desk.refused(1, "fs", "ls", URL)
    [done] = desk.lines("namespace", "restore", "lake", *where, "--undecided", "rolled-back")
    assert [each["decision"] for each in done["decided"]] == ["rolled-back"]
    assert desk.tree() == {}


def test_log_commands_require_a_log(lake: Desk) -> None:
    """A namespace without a log is refused."""
    for command in ("recover", "compact"):
        assert "without a log" in lake.refused(2, "namespace", command, "lake")


#: Findings are confirmed at once, because there are no other clients.
CHECK = ["namespace", "fsck", "lake", "--confirm-after", "0s"]


def remove_guard_record(desk: Desk, path: str) -> None:
    """Remove a record that a directory needs, as another program would."""
    with desk.open() as lake:
        key = Keys("lake").guard(lake.stat(path).id, 0)
    with closing(open_table(desk.names, NAMESPACE_SCHEMA)) as table:
        assert table.get(key) is not None
        table.delete(key)


def test_fsck_reports_and_repairs_problems(lake: Desk) -> None:
    """The status is 0 without problems, 1 with some, and 2 for an error. --repair repairs them."""
    lake.fill(a__x=b"1", b=b"22")
    assert "problems: 0, left: 0" in lake.ok(*CHECK, "--objects", "--orphans")
    inventory = ["--inventory", "s3://reports/lake"]
    assert "--spark" in lake.refused(2, *CHECK, "--objects", *inventory)
    assert "--orphans" in lake.refused(2, *CHECK, "--spark", "local[1]", *inventory)
    assert lake.lines(*CHECK) == []
    remove_guard_record(lake, "a")
    done = lake.run(*CHECK, "--json")
    assert (done.exit_code, done.stderr) == (1, "")
    [found] = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(found) == {
        *("kind", "severity", "path", "detail", "object", "id", "meaning", "repair"),
    }
    assert (found["kind"], found["severity"], found["path"]) == ("no-guard", "broken", "a")
    messages = lake.run(*CHECK)
    assert messages.stdout.startswith("broken  no-guard  a") and "left: 1" in messages.stdout
    planned = lake.run(*CHECK, "--repair", "--dry-run", "--json")
    assert (planned.exit_code, json.loads(planned.stdout)["outcome"]) == (1, "planned")
    other = lake.run(*CHECK, "--repair", "--only", "cycle")
    assert (other.exit_code, "left: 1" in other.stdout) == (1, True)
    assert "left: 0" in lake.ok(*CHECK, "--repair", "--write-units", "100000")
    assert lake.lines(*CHECK) == []
    assert "--repair" in lake.refused(2, *CHECK, "--write-units", "5")
    assert "--write-units" in lake.refused(2, *CHECK, "--repair", "--write-units", "0")
    lake.fill(a__y=b"")
    with lake.open() as opened:
        opened.upload(b"12345")
    messages = lake.run(*CHECK, "--orphans", "--older-than", "0s")
    assert "(5 bytes): no record refers to" in messages.stdout
    assert ". Repair: lists the object" in messages.stdout
    assert messages.stdout.endswith("\nobjects without a file: 1, 5 B\n")
    lake.refused(2, "namespace", "fsck", "land")
    assert "--repair" in lake.refused(2, *CHECK, "--dry-run")


def test_fsck_reports_a_repair_with_an_unknown_outcome(
    lake: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status is 4, not 2."""

    def lost(self: Maintenance, *args: Any, **settings: Any) -> None:
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(Maintenance, "repair", lost)
    assert "no answer" in lake.refused(4, *CHECK, "--repair")


def test_fsck_reports_problems_without_a_repair(lake: Desk) -> None:
    """A missing object stays a problem."""
    lake.fill(a=b"1")
    [file] = lake.lines("fs", "ls", URL)
    lake.ok("rm", f"{lake.store}/{file['object']}")
    assert lake.lines(*CHECK) == []
    done = lake.run(*CHECK, "--objects", "--repair")
    assert done.exit_code == 1
    assert done.stdout.startswith("left      lost    object-missing  a")


# -- objects of other programs ------------------------------------------------------------------------


def put(desk: Desk, **objects: bytes) -> None:
    """Put objects into the store of the namespace; in their names ``__`` stands for a slash."""
    for name, body in objects.items():
        path = f"{desk.store}/{name.replace('__', '/')}"
        desk.run("put", "-", path, "--root", desk.store, stdin=body)


def test_import_makes_files_in_place(lake: Desk) -> None:
    """Objects become files with the same paths. A second import finds them unchanged."""
    put(lake, old__a=b"1", old__b__c=b"22", other=b"3")
    keys = {"files", "updated", "known", "bytes", "refused", "last"}
    [first] = lake.lines("namespace", "import", f"{lake.store}/old", f"{URL}/new")
    assert set(first) == keys
    assert (first["files"], first["bytes"], first["refused"], first["last"]) == (2, 3, [], "old/b/c")
    assert lake.tree() == {"new": None, "new/a": b"1", "new/b": None, "new/b/c": b"22"}
    assert "unchanged: 2" in lake.ok("namespace", "import", f"file://{lake.store}/old/", f"{URL}/new")
    put(lake, old__a=b"1111")
    [third] = lake.lines("namespace", "import", f"{lake.store}/old", f"{URL}/new")
    assert (third["updated"], third["known"]) == (1, 1)
    [all_of_it] = lake.lines("namespace", "import", lake.store, f"{URL}/all")
    assert all_of_it["files"] == 3


def test_a_directory_whose_name_begins_with_dots_is_imported(lake: Desk) -> None:
    """It is not taken for the directory whose name lacks a dot, nor is that of a binding."""
    with connect(lake.store) as store:
        for path in (".old/a", "old/b", "..old/c", ".old/d/e"):
            store.put(path, b"1")
    lake.ok("namespace", "import", f"{lake.store}/.old", f"{URL}/one")
    lake.ok("namespace", "import", f"{lake.store}/..old", f"{URL}/two")
    lake.ok("namespace", "import", f"{lake.store}/.old/d", f"{URL}/three")
    assert lake.tree().keys() == {"one", "one/a", "one/d", "one/d/e", "two", "two/c", "three", "three/e"}
    [bound] = lake.lines("namespace", "bind", f"{lake.store}/.old", f"{URL}/bound")
    assert bound["bound_to"] == ".old/"


def test_a_failed_import_can_be_resumed(lake: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the object after which to continue."""
    put(lake, old__a__1=b"1", old__b__1=b"2", old__c__1=b"3")
    adopt = Maintenance.import_objects

    def broken(self: Maintenance, *where: str, progress: Any, **settings: Any) -> ImportReport:
        def once(done: ImportReport) -> None:
            progress(done)
            raise Unavailable("gone")

        return adopt(self, *where, progress=once, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Maintenance, "import_objects", broken)
        messages = lake.refused(1, "namespace", "import", f"{lake.store}/old", f"{URL}/new").splitlines()
    assert messages == [
        "commitlog: to resume: run the same command with --start-after 'old/a/1'",
        "commitlog: gone",
    ]
    [rest] = lake.lines(
        "namespace", "import", f"{lake.store}/old", f"{URL}/new", "--start-after", "old/a/1"
    )
    assert (rest["files"], rest["known"]) == (2, 0)


def test_an_import_without_objects_fails(lake: Desk) -> None:
    """For example with a mistyped prefix; but not with --start-after."""
    put(lake, old__a=b"1")
    done = lake.run("namespace", "import", f"{lake.store}/odl", f"{URL}/new", "--json")
    assert (done.exit_code, json.loads(done.stdout)["files"]) == (1, 0)
    assert json.loads(done.stderr)["message"] == f"there are no objects to import below {lake.store}/odl"
    lake.ok("namespace", "import", f"{lake.store}/old", f"{URL}/new", "--start-after", "old/a")


def test_import_reports_refused_objects(lake: Desk) -> None:
    """The status is 1, and the other objects are imported."""
    put(lake, old__a=b"1", old__b=b"2")
    lake.fill(new__a=b"mine")
    done = lake.run("namespace", "import", f"{lake.store}/old", f"{URL}/new", "--json")
    assert done.exit_code == 1
    [refused] = json.loads(done.stdout)["refused"]
    assert refused["path"] == "old/a"
    reported = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"old/a": refused["reason"]}.items() <= {
        each["what"]: each["message"] for each in reported
    }.items()
    assert lake.tree("new") == {"new/a": b"mine", "new/b": b"2"}


def test_import_from_another_store_is_refused(lake: Desk, tmp_path: Path) -> None:
    """Objects become files in place."""
    (tmp_path / "content-2").mkdir()
    for source in (f"{tmp_path}/content-2", str(tmp_path), "s3://bucket/old", f"{lake.store}/../x"):
        assert "is not in the store of namespace" in lake.refused(
            2, "namespace", "import", source, f"{URL}/new"
        )
    assert lake.tree() == {}


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("s3://bucket/lake/old", "old/"),
        ("s3a://bucket/lake/old/day=1/", "old/day=1/"),
        ("s3://bucket/lake", ""),
        ("s3://bucket/lake/old?endpoint_url=http://127.0.0.1:9", "old/"),
        ("s3://bucket/lake/old?endpoint_url=http://127.0.0.1:8", None),
        ("s3://bucket", None),
        ("s3://bucket/lakes/old", None),
        ("s3://other/lake/old", None),
        ("memory://bucket/lake/old", None),
    ],
)
def test_a_prefix_is_in_the_store_of_the_namespace(url: str, prefix: str | None) -> None:
    """In the same bucket of the same service, below the prefix of the namespace."""
    store = open_store("s3://bucket/lake?endpoint_url=http://127.0.0.1:9&region=eu-west-1")
    with Namespace(open_table("memory://", NAMESPACE_SCHEMA), store, "lake") as lake:
        if prefix is None:
            with pytest.raises(ConfigurationError, match="is not in the store of namespace 'lake'"):
                prefix_in(lake, url)
        else:
            assert prefix_in(lake, url) == prefix


def test_options_of_jobs_require_each_other(lake: Desk) -> None:
    """A journal is that of a job on a cluster, and so is the id of the job."""
    commands = (["import", lake.store, URL], ["prune", URL], ["gc", "lake"])
    for words in commands:
        command = ["namespace", *words]
        assert "require --spark" in lake.refused(2, *command, "--journal", lake.store)
        assert "require --spark" in lake.refused(2, *command, "--job-id", "one")
        with_spark = [*command, "--spark", "local[1]"]
        assert "requires --journal" in lake.refused(2, *with_spark, "--job-id", "one")
    with_spark = ["namespace", *commands[0], "--spark", "local[1]"]
    assert "--start-after" in lake.refused(2, *with_spark, "--start-after", "a")


def test_diff_finds_changes_of_other_programs(lake: Desk) -> None:
    """The status is 0 without differences, 1 with some, and 2 for an error."""
    put(lake, old__a=b"1", old__b=b"2", old__c=b"3")
    lake.ok("namespace", "import", f"{lake.store}/old", f"{URL}/new")
    assert lake.ok("namespace", "diff", URL) == ""
    put(lake, old__a=b"other")
    lake.run("rm", f"{lake.store}/old/b")
    done = lake.run("namespace", "diff", f"{URL}/new")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [f"changed   {URL}/new/a", f"missing   {URL}/new/b"]
    assert not done.stderr
    reported = [
        json.loads(line) for line in lake.run("namespace", "diff", URL, "--json").stdout.splitlines()
    ]
    assert reported[0] == {"url": f"{URL}/new/a", "kind": "changed", "object": "old/a"}
    for url in (f"{URL}/none", "commitlog://land", "s3://bucket"):
        lake.refused(2, "namespace", "diff", url)


def test_diff_finds_objects_without_a_file(lake: Desk) -> None:
    """Compared with the origin of an import, it also finds new and hidden objects."""
    put(lake, old__a=b"1", old__b=b"2")
    lake.ok("namespace", "import", f"{lake.store}/old", f"{URL}/new")
    put(lake, old__c=b"3")
    assert lake.ok("namespace", "diff", f"{URL}/new") == ""
    where = ["--with", f"{lake.store}/old"]
    done = lake.run("namespace", "diff", f"{URL}/new", *where)
    assert (done.exit_code, done.stdout) == (1, f"unknown   {URL}/new/c\n")
    assert "one URL" in lake.refused(2, "namespace", "diff", URL, URL, *where)


def test_bound_directories_show_objects_of_other_programs(lake: Desk) -> None:
    """They hide deleted files, and keep their files when they are unbound."""
    put(lake, raw__a=b"1", raw__b=b"2")
    assert "is bound to raw/" in lake.ok("namespace", "bind", f"{lake.store}/raw", f"{URL}/raw")
    assert "forever" in lake.ok(
        "namespace", "bind", f"{lake.store}/raw", f"{URL}/raw", "--max-age", "forever"
    )
    lake.ok("namespace", "bind", f"{lake.store}/raw", f"{URL}/raw", "--max-age", "0s")
    [directory] = lake.lines("fs", "ls", "-d", f"{URL}/raw")
    assert directory["bound_to"] == "raw/"
    assert "bound to" in lake.ok("fs", "stat", f"{URL}/raw")
    put(lake, raw__c=b"3")
    assert lake.ok("fs", "cat", f"{URL}/raw/*") == "123"
    lake.ok("fs", "rm", f"{URL}/raw/a")
    assert lake.ok("fs", "cat", f"{URL}/raw/*") == "23"
    [synced] = lake.lines("namespace", "sync", URL)
    assert set(synced) == {"directories", "files", "updated", "removed", "unfit"}
    assert (synced["directories"], synced["files"], synced["unfit"]) == (1, 2, [])
    assert lake.run("namespace", "diff", URL).stdout == f"hidden    {URL}/raw/a\n"
    assert "files made: 0" in lake.ok("namespace", "sync", f"{URL}/raw")
    lake.ok("rm", f"{lake.store}/raw/a", f"{lake.store}/raw/b")
    [pruned] = lake.lines("namespace", "prune", URL)
    assert set(pruned) == {"directories", "tombstones", "files", "failed"}
    assert (pruned["tombstones"], pruned["files"], pruned["failed"]) == (1, 1, [])
    assert "removed: 0 files" in lake.ok("namespace", "prune", f"{URL}/raw")
    lake.ok("namespace", "unbind", f"{URL}/raw")
    put(lake, raw__d=b"4")
    assert lake.ok("fs", "cat", f"{URL}/raw/*") == "3"


def test_an_unidentified_store_requires_an_option(lake: Desk) -> None:
    """Without it nothing is removed, and the error names the option."""
    put(lake, raw__a=b"1", old__b=b"2")
    lake.ok("namespace", "bind", f"{lake.store}/raw", f"{URL}/raw", "--max-age", "forever")
    lake.ok("namespace", "import", f"{lake.store}/old", f"{URL}/old")
    lake.ok("namespace", "sync", URL)
    with lake.open() as opened:
        mark = opened.describe().identity
    lake.ok("rm", f"{lake.store}/raw/a", f"{lake.store}/old/b", f"{lake.store}/{mark}")
    for command in ("sync", "prune"):
        assert "--empty-store" in lake.refused(1, "namespace", command, URL)
    assert len(lake.lines("fs", "ls", "-R", URL)) == 4
    [synced] = lake.lines("namespace", "sync", "--empty-store", URL)
    [pruned] = lake.lines("namespace", "prune", "--empty-store", URL)
    assert (synced["removed"], pruned["files"]) == (1, 1)


def test_binding_as_json(lake: Desk) -> None:
    """The prefix, and the maximum age of a listing in seconds, or null."""
    where = [f"{lake.store}/raw", f"{URL}/raw"]
    bound = {"url": f"{URL}/raw", "bound_to": "raw/", "max_age": 300.0}
    assert lake.lines("namespace", "bind", *where, "--max-age", "5m") == [bound]
    assert lake.lines("namespace", "bind", *where, "--max-age", "forever") == [bound | {"max_age": None}]
    assert lake.lines("namespace", "unbind", f"{URL}/raw") == [
        bound | {"bound_to": None, "max_age": None}
    ]


def test_sync_reports_objects_that_cannot_be_files(lake: Desk) -> None:
    """For example an object whose name is also a directory. The status is 1."""
    put(lake, raw__b=b"1")
    lake.ok("namespace", "bind", f"{lake.store}/raw", f"{URL}/raw")
    with lake.open() as namespace:
        namespace.make_directory("raw/a")
    put(lake, raw__a=b"1")
    done = lake.run("namespace", "sync", f"{URL}/raw", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["unfit"] == ["raw/a"]
    reported = json.loads(done.stderr)
    assert reported["what"] == "raw/a" and "cannot become" in reported["message"]


def test_bind_takes_a_prefix_of_the_own_store(lake: Desk) -> None:
    """Not another store, the whole store or the root. An invalid duration is refused."""
    assert "is not in the store" in lake.refused(2, "namespace", "bind", "s3://bucket/raw", f"{URL}/raw")
    for source, target in ((lake.store, f"{URL}/raw"), (f"{lake.store}/raw", URL)):
        lake.refused(2, "namespace", "bind", source, target)
    where = [f"{lake.store}/raw", f"{URL}/raw"]
    assert "is not a duration" in lake.refused(2, "namespace", "bind", *where, "--max-age", "soon")


# -- on services -------------------------------------------------------------------------------------


@pytest.fixture
def remote(ministack: Ministack) -> Desk:
    """A table of DynamoDB and a bucket, which commands find through their environment."""
    return Desk(
        names=f"dynamodb://{ministack.new_table_name()}",
        store=f"s3://{ministack.new_bucket()}/lake",
        env={
            "AWS_ACCESS_KEY_ID": ministack.access_key_id,
            "AWS_SECRET_ACCESS_KEY": ministack.secret_access_key,
            "COMMITLOG_ENDPOINT_URL": ministack.endpoint_url,
            "COMMITLOG_REGION": ministack.region,
        },
        secret=ministack.secret_access_key,
    )


@pytest.mark.servers
def test_on_s3_and_dynamodb(remote: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory is uploaded, renamed, downloaded and removed."""
    assert "table create" in remote.refused(1, "namespace", "create", "lake", "--store", remote.store)
    remote.ok("table", "create", remote.names, "--for", "namespaces")
    remote.ok("namespace", "create", "lake", "--store", remote.store, "--commit", "native")
    [info] = remote.lines("namespace", "describe", "lake")
    assert info["store"].startswith(f"{remote.store}?endpoint_url=")
    assert remote.ok("namespace", "list") == "lake\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "day=1").mkdir()
    for number in range(3):
        (tmp_path / "day=1" / f"{number}.csv").write_bytes(b"%d" % number)
    verdict = remote.ok("probe", remote.store, "--only", "put-if-absent", "--json")
    (tmp_path / "verdict.json").write_text(verdict)
    native = ["--commit", "native", "--probe-report", "verdict.json"]
    remote.ok("fs", "mkdir", f"{URL}/events", *native)
    remote.ok("fs", "put", "--atomic", "day=1", f"{URL}/events", *native)
    remote.ok("fs", "mv", f"{URL}/events/day=1", f"{URL}/now", *native)
    assert remote.ok("fs", "cat", f"{URL}/now/*.csv") == "012"
    remote.ok("fs", "get", f"{URL}/now", "back")
    assert len(list((tmp_path / "back").iterdir())) == 3
    remote.run("put", "-", f"{remote.store}/old/ä b", stdin=b"1")
    [imported] = remote.lines("namespace", "import", f"{remote.store}/old/", f"{URL}/old", *native)
    assert (imported["files"], imported["refused"]) == (1, [])
    remote.ok("namespace", "bind", f"{remote.store}/raw", f"{URL}/raw", *native)
    remote.run("put", "-", f"{remote.store}/raw/x", stdin=b"x")
    assert remote.ok("fs", "cat", f"{URL}/raw/x") == "x"
    [synced] = remote.lines("namespace", "sync", f"{URL}/raw", *native)
    assert synced["files"] == 1
    assert remote.lines(*CHECK, "--objects", "--orphans", *native) == []
    remote.ok("namespace", "unbind", f"{URL}/raw", *native)
    remote.run("put", "-", f"{remote.store}/old/ä b", stdin=b"2")
    assert remote.run("namespace", "diff", URL).stdout == f"changed   {URL}/old/ä b\n"
    remote.ok("fs", "rm", "-r", f"{URL}/now", *native)
    [cleaned] = remote.lines("namespace", "gc", "lake", "--grace", "0s", *native)
    assert (cleaned["files"], cleaned["objects"]) == (3, 3)
    assert remote.lines("namespace", "recover", "lake", "--older-than", "0s", *native) == []
    left = [each["path"] for each in remote.lines("fs", "ls", "-R", URL)]
    assert left == ["events", "old", "old/ä b", "raw", "raw/x"]


@pytest.mark.servers
def test_a_profile_applies_to_table_and_store(remote: Desk, tmp_path: Path) -> None:
    """Also if the namespace was created with other credentials."""
    remote.ok("table", "create", remote.names, "--for", "namespaces")
    remote.ok("namespace", "create", "lake", "--no-log", "--store", remote.store)
    credentials = tmp_path / "credentials"
    key, secret = remote.env["AWS_ACCESS_KEY_ID"], remote.env["AWS_SECRET_ACCESS_KEY"]
    credentials.write_text(f"[ops]\naws_access_key_id={key}\naws_secret_access_key={secret}\n")
    env = {name: value for name, value in remote.env.items() if not name.startswith("AWS")}
    env |= {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_EC2_METADATA_DISABLED": "true"}
    operator = evolve(remote, env=env)
    for words in (["put", "-", f"{URL}/a"], ["cat", f"{URL}/a"]):
        assert operator.run("fs", *words, "--profile", "ops", stdin=b"1").exit_code == 0
    assert "credentials" in operator.refused(2, "fs", "cat", f"{URL}/a")


def test_the_whole_store_cannot_be_bound(lake: Desk) -> None:
    """The message says that it has the namespace's own content."""
    refused = lake.refused(2, "namespace", "bind", lake.store, f"{URL}/all")
    assert "the whole store has the namespace's own content" in refused
    assert lake.tree() == {}
