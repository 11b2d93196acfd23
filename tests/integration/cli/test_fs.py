"""The commands ``commitlog fs``: exit statuses, output, JSON, and their effects."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
from attrs import evolve

from commitlog.cli.fs import sources
from commitlog.errors import Conflict, NotFound, OutcomeUnknown
from commitlog.namespace import DirectoryCommitter, FileWriter, Namespace, OpenFile, Status
from commitlog.transfer import BLOCK_SIZE, NamespacePath
from support.cli_namespace import URL, Desk
from support.namespace import atomic_links, objects_in, watched_executors
from support.selection import with_all
from support.terminal import shown_by

# Except for control characters of terminals, which are never printed.
BINARY = bytes(range(256)).replace(b"\x1b", b"") + b"\r\n\xff\xfe\x00"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A namespace in a directory and an SQLite table, without a log."""
    desk = Desk(names=f"sqlite://{tmp_path}/names.db", store=f"{tmp_path}/content", env={})
    desk.ok("namespace", "create", "lake", "--no-log", "--store", desk.store)
    return desk


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def urls(text: str) -> list[str]:
    """Return the URLs at the ends of lines."""
    return [line.split()[-1] for line in text.splitlines()]


def local(top: Path) -> dict[str, bytes | None]:
    """Return the content of all files below a directory, None for directories."""
    return {
        str(path.relative_to(top)): None if path.is_dir() else path.read_bytes()
        for path in sorted(top.rglob("*"))
    }


# -- reading names -----------------------------------------------------------------------------------


def test_ls_lists_directories(desk: Desk) -> None:
    """One level by name, or a file. -R lists all levels, -d the directory itself, -C only URLs."""
    desk.fill(b=b"1", a__x=b"22", a__c__y=b"")
    assert urls(desk.ok("fs", "ls", URL)) == [f"{URL}/a", f"{URL}/b"]
    assert urls(desk.ok("fs", "ls", f"{URL}/a/", f"{URL}/b")) == [f"{URL}/a/c", f"{URL}/a/x", f"{URL}/b"]
    below = ["a", "a/c", "a/c/y", "a/x", "b"]
    assert desk.ok("fs", "ls", "-R", "-C", URL).splitlines() == [f"{URL}/{path}" for path in below]
    assert urls(desk.ok("fs", "ls", "-d", f"{URL}/a")) == [f"{URL}/a"]
    line = desk.ok("fs", "ls", f"{URL}/a/x")
    assert desk.ok("fs", "ls", "-l", f"{URL}/a/x") == line  # a habit from other shells
    assert re.fullmatch(rf"- +2  \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ  {URL}/a/x\n", line)


def test_ls_sorts_by_time_and_size(desk: Desk) -> None:
    """-t lists the newest first, -S the largest first, and --reverse reverses the order."""
    desk.fill(a=b"22", b=b"1", c=b"333")
    for name, time in (("a", "2026-01-02"), ("b", "20260103:000000"), ("c", "2026-01-01T00:00Z")):
        desk.ok("fs", "touch", "-t", time, f"{URL}/{name}")

    def order(*options: str) -> str:
        return "".join(url[-1] for url in urls(desk.ok("fs", "ls", *options, URL)))

    assert (order("-t"), order("-S"), order("--reverse")) == ("bac", "cab", "cba")
    assert (order("-t", "--reverse"), order("-S", "--reverse")) == ("cab", "bac")


def test_human_readable_sizes(desk: Desk) -> None:
    """-h shows sizes with units."""
    desk.fill(a=b"x" * 1536)
    assert "1.5 KiB" in desk.ok("fs", "ls", "-h", URL)
    assert "1.5 KiB" in desk.ok("fs", "du", "-h", URL)


def test_json_keys_are_stable(desk: Desk) -> None:
    """The documented keys are in one object per line."""
    desk.fill(a__x=b"22")
    directory, file = desk.lines("fs", "ls", "-R", URL)
    keys = {"url", "path", "type", "size", "etag", "object", "object_version", "own", "id", "version"}
    more = {"bound_to", "created", "modified", "updated", "attributes"}
    assert set(directory) == set(file) == keys | more
    assert (directory["type"], directory["url"], directory["object"]) == ("directory", f"{URL}/a", None)
    assert (file["type"], file["path"], file["size"], file["own"]) == ("file", "a/x", 2, True)
    assert desk.lines("fs", "stat", f"{URL}/a/x") == [file]
    [used] = desk.lines("fs", "du", URL)
    assert used == {"url": f"{URL}/a", "bytes": 2, "files": 1, "directories": 1}


