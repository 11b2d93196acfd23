"""Commands that divide their work among the executors of a Spark cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from commitlog.cli.output import step_line
from commitlog.errors import ConfigurationError

__all__ = [
    "check_inventory",
    "findings_options",
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
    """Add the options ``--journal``, ``--report`` and ``--job-id`` to a command."""
    command = _job_id_option(
        "With --journal or --report: id of the job; run the command with the same id to continue it."
    )(command)
    command = click.option(
        "--report", metavar="URL", help="With --spark: append the report to the output at URL."
    )(command)
    return click.option(
        "--journal",
        metavar="STORE_URL",
        help="With --spark: keep a list of complete parts of the work below STORE_URL.",
    )(command)


def findings_options(command: F) -> F:
    """Add the options ``--findings`` and ``--job-id`` to a command."""
    command = _job_id_option(
        "With --findings: id of this run; the output gets the findings of an id once."
    )(command)
    return click.option(
        "--findings", metavar="URL", help="With --spark: append the findings to the output at URL."
    )(command)


def _job_id_option(help: str) -> Callable[[F], F]:
    return click.option("--job-id", metavar="ID", help=help)


def job_arguments(spark: str | None, job_id: str | None, **urls: str | None) -> dict[str, Any]:
    """Return the arguments of a job.

    Args:
        spark, job_id: the values of ``--spark`` and ``--job-id``.
        urls: the values of the other options, by name.

    Raises `UsageError` for options that need others.
    """
    given = {name: url for name, url in urls.items() if url is not None}
    names = [f"--{name}" for name in urls]
    if spark is None and (given or job_id):
        raise click.UsageError(f"{', '.join(names)} and --job-id require --spark")
    if job_id and not given:
        raise click.UsageError(f"--job-id requires {' or '.join(names)}")
    return {**given, "job_id": job_id} if given else {}


def run_on_spark(master: str, function: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of `commitlog.spark` in a session that ends with the call; return its result.

    The progress of its steps is shown on a terminal.

    Args:
        master: the Spark master.
        function: name of the function, which takes a session first, and `step_progress`.
        arguments, options: its other arguments.
    """
    try:
        from commitlog import spark
    except ImportError as error:
        raise ConfigurationError(str(error)) from error
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    session = spark.session(master, settings)
    try:
        with step_line() as show:
            return getattr(spark, function)(session, *arguments, step_progress=show, **options)
    finally:
        session.stop()
