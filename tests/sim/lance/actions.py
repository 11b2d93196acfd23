"""The action of a writer of a Lance table: it creates a version from the manifest that it has staged."""

from __future__ import annotations

import contextlib

from commitlog.errors import AlreadyExists, CommitError, OutcomeUnknown
from commitlog.lance.versions import TableVersions
from commitlog.testing import Action, Outcome
from commitlog.testing.recorded_store import VERSION
from sim.leases.actions import Client, Program

__all__ = ["commit"]

_TABLE = "t"


def commit(make: type[TableVersions] = TableVersions, *, version: int = 1) -> Program:
    """Create a version of the table. The manifest is staged already; the call is recorded.

    Args:
        make: the class that creates it, such as a mutated one.
        version: the number of the version.
    """

    def program(client: Client) -> None:
        world = client.world
        name = f"{version}.manifest"
        staged = f"{name}-{client.name}"
        text = client.new_version()
        world.objects.put(f"{_TABLE}/_versions/{staged}", text.encode(), metadata={VERSION: text})
        path = f"{_TABLE}/_versions/{name}"
        number = world.recorder.begin(client.name, Action.CREATE, path, version=text, name="commit")
        versions = make(client.store.unrecorded, _TABLE)
        with contextlib.suppress(CommitError):
            try:
                created = versions.create(version, staged, scheme="V1")
            except OutcomeUnknown:
                raise
            except AlreadyExists:
                world.recorder.end(number, Outcome.CONTRADICTED)
                raise
            except CommitError:
                world.recorder.end(number, Outcome.NOTHING)
                raise
            world.recorder.end(number, Outcome.DONE)
            world.recorder.learn(created.etag, text)

    return program
