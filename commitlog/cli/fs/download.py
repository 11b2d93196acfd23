"""The commands ``fs cat``, ``tail`` and ``get``, which read content."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from functools import partial
from itertools import chain

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import FailureCollector
from commitlog.cli.file_io import atomic_file
from commitlog.cli.fs.paths import Match, Targets, matches, urls_argument
from commitlog.cli.fs.resume import advise_resume, exact_option
from commitlog.cli.fs.sources import TreeSource, namespace_source, read_file
from commitlog.cli.output import json_option, print_json, progress_file
from commitlog.cli.progress import FileOperation, Progress, run_jobs, threads_option
from commitlog.errors import AlreadyExists, IsADirectory, NotADirectory
from commitlog.stores.body import write_block
from commitlog.transfer import BLOCK_SIZE, Advance

__all__ = ["cat", "get", "tail"]

#: The number of bytes that "tail" writes by default, as in Hadoop.
_DEFAULT_BYTES = 1024


@click.command()
@urls_argument
@namespace_options
def cat(connection: Connection, urls: tuple[str, ...]) -> None:
    """Write files to standard output, one after the other. Stop at the first that cannot be read.

    \b
    Example:
      commitlog fs cat commitlog://lake/a.csv
    """
    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            for each in matches(connection, url):
                with failures.collect(each.url):
                    _print(each)
                if failures.count:
                    break
        if failures.count:
            break
    failures.exit()


@click.command()
@urls_argument
@click.option(
    "--bytes",
    "size",
    type=click.IntRange(min=0),
    default=_DEFAULT_BYTES,
    show_default=True,
    help="Number of bytes to write.",
)
@namespace_options
def tail(connection: Connection, urls: tuple[str, ...], size: int) -> None:
    """Write the last bytes of files to standard output. Only these bytes are read.

    Files are written once, so there is no option to follow a growing file.

    \b
    Example:
      commitlog fs tail commitlog://lake/a.csv
    """

    def part(total: int) -> tuple[int, int]:
        return max(0, total - size), total

    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            for each in matches(connection, url):
                with failures.collect(each.url):
                    with closing(read_file(each.namespace, _file(each).path, part)) as blocks:
                        for block in blocks:
                            sys.stdout.buffer.write(block)
                    sys.stdout.buffer.flush()
    failures.exit()


def _file(at: Match) -> Match:
    if at.is_directory:
        raise IsADirectory(f"{at.url} is a directory")
    return at


def _print(at: Match) -> None:
    size = _file(at).matched.size
    with (
        click.progressbar(
            length=size,
            label="reading",
            file=progress_file(
                hidden=size < BLOCK_SIZE or sys.stdout.isatty() or not sys.stderr.isatty()
            ),
        ) as bar,
        closing(read_file(at.namespace, at.path, ramp_up=True)) as blocks,
    ):
        for block in blocks:
            sys.stdout.buffer.write(block)
            bar.update(len(block))
    sys.stdout.buffer.flush()


@click.command()
@click.argument("urls", metavar="URL... LOCAL", nargs=-1, required=True)
@click.option("-f", "--force", is_flag=True, help="Replace existing files.")
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
    *remote, local = urls if len(urls) > 1 else (*urls, ".")
    if local.startswith("commitlog://"):
        raise click.UsageError(f"{local} is not a local path: the last argument is the target")
    failures = FailureCollector()
    progress = Progress()
    with progress.reported(failures):
        sources: list[TreeSource] = []
        for url in remote:
            with failures.collect(url):
                for each in matches(connection, url):
                    if local == "-":
                        _print(each)
                    else:
                        sources.append(namespace_source(each))
        if sources:
            several = max(len(sources), len(remote)) > 1
            _download(
                sources,
                local,
                failures,
                progress,
                force=force,
                exact=exact,
                several=several,
                threads=threads,
                json=json,
            )
    failures.exit()


def _download(
    sources: list[TreeSource],
    local: str,
    failures: FailureCollector,
    progress: Progress,
    *,
    force: bool,
    exact: bool,
    several: bool,
    threads: int,
    json: bool,
) -> None:
    into = os.path.isdir(local)
    if exact and several:
        raise click.UsageError("--no-target-directory takes one URL, which is copied to LOCAL itself")
    if several and not into:
        raise NotADirectory(f"{local!r} is not a directory: several sources need a directory")
    if exact and into and not sources[0].is_directory:
        raise IsADirectory(f"{local!r} is a directory")
    planned: list[tuple[TreeSource, str]] = []
    targets = Targets()
    for source in sources:
        with failures.collect(source.name):
            target = os.path.join(local, source.target_name) if into and not exact else local
            targets.add(target, source.name)
            planned.append((source, target))
    advise_resume(
        progress,
        f"downloaded to {planned[0][1] if len(planned) == 1 else local}",
        [source for source, _ in planned],
        force=force,
        into=into or exact,
    )

    def show(saved: tuple[str, str]) -> None:
        if json:
            url, file = saved
            print_json({"url": url, "file": file, "size": os.path.getsize(file)})

    run_jobs(
        chain.from_iterable(
            _jobs(source, target, failures, progress, force=force) for source, target in planned
        ),
        failures,
        label="downloading",
        effort=lambda: sum(source.effort() for source in sources),
        threads=threads,
        done=show,
        progress=progress,
    )


def _jobs(
    source: TreeSource, target: str, failures: FailureCollector, progress: Progress, *, force: bool
) -> Iterator[FileOperation]:
    progress.check()
    with failures.collect(source.name), progress.step(source.name):
        for item in source.items():
            at = os.path.join(target, item.path) if item.path else target
            if item.blocks is not None:
                yield FileOperation(
                    name=item.name, run=partial(_save, item.name, at, item.blocks, force)
                )
            elif not os.path.isdir(at):
                # If the top directory fails, its contents are not tried.
                with failures.collect(item.name, part=True) if item.path else nullcontext():
                    os.mkdir(at)
                    progress.succeed(files=0)


def _save(
    url: str, file: str, open_blocks: Callable[[], Generator[bytes]], force: bool, advance: Advance
) -> tuple[str, str]:
    if not force and os.path.lexists(file):
        raise AlreadyExists(f"{file!r} already exists; --force replaces it")
    with atomic_file(file, absent=not force) as target, closing(open_blocks()) as blocks:
        for block in blocks:
            advance(write_block(target, block))
    return url, file
