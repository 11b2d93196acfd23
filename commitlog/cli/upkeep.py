"""The commands ``namespace clean``, ``recover`` and ``compact``: what is to be done now and then."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exits import Exit, complain, message_of
from commitlog.cli.recover import Seconds
from commitlog.cli.show import duration, json_option, moment, print_json, readable
from commitlog.errors import CommitError
from commitlog.namespace import Collected, Compacted, Swept, abort_uploads, sweep_staging

__all__ = ["clean", "compact", "counted", "grace_option", "recover"]

R = TypeVar("R")


@contextmanager
def counted(label: str) -> Iterator[Callable[[int], object]]:
    """Count on a terminal what was done; give what is to be told how much that is so far."""
    with click.progressbar(
        itertools.count(),
        label=label,
        bar_template="%(label)s: %(info)s",
        show_pos=True,
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
    ) as bar:
        yield lambda done: bar.update(done - bar.pos)


def grace_option(command: Callable[..., R]) -> Callable[..., R]:
    """Give `command` the option that says how long content is kept that is not needed any more."""
    return click.option(
        "--grace",
        type=Seconds(),
        default="1h",
        show_default=True,
        help="How long content of files is kept after them, for those who are reading it.",
    )(command)


@click.command(short_help="Free the space of what was removed.")
@click.argument("name")
@grace_option
@json_option
@namespace_options
def clean(connection: Connection, name: str, json: bool) -> None:
    """Empty the trash of the namespace NAME, and remove the content that nothing names any more.

    Jobs that were begun a week ago, and never published, are given up first, and last the uploads of
    that age, which writers that died have left.

    Content goes when its time has come: --grace after its file was overwritten or removed, or after its
    directory was taken out of the trash. So what was removed a moment ago is freed by a later run.

    Run it at any time, as often as you like, beside writers, readers and other runs: by cron. It can be
    broken off. What could not be removed is told, objects by their paths, files and directories in the
    trash by their ids, with status 1, and tried again next time.
    """
    lake = connection.namespace(name)
    abandoned = sweep_staging(lake)
    with counted("emptying the trash") as count:

        def swept_so_far(done: Swept) -> None:
            count(done.files + done.directories)

        swept = lake.sweep(swept_so_far)
    with counted("removing objects") as count:

        def collected_so_far(done: Collected) -> None:
            count(done.objects)

        collected = lake.collect(collected_so_far)
    uploads, failed = 0, [*swept.failed, *collected.failed]
    try:
        uploads = abort_uploads(lake)
    except CommitError as unfinished:  # listing them takes a permission that nothing else here does
        failed.append(("uploads", message_of(unfinished)))
    for what, error in failed:
        complain(error, what=what)
    if json:
        print_json(
            {
                "abandoned": abandoned,
                "files": swept.files,
                "directories": swept.directories,
                "objects": collected.objects,
                "bytes": collected.bytes,
                "uploads": uploads,
                "failed": [{"what": what, "error": error} for what, error in failed],
            }
        )
    else:
        if abandoned:
            click.echo(f"jobs given up: {abandoned}")
        click.echo(f"out of the trash: {swept.files} files, {swept.directories} directories")
        click.echo(f"objects removed: {collected.objects}, {readable(collected.bytes)}")
        if uploads:
            click.echo(f"uploads aborted: {uploads}")
    click.get_current_context().exit(Exit.FAILED if failed else Exit.DONE)


@click.command(short_help="Decide what clients that died left pending.")
@click.argument("name")
@click.option(
    "--older-than",
    type=Seconds(),
    default="1h",
    show_default=True,
    help="Age from which a change is taken for one that nobody is at work on.",
)
@json_option
@namespace_options
def recover(connection: Connection, name: str, older_than: float, json: bool) -> None:
    """Decide the changes that are pending in the log of the namespace NAME.

    A client that died between a change and its entry in the log has left it so. Nothing of the names or
    the content changes; the log then says what happened. Run it at any time, beside writers.
    """
    lake = connection.namespace(name)
    decided = lake.recover(older_than=older_than)
    for operation in decided:
        decision = operation.decision and operation.decision.value
        if json:
            print_json({"id": operation.id, "time": operation.time, "decision": decision})
        else:
            click.echo(f"{operation.id}  {moment(operation.time)}  {decision or 'pending'}")
    if not decided and not json:
        click.echo(f"nothing that is older than {duration(older_than)} is pending")


@click.command(short_help="Shorten the log.")
@click.argument("name")
@click.option(
    "--older-than",
    type=Seconds(),
    default="1d",
    show_default=True,
    help="Age from which decided changes are folded into the base.",
)
@json_option
@namespace_options
def compact(connection: Connection, name: str, older_than: float, json: bool) -> None:
    """Keep the log of the namespace NAME as short as the namespace is; it can be restored all the same.

    Run it now and then, beside writers: by cron. It can be broken off; of several runs at a time one
    goes on.
    """
    lake = connection.namespace(name)
    with counted("changes read, and files and directories kept") as count:

        def progress(so_far: Compacted) -> None:
            count(so_far.read + so_far.written)

        done = lake.compact_log(older_than=older_than, progress=progress)
    if json:
        print_json({"operations": done.operations, "states": done.states})
    else:
        click.echo(f"changes removed from the log: {done.operations}; states in its base: {done.states}")
