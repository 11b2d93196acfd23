"""Commands that end early: their reports, and the advice with which the rest succeeds."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from commitlog import transfer
from commitlog.cli.exit_status import FailureCollector, Interrupted, TooManyFailures
from commitlog.cli.progress import MAX_FAILURES, Progress
from commitlog.errors import AccessDenied, OutcomeUnknown, Unavailable
from commitlog.namespace import Namespace, OpenFile
from support.cli_namespace import URL, Desk
from support.namespace import atomic_links
from support.selection import with_all
from support.servers import Ministack

FILES = 40


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A namespace in a directory and an SQLite table, without a log."""
    desk = Desk(names=f"sqlite://{tmp_path}/names.db", store=f"{tmp_path}/content", env={})
    desk.ok("namespace", "create", "lake", "--no-log", "--store", desk.store)
    return desk


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that has a directory ``a`` with files, and one below it."""
    (tmp_path / "here" / "a" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    for number in range(FILES):
        Path("a", "sub" if number % 2 else ".", f"{number:02}").write_bytes(b"%d" % number)
    return tmp_path / "here"


def local(top: Path) -> dict[str, bytes | None]:
    """Return the content of all files below a directory, None for directories."""
    return {
        str(path.relative_to(top)): None if path.is_dir() else path.read_bytes()
        for path in sorted(top.rglob("*"))
    }


def tree_below(desk: Desk, path: str) -> dict[str, bytes | None]:
    """Return the content of all files below a directory of the namespace, None for directories."""
    return {each.removeprefix(f"{path}/"): body for each, body in desk.tree(path).items()}


def advised_options(messages: str) -> list[str]:
    """Return the options that a message advises to add."""
    [options] = re.findall(r"to resume[^:]*: run the same command([^;(\n]*)", messages)
    return shlex.split(options.removeprefix(" with"))


def reported_counts(messages: str) -> tuple[int, ...]:
    """Return the number of completed files, and of all files, in a message."""
    [numbers] = re.findall(r"(\d+)(?: of (\d+))? files (?:and|were)", messages)
    return tuple(int(number) for number in numbers if number)


# -- the target is the directory itself ---------------------------------------------------------------


def test_the_target_is_the_directory_itself(desk: Desk, here: Path) -> None:
    """With -T the contents of the source are added to the target, new or existing."""
    made = local(here / "a")
    for url in (f"{URL}/new", f"{URL}/new/"):
        desk.ok("fs", "put", "-T", "--force", "a", url)
        assert tree_below(desk, "new") == made
    desk.fill(old__mine=b"mine", old__00=b"old")
    assert "--force" in desk.refused(3, "fs", "cp", "-T", f"{URL}/new", f"{URL}/old")
    assert tree_below(desk, "old") == {**made, "mine": b"mine", "00": b"old"}
    desk.ok("fs", "cp", "-T", "-r", "--force", f"{URL}/new", f"{URL}/old")
    assert tree_below(desk, "old") == {**made, "mine": b"mine"}
    for _ in range(2):
        desk.ok("fs", "get", "--no-target-directory", "--force", f"{URL}/new", "back")
        assert local(here / "back") == made
    desk.ok("fs", "get", "-T", "-f", f"{URL}/old", "back")
    assert local(here / "back") == {**made, "mine": b"mine"}


def test_a_dot_stands_for_the_contents(desk: Desk, here: Path) -> None:
    """``a/.`` and ``.`` are copied without their names, as with cp and rsync."""
    made = local(here / "a")
    desk.ok("fs", "put", "a/.", f"{URL}/new")
    assert tree_below(desk, "new") == made
    desk.ok("fs", "put", "--force", "a/.", f"{URL}/new")
    assert tree_below(desk, "new") == made
    os.chdir("a")
    desk.ok("fs", "put", ".", f"{URL}/")
    assert desk.tree().keys() == {"new", *made, *(f"new/{path}" for path in made)}


def test_only_one_source_becomes_the_target(desk: Desk, here: Path) -> None:
    """Several sources are refused, and a file does not become an existing directory."""
    desk.ok("fs", "mkdir", f"{URL}/d")
    desk.fill(f=b"1", g=b"2")
    assert "one source" in desk.refused(2, "fs", "put", "-T", "a/00", "a/02", f"{URL}/d")
    assert "one source" in desk.refused(2, "fs", "cp", "-T", f"{URL}/f", f"{URL}/g", f"{URL}/d")
    assert "one URL" in desk.refused(2, "fs", "get", "-T", f"{URL}/f", f"{URL}/g", "a")
    assert "director" in desk.refused(1, "fs", "put", "-T", "-f", "a/00", f"{URL}/d")
    assert "director" in desk.refused(1, "fs", "get", "-T", "-f", f"{URL}/f", "a")
    assert "fs mkdir" in desk.refused(1, "fs", "put", "-T", "a", f"{URL}/none/d")
    assert desk.tree() == {"d": None, "f": b"1", "g": b"2"}


def start(desk: Desk, program: str, *words: str) -> subprocess.Popen[str]:
    """Start a Python program with arguments and pipes, and with the table in its environment."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *words],
        env={**os.environ, "COMMITLOG_METADATA": desk.names, **desk.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_uploads_to_one_target_share_it(desk: Desk, here: Path) -> None:
    """With -T the files of both are in it, whichever makes the directory."""
    program = """
        import sys
        from commitlog import __main__
        from commitlog.namespace import Namespace
        make = Namespace.make_directory
        def together(self, path, **how):
            if path == "two" and not how.get("exist_ok", True):
                print("ready", flush=True)
                sys.stdin.readline()
            return make(self, path, **how)
        Namespace.make_directory = together
        __main__.main()
        """
    (here / "b").mkdir()
    (here / "b" / "other").write_bytes(b"other")
    users = [start(desk, program, "fs", "put", "-T", source, f"{URL}/two") for source in "ab"]
    for user in users:
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n"
    for user in users:
        assert user.stdin is not None
        user.stdin.write("go\n")
        user.stdin.flush()
    for user in users:
        assert user.communicate(timeout=300)[1] == ""
        assert user.returncode == 0
    assert tree_below(desk, "two") == {**local(here / "a"), "other": b"other"}


# -- resuming -----------------------------------------------------------------------------------------


def test_a_failed_put_can_be_resumed(desk: Desk, here: Path) -> None:
    """After the cause is fixed, the advised options complete the same directory."""
    (here / "a" / "bad\nname").write_bytes(b"bad")
    messages = desk.refused(1, "fs", "put", "a", f"{URL}/new")
    assert "rename it" in messages
    assert (reported_counts(messages), advised_options(messages)) == (
        (FILES, FILES + 1),
        ["--force", "-T"],
    )
    (here / "a" / "bad\nname").rename(here / "a" / "good")
    desk.ok("fs", "put", *advised_options(messages), "a", f"{URL}/new")
    assert tree_below(desk, "new") == local(here / "a")


@pytest.mark.parametrize("command", ["put", "cp", "get"])
@pytest.mark.parametrize("there", [False, with_all(True)])
def test_a_failed_copy_can_be_resumed(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch, command: str, there: bool
) -> None:
    """Both with a new directory, and with a copy into an existing one."""
    made = local(here / "a")
    desk.ok("fs", "put", "a", f"{URL}/a")
    if there:
        desk.ok("fs", "mkdir", f"{URL}/to")
        (here / "to").mkdir()
    source = "a" if command == "put" else f"{URL}/a"
    target = "to" if command == "get" else f"{URL}/to"
    store, read = Namespace.upload, OpenFile.read

    def storing(self: Namespace, body: bytes) -> Any:
        if body == b"7":
            raise Unavailable("just now")
        return store(self, body)

    def reading(self: OpenFile, *span: int) -> bytes:
        if self.data.size == 1 and read(self, *span) == b"7":
            raise Unavailable("just now")
        return read(self, *span)

    with monkeypatch.context() as broken:
        broken.setattr(transfer, "COPY_LIMIT", -1)  # else the store copies without reading
        broken.setattr(Namespace, "upload", storing)
        broken.setattr(OpenFile, "read", reading)
        messages = desk.refused(1, "fs", command, source, target)
    assert reported_counts(messages) == (FILES - 1, FILES)
    assert advised_options(messages) == ["--force"] + ["-T"] * (not there)
    desk.ok("fs", command, *advised_options(messages), source, target)
    came = local(here / "to") if command == "get" else tree_below(desk, "to")
    assert came == ({"a": None, **{f"a/{path}": body for path, body in made.items()}} if there else made)


def test_no_useless_advice_is_given(desk: Desk, here: Path) -> None:
    """Existing files have their own advice, and skipped files stay skipped."""
    desk.ok("fs", "put", "a", f"{URL}/a")
    assert "to resume" not in desk.refused(3, "fs", "put", "a", f"{URL}/")
    (here / "a" / "loop").symlink_to(here)
    assert "to resume" not in desk.refused(1, "fs", "put", "a", f"{URL}/b")
    (here / "a" / "loop").unlink()
    desk.fill(c__sub=b"a file")
    assert "to resume" not in desk.refused(3, "fs", "put", "-T", "a", f"{URL}/c")


# -- interrupts ---------------------------------------------------------------------------------------

#: Sends itself a signal when file 25 is read, of which there is no end then.
READING = """
    import os, signal, sys
    from commitlog import __main__
    from commitlog import transfer
    from commitlog.cli.fs import sources
    number = int(sys.argv.pop())
    # The caller of the tests may ignore the signal, as nohup(1) does.
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    transfer.COPY_LIMIT = -1
    def endless(read):
        def reading(source, *rest, **options):
            if (source if isinstance(source, str) else source.status.path).endswith("25"):
                os.kill(os.getpid(), number)
                while True:
                    yield b"x"
            yield from read(source, *rest, **options)
        return reading
    sources._local_blocks = endless(sources._local_blocks)
    transfer.read_blocks = sources.read_blocks = endless(transfer.read_blocks)
    __main__.main()
    """

#: Sends itself a signal when the tenth file is removed, which goes on once that was noticed.
REMOVING = """
    import itertools, os, signal, sys, threading
    from commitlog import __main__
    from commitlog.namespace import Namespace
    number = int(sys.argv.pop())
    signal.signal(number, signal.SIG_DFL)
    noticed = threading.Event()
    def interrupt(number, frame):
        noticed.set()
        raise KeyboardInterrupt
    __main__.interrupt = interrupt
    delete, calls = Namespace.delete, itertools.count(1)
    def deleting(self, path, **how):
        if next(calls) == 10:
            os.kill(os.getpid(), number)
            noticed.wait(60)
        return delete(self, path, **how)
    Namespace.delete = deleting
    __main__.main()
    """

#: Sends itself a signal when files are made of the second batch of objects.
IMPORTING = """
    import itertools, os, signal, sys
    from commitlog import __main__
    from commitlog.namespace.external.importer import Importer
    number = int(sys.argv.pop())
    signal.signal(number, signal.SIG_DFL)
    link, calls = Importer._link, itertools.count(1)
    def linking(self, *what):
        if next(calls) == 2:
            os.kill(os.getpid(), number)
            signal.pause()
        return link(self, *what)
    Importer._link = linking
    __main__.main()
    """


def run_interrupted(desk: Desk, program: str, number: int, *words: str) -> str:
    """Run a program that sends itself a signal; return its messages."""
    process = start(desk, program, *words, str(int(number)))
    messages = process.communicate(timeout=300)[1]
    assert process.returncode == 130, messages
    last = messages.splitlines()[-1]
    assert last.startswith("commitlog: interrupted: ")
    assert "may or may not" not in messages
    return messages


@pytest.mark.parametrize("number", [signal.SIGINT, with_all(signal.SIGTERM), with_all(signal.SIGHUP)])
def test_an_interrupted_put_can_be_resumed(desk: Desk, here: Path, number: int) -> None:
    """The message has the number of files, and the advice completes them."""
    messages = run_interrupted(desk, READING, number, "fs", "put", "a", f"{URL}/new")
    came, total = reported_counts(messages)
    assert (
        f"{URL}/new" in messages and "nothing else was changed, except for new directories" in messages
    )
    assert (came, total) == (sum(body is not None for body in desk.tree().values()), FILES)
    assert came < FILES
    desk.ok("fs", "put", *advised_options(messages), "a", f"{URL}/new")
    assert desk.tree() == {f"new/{path}": body for path, body in local(here / "a").items()} | {
        "new": None
    }


def test_an_interrupted_cp_can_be_resumed(desk: Desk, here: Path) -> None:
    """As with put."""
    desk.ok("fs", "put", "a", f"{URL}/a")
    messages = run_interrupted(desk, READING, signal.SIGTERM, "fs", "cp", f"{URL}/a", f"{URL}/new")
    assert reported_counts(messages) == (
        sum(body is not None for body in tree_below(desk, "new").values()),
        FILES,
    )
    desk.ok("fs", "cp", *advised_options(messages), f"{URL}/a", f"{URL}/new")
    assert tree_below(desk, "new") == local(here / "a")


def test_an_interrupted_get_can_be_resumed(desk: Desk, here: Path) -> None:
    """As with put. No incomplete file exists."""
    desk.ok("fs", "put", "a", f"{URL}/a")
    messages = run_interrupted(desk, READING, signal.SIGTERM, "fs", "get", f"{URL}/a", "new")
    there = local(here / "new")
    assert reported_counts(messages) == (sum(body is not None for body in there.values()), FILES)
    assert there.items() <= local(here / "a").items()
    desk.ok("fs", "get", *advised_options(messages), f"{URL}/a", "new")
    assert local(here / "new") == local(here / "a")


def test_an_interrupted_rm_can_be_resumed(desk: Desk, here: Path) -> None:
    """The same command, with --force for named files, removes the rest."""
    desk.ok("fs", "put", "a", f"{URL}/a")
    messages = run_interrupted(
        desk, REMOVING, signal.SIGTERM, "fs", "rm", "--threads", "1", f"{URL}/a/??"
    )
    left = sum(body is not None and len(path) == 2 for path, body in tree_below(desk, "a").items())
    assert reported_counts(messages) == (FILES // 2 - left,)
    assert left <= FILES // 2 - 9
    desk.ok("fs", "rm", *advised_options(messages), f"{URL}/a/??")
    assert tree_below(desk, "a").keys() == {path for path in local(here / "a") if path.startswith("sub")}


def test_an_interrupted_import_can_be_resumed(desk: Desk) -> None:
    """An option continues after the last reported object. Files made after it are unchanged."""
    old = Path(desk.store, "old")
    old.mkdir(parents=True)
    for number in range(250):
        (old / f"{number:03}").write_bytes(b"1")
    words = ["namespace", "import", f"{desk.store}/old", f"{URL}/old"]
    process = start(desk, IMPORTING, *words, str(int(signal.SIGTERM)))
    messages = process.communicate(timeout=300)[1]
    assert (process.returncode, len(messages.splitlines())) == (130, 1), messages
    assert "interrupted: files made: 99, " in messages
    assert advised_options(messages) == ["--start-after", "old/098"]
    desk.ok(*words, *advised_options(messages))
    assert tree_below(desk, "old") == {f"{number:03}": b"1" for number in range(250)}


# -- failures of a service ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["put", "cp", "get", "rm"])
def test_an_unavailable_service_ends_the_command(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It ends after some failures in a row. The advised command does the rest later."""
    desk.ok("fs", "put", "a", f"{URL}/a")
    done = asked = 0
    lock = threading.Lock()

    def fails(call: Any, files: Any = None) -> Any:
        def calling(self: Any, *args: Any, **how: Any) -> Any:
            nonlocal done, asked
            with lock:
                asked += 1
                if done >= 5:
                    raise Unavailable("no connection")
                done += len(args[0]) if isinstance(args[0], dict) else 1
            return call(self, *args, **how)

        return calling

    words = {
        "put": ["--threads", "1", "a", f"{URL}/new"],
        "cp": ["--threads", "1", f"{URL}/a", f"{URL}/new"],
        "get": ["--threads", "1", f"{URL}/a", "new"],
        "rm": ["--threads", "1", f"{URL}/a/??", f"{URL}/a/sub/??"],
    }[command]
    kind: Any = {"get": OpenFile, "rm": Namespace}.get(command, Namespace)
    name = {"get": "read", "rm": "delete"}.get(command, "link_many")
    with monkeypatch.context() as gone:
        failing = fails(getattr(kind, name))
        gone.setattr(kind, name, atomic_links(failing) if name == "link_many" else failing)
        messages = desk.refused(1, "fs", command, *words)
    assert f"gave up after {MAX_FAILURES} failures in a row; no operation is in progress" in messages
    assert reported_counts(messages)[0] == done
    assert asked < FILES - 5
    desk.ok("fs", command, *advised_options(messages), *words)
    if command == "rm":
        assert tree_below(desk, "a") == {"sub": None}
    else:
        assert (local(here / "new") if command == "get" else tree_below(desk, "new")) == local(
            here / "a"
        )


@pytest.mark.all
@pytest.mark.servers
def test_a_dead_server_ends_a_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The put ends long before all files were tried, and reports the number of completed files."""
    (tmp_path / "a").mkdir()
    for number in range(1000):
        (tmp_path / "a" / f"{number:03}").write_bytes(b"1")
    with Ministack() as server:
        place = f"endpoint_url={server.endpoint_url}&region={server.region}"
        desk = Desk(
            names=f"dynamodb://{server.new_table_name()}?{place}",
            store=f"s3://{server.new_bucket()}/lake?{place}",
            env={
                "AWS_ACCESS_KEY_ID": server.access_key_id,
                "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
            },
            secret=server.secret_access_key,
        )
        desk.ok("table", "create", desk.names, "--for", "namespaces")
        desk.ok("namespace", "create", "lake", "--no-log", "--store", desk.store)
        link = Namespace.link_many
        came = 0

        def linked(self: Namespace, files: Any, **how: Any) -> Any:
            nonlocal came
            made = link(self, files, **how)
            came += len(made)
            if came > 20:
                os.kill(server.pid, signal.SIGKILL)
            return made

        monkeypatch.setattr(Namespace, "link_many", atomic_links(linked))
        done = desk.run("fs", "put", f"{tmp_path}/a", f"{URL}/a")
    *lines, last = done.stderr.splitlines()
    assert done.exit_code in (1, 4)
    assert "gave up" in last and reported_counts(last) == (came, 1000)
    assert len(lines) < 500


def test_invalid_names_do_not_end_a_put(desk: Desk, here: Path) -> None:
    """Any number of them in a row: the other files are uploaded."""
    for number in range(3 * MAX_FAILURES):
        (here / "a" / f"0{number:02}\n").write_bytes(b"")
    messages = desk.refused(1, "fs", "put", "a", f"{URL}/a")
    assert reported_counts(messages.splitlines()[-1]) == (FILES, FILES + 3 * MAX_FAILURES)
    assert "gave up" not in messages


def test_denials_end_a_command_without_any_success() -> None:
    """With a success before, a denial concerns one file, except for an expired token."""
    progress = Progress()
    for number in range(MAX_FAILURES):
        progress.fail(f"{number}", AccessDenied("no"), 1)
    with pytest.raises(TooManyFailures):
        progress.check()
    progress.succeed(1)
    for number in range(MAX_FAILURES):
        progress.fail(f"{number}", AccessDenied("no"), 1)
    progress.check()
    for number in range(MAX_FAILURES):
        progress.fail(f"{number}", AccessDenied("ExpiredToken"), 1)
    with pytest.raises(TooManyFailures):
        progress.check()


def test_unknown_outcomes_set_the_status_of_a_command_that_gave_up(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 4, and the message has their number."""
    store = Namespace.upload
    asked = 0

    def lost(self: Namespace, files: Any, **how: Any) -> None:
        nonlocal asked
        asked += len(files)
        raise OutcomeUnknown("no answer")

    def storing(self: Namespace, body: bytes) -> Any:
        if asked:
            raise Unavailable("no connection")
        return store(self, body)

    monkeypatch.setattr(Namespace, "link_many", atomic_links(lost))
    monkeypatch.setattr(Namespace, "upload", storing)
    messages = desk.refused(4, "fs", "put", "--threads", "1", "a", f"{URL}/a")
    assert "gave up" in messages and f"the outcome of {asked} more is unknown" in messages


def test_running_operations_are_reported() -> None:
    """After a second Ctrl-C, they may still complete."""
    progress = Progress("were uploaded")
    with (
        progress.running(),
        pytest.raises(Interrupted, match="may or may not"),
        progress.reported(FailureCollector()),
    ):
        raise KeyboardInterrupt
    with (
        pytest.raises(Interrupted, match="0 were uploaded; nothing else"),
        progress.reported(FailureCollector()),
    ):
        raise KeyboardInterrupt


def test_a_directory_with_an_unknown_outcome_can_be_resumed(
    desk: Desk, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may exist, so the same command would copy into it."""
    make = Namespace.make_directory

    def lost(self: Namespace, path: str, **how: Any) -> None:
        make(self, path, **how)
        raise OutcomeUnknown("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(Namespace, "make_directory", lost)
        messages = desk.refused(4, "fs", "put", "a", f"{URL}/new")
    desk.ok("fs", "put", *advised_options(messages), "a", f"{URL}/new")
    assert tree_below(desk, "new") == local(here / "a")
