"""S3 Inventory: lists of the objects of a bucket, which S3 writes daily or weekly.

Source: "Locating your inventory list" and "Amazon S3 Inventory list" in the user guide of Amazon S3. An
inventory is in another bucket, or in the same one::

    PREFIX/SOURCE-BUCKET/CONFIGURATION/2026-11-06T21-32Z/manifest.json
    PREFIX/SOURCE-BUCKET/CONFIGURATION/2026-11-06T21-32Z/manifest.checksum
    PREFIX/SOURCE-BUCKET/CONFIGURATION/data/4b89-8fc3.parquet

The checksum is written last. The manifest has the keys of the data files.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, BinaryIO, cast
from urllib.parse import unquote_plus

import pyarrow as pa
from attrs import evolve, field, frozen

from commitlog.errors import ConfigurationError, CorruptRecord, NotFound, NotSupported
from commitlog.files import OUTPUT_FORMATS, StoredObject
from commitlog.files.io import convert_errors, open_output_file
from commitlog.files.timestamps import micros_of
from commitlog.namespace.partitioned.dataset import Dataset, Engine, OpenAccess
from commitlog.namespace.partitioned.objects import ObjectListing
from commitlog.stores import ObjectInfo, ObjectStore, open_store
from commitlog.urls import Url, parse_store_url

__all__ = ["Inventory", "open_inventory"]

_MANIFEST = "manifest.json"
_CHECKSUM = "manifest.checksum"

#: The name of the directory of an inventory.
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z/")

#: The fields to read, as `_plain` spells them, by the name under which S3 is asked for them.
_NEEDED = MappingProxyType(
    {"key": "Key", "size": "Size", "lastmodifieddate": "LastModifiedDate", "etag": "ETag"}
)
#: The fields that an inventory of all versions has in addition.
_OF_VERSIONS = MappingProxyType(
    {"versionid": "VersionId", "islatest": "IsLatest", "isdeletemarker": "IsDeleteMarker"}
)
_FIELDS = (*_NEEDED, *_OF_VERSIONS)

#: Patterns of the names in the schema of a format, as the manifest has it.
_NAMES = MappingProxyType(
    {
        "csv": re.compile(r"(\w+)"),
        "orc": re.compile(r"(\w+)\s*:"),
        "parquet": re.compile(r"(?:required|optional)\s+\w+\s+(\w+)"),
    }
)

#: The types of the columns to read, of those that are not texts.
_TYPES = MappingProxyType(
    {
        "size": pa.int64(),
        "lastmodifieddate": pa.timestamp("us"),
        "islatest": pa.bool_(),
        "isdeletemarker": pa.bool_(),
    }
)

#: Size in bytes of the blocks in which a CSV file is read.
_BLOCK = 1024 * 1024


@frozen
class InventoryFile:
    """A file of an inventory: its key in the bucket, and its size in bytes."""

    key: str
    size: int


@frozen(kw_only=True)
class Inventory(ObjectListing):
    """An inventory of the bucket of a store. Its files are read by the tasks.

    The size of a file is verified, its checksum is not: a wrong row only makes an object suspect.

    Attributes:
        time: epoch seconds; S3 began to list the bucket then. Younger objects may be missing.
        place: the bucket with the inventory.
        files: the data files.
        format: ``csv``, ``orc`` or ``parquet``.
        columns: names of the columns of each file, in their order.
        prefix: prefix of the keys of the store in its bucket.
    """

    time: float
    place: Url
    files: tuple[InventoryFile, ...] = field(repr=False)
    format: str
    columns: tuple[str, ...]
    prefix: str

    def objects(
        self, engine: Engine, open_access: OpenAccess, others: Dataset[str] | None
    ) -> Dataset[ObjectInfo]:
        """See `ObjectListing.objects`. Each data file is a partition; all objects are returned."""
        return engine.distribute(self.files).map(self.read)

    def read(self, files: Iterator[InventoryFile]) -> Iterator[ObjectInfo]:
        """Yield the objects of the store in some of the files.

        Raises:
            CorruptRecord: a file cannot be read.
            NotFound: a file does not exist any more.
        """
        with closing(open_store(self.place)) as store:
            for file in files:
                size = store.head(file.key).size
                if size != file.size:
                    raise CorruptRecord(f"{file.key!r} has {size} bytes instead of {file.size}")
                with convert_errors(file.key, f"an inventory in {self.format}", CorruptRecord):
                    for row in self._rows(StoredObject(store, file.key, size)):
                        info = self._object(*row)
                        if info is not None:
                            yield info

    def _rows(self, source: StoredObject) -> Iterator[Sequence[Any]]:
        """Yield the values of the fields; None for a field that the inventory does not have."""
        columns = {_plain(name): name for name in self.columns}
        names = [columns.get(each) for each in _FIELDS]
        if self.format == "csv":
            at = [None if name is None else self.columns.index(name) for name in names]
            for row in _csv_rows(source, len(self.columns)):
                yield [None if number is None else row[number] for number in at]
            return
        known = zip(_FIELDS, names, strict=True)
        wanted = pa.schema([(name, _TYPES.get(each, pa.string())) for each, name in known if name])
        for batch in OUTPUT_FORMATS[self.format].read(source, wanted, wanted.names):
            nothing = [None] * batch.num_rows
            yield from zip(
                *(nothing if name is None else _values(batch.column(name)) for name in names),
                strict=True,
            )

    def _object(
        self, key: Any, size: Any, modified: Any, etag: Any, version: Any, latest: Any, marker: Any
    ) -> ObjectInfo | None:
        """Return the object of a row; None for an older version, and outside of the store."""
        if self.format == "csv":
            key, modified = unquote_plus(key, errors="strict"), micros_of(modified, instant=True)
            latest, marker = latest != "false", marker == "true"
        if latest is False or marker or not key.startswith(self.prefix):
            return None
        path = key.removeprefix(self.prefix)
        if not int(size) and path[-1:] in ("", "/"):  # it stands for a directory
            return None
        return ObjectInfo(
            path=path,
            size=int(size),
            etag=etag or "",
            version=version or None,
            last_modified=modified / 1e6,
        )


def _plain(name: str) -> str:
    """Return the name of a field in the spelling of all formats.

    >>> _plain("LastModifiedDate"), _plain("last_modified_date")
    ('lastmodifieddate', 'lastmodifieddate')
    """
    return name.replace("_", "").lower()


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; times in microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return column.to_pylist()  # type: ignore[no-any-return]


def _csv_rows(source: StoredObject, width: int) -> Iterator[list[str]]:
    with (
        open_output_file(source, "CSV", block=_BLOCK) as stored,
        gzip.GzipFile(fileobj=cast("BinaryIO", stored)) as content,
        io.TextIOWrapper(content, "utf-8", newline="") as text,
    ):
        try:
            for row in csv.reader(text):
                if len(row) != width:
                    raise ValueError(f"a row has {len(row)} columns instead of {width}")
                yield row
        except (csv.Error, zlib.error) as error:
            raise ValueError(str(error)) from error


# -- manifests -----------------------------------------------------------------------------------------


def open_inventory(url: str | Url, store: str | Url) -> Inventory:
    """Return an inventory of a store's bucket. This reads its manifest.

    Args:
        url: URL of the manifest, of the directory of a date, or of the directory of all dates. Of that,
            the newest complete inventory is opened.
        store: URL of the store. A local directory counts as a bucket with the directory's name.

    Raises:
        ConfigurationError: there is no complete inventory at `url`, it is one of another bucket, or it
            lacks a field.
        CorruptRecord: the manifest is damaged.
        NotSupported: the inventory has an unknown format.

    It also raises the errors of `open_store`.
    """
    place = parse_store_url(url) if isinstance(url, str) else url
    of = parse_store_url(store) if isinstance(store, str) else store
    # The manifest has keys. In a local directory, nothing shows where the bucket begins.
    local = place.scheme == "file"
    path = place.name.lstrip("/") if local else place.prefix
    root = evolve(place, name="/") if local else evolve(place, prefix="")
    with closing(open_store(root)) as opened:
        path = _manifest_at(opened, path.removesuffix("/"))
        content = _verified(opened, path)
        try:
            manifest = _Manifest.of(json.loads(content))
        except (LookupError, TypeError, ValueError) as error:
            raise CorruptRecord(f"{path!r} is not the manifest of an S3 Inventory: {error}") from error
        above = _bucket_above(opened, path, manifest.files) if local else ""
    bucket = os.path.basename(of.name) if of.scheme == "file" else of.name
    if manifest.bucket != bucket:
        raise ConfigurationError(
            f"the inventory {path!r} is one of bucket {manifest.bucket!r}; the store is in {bucket!r}"
        )
    return Inventory(
        time=manifest.time,
        place=root,
        files=tuple(evolve(each, key=above + each.key) for each in manifest.files),
        format=manifest.format,
        columns=_columns(path, manifest),
        prefix=f"{of.prefix}/" if of.prefix else "",
    )


@frozen(kw_only=True)
class _Manifest:
    """The fields of a manifest that matter; see `Inventory`. `schema` is a text in another format."""

    bucket: str
    time: float
    format: str
    schema: str
    files: tuple[InventoryFile, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> _Manifest:
        """Return the manifest in a JSON object. Raises builtin errors if it is not one."""
        return cls(
            bucket=str(fields["sourceBucket"]).rpartition(":")[2],  # it may be an ARN
            time=int(fields["creationTimestamp"]) / 1000,
            format=str(fields["fileFormat"]).lower(),
            schema=str(fields["fileSchema"]),
            files=tuple(InventoryFile(str(each["key"]), int(each["size"])) for each in fields["files"]),
        )


def _manifest_at(store: ObjectStore, path: str) -> str:
    """Return the path of the manifest at a path; see `open_inventory`."""
    if path.rpartition("/")[2] == _MANIFEST:
        return path
    prefix = f"{path}/" if path else ""
    found = [each for page in store.list_pages(prefix, delimiter="/") for each in page.prefixes]
    dates = [each for each in found if _DATE.fullmatch(each.removeprefix(prefix))]
    for date in [*sorted(dates, reverse=True), prefix]:
        if store.begin_head(date + _CHECKSUM)().info is not None:
            return date + _MANIFEST
    raise ConfigurationError(
        f"there is no complete S3 Inventory at {path!r}: neither a {_MANIFEST} with its {_CHECKSUM},"
        " nor a directory like 2026-11-06T21-32Z/ with them. Wait for the first one, or correct the URL"
    )


def _verified(store: ObjectStore, path: str) -> bytes:
    """Return the content of a manifest, after a comparison with its checksum."""
    try:
        checksum = store.get(f"{path.removesuffix(_MANIFEST)}{_CHECKSUM}").data
    except NotFound as error:
        raise ConfigurationError(f"the inventory {path!r} is not complete: {error}") from error
    content = store.get(path).data
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if checksum.strip().lower() != digest.encode():
        raise CorruptRecord(f"{path!r} has another checksum than its {_CHECKSUM}")
    return content


def _bucket_above(store: ObjectStore, path: str, files: Sequence[InventoryFile]) -> str:
    """Return the directory, above a manifest, below which the keys of the files are."""
    above = path
    while files and above:
        above = above.rpartition("/")[0]
        prefix = f"{above}/" if above else ""
        if store.begin_head(prefix + files[0].key)().info is not None:
            return prefix
    return ""


def _columns(path: str, manifest: _Manifest) -> tuple[str, ...]:
    """Return the columns of the data files. Raises `ConfigurationError` if one is missing."""
    if manifest.format not in _NAMES:
        raise NotSupported(f"the inventory {path!r} has the format {manifest.format!r}")
    columns = tuple(_NAMES[manifest.format].findall(manifest.schema))
    known = set(map(_plain, columns))
    needed = {**_NEEDED, **(_OF_VERSIONS if "versionid" in known else {})}
    if missing := [name for each, name in needed.items() if each not in known]:
        raise ConfigurationError(
            f"the inventory {path!r} lacks {', '.join(missing)}: add this to the optional fields of its"
            " configuration in S3, and wait for the next one"
        )
    return columns
