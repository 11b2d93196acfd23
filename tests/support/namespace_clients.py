"""Processes that change a namespace until they are stopped, and the tree that they were acknowledged.

As a program, this module is one such process: it opens the namespace by its URLs, and changes only its
own directory. It prints each operation and its outcome. It ends when its standard input ends, or when an
operation has no known outcome, or the namespace belongs to another table.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from threading import Condition, Event, Thread
from typing import Any

from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.namespace import Namespace
from commitlog.namespaces import open_namespace
from commitlog.urls import parse_table_url
from support.namespace import Model, outcome
from support.namespace_worker import ACTIONS, Action, drawn_action
from support.project import environment

__all__ = ["Client"]

#: Seconds to wait for a process before the test fails.
_PATIENCE = 250.0

#: Outcomes after which a process ends.
_LAST = ("unknown", "Fenced")


class Client:
    """A process that changes the directory ``client-<number>`` of a namespace.

    Args:
        name: the name of the namespace.
        metadata: URL of its table.
        connection: options of that URL.
        number: number of the process.
    """

    def __init__(self, name: str, metadata: str, connection: Mapping[str, str], number: int) -> None:
        self.top = f"client-{number}"
        #: The operations, and their outcomes.
        self.calls: list[tuple[Action, str]] = []
        self._news = Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.namespace_clients"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        place = {"name": name, "metadata": metadata, "connection": dict(connection)}
        self._process.stdin.write(json.dumps({**place, "top": self.top, "seed": number}) + "\n")
        self._process.stdin.flush()
        self._ended = False
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            action, end = json.loads(line)
            with self._news:
                self.calls.append((tuple(action), end))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def go_on(self, number: int) -> None:
        """Wait until it has performed so many further operations, whatever their outcome."""
        with self._news:
            until = len(self.calls) + number
            there = self._news.wait_for(
                lambda: self._ended or len(self.calls) >= until, timeout=_PATIENCE
            )
            assert there and not self._ended, f"{self.top} has ended: {self.calls[-1:]}"

    def stop(self) -> None:
        """End it after the present operation, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.wait()

    def wait(self) -> str:
        """Wait until it ends; return the outcome of the last operation."""
        self._process.wait(_PATIENCE)
        self._listener.join()
        return self.calls[-1][1]

    def check(self, lake: Namespace) -> None:
        """Check that its directory has everything that was acknowledged, and nothing else."""
        before = Model({(): None, (self.top,): None})
        allowed = []
        for action, end in self.calls:
            after = before.copy()
            refused = outcome(lambda: ACTIONS[action[0]][1](after, *action[1:]))  # noqa: B023
            if end == "done":
                assert refused is None, f"{action} has succeeded, but a plain tree refuses it"
                before = after
            elif end == "unknown" and refused is None:
                allowed.append(after)
        assert _tree(lake, self.top) in [before, *allowed], f"{self.top} has lost an acknowledged change"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def _tree(lake: Namespace, top: str) -> Model:
    """Return the tree of a directory, with the directory itself."""
    found = Model({(): None, (top,): None})
    for each in lake.walk(top):
        found.nodes[tuple(each.path.split("/"))] = None if each.is_directory else lake.read(each.path)
    return found


def _below(top: str, action: Action) -> Action:
    """Return an operation on paths below a directory."""
    kind, *arguments = action
    paths = 1 if kind in ("write", "create") else 2
    return (kind, *(f"{top}/{each}" for each in arguments[:paths]), *arguments[paths:])


def main() -> None:
    """Change the namespace until standard input ends."""
    options: dict[str, Any] = json.loads(sys.stdin.readline())
    over = Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    Thread(target=listen, daemon=True).start()
    metadata = parse_table_url(options["metadata"]).with_options(options["connection"])
    draw = random.Random(options["seed"])
    with open_namespace(options["name"], metadata=metadata, grace=0.0) as lake:
        number = 0
        while not over.is_set():
            number += 1
            action = _below(options["top"], drawn_action(draw, f"{options['seed']}-{number}"))
            try:
                ACTIONS[action[0]][0](lake, *action[1:])
                end = "done"
            except OutcomeUnknown:
                end = "unknown"
            except CommitError as error:
                end = type(error).__name__
            print(json.dumps([action, end]), flush=True)
            if end in _LAST:
                return


if __name__ == "__main__":
    main()
