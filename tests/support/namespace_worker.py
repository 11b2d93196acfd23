"""A process that works on a namespace and reports its operations, for tests with several processes.

It reads a JSON object from its standard input, and prints a JSON list at the begin and at the end of
each operation. `explained` checks whether a plain tree can perform the reported operations of several
processes in some order.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from support.namespace import Model, outcome

#: Name and arguments of an operation.
Action: TypeAlias = Sequence[str]

#: The operations, as calls of a namespace and of a plain tree.
ACTIONS: Mapping[str, tuple[Callable[..., object], Callable[..., object]]] = {
    "write": (
        lambda lake, path, body: lake.write(path, body.encode(), parents=False),
        lambda model, path, body: model.write(path, body.encode(), overwrite=True, parents=False),
    ),
    "create": (
        lambda lake, path, body: lake.write(path, body.encode(), overwrite=False),
        lambda model, path, body: model.write(path, body.encode(), overwrite=False, parents=True),
    ),
    "make": (
        lambda lake, path: lake.make_directory(path),
        lambda model, path: model.make_directory(path),
    ),
    "rename": (
        lambda lake, source, target: lake.rename(source, target),
        lambda model, source, target: model.rename(source, target, overwrite=False),
    ),
    "rename over": (
        lambda lake, source, target: lake.rename(source, target, overwrite=True),
        lambda model, source, target: model.rename(source, target, overwrite=True),
    ),
    "replace": (
        lambda lake, source, target: lake.replace(source, target),
        lambda model, source, target: model.replace(source, target),
    ),
    "delete": (
        lambda lake, path: lake.delete(path),
        lambda model, path: model.delete(path, recursive=False),
    ),
    "delete all": (
        lambda lake, path: lake.delete(path, recursive=True),
        lambda model, path: model.delete(path, recursive=True),
    ),
    "sweep": (lambda lake: lake.maintenance.empty_trash(), lambda model: None),
    "collect": (lambda lake: lake.maintenance.gc(), lambda model: None),
}

_USUAL = (
    "write",
    "create",
    "make",
    "rename",
    "rename",
    "rename over",
    "replace",
    "delete",
    "delete all",
)
_FORMS = {"write": 2, "create": 2, "rename": 2, "rename over": 2, "replace": 2, "sweep": 0, "collect": 0}


def main() -> None:
    """Perform the operations that standard input describes."""
    options = json.load(sys.stdin)
    table = open_table(options["table"], NAMESPACE_SCHEMA, **options["options"])
    lake = Namespace(table, open_store(options["store"]), options["name"], grace=0, stable_paths=True)
    lake.describe()
    draw = random.Random(options["seed"])
    for number in range(options["operations"]):
        action = drawn_action(draw, f"{options['seed']}-{number}")
        _report("begins", time.monotonic(), *action)
        try:
            ACTIONS[action[0]][0](lake, *action[1:])
            end = "done"
        except OutcomeUnknown:
            end = "unknown"
        except CommitError as error:
            end = type(error).__name__
        _report("ends", time.monotonic(), end)
    lake.close()


def drawn_action(draw: random.Random, body: str) -> Action:
    """Return a random operation on paths of the names ``a`` and ``b``."""
    kind = draw.choice((*_USUAL, *_USUAL, "sweep", "collect"))
    paths = ["/".join(draw.choice("ab") for _ in range(draw.choice((1, 1, 2, 3)))) for _ in range(2)]
    if kind in ("write", "create"):
        paths[1] = body
    return (kind, *paths[: _FORMS.get(kind, 1)])


def _report(*words: object) -> None:
    print(json.dumps(words), flush=True)


# -- the order of operations ----------------------------------------------------------------------------


@frozen
class Call:
    """An operation that a process began; the end of an unfinished one is infinity."""

    action: Action
    began: float
    ended: float = float("inf")
    outcome: str = "unknown"


def calls_of(lines: Sequence[str]) -> list[Call]:
    """Return the operations that a process reported."""
    calls: list[Call] = []
    for line in lines:
        what, at, *words = json.loads(line)
        if what == "begins":
            calls.append(Call(words, at))
        else:
            ended = float("inf") if words[0] == "unknown" else at
            calls[-1] = Call(calls[-1].action, calls[-1].began, ended, words[0])
    return calls


def explained(calls: Sequence[Call], before: Model, after: Model) -> bool:
    """Return whether a plain tree can perform the operations in an order that their times allow.

    An operation of unknown outcome may have been performed at any time after its begin, or never.
    Refused operations are left out: resolving a path takes several requests, so there may be no single
    moment for them.
    """
    open_ = sorted((call for call in calls if call.outcome in ("done", "unknown")), key=_begun)
    seen: set[Any] = set()
    pending = [(before, frozenset(range(len(open_))))]
    while pending:
        model, left = pending.pop()
        state = (left, frozenset(model.nodes.items()))
        if state in seen:
            continue
        seen.add(state)
        if model == after and all(open_[number].outcome == "unknown" for number in left):
            return True
        first = min((open_[number].ended for number in left), default=0.0)
        for number in left:
            call = open_[number]
            if call.began > first:
                continue  # another operation had ended before it began
            rest = left - {number}
            if call.outcome == "unknown":
                pending.append((model, rest))
            changed = model.copy()
            if outcome(lambda: ACTIONS[call.action[0]][1](changed, *call.action[1:])) is None:  # noqa: B023
                pending.append((changed, rest))
    return False


def _begun(call: Call) -> float:
    return call.began


if __name__ == "__main__":
    main()
