"""The usage of commands: letters, wrong usage, Hadoop's spelling, plans, JSON, completion."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import commitlog
from commitlog.cli import main
from support.cli_namespace import URL, Desk
from support.commands import commands

#: Commands whose letters are those of another program, about something else: test(1).
_OF_TEST = "commitlog fs test"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A namespace in a directory and an SQLite table, without a log, and some files."""
    desk = Desk(names=f"sqlite://{tmp_path}/names.db", store=f"{tmp_path}/content", env={})
    desk.ok("namespace", "create", "lake", "--no-log", "--store", desk.store)
    desk.fill(a__x=b"1\n", a__y=b"22", a__b__z=b"", c=b"0123456789" * 300)
    return desk


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def run(*words: str, stdin: bytes = b"") -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, list(words), input=stdin, catch_exceptions=False)


# -- letters and wrong usage -------------------------------------------------------------------------


def test_a_letter_means_the_same_in_every_command() -> None:
    """No letter stands for two options, except in "fs test", which has the letters of test(1)."""
    meanings: dict[str, set[str]] = defaultdict(set)
    for path, command in commands(main, "commitlog"):
        for parameter in command.params:
            letters = [each for each in parameter.opts if re.fullmatch(r"-\w", each)]
            if path == _OF_TEST or getattr(parameter, "hidden", False):
                continue
            for letter in letters:
                long = [each for each in parameter.opts if each.startswith("--")]
                meanings[letter].add(long[0] if long else f"{path} {parameter.name}")
    several = {letter: names for letter, names in meanings.items() if len(names) > 1}
    # Of "ls" the order by time of modification, of "touch" the time of modification.
    assert several == {"-t": {"commitlog fs ls by_time", "--time"}}


@pytest.mark.parametrize("path", [path for path, _ in commands(main, "commitlog")])
def test_unknown_options_and_commands_have_status_2(path: str) -> None:
    """Also an unknown letter in a group of letters. Nothing is done."""
    command = dict(commands(main, "commitlog"))[path]
    words = path.split()[1:]
    known = {letter for each in command.params for letter in each.opts}
    for wrong in ("-Z", "-h", "-lZ", "--no-such-option", "-no-such-option"):
        if wrong in known:
            continue
        done = run(*words, wrong)
        assert (done.exit_code, done.stdout) == (2, ""), wrong
        assert "commitlog: " in done.stderr


def test_letters_can_be_grouped(desk: Desk) -> None:
    """-lh works as in ls(1) and Hadoop. -r is refused as ambiguous."""
    assert "2.9 KiB" in desk.ok("fs", "ls", "-lh", URL)
    assert "2.9 KiB" in desk.ok("fs", "ls", "-Rlh", URL)
    for words in (["fs", "ls", "-r", URL], ["ls", "-r", "file:///"], ["fs", "ls", "-lr", URL]):
        assert "-R" in desk.refused(2, *words)
    assert "--help" in desk.refused(2, "-h")


def test_human_readable_sizes_of_objects(tmp_path: Path) -> None:
    """``ls -lh`` works for objects, too."""
    (tmp_path / "a").write_bytes(bytes(1536))
    assert run("ls", "-lh", f"{tmp_path}/").stdout.split()[:2] == ["1.5", "KiB"]


# -- as in Hadoop's shell ----------------------------------------------------------------------------


def test_commands_with_a_dash(desk: Desk, here: Path) -> None:
    """Hadoop's spelling of commands is accepted."""
    for words in (["ls", "-R"], ["du", "-s"], ["cat"], ["stat", "--format", "%n"]):
        target = f"{URL}/c" if words[0] == "cat" else URL
        assert desk.ok("fs", f"-{words[0]}", *words[1:], target) == desk.ok("fs", *words, target)
    assert desk.ok("fs", "--literal", "-ls", "-C", f"{URL}/a") == desk.ok("fs", "ls", "-C", f"{URL}/a")
    (here / "new").write_bytes(b"new")
    desk.ok("fs", "-mkdir", "-p", f"{URL}/d/e")
    desk.ok("fs", "-copyFromLocal", "-f", "new", f"{URL}/d")
    desk.ok("fs", "-touchz", f"{URL}/d/f")
    desk.ok("fs", "-copyToLocal", f"{URL}/d/new", "copy")
    assert (here / "copy").read_bytes() == b"new"
    assert desk.ok("fs", "-stat", "%n %b", f"{URL}/d/new") == "new 3\n"
    assert desk.run("fs", "-test", "-e", f"{URL}/d").exit_code == 0
    desk.ok("fs", "-rm", "-r", "-f", "-skipTrash", f"{URL}/d", f"{URL}/no")
    assert desk.run("fs", "-test", "-e", f"{URL}/d").exit_code == 1
    for words in (["-help"], ["-help", "ls"]):
        assert desk.ok("fs", *words).startswith("Usage: ")


