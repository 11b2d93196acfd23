"""The command ``fs stat``: the full status of a file or directory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import FailureCollector
from commitlog.cli.fs.paths import Match, matches, url_of, urls_argument
from commitlog.cli.output import json_option, moment, print_columns, print_json, printable

if TYPE_CHECKING:
    from commitlog.namespace import Namespace, Status

__all__ = ["stat", "status_record"]


def status_record(namespace: Namespace, status: Status) -> dict[str, Any]:
    """Return the status of a file or directory as --json prints it."""
    data, binding = status.data, status.binding
    return {
        "url": url_of(namespace, status.path),
        "path": status.path,
        "type": "directory" if status.is_directory else "file",
        "size": status.size,
        "etag": status.etag,
        "object": data and data.path,
        "object_version": data and data.version,
        "own": data and data.own,
        "bound_to": binding and binding.prefix,
        "id": status.id,
        "version": status.version,
        "created": status.created / 1000,
        "modified": status.modified / 1000,
        "updated": status.updated / 1000,
        "attributes": dict(status.attributes),
    }


_DIRECTIVES: Mapping[str, Callable[[Match], str]] = MappingProxyType(
    {
        "%": lambda _: "%",
        "b": lambda at: f"{at.matched.size}",
        "e": lambda at: at.matched.etag or "-",
        "F": lambda at: "directory" if at.is_directory else "regular file",
        "i": lambda at: at.matched.id,
        "n": lambda at: at.matched.name,
        "o": lambda at: "-" if at.matched.data is None else at.matched.data.path,
        "p": lambda at: at.path,
        "v": lambda at: f"{at.matched.version}",
        "w": lambda at: moment(at.matched.created / 1000),
        "W": lambda at: f"{at.matched.created}",
        "y": lambda at: moment(at.matched.modified / 1000),
        "Y": lambda at: f"{at.matched.modified}",
    }
)


@click.command()
@urls_argument
@click.option(
    "--format", "template", metavar="TEXT", help="Print TEXT with values in place of % sequences."
)
@json_option
@namespace_options
def stat(connection: Connection, urls: tuple[str, ...], template: str | None, json: bool) -> None:
    """Show the status of files and directories.

    \b
    In --format:
      %b  bytes               %F  "regular file" or "directory"
      %n  name                %p  path
      %y  modified            %Y  the same, in milliseconds since 1970
      %w  created             %W  the same, in milliseconds since 1970
      %i  id                  %v  version
      %e  etag                %o  object with the content
      %%  a percent sign

    \b
    Example:
      commitlog fs stat commitlog://lake/a.csv
    """
    if template is None and len(urls) > 1 and "%" in urls[0] and "://" not in urls[0]:
        template, urls = urls[0], urls[1:]  # Hadoop takes the format as the first argument
    if template is not None:
        unknown = [each for each in re.findall(r"%(.?)", template) if each not in _DIRECTIVES]
        if unknown:
            raise click.UsageError(f"--format: unknown sequence %{unknown[0]}; see --help")
    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            for each in matches(connection, url):
                if json:
                    print_json(status_record(each.namespace, each.matched))
                elif template is not None:
                    click.echo(printable(_format(template, each)))
                else:
                    print_columns(_rows(each))
    failures.exit()


def _format(template: str, at: Match) -> str:
    return re.sub(r"%(.)", lambda match: _DIRECTIVES[match[1]](at), template)


def _rows(at: Match) -> Iterator[tuple[str, str]]:
    status, data = at.matched, at.matched.data
    yield "url", at.url
    yield "type", "directory" if data is None else "file"
    if data is not None:
        yield "size", f"{data.size}"
        yield "etag", data.etag
        yield "object", data.path if data.own else f"{data.path} (imported)"
        yield "object version", data.version or "-"
    yield "modified", moment(status.modified / 1000)
    yield "created", moment(status.created / 1000)
    yield "updated", moment(status.updated / 1000)
    if status.binding is not None:
        yield "bound to", status.binding.prefix
    yield "id", status.id
    yield "version", f"{status.version}"
    for name, value in sorted(status.attributes.items()):
        yield f"attribute {name}", value
