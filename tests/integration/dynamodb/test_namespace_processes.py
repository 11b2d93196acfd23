"""Processes that work on one namespace, on real tables: their history is linearizable."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from commitlog.namespace import NAMESPACE_SCHEMA, Namespace
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from support.namespace import Auditor, Model
from support.namespace_worker import Call, calls_of, explained
from support.project import environment

LAKE = "lake"


@pytest.fixture(params=["sqlite", pytest.param("ministack", marks=pytest.mark.servers)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The location of a new namespace, in the form for worker processes."""
    (tmp_path / "store").mkdir()
    place: dict[str, Any] = {"store": f"file://{tmp_path}/store", "name": LAKE, "options": {}}
    if request.param == "sqlite":
        place["table"] = f"sqlite://{tmp_path}/names.db"
    else:
        server = request.getfixturevalue("ministack")
        place["table"] = f"dynamodb://{server.new_table_name()}"
        place["options"] = dict(server.options)
    table = open_table(place["table"], NAMESPACE_SCHEMA, **place["options"])
    with Namespace(table, open_store(place["store"]), LAKE) as lake:
        table.create()
        lake.create()
    return place


class Worker:
    """A process, and its output."""

    def __init__(self, place: dict[str, Any], seed: int, operations: int, *, until: int) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.namespace_worker"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        with self.process.stdin as sent:
            json.dump({**place, "seed": seed, "operations": operations}, sent)
        self._until = until
        self._thread = Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append(line)
                if len(self.lines) == self._until:
                    self.process.kill()

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit status."""
        self._thread.join()
        return self.process.wait()

    def calls(self) -> list[Call]:
        """Return the calls of the process, after its end."""
        code = self.wait()
        assert code == (-9 if len(self.lines) >= self._until else 0)
        whole = [line for line in self.lines if line.endswith("\n")]
        return calls_of(whole)


def test_processes_that_rename_create_and_delete(place: dict[str, Any]) -> None:
    """Four processes run at once, and one of them is killed. Each change is atomic, or has no effect."""
    # The process to be killed has enough operations that it never ends by itself.
    workers = [Worker(place, 0, 100_000, until=31)]
    workers += [Worker(place, seed, 25, until=100_000) for seed in (1, 2, 3)]
    for worker in workers:
        worker.wait()
    calls = [call for worker in workers for call in worker.calls()]
    table = open_table(place["table"], NAMESPACE_SCHEMA, **place["options"])
    with Namespace(table, open_store(place["store"]), LAKE, grace=0) as lake:
        auditor = Auditor(table, LAKE, lake.store)

        def tree() -> Model:
            found = Model()
            for path, entry in auditor.audit().items():
                body = None if entry.data is None else lake.store.get(entry.data.path).data
                found.nodes[tuple(path.split("/"))] = body
            return found

        after = tree()
        outcomes = Counter(call.outcome for call in calls)
        assert outcomes["done"] > 10 and outcomes.total() > 80, outcomes
        assert explained(calls, Model(), after), "no order of what was done explains it"
        lake.maintenance.empty_trash()
        lake.maintenance.gc()
        assert tree() == after


def test_the_judge_rejects_impossible_histories() -> None:
    """A history that no tree allows is rejected. A call without an effect is allowed to have none."""
    make, again = Call(["make", "a"], 0, 1, "done"), Call(["rename", "a", "b"], 2, 3, "done")
    moved = Model({(): None, ("b",): None})
    assert explained([make, again], Model(), moved)
    assert not explained([make, again], Model(), Model({(): None, ("a",): None}))
    assert not explained([make, Call(["rename", "a", "b"], 0, 0.5, "done"), again], Model(), moved)
    lost = Call(["rename", "b", "a"], 2, outcome="unknown")
    assert explained([make, again, lost], Model(), moved)
    assert explained([make, again, lost], Model(), Model({(): None, ("a",): None}))
    early = Call(["rename", "a", "b"], -2, -1, "done")
    assert not explained([make, early], Model(), moved)
