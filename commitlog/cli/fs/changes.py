"""The commands ``fs mv``, ``rm``, ``rmdir``, ``mkdir`` and ``touch``: changes of names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from commitlog.cli.connection import Connection, grace_option, namespace_options
from commitlog.cli.exit_status import FailureCollector
from commitlog.cli.fs.paths import Match, Targets, is_container, matches, path_of, urls_argument
from commitlog.cli.fs.status import status_record
from commitlog.cli.output import dry_run_option, json_option, print_json, print_plan, printable
from commitlog.cli.parameters import MOMENT
from commitlog.cli.progress import FileOperation, Progress, run_jobs, threads_option
from commitlog.clock import SystemClock
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
)
from commitlog.transfer import Advance, NamespacePath

if TYPE_CHECKING:
    from commitlog.namespace import Status

__all__ = ["mkdir", "mv", "rm", "rmdir", "touch"]


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.argument("target", metavar="TARGET")
@click.option("-f", "--force", is_flag=True, help="Replace a file or an empty directory.")
@click.option(
    "--replace",
    is_flag=True,
    help="Replace the directory TARGET, which goes to the trash with its contents.",
)
@click.option(
    "-r",
    "-R",
    "--recursive",
    is_flag=True,
    expose_value=False,
    help="Ignored: directories are always moved with their contents.",
)
@dry_run_option
@json_option
@namespace_options
def mv(
    connection: Connection,
    urls: tuple[str, ...],
    target: str,
    force: bool,
    replace: bool,
    dry_run: bool,
    json: bool,
) -> None:
    """Move files and directories to TARGET.

    Each file or directory moves in one step, however much it contains. If TARGET is a directory, they
    move into it. With --replace, the directory TARGET is replaced: readers see either the old directory
    or the new one, complete.

    \b
    Example:
      commitlog fs mv commitlog://lake/staging commitlog://lake/events
    """
    failures = FailureCollector()
    top = path_of(connection, target)
    sources: list[Match] = []
    for url in urls:
        with failures.collect(url):
            sources.extend(matches(connection, url))
    if replace and len(sources) > 1:
        raise click.UsageError("--replace takes one source, which replaces TARGET")
    several = max(len(sources), len(urls)) > 1
    into = bool(sources) and is_container(top, several=several) and not replace
    targets = Targets()
    for each in sources:
        with failures.collect(each.url):
            at = top.below(each.name) if into and each.name else top
            targets.add(at.url, each.url)
            _check_same(each, at)
            if dry_run:
                print_plan("move", each.url, at.url, json=json)
                continue
            if replace:
                status = each.namespace.replace(each.path, at.path)
            else:
                status = _rename(each, at, force=force)
            if json:
                print_json(status_record(at.namespace, status))
    failures.exit()


def _rename(source: NamespacePath, target: NamespacePath, *, force: bool) -> Status:
    try:
        return source.namespace.rename(source.path, target.path, overwrite=force)
    except AlreadyExists as error:
        if force:
            raise
        raise AlreadyExists(f"{error}; --force replaces a file or an empty directory") from None


def _check_same(source: NamespacePath, target: NamespacePath) -> None:
    if source.namespace is not target.namespace:
        raise ConfigurationError(
            f"{target.url} is in another namespace: copy it there, then remove it here"
        )


@click.command()
@urls_argument
@click.option("-r", "-R", "--recursive", is_flag=True, help="Remove directories with their contents.")
@click.option("-f", "--force", is_flag=True, help="Ignore files that do not exist.")
@click.option(
    "-skipTrash",
    "--skip-trash",
    is_flag=True,
    expose_value=False,
    help="Ignored: removed files cannot be restored in either case.",
)
@grace_option
@threads_option
@dry_run_option
@json_option
@namespace_options
def rm(
    connection: Connection,
    urls: tuple[str, ...],
    recursive: bool,
    force: bool,
    threads: int,
    dry_run: bool,
    json: bool,
) -> None:
    """Remove files and, with --recursive, directories.

    Each file or directory is removed in one step, however much it contains. The matches of a pattern are
    removed several at a time. If 8 in a row fail for a reason that is not specific to the file, the
    command does not try the rest.

    The content is kept for a while for current readers; "namespace gc" frees the space.

    \b
    Example:
      commitlog fs rm -r commitlog://lake/staging
    """
    failures = FailureCollector()
    progress = Progress(
        "files and directories were removed",
        resume="run the same command" if force else "run the same command with --force",
    )
    missing = contextlib.suppress(NotFound) if force else contextlib.nullcontext()

    def remove(each: Match, _: Advance) -> Match | None:
        with missing:
            _remove(each, recursive=recursive, dry_run=dry_run)
            return each
        return None

    def show(removed: Match | None) -> None:
        if removed is not None:
            _show_removed(removed, dry_run=dry_run, json=json)

    def jobs(url: str) -> Iterator[FileOperation]:
        for each in matches(connection, url):
            yield FileOperation(name=each.url, run=partial(remove, each))

    with progress.reported(failures):
        for url in urls:
            progress.check()
            with failures.collect(url), progress.step(url):
                path_of(connection, url)  # a missing namespace is an error even with --force
                with missing:
                    run_jobs(
                        jobs(url),
                        failures,
                        label="removing",
                        effort=lambda: 0,
                        threads=threads,
                        done=show,
                        progress=progress,
                    )
    failures.exit()


def _remove(at: Match, *, recursive: bool, dry_run: bool) -> None:
    """Remove a file or directory, or only check whether it could be removed."""
    if not at.path:
        raise InvalidPath(
            "the root of a namespace cannot be removed; remove its contents: commitlog://…/*"
        )
    if at.is_directory and not recursive:
        raise IsADirectory("it is a directory: --recursive removes it with its contents")
    if not dry_run:
        at.namespace.delete(at.path, recursive=at.is_directory)


def _show_removed(at: Match, *, dry_run: bool, json: bool) -> None:
    if dry_run and json:
        print_plan("remove", at.url, json=True)
    elif json:
        print_json({"url": at.url, "type": "directory" if at.is_directory else "file", "removed": True})
    else:
        contents = " with its contents" if at.is_directory else ""
        line = f"{'would remove' if dry_run else 'removed'} {printable(at.url)}{contents}"
        if at.is_directory and not dry_run:
            line += f"; 'commitlog namespace gc {at.namespace.name}' frees the space"
        click.echo(line)


@click.command()
@urls_argument
@json_option
@namespace_options
def rmdir(connection: Connection, urls: tuple[str, ...], json: bool) -> None:
    """Remove empty directories. A directory with contents is an error and is not removed.

    \b
    Example:
      commitlog fs rmdir commitlog://lake/empty
    """
    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            for each in matches(connection, url):
                if not each.is_directory:
                    raise NotADirectory(f"{each.url} is a file")
                each.namespace.delete(each.path)
                if json:
                    print_json({"url": each.url, "type": "directory", "removed": True})
    failures.exit()


@click.command()
@urls_argument
@click.option(
    "-p", "--parents", is_flag=True, help="Make missing parents, and ignore existing directories."
)
@json_option
@namespace_options
def mkdir(connection: Connection, urls: tuple[str, ...], parents: bool, json: bool) -> None:
    """Make directories.

    Without --parents, only one of several clients that make the same directory succeeds. With --parents,
    about thirty missing levels are made in one step, and more in several steps.

    \b
    Example:
      commitlog fs mkdir -p commitlog://lake/a/b
    """
    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            at = path_of(connection, url)
            if parents:
                status = at.namespace.make_directory(at.path, atomic=False)
            else:
                status = at.namespace.make_directory(at.path, exist_ok=False, parents=False)
            if json:
                print_json(status_record(at.namespace, status))
    failures.exit()


@click.command()
@urls_argument
@click.option("-c", "--no-create", is_flag=True, help="Do not make missing files.")
@click.option("-t", "--time", type=MOMENT, help="Modification time; by default now.")
@json_option
@namespace_options
def touch(
    connection: Connection, urls: tuple[str, ...], no_create: bool, time: int | None, json: bool
) -> None:
    """Set the modification time of files. Make an empty file where none exists.

    \b
    Example:
      commitlog fs touch commitlog://lake/_SUCCESS
    """
    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            at = path_of(connection, url)
            status = _touch(at, time, create=not no_create)
            if json and status is not None:
                print_json(status_record(at.namespace, status))
    failures.exit()


def _touch(at: NamespacePath, time: int | None, *, create: bool) -> Status | None:
    modified = int(SystemClock().epoch() * 1000) if time is None else time
    if at.status() is None:
        if not create:
            return None
        try:
            made = at.namespace.write(at.path, b"", overwrite=False, parents=False)
        except AlreadyExists:  # another client was faster
            pass
        else:
            if time is None:
                return made
    return at.namespace.set_attributes(at.path, modified=modified)
