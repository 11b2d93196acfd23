"""The commands ``namespace restore`` and ``namespace rewrite-log``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commitlog.cli.connection import Connection, namespace_options, write_units_option
from commitlog.cli.exit_status import Exit, print_error
from commitlog.cli.namespace.cluster import (
    findings_options,
    job_arguments,
    run_on_spark,
    spark_option,
)
from commitlog.cli.namespace.maintenance import abandoned_option
from commitlog.cli.output import counted, json_option, moment, note, print_json, printable
from commitlog.errors import ConfigurationError
from commitlog.oplog import Decision

if TYPE_CHECKING:
    from commitlog.namespace import Restorer, RestoreReport
    from commitlog.oplog import Operation

__all__ = ["restore", "rewrite_log"]


@click.command()
@click.argument("name")
@click.option(
    "--replace", is_flag=True, help="First remove the records of the namespace from the table."
)
@click.option(
    "--undecided",
    type=click.Choice([decision.value for decision in Decision]),
    help="Decision for changes whose outcome the log does not contain.",
)
@click.option("--read-only", is_flag=True, help="Make a read-only copy, for example for a drill.")
@click.option("--salvage", is_flag=True, help="Skip unreadable entries of the log, and report them.")
@spark_option("Restore")
@findings_options
@write_units_option
@json_option
@namespace_options
def restore(
    connection: Connection,
    name: str,
    replace: bool,
    undecided: str | None,
    read_only: bool,
    salvage: bool,
    spark: str | None,
    findings: str | None,
    job_id: str | None,
    json: bool,
) -> None:
    """Restore the names of the namespace NAME in the table, from the log in --store.

    From then on the log belongs to this table: all other tables of the namespace refuse changes. For a
    drill next to a table in use, add --read-only: the command then writes only the given table, and the
    restored copy cannot be changed.

    Stop the writers first. The command can be interrupted and run again (with --replace, if the
    namespace already exists).

    The log may not show whether the changes that were active when the table was lost were committed. The
    command lists such changes and does nothing without --undecided. "rolled-back" is usually right: a
    change whose client saw a success is committed in the log, unless that entry could not be written.

    With --spark, the log and the table are divided among the executors of a cluster, as for "fsck". Only
    one of the undecided changes is named then.

    Files that two tables have written, or whose directory is lost, are moved into "lost+found". Files
    whose objects are missing or changed, and unreadable entries of the log, are reported, and the exit
    status is 1.

    \b
    Example:
      commitlog namespace restore lake --store s3://bucket/lake
    """
    decision = None if undecided is None else Decision(undecided)
    job = job_arguments(spark, job_id, findings=findings)
    options = {"replace": replace, "read_only": read_only}
    if spark is None:
        done = _restore(connection.restorer(name), decision, salvage=salvage, **options)
    else:
        done = run_on_spark(
            spark,
            "fsck",
            name,
            mode="restore",
            undecided=decision,
            unreadable="report" if salvage else "error",
            **options,
            **job,
            **connection.restore_arguments(),
        )
    for lost in done.lost:
        fate = "was replaced" if lost.changed else "does not exist"
        print_error(f"its object {lost.object} {fate}", what=lost.path)
    for error in done.unreadable:
        print_error(f"skipped: {error}")
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


def _restore(restorer: Restorer, decision: Decision | None, **options: bool) -> RestoreReport:
    """Restore in this process."""

    def decide(operation: Operation) -> Decision:
        assert decision is not None
        return decision

    with counted("changes, files and directories processed") as count:

        def progress(so_far: RestoreReport) -> None:
            count(so_far.operations + so_far.removed + so_far.files + so_far.directories)

        try:
            return restorer.restore(
                decide=None if decision is None else decide, progress=progress, **options
            )
        except ConfigurationError:
            if decision is not None or not (waiting := restorer.undecided()):
                raise
            for operation in waiting:
                what = printable(f"{operation.body.get('what')}")
                note(f"{operation.id}  {moment(operation.time)}  {what}")
            raise ConfigurationError(
                f"the log does not contain the outcome of {len(waiting)} changes: add --undecided"
                " rolled-back or --undecided committed. Nothing was written"
            ) from None


@click.command("rewrite-log")
@click.argument("name")
@click.option("--take-over", is_flag=True, help="Also if the log belongs to another table.")
@abandoned_option
@json_option
@namespace_options
def rewrite_log(
    connection: Connection, name: str, take_over: bool, older_than: float, json: bool
) -> None:
    """Rewrite the log of the namespace NAME from its table.

    Use the command for a log with unreadable entries. With --take-over, use it also for a log that
    belongs to another table because the namespace was restored there by mistake; changes made in that
    table are not in this one.

    Check the table first, and stop the writers. The command can be interrupted and run again. The
    previous log is left as it is.

    \b
    Example:
      commitlog namespace rewrite-log lake
    """
    done = connection.namespace(name).maintenance.rewrite_log(take_over=take_over, older_than=older_than)
    if json:
        print_json({"epoch": done.epoch, "states": done.states})
    else:
        click.echo(f"states in the log: {done.states}; its epoch: {done.epoch}")
