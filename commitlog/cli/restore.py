"""The command ``namespace restore``: names that are lost, from the log.

Imports the restoring of namespaces.
"""

from __future__ import annotations

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exits import Exit, complain
from commitlog.cli.show import json_option, moment, note, print_json, printable
from commitlog.cli.upkeep import counted
from commitlog.errors import ConfigurationError
from commitlog.namespace import Restored
from commitlog.oplog import Decision, Operation

__all__ = ["restore"]


@click.command(short_help="Make lost names again.")
@click.argument("name")
@click.option("--replace", is_flag=True, help="Remove first what the table has of the namespace.")
@click.option(
    "--undecided",
    type=click.Choice([decision.value for decision in Decision]),
    help="What became of changes of which the log does not tell.",
)
@json_option
@namespace_options
def restore(connection: Connection, name: str, replace: bool, undecided: str | None, json: bool) -> None:
    """Make the names of the namespace NAME again in the table, from the log in --store.

    Nobody may change the namespace meanwhile, so stop the writers. It can be broken off, and run again
    (with --replace, if the namespace is there by then).

    Of changes that were under way when the table was lost, the log may not tell whether they happened;
    they are shown, and nothing is done until --undecided says. Who was told of a success has it in the
    log as committed, unless it was just that which could not be written: so "rolled-back" is mostly
    right.

    Files whose objects are gone, or are others, are told, with status 1.
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
                decide=None if decision is None else decide, replace=replace, progress=progress
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
    if json:
        print_json(
            {
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
    click.get_current_context().exit(Exit.FAILED if done.lost else Exit.DONE)
