"""The command ``namespace fsck``: check a namespace, and repair it."""

from __future__ import annotations

from typing import Any

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import Exit, PredicateCommand
from commitlog.cli.namespace.cluster import run_on_spark, spark_option
from commitlog.cli.output import counted, json_option, moment, print_json, printable, readable
from commitlog.cli.parameters import DURATION
from commitlog.namespace import PROBLEMS, Finding, FsckReport, Outcome

__all__ = ["fsck"]


@click.command(cls=PredicateCommand)
@click.argument("name")
@click.option("--objects", is_flag=True, help="Also check the object of each file in the store.")
@click.option(
    "--orphans", is_flag=True, help="Also list the store, to find orphan objects: without a file."
)
@click.option("--repair", is_flag=True, help="Repair the problems that can be repaired.")
@click.option("--dry-run", is_flag=True, help="With --repair: show the repairs without making them.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(sorted(PROBLEMS)),
    metavar="KIND",
    help="With --repair: only this kind; no-store-identity and orphan-object require it. Repeatable.",
)
@click.option(
    "--older-than",
    type=DURATION,
    default="8d",
    show_default=True,
    help="Minimum age of a reported object without a file: longer than any job takes.",
)
@click.option(
    "--confirm-after",
    type=DURATION,
    default="5s",
    show_default=True,
    help="Time after which findings are checked again, before they are reported.",
)
@spark_option("Read the table and the log")
@click.option(
    "--inventory",
    metavar="URL",
    help="With --spark, and --objects or --orphans: an S3 Inventory to read in place of a listing.",
)
@json_option
@namespace_options
def fsck(
    connection: Connection,
    name: str,
    objects: bool,
    orphans: bool,
    repair: bool,
    dry_run: bool,
    only: tuple[str, ...],
    older_than: float,
    confirm_after: float,
    spark: str | None,
    inventory: str | None,
    json: bool,
) -> None:
    """Check the namespace NAME: read all records and the log, and report inconsistencies.

    Other clients may continue to work. Nothing is changed without --repair, which repairs each problem
    in one transaction. Files and directories that no path leads to are moved into the directory
    "lost+found". Repeat the repair until nothing is found, because one problem may hide another.

    With --spark, the table and the log are divided among the executors of a cluster; repairs are made by
    this process. This needs the extra "spark" (pyspark, pyarrow) and Java, and on the executors the same
    packages, and credentials in their environment. The store is listed, or an inventory is read: its URL
    is that of manifest.json, or of a directory above for the newest one.

    The exit status is 0 if there are no problems (or all were repaired), 1 if there are problems, and 2
    if the check failed.

    \b
    Example:
      commitlog namespace fsck lake --repair --dry-run
    """
    if (dry_run or only) and not repair:
        raise click.UsageError("--dry-run and --only require --repair")
    if inventory is not None and (spark is None or not (objects or orphans)):
        raise click.UsageError("--inventory requires --spark, and --objects or --orphans")
    namespace = connection.namespace(name)
    with counted("records and objects checked") as count:

        def progress(so_far: FsckReport) -> None:
            count(so_far.states + so_far.entries + so_far.objects + so_far.listed)

        if spark is None:
            checked = namespace.maintenance.fsck(
                objects=objects,
                orphans=orphans,
                grace=confirm_after,
                age=older_than,
                progress=progress,
            )
        else:
            checked = run_on_spark(
                spark,
                "fsck",
                name,
                objects=objects,
                orphans=orphans,
                grace=confirm_after,
                age=older_than,
                inventory=inventory,
                progress=progress,
                **connection.namespace_arguments(name),
            )
    left = len(checked.findings)
    if repair:
        for each in namespace.maintenance.repair(checked.findings, dry_run=dry_run, only=only or None):
            left -= each.outcome is Outcome.DONE
            if json:
                print_json({**_record(each.finding), "outcome": each.outcome.value})
            else:
                click.echo(f"{each.outcome.value:8}  {_line(each.finding)}")
    else:
        for finding in checked.findings:
            if json:
                print_json(_record(finding))
            else:
                click.echo(_line(finding))
    if not json:
        names = f"{checked.entries} files and directories, {checked.records} records"
        content = f", {checked.objects} objects" * objects
        if checked.listed_at is not None:
            content += f", inventory of {moment(checked.listed_at)}"
        click.echo(f"checked: {names}{content}; problems: {len(checked.findings)}, left: {left}")
        if sizes := [found.size for found in checked.findings if found.problem.name == "orphan-object"]:
            click.echo(f"objects without a file: {len(sizes)}, {readable(sum(sizes))}")
    click.get_current_context().exit(Exit.FAILED if left else Exit.DONE)


def _line(finding: Finding) -> str:
    problem = finding.problem
    detail = f" ({finding.detail})" if finding.detail else ""
    return printable(
        f"{problem.severity.name.lower():6}  {problem.name}  {finding.path}{detail}: {problem.meaning}."
        f" Repair: {problem.repair}"
    )


def _record(finding: Finding) -> dict[str, Any]:
    problem = finding.problem
    return {**finding.to_json(), "meaning": problem.meaning, "repair": problem.repair}
