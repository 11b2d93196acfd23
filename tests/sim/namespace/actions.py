"""What clients of a namespace do in one transaction, and what a plain tree makes of it."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

from commitlog.errors import AlreadyExists, IsADirectory, NotADirectory, NotFound
from commitlog.namespace import Data, Namespace
from commitlog.stores.api import IfAbsent, ObjectInfo, PutResult
from support.namespace import Model


@frozen(kw_only=True)
class Do:
    """An operation: of a namespace, and of the plain tree.

    Attributes:
        name: of it.
        lake: does it; what it returns is compared.
        model: does it to the plain tree, or raises why not; may return what is to be seen.
        changes: how many transactions it takes: exactly one, at most one, or any number.
        removes: how many files and directories it may remove from the tree; None: any number.
        step: tells whether one of any number of transactions may have made the second tree of the first.
        follows: whether those may be made to a directory that others have just renamed.
        tidies: whether it is told done when what it left is for the next one to do.
        once: what is done once, whoever is to do it; "" if anything may be done again.
    """

    name: str
    lake: Callable[[Namespace], object]
    model: Callable[[Model], object] = lambda model: None
    changes: str = "one"
    removes: int | None = 0
    step: Callable[[Model, Model], bool] = operator.eq
    follows: bool = False
    tidies: bool = False
    once: str = ""


#: Operations, and pauses in seconds.
Program: TypeAlias = Sequence[Do | float]


def silent(call: Callable[[Namespace], object]) -> Callable[[Namespace], None]:
    """Return what calls it, and returns nothing that could be compared."""

    def quiet(lake: Namespace) -> None:
        call(lake)

    return quiet


def _there(model: Model, path: str) -> bytes | None:
    names = tuple(path.split("/")) if path else ()
    if names not in model.nodes:
        raise NotFound(path)
    return model.nodes[names]


def write(path: str, body: bytes, *, overwrite: bool = True, parents: bool = False) -> Do:
    """Write a file."""
    return Do(
        name="write",
        lake=silent(lambda lake: lake.write(path, body, overwrite=overwrite, parents=parents)),
        model=lambda model: model.write(path, body, overwrite=overwrite, parents=parents),
    )


def stream(path: str, body: bytes, *, overwrite: bool = True) -> Do:
    """Write a file bit by bit."""

    def bits(lake: Namespace) -> None:
        with lake.open_writer(path, overwrite=overwrite, parents=False) as writer:
            writer.write(body)
            writer.commit()

    return Do(
        name="stream",
        lake=bits,
        model=lambda model: model.write(path, body, overwrite=overwrite, parents=False),
    )


def attempts(lake: Namespace) -> Callable[[], str]:
    """Return what makes names of attempts, of the words that the client makes."""
    return lambda: hashlib.blake2b(lake._context.new_id().encode(), digest_size=16).hexdigest()


def put_object(lake: Namespace, body: bytes) -> Data:
    """Store an object that is not the namespace's."""
    """Store an object that is not the namespace's."""
    path = f"others/{lake._context.new_id()}"
    put: PutResult | ObjectInfo
    try:
        put = lake.store.put(path, body, condition=IfAbsent())
    except AlreadyExists:  # the request was repeated on its way
        put = lake.store.head(path)
    return Data(path=path, size=len(body), etag=put.etag, own=False)


def link(files: Mapping[str, bytes], *, overwrite: bool = True) -> Do:
    """Make files of objects that are not the namespace's, and that are put before that."""

    def call(lake: Namespace) -> None:
        data = {path: put_object(lake, body) for path, body in files.items()}
        lake.link_many(data, overwrite=overwrite, parents=False)

    return Do(
        name="link",
        lake=call,
        model=lambda model: model.link_many(files, overwrite=overwrite, parents=False),
    )


def make(path: str, *, shards: int = 1) -> Do:
    """Make a directory, and those above it."""
    return Do(
        name="make",
        lake=silent(lambda lake: lake.make_directory(path, shards=shards)),
        model=lambda model: model.make_directory(path),
        changes="at most one",
    )


def rename(source: str, target: str, *, overwrite: bool = False) -> Do:
    """Rename something."""
    return Do(
        name="rename",
        lake=silent(lambda lake: lake.rename(source, target, overwrite=overwrite)),
        model=lambda model: model.rename(source, target, overwrite=overwrite),
        changes="one" if source != target else "at most one",
        removes=int(overwrite),
    )


def replace(source: str, target: str) -> Do:
    """Have a directory replace another."""
    return Do(
        name="replace",
        lake=silent(lambda lake: lake.replace(source, target)),
        model=lambda model: model.replace(source, target),
        changes="one" if source != target else "at most one",
        removes=None,
    )


def delete(path: str, *, recursive: bool = False) -> Do:
    """Delete something."""
    return Do(
        name="delete",
        lake=silent(lambda lake: lake.delete(path, recursive=recursive)),
        model=lambda model: model.delete(path, recursive=recursive),
        removes=None if recursive else 1,
    )


def attributes(path: str, **values: str) -> Do:
    """Set attributes."""
    return Do(
        name="attributes",
        lake=silent(lambda lake: lake.set_attributes(path, attributes=values)),
        model=lambda model: (_there(model, path), None)[1],
    )


def grow(path: str, *, shards: int) -> Do:
    """Give a directory more shards."""

    def model(model: Model) -> None:
        if _there(model, path) is not None:
            raise NotADirectory(path)

    return Do(
        name="grow",
        lake=silent(lambda lake: lake.reshard(path, shards=shards)),
        model=model,
        changes="at most one",
    )


def read(path: str, *, slowly: float = 0.0) -> Do:
    """Read a file, with a pause between opening and reading."""

    def call(lake: Namespace) -> bytes:
        opened = lake.open(path)
        if slowly:
            lake._context.clock.sleep(slowly)
        return opened.read()

    def model(model: Model) -> bytes:
        body = _there(model, path)
        if body is None:
            raise IsADirectory(path)
        return body

    return Do(name="read", lake=call, model=model, changes="at most one")


def list_(path: str) -> Do:
    """List a directory."""

    def model(model: Model) -> tuple[str, ...]:
        _there(model, path)
        above = tuple(path.split("/")) if path else ()
        return tuple(sorted(names[-1] for names in model.nodes if names and names[:-1] == above))

    return Do(
        name="list",
        lake=lambda lake: tuple(found.name for found in lake.list(path)),
        model=model,
        changes="at most one",
    )


def tamper(path: str, body: bytes) -> Do:
    """Replace the object of a file, other than through the namespace."""

    def call(lake: Namespace) -> None:
        data = lake.stat(path).data
        assert data is not None
        lake.store.put(data.path, body)

    return Do(name="tamper", lake=call, changes="at most one")
