"""The command ``log``: the commits of an output, or the operations of an operation log."""

from __future__ import annotations

from itertools import chain
from typing import Any

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.output import json_option, moment, print_columns, print_json
from commitlog.oplog import OperationLog
from commitlog.outputs import CommitRecord, ExpiryRecord, Output, Record

__all__ = ["log"]


@click.command()
@click.argument("url")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="VERSION",
    help="Only records after this version.",
)
@click.option("--files", is_flag=True, help="Print the files of each commit, one per line.")
@click.option("--operations", is_flag=True, help="URL is an operation log, not an output.")
@json_option
@object_options
def log(connection: Connection, url: str, after: int, files: bool, operations: bool, json: bool) -> None:
    """Show the log of the output URL: commits, and attempts that were aborted.

    Pass a version to --after to show only later commits. Files of the last commits may not be visible to
    plain listings yet; "recover" completes them.

    With --operations, URL is the directory of an operation log. The command shows the decided operations
    that are not yet compacted, then the pending ones.

    \b
    Example:
      commitlog output log s3://bucket/out --after 7
    """
    location = connection.locate_directory(url)
    store = connection.open(location.store)
    if operations:
        if after or files:
            raise click.UsageError("--after and --files are options for outputs, not for operation logs")
        _print_operations(OperationLog(store, location.path), json=json)
        return
    output = Output(store, location.path)
    records = output.records(after)
    if files:
        for record in records:
            if isinstance(record, CommitRecord):
                _print_files(output, record, json=json)
    elif json:
        for record in records:
            print_json(_to_json(record))
    else:
        rows: list[tuple[str, ...]] = [("VERSION", "TIME", "MODE", "JOB", "FILES", "ROWS", "BYTES")]
        try:
            rows.extend(map(_to_row, records))
            if len(rows) == 1:
                since = f" after version {after}" if after else ""
                click.echo(f"no commit at {location.url}{since}", err=True)
        finally:  # also print the records before one that cannot be read
            if len(rows) > 1:
                print_columns(rows, right=[0, 4, 5, 6])


def _to_json(record: Record) -> dict[str, Any]:
    if isinstance(record, CommitRecord):
        return {
            "version": record.version,
            "kind": "commit",
            "time": record.time,
            "job": record.job_id,
            "attempt": record.attempt,
            "mode": record.mode,
            "files": record.file_count,
            "rows": record.rows,
            "bytes": record.bytes,
        }
    if isinstance(record, ExpiryRecord):
        return {
            "version": record.version,
            "kind": "expiry",
            "time": record.time,
            "before": record.before,
        }
    return {
        "version": record.version,
        "kind": "abort",
        "time": record.time,
        "attempts": dict(record.attempts),
    }


def _to_row(record: Record) -> tuple[str, ...]:
    what: tuple[str, ...]
    if isinstance(record, CommitRecord):
        rows = "?" if record.rows is None else f"{record.rows}"
        what = (record.mode, record.job_id, f"{record.file_count}", rows, f"{record.bytes}")
    elif isinstance(record, ExpiryRecord):
        what = ("-", f"(versions before {record.before} expired)", "-", "-", "-")
    else:
        aborted = ", ".join(job or attempt for attempt, job in record.attempts.items())
        what = ("-", f"(aborted: {aborted})", "-", "-", "-")
    return (f"{record.version}", moment(record.time), *what)


def _print_files(output: Output, record: CommitRecord, *, json: bool) -> None:
    for file in output.files(record):
        if json:
            print_json(
                {
                    "version": record.version,
                    "job": record.job_id,
                    "path": file.path,
                    "size": file.size,
                    "rows": file.rows,
                    "partition": dict(file.partition),
                }
            )
        else:
            click.echo(file.path)


def _print_operations(operations: OperationLog, *, json: bool) -> None:
    rows = [("OPERATION", "TIME", "DECISION")]
    try:
        for operation in chain(operations.history(), operations.pending()):
            decision = operation.decision and operation.decision.value
            if json:
                print_json(
                    {
                        "id": operation.id,
                        "time": operation.time,
                        "decision": decision,
                        "operation": dict(operation.body),
                    }
                )
            else:
                rows.append((operation.id, moment(operation.time), decision or "pending"))
    finally:
        if len(rows) > 1:
            print_columns(rows)
