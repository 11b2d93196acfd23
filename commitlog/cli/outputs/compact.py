"""The command ``compact``: merge small files of an output into larger ones.

Heavy packages are imported only when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.output import json_option, print_columns, print_json, progress_file
from commitlog.cli.outputs.recover import WORKERS
from commitlog.cli.parameters import SIZE
from commitlog.errors import ConfigurationError
from commitlog.outputs import Job, Output

if TYPE_CHECKING:
    from commitlog.outputs.compaction import Group
    from commitlog.spark.compaction import LeftOut, Rewritten

__all__ = ["compact"]


@click.command()
@click.argument("url")
@click.option(
    "--target-size",
    type=SIZE,
    default="128MiB",
    show_default=True,
    help="Maximum size of a merged file; files of at least three quarters of it are not merged.",
)
@click.option(
    "--min-files",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Minimum number of files to merge into one.",
)
@click.option("--dry-run", is_flag=True, help="Show the files to merge without merging them.")
@json_option
@object_options
def compact(
    connection: Connection, url: str, target_size: int, min_files: int, dry_run: bool, json: bool
) -> None:
    """Merge small files of the output URL into larger ones, in one commit.

    Files of one partition, format and compression are merged, in the order in which they were committed.
    Readers of the log see each row once, before and after. Writers, such as a stream, may be active:
    files that they add are not touched, and files that they replace stay replaced.

    Where only the log shows files (visibility "logged"), the merged ones stay until "gc" removes them.
    Otherwise readers that list the directory see rows twice for a moment.

    Needs the extra "spark" (pyspark, pyarrow), but no Java.

    \b
    Example:
      commitlog output compact s3://bucket/out --min-files 8
    """
    try:
        from commitlog.spark.compaction import compact_output, groups_of, rewrite
    except ImportError as error:
        raise ConfigurationError(str(error)) from error
    location = connection.locate_directory(url)
    with ThreadPoolExecutor(WORKERS) as executor:
        output = Output(connection.open(location.store), location.path, executor=executor)
        if dry_run:
            state = output.state()
            groups = groups_of(state.files.values(), target_bytes=target_size, min_files=min_files)
            _print_plan(groups, location.url, json=json)
            return

        def stage(job: Job, groups: Sequence[Group], schema: Any) -> list[Rewritten]:
            with click.progressbar(
                length=sum(group.bytes for group in groups),
                label=f"{sum(len(group.files) for group in groups)} files into {len(groups)}",
                file=progress_file(hidden=not sys.stderr.isatty()),
            ) as bar:
                files = []
                for number, group in enumerate(groups):
                    files.append(rewrite(output, job, number, group, schema))
                    bar.update(group.bytes)
                return files

        left: list[LeftOut] = []
        record = compact_output(
            output, stage, target_bytes=target_size, min_files=min_files, report=left.append
        )
    # Without a request: its error would look as if nothing was committed.
    replaced = 0 if record is None else record.replaced_count
    if json:
        version, files = (None, 0) if record is None else (record.version, record.file_count)
        left_out = [{"path": each.path, "why": each.why} for each in left]
        print_json({"version": version, "files": files, "replaced": replaced, "left_out": left_out})
        return
    for each in left:
        click.echo(f"left out: {each.path}: {each.why}")
    if record is None:
        click.echo(f"nothing to merge at {location.url}")
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
