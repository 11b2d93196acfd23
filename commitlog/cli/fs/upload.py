"""The commands ``fs put`` and ``fs cp``, which write content to a namespace.

A file appears when it is complete. The files of a directory appear one by one, or all at once on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from attrs import evolve, frozen

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import FailureCollector
from commitlog.cli.fs.paths import Targets, is_container, matches, path_of
from commitlog.cli.fs.resume import advise_resume, exact_option
from commitlog.cli.fs.sources import TreeSource, local_source, namespace_source, standard_input
from commitlog.cli.fs.tree_upload import FileUpload, advised, upload_whole
from commitlog.cli.output import dry_run_option, json_option, print_plan
from commitlog.cli.progress import Progress, threads_option
from commitlog.errors import AlreadyExists, InvalidPath, IsADirectory
from commitlog.transfer import NamespacePath

__all__ = ["cp", "put"]

R = TypeVar("R")


def _upload_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that both commands have, the attributes of `_Options`, to `command`."""
    options: list[Any] = [
        click.option("-f", "--force", is_flag=True, help="Replace existing files."),
        exact_option,
        click.option("--atomic", is_flag=True, help="Let a directory appear as a whole, in one step."),
        click.option(
            "--replace",
            is_flag=True,
            help="Like --atomic, and replace an existing directory, which goes to the trash.",
        ),
        threads_option,
        dry_run_option,
        json_option,
        namespace_options,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@frozen(kw_only=True)
class _Options:
    """The options of both commands."""

    force: bool
    exact: bool
    atomic: bool
    replace: bool
    threads: int
    dry_run: bool
    json: bool

    @property
    def whole(self) -> bool:
        """Whether a directory appears as a whole."""
        return self.atomic or self.replace


@frozen(kw_only=True)
class _Verb:
    """The verb for a command in messages: "upload", "uploading", "uploaded"."""

    infinitive: str
    progressive: str
    participle: str


_UPLOAD = _Verb(infinitive="upload", progressive="uploading", participle="uploaded")
_COPY = _Verb(infinitive="copy", progressive="copying", participle="copied")


@click.command()
@click.argument("sources", metavar="LOCAL...", nargs=-1, required=True)
@click.argument("url")
@_upload_options
def put(connection: Connection, sources: tuple[str, ...], url: str, **options: Any) -> None:
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
    failures = FailureCollector()
    progress = Progress()
    with progress.reported(failures):
        found: list[TreeSource] = []
        for each in sources:
            with failures.collect(each):
                found.append(standard_input() if each == "-" else local_source(each, failures))
        target = path_of(connection, url)
        several = len(sources) > 1
        _upload(found, target, failures, progress, _UPLOAD, _Options(**options), several=several)
    failures.exit()


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.argument("target", metavar="TARGET")
@click.option(
    "-r",
    "-R",
    "--recursive",
    is_flag=True,
    expose_value=False,
    help="Ignored: copies are always recursive.",
)
@_upload_options
def cp(connection: Connection, urls: tuple[str, ...], target: str, **options: Any) -> None:
    """Copy files, and directories with their contents, to TARGET, in any namespace.

    Within a namespace, the store copies the content of files up to 5 GiB; other content is downloaded
    and uploaded by this machine. In all other respects the command works like "put".

    \b
    Example:
      commitlog fs cp commitlog://lake/a commitlog://lake/b
    """
    failures = FailureCollector()
    progress = Progress()
    with progress.reported(failures):
        top = path_of(connection, target)
        found: list[TreeSource] = []
        for url in urls:
            with failures.collect(url):
                for each in matches(connection, url):
                    if top.namespace is each.namespace and _is_at_or_below(top.path, each.path):
                        raise InvalidPath(f"{top.url} is the source of the copy, or in it")
                    found.append(namespace_source(each))
        several = max(len(urls), len(found)) > 1
        _upload(found, top, failures, progress, _COPY, _Options(**options), several=several)
    failures.exit()


def _is_at_or_below(path: str, top: str) -> bool:
    return not top or f"{path}/".startswith(f"{top}/")


def _upload(
    sources: list[TreeSource],
    top: NamespacePath,
    failures: FailureCollector,
    progress: Progress,
    verb: _Verb,
    options: _Options,
    *,
    several: bool,
) -> None:
    if not sources:
        return
    planned, into = _plan(sources, top, failures, options, several=several)
    if options.dry_run:
        for source, target in planned:
            with failures.collect(source.name):
                _print_plan(source, target, verb, options)
        return
    if options.whole:
        progress.silent = True  # upload_whole reports each directory itself
        for source, target in planned:
            with failures.collect(source.name):
                upload_whole(
                    source,
                    target,
                    failures,
                    label=verb.progressive,
                    threads=options.threads,
                    replace=options.replace,
                    json=options.json,
                )
        return
    advise_resume(
        progress,
        f"{verb.participle} to {planned[0][1].url if len(planned) == 1 else top.url}",
        [source for source, _ in planned],
        force=options.force,
        into=into or options.exact,
    )
    FileUpload(
        failures=failures,
        progress=progress,
        label=verb.progressive,
        force=options.force,
        threads=options.threads,
        json=options.json,
    ).run(planned)


def _plan(
    sources: list[TreeSource],
    top: NamespacePath,
    failures: FailureCollector,
    options: _Options,
    *,
    several: bool,
) -> tuple[list[tuple[TreeSource, NamespacePath]], bool]:
    """Return the target of each source, and whether the sources go into the directory `top`."""
    if options.whole and not all(source.is_directory for source in sources):
        raise click.UsageError("--atomic and --replace take directories: a file is always atomic")
    if options.replace and several:
        raise click.UsageError("--replace takes one source, which replaces URL")
    if options.exact and several:
        raise click.UsageError("--no-target-directory takes one source, which is copied to URL itself")
    if options.exact and sources[0].is_directory:
        top = evolve(top, directory_only=False)
    into = is_container(top, several=several) and not (options.exact or options.replace)
    if into and not all(source.target_name or source.is_directory for source in sources):
        raise IsADirectory(f"{top.url} is a directory: give a name for the content of standard input")
    planned: list[tuple[TreeSource, NamespacePath]] = []
    targets = Targets()
    for source in sources:
        with failures.collect(source.name):
            target = top.below(source.target_name) if into and source.target_name else top
            targets.add(target.url, source.name)
            planned.append((source, target))
    return planned, into


def _print_plan(source: TreeSource, top: NamespacePath, verb: _Verb, options: _Options) -> None:
    """Print each file that would be made. Raises `AlreadyExists` where the upload would."""
    if options.atomic and not options.replace and top.status() is not None:
        raise AlreadyExists(f"{top.url} already exists; --replace replaces it")
    for item in source.items():
        if item.blocks is None:
            continue
        target = top.below(item.path) if item.path else top
        if not options.force and not options.whole and target.status() is not None:
            raise advised(AlreadyExists(f"{target.url} already exists"), force=False)
        print_plan(verb.infinitive, item.name, target.url, json=options.json)
