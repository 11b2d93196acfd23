"""The command ``namespace fsck``: check a namespace, and repair it."""

from __future__ import annotations

from typing import Any

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import Exit, Question
from commitlog.cli.output import counted, json_option, print_json, printable, readable
from commitlog.cli.parameters import DURATION
from commitlog.namespace import PROBLEMS, Finding, FsckReport, Outcome

__all__ = ["fsck"]


@click.command(cls=Question)
@click.argument("name")
@click.option("--objects", is_flag=True, help="Ask the store about the object of each file, too.")
@click.option("--unnamed", is_flag=True, help="List the store for objects that nothing names, too.")
@click.option("--repair", is_flag=True, help="Repair what can be.")
@click.option("--dry-run", is_flag=True, help="With --repair: only tell what would be done.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(sorted(PROBLEMS)),
    metavar="KIND",
    help="With --repair: only this kind; no-mark and unnamed-object need it. May be repeated.",
)
@click.option(
    "--older-than",
    type=DURATION,
    default="8d",
    show_default=True,
    help="Age from which an object that nothing names is told: longer than any job takes.",
)
@click.option(
    "--confirm-after",
    type=DURATION,
    default="5s",
    show_default=True,
    help="When to look again at what was found, before it is told.",
)
@json_option
@namespace_options
def fsck(
    connection: Connection,
    name: str,
    objects: bool,
    unnamed: bool,
    repair: bool,
    dry_run: bool,
    only: tuple[str, ...],
    older_than: float,
    confirm_after: float,
    json: bool,
) -> None:
    """Check the namespace NAME: read all records and the log, and report inconsistencies.

    Other clients may continue to work. Nothing is changed without --repair, which repairs each problem
    in one transaction. Files and directories that no path leads to are moved into the directory
    "lost+found". Repeat the repair until nothing is found, because one problem may hide another.

    The exit status is 0 if there are no problems (or all were repaired), 1 if there are problems, and 2
    if the check failed.

    \b
    Example:
      commitlog namespace fsck lake --repair --dry-run
    """
    if (dry_run or only) and not repair:
        raise click.UsageError("--dry-run and --only go with --repair")
    lake = connection.namespace(name)
    with counted("looked at") as count:

        def progress(so_far: FsckReport) -> None:
            count(so_far.states + so_far.entries + so_far.objects + so_far.listed)

        checked = lake.maintenance.fsck(
            objects=objects,
            unnamed=unnamed,
            grace=confirm_after,
            age=older_than,
            progress=progress,
        )
    left = len(checked.findings)
    if repair:
        for each in lake.maintenance.repair(checked.findings, dry_run=dry_run, only=only or None):
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
        looked = f"{checked.entries} files and directories, {checked.records} records"
        asked = f", {checked.objects} objects" * objects
        click.echo(f"looked at {looked}{asked}; found: {len(checked.findings)}, left: {left}")
        if sizes := [found.size for found in checked.findings if found.problem.name == "unnamed-object"]:
            click.echo(f"nothing names {len(sizes)} objects, {readable(sum(sizes))}")
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
    return {
        "kind": problem.name,
        "severity": problem.severity.name.lower(),
        "path": finding.path,
        "detail": finding.detail,
        "object": finding.object,
        "id": finding.id,
        "meaning": problem.meaning,
        "repair": problem.repair,
    }
