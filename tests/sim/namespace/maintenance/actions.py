"""The actions of maintenance of a namespace, and damage to its table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import evolve, frozen

from commitlog.namespace import Data, DirectoryCommitter, Namespace, RepairOutcome
from commitlog.namespace.jobs.committer import abort_stale_attempts
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.model.records import Entry, Garbage
from commitlog.oplog import Decision
from commitlog.tables.api import Table
from sim.namespace.actions import Action, attempt_ids, publish
from sim.namespace.judge import NAME
from support.namespace import Model

KEYS = Keys(NAME)

#: Longer than the retention of the logs.
A_DAY = 90_000.0


def same_names(before: Model, after: Model) -> bool:
    """Return whether two trees have the same names. A repair may change the content of files."""
    return before.nodes.keys() == after.nodes.keys()


def compact_log() -> Action:
    """Compact the log."""
    return Action(
        name="compact",
        call=lambda namespace: namespace.maintenance.compact_log() and None,
        changes="many",
        tidies=True,
    )


def rewrite_log() -> Action:
    """Write the log again from the table."""
    return Action(
        name="rewrite",
        call=lambda namespace: namespace.maintenance.rewrite_log(older_than=0) and None,
        changes="many",
    )


def fsck(*, spared: Collection[str] = (), **options: Any) -> Action:
    """Check an undamaged namespace.

    Args:
        spared: kinds of findings that are allowed.
        options: those of `Maintenance.fsck`.
    """

    def call(namespace: Namespace) -> None:
        found = namespace.maintenance.fsck(objects=True, orphans=True, **options).findings
        wrong = [str(each) for each in found if each.problem.name not in spared]
        assert not wrong, f"a check has false findings: {wrong}"

    return Action(name="check", call=call, changes="at most one")


def repair(
    step: Callable[[Model, Model], bool] = Model.__eq__,
    *,
    only: Collection[str] | None = None,
    age: float = 30.0,
    pending: float = 30.0,
    times: int = 2,
) -> Action:
    """Check and repair, until there are no findings, or none that can be repaired.

    Args:
        step: returns whether a repair may change the first tree to the second.
        only: kinds of findings to repair.
        age, pending: see `Maintenance.fsck`.
        times: maximum number of checks.
    """

    def call(namespace: Namespace) -> None:
        for _ in range(times):
            found = namespace.maintenance.fsck(
                orphans=only is not None, grace=0.1, age=age, pending=pending
            ).findings
            done = [
                each.outcome for each in namespace.maintenance.repair(found, dry_run=False, only=only)
            ]
            if not done or set(done) == {RepairOutcome.LEFT}:
                return

    return Action(name="repair", call=call, changes="many", step=step)


def job(files: Mapping[str, bytes], *, seconds: float) -> Action:
    """Publish a job at ``out`` that takes `seconds`, with content of the namespace."""

    def call(namespace: Namespace) -> None:
        new_id = attempt_ids(namespace)
        target = DirectoryCommitter(
            namespace,
            "out",
            clock=namespace._context.clock,
            backoff=namespace._context.backoff,
            new_id=new_id,
        )
        attempt = target.begin("job")
        data: dict[str, Data] = {}
        for name, body in files.items():
            with namespace.open_writer(name) as writer:
                writer.write(body)
                data[name] = writer.finish()
        namespace._context.clock.sleep(seconds)
        target.publish(attempt, data)

    return evolve(publish("job", files), call=call)


def abort_old_jobs(*, older_than: float) -> Action:
    """Abort jobs that began at least `older_than` seconds ago."""

    def call(namespace: Namespace) -> None:
        abort_stale_attempts(namespace, older_than=older_than, clock=namespace._context.clock)

    return Action(name="sweep jobs", call=call, changes="many", removes=None, step=_only_staging)


def _only_staging(before: Model, after: Model) -> bool:
    def rest(model: Model) -> Mapping[tuple[str, ...], bytes | None]:
        return {names: body for names, body in model.nodes.items() if names[:1] != (".staging",)}

    return rest(before) == rest(after) and after.nodes.keys() <= before.nodes.keys()


@frozen(kw_only=True)
class Restore(Action):
    """A restore of the namespace from the log, in the second table.

    Attributes:
        decide: the decision of pending operations; None: the true one.
        replace: whether the content of the second table is removed first.
        partitioned: whether it is divided into tasks.
    """

    decide: Decision | None
    replace: bool
    partitioned: bool


def restore(
    *, decide: Decision | None = None, replace: bool = False, partitioned: bool = False
) -> Restore:
    """Return a `Restore`."""

    def call(namespace: Namespace) -> None:
        raise AssertionError("performed by the world")

    return Restore(
        name="restore",
        call=call,
        changes="many",
        decide=decide,
        replace=replace,
        partitioned=partitioned,
    )


def copy() -> Action:
    """Make a read-only copy of the namespace from the log, in a table of its own, and check it."""

    def call(namespace: Namespace) -> None:
        raise AssertionError("performed by the world")

    return Action(name="copy", call=call, changes="at most one")


def move() -> Action:
    """Switch this node to the restored namespace. If it was not restored, the node stops."""
    return Action(name="move", call=lambda namespace: None, changes="at most one")


def _entry(table: Table, name: str) -> Entry:
    return next(
        Entry.from_item(item) for item in table.scan() if (item["name"], "id" in item) == (name, True)
    )


def forget_directory(table: Table) -> None:
    """Remove the directory record of the directory."""
    table.delete(KEYS.directory(_entry(table, "d").id))


def lose_file(table: Table) -> None:
    """Remove the entry of the file."""
    table.delete(_entry(table, "f").key)


def share_object(table: Table) -> None:
    """Make two files share an object."""
    table.put(evolve(_entry(table, "f"), data=_entry(table, "g").data).to_item())


def share_object_before(table: Table) -> None:
    """Make two files share an object, one of them with an old version."""
    table.put(evolve(_entry(table, "f"), version=0, data=_entry(table, "g").data).to_item())


def list_as_garbage(table: Table) -> None:
    """List the content of the file as garbage that is never due."""
    entry, never = _entry(table, "f"), 10**14
    assert entry.data is not None
    key = KEYS.garbage(never, entry.data.path)
    garbage = Garbage(
        key=key, file=entry.id, version=entry.version, change_id="x", not_before=never, data=entry.data
    )
    table.put(garbage.to_item())
