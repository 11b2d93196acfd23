"""A missing store: neither commands nor clients take a file in it for absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog.cli.exit_status import Exit
from commitlog.errors import BucketNotFound, TableNotFound
from commitlog.filesystem import CommitlogFileSystem
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace, abort_stale_attempts
from commitlog.namespace.jobs.history import find_job
from commitlog.namespaces import open_namespace
from commitlog.stores.memory import MemoryStore
from commitlog.tables.open import open_table
from support.cli_namespace import URL, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A namespace without a log, with directory ``d`` bound to ``raw/``, whose store is then moved."""
    desk = Desk(names=f"sqlite://{tmp_path}/names.db", store=f"{tmp_path}/content", env={})
    desk.ok("namespace", "create", "lake", "--no-log", "--store", desk.store)
    raw = tmp_path / "content" / "raw"
    raw.mkdir(parents=True)
    (raw / "x").write_bytes(b"x")
    with open_namespace("lake", metadata=desk.names) as lake:
        lake.bindings.bind("raw/", "d")
    assert not desk.ok("fs", "test", "-e", f"{URL}/d/x")
    (tmp_path / "content").rename(tmp_path / "away")
    return desk


@pytest.mark.parametrize(
    "words",
    [
        ("test", "-e", f"{URL}/d/x"),
        ("rm", "-f", f"{URL}/d/x"),
        ("rm", "-f", f"{URL}/d/*"),
        ("stat", f"{URL}/d/x"),
        ("cat", f"{URL}/d/x"),
        ("cp", f"{URL}/d/x", f"{URL}/y"),
        ("mv", f"{URL}/d/x", f"{URL}/y"),
        ("touch", f"{URL}/d/y"),
    ],
    ids=lambda words: " ".join(words[:2] if words[1].startswith("-") else words[:1]) + words[-1][-2:],
)
def test_commands_report_a_missing_store(desk: Desk, words: tuple[str, ...]) -> None:
    """They fail with a message other than that of a missing file."""
    done = desk.run("fs", *words)
    assert done.exit_code not in (Exit.DONE,) + ((Exit.FAILED,) if words[0] == "test" else ())
    assert "mount it" in done.stderr
    assert "no such file or directory" not in done.stderr


@pytest.mark.parametrize(
    "look",
    [
        lambda files: files.exists("lake/d/x"),
        lambda files: files.find("lake/d/x"),
        lambda files: list(files.walk("lake/d")),
        lambda files: files.touch("lake/d/x", truncate=False),
        lambda files: files.copy(["lake/d/x"], ["lake/y"], on_error="ignore"),
        lambda files: files.copy(["lake/d/x", "lake/d/y"], ["lake/y", "lake/z"], on_error="ignore"),
    ],
    ids=["exists", "find", "walk", "touch", "copy one", "copy two"],
)
def test_fsspec_raises_for_a_missing_store(
    desk: Desk, look: Callable[[CommitlogFileSystem], object]
) -> None:
    """Also in calls that ignore missing files."""
    files = CommitlogFileSystem(metadata=desk.names, skip_instance_cache=True)
    with pytest.raises(BucketNotFound):
        look(files)


def test_a_namespace_raises_for_a_missing_store(desk: Desk) -> None:
    """Only an existing store can prove that a path or a job is absent."""
    with open_namespace("lake", metadata=desk.names) as lake:
        with pytest.raises(BucketNotFound):
            lake.exists("d/x")
        with pytest.raises(BucketNotFound):
            find_job(lake, "d/x", "job")


def test_a_namespace_raises_for_a_missing_table() -> None:
    """A missing table does not prove that a job is absent."""
    table = open_table("memory://not-created", NAMESPACE_SCHEMA)
    lake = Namespace(table, MemoryStore(), "lake")
    with pytest.raises(TableNotFound):
        abort_stale_attempts(lake)
