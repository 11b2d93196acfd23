"""The command ``spark jar``."""

from __future__ import annotations

from pathlib import Path

import click

from commitlog.cli.output import json_option, print_json
from commitlog.spark_jar import build_jar, check_spark, jar_name

__all__ = ["spark"]


@click.group()
def spark() -> None:
    """Prepare Spark for jobs that commit with this library."""


@spark.command(short_help="Build the jar of the committer.")
@click.option(
    "--spark",
    "version",
    metavar="VERSION",
    help="Version of Spark that will use the jar, such as 3.5; refused if it is not supported.",
)
@click.option(
    "--output",
    metavar="FILE.jar|DIRECTORY",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Path of the jar, or its directory. Default: the current directory.",
)
@json_option
def jar(version: str | None, output: Path, json: bool) -> None:
    """Build the jar of the committer for Spark's own file writers, and print its path.

    The compiler is that of the Spark in SPARK_HOME, or else of the installed PySpark. It needs Java, but
    no JDK. One jar runs on every supported Spark, with Scala 2.12 and 2.13.

    A path that ends with .jar is a file. Any other path is a directory, in which the name of the jar has
    a digest of its source. In SPARK_HOME/jars, commitlog.spark.configure finds it by this name. An
    existing file is replaced.

    \b
    Example:
      commitlog spark jar --spark 3.5 --output /opt/spark/jars
    """
    if version is not None:
        check_spark(version)
    is_file = output.suffix == ".jar" and not output.is_dir()
    path = build_jar(output if is_file else output / jar_name())
    if json:
        print_json({"path": str(path)})
    else:
        click.echo(path)
