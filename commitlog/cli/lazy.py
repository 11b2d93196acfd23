"""Command groups that import a command when it is used.

Their help needs no import, because a group has a table of the names and short help of its commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

__all__ = ["LazyCommand", "LazyGroup"]


class LazyCommand(NamedTuple):
    """A command that is not imported yet.

    Attributes:
        target: the module and the name in it: ``"commitlog.cli.objects.read:get"``.
        short_help: one line for the list of commands.
        section: its heading in the list of commands.
    """

    target: str
    short_help: str
    section: str = "Commands"

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self.target.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


class LazyGroup(click.Group):
    """A command group with a table of commands, each imported when it runs or shows its help.

    Other commands can be added as to any group.

    Args:
        lazy: the commands by name.
        arguments: those of `click.Group`.
    """

    def __init__(
        self, *arguments: Any, lazy: Mapping[str, LazyCommand] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*self.lazy, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command and return it; return None if it does not exist."""
        if cmd_name in self.lazy and cmd_name not in self.commands:
            self.add_command(self.lazy[cmd_name].load(), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, without importing them."""
        width = max(map(len, self.list_commands(ctx)), default=0)
        lines = dict(self._visible(ctx, limit=formatter.width - 6 - width))
        sections: dict[str, list[str]] = {}
        for name, command in self.lazy.items():
            sections.setdefault(command.section, []).append(name)
        others = [name for name in lines if name not in self.lazy]
        sections.setdefault("Commands", []).extend(others)
        for heading, names in sections.items():
            if rows := [(name.ljust(width), lines[name]) for name in names if name in lines]:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with `incomplete`, without importing commands."""
        found = self._visible(ctx, limit=80)
        commands = [
            CompletionItem(name, help=line) for name, line in found if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def _visible(self, ctx: click.Context, *, limit: int) -> Iterator[tuple[str, str]]:
        """Yield the names and the short help of commands, cut after `limit` characters."""
        for name in self.list_commands(ctx):
            if name in self.lazy:
                yield name, self.lazy[name].short_help
            elif (command := self.get_command(ctx, name)) is not None and not command.hidden:
                yield name, command.get_short_help_str(limit)
