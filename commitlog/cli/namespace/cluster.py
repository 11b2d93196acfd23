"""Commands that divide their work among the executors of a Spark cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from commitlog.cli.output import step_line
from commitlog.errors import ConfigurationError

__all__ = [
    "check_inventory",
    "fsck_on_spark",
    "inventory_option",
    "job_arguments",
    "job_options",
    "run_on_spark",
    "spark_option",
]

F = TypeVar("F", bound=Callable[..., Any])


def spark_option(help: str) -> Callable[[F], F]:
    """Return the option ``--spark``.

    Args:
        help: what the executors do.
    """
    return click.option(
        "--spark",
        metavar="MASTER",
        help=f"{help} on the executors of this Spark master, such as spark://host:7077.",
    )


def inventory_option(help: str) -> Callable[[F], F]:
    """Return the option ``--inventory``.

    Args:
        help: names the options that it requires.
    """
    return click.option("--inventory", metavar="URL", help=help)


def check_inventory(spark: str | None, inventory: str | None) -> None:
    """Raise `UsageError` for an inventory without a cluster that reads it."""
    if inventory is not None and spark is None:
        raise click.UsageError("--inventory requires --spark")


def job_options(command: F) -> F:
    """Add the options ``--journal`` and ``--job-id`` to a command."""
    command = click.option(
        "--job-id",
        metavar="ID",
        help="With --journal: id of the job; run the command with the same id to continue it.",
    )(command)
    return click.option(
        "--journal",
        metavar="STORE_URL",
        help="With --spark: keep a list of complete parts of the work below STORE_URL.",
    )(command)


def job_arguments(spark: str | None, journal: str | None, job_id: str | None) -> dict[str, Any]:
    """Return the arguments of a job. Raises `UsageError` for options that need others."""
    if spark is None and (journal or job_id):
        raise click.UsageError("--journal and --job-id require --spark")
    if journal is None and job_id:
        raise click.UsageError("--job-id requires --journal")
    return {} if journal is None else {"journal": journal, "job_id": job_id}


def run_on_spark(master: str, function: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of `commitlog.spark` in a session that ends with the call; return its result.

    Args:
        master: the Spark master.
        function: name of the function, which takes a session first.
        arguments, options: its other arguments.
    """
    try:
        from commitlog import spark
    except ImportError as error:
        raise ConfigurationError(str(error)) from error
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    session = spark.session(master, settings)
    try:
        return getattr(spark, function)(session, *arguments, **options)
    finally:
        session.stop()


def fsck_on_spark(master: str, name: str, **options: Any) -> Any:
    """Return the result of `commitlog.spark.fsck`, and show its progress on a terminal.

    Args:
        master: the Spark master.
        name: the name of the namespace.
        options: further arguments of `commitlog.spark.fsck`.
    """
    with step_line() as show:
        return run_on_spark(master, "fsck", name, step_progress=show, **options)
