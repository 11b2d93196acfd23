"""The policies in `deploy/iam`: each allows the requests of its role, and nothing else.

With one action taken away, an operation fails with `AccessDenied`, and leaves nothing half done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from commitlog.aws.connections import ConnectionPool
from commitlog.errors import AccessDenied
from support.permissions import Gate, allows, statements_of
from support.project import ROOT
from support.roles import ROLES, Site, Step
from support.selection import one_in
from support.servers import Ministack

pytestmark = pytest.mark.servers

_DIRECTORY = ROOT / "deploy" / "iam"


def _policy(role: str) -> str:
    return (_DIRECTORY / f"{role}.json").read_text()


def _actions(role: str) -> list[str]:
    """Return the actions that the policy of a role allows."""
    found: set[str] = set()
    for statement in json.loads(_policy(role))["Statement"]:
        actions = statement["Action"]
        found |= {actions} if isinstance(actions, str) else set(actions)
    return sorted(found)


@contextmanager
def _gate(gate: Gate) -> Iterator[None]:
    """Send all requests through a gate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConnectionPool, "begin", gate.begin(ConnectionPool.begin))
        yield


def _words(site: Site) -> dict[str, str]:
    return {
        "BUCKET": site.bucket,
        "PREFIX": "prefix",
        "LEASES": site.leases,
        "NAMES": site.names,
        "STATE": site.state,
        "QUEUE": site.queue,
    }


@pytest.fixture(scope="module")
def recorded(ministack: Ministack) -> dict[str, dict[str, tuple[Site, Gate]]]:
    """The permissions that each step of each role needs."""
    found: dict[str, dict[str, tuple[Site, Gate]]] = {}
    for role, steps in ROLES.items():
        found[role] = {}
        for name, step in steps.items():
            site, gate = Site.on(ministack), Gate()
            step.prepare(site)
            with _gate(gate):
                step.run(site)
            found[role][name] = site, gate
    return found


def test_each_role_has_a_policy() -> None:
    """There are no other policies."""
    assert {file.stem for file in _DIRECTORY.glob("*.json")} == ROLES.keys()


@pytest.mark.all
@pytest.mark.parametrize("role", ROLES)
def test_a_policy_allows_what_its_role_needs_and_nothing_else(
    role: str, recorded: dict[str, dict[str, tuple[Site, Gate]]]
) -> None:
    """Each request is allowed, and each action on each resource of the policy is used."""
    unused: set[tuple[str, str]] | None = None
    for site, gate in recorded[role].values():
        statements = statements_of(_policy(role), _words(site))
        refused = {each for each in gate.needed if not any(allows(s, each) for s in statements)}
        assert not refused, role
        unused_here = {
            (action, word)
            for statement, plain in zip(statements, statements_of(_policy(role), {}), strict=True)
            for action in _many(statement["Action"])
            for resource, word in zip(
                _many(statement["Resource"]), _many(plain["Resource"]), strict=True
            )
            if not any(allows({"Action": action, "Resource": resource}, each) for each in gate.needed)
        }
        unused = unused_here if unused is None else unused & unused_here
    assert not unused, role


def _many(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _steps_with(role: str, action: str, recorded: dict[str, dict[str, tuple[Site, Gate]]]) -> list[Step]:
    return [ROLES[role][name] for name, (_, gate) in recorded[role].items() if action in gate.actions]


@pytest.mark.all
@pytest.mark.parametrize(
    ("role", "action"),
    one_in(8, [(role, action) for role in ROLES for action in _actions(role)]),
)
def test_an_operation_without_an_action_fails_whole(
    role: str, action: str, ministack: Ministack, recorded: Any
) -> None:
    """The error names the action. If the action only tidies up, another operation does that later."""
    steps = _steps_with(role, action, recorded)
    step = next((each for each in steps if action not in each.later), steps[0])
    site, gate = Site.on(ministack), Gate(denied=action)
    step.prepare(site)
    with _gate(gate):
        if action in step.later:
            step.run(site)
        else:
            with pytest.raises(AccessDenied, match=action):
                step.run(site)
    assert gate.refused
    step.check(site)
