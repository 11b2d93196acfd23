"""The command group ``fs``: files and directories of namespaces, as with ``hadoop fs``."""

from __future__ import annotations

from types import MappingProxyType

import click

from commitlog.cli.lazy import LazyCommand, LazyGroup

__all__ = ["LITERAL", "fs"]

#: The key of the flag --literal in the context of a command.
LITERAL = f"{__name__}.literal"

#: Names of commands in Hadoop's shell, and our names.
_ALIASES = MappingProxyType({"copyFromLocal": "put", "copyToLocal": "get", "touchz": "touch"})

#: Commands of Hadoop's shell that namespaces cannot support, with the reason.
_WITHOUT = MappingProxyType(
    {
        **dict.fromkeys(
            ("chgrp", "chmod", "chown", "getfacl", "setfacl", "getfattr", "setfattr"),
            "namespaces have no owners and permissions: set those of the table and the store",
        ),
        **dict.fromkeys(
            ("appendToFile", "concat", "truncate"),
            "a file is written once: write a new one",
        ),
        **dict.fromkeys(("setrep", "df", "checksum"), "only the store knows how it keeps content"),
        **dict.fromkeys(
            ("createSnapshot", "deleteSnapshot", "renameSnapshot"), "namespaces have no snapshots"
        ),
        "expunge": "'commitlog namespace gc' empties the trash",
        "rmr": "use 'rm -r'",
        "lsr": "use 'ls -R'",
        "dus": "use 'du -s'",
        "count": "use 'du -s', and '--json' for the number of directories",
        "head": "use 'cat', and head(1)",
        "getmerge": "use 'cat', and redirect its output",
    }
)

_READ, _WRITE = "Read", "Write"
_COMMANDS = MappingProxyType(
    {
        target.partition(":")[2]: LazyCommand(f"commitlog.cli.fs.{target}", short_help, section)
        for section, target, short_help in (
            (_READ, "listing:ls", "List directories."),
            (_READ, "listing:find", "Find files and directories by name."),
            (_READ, "listing:test", "Test a path, with the result as exit status."),
            (_READ, "status:stat", "Show the status of files and directories."),
            (_READ, "listing:du", "Show the size of directories."),
            (_READ, "download:cat", "Write files to standard output."),
            (_READ, "download:tail", "Write the last bytes of files."),
            (_READ, "download:get", "Download files and directories."),
            (_WRITE, "upload:put", "Upload files and directories."),
            (_WRITE, "upload:cp", "Copy files and directories."),
            (_WRITE, "changes:mv", "Move or rename files and directories."),
            (_WRITE, "changes:rm", "Remove files and directories."),
            (_WRITE, "changes:mkdir", "Make directories."),
            (_WRITE, "changes:rmdir", "Remove empty directories."),
            (_WRITE, "changes:touch", "Make empty files, or set modification times."),
        )
    }
)


class _Shell(LazyGroup):
    """A group that also accepts command names with a leading dash, as Hadoop's shell does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {each for parameter in self.params for each in parameter.opts}
        at = next((at for at, argument in enumerate(args) if argument not in flags), len(args))
        if at < len(args) and args[at].startswith("-") and not args[at].startswith("--"):
            name = args[at][1:]
            if name == "help":
                args = [*args[:at], *args[at + 1 :][:1], "--help"]
            elif self.get_command(ctx, name) is not None or name in _WITHOUT:
                args = [*args[:at], name, *args[at + 1 :]]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.removeprefix("-")
        return super().get_command(ctx, _ALIASES.get(name, name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _WITHOUT:
            raise click.UsageError(f"command {args[0]!r} is not supported: {_WITHOUT[args[0]]}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Shell, lazy=_COMMANDS)
@click.option(
    "--literal", is_flag=True, help="Do not expand patterns: take URLs as 'ls -C' prints them."
)
@click.pass_context
def fs(context: click.Context, literal: bool) -> None:
    """Work with the files and directories of namespaces: commitlog://NAMESPACE/PATH.

    URLs of existing files may contain the patterns * ? [a-c] [^a-c] {a,b} within a name. A backslash
    escapes the next character. Quote patterns, or the shell expands them.

    Commands accept a leading dash, as in "hadoop fs": "fs -ls -R URL".

    Every change is one transaction: readers see all of it or nothing.
    """
    context.meta[LITERAL] = literal
