"""The command ``compact``: merge small files of an output into larger ones.

Heavy imports wait until it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.recover import WORKERS
from commitlog.cli.show import json_option, print_columns, print_json
from commitlog.errors import ConfigurationError
from commitlog.outputs import Job, Output, StagedFile
from commitlog.outputs.compaction import Group
from commitlog.units import parse_bytes

__all__ = ["Size", "compact"]


class Size(click.ParamType[int]):
    """A number of bytes, or a number with one of the units KiB, MiB, GiB."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return `value` in bytes."""
        try:
            return parse_bytes(str(value))
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


@click.command(short_help="Merge small files of an output.")
@click.argument("url")
@click.option(
    "--target-size",
    type=Size(),
    default="128MiB",
    show_default=True,
    help="Merge files up to this size; those of three quarters of it are left alone.",
)
@click.option(
    "--min-files",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Merge no fewer files than this into one.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be merged.")
@json_option
@object_options
def compact(
    connection: Connection, url: str, target_size: int, min_files: int, dry_run: bool, json: bool
) -> None:
    """Merge small files of the output URL into larger ones, in one commit.

    Files of one partition, format and compression are merged, in the order in which they were committed.
    Readers of the log see each row once, before and after. Run it beside writers, such as a stream: what
    they add is left alone, and what they replace stays replaced.

    Where only the log shows files (visibility "logged"), the merged ones stay until "gc" removes them.
    Otherwise readers that list the directory see rows twice for a moment.

    Needs the extra "spark" (pyspark, pyarrow), but no Java.
    """
    try:
        from commitlog.spark.rewrite import groups_of, merged, rewrite
    except ImportError as error:
        raise ConfigurationError(
            f"to rewrite files takes pyarrow and pyspark: pip install 'commitlog-store[spark]' ({error})"
        ) from error
    place = connection.directory(url)
    with ThreadPoolExecutor(WORKERS) as executor:
        output = Output(connection.open(place.store), place.path, executor=executor)
        if dry_run:
            state = output.state()
            groups = groups_of(state.files.values(), target_bytes=target_size, min_files=min_files)
            _print_plan(groups, place.url, json=json)
            return

        def stage(job: Job, groups: Sequence[Group], schema: Any) -> list[StagedFile]:
            with click.progressbar(
                length=sum(group.bytes for group in groups),
                label=f"{sum(len(group.files) for group in groups)} files into {len(groups)}",
                file=sys.stderr,
                hidden=not sys.stderr.isatty(),
            ) as bar:
                files = []
                for number, group in enumerate(groups):
                    files.append(rewrite(output, job, number, group, schema))
                    bar.update(group.bytes)
                return files

        record = merged(output, stage, target_bytes=target_size, min_files=min_files)
        replaced = 0 if record is None else sum(1 for _ in output.replaced(record))
    if json:
        version, files = (None, 0) if record is None else (record.version, record.file_count)
        print_json({"version": version, "files": files, "replaced": replaced})
    elif record is None:
        click.echo(f"nothing to merge at {place.url}")
    else:
        click.echo(f"version {record.version}: {replaced} files merged into {record.file_count}")


def _print_plan(groups: Sequence[Group], url: str, *, json: bool) -> None:
    if json:
        for group in groups:
            print_json(_to_json(group))
    elif groups:
        rows = [("FILES", "BYTES", "PARTITION")]
        for group in groups:
            partition = group.files[0].partition
            where = ", ".join(f"{n} = {'null' if v is None else v}" for n, v in partition.items())
            rows.append((f"{len(group.files)}", f"{group.bytes}", where or "-"))
        print_columns(rows, right=[0, 1])
    else:
        click.echo(f"nothing to merge at {url}")


def _to_json(group: Group) -> dict[str, Any]:
    return {
        "partition": dict(group.files[0].partition),
        "bytes": group.bytes,
        "rows": group.rows,
        "files": [file.path for file in group.files],
    }
