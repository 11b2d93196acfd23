"""The commands ``namespace restore`` and ``relog``: names from the log, and the log from the names.

Imports the restoring of namespaces.
"""

from __future__ import annotations

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exits import Exit, complain
from commitlog.cli.recover import Seconds
from commitlog.cli.show import json_option, moment, note, print_json, printable
from commitlog.cli.upkeep import counted
from commitlog.errors import ConfigurationError
from commitlog.namespace import Restored
from commitlog.oplog import Decision, Operation

__all__ = ["relog", "restore"]


@click.command(short_help="Make lost names again.")
@click.argument("name")
@click.option("--replace", is_flag=True, help="Remove first what the table has of the namespace.")
@click.option(
    "--undecided",
    type=click.Choice([decision.value for decision in Decision]),
    help="What became of changes of which the log does not tell.",
)
@click.option("--read-only", is_flag=True, help="Make a copy to look at, as for a drill.")
@click.option("--salvage", is_flag=True, help="Pass over what of the log cannot be read, and show it.")
@json_option
@namespace_options
def restore(
    connection: Connection,
    name: str,
    replace: bool,
    undecided: str | None,
    read_only: bool,
    salvage: bool,
    json: bool,
) -> None:
    """Make the names of the namespace NAME again in the table, from the log in --store.

    The log belongs to this table from then on: all other tables of the namespace refuse changes. For a
    drill, beside a table in use, say --read-only: that writes nothing but the table given, and nothing
    can change what it makes.

    Stop the writers first. It can be broken off, and run again (with --replace, if the namespace is
    there by then).

    Of changes that were under way when the table was lost, the log may not tell whether they happened;
    they are shown, and nothing is done until --undecided says. Who was told of a success has it in the
    log as committed, unless it was just that which could not be written: so "rolled-back" is mostly
    right.

    What two tables have written, or has lost its directory, comes into "lost+found". Files whose objects
    are gone, or are others, and entries of the log that cannot be read, are told, with status 1.
    """
    restorer = connection.restorer(name)
    decision = None if undecided is None else Decision(undecided)

    def decide(operation: Operation) -> Decision:
        assert decision is not None
        return decision

    with counted("changes read, files and directories made") as count:

        def progress(so_far: Restored) -> None:
            count(so_far.operations + so_far.removed + so_far.files + so_far.directories)

        try:
            done = restorer.restore(
                decide=None if decision is None else decide,
                replace=replace,
                read_only=read_only,
                salvage=salvage,
                progress=progress,
            )
        except ConfigurationError:
            if decision is not None or not (waiting := restorer.undecided()):
                raise
            for operation in waiting:
                what = printable(f"{operation.body.get('what')}")
                note(f"{operation.id}  {moment(operation.time)}  {what}")
            raise ConfigurationError(
                f"of {len(waiting)} changes the log does not tell whether they happened: say --undecided"
                " rolled-back, or committed. Nothing was written"
            ) from None
    for lost in done.lost:
        fate = "is another" if lost.changed else "is gone"
        complain(f"its object {lost.object} {fate}", what=lost.path)
    for error in done.unreadable:
        complain(f"passed over: {error}")
    if json:
        print_json(
            {
                "epoch": done.epoch,
                "found": list(done.found),
                "unreadable": list(done.unreadable),
                "files": done.files,
                "directories": done.directories,
                "garbage": done.garbage,
                "records": done.records,
                "lost": [
                    {"path": lost.path, "object": lost.object, "changed": lost.changed}
                    for lost in done.lost
                ],
                "decided": [
                    {"id": each.id, "decision": each.decision and each.decision.value}
                    for each in done.decided
                ],
            }
        )
    else:
        click.echo(f"files: {done.files}, directories: {done.directories}, lost: {len(done.lost)}")
        if done.found:
            click.echo(f"in lost+found: {len(done.found)}")
    click.get_current_context().exit(Exit.FAILED if done.lost or done.unreadable else Exit.DONE)


@click.command(short_help="Write the log again from the names.")
@click.argument("name")
@click.option("--take-over", is_flag=True, help="Also if the log belongs to another table by now.")
@click.option(
    "--older-than",
    type=Seconds(),
    default="1h",
    show_default=True,
    help="Age from which a change is taken for one that nobody is at work on.",
)
@json_option
@namespace_options
def relog(connection: Connection, name: str, take_over: bool, older_than: float, json: bool) -> None:
    """Write the log of the namespace NAME again, from its table.

    For a log of which something cannot be read; and, with --take-over, for one that belongs to another
    table, into which the namespace was restored by mistake: what was changed there is not in this one.
    Check the table first, and stop the writers. It can be broken off, and run again. The log of before
    is left as it is.
    """
    done = connection.namespace(name).relog(take_over=take_over, older_than=older_than)
    if json:
        print_json({"epoch": done.epoch, "states": done.states})
    else:
        click.echo(f"states in the log: {done.states}; its epoch: {done.epoch}")
