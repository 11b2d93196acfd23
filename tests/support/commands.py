"""The commands of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import click

__all__ = ["commands"]


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all commands below it, with their command lines.

    Args:
        command: a command, or a group.
        path: its command line.
    """
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, f"{path} {name}"
            yield from commands(below, f"{path} {name}")