@pytest.mark.parametrize("command", [["ls", "-R"], ["find"]])
def test_listings_are_streamed(desk: Desk, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """A long listing is not held in memory: few entries are read before they are printed."""
    with desk.open() as lake:
        for number in range(20):
            lake.make_directory(f"d/{number:02}/e")
    taken = printed = 0
    entries, echo = Namespace._entries, click.echo

    def counted(self: Namespace, *how: Any, **more: Any) -> Iterator[Any]:
        nonlocal taken
        for entry in entries(self, *how, **more):
            taken += 1
            assert taken - printed <= 4
            yield entry

    def reported(*what: Any, **how: Any) -> None:
        nonlocal printed
        printed += 1
        echo(*what, **how)

    monkeypatch.setattr(Namespace, "_entries", counted)
    monkeypatch.setattr(click, "echo", reported)
    desk.ok("fs", *command, URL)
    assert taken == 41


@pytest.mark.parametrize("command", [["ls", "-R"], with_all(["du"])])
def test_a_closed_pipe_ends_a_listing(desk: Desk, command: list[str]) -> None:
    """As with ``| head``: the status is 141, without a message, and the rest is not listed."""
    with desk.open() as lake:
        for number in range(1000):  # more than a pipe holds
            lake.make_directory(f"{number:04}-{'x' * 200}")
    with subprocess.Popen(
        [sys.executable, "-m", "commitlog", "fs", *command, URL],
        env={**os.environ, "COMMITLOG_METADATA": desk.names},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(120) == 141
        assert process.stderr.read() == b""


def on_terminal(desk: Desk, *words: str) -> tuple[str, str]:
    """Run a command with standard error on a terminal; return its messages and its output."""
    terminal, end = pty.openpty()
    with (
        open(terminal, "rb", buffering=0) as shown,
        subprocess.Popen(
            [sys.executable, "-m", "commitlog", *words],
            env={**os.environ, "COMMITLOG_METADATA": desk.names, "TERM": "xterm"},
            stdout=subprocess.PIPE,
            stderr=end,
        ) as process,
    ):
        os.close(end)
        reported = b""
        with suppress(OSError):  # Linux reports a closed other end with this error
            while some := shown.read(4096):
                reported += some
        assert process.stdout is not None
        printed = process.stdout.read()
        assert process.wait(120) == 0
    return reported.decode(), printed.decode()


def test_du_shows_its_progress_on_a_terminal(desk: Desk) -> None:
    """It shows the count after each page. The output stays the same."""
    with desk.open() as lake:
        lake.make_directory("few/a")
        lake.make_directory("many")
        data = lake.upload(b"1")
        lake.bulk_link("many", {f"{n}": evolve(data, own=False) for n in range(2500)})
    reported, printed = on_terminal(desk, "fs", "du", URL)
    assert re.findall(r"counted: (\d+)", reported)[-2:] == ["1000", "2000"]
    assert printed == desk.ok("fs", "du", URL)
    assert [line.split()[:2] for line in printed.splitlines()] == [["0", "0"], ["2500", "2500"]]
    assert on_terminal(desk, "fs", "du", f"{URL}/few")[0] == ""


def test_stat_formats(desk: Desk) -> None:
    """--format accepts Hadoop's letters and some more. An unknown letter is wrong usage."""
    desk.fill(a__x=b"22")
    desk.ok("fs", "touch", "-t", "2026-01-02T03:04:05Z", f"{URL}/a/x")
    template = "%n|%p|%b|%F|%Y|%y|%v|%%n"
    shown = desk.ok("fs", "stat", "--format", template, f"{URL}/a/x")
    assert shown == "x|a/x|2|regular file|1767323045000|2026-01-02T03:04:05Z|2|%n\n"
    assert desk.ok("fs", "stat", "--format", "%F %o", f"{URL}/a") == "directory -\n"
    assert "unknown sequence %q" in desk.refused(2, "fs", "stat", "--format", "%q", f"{URL}/a")
    [file] = desk.lines("fs", "stat", f"{URL}/a/x")
    for shown in (desk.ok("fs", "stat", f"{URL}/a/x"), desk.ok("fs", "stat", f"{URL}/a")):
        assert all(word in shown for word in ("modified", "created", "version", "id"))
    assert file["etag"] in desk.ok("fs", "stat", f"{URL}/a/x")


def test_du_prints_totals(desk: Desk) -> None:
    """One line for each entry of a directory; with -s, one for the directory."""
    desk.fill(a__x=b"22", a__c__y=b"333", b=b"1")
    rows = [line.split() for line in desk.ok("fs", "du", URL).splitlines()]
    assert rows == [["5", "2", f"{URL}/a"], ["1", "1", f"{URL}/b"]]
    assert desk.ok("fs", "du", "-s", URL, f"{URL}/b").split() == [
        "6",
        "3",
        f"{URL}/",
        "1",
        "1",
        f"{URL}/b",
    ]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("*", ["a", "b", "d*", "{e}"]),
        ("*/?.csv", ["a/1.csv", "a/2.csv", "b/1.csv"]),
        ("{b,a}/1.csv", ["b/1.csv", "a/1.csv"]),
        ("a/[^2].csv", ["a/1.csv"]),
        ("a{,/[1-2].csv}", ["a", "a/1.csv", "a/2.csv"]),
        (r"d\*", ["d*"]),
        (r"[d]\*/x", ["d*/x"]),
        (r"\{e\}", ["{e}"]),
        ("*/{sub,other}/*", ["b/sub/deep"]),
    ],
)
def test_patterns_are_expanded(desk: Desk, pattern: str, wanted: list[str]) -> None:
    """Patterns apply to one name, as in Hadoop's shell. A backslash escapes them."""
    with desk.open() as lake:
        for path in ("a/1.csv", "a/2.csv", "b/1.csv", "b/sub/deep", "d*/x", "{e}"):
            lake.write(path, b"")
    listed = desk.ok("fs", "ls", "-d", "-C", f"{URL}/{pattern}")
    assert listed.splitlines() == [f"{URL}/{path}" for path in wanted]


def test_literal_urls_are_not_patterns(desk: Desk) -> None:
    """With --literal, the output of ls -C is valid input."""
    odd = ["*", "[ab]", "a\\*", "{x,y}"]
    with desk.open() as lake:
        for name in (*odd, "a"):
            lake.write(name, name.encode())
    listed = desk.ok("fs", "ls", "-C", URL).splitlines()
    assert len(listed) == 5
    for name in odd:
        assert desk.ok("fs", "--literal", "cat", f"{URL}/{name}") == name
    assert "no such file or directory" in desk.refused(1, "fs", "--literal", "cat", f"{URL}/?")
    desk.ok("fs", "--literal", "rm", *(f"{URL}/{name}" for name in odd))
    assert desk.tree() == {"a": b"a"}


def test_test_returns_its_result_as_status(desk: Desk) -> None:
    """0 for true, 1 for false, 2 for an error."""
    desk.fill(d__f=b"", d__g=b"1")
    for wanted, url, status in (
        ("-e", "d", 0),
        ("-e", "d/f", 0),
        ("-e", "d/f/", 1),
        ("-e", "x", 1),
        ("-e", "d/f/x", 1),
        ("-d", "d/", 0),
        ("-d", "d/f", 1),
        ("-f", "d/f", 0),
        ("-f", "d", 1),
        ("-s", "d/f", 1),
        ("-s", "d/g", 0),
        ("-s", "d/g/", 1),
        ("-s", "d", 1),
        ("-z", "d/f", 0),
        ("-z", "d/g", 1),
        ("-z", "d", 1),
        ("-z", "x", 1),
    ):
        done = desk.run("fs", "test", wanted, f"{URL}/{url}")
        assert (done.exit_code, done.output) == (status, ""), (wanted, url)
    assert desk.run("fs", "test", f"{URL}/d").exit_code == 0
    assert "land" in desk.refused(2, "fs", "test", "commitlog://land/x")


def test_missing_files_are_reported_and_others_processed(desk: Desk) -> None:
    """Each URL is tried, messages name it, and the status is the highest."""
    desk.fill(a=b"1")
    done = desk.run("fs", "ls", "-C", f"{URL}/none", f"{URL}/x*", f"{URL}/a")
    assert (done.exit_code, done.stdout) == (1, f"{URL}/a\n")
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [f"{URL}/none", f"{URL}/x*"]
    for command in ("cat", "stat", "du", "rm", "mv"):
        target = [f"{URL}/b"] if command == "mv" else []
        assert (
            f"{URL}/none" in desk.refused(1, "fs", command, f"{URL}/none", *target) or command == "cat"
        )
    assert "is a file" in desk.refused(1, "fs", "ls", f"{URL}/a/")


