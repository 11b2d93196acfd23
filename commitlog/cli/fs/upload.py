"""The commands ``fs put`` and ``fs cp``, which write content to a namespace.

A file appears when it is complete. The files of a directory appear one by one, or all at once on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import click
from attrs import evolve, field, frozen

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import Trials
from commitlog.cli.fs.atomic import Filler, send_whole
from commitlog.cli.fs.directories import NewDirectory
from commitlog.cli.fs.paths import Goals, Spot, found, spot
from commitlog.cli.fs.resume import exact_option, say_how_to_go_on
from commitlog.cli.fs.status import status_record
from commitlog.cli.fs.trees import Piece, Tree, local_tree, remote_tree, standard_input
from commitlog.cli.output import dry_run_option, json_option, print_json, print_plan
from commitlog.cli.progress import Headway
from commitlog.cli.transfer import Advance, Job, Together, threads_option, work
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
)
from commitlog.namespace import Data, Mapper, Namespace, Status

__all__ = ["cp", "put", "target_of"]

R = TypeVar("R")

#: The path of a new file, and its stored content.
_Stored: TypeAlias = tuple[str, Data]


def _sending_options(command: Callable[..., R]) -> Callable[..., R]:
    options: list[Any] = [
        click.option("-f", "--force", is_flag=True, help="Replace files that are there."),
        exact_option,
        click.option("--atomic", is_flag=True, help="Let a directory appear whole, in one step."),
        click.option(
            "--replace",
            is_flag=True,
            help="Likewise, in place of the directory that is there, which goes to the trash.",
        ),
        threads_option,
        dry_run_option,
        json_option,
        namespace_options,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("sources", metavar="LOCAL...", nargs=-1, required=True)
@click.argument("url")
@_sending_options
def put(
    connection: Connection,
    sources: tuple[str, ...],
    url: str,
    force: bool,
    exact: bool,
    atomic: bool,
    replace: bool,
    threads: int,
    dry_run: bool,
    json: bool,
) -> None:
    """Upload files, and directories with their contents, to URL; "-" is standard input.

    If URL is a directory, they are uploaded into it. With --no-target-directory, or from "LOCAL/.", URL
    receives the contents of the directory. The parent directory of the target has to exist.

    A file appears when it is complete. Existing files are replaced only with --force. Several files are
    uploaded concurrently (--threads), and files that finish together appear in one transaction.

    A file that cannot be uploaded is reported, and the others continue. If 8 in a row fail for a reason
    that is not specific to the file, the command does not try the rest. If it ends early, it prints the
    command to run for the rest.

    With --atomic, a directory is uploaded to a hidden directory and renamed when it is complete; if any
    of it fails, nothing stays. With --replace, the upload becomes the directory URL, and the previous
    directory is removed in the same step.

    \b
    Example:
      commitlog fs put --atomic events commitlog://lake/events
    """
    trials = Trials()
    trees = []
    how = _How(
        label="uploading",
        action="upload",
        done="uploaded",
        force=force,
        exact=exact,
        atomic=atomic,
        replace=replace,
        threads=threads,
        dry_run=dry_run,
        json=json,
    )
    with how.headway.told(trials):
        for each in sources:
            with trials.of(each):
                trees.append(standard_input() if each == "-" else local_tree(each, trials))
        _send(trees, spot(connection, url), trials, how, several=len(sources) > 1)
    trials.end()


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.argument("target", metavar="TARGET")
@click.option("-r", "-R", "--recursive", is_flag=True, expose_value=False, help="Is so anyway.")
@_sending_options
def cp(
    connection: Connection,
    urls: tuple[str, ...],
    target: str,
    force: bool,
    exact: bool,
    atomic: bool,
    replace: bool,
    threads: int,
    dry_run: bool,
    json: bool,
) -> None:
    """Copy files, and directories with their contents, to TARGET, in any namespace.

    Within a namespace, the store copies the content of files up to 5 GiB; other content is downloaded
    and uploaded by this machine. In all other respects the command works like "put".

    \b
    Example:
      commitlog fs cp commitlog://lake/a commitlog://lake/b
    """
    trials = Trials()
    how = _How(
        label="copying",
        action="copy",
        done="copied",
        force=force,
        exact=exact,
        atomic=atomic,
        replace=replace,
        threads=threads,
        dry_run=dry_run,
        json=json,
    )
    with how.headway.told(trials):
        goal = spot(connection, target)
        trees = []
        for url in urls:
            with trials.of(url):
                for each in found(connection, url):
                    if goal.namespace is each.namespace and _is_below(goal.path, each.path):
                        raise InvalidPath(f"{goal.url} is what is copied, or in it")
                    trees.append(remote_tree(each))
        _send(trees, goal, trials, how, several=max(len(urls), len(trees)) > 1)
    trials.end()


def _is_below(path: str, above: str) -> bool:
    return not above or f"{path}/".startswith(f"{above}/")


def target_of(goal: Spot, *, several: bool) -> bool:
    """Return whether the sources go into the directory `goal`; else the source becomes `goal`.

    Raises `NotADirectory` if `goal` has to be a directory, and `NotFound` if a directory is missing.
    """
    status = goal.status()
    if status is not None and status.is_directory:
        return True
    if several:
        raise NotADirectory(f"several sources go into a directory, and {goal.url} is none")
    above = Spot(namespace=goal.namespace, path=goal.path.rpartition("/")[0])
    if goal.inside or (status is None and above.status() is None):
        missing = goal if goal.inside else above
        raise NotFound(f'there is no directory {missing.url}: "fs mkdir" makes it')
    return False


@frozen(kw_only=True)
class _How:
    """The options of a command that sends files, and the words for it in messages."""

    label: str
    action: str
    done: str
    force: bool
    exact: bool
    atomic: bool
    replace: bool
    threads: int
    dry_run: bool
    json: bool
    filler: Filler = field(factory=Filler)
    headway: Headway = field(factory=Headway)

    def told(self, error: CommitError) -> CommitError:
        """Return the error of a file that was not made, with advice for the user."""
        match error:
            case AlreadyExists() if not self.force:
                return AlreadyExists(f"{error}; --force replaces it")
            case InvalidPath():
                return InvalidPath(f"{error}; rename it")
        return error


def _send(trees: list[Tree], goal: Spot, trials: Trials, how: _How, *, several: bool) -> None:
    if not trees:
        return
    if (how.atomic or how.replace) and not all(tree.is_directory for tree in trees):
        raise click.UsageError("--atomic and --replace are for directories: a file always shows whole")
    if how.replace and several:
        raise click.UsageError("--replace takes one source: URL is what it replaces")
    if how.exact and several:
        raise click.UsageError("--no-target-directory takes one source, which goes to URL itself")
    if how.exact and trees[0].is_directory:
        goal = evolve(goal, inside=False)
    into = target_of(goal, several=several) and not (how.exact or how.replace)
    if into and not all(tree.name or tree.is_directory for tree in trees):
        raise IsADirectory(f"{goal.url} is a directory, and standard input has no name in it")
    goals: list[tuple[Tree, Spot]] = []
    taken = Goals()
    for tree in trees:
        with trials.of(tree.shown):
            at = goal.below(tree.name) if into and tree.name else goal
            taken.take(at.url, tree.shown)
            goals.append((tree, at))
    if how.dry_run:
        for tree, at in goals:
            with trials.of(tree.shown):
                _show_plan(tree, at, how)
        return
    if how.atomic or how.replace:
        how.headway.silent = True  # send_whole reports each directory itself
        for tree, at in goals:
            with trials.of(tree.shown):
                send_whole(
                    tree,
                    at,
                    trials,
                    how.filler,
                    label=how.label,
                    threads=how.threads,
                    replace=how.replace,
                    json=how.json,
                )
        return

    say_how_to_go_on(
        how.headway,
        f"{how.done} to {goals[0][1].url if len(goals) == 1 else goal.url}",
        [tree for tree, _ in goals],
        force=how.force,
        into=into or how.exact,
    )

    def tell(status: Status | None) -> None:
        if how.json and status is not None:
            print_json(status_record(goal.namespace, status))

    work(
        chain.from_iterable(_sent(tree, at, trials, how) for tree, at in goals),
        trials,
        label=how.label,
        length=lambda: sum(tree.effort() for tree in trees),
        threads=how.threads,
        together=_making(goal.namespace, how),
        done=tell,
        headway=how.headway,
    )


def _show_plan(tree: Tree, goal: Spot, how: _How) -> None:
    """Print each file that would be made. Raises `AlreadyExists` where the upload would."""
    if (how.atomic and not how.replace) and goal.status() is not None:
        raise AlreadyExists(f"there is something at {goal.url}; --replace puts this in its place")
    for piece in tree.pieces():
        if piece.chunks is None:
            continue
        at = goal.below(piece.path) if piece.path else goal
        if not how.force and not how.atomic and not how.replace and at.status() is not None:
            raise how.told(AlreadyExists(f"there is something at {at.url} already"))
        print_plan(how.action, piece.shown, at.url, json=how.json)


def _sent(tree: Tree, goal: Spot, trials: Trials, how: _How) -> Iterator[Job]:
    above: list[NewDirectory] = []
    how.headway.check()
    with trials.of(tree.shown):
        for piece in tree.pieces():
            at = goal.below(piece.path) if piece.path else goal
            while above and not above[-1].has(piece.path):
                above.pop()
            upper = above[-1] if above else None
            if piece.chunks is not None:
                do = partial(_store, at, piece, piece.chunks, how, upper)
                yield Job(what=piece.shown, do=do, part=bool(piece.path))
                continue
            above.append(directory := NewDirectory(at, piece.path, upper))
            make = partial(_make, directory, how)
            if upper is None:
                with how.headway.of(piece.shown):
                    make(lambda step: None)  # if this fails, its contents are not tried
                how.headway.came(files=0)
            else:
                yield Job(what=piece.shown, do=make, part=True, effort=0, files=0)


def _make(directory: NewDirectory, how: _How, advance: Advance) -> None:
    try:
        directory.make(advance)
    except InvalidPath as error:
        raise how.told(error) from None


def _store(
    at: Spot,
    piece: Piece,
    chunks: Callable[[], Iterator[bytes]],
    how: _How,
    directory: NewDirectory | None,
    advance: Advance,
) -> _Stored:
    is_new = directory is not None and directory.wait(advance)
    store = how.filler.store
    look = not (how.force or is_new)
    with _explained(how):
        data = store(at, piece, chunks, advance, overwrite=how.force, parents=False, look=look)
    return at.path, data


@contextmanager
def _explained(how: _How) -> Iterator[None]:
    try:
        yield
    except (AlreadyExists, InvalidPath) as error:
        raise how.told(error) from None


def _making(lake: Namespace, how: _How) -> Together:
    """Return the step that makes files of stored content; directories are complete without it."""

    def make(stored: Sequence[_Stored | None], mapper: Mapper) -> list[Status | CommitError | None]:
        files = dict(filter(None, stored))
        made = lake.link_many(files, overwrite=how.force, parents=False, mapper=mapper, atomic=False)
        return [None if each is None else told(made[each[0]]) for each in stored]

    def told(made: Status | CommitError) -> Status | CommitError:
        return how.told(made) if isinstance(made, CommitError) else made

    def drop(left: Sequence[_Stored | None]) -> None:
        with suppress(CommitError, OSError):
            lake.store.delete_many([data.path for _, data in filter(None, left)])

    return Together(do=make, drop=drop)
