"""The commands on objects: exit statuses, output, JSON, and bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner, Result

import commitlog
from commitlog.cli import main
from commitlog.commit import ConditionalStore
from commitlog.stores import MemoryStore
from commitlog.stores.api import WriteOperation
from commitlog.transfer import BLOCK_SIZE

BINARY = bytes(range(256)) + b"\r\n\xff\xfe\x00"


def run(*words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Result:
    """Run the command line in this process."""
    return CliRunner(env=env).invoke(main, list(words), input=stdin, catch_exceptions=False)


@pytest.fixture(params=["local", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a directory in an empty store."""
    if request.param == "local":
        (tmp_path / "lake").mkdir()
        yield f"file://{tmp_path}/lake"
        return
    name = f"memory://{tmp_path.name}-{os.urandom(4).hex()}"
    # The name stands for the same store as long as an instance is open.
    store = commitlog.connect(name)
    yield name
    store.close()


def etag_of(result: Result) -> str:
    """Return the etag that a write printed."""
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_content_is_unchanged(base: str, tmp_path: Path) -> None:
    """get and cat return the bytes that put read from a file or from standard input."""
    source = tmp_path / "source.bin"
    source.write_bytes(BINARY)
    etag_of(run("put", str(source), f"{base}/a"))
    etag_of(run("put", "-", f"{base}/b", stdin=BINARY))
    assert run("cat", f"{base}/a", f"{base}/b").stdout_bytes == 2 * BINARY
    assert run("get", f"{base}/a", "-").stdout_bytes == BINARY
    target = tmp_path / "target.bin"
    assert run("get", f"{base}/b", str(target)).exit_code == 0
    assert target.read_bytes() == BINARY


def test_put_if_absent_of_an_existing_object_has_status_3(base: str) -> None:
    """The message is on standard error, and nothing changes."""
    etag_of(run("put", "-", f"{base}/a", "--if-absent", stdin=b"1"))
    second = run("put", "-", f"{base}/a", "--if-absent", stdin=b"2")
    assert second.exit_code == 3
    assert second.stdout == ""
    assert second.stderr.startswith("commitlog: ")
    assert "Traceback" not in second.stderr
    assert run("cat", f"{base}/a").stdout == "1"


def test_put_if_match_accepts_the_printed_etag(base: str) -> None:
    """An old etag has status 3."""
    first = etag_of(run("put", "-", f"{base}/a", stdin=b"1"))
    etag_of(run("put", "-", f"{base}/a", "--if-match", first, stdin=b"2"))
    assert run("put", "-", f"{base}/a", "--if-match", first, stdin=b"3").exit_code == 3
    assert run("cat", f"{base}/a").stdout == "2"


def test_rm_if_match(base: str) -> None:
    """A stale etag removes nothing. Without an etag, a missing object is no error."""
    first = etag_of(run("put", "-", f"{base}/a", stdin=b"1"))
    second = etag_of(run("put", "-", f"{base}/a", stdin=b"2"))
    assert run("rm", f"{base}/a", "--if-match", first).exit_code == 3
    assert run("rm", f"{base}/a", "--if-match", second).exit_code == 0
    assert run("rm", f"{base}/a").exit_code == 0
    assert run("cat", f"{base}/a").exit_code == 1


def test_rm_tries_every_url(base: str) -> None:
    """A failure does not stop the others, and the highest status is returned."""
    etag = etag_of(run("put", "-", f"{base}/b", stdin=b"1"))
    done = run("rm", f"{base}/a", f"{base}/b", "--if-match", etag)
    assert done.exit_code == 3
    assert f"{base}/a" in done.stderr
    assert run("stat", f"{base}/b").exit_code == 1


def test_cp_and_mv_within_a_store(base: str) -> None:
    """Both respect --if-absent. A move removes the source."""
    etag_of(run("put", "-", f"{base}/a", stdin=b"1"))
    etag_of(run("cp", f"{base}/a", f"{base}/b", "--if-absent"))
    assert run("cp", f"{base}/a", f"{base}/b", "--if-absent").exit_code == 3
    assert run("mv", f"{base}/a", f"{base}/b", "--if-absent").exit_code == 3
    etag_of(run("mv", f"{base}/a", f"{base}/c", "--if-absent"))
    etag_of(run("mv", f"{base}/c", f"{base}/d"))
    urls = run("ls", f"{base}/").stdout.split()
    assert urls == [f"{base}/b", f"{base}/d"]
    assert run("cat", f"{base}/d").stdout == "1"


