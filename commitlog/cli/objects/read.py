"""The commands ``get``, ``cat``, ``ls`` and ``stat``, which read objects."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.file_io import atomic_file, read_object, save_object
from commitlog.cli.output import (
    human_option,
    json_option,
    moment,
    no_letter_r,
    object_record,
    print_columns,
    print_json,
    progress_file,
    size_of,
)
from commitlog.stores.body import chunks
from commitlog.transfer import BLOCK_SIZE, Advance

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore
    from commitlog.stores.api import ObjectInfo

__all__ = ["cat", "get", "ls", "stat"]

_WRITE_SIZE = 1024 * 1024


@click.command()
@click.argument("url")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--if-match", metavar="ETAG", help="Only if the object has this etag.")
@click.option("--if-absent", is_flag=True, help="Only if FILE does not exist.")
@json_option
@object_options
def get(
    connection: Connection, url: str, file: str, if_match: str | None, if_absent: bool, json: bool
) -> None:
    """Download the object URL to FILE, or to standard output if FILE is "-".

    FILE appears when it is complete. All bytes are of one version: if the object is replaced during the
    download, the command exits with status 3 and FILE is unchanged.

    \b
    Example:
      commitlog get s3://bucket/report.csv report.csv
    """
    location = connection.locate(url)
    store = connection.open(location.store)
    if file == "-":
        _print(store, location.path, if_match)
        return
    with ExitStack() as stack:
        target = stack.enter_context(atomic_file(file, absent=if_absent))

        def started(info: ObjectInfo) -> Advance:
            return stack.enter_context(_progress_bar(info.size)).update

        info = save_object(store, location.path, target, etag=if_match, started=started)
    if json:
        print_json({**object_record(location, info), "file": file})


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("--if-match", metavar="ETAG", help="Only if the object has this etag.")
@object_options
def cat(connection: Connection, urls: tuple[str, ...], if_match: str | None) -> None:
    """Write objects to standard output, one after the other.

    \b
    Example:
      commitlog cat s3://bucket/a.txt s3://bucket/b.txt
    """
    for url in urls:
        location = connection.locate(url)
        _print(connection.open(location.store), location.path, if_match)


def _print(store: ConditionalStore, path: str, etag: str | None) -> None:
    info, blocks = read_object(store, path, etag=etag)
    with closing(blocks), _progress_bar(info.size) as bar:
        for block in blocks:
            # In parts: a part of which a closed standard output took a beginning is no error yet.
            for part in chunks(block, _WRITE_SIZE):
                sys.stdout.buffer.write(part)
                bar.update(len(part))
    sys.stdout.buffer.flush()


def _progress_bar(size: int) -> click._termui_impl.ProgressBar[int]:
    is_hidden = size < BLOCK_SIZE or not sys.stderr.isatty()
    return click.progressbar(length=size, label="reading", file=progress_file(hidden=is_hidden))


@click.command()
@click.argument("url")
@click.option("-l", "--long", is_flag=True, help="Show size, modification time and etag, too.")
@click.option("-R", "--recursive", is_flag=True, help="List all levels below, not only one.")
@no_letter_r
@human_option
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of lines.")
@json_option
@object_options
def ls(
    connection: Connection,
    url: str,
    long: bool,
    recursive: bool,
    human: bool,
    limit: int | None,
    json: bool,
) -> None:
    """List the objects whose URL begins with URL: one level, or with --recursive all levels.

    URL is a prefix of keys, as in other tools for object stores. To list a directory, end it with "/".

    \b
    Example:
      commitlog ls -lh s3://bucket/reports/
    """
    location = connection.locate(url, prefix=True)
    objects = connection.open(location.store)
    delimiter = "" if recursive else "/"
    for entry in itertools.islice(_entries(objects, location.path, delimiter), limit):
        if isinstance(entry, str):
            record = {"type": "prefix", "url": location.url_of(entry), "path": entry}
            details = ("-", "-", "-")
        else:
            record = {"type": "object", **object_record(location, entry)}
            details = (size_of(entry.size, human=human), moment(entry.last_modified), entry.etag)
        if json:
            print_json(record)
        elif long:
            click.echo("{:>14}  {:20}  {}  {}".format(*details, record["url"]))
        else:
            click.echo(record["url"])


def _entries(objects: ConditionalStore, prefix: str, delimiter: str) -> Iterator[str | ObjectInfo]:
    for page in objects.list_pages(prefix, delimiter=delimiter):
        yield from page.prefixes
        yield from page.objects


@click.command()
@click.argument("url")
@json_option
@object_options
def stat(connection: Connection, url: str, json: bool) -> None:
    """Show the object URL: size, etag, version, modification time, metadata.

    \b
    Example:
      commitlog stat s3://bucket/report.csv
    """
    location = connection.locate(url)
    info = connection.open(location.store).head(location.path)
    if json:
        print_json({**object_record(location, info), "metadata": dict(info.metadata)})
        return
    print_columns(
        [
            ("url", location.url),
            ("size", f"{info.size}"),
            ("etag", info.etag),
            ("version", info.version or "-"),
            ("modified", moment(info.last_modified)),
            *((f"metadata {name}", value) for name, value in sorted(info.metadata.items())),
        ]
    )
