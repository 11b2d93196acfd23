"""Processes that race for the same keys: each key has one winner and the winner's content."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from commitlog import DynamoCommit, SqliteCommit, connect
from commitlog.commit.probe_report import Kind
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import AlreadyExists, NotSupported, PreconditionFailed
from commitlog.tables.open import open_table
from support.selection import examples, with_all

#: Keys of a race.
KEYS = examples(100, 500)


def race(name: str, keys: int, url: str, arguments: dict[str, Any]) -> list[str]:
    """Try to create every key, in order; return the created ones. Runs in a separate process."""
    won = []
    with connect(url, **arguments) as store:
        for number in range(keys):
            path = f"race/{number:04}"
            try:
                store.put_if_absent(path, name.encode())
            except AlreadyExists:
                continue
            won.append(path)
    return won


def update(name: str, rounds: int, url: str, arguments: dict[str, Any]) -> int:
    """Append `rounds` lines to an object, and try again whenever another process was faster."""
    refused = 0
    with connect(url, **arguments) as store:
        for number in range(rounds):
            while True:
                seen = store.get("lines")
                if md5(seen.data).hexdigest() != seen.etag.strip('"'):
                    continue  # JuiceFS: the body of one version with the etag of another
                line = f"{name} {number}\n".encode()
                try:
                    store.put_if_match("lines", seen.data + line, etag=seen.etag)
                except PreconditionFailed:
                    refused += 1
                else:
                    break
    return refused


def in_two_processes(task: Any, count: int, url: str, **arguments: Any) -> list[Any]:
    """Run a task twice at the same time, each in a new interpreter."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        return list(pool.map(task, "AB", [count] * 2, [url] * 2, [arguments] * 2))


def check(url: str, keys: int, **arguments: Any) -> None:
    """Race two processes, and compare the results with the stored objects."""
    winners = dict(zip("AB", in_two_processes(race, keys, url, **arguments), strict=True))
    claims = Counter(path for paths in winners.values() for path in paths)
    assert set(claims.values()) == {1}
    assert len(claims) == keys
    with connect(url, **arguments) as store:
        there = {info.path for info in store.list("race/")}
        assert there == set(claims)
        for name, paths in winners.items():
            assert {store.get(path).data for path in paths[:50]} <= {name.encode()}


def test_a_race_in_a_directory_has_one_winner(tmp_path: Path) -> None:
    """The file system enforces it."""
    check(f"file://{tmp_path}", KEYS)


def test_a_race_in_a_directory_under_leases_has_one_winner(tmp_path: Path) -> None:
    """Leases are in an SQLite file."""
    (tmp_path / "lake").mkdir()
    commit = SqliteCommit(tmp_path / "commits.db", test_interval=0.005)
    check(f"file://{tmp_path}/lake", KEYS, commit=commit)


@pytest.mark.servers
def test_a_race_on_a_server_that_enforces_conditions_has_one_winner(ministack: Any) -> None:
    """The server enforces the condition, and each process probes it first."""
    check(f"s3://{ministack.new_bucket()}", KEYS, commit="native", **ministack.options)


@pytest.mark.servers
@pytest.mark.parametrize("table", ["ministack", with_all("dynalite"), "sqlite"])
def test_a_race_under_leases_on_a_server_has_one_winner(
    table: str, ministack: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Leases are in DynamoDB, in a table that never returns the conflicting item, and in SQLite."""
    commit: Any = SqliteCommit(tmp_path / "commits.db", test_interval=0.005)
    if table != "sqlite":
        server = request.getfixturevalue(table)
        commit = DynamoCommit(server.new_table_name(), test_interval=0.005, **server.options)
        open_table(commit.url, LEASE_SCHEMA, **commit.options).create()
    keys = KEYS if table == "ministack" else KEYS // 5
    check(f"s3://{ministack.new_bucket()}", keys, commit=commit, **ministack.options)


@pytest.mark.servers
def test_a_race_on_a_server_that_ignores_conditions_has_one_winner(juicefs: Any, tmp_path: Path) -> None:
    """This holds under leases. Without them, the write is refused."""
    url = f"s3://{juicefs.new_bucket()}"
    with connect(url, commit="native", **juicefs.options) as store:
        with pytest.raises(NotSupported, match="put-if-absent"):
            store.put_if_absent("race/0000", b"x")
        assert not store.probe_report.proves(Kind.PUT_IF_ABSENT)
    commit = SqliteCommit(tmp_path / "commits.db", test_interval=0.005)
    check(url, 60, commit=commit, **juicefs.options)


@pytest.mark.servers
@pytest.mark.parametrize("server", ["ministack", "juicefs"])
def test_no_update_is_lost(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Two processes append to one object under leases, and all lines are in it."""
    running = request.getfixturevalue(server)
    url = f"s3://{running.new_bucket()}"
    arguments: dict[str, Any] = {
        "commit": SqliteCommit(tmp_path / "commits.db", test_interval=0.005),
        **running.options,
    }
    with connect(url, **arguments) as store:
        store.put_if_absent("lines", b"")
        in_two_processes(update, 20, url, **arguments)
        lines = store.get("lines").data.decode().splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in "AB" for number in range(20))
