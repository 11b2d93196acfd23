"""The commands ``fs cat``, ``head``, ``tail``, ``get`` and ``getmerge``, which read content."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import TypeVar

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import Trials
from commitlog.cli.fs.paths import Found, Goals, found, urls_argument
from commitlog.cli.fs.resume import exact_option, say_how_to_go_on
from commitlog.cli.fs.trees import Tree, chunks_of, directory_of, remote_tree
from commitlog.cli.output import json_option, print_json, progress_file
from commitlog.cli.progress import Headway
from commitlog.cli.streams import PIECE, arriving
from commitlog.cli.transfer import Advance, Job, threads_option, work
from commitlog.errors import AlreadyExists, IsADirectory, NotADirectory

__all__ = ["cat", "get", "getmerge", "head", "tail"]

R = TypeVar("R")

#: The number of bytes that "head" and "tail" show by default, as in Hadoop.
_SHOWN = 1024


@click.command()
@urls_argument
@namespace_options
def cat(connection: Connection, urls: tuple[str, ...]) -> None:
    """Write files to standard output, one after the other. Stop at the first that cannot be read.

    \b
    Example:
      commitlog fs cat commitlog://lake/a.csv
    """
    trials = Trials()
    for url in urls:
        with trials.of(url):
            for each in found(connection, url):
                with trials.of(each.url):
                    _print(each)
                if trials.failures:
                    break
        if trials.failures:
            break
    trials.end()


def _bytes_option(command: Callable[..., R]) -> Callable[..., R]:
    return click.option(
        "--bytes",
        "size",
        type=click.IntRange(min=0),
        default=_SHOWN,
        show_default=True,
        help="How many bytes to write.",
    )(command)


@click.command()
@urls_argument
@_bytes_option
@namespace_options
def head(connection: Connection, urls: tuple[str, ...], size: int) -> None:
    """Write the first bytes of files to standard output. Only these bytes are read.

    \b
    Example:
      commitlog fs head --bytes 100 commitlog://lake/a.csv
    """
    _write_parts(connection, urls, lambda total: (0, min(size, total)))


@click.command()
@urls_argument
@_bytes_option
@namespace_options
def tail(connection: Connection, urls: tuple[str, ...], size: int) -> None:
    """Write the last bytes of files to standard output. Only these bytes are read.

    Files are written once, so there is no option to follow a growing file.

    \b
    Example:
      commitlog fs tail commitlog://lake/a.csv
    """
    _write_parts(connection, urls, lambda total: (max(0, total - size), total))


def _write_parts(
    connection: Connection, urls: tuple[str, ...], part: Callable[[int], tuple[int, int]]
) -> None:
    trials = Trials()
    for url in urls:
        with trials.of(url):
            for each in found(connection, url):
                with trials.of(each.url):
                    for chunk in chunks_of(each.namespace, _file(each).path, part):
                        sys.stdout.buffer.write(chunk)
                    sys.stdout.buffer.flush()
    trials.end()


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.argument("local")
@click.option("-nl", "--newline", is_flag=True, help="Put a line end behind each file.")
@click.option("-skip-empty-file", "--skip-empty", is_flag=True, help="Leave empty files out.")
@click.option("-f", "--force", is_flag=True, help="Replace LOCAL.")
@namespace_options
def getmerge(
    connection: Connection,
    urls: tuple[str, ...],
    local: str,
    newline: bool,
    skip_empty: bool,
    force: bool,
) -> None:
    """Download files, and the files directly in directories, into one file LOCAL.

    The files are joined in the order of the URLs; the files of a directory are sorted by name. LOCAL
    appears when it is complete; "-" is standard output.

    \b
    Example:
      commitlog fs getmerge commitlog://lake/events events.csv
    """
    sources = [each for url in urls for each in found(connection, url)]
    if local != "-" and not force and os.path.lexists(local):
        raise AlreadyExists(f"{local!r} exists already; --force replaces it")
    with nullcontext(sys.stdout.buffer) if local == "-" else arriving(local, absent=not force) as target:
        for each in sources:
            files = each.namespace.list(each.path) if each.is_directory else iter([each.known])
            for status in files:
                if status.is_directory or (skip_empty and not status.size):
                    continue
                for chunk in chunks_of(each.namespace, status.path):
                    target.write(chunk)
                if newline:
                    target.write(b"\n")
        target.flush()


def _file(at: Found) -> Found:
    if at.is_directory:
        raise IsADirectory(f"{at.url} is a directory")
    return at


def _print(at: Found) -> None:
    size = _file(at).known.size
    with click.progressbar(
        length=size,
        label="reading",
        file=progress_file(hidden=size < PIECE or sys.stdout.isatty() or not sys.stderr.isatty()),
    ) as bar:
        for chunk in chunks_of(at.namespace, at.path):
            sys.stdout.buffer.write(chunk)
            bar.update(len(chunk))
    sys.stdout.buffer.flush()


@click.command()
@click.argument("urls", metavar="URL... LOCAL", nargs=-1, required=True)
@click.option("-f", "--force", is_flag=True, help="Replace files that are there.")
@exact_option
@threads_option
@json_option
@namespace_options
def get(
    connection: Connection,
    urls: tuple[str, ...],
    force: bool,
    exact: bool,
    threads: int,
    json: bool,
) -> None:
    """Download files, and directories with their contents, to LOCAL.

    If LOCAL is a directory, they are downloaded into it; with --no-target-directory, LOCAL receives the
    contents of the directory. "-" is standard output. With a single URL and no LOCAL, the target is the
    working directory.

    A file appears when it is complete. Existing files are replaced only with --force. Several files are
    downloaded concurrently (--threads).

    A file that cannot be downloaded is reported, and the others continue. If 8 in a row fail for a
    reason that is not specific to the file, the command does not try the rest. If it ends early, it
    prints the command to run for the rest.

    \b
    Example:
      commitlog fs get commitlog://lake/events events
    """
    *sources, local = urls if len(urls) > 1 else (*urls, ".")
    if local.startswith("commitlog://"):
        raise click.UsageError(f"{local} is not on this machine: the last argument is where to")
    trials = Trials()
    headway = Headway()
    with headway.told(trials):
        trees: list[Tree] = []
        for url in sources:
            with trials.of(url):
                for each in found(connection, url):
                    if local == "-":
                        _print(each)
                    else:
                        trees.append(remote_tree(each))
        if trees:
            several = max(len(trees), len(sources)) > 1
            _fetch(
                trees,
                local,
                trials,
                headway,
                force=force,
                exact=exact,
                several=several,
                threads=threads,
                json=json,
            )
    trials.end()


def _fetch(
    trees: list[Tree],
    local: str,
    trials: Trials,
    headway: Headway,
    *,
    force: bool,
    exact: bool,
    several: bool,
    threads: int,
    json: bool,
) -> None:
    into = os.path.isdir(local)
    if exact and several:
        raise click.UsageError("--no-target-directory takes one URL, which goes to LOCAL itself")
    if several and not into:
        raise NotADirectory(f"several sources go into a directory, and {local!r} is none")
    if exact and into and not trees[0].is_directory:
        raise IsADirectory(f"{local!r} is a directory")
    goals: list[tuple[Tree, str]] = []
    taken = Goals()
    for tree in trees:
        with trials.of(tree.shown):
            at = os.path.join(local, tree.name) if into and not exact else local
            taken.take(at, tree.shown)
            goals.append((tree, at))
    say_how_to_go_on(
        headway,
        f"downloaded to {goals[0][1] if len(goals) == 1 else local}",
        [tree for tree, _ in goals],
        force=force,
        into=into or exact,
    )

    def tell(saved: tuple[str, str]) -> None:
        if json:
            url, file = saved
            print_json({"url": url, "file": file, "size": os.path.getsize(file)})

    work(
        chain.from_iterable(_fetched(tree, goal, trials, headway, force=force) for tree, goal in goals),
        trials,
        label="downloading",
        length=lambda: sum(tree.effort() for tree in trees),
        threads=threads,
        done=tell,
        headway=headway,
    )


def _fetched(tree: Tree, goal: str, trials: Trials, headway: Headway, *, force: bool) -> Iterator[Job]:
    headway.check()
    with trials.of(tree.shown), headway.of(tree.shown):
        for piece in tree.pieces():
            at = os.path.join(goal, piece.path) if piece.path else goal
            if piece.chunks is not None:
                yield Job(what=piece.shown, do=partial(_save, piece.shown, at, piece.chunks, force))
            elif not os.path.isdir(at):
                with directory_of(piece, trials):
                    os.mkdir(at)
                    headway.came(files=0)


def _save(
    url: str, file: str, chunks: Callable[[], Iterator[bytes]], force: bool, advance: Advance
) -> tuple[str, str]:
    if not force and os.path.lexists(file):
        raise AlreadyExists(f"{file!r} exists already; --force replaces it")
    with arriving(file, absent=not force) as target:
        for chunk in chunks():
            target.write(chunk)
            advance(len(chunk))
    return url, file