def test_cp_if_match_requires_the_etag(base: str) -> None:
    """The object is replaced only with the right etag."""
    etag_of(run("put", "-", f"{base}/a", stdin=b"1"))
    seen = etag_of(run("put", "-", f"{base}/b", stdin=b"2"))
    etag_of(run("cp", f"{base}/a", f"{base}/b", "--if-match", seen))
    assert run("cp", f"{base}/a", f"{base}/b", "--if-match", seen).exit_code == 3
    assert run("cat", f"{base}/b").stdout == "1"


def test_cp_and_mv_between_stores(base: str, tmp_path: Path) -> None:
    """The bytes are copied unchanged, in blocks, with the same conditions."""
    (tmp_path / "other").mkdir()
    body = os.urandom(1024) * (BLOCK_SIZE // 1024) + b"tail"
    etag_of(run("put", "-", f"{base}/a", stdin=body))
    target = f"{tmp_path}/other/a"
    etag_of(run("cp", f"{base}/a", target, "--if-absent"))
    assert run("cp", f"{base}/a", target, "--if-absent").exit_code == 3
    assert Path(target).read_bytes() == body
    etag_of(run("mv", f"{base}/a", f"{tmp_path}/other/b"))
    assert run("stat", f"{base}/a").exit_code == 1
    assert Path(tmp_path, "other", "b").read_bytes() == body


@pytest.mark.parametrize("options", [[], ["--if-absent"]], ids=str)
@pytest.mark.parametrize("recursive", [False, True])
def test_mv_copies_nothing_if_the_source_could_not_be_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], recursive: bool
) -> None:
    """A store without a conditional deletion needs a table of leases; the message names the option."""
    able = MemoryStore.capabilities
    conditions = {
        each: able.conditions[each] for each in able.conditions if each != WriteOperation.DELETE
    }
    monkeypatch.setattr(MemoryStore, "capabilities", evolve(able, conditions=conditions))
    url = f"memory://{tmp_path.name}-{os.urandom(4).hex()}"
    with commitlog.connect(url) as store:
        store.put("in/a", b"1")
        words, name = (["mv", "-r"], "") if recursive else (["mv"], "/a")
        for target in (f"{url}/out{name}", f"{tmp_path}/out{name}"):
            done = run(*words, f"{url}/in{name}", target, *options)
            assert done.exit_code == 2
            assert f"{url}/in/a cannot be moved" in done.stderr
            assert "nothing was copied" in done.stderr
            assert "--table" in done.stderr
        assert [info.path for info in store.list()] == ["in/a"]
        assert not list(tmp_path.rglob("a"))
        leases = ["--commit", "auto", "--table", f"sqlite://{tmp_path}/leases.db"]
        done = run(*words, f"{url}/in{name}", f"{url}/out{name}", *options, *leases)
        assert done.exit_code == 0, done.output
        assert [info.path for info in store.list("out")] == ["out/a"]
        assert not list(store.list("in"))


@pytest.mark.parametrize("options", [[], ["--if-absent"], ["-r"], ["-r", "--if-absent"]], ids=str)
def test_mv_keeps_a_source_that_is_replaced_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str]
) -> None:
    """The target has the older content, both remain, and the exit status is 4."""

    def replaced_after(name: str, patch: pytest.MonkeyPatch) -> None:
        call = getattr(MemoryStore, name)

        def changed(store: MemoryStore, path: str, *arguments: Any, **more: Any) -> Any:
            found = call(store, path, *arguments, **more)
            store.put(path, b"new")
            return found

        patch.setattr(MemoryStore, name, changed)

    url = f"memory://{tmp_path.name}-{os.urandom(4).hex()}"
    name = "" if "-r" in options else "/a"
    with commitlog.connect(url) as store:
        for target in (url, str(tmp_path)):
            store.put("in/a", b"old")
            with monkeypatch.context() as patch:
                replaced_after("copy" if target == url else "get", patch)
                done = run("mv", f"{url}/in{name}", f"{target}/out{name}", *options)
            assert done.exit_code == 4, done.output
            assert "was copied" in done.stderr
            assert store.get("in/a").data == b"new"
        assert store.get("out/a").data == b"old"
    assert Path(tmp_path, "out", "a").read_bytes() == b"old"


