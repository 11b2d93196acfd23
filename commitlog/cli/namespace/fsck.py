"""The command ``namespace fsck``: check a namespace, and repair it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from attrs import evolve

from commitlog.cli.connection import Connection, namespace_options, write_units_option
from commitlog.cli.exit_status import Exit, PredicateCommand
from commitlog.cli.namespace.cluster import (
    findings_options,
    inventory_option,
    job_arguments,
    run_on_spark,
    spark_option,
)
from commitlog.cli.output import counted, json_option, moment, print_json, printable, readable
from commitlog.cli.parameters import DURATION
from commitlog.namespace import PROBLEMS, Finding, FsckReport, RepairOutcome, RepairReport

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
@spark_option("Check and repair")
@inventory_option("With --spark, and --objects or --orphans: an S3 Inventory to read, not a listing.")
@findings_options
@write_units_option
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
    findings: str | None,
    job_id: str | None,
    json: bool,
) -> None:
    """Check the namespace NAME: read all records and the log, and report inconsistencies.

    Other clients may continue to work. Nothing is changed without --repair, which repairs each problem
    in one transaction. Files and directories that no path leads to are moved into the directory
    "lost+found". Repeat the repair until nothing is found, because one problem may hide another.

    With --spark, the table, the log and the repairs are divided among the executors of a cluster. This
    needs the extra "spark" (pyspark, pyarrow) and Java, and on the executors the same packages, and
    credentials in their environment. The store is listed, or an inventory is read: its URL is that of
    manifest.json, or of a directory above for the newest one.

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
    if connection.write_units is not None and not repair:
        raise click.UsageError("--write-units requires --repair")
    job = job_arguments(spark, job_id, findings=findings)
    check: dict[str, Any] = {
        "objects": objects,
        "orphans": orphans,
        "grace": confirm_after,
        "age": older_than,
    }
    changes: dict[str, Any] = {"dry_run": dry_run, "only": only or None}
    repaired: Iterable[RepairReport] = ()
    if spark is None:
        maintenance = connection.namespace(name).maintenance
        with _counted() as progress:
            checked = maintenance.fsck(**check, progress=progress)
        if repair:
            repaired = maintenance.repair(checked.findings, **changes)
    else:
        arguments = {**check, **job, "inventory": inventory, **connection.namespace_arguments(name)}
        if repair:
            checked, repaired = _repair_on_spark(spark, name, **arguments, **changes)
        else:
            checked = run_on_spark(spark, "fsck", name, **arguments)
    left = len(checked.findings)
    if repair:
        for each in repaired:
            left -= each.outcome is RepairOutcome.DONE
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


@contextmanager
def _counted() -> Iterator[Callable[[FsckReport], object]]:
    """Show the number of checked records; yield a function that takes the report so far."""
    with counted("records and objects checked") as count:
        yield lambda now: count(now.states + now.entries + now.objects + now.listed)


def _repair_on_spark(
    master: str, name: str, **arguments: Any
) -> tuple[FsckReport, tuple[RepairReport, ...]]:
    """Check and repair a namespace on a cluster; return both results."""
    checked = FsckReport()

    def progress(now: FsckReport) -> None:
        nonlocal checked
        checked = now

    repaired = run_on_spark(master, "fsck", name, mode="repair", progress=progress, **arguments)
    known = set(map(id, checked.findings))
    others = [each.finding for each in repaired if id(each.finding) not in known]
    return evolve(checked, findings=(*others, *checked.findings)), repaired


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