@pytest.mark.parametrize(
    "name", ["chmod", "setrep", "appendToFile", "count", "expunge", "getmerge", "rmr", "createSnapshot"]
)
def test_unsupported_commands_have_a_reason(name: str) -> None:
    """With and without a dash. The status is that of wrong usage."""
    for words in (["fs", f"-{name}", URL], ["fs", name, URL]):
        done = run(*words)
        assert done.exit_code == 2
        assert f"command '{name}' is not supported: " in done.stderr


def test_tail(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte or the requested number of bytes. Nothing else is read."""
    body = b"0123456789" * 300
    assert desk.run("fs", "tail", f"{URL}/c").stdout_bytes == body[-1024:]
    assert desk.run("fs", "tail", "--bytes", "5", f"{URL}/c", f"{URL}/a/x").stdout_bytes == b"567891\n"
    assert desk.run("fs", "tail", "--bytes", "0", f"{URL}/c").stdout_bytes == b""
    assert "directory" in desk.refused(1, "fs", "tail", f"{URL}/a")
    desk.refused(2, "fs", "tail", "-f", f"{URL}/c")


def test_find(desk: Desk) -> None:
    """All names or matching ones, in either case, with zero bytes, and as JSON."""
    every = [URL + "/", *(f"{URL}/{path}" for path in ("a", "a/b", "a/b/z", "a/x", "a/y", "c"))]
    assert desk.ok("fs", "-find", URL, "-print").splitlines() == every
    assert desk.ok("fs", "find", f"{URL}/a", "-name", "[x-z]").split() == [*every[3:6]]
    assert desk.ok("fs", "find", URL, "-name", "{x,c}").split() == [every[4], every[6]]
    assert desk.ok("fs", "find", URL, "-name", "X") == ""
    assert desk.ok("fs", "find", URL, "-iname", "X").split() == [every[4]]
    assert desk.ok("fs", "find", f"{URL}/a", "-name", "x", "-print0") == f"{URL}/a/x\0"
    assert [each["url"] for each in desk.lines("fs", "find", URL, "-name", "z")] == [every[3]]


def test_rmdir(desk: Desk) -> None:
    """Only empty directories are removed."""
    desk.ok("fs", "mkdir", f"{URL}/empty")
    desk.ok("fs", "-rmdir", f"{URL}/empty")
    desk.refused(1, "fs", "rmdir", f"{URL}/a")
    desk.refused(1, "fs", "rmdir", f"{URL}/c")
    assert sorted(desk.tree()) == ["a", "a/b", "a/b/z", "a/x", "a/y", "c"]


# -- recursion and plans -----------------------------------------------------------------------------


@pytest.fixture(params=["local", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a directory in a store that has some objects."""
    name = f"memory://{tmp_path.name}-{os.urandom(4).hex()}"
    url = name if request.param == "memory" else f"file://{tmp_path}/lake"
    (tmp_path / "lake").mkdir()
    store = commitlog.connect(url)
    for path in ("a/1", "a/b/2", "ab/3", "c"):
        store.put(path, path.encode())
    yield url
    store.close()


def listed(base: str) -> list[str]:
    """Return the paths of all objects, in order."""
    lines = run("ls", "-R", f"{base}/").stdout.splitlines()
    return [line.removeprefix(f"{base}/") for line in lines]


def test_rm_of_a_directory(base: str) -> None:
    """A URL stands for a directory, also without its slash. Objects with the same prefix stay."""
    done = run("rm", "-r", f"{base}/a", "--json")
    assert done.exit_code == 0, done.output
    reported = [json.loads(line) for line in done.stdout.splitlines()]
    assert {each["url"] for each in reported} == {f"{base}/a/1", f"{base}/a/b/2"}
    assert listed(base) == ["ab/3", "c"]
    again = run("rm", "-r", f"{base}/a")
    assert (again.exit_code, again.stderr) == (0, f"commitlog: there is no object below {base}/a/\n")
    assert run("rm", "-r", f"{base}/ab", "--if-match", "x").exit_code == 2


def test_a_whole_store_is_not_removed(base: str) -> None:
    """Its directories have to be named."""
    for command in (["rm", "-r", f"{base}/"], ["mv", "-r", f"{base}/", f"{base}x/new"]):
        assert run(*command).exit_code == 2
    assert listed(base) == ["a/1", "a/b/2", "ab/3", "c"]


def test_cp_and_mv_of_a_directory(base: str, tmp_path: Path) -> None:
    """Within a store and between two. All objects keep their paths below the directory."""
    assert run("cp", "-r", f"{base}/a", f"{base}/new/d").exit_code == 0
    other = tmp_path / "other"
    other.mkdir()
    assert run("cp", "-r", f"{base}/a", f"{other}/d/e").exit_code == 0
    assert (other / "d/e/1").read_bytes() == b"a/1"
    assert (other / "d/e/b/2").read_bytes() == b"a/b/2"
    assert listed(base) == ["a/1", "a/b/2", "ab/3", "c", "new/d/1", "new/d/b/2"]
    assert run("mv", "-r", f"{base}/a/", f"{base}/moved", "--if-absent").exit_code == 0
    assert listed(base) == ["ab/3", "c", "moved/1", "moved/b/2", "new/d/1", "new/d/b/2"]
    assert run("cat", f"{base}/moved/b/2").stdout == "a/b/2"
    # Each of several is tried; the highest status is returned.
    run("put", "-", f"{base}/new/d/3", stdin=b"3")
    done = run("mv", "-r", f"{base}/new/d", f"{base}/moved", "--if-absent")
    assert done.exit_code == 3
    assert listed(base) == ["ab/3", "c", "moved/1", "moved/3", "moved/b/2", "new/d/1", "new/d/b/2"]
    assert run("cp", "-r", f"{base}/none", f"{base}/x").exit_code == 1
    for wrong in (f"{base}/moved/b", f"{base}/moved"):
        assert run("cp", "-r", f"{base}/moved", wrong).exit_code == 2


def test_dry_runs_on_objects_change_nothing(base: str) -> None:
    """They print the changes, and fail where the command would."""
    before = listed(base)
    for words, lines in (
        (["rm", f"{base}/c", f"{base}/none"], [f"would remove {base}/c"]),
        (["rm", "-r", f"{base}/a"], [f"would remove {base}/a/1", f"would remove {base}/a/b/2"]),
        (["cp", f"{base}/c", f"{base}/d"], [f"would copy {base}/c to {base}/d"]),
        (["mv", "-r", f"{base}/ab", f"{base}/d"], [f"would move {base}/ab/3 to {base}/d/3"]),
    ):
        done = run(*words, "--dry-run")
        assert (done.exit_code, sorted(done.stdout.splitlines())) == (0, lines)
    plan = json.loads(run("mv", f"{base}/c", f"{base}/d", "--dry-run", "--json").stdout)
    assert plan == {"action": "move", "url": f"{base}/c", "to": f"{base}/d", "dry_run": True}
    for words, status in (
        (["cp", f"{base}/none", f"{base}/d"], 1),
        (["cp", f"{base}/c", f"{base}/a/1", "--if-absent"], 3),
        (["cp", f"{base}/c", f"{base}/a/1", "--if-match", "0"], 3),
        (["rm", f"{base}/c", "--if-match", "0"], 3),
    ):
        done = run(*words, "--dry-run")
        assert (done.exit_code, done.stdout) == (status, "")
    assert listed(base) == before


def test_dry_runs_on_files_change_nothing(desk: Desk, here: Path) -> None:
    """The same for namespaces."""
    before = desk.tree()
    (here / "new").write_bytes(b"new")
    for words, lines in (
        (["rm", f"{URL}/c"], [f"would remove {URL}/c"]),
        (["rm", "-r", f"{URL}/a"], [f"would remove {URL}/a with its contents"]),
        (["mv", f"{URL}/a", f"{URL}/d"], [f"would move {URL}/a to {URL}/d"]),
        (["cp", f"{URL}/a/b", f"{URL}/d"], [f"would copy {URL}/a/b/z to {URL}/d/z"]),
        (["put", "new", f"{URL}/a"], [f"would upload new to {URL}/a/new"]),
    ):
        assert desk.ok("fs", *words, "--dry-run").splitlines() == lines
    [plan] = desk.lines("fs", "rm", "-r", f"{URL}/a", "--dry-run")
    assert plan == {"action": "remove", "url": f"{URL}/a", "to": None, "dry_run": True}
    desk.refused(1, "fs", "rm", f"{URL}/a", "--dry-run")
    desk.refused(3, "fs", "cp", f"{URL}/a/x", f"{URL}/c", "--dry-run")
    assert desk.tree() == before


# -- JSON --------------------------------------------------------------------------------------------

#: Commands that print no records: groups, bytes, and one whose status is the answer.
_WITHOUT_JSON = {
    *("commitlog", "commitlog table", "commitlog fs", "commitlog ingest", "commitlog namespace"),
    *("commitlog upload", "commitlog output", "commitlog lease", "commitlog spark"),
    *("commitlog cat", "commitlog fs cat", "commitlog fs tail", "commitlog fs test"),
}


def test_every_command_that_prints_results_has_json() -> None:
    """Except for the commands listed above."""
    without = {
        path
        for path, command in commands(main, "commitlog")
        if not any("--json" in each.opts for each in command.params)
    }
    assert without == _WITHOUT_JSON


def test_errors_are_json_too(desk: Desk, tmp_path: Path) -> None:
    """Every line of standard error is an object with the status."""
    for words, error, status in (
        (["fs", "ls", f"{URL}/none", "--json"], "NotFound", 1),
        (["fs", "ls", "--json", "-Z", URL], "NoSuchOption", 2),
        (["fs", "ls", "--json"], "MissingParameter", 2),
        (["fs", "mkdir", f"{URL}/a", "--json"], "AlreadyExists", 3),
        (["stat", f"{tmp_path}/none", "--json"], "NotFound", 1),
        (["stat", "ftp://host/a", "--json"], "ConfigurationError", 2),
        (["rm", "s3://bucket", "--json"], "InvalidPath", 2),
        (["fs", "mv", f"{URL}/none", f"{URL}/a", "--json"], "NotFound", 1),
    ):
        done = desk.run(*words)
        [line] = done.stderr.splitlines()
        reported = json.loads(line)
        assert (reported["error"], reported["status"], done.exit_code) == (error, status, status), words
        assert reported["message"]
        assert done.stdout == ""
    done = desk.run("fs", "rm", f"{URL}/a", f"{URL}/none", "--json")
    named = [json.loads(line)["what"] for line in done.stderr.splitlines()]
    assert named == [f"{URL}/a", f"{URL}/none"]


def test_results_of_changes_are_json(desk: Desk, here: Path) -> None:
    """One object for each file that was made, removed or downloaded."""
    assert desk.lines("fs", "mkdir", f"{URL}/n", f"{URL}/m")[0]["url"] == f"{URL}/n"
    assert desk.lines("fs", "touch", f"{URL}/n/t")[0]["size"] == 0
    assert desk.lines("fs", "rm", f"{URL}/n/t")[0] == {
        "url": f"{URL}/n/t",
        "type": "file",
        "removed": True,
    }
    assert desk.lines("fs", "rmdir", f"{URL}/m")[0]["type"] == "directory"
    assert desk.lines("fs", "get", f"{URL}/a/y", "y") == [{"url": f"{URL}/a/y", "file": "y", "size": 2}]
    assert [each["path"] for each in desk.lines("fs", "ls", "-R", f"{URL}/a")] == [
        "a/b",
        "a/b/z",
        "a/x",
        "a/y",
    ]
    assert desk.lines("namespace", "reshard", URL, "--shards", "2")[0]["shards"] == 2
    done = run("put", "y", f"{here}/z")
    assert done.exit_code == 0
    assert json.loads(run("get", f"{here}/z", "w", "--json").stdout)["file"] == "w"
    assert json.loads(run("rm", f"{here}/z", "--json").stdout)["removed"] is True


# -- completion --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("commitlog na", "namespace"),
        ("commitlog output rec", "recover"),
        ("commitlog fs mkd", "mkdir"),
        ("commitlog fs rm --dry", "--dry-run"),
    ],
)
def test_shells_complete_commands_and_options(line: str, word: str) -> None:
    """As docs/operations.md describes."""
    env = {
        "_COMMITLOG_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": f"{line.count(' ')}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "commitlog"], env={**os.environ, **env}, capture_output=True, check=True
    )
    assert word in done.stdout.decode().replace("\n", ",").split(",")
