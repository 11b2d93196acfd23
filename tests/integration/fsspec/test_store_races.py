"""Processes that create the same objects and zarr arrays, through a faulty network: one wins each.

The outcome of a run depends on timing. So each check holds for any run.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import asdict

from commitlog import ConditionalStore, connect
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.tables.open import open_table
from commitlog.testing.proxy import Hazard, Proxy
from support.exclusive_creator import Race, content
from support.project import environment
from support.selection import in_campaigns

pytestmark = pytest.mark.servers

PROCESSES = 3

#: The ways to create an object. Of racing completions of uploads, SeaweedFS lets several win, which the
#: probe finds, so staged content is refused there without a table of leases.
WAYS = {
    "seaweedfs": ["open", "pipe"],
    "ministack": ["open", "staged", "pipe"],
    "juicefs": ["open", "staged", "pipe"],
}

#: The faults of a run. A lost answer is the one that can make a winner look like a loser.
HAZARDS = tuple(
    Hazard(kinds=(kind,), action=action, rate=rate, status=500)
    for kind in ("PUT", "POST", "PutItem")
    for action, rate in (
        ("drop_response", 0.2),
        ("duplicate", 0.1),
        ("drop_request", 0.1),
        ("fail", 0.1),
    )
)


@contextlib.contextmanager
def started(races: list[Race]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes that wait for a line before they begin. None outlives the block."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "support.exclusive_creator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for _ in races
    ]
    try:
        for process, race in zip(processes, races, strict=True):
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(asdict(race)) + "\n")
            process.stdin.flush()
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run(races: list[Race], proxy: Proxy, killed: int = 0) -> dict[str, dict[str, str]]:
    """Run the processes; return the outcome of each, by the name of the object.

    Args:
        races: their objects.
        proxy: it has faults from the beginning of the race.
        killed: the number of processes that are killed after their second object.
    """
    with started(races) as processes:
        proxy.endanger(HAZARDS, seed=7)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        found: dict[str, dict[str, str]] = {name: {} for name in races[0].names}
        for number, (process, race) in enumerate(zip(processes, races, strict=True)):
            assert process.stdout is not None
            for line in process.stdout:
                name, _, outcome = json.loads(line)
                found[name][race.owner] = outcome
                if number < killed and len([each for each in found.values() if race.owner in each]) == 2:
                    process.kill()
            assert process.wait() == (-9 if number < killed else 0)
    return found


def audit(
    found: dict[str, dict[str, str]], owners: dict[str, str], owner_names: list[str]
) -> Counter[str]:
    """Check the outcomes against the object that is there; return the number of each.

    The process whose object is there reported that it won, or that the outcome is unknown. Each other
    process reported that it lost, or that the outcome is unknown, or it was killed.
    """
    for name, outcomes in found.items():
        for owner in owner_names:
            told = outcomes.get(owner, "unknown")
            expected = {"won", "unknown"} if owners[name] == owner else {"lost", "unknown"}
            assert told in expected, f"{name}: {owner} was told {told!r}, but {owners[name]} is there"
    return Counter(outcome for each in found.values() for outcome in each.values())


@contextlib.contextmanager
def world(
    name: str, request: pytest.FixtureRequest
) -> Iterator[tuple[dict[str, Any], ConditionalStore, str, Proxy]]:
    """A new bucket: the options of clients behind a proxy, the store without it, bucket and proxy."""
    server = request.getfixturevalue(name)
    bucket = server.new_bucket()
    options: dict[str, Any] = dict(server.options)
    with contextlib.ExitStack() as stack:
        if name == "juicefs":
            tables = request.getfixturevalue("ministack")
            table_name = tables.new_table_name()
            place = f"dynamodb://{table_name}?endpoint_url={tables.endpoint_url}&region={tables.region}"
            secrets = (
                f"&access_key_id={tables.access_key_id}&secret_access_key={tables.secret_access_key}"
            )
            with contextlib.closing(open_table(place + secrets, LEASE_SCHEMA)) as table:
                table.create()
            # The timeout bounds the wait after a lost answer.
            options["commit"] = f"dynamo:{table_name}:3000"
            proxy = stack.enter_context(Proxy(server.endpoint_url, dynamodb=tables.endpoint_url))
        else:
            options["commit"] = "native"
            proxy = stack.enter_context(Proxy(server.endpoint_url))
        store = stack.enter_context(connect(f"s3://{bucket}", **server.options))
        yield {**options, "endpoint_url": proxy.endpoint_url}, store, bucket, proxy
        assert proxy.strikes().total() >= 3


def races(options: dict[str, Any], directory: str, names: list[str], ways: list[str]) -> list[Race]:
    """Return the same race for each process."""
    return [
        Race(
            protocol="commitlog+s3",
            options=options,
            directory=directory,
            names=names,
            owner=f"owner-{number}",
            ways=ways,
        )
        for number in range(PROCESSES)
    ]


@pytest.mark.parametrize(
    ("server", "killed"),
    [("juicefs", 1), in_campaigns("seaweedfs", 0), ("ministack", 1)],
    ids=str,
)
def test_one_creator_wins_each_object(server: str, killed: int, request: pytest.FixtureRequest) -> None:
    """By `open`, `pipe` and staged uploads. No object is replaced, and no winner seems to have lost."""
    with world(server, request) as (options, store, bucket, proxy):
        names = [f"object-{number}" for number in range(6)]
        made = races(options, f"{bucket}/race", names, WAYS[server])
        found = run(made, proxy, killed)
        bodies = {name: store.get(f"race/{name}").data for name in names}
        owners = {name: body.split(b" ", 1)[0].decode() for name, body in bodies.items()}
        for name, body in bodies.items():
            assert body in {content(owners[name], way) for way in ("staged", "open")}, name
        total = audit(found, owners, [race.owner for race in made])
        assert total["lost"] and total["lost"] + total["unknown"] >= len(names), total


@pytest.mark.parametrize("server", ["juicefs", in_campaigns("seaweedfs")])
def test_one_creator_wins_each_zarr_array(server: str, request: pytest.FixtureRequest) -> None:
    """The attributes of an array are those of the process that created it, and no other succeeded."""
    pytest.importorskip("zarr")
    with world(server, request) as (options, store, bucket, proxy):
        names = [f"group/array-{number}" for number in range(3)]
        made = races(options, f"{bucket}/race.zarr", names, ["zarr"])
        found = run(made, proxy)
        documents = {name: json.loads(store.get(f"race.zarr/{name}/zarr.json").data) for name in names}
        owners = {name: document["attributes"]["owner"] for name, document in documents.items()}
        total = audit(found, owners, [race.owner for race in made])
        assert total["lost"] and total["lost"] + total["unknown"] >= len(names), total
        assert json.loads(store.get("race.zarr/group/zarr.json").data)["node_type"] == "group"