def test_source_and_target_must_differ(base: str) -> None:
    """An object is not copied or moved onto itself."""
    etag_of(run("put", "-", f"{base}/a", stdin=b"1"))
    assert run("cp", f"{base}/a", f"{base}/a").exit_code == 2
    assert run("mv", f"{base}/a", f"{base}/a").exit_code == 2
    assert run("cat", f"{base}/a").stdout == "1"


def test_a_failed_get_leaves_no_partial_file(base: str, tmp_path: Path) -> None:
    """An existing file is unchanged."""
    target = tmp_path / "target"
    target.write_text("old")
    etag = etag_of(run("put", "-", f"{base}/a", stdin=b"1"))
    assert run("get", f"{base}/missing", str(target)).exit_code == 1
    nowhere = run("get", f"{base}/a", f"{tmp_path}/none/target")
    assert nowhere.exit_code == 1
    assert nowhere.stderr == f"commitlog: {tmp_path}/none/target: its directory does not exist\n"
    assert run("get", f"{base}/a", str(target), "--if-match", "other").exit_code == 3
    assert run("get", f"{base}/a", str(target), "--if-absent").exit_code == 3
    assert target.read_text() == "old"
    assert run("get", f"{base}/a", str(target), "--if-match", etag).exit_code == 0
    assert target.read_text() == "1"
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_get_does_not_replace_a_pipe_or_a_device(base: str, tmp_path: Path) -> None:
    """Not even a link to one; the message says what to write instead."""
    etag_of(run("put", "-", f"{base}/a", stdin=b"1"))
    os.mkfifo(tmp_path / "pipe")
    Path(tmp_path, "null").symlink_to("/dev/null")
    for name in ("pipe", "null"):
        done = run("get", f"{base}/a", f"{tmp_path}/{name}")
        assert done.exit_code == 1
        assert f"{tmp_path}/{name}: it is not a regular file" in done.stderr
        assert "'-' is standard output" in done.stderr
    assert Path(tmp_path, "pipe").is_fifo()
    assert Path(tmp_path, "null").is_symlink()
    assert not list(tmp_path.glob("*.part"))


