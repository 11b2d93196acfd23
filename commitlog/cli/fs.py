"""The commands ``fs …``: files and directories of namespaces, with the habits of ``hadoop fs``.

Those that list or copy are in files of their own; here are those that change names.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from functools import partial
from types import MappingProxyType

import click

from commitlog.absence import SuppressAbsent
from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exits import Trials
from commitlog.cli.fs_fetching import cat, get, getmerge, head, tail
from commitlog.cli.fs_listing import find, ls, test, tree
from commitlog.cli.fs_paths import LITERAL, Found, Goals, Spot, found, spot, urls_argument
from commitlog.cli.fs_sending import cp, put, target_of
from commitlog.cli.fs_stat import stat, status_record
from commitlog.cli.fs_usage import count, du
from commitlog.cli.headway import Headway
from commitlog.cli.show import dry_run_option, json_option, print_json, print_plan, printable
from commitlog.cli.upkeep import grace_option
from commitlog.cli.work import Advance, Job, threads_option, work
from commitlog.clock import SystemClock
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    InvalidPath,
    IsADirectory,
    NotADirectory,
)
from commitlog.namespace import Status, make_directories

__all__ = ["fs"]


#: Other names that Hadoop's shell has for commands.
_ALIASES = MappingProxyType({"copyFromLocal": "put", "copyToLocal": "get", "touchz": "touch"})

#: Commands of Hadoop's shell that there cannot be here, and why.
_WITHOUT = MappingProxyType(
    {
        **dict.fromkeys(
            ("chgrp", "chmod", "chown", "getfacl", "setfacl", "getfattr", "setfattr"),
            "namespaces have no owners and permissions of their own: the table and the store have them",
        ),
        **dict.fromkeys(
            ("appendToFile", "concat", "truncate"),
            "a file is content that was written once: write a new one",
        ),
        **dict.fromkeys(("setrep", "df", "checksum"), "how content is kept is up to the store"),
        **dict.fromkeys(
            ("createSnapshot", "deleteSnapshot", "renameSnapshot"), "namespaces have no snapshots"
        ),
        "expunge": "'commitlog namespace clean' empties the trash",
        "rmr": "say 'rm -r'",
        "lsr": "say 'ls -R'",
        "dus": "say 'du -s'",
    }
)


class _Shell(click.Group):
    """Takes the names of commands as Hadoop's shell does, too: with a dash before them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {each for parameter in self.params for each in parameter.opts}
        at = next((at for at, word in enumerate(args) if word not in flags), len(args))
        if at < len(args) and args[at].startswith("-") and not args[at].startswith("--"):
            name = args[at][1:]
            if name == "help":
                args = [*args[:at], *args[at + 1 :][:1], "--help"]
            elif self.get_command(ctx, name) is not None or name in _WITHOUT:
                args = [*args[:at], name, *args[at + 1 :]]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.removeprefix("-")
        return super().get_command(ctx, _ALIASES.get(name, name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _WITHOUT:
            raise click.UsageError(f"there is no command {args[0]!r}: {_WITHOUT[args[0]]}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Shell, short_help="Files and directories of namespaces.")
@click.option(
    "--literal", is_flag=True, help="Take URLs as they are, as 'ls -C' prints them: no patterns."
)
@click.pass_context
def fs(context: click.Context, literal: bool) -> None:
    """Work with the files and directories of namespaces: commitlog://NAMESPACE/PATH.

    What is looked for may have the patterns * ? [a-c] [^a-c] {a,b}, within a name; a backslash takes
    the next character for itself. Quote them, for the shell has its own.

    Commands may be written with a dash before them, as in "hadoop fs": "fs -ls -R URL".

    Every change is one transaction: it shows whole, or not at all.
    """
    context.meta[LITERAL] = literal


@fs.command(short_help="Move or rename files and directories.")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.argument("target", metavar="TARGET")
@click.option("-f", "--force", is_flag=True, help="Replace a file, or an empty directory.")
@click.option(
    "--replace",
    is_flag=True,
    help="Put a directory in the place of TARGET, which goes to the trash with all that is in it.",
)
@click.option(
    "-r", "-R", "--recursive", is_flag=True, expose_value=False, help="Directories move whole anyway."
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
    """Move files and directories to TARGET, each in one step, whatever is in it.

    If TARGET is a directory, they go into it, but for --replace: who looks at TARGET finds the one
    directory or the other, whole.
    """
    trials = Trials()
    goal = spot(connection, target)
    sources: list[Found] = []
    for url in urls:
        with trials.of(url):
            sources.extend(found(connection, url))
    if replace and len(sources) > 1:
        raise click.UsageError("--replace takes one source: TARGET is what it replaces")
    several = max(len(sources), len(urls)) > 1
    into = bool(sources) and target_of(goal, several=several) and not replace
    taken = Goals()
    for each in sources:
        with trials.of(each.url):
            at = goal.below(each.name) if into and each.name else goal
            taken.take(at.url, each.url)
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
    trials.end()


def _rename(source: Spot, target: Spot, *, force: bool) -> Status:
    try:
        return source.namespace.rename(source.path, target.path, overwrite=force)
    except AlreadyExists as error:
        if force:
            raise
        raise AlreadyExists(f"{error}; --force replaces a file, or an empty directory") from None


def _check_same(source: Spot, target: Spot) -> None:
    if source.namespace is not target.namespace:
        raise ConfigurationError(
            f"{target.url} is in another namespace: copy it there, and remove it here"
        )


@fs.command(short_help="Remove files and directories.")
@urls_argument
@click.option(
    "-r", "-R", "--recursive", is_flag=True, help="Remove directories with all that is in them."
)
@click.option("-f", "--force", is_flag=True, help="What is not there is no error.")
@click.option(
    "-skipTrash",
    "--skip-trash",
    is_flag=True,
    expose_value=False,
    help="Taken, and changes nothing: what was removed cannot be got back in either case.",
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
    """Remove files and, with --recursive, directories, each in one step, whatever is in it.

    Of what a pattern finds, several go at a time; if 8 in a row fail, and not for what they are, the
    rest is not tried. Their content is kept for a while for those who are reading it: "namespace clean"
    frees the space.
    """
    trials = Trials()
    headway = Headway(
        "files and directories were removed",
        go_on="the same command" if force else "the same command with --force",
    )
    missing = SuppressAbsent() if force else contextlib.nullcontext()

    def remove(each: Found, _: Advance) -> Found | None:
        with missing:
            _remove(each, recursive=recursive, dry_run=dry_run)
            return each
        return None

    def tell(removed: Found | None) -> None:
        if removed is not None:
            _tell_removed(removed, dry_run=dry_run, json=json)

    def jobs(url: str) -> Iterator[Job]:
        for each in found(connection, url):
            yield Job(what=each.url, do=partial(remove, each))

    with headway.told(trials):
        for url in urls:
            headway.check()
            with trials.of(url), headway.of(url):
                spot(connection, url)  # a namespace that is not there is an error all the same
                with missing:
                    work(
                        jobs(url),
                        trials,
                        label="removing",
                        length=lambda: 0,
                        threads=threads,
                        done=tell,
                        headway=headway,
                    )
    trials.end()


def _remove(at: Found, *, recursive: bool, dry_run: bool) -> None:
    """Remove it, or only find out whether it would be removed."""
    if not at.path:
        raise InvalidPath(
            "the root of a namespace cannot be removed; what is in it can: commitlog://…/*"
        )
    if at.is_directory and not recursive:
        raise IsADirectory("it is a directory: --recursive removes it with all that is in it")
    if not dry_run:
        at.namespace.delete(at.path, recursive=at.is_directory)


def _tell_removed(at: Found, *, dry_run: bool, json: bool) -> None:
    if dry_run and json:
        print_plan("remove", at.url, json=True)
    elif json:
        print_json({"url": at.url, "type": "directory" if at.is_directory else "file", "removed": True})
    else:
        whole = " and all in it" if at.is_directory else ""
        line = f"{'would remove' if dry_run else 'removed'} {printable(at.url)}{whole}"
        if at.is_directory and not dry_run:
            line += f"; 'commitlog namespace clean {at.namespace.name}' frees the space"
        click.echo(line)


@fs.command(short_help="Remove empty directories.")
@urls_argument
@json_option
@namespace_options
def rmdir(connection: Connection, urls: tuple[str, ...], json: bool) -> None:
    """Remove empty directories; one that has anything is an error, and stays."""
    trials = Trials()
    for url in urls:
        with trials.of(url):
            for each in found(connection, url):
                if not each.is_directory:
                    raise NotADirectory(f"{each.url} is a file")
                each.namespace.delete(each.path)
                if json:
                    print_json({"url": each.url, "type": "directory", "removed": True})
    trials.end()


@fs.command(short_help="Make directories.")
@urls_argument
@click.option("-p", "--parents", is_flag=True, help="Those above, too; one that is there is no error.")
@json_option
@namespace_options
def mkdir(connection: Connection, urls: tuple[str, ...], parents: bool, json: bool) -> None:
    """Make directories. Without --parents, of those who make the same one only one succeeds.

    With it, some thirty levels that are missing are made at once, and more of them one after the other.
    """
    trials = Trials()
    for url in urls:
        with trials.of(url):
            at = spot(connection, url)
            if parents:
                status = make_directories(at.namespace, at.path)
            else:
                status = at.namespace.make_directory(at.path, exist_ok=False, parents=False)
            if json:
                print_json(status_record(at.namespace, status))
    trials.end()


class _Moment(click.ParamType[int]):
    """A moment, in epoch milliseconds: ISO 8601, in UTC unless it says otherwise."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return `value` in milliseconds."""
        if isinstance(value, int):
            return value
        try:
            # Takes any character before the time, as in yyyyMMdd:HHmmss, which Hadoop writes.
            time = datetime.datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time: write 2026-11-21T08:00:00Z", param, ctx)
        utc = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
        if utc.timestamp() < 0:
            self.fail(f"{value!r} is before 1970", param, ctx)
        return int(utc.timestamp() * 1000)


@fs.command(short_help="Make empty files, or date files anew.")
@urls_argument
@click.option("-c", "--no-create", is_flag=True, help="Make no file.")
@click.option("-t", "--time", type=_Moment(), help="Time of modification, instead of now.")
@json_option
@namespace_options
def touch(
    connection: Connection, urls: tuple[str, ...], no_create: bool, time: int | None, json: bool
) -> None:
    """Set the time of modification; where nothing is, make an empty file."""
    trials = Trials()
    for url in urls:
        with trials.of(url):
            at = spot(connection, url)
            status = _touch(at, time, create=not no_create)
            if json and status is not None:
                print_json(status_record(at.namespace, status))
    trials.end()


def _touch(at: Spot, time: int | None, *, create: bool) -> Status | None:
    modified = int(SystemClock().epoch() * 1000) if time is None else time
    if at.status() is None:
        if not create:
            return None
        try:
            made = at.namespace.write(at.path, b"", overwrite=False, parents=False)
        except AlreadyExists:  # somebody was faster
            pass
        else:
            if time is None:
                return made
    return at.namespace.set_attributes(at.path, modified=modified)


for _command in (ls, cat, put, get, stat, test, du, tree, cp, count, find, getmerge, head, tail):
    fs.add_command(_command)