def test_control_characters_in_names_are_escaped(desk: Desk) -> None:
    """JSON has the name itself."""
    with desk.open() as lake:
        lake.write("a\u202eb", b"")
        lake.write("c\x9bd", b"")
    for command in ("ls", "du", "find", "stat"):
        shown = desk.ok("fs", command, f"{URL}/*") + desk.ok("fs", command, URL)
        assert "\u202e" not in shown and "\x9b" not in shown
    assert [each["path"] for each in desk.lines("fs", "ls", URL)] == ["a\u202eb", "c\x9bd"]


# -- content -----------------------------------------------------------------------------------------


def test_content_is_unchanged(desk: Desk, here: Path) -> None:
    """get and cat return the bytes that put read from a file or from standard input."""
    (here / "a").write_bytes(BINARY)
    desk.ok("fs", "put", "a", f"{URL}/a")
    desk.ok("fs", "put", "-", f"{URL}/b", stdin=BINARY)
    assert desk.run("fs", "cat", f"{URL}/a", f"{URL}/b").stdout_bytes == 2 * BINARY
    assert desk.run("fs", "get", f"{URL}/[ab]", "-").stdout_bytes == 2 * BINARY
    desk.ok("fs", "get", f"{URL}/b")
    desk.ok("fs", "get", f"{URL}/b", "c")
    assert local(here) == {"a": BINARY, "b": BINARY, "c": BINARY}


