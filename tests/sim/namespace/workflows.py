"""What clients of a namespace do in any number of transactions, and what one makes of a plain tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from commitlog.errors import CommitError
from commitlog.namespace import Data, Namespace
from commitlog.namespace.jobs.committer import DirectoryCommitter, Mode
from sim.namespace.actions import Do, attempts, put_object, silent
from support.namespace import Model


def bulk_link(directory: str, files: Mapping[str, bytes]) -> Do:
    """Make files in a directory, in as few transactions as it takes."""
    adds: dict[str, bytes | None] = {f"{directory}/{name}": body for name, body in files.items()}

    def call(lake: Namespace) -> None:
        data: dict[str, Data] = {name: put_object(lake, body) for name, body in files.items()}
        lake.bulk_link(directory, data)

    return Do(name="bulk link", lake=call, changes="many", step=_adding(adds), follows=True)


def _adding(adds: Mapping[str, bytes | None]) -> Callable[[Model, Model], bool]:
    """Return what tells that a tree has some of these more, and is otherwise the same."""

    def step(before: Model, after: Model) -> bool:
        new = after.nodes.keys() - before.nodes.keys()
        allowed = {tuple(path.split("/")): body for path, body in adds.items()}
        kept = {names: body for names, body in after.nodes.items() if names not in new}
        added = all(names in allowed and after.nodes[names] == allowed[names] for names in new)
        return added and kept == before.nodes

    return step


def publish(job: str, files: Mapping[str, bytes], *, mode: Mode = "append") -> Do:
    """Publish a job at ``out``; what went wrong is aborted.

    It is done once, also if others replace it. Whoever has done it finds it, or what has replaced it.
    """

    def call(lake: Namespace) -> bool:
        words = attempts(lake)
        target = DirectoryCommitter(
            lake, "out", clock=lake._context.clock, backoff=lake._context.backoff, new_id=words
        )
        attempt = target.begin(job, mode=mode)
        data = {name: put_object(lake, body) for name, body in files.items()}
        try:
            target.publish(attempt, data)
        except CommitError:
            if target.abort(attempt, data) or target.find(attempt) is None:
                raise
        assert target.find(attempt) is not None, "published, and not there"
        return True

    whole: dict[tuple[str, ...], bytes | None] = {(): None}
    whole.update({(name,): body for name, body in files.items()})

    def step(before: Model, after: Model) -> bool:
        """Tell whether all of the job came to be there at once, or nothing."""
        old, new = _published(before), _published(after)
        if old == new:
            return True
        for part in {names[:1] for names in new if names} | {()}:
            come = {names[len(part) :]: new[names] for names in new if names[: len(part)] == part}
            rest = {names: body for names, body in new.items() if names[: len(part)] != part}
            if come == whole:
                return rest == old if part else not old or mode == "overwrite"
        return False

    return Do(name="publish", lake=call, changes="many", removes=None, step=step, once=job)


def _published(model: Model) -> dict[tuple[str, ...], bytes | None]:
    return {names[1:]: body for names, body in model.nodes.items() if names[:1] == ("out",)}


def sweep() -> Do:
    """Empty the trash."""
    return Do(
        name="sweep",
        lake=silent(lambda lake: lake.maintenance.empty_trash()),
        changes="many",
        tidies=True,
    )


def collect() -> Do:
    """Collect garbage."""
    return Do(
        name="collect", lake=silent(lambda lake: lake.maintenance.gc()), changes="many", tidies=True
    )


def adopt(prefix: str, into: str, adds: Mapping[str, bytes | None]) -> Do:
    """Adopt what the store has below a prefix."""
    return Do(
        name="adopt",
        lake=silent(lambda lake: lake.maintenance.import_objects(prefix, into)),
        changes="many",
        step=_adding(adds),
        follows=True,
    )


def recover(*, older_than: float) -> Do:
    """Decide what is pending in the log."""
    return Do(
        name="recover",
        lake=silent(lambda lake: lake.maintenance.recover(older_than=older_than)),
        changes="many",
    )
