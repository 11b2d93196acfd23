"""The actions of clients of a namespace, and their effects on a plain tree.

Actions of one transaction come first, then those of any number of transactions.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

from commitlog.errors import AlreadyExists, CommitError, IsADirectory, NotADirectory, NotFound
from commitlog.namespace import Data, Namespace
from commitlog.namespace.jobs.committer import DirectoryCommitter, Mode
from commitlog.stores.api import IfAbsent, ObjectInfo, PutResult
from support.namespace import Model


@frozen(kw_only=True)
class Action:
    """An action on a namespace, and its effect on a plain tree.

    Attributes:
        name: the name in outcomes and messages.
        call: performs it. The result is compared with that of `model`.
        model: performs it on the plain tree, or raises the expected error. It may return a result.
        changes: the number of transactions: exactly one, at most one, or any number.
        removes: maximum number of files and directories that it removes from the tree; None: any number.
        step: returns whether one of any number of transactions may change the first tree to the second.
        follows: whether these may affect a directory that another client has just renamed.
        tidies: whether it may succeed and leave work for the next such action.
        once: the id of an effect that happens once, whichever client performs it; else empty.
    """

    name: str
    call: Callable[[Namespace], object]
    model: Callable[[Model], object] = lambda model: None
    changes: str = "one"
    removes: int | None = 0
    step: Callable[[Model, Model], bool] = operator.eq
    follows: bool = False
    tidies: bool = False
    once: str = ""


#: Actions, and pauses in seconds.
Program: TypeAlias = Sequence[Action | float]


def without_result(call: Callable[[Namespace], object]) -> Callable[[Namespace], None]:
    """Return a call without a result."""

    def call_without_result(namespace: Namespace) -> None:
        call(namespace)

    return call_without_result


def _body_at(model: Model, path: str) -> bytes | None:
    names = tuple(path.split("/")) if path else ()
    if names not in model.nodes:
        raise NotFound(path)
    return model.nodes[names]


def write(path: str, body: bytes, *, overwrite: bool = True, parents: bool = False) -> Action:
    """Write a file."""
    return Action(
        name="write",
        call=without_result(
            lambda namespace: namespace.write(path, body, overwrite=overwrite, parents=parents)
        ),
        model=lambda model: model.write(path, body, overwrite=overwrite, parents=parents),
    )


def stream(path: str, body: bytes, *, overwrite: bool = True) -> Action:
    """Write a file through a writer."""

    def call(namespace: Namespace) -> None:
        with namespace.open_writer(path, overwrite=overwrite, parents=False) as writer:
            writer.write(body)
            writer.commit()

    return Action(
        name="stream",
        call=call,
        model=lambda model: model.write(path, body, overwrite=overwrite, parents=False),
    )


def attempt_ids(namespace: Namespace) -> Callable[[], str]:
    """Return a function that makes ids of attempts from the ids of the client."""
    return lambda: hashlib.blake2b(namespace._context.new_id().encode(), digest_size=16).hexdigest()


def put_foreign_object(namespace: Namespace, body: bytes) -> Data:
    """Put an object as another program does."""
    path = f"others/{namespace._context.new_id()}"
    put: PutResult | ObjectInfo
    try:
        put = namespace.store.put(path, body, condition=IfAbsent())
    except AlreadyExists:  # an intermediary repeated the request
        put = namespace.store.head(path)
    return Data(path=path, size=len(body), etag=put.etag, own=False)


def link(files: Mapping[str, bytes], *, overwrite: bool = True) -> Action:
    """Put objects of another program, and link them as files."""

    def call(namespace: Namespace) -> None:
        data = {path: put_foreign_object(namespace, body) for path, body in files.items()}
        namespace.link_many(data, overwrite=overwrite, parents=False)

    return Action(
        name="link",
        call=call,
        model=lambda model: model.link_many(files, overwrite=overwrite, parents=False),
    )


def make_directory(path: str, *, shards: int = 1) -> Action:
    """Make a directory and its parents."""
    return Action(
        name="make",
        call=without_result(lambda namespace: namespace.make_directory(path, shards=shards)),
        model=lambda model: model.make_directory(path),
        changes="at most one",
    )


def rename(source: str, target: str, *, overwrite: bool = False) -> Action:
    """Rename a file or directory."""
    return Action(
        name="rename",
        call=without_result(lambda namespace: namespace.rename(source, target, overwrite=overwrite)),
        model=lambda model: model.rename(source, target, overwrite=overwrite),
        changes="one" if source != target else "at most one",
        removes=int(overwrite),
    )


def replace(source: str, target: str) -> Action:
    """Replace a directory by another."""
    return Action(
        name="replace",
        call=without_result(lambda namespace: namespace.replace(source, target)),
        model=lambda model: model.replace(source, target),
        changes="one" if source != target else "at most one",
        removes=None,
    )


def delete(path: str, *, recursive: bool = False) -> Action:
    """Delete a file or directory."""
    return Action(
        name="delete",
        call=without_result(lambda namespace: namespace.delete(path, recursive=recursive)),
        model=lambda model: model.delete(path, recursive=recursive),
        removes=None if recursive else 1,
    )


def set_attributes(path: str, **values: str) -> Action:
    """Set attributes."""
    return Action(
        name="attributes",
        call=without_result(lambda namespace: namespace.set_attributes(path, attributes=values)),
        model=lambda model: (_body_at(model, path), None)[1],
    )


def reshard(path: str, *, shards: int) -> Action:
    """Change the number of shards of a directory."""

    def model(model: Model) -> None:
        if _body_at(model, path) is not None:
            raise NotADirectory(path)

    return Action(
        name="grow",
        call=without_result(lambda namespace: namespace.reshard(path, shards=shards)),
        model=model,
        changes="at most one",
    )


def read(path: str, *, slowly: float = 0.0) -> Action:
    """Read a file, with a pause between opening and reading."""

    def call(namespace: Namespace) -> bytes:
        opened = namespace.open(path)
        if slowly:
            namespace._context.clock.sleep(slowly)
        return opened.read()

    def model(model: Model) -> bytes:
        body = _body_at(model, path)
        if body is None:
            raise IsADirectory(path)
        return body

    return Action(name="read", call=call, model=model, changes="at most one")


def list_(path: str) -> Action:
    """List a directory."""

    def model(model: Model) -> tuple[str, ...]:
        _body_at(model, path)
        above = tuple(path.split("/")) if path else ()
        return tuple(sorted(names[-1] for names in model.nodes if names and names[:-1] == above))

    return Action(
        name="list",
        call=lambda namespace: tuple(found.name for found in namespace.list(path)),
        model=model,
        changes="at most one",
    )


def tamper(path: str, body: bytes) -> Action:
    """Replace the object of a file, as another program does."""

    def call(namespace: Namespace) -> None:
        data = namespace.stat(path).data
        assert data is not None
        namespace.store.put(data.path, body)

    return Action(name="tamper", call=call, changes="at most one")


def bulk_link(directory: str, files: Mapping[str, bytes]) -> Action:
    """Link files in one directory, in as few transactions as possible."""
    adds: dict[str, bytes | None] = {f"{directory}/{name}": body for name, body in files.items()}

    def call(namespace: Namespace) -> None:
        data: dict[str, Data] = {
            name: put_foreign_object(namespace, body) for name, body in files.items()
        }
        namespace.bulk_link(directory, data)

    return Action(name="bulk link", call=call, changes="many", step=_adding(adds), follows=True)


def _adding(adds: Mapping[str, bytes | None]) -> Callable[[Model, Model], bool]:
    """Return a step that adds some of these files and changes nothing else."""

    def step(before: Model, after: Model) -> bool:
        new = after.nodes.keys() - before.nodes.keys()
        allowed = {tuple(path.split("/")): body for path, body in adds.items()}
        kept = {names: body for names, body in after.nodes.items() if names not in new}
        added = all(names in allowed and after.nodes[names] == allowed[names] for names in new)
        return added and kept == before.nodes

    return step


def publish(job: str, files: Mapping[str, bytes], *, mode: Mode = "append") -> Action:
    """Publish a job at ``out``; after an error, abort it.

    It is published once, even if another job replaces it. Its driver then finds it, or its replacement.
    """

    def call(namespace: Namespace) -> bool:
        new_id = attempt_ids(namespace)
        target = DirectoryCommitter(
            namespace,
            "out",
            clock=namespace._context.clock,
            backoff=namespace._context.backoff,
            new_id=new_id,
        )
        attempt = target.begin(job, mode=mode)
        data = {name: put_foreign_object(namespace, body) for name, body in files.items()}
        try:
            target.publish(attempt, data)
        except CommitError:
            if target.abort(attempt, data) or target.find(attempt) is None:
                raise
        assert target.find(attempt) is not None, "published, but not found"
        return True

    whole: dict[tuple[str, ...], bytes | None] = {(): None}
    whole.update({(name,): body for name, body in files.items()})

    def step(before: Model, after: Model) -> bool:
        """Return whether the complete job appeared at once, or nothing."""
        old, new = _published(before), _published(after)
        if old == new:
            return True
        for part in {names[:1] for names in new if names} | {()}:
            added = {names[len(part) :]: new[names] for names in new if names[: len(part)] == part}
            rest = {names: body for names, body in new.items() if names[: len(part)] != part}
            if added == whole:
                return rest == old if part else not old or mode == "overwrite"
        return False

    return Action(name="publish", call=call, changes="many", removes=None, step=step, once=job)


def _published(model: Model) -> dict[tuple[str, ...], bytes | None]:
    return {names[1:]: body for names, body in model.nodes.items() if names[:1] == ("out",)}


def empty_trash() -> Action:
    """Empty the trash."""
    return Action(
        name="sweep",
        call=without_result(lambda namespace: namespace.maintenance.empty_trash()),
        changes="many",
        tidies=True,
    )


def gc() -> Action:
    """Collect garbage."""
    return Action(
        name="collect",
        call=without_result(lambda namespace: namespace.maintenance.gc()),
        changes="many",
        tidies=True,
    )


def import_objects(prefix: str, into: str, adds: Mapping[str, bytes | None]) -> Action:
    """Import the objects below a prefix."""
    return Action(
        name="adopt",
        call=without_result(lambda namespace: namespace.maintenance.import_objects(prefix, into)),
        changes="many",
        step=_adding(adds),
        follows=True,
    )


def recover(*, older_than: float) -> Action:
    """Decide the pending operations of the log."""
    return Action(
        name="recover",
        call=without_result(lambda namespace: namespace.maintenance.recover(older_than=older_than)),
        changes="many",
    )
