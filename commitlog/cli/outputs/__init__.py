"""The command group ``output``: the log, recovery, compaction and garbage of outputs."""

from __future__ import annotations

from types import MappingProxyType

import click

from commitlog.cli.lazy import LazyCommand, LazyGroup

__all__ = ["output"]

_COMMANDS = MappingProxyType(
    {
        "log": LazyCommand("commitlog.cli.outputs.log:log", "Show the commits of an output."),
        "recover": LazyCommand(
            "commitlog.cli.outputs.recover:recover", "Finish or abort the jobs of dead drivers."
        ),
        "compact": LazyCommand(
            "commitlog.cli.outputs.compact:compact", "Merge small files into larger ones."
        ),
        "gc": LazyCommand("commitlog.cli.outputs.gc:gc", "Recover, and remove unreferenced files."),
    }
)


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def output() -> None:
    """Show and maintain outputs: directories that jobs commit files to.

    URL is the directory of the output, such as s3://bucket/out.
    """