def test_a_replacement_while_reading_is_an_error(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of two versions are never mixed: the status is 3."""
    etag_of(run("put", "-", f"{base}/a", stdin=b"x" * (BLOCK_SIZE + 1)))
    read = ConditionalStore.get

    def get(self: ConditionalStore, path: str, **span: int) -> object:
        piece = read(self, path, **span)
        self.put(path, b"y" * (BLOCK_SIZE + 1))
        return piece

    monkeypatch.setattr(ConditionalStore, "get", get)
    done = run("cat", f"{base}/a")
    assert done.exit_code == 3
    assert b"y" not in done.stdout_bytes
    assert "replaced while it was read" in done.stderr


def test_ls_shows_one_level_or_all(base: str) -> None:
    """A listing stops at the next slash, or has all levels. Directories end with a slash."""
    for path in ("a", "dir/b", "dir/deep/c"):
        etag_of(run("put", "-", f"{base}/{path}", "--root", base.removeprefix("file://"), stdin=b"1"))
    assert sorted(run("ls", f"{base}/").stdout.split()) == [f"{base}/a", f"{base}/dir/"]
    assert run("ls", f"{base}/dir/").stdout.split() == [f"{base}/dir/deep/", f"{base}/dir/b"]
    assert run("ls", "-R", f"{base}/").stdout.split() == [
        f"{base}/{path}" for path in ("a", "dir/b", "dir/deep/c")
    ]
    assert run("ls", "-R", f"{base}/", "--limit", "1").stdout.split() == [f"{base}/a"]


def test_json_keys_are_stable(base: str) -> None:
    """The documented keys are in one object per line."""
    put = json.loads(run("put", "-", f"{base}/dir", "--json", stdin=b"12").stdout)
    assert set(put) == {"url", "path", "etag", "version"}
    stat = json.loads(run("stat", f"{base}/dir", "--json").stdout)
    assert set(stat) == {"url", "path", "size", "etag", "version", "last_modified", "metadata"}
    assert (stat["url"], stat["size"], stat["etag"]) == (f"{base}/dir", 2, put["etag"])
    [line] = run("ls", f"{base}/", "--json").stdout.splitlines()
    listed = json.loads(line)
    assert set(listed) == {"type", "url", "path", "size", "etag", "version", "last_modified"}
    assert listed["type"] == "object"
    copied = json.loads(run("cp", f"{base}/dir", f"{base}/c", "--json").stdout)
    assert copied["url"] == f"{base}/c"


def test_stat_and_long_listing_as_text(base: str) -> None:
    """Size, etag and time are shown."""
    etag = etag_of(run("put", "-", f"{base}/a", stdin=b"12"))
    shown = run("stat", f"{base}/a").stdout
    assert etag in shown and "size" in shown and "modified" in shown
    assert etag in run("ls", "-l", f"{base}/").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["put", "-", "{base}/"],
        ["put", "-", "s3://bucket/../a"],
        ["put", "-", "ftp://host/a"],
        ["put", "-", "{base}/a", "--if-absent", "--if-match", "x"],
        ["cp", "{base}/a"],
        ["cat", "{base}/a", "--no-such-option"],
        ["no-such-command"],
        ["put", "-", "s3://bucket/a?secret_access_key=hunter2"],
    ],
    ids=" ".join,
)
def test_wrong_usage_has_status_2(base: str, words: list[str]) -> None:
    """Wrong usage differs from failures."""
    done = run(*(word.format(base=base) for word in words))
    assert done.exit_code == 2
    assert "hunter2" not in done.output


def test_missing_object_and_missing_file_are_failures(base: str, tmp_path: Path) -> None:
    """A missing source ends a command with a message, without a traceback."""
    assert run("cat", f"{base}/a").exit_code == 1
    assert run("cp", f"{base}/a", f"{base}/b").exit_code == 1
    done = run("put", f"{tmp_path}/missing", f"{base}/a")
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_debug_prints_the_traceback(base: str) -> None:
    """The message and the status are the same."""
    done = run("--debug", "cat", f"{base}/a")
    assert done.exit_code == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("commitlog: ")


def test_options_come_from_the_environment(tmp_path: Path) -> None:
    """COMMITLOG_… replaces an option that is not given."""
    env = {"COMMITLOG_ROOT": f"{tmp_path}"}
    etag_of(run("put", "-", f"{tmp_path}/dir/a", stdin=b"1", env=env))
    assert (tmp_path / ".commitlog").is_dir()
    assert not (tmp_path / "dir" / ".commitlog").exists()


def commitlog_process(*words: str, **settings: object) -> subprocess.Popen[bytes]:
    """Start the command as a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "commitlog", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **settings,  # type: ignore[call-overload]
    )


def test_a_closed_pipe_is_not_an_error_message(tmp_path: Path) -> None:
    """The command ends as with SIGPIPE, without a message."""
    (tmp_path / "a").write_bytes(b"x" * 4_000_000)
    process = commitlog_process("cat", f"{tmp_path}/a")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 141
    assert complaint == b""


def test_process_reads_stdin_and_writes_stdout(tmp_path: Path) -> None:
    """Bytes pass through pipes unchanged, without other output."""
    read, write = os.pipe()
    with open(write, "wb") as sink:
        sink.write(BINARY)
    with open(read, "rb") as source:
        process = commitlog_process("put", "-", f"{tmp_path}/a", stdin=source)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert len(out.split()) == 1
    out, err = commitlog_process("cat", f"{tmp_path}/a").communicate(timeout=60)
    assert (out, err) == (BINARY, b"")
