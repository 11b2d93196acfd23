"""The options that locate a store, a table and a namespace.

``commitlog --help`` explains them once. The help of a command only lists their names. The module imports
nothing heavy, so that the help stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import click

__all__ = [
    "ANYTHING",
    "METADATA",
    "NAMESPACE",
    "OBJECT",
    "SERVICE",
    "STORE",
    "ConnectionOption",
    "Decorator",
    "connection_help",
]

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class ConnectionOption(click.Option):
    """An option that locates a service. The help of a command lists all of them in one entry."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the entry of all connection options for the first of them, and None for the others."""
        options = [each for each in ctx.command.params if isinstance(each, ConnectionOption)]
        if self is not options[0]:
            return None
        names = ", ".join(each.opts[0] for each in options)
        return "Connection options", f"{names}; see 'commitlog --help'."

    def full_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the names, metavar, help and environment variable of the option."""
        record = super().get_help_record(ctx)
        assert record is not None
        return record


def _option(name: str, help: str, **settings: Any) -> Decorator:
    variable = "COMMITLOG_" + name.upper().replace("-", "_")
    return click.option(
        f"--{name}", cls=ConnectionOption, envvar=variable, show_envvar=True, help=help, **settings
    )


#: Options for a service of AWS or a compatible one.
SERVICE: tuple[Decorator, ...] = (
    _option("endpoint-url", "Endpoint of the service; by default, AWS.", metavar="URL"),
    _option("region", "Region of the service."),
    _option("profile", "Profile of the shared AWS configuration, for credentials."),
)
#: Options for a store.
STORE: tuple[Decorator, ...] = (
    *SERVICE,
    _option(
        "addressing-style",
        "Whether URLs have the bucket in the path or in the host name.",
        type=click.Choice(["path", "virtual", "auto"]),
    ),
    _option("table", "Table of leases: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.", metavar="URL"),
    _option("commit", "auto, native, lease or dynamo:TABLE[:TIMEOUT_MS].", default="auto"),
    _option("probe-report", "Report of the store, as printed by probe --json.", metavar="FILE"),
)
_ROOT = _option("root", "Root of a local store that has no .commitlog yet.", metavar="DIR")
#: Options for an object.
OBJECT: tuple[Decorator, ...] = (*STORE, _ROOT)
_METADATA = _option(
    "metadata",
    "Metadata table of namespaces: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.",
    metavar="URL",
)
_CONTENT = click.option(
    "--store",
    cls=ConnectionOption,
    metavar="URL",
    help="Store of a namespace's content, if it is not the one of its creation.",
)
#: Options for a metadata table.
METADATA: tuple[Decorator, ...] = (_METADATA, *SERVICE)
#: Options for an object, a table, or a namespace with its content where it was created.
ANYTHING: tuple[Decorator, ...] = (*OBJECT, _METADATA)
#: Options for a namespace.
NAMESPACE: tuple[Decorator, ...] = (_METADATA, *STORE, _CONTENT)


def connection_help() -> Iterator[tuple[str, str]]:
    """Yield the help of each connection option, for the list of options."""

    def command() -> None:
        pass

    for decorator in reversed((*OBJECT, _METADATA, _CONTENT)):
        decorator(command)
    whole = click.command()(command)
    context = click.Context(whole)
    for option in whole.params:
        if isinstance(option, ConnectionOption):
            yield option.full_help_record(context)
