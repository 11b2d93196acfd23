"""Namespaces of the benchmark, and how any process opens them.

A file whose content is never read refers to an object that does not exist. So a directory of a hundred
thousand files is made in seconds, and its rows in the table are the same as those of other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import boto3
from attrs import frozen
from servers import Ministack

from commitlog.namespace import NAMESPACE_SCHEMA, Data, Namespace
from commitlog.namespaces import create_namespace, open_namespace
from commitlog.tables.open import open_table

__all__ = ["DYNAMODB", "SQLITE", "Site", "created", "dynamodb_site", "fill", "made_up", "sqlite_site"]

SQLITE, DYNAMODB = "sqlite", "dynamodb"


@frozen(kw_only=True)
class Site:
    """The location of a namespace, which can be sent to other processes.

    Attributes:
        kind: `SQLITE`, with a directory for the content, or `DYNAMODB`, with S3.
        names: URL of the metadata table.
        store: URL of the content.
        key, secret: credentials of the test server; empty if it needs none.
    """

    kind: str
    names: str
    store: str
    key: str = ""
    secret: str = ""

    def open(self) -> Namespace:
        """Open the namespace, as a separate client would."""
        return open_namespace("lake", metadata=self.names, commit=self._commit, session=self._session)

    def create(self, *, log: bool) -> Namespace:
        """Create the namespace, with or without a log of its changes."""
        return create_namespace(
            "lake",
            metadata=self.names,
            store=self.store,
            log=log,
            commit=self._commit,
            session=self._session,
        )

    @property
    def _commit(self) -> str:
        return "native" if self.kind == DYNAMODB else "auto"

    @property
    def _session(self) -> boto3.Session | None:
        if not self.key:
            return None
        return boto3.Session(aws_access_key_id=self.key, aws_secret_access_key=self.secret)


def sqlite_site(directory: Path) -> Site:
    """Return a site of a new directory and an SQLite file in it."""
    (directory / "data").mkdir(parents=True)
    # The first file of each prefix creates its directory, which takes as long as the file itself. In a
    # store in use these directories exist, so they are created here.
    for prefix in range(16**3):
        (directory / "data" / f"{prefix:03x}").mkdir()
    return Site(kind=SQLITE, names=f"sqlite://{directory}/names.db", store=f"file://{directory}/data")


def dynamodb_site(server: Ministack, endpoint_url: str = "") -> Site:
    """Return a site of a new table and bucket on `server`, or behind `endpoint_url` if that is given."""
    options = f"endpoint_url={endpoint_url or server.endpoint_url}&region={server.region}"
    site = Site(
        kind=DYNAMODB,
        names=f"dynamodb://{server.new_table_name()}?{options}",
        store=f"s3://{server.new_bucket()}?{options}",
        key=server.access_key_id,
        secret=server.secret_access_key,
    )
    table = open_table(site.names, NAMESPACE_SCHEMA, session=site._session)
    table.create()
    table.close()
    return site


@contextmanager
def created(site: Site, *, log: bool) -> Iterator[Namespace]:
    """Create the namespace of `site`; close it at the end."""
    lake = site.create(log=log)
    try:
        yield lake
    finally:
        lake.close()


def made_up(name: str) -> Data:
    """Return the content record of a file that is never read."""
    return Data(path=f"made-up/{name}", size=1_000_000, etag=f'"{name:>032}"', own=False)


def fill(lake: Namespace, directory: str, files: int, *, shards: int = 1) -> None:
    """Create a directory with `files` files."""
    lake.make_directory(directory, shards=shards)
    contents: Mapping[str, Data] = {
        f"part-{number:06}": made_up(f"part-{number:06}") for number in range(files)
    }
    lake.bulk_link(directory, contents)
