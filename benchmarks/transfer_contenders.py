"""Contenders that download and upload one object of any size, each as its documentation shows it.

A contender has the methods `get`, `put` and, for a file system, `read`. Each is made in a process of its
own, before the clock starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

__all__ = ["CONTENDERS", "FILE_SYSTEMS", "OBJECTS", "Place"]

#: The number of bytes of a read from an open file.
READ_SIZE = 1024 * 1024


@frozen(kw_only=True)
class Place:
    """Where the objects are.

    Attributes:
        endpoint_url: the URL of the proxy in front of the server.
        region, access_key_id, secret_access_key: of the server.
        bucket: the bucket.
        metadata: the URL of a metadata table with a namespace ``transfers`` in the bucket.
    """

    endpoint_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    bucket: str
    metadata: str


class Commitlog:
    """The functions behind the commands ``get`` and ``put``, with a store that is open already."""

    def __init__(self, place: Place) -> None:
        import commitlog

        self._store = commitlog.connect(
            f"s3://{place.bucket}",
            endpoint_url=place.endpoint_url,
            region=place.region,
            access_key_id=place.access_key_id,
            secret_access_key=place.secret_access_key,
        )

    def get(self, key: str, file: Path) -> None:
        """Download an object."""
        from commitlog.cli.file_io import atomic_file, save_object

        with atomic_file(str(file), absent=False) as target:
            save_object(self._store, key, target, started=lambda info: lambda size: None)

    def put(self, file: Path, key: str) -> None:
        """Upload a file."""
        with open(file, "rb") as source:
            self._store.put(key, source)


class Boto3:
    """boto3's transfer manager with its defaults."""

    def __init__(self, place: Place) -> None:
        import boto3
        from botocore.config import Config

        self._bucket = place.bucket
        self._client = boto3.client(
            "s3",
            endpoint_url=place.endpoint_url,
            region_name=place.region,
            aws_access_key_id=place.access_key_id,
            aws_secret_access_key=place.secret_access_key,
            config=Config(s3={"addressing_style": "path"}),
        )

    def get(self, key: str, file: Path) -> None:
        """Download an object."""
        with open(file, "wb") as target:
            self._client.download_fileobj(self._bucket, key, target)

    def put(self, file: Path, key: str) -> None:
        """Upload a file."""
        self._client.upload_file(str(file), self._bucket, key)


class Obstore:
    """obstore with its defaults: one request for a download, parts for an upload."""

    def __init__(self, place: Place) -> None:
        from obstore.store import S3Store

        self._store = S3Store(
            place.bucket,
            endpoint=place.endpoint_url,
            region=place.region,
            access_key_id=place.access_key_id,
            secret_access_key=place.secret_access_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    def get(self, key: str, file: Path) -> None:
        """Download an object."""
        import obstore

        with open(file, "wb") as target:
            for chunk in obstore.get(self._store, key):
                target.write(chunk)

    def put(self, file: Path, key: str) -> None:
        """Upload a file."""
        import obstore

        obstore.put(self._store, key, file)


class _FileSystem:
    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root

    def get(self, key: str, file: Path) -> None:
        """Download a file."""
        self._system.get_file(f"{self._root}/{key}", str(file))

    def put(self, file: Path, key: str) -> None:
        """Upload a file."""
        self._system.put_file(str(file), f"{self._root}/{key}")

    def read(self, key: str) -> int:
        """Read an open file to its end; return the number of bytes."""
        size = 0
        with self._system.open(f"{self._root}/{key}", "rb") as file:
            while block := file.read(READ_SIZE):
                size += len(block)
        return size


class S3fs(_FileSystem):
    """s3fs with its defaults."""

    def __init__(self, place: Place) -> None:
        from s3fs import S3FileSystem

        system = S3FileSystem(
            key=place.access_key_id,
            secret=place.secret_access_key,
            endpoint_url=place.endpoint_url,
            client_kwargs={"region_name": place.region},
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        super().__init__(system, place.bucket)


class Fsspec(_FileSystem):
    """The file system of this library, with its metadata in an SQLite file."""

    def __init__(self, place: Place) -> None:
        from commitlog.filesystem import CommitlogFileSystem

        os.environ |= {
            "AWS_ACCESS_KEY_ID": place.access_key_id,
            "AWS_SECRET_ACCESS_KEY": place.secret_access_key,
        }
        super().__init__(CommitlogFileSystem(metadata=place.metadata), "transfers")


#: The contenders that transfer objects, and those that are file systems.
OBJECTS: Mapping[str, Callable[[Place], Any]] = {
    "commitlog": Commitlog,
    "boto3": Boto3,
    "obstore": Obstore,
    "s3fs": S3fs,
}
FILE_SYSTEMS: Mapping[str, Callable[[Place], Any]] = {"fsspec": Fsspec, "s3fs": S3fs}
CONTENDERS = {**OBJECTS, **FILE_SYSTEMS}