def test_large_files_are_transferred_in_blocks(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory holds one block of a file, in both directions."""
    body = os.urandom(512).hex().encode() * (2 * BLOCK_SIZE // 1024) + b"tail"
    (here / "a").write_bytes(body)
    largest = 0
    write, read = FileWriter.write, OpenFile.read

    def noted(data: bytes) -> bytes:
        nonlocal largest
        largest = max(largest, len(data))
        return data

    monkeypatch.setattr(FileWriter, "write", lambda self, data: write(self, noted(data)))
    monkeypatch.setattr(OpenFile, "read", lambda self, *span: noted(read(self, *span)))
    desk.ok("fs", "put", "a", f"{URL}/a")
    desk.ok("fs", "get", f"{URL}/a", "b")
    assert (here / "b").read_bytes() == body
    assert desk.run("fs", "cat", f"{URL}/a").stdout_bytes == body
    assert largest == BLOCK_SIZE


def test_put_and_get_replace_only_with_force(desk: Desk, here: Path) -> None:
    """An existing file stays, with status 3, without --force."""
    (here / "a").write_bytes(b"1")
    desk.ok("fs", "put", "a", f"{URL}/a")
    (here / "a").write_bytes(b"2")
    messages = desk.refused(3, "fs", "put", f"{here}/a", f"{URL}/a")
    assert f"{here}/a" in messages and "--force replaces it" in messages
    assert "--force" in desk.refused(3, "fs", "get", f"{URL}/a", "a")
    assert (desk.tree(), local(here)) == ({"a": b"1"}, {"a": b"2"})
    desk.ok("fs", "put", "-f", "a", f"{URL}/a")
    (here / "a").write_bytes(b"3")
    desk.ok("fs", "get", "-f", f"{URL}/a", "a")
    assert (desk.tree(), local(here)) == ({"a": b"2"}, {"a": b"2"})


def test_uploads_do_not_replace_a_file_made_meanwhile(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client makes it while the content is stored; it is replaced only with --force."""
    (here / "d").mkdir()
    (here / "d" / "x").write_bytes(b"1")
    desk.fill(source=b"2")
    link_many = Namespace.link_many

    def later(self: Namespace, files: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch, desk.open() as other:
            patch.setattr(Namespace, "link_many", link_many)
            for path in files:
                other.write(path, b"another's")
        return link_many(self, files, **options)

    monkeypatch.setattr(Namespace, "link_many", later)
    for words in (["put", "d/x", f"{URL}/a"], ["put", "d"], ["cp", f"{URL}/source", f"{URL}/c"]):
        target = [URL] if words[-1] == "d" else []
        assert "--force replaces it" in desk.refused(3, "fs", *words, *target)
    made = {name: body for name, body in desk.tree().items() if body is not None}
    assert made == {"source": b"2"} | dict.fromkeys(("a", "d/x", "c"), b"another's")
    desk.ok("fs", "put", "-f", "d/x", f"{URL}/a")
    assert desk.tree()["a"] == b"1"


def test_put_into_a_directory(desk: Desk, here: Path) -> None:
    """The file keeps its name. Several sources need an existing directory."""
    for name in ("a", "b"):
        (here / name).write_bytes(name.encode())
    desk.ok("fs", "mkdir", f"{URL}/in")
    desk.ok("fs", "put", "a", "b", f"{URL}/in")
    desk.ok("fs", "put", "a", f"{URL}/in/c")
    assert desk.tree() == {"in": None, "in/a": b"a", "in/b": b"b", "in/c": b"a"}
    assert "is not a directory" in desk.refused(1, "fs", "put", "a", "b", f"{URL}/none")
    assert "is not a directory" in desk.refused(1, "fs", "put", "a", "b", f"{URL}/in/a")
    assert "fs mkdir" in desk.refused(1, "fs", "put", "a", f"{URL}/none/")
    assert f"{URL}/none does not exist" in desk.refused(1, "fs", "put", "a", f"{URL}/none/a")
    assert "is a file" in desk.refused(1, "fs", "put", "a", f"{URL}/in/a/")
    assert "give a name" in desk.refused(1, "fs", "put", "-", f"{URL}/in")
    assert "missing" in desk.refused(1, "fs", "put", "missing", f"{URL}/in")
    assert "is not a directory" in desk.refused(1, "fs", "put", "a", "missing", f"{URL}/none")
    assert len(desk.tree()) == 4
    assert "missing" in desk.refused(1, "fs", "put", "missing", "a", "b", f"{URL}/")
    assert desk.tree().keys() >= {"a", "b"}


def test_put_prints_new_files_as_json(desk: Desk, here: Path) -> None:
    """With --json, as ls does. Without it, nothing is printed."""
    (here / "a").write_bytes(b"22")
    [written] = desk.lines("fs", "put", "a", f"{URL}/a")
    assert [written] == desk.lines("fs", "ls", URL)
    assert desk.ok("fs", "put", "-f", "a", f"{URL}/a") == ""


def make_tree(top: Path) -> dict[str, bytes | None]:
    """Make a directory with empty directories, and more files than are transferred at a time."""
    (top / "sub" / "empty").mkdir(parents=True)
    for number in range(20):
        (top / f"part-{number}").write_bytes(b"%d" % number)
    (top / "sub" / "ü b").write_bytes(b"")
    return local(top)


def test_directories_are_uploaded_and_downloaded(desk: Desk, here: Path) -> None:
    """With all contents, empty directories included, as a new directory or into an existing one."""
    made = make_tree(here / "a")
    desk.ok("fs", "put", "a", f"{URL}/new")
    assert {path.removeprefix("new/"): body for path, body in desk.tree("new").items()} == made
    desk.ok("fs", "put", "a", f"{URL}/new")
    assert desk.tree("new/a").keys() == {f"new/a/{path}" for path in made}
    desk.ok("fs", "rm", "-r", f"{URL}/new/a")
    desk.ok("fs", "get", f"{URL}/new", "back")
    desk.ok("fs", "get", f"{URL}/new", "back")
    inside = {f"new/{path}": body for path, body in made.items()}
    assert local(here / "back") == {**made, "new": None, **inside}
    desk.ok("fs", "get", f"{URL}/")
    assert local(here / "lake" / "new") == made


def test_a_failed_file_does_not_stop_the_others(desk: Desk, here: Path) -> None:
    """Each failed file is reported. --force completes the upload."""
    made = make_tree(here / "a")
    desk.fill(new__a__part__7=b"")
    with desk.open() as lake:
        lake.rename("new/a/part/7", "new/a/part-7")
        lake.delete("new/a/part")
    messages = desk.refused(3, "fs", "put", "a", f"{URL}/new")
    assert len(messages.splitlines()) == 1 and "a/part-7" in messages
    assert len(desk.tree("new/a")) == len(made)
    desk.ok("fs", "put", "-f", "a", f"{URL}/new")
    assert desk.tree("new") == {"new/a": None, **{f"new/a/{path}": made[path] for path in made}}


def test_a_failed_top_directory_is_reported_once(desk: Desk, here: Path) -> None:
    """Its contents are not tried."""
    desk.fill(a__x=b"1", a__y__z=b"2", f=b"3")
    (here / "d" / "e").mkdir(parents=True)
    (here / "d" / "x").write_bytes(b"1")
    for words in (["put", "d", f"{URL}/f"], ["cp", f"{URL}/a", f"{URL}/f"]):
        [line] = desk.refused(3, "fs", *words).splitlines()
        assert "'f' is a file" in line
    [line] = desk.refused(1, "fs", "get", f"{URL}/a", "none/a").splitlines()
    assert "none/a" in line


def test_links_to_directories_are_reported_and_skipped(desk: Desk, here: Path) -> None:
    """A link to a file is read as the file. Broken links and pipes are reported, too."""
    (here / "a").mkdir()
    (here / "a" / "x").write_bytes(b"1")
    (here / "a" / "y").symlink_to("x")
    (here / "a" / "loop").symlink_to(here)
    (here / "a" / "broken").symlink_to("nothing")
    os.mkfifo(here / "a" / "pipe")
    messages = desk.refused(1, "fs", "put", "a", f"{URL}/a")
    assert [line.split(": ")[1] for line in messages.splitlines()] == ["a/broken", "a/loop", "a/pipe"]
    assert desk.tree("a") == {"a/x": b"1", "a/y": b"1"}
    (here / "link").symlink_to("a")
    desk.refused(1, "fs", "put", "link", f"{URL}/")
    assert desk.tree("link") == {"link/x": b"1", "link/y": b"1"}


def test_a_named_pipe_is_read(desk: Desk, here: Path) -> None:
    """It is read to its end, as standard input is."""
    os.mkfifo(here / "pipe")
    writer = threading.Thread(target=lambda: (here / "pipe").write_bytes(b"through"))
    writer.start()
    desk.ok("fs", "put", "pipe", f"{URL}/a")
    writer.join(timeout=60)
    assert desk.tree() == {"a": b"through"}


def test_atomic_uploads_all_or_nothing(desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory appears in one step. If a file fails, nothing appears, and a message says so."""
    make_tree(here / "a")
    seen: list[bool] = []
    failing = ["part-7"]  # threads read the files in any order
    read = sources._local_blocks

    def reading(place: str) -> Iterator[bytes]:
        with desk.open() as lake:
            seen.append(lake.exists("new"))
        if place.endswith(tuple(failing)):
            raise Conflict("somebody else")
        return read(place)

    monkeypatch.setattr(sources, "_local_blocks", reading)
    messages = desk.refused(1, "fs", "put", "--atomic", "a", f"{URL}/new")
    assert "somebody else" in messages and f"nothing of a is at {URL}/new" in messages
    assert desk.tree() == {}
    seen.clear()
    failing.clear()
    [made] = desk.lines("fs", "put", "--atomic", "a", f"{URL}/new")
    assert (made["path"], made["type"]) == ("new", "directory")
    assert seen and not any(seen)
    assert len(desk.tree("new")) == len(local(here / "a"))
    desk.ok("fs", "put", "--atomic", "a", f"{URL}/new")
    assert len(desk.tree("new/a")) == len(local(here / "a"))
    assert "--replace" in desk.refused(3, "fs", "put", "--atomic", "a", f"{URL}/new")


def test_replace_replaces_a_directory(desk: Desk, here: Path) -> None:
    """The old directory is removed as a whole. Without one, --replace is like --atomic."""
    (here / "a").mkdir()
    (here / "a" / "x").write_bytes(b"1")
    desk.ok("fs", "put", "--replace", "a", f"{URL}/now")
    (here / "a" / "x").rename(here / "a" / "y")
    desk.ok("fs", "put", "--replace", "a", f"{URL}/now")
    assert desk.tree() == {"now": None, "now/y": b"1"}
    (here / "b").write_bytes(b"")
    assert "directories" in desk.refused(2, "fs", "put", "--atomic", "b", f"{URL}/now")
    assert "one source" in desk.refused(2, "fs", "put", "--replace", "a", "a", f"{URL}/now")
    assert "root" in desk.refused(2, "fs", "put", "--replace", "a", f"{URL}/")
    assert desk.tree() == {"now": None, "now/y": b"1"}


def test_after_an_unknown_outcome_nothing_is_removed(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uploaded content stays, with status 4."""
    make_tree(here / "a")

    def lost(self: Namespace, source: str, target: str) -> None:
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(Namespace, "rename", lost)
    assert "no answer" in desk.refused(4, "fs", "put", "--atomic", "a", f"{URL}/new")
    assert len(desk.tree(".staging")) == len(local(here / "a")) + 1


def interrupt_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the command when it reads a file of this name."""
    read = sources._local_blocks

    def reading(place: str) -> Iterator[bytes]:
        if place.endswith(name):
            raise KeyboardInterrupt
        return read(place)

    monkeypatch.setattr(sources, "_local_blocks", reading)


def test_an_interrupted_atomic_upload_leaves_nothing(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 130, and the uploaded content is removed."""
    make_tree(here / "a")
    interrupt_at("part-7", monkeypatch)
    messages = desk.refused(130, "fs", "put", "--atomic", "a", f"{URL}/new")
    assert messages.splitlines() == [
        "commitlog: removing the uploaded files of a …",
        f"commitlog: interrupted: nothing of a is at {URL}/new",
    ]
    assert desk.tree() == {}


def unreferenced(desk: Desk) -> set[str]:
    """Return the objects to which no file refers."""
    with desk.open() as lake:
        named = {status.data.path for status in lake.walk() if status.data is not None}
        return {info.path for info in objects_in(lake.store)} - named


def test_threads_is_the_number_of_concurrent_files(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file waits for the last one. 0 is wrong usage."""
    (here / "a").mkdir()
    for number in range(12):
        (here / "a" / f"{number}").write_bytes(b"%d" % number)
    together = threading.Barrier(12, timeout=30)
    store, read = Namespace.upload, OpenFile.read

    def storing(self: Namespace, body: bytes) -> Any:
        together.wait()
        return store(self, body)

    def reading(self: OpenFile, *args: int) -> bytes:
        together.wait()
        return read(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Namespace, "upload", storing)
        patched.setattr(OpenFile, "read", reading)
        desk.ok("fs", "put", "--threads", "12", "a", f"{URL}/a")
        desk.ok("fs", "put", "--atomic", "--threads", "12", "a", f"{URL}/b")
        desk.ok("fs", "get", "--threads", "12", f"{URL}/a", "back")
    assert local(here / "back") == local(here / "a")
    assert desk.tree("b").keys() == {f"b/{number}" for number in range(12)}
    desk.refused(2, "fs", "get", "--threads", "0", f"{URL}/a")


def test_files_are_made_in_groups(desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are stored at the same time appear in one transaction. A failure stops no other."""
    (here / "a").mkdir()
    for number in range(12):
        (here / "a" / f"{number}").write_bytes(b"%d" % number)
    stored = threading.Semaphore(0)
    sizes: list[int] = []
    store, link_many = Namespace.upload, Namespace.link_many

    def storing(self: Namespace, body: bytes) -> Any:
        data = store(self, body)
        stored.release()
        return data

    def linked(self: Namespace, files: Any, **how: Any) -> Any:
        if not sizes:
            for _ in range(12):
                assert stored.acquire(timeout=30)
            link_many(self, {"a/7": store(self, b"mine")})
        sizes.append(len(files))
        return link_many(self, files, **how)

    monkeypatch.setattr(Namespace, "upload", storing)
    monkeypatch.setattr(Namespace, "link_many", atomic_links(linked))
    [messages] = desk.refused(3, "fs", "put", "--threads", "12", "a", f"{URL}/a").splitlines()
    assert "a/7" in messages and "nothing was written" in messages
    assert max(sizes) > 1
    assert desk.tree("a") == {f"a/{n}": b"mine" if n == 7 else b"%d" % n for n in range(12)}
    assert unreferenced(desk) == set()


def test_names_of_a_transaction_are_read_in_parallel(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All names of one transaction are read at once."""
    (here / "a").mkdir()
    for number in range(12):
        (here / "a" / f"{number}").touch()
    seen = watched_executors(monkeypatch)
    desk.ok("fs", "put", "a", f"{URL}/a")
    assert sum(seen) == 12


def test_sources_with_the_same_name_are_refused(desk: Desk, here: Path) -> None:
    """Only the first is copied, also with --force."""
    for number in range(9):
        (here / f"{number}").mkdir()
        (here / f"{number}" / "x").write_bytes(b"%d" % number)
    sources = [f"{number}/x" for number in range(9)]
    messages = desk.refused(3, "fs", "put", *sources, f"{URL}/")
    assert len(messages.splitlines()) == 8
    assert unreferenced(desk) == set()
    for words in (
        ["put", *sources],
        ["cp", f"{URL}/a/x", f"{URL}/b/x"],
        ["mv", f"{URL}/a/x", f"{URL}/b/x"],
    ):
        desk.fill(a__x=b"0", b__x=b"1")
        messages = desk.refused(3, "fs", words[0], "-f", *words[1:], f"{URL}/")
        assert "has the same target" in messages and "x" in messages
        assert desk.tree()["x"] == b"0"
        assert desk.tree()["b/x"] == b"1"
    (here / "to").mkdir()
    desk.fill(a__x=b"0")
    assert "has the same target" in desk.refused(3, "fs", "get", "-f", f"{URL}/[ab]/x", "to")
    assert local(here / "to") == {"x": b"0"}


def test_closed_standard_input_is_an_error(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is made."""
    items = sources.standard_input().items
    monkeypatch.setattr(sys, "stdin", None)
    [item] = items()
    assert item.blocks is not None
    with pytest.raises(OSError, match="standard input is closed"):
        list(item.blocks())


def test_invalid_names_are_failures(desk: Desk, here: Path) -> None:
    """They are no wrong usage, and other files are uploaded."""
    (here / "a" / "sub\t").mkdir(parents=True)
    for name in ("b\tc", "d"):
        (here / "a" / name).write_bytes(b"")
    messages = desk.refused(1, "fs", "put", "a", f"{URL}/a")
    assert messages.count("rename it") == 2
    assert desk.tree() == {"a": None, "a/d": b""}


def watch_directories(monkeypatch: pytest.MonkeyPatch, before: Callable[[str], object]) -> None:
    """Call `before` with the path of each directory before it is made."""
    make = Namespace.make_directory

    def made(self: Namespace, path: str, **how: Any) -> Status:
        before(path)
        return make(self, path, **how)

    monkeypatch.setattr(Namespace, "make_directory", made)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_directories_are_made_concurrently(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch, there: bool, force: list[str]
) -> None:
    """New or existing. Their contents come after them."""
    for number in range(8):
        (here / "a" / f"{number}").mkdir(parents=True)
        (here / "a" / f"{number}" / "file").write_bytes(b"1")
    if there:
        desk.ok("fs", "mkdir", "-p", *(f"{URL}/a/{number}" for number in range(8)))
    together = threading.Barrier(3, timeout=30)
    first = threading.Lock()
    seen: set[str] = set()

    def before(path: str) -> None:
        with first:
            again = path in seen
            seen.add(path)
        if not again and re.fullmatch("a/[0-5]", path):
            together.wait()

    watch_directories(monkeypatch, before)
    desk.ok("fs", "put", *force, "a", f"{URL}/" if there else f"{URL}/a")
    assert desk.tree("a") == {f"a/{path}": body for path, body in local(here / "a").items()}


@pytest.mark.parametrize("threads", ["1", "2", "8"])
def test_deep_trees_are_uploaded_with_any_number_of_threads(
    desk: Desk, here: Path, threads: str
) -> None:
    """No job waits for another that waits for a thread, at any depth."""
    deep = here.joinpath("a", *(["d"] * 50))
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"1")
    desk.ok("fs", "put", "--threads", threads, "a", f"{URL}/a")
    assert desk.tree("a") == {f"a/{path}": body for path, body in local(here / "a").items()}


def test_a_failed_directory_is_reported_with_its_contents(desk: Desk, here: Path) -> None:
    """The other files are uploaded."""
    for name in ("in/the/way", "free/file"):
        (here / "a" / name).parent.mkdir(parents=True)
        (here / "a" / name).write_bytes(b"1")
    desk.fill(a__in=b"a file")
    messages = desk.refused(3, "fs", "put", "a", f"{URL}/")
    reported = sorted(line.split(": ")[1] for line in messages.splitlines())
    assert reported == ["a/in", "a/in/the", "a/in/the/way"]
    assert desk.tree() == {"a": None, "a/in": b"a file", "a/free": None, "a/free/file": b"1"}


def test_a_directory_with_an_unknown_outcome_has_status_4(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its contents are tried, and have their own outcomes."""
    (here / "a" / "sub").mkdir(parents=True)
    (here / "a" / "sub" / "file").write_bytes(b"1")
    make = Namespace.make_directory

    def lost(self: Namespace, path: str, **how: Any) -> Status:
        made = make(self, path, **how)
        if path == "a/sub":
            raise OutcomeUnknown("no answer")
        return made

    monkeypatch.setattr(Namespace, "make_directory", lost)
    assert desk.refused(4, "fs", "put", "a", f"{URL}/a").startswith("commitlog: a/sub: no answer\n")
    assert desk.tree() == {"a": None, "a/sub": None, "a/sub/file": b"1"}


@pytest.mark.parametrize("threads", ["1", "4"])
def test_an_interrupt_ends_the_wait_for_a_directory(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    """The directory is never made, but the waiting jobs end, with status 130."""
    for number in range(20):
        (here / "a" / f"{number:02}" / "below").mkdir(parents=True)
        (here / "a" / f"{number:02}" / "below" / "file").write_bytes(b"1")

    def before(path: str) -> None:
        if path == "a/03":
            raise KeyboardInterrupt

    watch_directories(monkeypatch, before)
    desk.refused(130, "fs", "put", "--threads", threads, "a", f"{URL}/a")
    assert "a/03" not in desk.tree()
    assert unreferenced(desk) == set()


def test_an_interrupted_upload_leaves_complete_files(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 130. Content without a file is removed."""
    made = make_tree(here / "a")
    interrupt_at("part-7", monkeypatch)
    desk.refused(130, "fs", "put", "a", f"{URL}/a")
    assert desk.tree("a").items() <= {f"a/{path}": body for path, body in made.items()}.items()
    assert unreferenced(desk) == set()


def test_an_unknown_outcome_is_reported_for_each_file(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 4, and nothing is removed."""
    (here / "a").mkdir()
    for number in range(5):
        (here / "a" / f"{number}").write_bytes(b"%d" % number)

    def lost(self: Namespace, files: Any, **how: Any) -> None:
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(Namespace, "link_many", atomic_links(lost))
    *messages, last = desk.refused(4, "fs", "put", "a", f"{URL}/a").splitlines()
    assert sorted(line.split(": ")[1] for line in messages) == [f"a/{n}" for n in range(5)]
    assert "0 of 5 files" in last and "the outcome of 5 more is unknown" in last
    assert len(unreferenced(desk)) == 5


def test_a_failed_get_leaves_no_partial_file(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing file is unchanged."""
    desk.fill(a=b"x" * (BLOCK_SIZE + 1))
    (here / "a").write_bytes(b"old")
    read = OpenFile.read

    def once(self: OpenFile, start: int = 0, end: int | None = None) -> bytes:
        if start:
            raise Conflict("no more")
        return read(self, start, end)

    monkeypatch.setattr(OpenFile, "read", once)
    assert "no more" in desk.refused(1, "fs", "get", "-f", f"{URL}/a")
    assert local(here) == {"a": b"old"}
    assert "does not exist" in desk.refused(1, "fs", "get", f"{URL}/a", "none/a")
    assert "is not a directory" in desk.refused(1, "fs", "get", f"{URL}/a", f"{URL}/a", "none")
    assert "is not a local path" in desk.refused(2, "fs", "get", f"{URL}/a", f"{URL}/b")


def test_get_does_not_replace_a_file_made_meanwhile(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced only with --force."""
    desk.fill(a=b"1")
    read = OpenFile.read

    def slowly(self: OpenFile, start: int = 0, end: int | None = None) -> bytes:
        (here / "a").write_bytes(b"mine")
        return read(self, start, end)

    monkeypatch.setattr(OpenFile, "read", slowly)
    desk.refused(3, "fs", "get", f"{URL}/a")
    assert local(here) == {"a": b"mine"}
    desk.ok("fs", "get", "-f", f"{URL}/a")
    assert local(here) == {"a": b"1"}


def test_content_replaced_by_others_is_not_read(desk: Desk, here: Path) -> None:
    """It is a failure, and leaves no file."""
    desk.fill(a=b"1")
    [file] = desk.lines("fs", "stat", f"{URL}/a")
    desk.run("put", "-", f"{desk.store}/{file['object']}", stdin=b"2")
    assert desk.run("fs", "cat", f"{URL}/a").stdout == ""
    assert "another program replaced it" in desk.refused(1, "fs", "get", f"{URL}/a")
    assert local(here) == {}


def test_cat_stops_at_the_first_failure(desk: Desk) -> None:
    """A directory has no content. Later files are not printed."""
    desk.fill(a=b"1", d__x=b"2", e=b"3")
    done = desk.run("fs", "cat", f"{URL}/a", f"{URL}/d", f"{URL}/e")
    assert (done.exit_code, done.stdout) == (1, "1")
    assert "is a directory" in done.stderr
    assert f"{URL}/none: no such file or directory" in desk.refused(
        1, "fs", "cat", f"{URL}/a", f"{URL}/none"
    )
    with desk.open() as lake:
        lake.store.delete(lake.open("e").data.path)
    assert f"{URL}/e: object" in desk.refused(1, "fs", "cat", f"{URL}/[ae]", f"{URL}/d")


def test_cp_copies_within_and_between_namespaces(desk: Desk, tmp_path: Path) -> None:
    """Files and directories, into a directory or as a new one. Each copy has its own content."""
    desk.fill(a__x=b"1", a__c__y=b"")
    desk.ok("fs", "cp", f"{URL}/a", f"{URL}/b")
    desk.ok("fs", "cp", f"{URL}/a/x", f"{URL}/z")
    desk.ok("fs", "cp", f"{URL}/a/x", f"{URL}/z", f"{URL}/b/c")
    below = {"b": None, "b/c": None, "b/c/x": b"1", "b/c/y": b"", "b/c/z": b"1", "b/x": b"1", "z": b"1"}
    assert {path: body for path, body in desk.tree().items() if path[0] != "a"} == below
    objects = [each["object"] for each in desk.lines("fs", "ls", "-R", URL) if each["type"] == "file"]
    assert len(set(objects)) == len(objects)
    desk.ok("namespace", "create", "land", "--no-log", "--store", f"{tmp_path}/other")
    desk.ok("fs", "cp", "--atomic", f"{URL}/b", "commitlog://land/")
    assert desk.ok("fs", "cat", "commitlog://land/b/c/x") == "1"
    desk.refused(3, "fs", "cp", f"{URL}/z", "commitlog://land/b/x")
    desk.ok("fs", "cp", "-f", f"{URL}/z", "commitlog://land/b/x")
    for source, target in (("a", "a/c"), ("a/x", "a/x"), ("", "a")):
        assert "source of the copy" in desk.refused(2, "fs", "cp", f"{URL}/{source}", f"{URL}/{target}")


# -- changes of names --------------------------------------------------------------------------------


def test_mv_renames_or_moves_into_a_directory(desk: Desk) -> None:
    """Several sources need a directory."""
    desk.fill(a__x=b"1", b=b"2", c=b"3")
    desk.ok("fs", "mkdir", f"{URL}/d")
    desk.ok("fs", "mv", f"{URL}/a", f"{URL}/new")
    desk.ok("fs", "mv", f"{URL}/[bc]", f"{URL}/new", f"{URL}/d")
    assert desk.tree() == {"d": None, "d/b": b"2", "d/c": b"3", "d/new": None, "d/new/x": b"1"}
    [moved] = desk.lines("fs", "mv", f"{URL}/d/new", f"{URL}/")
    assert moved["path"] == "new"
    assert "is not a directory" in desk.refused(1, "fs", "mv", f"{URL}/d/b", f"{URL}/d/c", f"{URL}/none")
    assert "does not exist: make it" in desk.refused(1, "fs", "mv", f"{URL}/d/b", f"{URL}/none/b")
    assert len(desk.tree()) == 5


def test_mv_replaces_files_with_force(desk: Desk) -> None:
    """Without --force, the existing file stays, with status 3."""
    desk.fill(a=b"1", b=b"2", d__a=b"3")
    assert "--force replaces a file" in desk.refused(3, "fs", "mv", f"{URL}/a", f"{URL}/b")
    desk.refused(3, "fs", "mv", f"{URL}/a", f"{URL}/d")
    assert desk.tree() == {"a": b"1", "b": b"2", "d": None, "d/a": b"3"}
    desk.ok("fs", "mv", "-f", f"{URL}/b", f"{URL}/a")
    desk.ok("fs", "mv", "-f", f"{URL}/a", f"{URL}/d")
    assert desk.tree() == {"d": None, "d/a": b"2"}


def test_mv_replaces_a_directory_in_one_step(desk: Desk, tmp_path: Path) -> None:
    """--replace replaces the directory instead of moving into it."""
    desk.fill(new__x=b"1", now__y=b"2", now__z=b"3")
    desk.ok("fs", "mv", "--replace", f"{URL}/new", f"{URL}/now")
    assert desk.tree() == {"now": None, "now/x": b"1"}
    desk.ok("fs", "mkdir", f"{URL}/a", f"{URL}/b")
    assert "one source" in desk.refused(2, "fs", "mv", "--replace", f"{URL}/[ab]", f"{URL}/now")
    desk.ok("namespace", "create", "land", "--no-log", "--store", f"{tmp_path}/other")
    assert "another namespace" in desk.refused(2, "fs", "mv", f"{URL}/a", "commitlog://land/a")
    assert "a" in desk.tree()


def test_rm_removes_files_and_directories(desk: Desk) -> None:
    """A directory is removed in one step. The message names the command that frees its space."""
    desk.fill(a__x=b"1", b=b"2", c=b"3")
    assert "--recursive" in desk.refused(1, "fs", "rm", f"{URL}/a", f"{URL}/b")
    assert desk.tree() == {"a": None, "a/x": b"1", "c": b"3"}
    assert "'commitlog namespace gc lake'" in desk.ok("fs", "rm", "-r", f"{URL}/a")
    assert "root" in desk.refused(2, "fs", "rm", "-r", URL)
    assert desk.tree() == {"c": b"3"}
    desk.ok("fs", "rm", "-R", f"{URL}/*")
    assert desk.tree() == {}


def test_rm_removes_matches_concurrently(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as --threads. Each has its own line, failures included."""
    desk.fill(**{f"a__{number}": b"" for number in range(6)}, a__d__x=b"")
    together = threading.Barrier(6, timeout=30)
    delete = Namespace.delete

    def deleted(self: Namespace, path: str, **how: Any) -> None:
        together.wait()
        delete(self, path, **how)

    monkeypatch.setattr(Namespace, "delete", deleted)
    run = desk.run("fs", "rm", "--threads", "6", f"{URL}/a/*")
    assert run.exit_code == 1
    assert sorted(run.stdout.splitlines()) == [f"removed {URL}/a/{number}" for number in range(6)]
    assert run.stderr.startswith(f"commitlog: {URL}/a/d: it is a directory")
    assert desk.tree("a") == {"a/d": None, "a/d/x": b""}


def test_patterns_do_not_match_running_jobs(desk: Desk) -> None:
    """Removing all matches in the root aborts no job. The directory of jobs has to be named."""
    desk.fill(a=b"1")
    with desk.open() as lake:
        publication = DirectoryCommitter(lake, "out")
        attempt = publication.begin()
        desk.ok("fs", "rm", "-r", f"{URL}/*", f"{URL}/.st[a]ging*", "--force")
        assert publication.publish(attempt, {}).path == "out"
    assert desk.ok("fs", "ls", "-d", "-C", f"{URL}/*", f"{URL}/.staging").split() == [
        f"{URL}/out",
        f"{URL}/.staging",
    ]


def test_rm_with_force_ignores_missing_files(desk: Desk) -> None:
    """A missing namespace is still an error."""
    desk.refused(1, "fs", "rm", f"{URL}/none")
    assert desk.ok("fs", "rm", "-f", f"{URL}/none", f"{URL}/x*") == ""
    assert "no namespace" in desk.refused(1, "fs", "rm", "-f", "commitlog://land/a")


def test_rm_with_force_ignores_concurrent_removal(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --force it is an error."""
    desk.fill(a=b"1")

    def gone(self: Namespace, path: str, *, recursive: bool = False) -> None:
        raise NotFound(f"there is nothing at {path!r}")

    monkeypatch.setattr(Namespace, "delete", gone)
    assert desk.ok("fs", "rm", "-f", f"{URL}/a") == ""
    assert "nothing at 'a'" in desk.refused(1, "fs", "rm", f"{URL}/a")


def test_mkdir_with_parents_has_no_depth_limit(desk: Desk) -> None:
    """It takes as many transactions as needed. Existing directories are no error."""
    deep = "/".join("d" * 200)
    for _ in range(2):
        desk.ok("fs", "mkdir", "-p", f"{URL}/{deep}")
    with desk.open() as lake:
        assert sum(status.is_directory for status in lake.walk()) == 200
    desk.fill(f=b"a file")
    desk.refused(1, "fs", "mkdir", "-p", f"{URL}/f/{deep}")


def test_mkdir_without_parents_is_exclusive(desk: Desk) -> None:
    """The parent has to exist, and the directory must not."""
    desk.ok("fs", "mkdir", f"{URL}/a", f"{URL}/b")
    desk.refused(3, "fs", "mkdir", f"{URL}/a")
    desk.refused(1, "fs", "mkdir", f"{URL}/c/d")
    desk.ok("fs", "mkdir", "-p", f"{URL}/c/d", f"{URL}/a")
    assert desk.tree() == {"a": None, "b": None, "c": None, "c/d": None}
    desk.fill(f=b"")
    desk.refused(3, "fs", "mkdir", "-p", f"{URL}/f")


def test_touch_makes_files_or_sets_their_time(desk: Desk) -> None:
    """A missing file is made empty, except with -c. For an existing one, only the time changes."""
    desk.ok("fs", "touch", f"{URL}/a")
    desk.ok("fs", "touch", "-c", f"{URL}/none")
    desk.fill(b=b"1")
    desk.ok("fs", "touch", "-t", "2026-01-02T03:04:05+01:00", f"{URL}/a", f"{URL}/b", f"{URL}/c")
    assert desk.tree() == {"a": b"", "b": b"1", "c": b""}
    assert {each["modified"] for each in desk.lines("fs", "ls", URL)} == {1767319445.0}
    desk.ok("fs", "touch", f"{URL}/b")
    assert desk.lines("fs", "stat", f"{URL}/b")[0]["modified"] > 1767319445.0
    for wrong in ("soon", "1969-01-01"):
        desk.refused(2, "fs", "touch", "-t", wrong, f"{URL}/a")
    desk.refused(1, "fs", "touch", f"{URL}/none/a")


def test_touch_does_not_empty_a_file_made_meanwhile(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client makes it when the command has seen none."""
    status = NamespacePath.status

    def then_made(self: NamespacePath) -> Status | None:
        found = status(self)
        desk.fill(a=b"another's")
        return found

    monkeypatch.setattr(NamespacePath, "status", then_made)
    desk.ok("fs", "touch", "-t", "2026-01-02T03:04:05+01:00", f"{URL}/a")
    monkeypatch.undo()
    assert desk.tree() == {"a": b"another's"}
    assert desk.lines("fs", "stat", f"{URL}/a")[0]["modified"] == 1767319445.0


# -- the rest ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["fs", "ls"],
        ["fs", "ls", "s3://bucket/a"],
        ["fs", "ls", "commitlog://-/a"],
        ["fs", "ls", "commitlog://"],
        ["fs", "ls", f"{URL}//a"],
        ["fs", "mv", f"{URL}/a"],
        ["fs", "put", "-", f"{URL}/.."],
        ["fs", "ls", URL, "--metadata", "dynamodb://names?secret_access_key=geheim"],
        ["fs", "ls", URL, "--store", "s3://bucket?secret_access_key=geheim"],
        ["fs", "ls", URL, "--table", "dynamodb://leases?secret_access_key=geheim"],
        ["fs", "ls", URL, "--metadata", "ftp://names"],
    ],
    ids=" ".join,
)
def test_wrong_usage_has_status_2(desk: Desk, words: list[str]) -> None:
    """Wrong usage differs from failures. No secret is printed."""
    desk.refused(2, *words)


def test_a_store_in_place_of_a_local_file_does_not_exist(desk: Desk) -> None:
    """The message has the name of the file, without the credentials in it."""
    error = desk.refused(1, "fs", "put", "s3://bucket/a?secret_access_key=geheim", f"{URL}/a")
    assert error == "commitlog: s3://bucket/a: No such file or directory\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_only_on_terminals(desk: Desk, here: Path, terminal: bool) -> None:
    """Long work shows its progress on a terminal, and nowhere else."""
    (here / "a").mkdir()
    (here / "a" / "x").write_bytes(b"x" * (BLOCK_SIZE + 5))
    for words in (["put", "a", f"{URL}/"], ["get", f"{URL}/a", "b"]):
        shown = shown_by(["fs", *words, "--metadata", desk.names], terminal=terminal)
        assert (b"loading" in shown) == terminal
    assert local(here / "b") == local(here / "a")
