"""The command ``lock``: runs another command while it holds a lock, as flock(1) does."""

from __future__ import annotations

import os
import socket
from typing import Any

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exit_status import Exit, print_error
from commitlog.cli.job import ProcessGroup
from commitlog.cli.output import json_option, note, print_json, printable
from commitlog.cli.parameters import DURATION
from commitlog.cli.urls import without_credentials
from commitlog.errors import ConfigurationError, LockLost
from commitlog.locks import LOCK_SCHEMA, Holder, Lock, LockSettings

__all__ = ["TOKEN_VARIABLE", "lock"]

_DEFAULTS = LockSettings()

#: The variable in which the command finds its fencing token.
TOKEN_VARIABLE = "COMMITLOG_LOCK_TOKEN"


@click.command(short_help="Run a command while holding a lock.")
@click.argument("url")
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--name", help="Name of the lock, if URL is a table.")
@click.option(
    "--wait",
    type=DURATION,
    help="Longest time to wait for the lock; 0 to try once. Without it, there is no limit.",
)
@click.option(
    "--timeout",
    type=DURATION,
    default=_DEFAULTS.timeout,
    help=f"Time for which one heartbeat holds the lock. Default: {_DEFAULTS.timeout:g}s.",
)
@click.option(
    "--skew-rate",
    type=click.FloatRange(min=1),
    default=_DEFAULTS.max_clock_skew_rate,
    show_default=True,
    help="How many times faster any clock may run than any other.",
)
@click.option("--holder", help="Description of this holder. Default: host and process.")
@click.option(
    "--conflict-status",
    type=click.IntRange(0, 255),
    default=int(Exit.PRECONDITION),
    show_default=True,
    help="Exit status if another holder has the lock.",
)
@click.option(
    "--lost-status",
    type=click.IntRange(0, 255),
    default=int(Exit.UNKNOWN),
    show_default=True,
    help="Exit status if the lock was lost, and the command was stopped or not run.",
)
@click.option("--show", is_flag=True, help="Show the holder of the lock, and run nothing.")
@click.option(
    "--break",
    "token",
    type=click.IntRange(min=0),
    metavar="TOKEN",
    help="Break the lock of the holder with this token, and run nothing.",
)
@json_option
@object_options
def lock(
    connection: Connection,
    url: str,
    command: tuple[str, ...],
    name: str | None,
    wait: float | None,
    timeout: float,
    skew_rate: float,
    holder: str | None,
    conflict_status: int,
    lost_status: int,
    show: bool,
    token: int | None,
    json: bool,
) -> None:
    """Run COMMAND while holding the lock URL.

    URL is the object of the lock, such as s3://bucket/locks/nightly, or a table: dynamodb://NAME or
    sqlite:///ABSOLUTE/FILE, with --name.

    The lock is kept by heartbeats. If they fail for too long, or another client breaks the lock, COMMAND
    gets SIGTERM before another holder can have the lock, and SIGKILL soon after. It runs in a process
    group of its own, which gets the signals. COMMITLOG_LOCK_TOKEN in its environment is the fencing
    token: a resource that refuses smaller tokens is safe even if this machine is suspended. Without such
    a resource, the lock is advisory.

    On a terminal, COMMAND can read it, and Ctrl-Z stops both. The heartbeats stop, too: if the lock has
    run out when they go on, COMMAND is killed as it stands.

    --break waits for the timeout x --skew-rate of the holder first, as any waiter does.

    \b
    Exit status: that of COMMAND (128 + N if signal N ended it), and
      1    the store or table failed; COMMAND was not run
      2    wrong usage; COMMAND was not run
      3    another holder has the lock (--conflict-status); COMMAND was not run
      4    the lock was lost, and COMMAND was stopped or not run (--lost-status); or no answer tells
           whether the lock was acquired, and COMMAND was not run
      126  COMMAND cannot be run
      127  COMMAND was not found

    \b
    Example:
      commitlog lock --wait 10m s3://bucket/locks/nightly -- ./nightly.sh
    """
    if bool(command) == (show or token is not None):
        raise click.UsageError("give a COMMAND after --, or --show, or --break TOKEN")
    settings = LockSettings(timeout=timeout, max_clock_skew_rate=skew_rate)
    job = ProcessGroup(lambda: opened.renew())
    opened = _open(
        connection,
        url,
        name,
        settings=settings,
        holder=holder or f"{socket.gethostname()} {os.getpid()}",
        on_lost=lambda lost: job.end(lost, settings.margin / 2),
    )
    context = click.get_current_context()
    if show:
        _print_holder(opened.holder(), json=json)
    elif token is not None:
        broken = opened.break_holder(token)
        if json:
            print_json({"token": token, "broken": broken})
        else:
            click.echo("broken" if broken else "another holder has the lock, or none")
    elif not opened.acquire(timeout=-1 if wait is None else wait):
        found = opened.holder()
        by = "" if found is None else f" by {printable(found.description)}"
        note(f"{printable(url)}: the lock is held{by}; the command was not run")
        context.exit(conflict_status)
    else:
        context.exit(_run(opened, job, command, lost_status))


def _open(connection: Connection, url: str, name: str | None, **options: Any) -> Lock:
    if not url.startswith(("dynamodb:", "sqlite:")):
        if name is not None:
            raise ConfigurationError(
                f"--name is for tables, and {without_credentials(url)} names an object"
            )
        location = connection.locate(url)
        return Lock(connection.open(location.store), location.path, **options)
    if name is None:
        raise ConfigurationError(
            f"{without_credentials(url)} is a table: give the name of the lock with --name"
        )
    table = connection.open_table(url, LOCK_SCHEMA)
    if not url.startswith("dynamodb:"):
        table.create()
    return Lock(table, name, **options)


def _print_holder(holder: Holder | None, *, json: bool) -> None:
    if holder is None:
        if not json:
            click.echo("the lock is free", err=True)
    elif json:
        print_json({"token": holder.token, "holder": holder.description, "timeout": holder.timeout})
    else:
        click.echo(f"token {holder.token}, held by {printable(holder.description)}")


def _run(opened: Lock, job: ProcessGroup, command: tuple[str, ...], lost_status: int) -> int:
    """Run the command under the lock; release the lock; return the exit status."""
    status = int(Exit.FAILED)
    try:
        status = job.run(command, {**os.environ, TOKEN_VARIABLE: str(opened.token)})
    except LockLost:  # before the command began; the release raises it again
        pass
    except OSError as error:
        print_error(error, what=command[0])
        status = 127 if isinstance(error, FileNotFoundError) else 126
    finally:
        try:
            opened.release()
        except LockLost as lost:
            print_error(lost, status=Exit.UNKNOWN)
            status = lost_status
    return status
