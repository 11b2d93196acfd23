"""The commands ``namespace gc``, ``recover`` and ``compact``, for periodic maintenance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from commitlog.cli.connection import (
    Connection,
    grace_option,
    namespace_options,
    write_units_option,
)
from commitlog.cli.exit_status import Exit, message_of, print_error
from commitlog.cli.namespace.cluster import job_arguments, job_options, run_on_spark, spark_option
from commitlog.cli.output import (
    counted,
    duration,
    json_option,
    moment,
    print_json,
    readable,
)
from commitlog.cli.parameters import DURATION
from commitlog.errors import CommitError

if TYPE_CHECKING:
    from commitlog.namespace import CompactionReport, GcReport, TrashReport

__all__ = ["abandoned_option", "compact", "gc", "recover"]

R = TypeVar("R")


def abandoned_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the option `older_than`, the age at which a pending change is abandoned, to `command`."""
    return click.option(
        "--older-than",
        type=DURATION,
        default="1h",
        show_default=True,
        help="Age at which a pending change counts as abandoned.",
    )(command)


@click.command()
@click.argument("name")
@grace_option
@spark_option("Remove files and content")
@job_options
@write_units_option
@json_option
@namespace_options
def gc(
    connection: Connection,
    name: str,
    spark: str | None,
    journal: str | None,
    report: str | None,
    job_id: str | None,
    json: bool,
) -> None:
    """Empty the trash of the namespace NAME, and remove unreferenced content.

    The command first abandons jobs that were started a week ago and never published. At the end it
    aborts uploads of that age, which dead writers left behind.

    Content is removed --grace after its file was overwritten or removed, or after its directory left the
    trash. So a later run frees the space of files that were removed a moment ago.

    Run the command from cron, at any time and as often as you like; writers, readers and other runs may
    be active. It can be interrupted. Failures are reported, with the paths of objects and the ids of
    files and directories in the trash. The exit status is then 1, and the next run tries again.

    With --spark, the executors of a cluster empty the trash and remove content; see the command "fsck"
    for what this needs. --journal, --report and --job-id concern the content.

    \b
    Example:
      commitlog namespace gc lake
    """
    from commitlog.namespace import abort_stale_attempts, abort_uploads

    job = job_arguments(spark, job_id, journal=journal, report=report)
    namespace = connection.namespace(name)
    abandoned = abort_stale_attempts(namespace)
    with counted("emptying the trash", hidden=spark is not None) as count:

        def swept_so_far(done: TrashReport) -> None:
            count(done.files + done.directories)

        if spark is None:
            swept = namespace.maintenance.empty_trash(swept_so_far)
        else:
            swept = run_on_spark(
                spark,
                "empty_trash",
                name,
                grace=connection.grace,
                **connection.namespace_arguments(name),
            )
    with counted("removing objects", hidden=spark is not None) as count:

        def collected_so_far(done: GcReport) -> None:
            count(done.objects)

        if spark is None:
            collected = namespace.maintenance.gc(collected_so_far)
        else:
            arguments = {**job, **connection.namespace_arguments(name)}
            collected = run_on_spark(spark, "gc", name, **arguments)
    uploads, failed = 0, [*swept.failed, *collected.failed]
    try:
        uploads = abort_uploads(namespace)
    except CommitError as unfinished:  # only the listing of uploads needs this permission
        failed.append(("uploads", message_of(unfinished)))
    for what, error in failed:
        print_error(error, what=what)
    if json:
        print_json(
            {
                "abandoned": abandoned,
                "files": swept.files,
                "directories": swept.directories,
                "objects": collected.objects,
                "bytes": collected.bytes,
                "uploads": uploads,
                "failed": [{"what": what, "error": error} for what, error in failed],
            }
        )
    else:
        if abandoned:
            click.echo(f"jobs abandoned: {abandoned}")
        click.echo(f"removed from the trash: {swept.files} files, {swept.directories} directories")
        click.echo(f"objects removed: {collected.objects}, {readable(collected.bytes)}")
        if uploads:
            click.echo(f"uploads aborted: {uploads}")
    click.get_current_context().exit(Exit.FAILED if failed else Exit.DONE)


@click.command()
@click.argument("name")
@abandoned_option
@json_option
@namespace_options
def recover(connection: Connection, name: str, older_than: float, json: bool) -> None:
    """Decide the changes that are pending in the log of the namespace NAME.

    A change is pending if its client died before it logged the outcome. The command adds the outcome to
    the log; names and content do not change. Run it at any time; writers may be active.

    \b
    Example:
      commitlog namespace recover lake
    """
    namespace = connection.namespace(name)
    decided = namespace.maintenance.recover(older_than=older_than)
    for operation in decided:
        decision = operation.decision and operation.decision.value
        if json:
            print_json({"id": operation.id, "time": operation.time, "decision": decision})
        else:
            click.echo(f"{operation.id}  {moment(operation.time)}  {decision or 'pending'}")
    if not decided and not json:
        click.echo(f"no pending change is older than {duration(older_than)}")


@click.command()
@click.argument("name")
@click.option(
    "--older-than",
    type=DURATION,
    default="1d",
    show_default=True,
    help="Minimum age of the changes that are merged into the checkpoint.",
)
@json_option
@namespace_options
def compact(connection: Connection, name: str, older_than: float, json: bool) -> None:
    """Shorten the log of the namespace NAME.

    Afterwards the log grows with the number of files, not of changes; the namespace can still be
    restored.

    Run the command from cron from time to time; writers may be active. It can be interrupted. If several
    runs are active, one continues.

    \b
    Example:
      commitlog namespace compact lake --older-than 7d
    """
    namespace = connection.namespace(name)
    with counted("changes, files and directories processed") as count:

        def progress(so_far: CompactionReport) -> None:
            count(so_far.read + so_far.written)

        done = namespace.maintenance.compact_log(older_than=older_than, progress=progress)
    if json:
        print_json({"operations": done.operations, "states": done.states})
    else:
        click.echo(
            f"changes removed from the log: {done.operations}; states in the checkpoint: {done.states}"
        )
