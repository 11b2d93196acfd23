"""The command ``namespace check``: what is wrong with a namespace, and repairing it.

Imports what there can be.
"""

from __future__ import annotations

from typing import Any

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exits import Exit, Question
from commitlog.cli.recover import Seconds
from commitlog.cli.show import json_option, print_json, printable, readable
from commitlog.cli.upkeep import counted
from commitlog.namespace import PROBLEMS, Checked, Finding, Outcome

__all__ = ["check"]


@click.command(cls=Question, short_help="Find, and repair, what is wrong.")
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
    type=Seconds(),
    default="8d",
    show_default=True,
    help="Age from which an object that nothing names is told: longer than any job takes.",
)
@click.option(
    "--confirm-after",
    type=Seconds(),
    default="5s",
    show_default=True,
    help="When to look again at what was found, before it is told.",
)
@json_option
@namespace_options
def check(
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
    """Look for what is wrong with the namespace NAME: all records are read, and its log.

    Others may go on working. Nothing is changed without --repair, which makes one transaction for each
    thing that it repairs; what no path leads to comes into the directory "lost+found". Repair until
    nothing is found: one repair may show what another hid.

    The status is 0 if all is well (or was made so), 1 if not, and 2 if that could not be found out.
    """
    if (dry_run or only) and not repair:
        raise click.UsageError("--dry-run and --only go with --repair")
    lake = connection.namespace(name)
    with counted("looked at") as count:

        def progress(so_far: Checked) -> None:
            count(so_far.states + so_far.entries + so_far.objects + so_far.listed)

        checked = lake.audit(
            objects=objects,
            unnamed=unnamed,
            grace=confirm_after,
            age=older_than,
            progress=progress,
        )
    left = len(checked.findings)
    if repair:
        for each in lake.repair(checked.findings, dry_run=dry_run, only=only or None):
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
