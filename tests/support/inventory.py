"""S3 Inventories as S3 writes them: manifests, and data files in CSV, ORC and Parquet."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
from attrs import frozen

from commitlog.stores import ObjectInfo, ObjectStore

__all__ = ["CURRENT", "FORMATS", "VERSIONS", "Row", "inventory_of", "write_inventory"]

FORMATS = ("CSV", "ORC", "Parquet")

#: Fields of an inventory of current versions, and of one of all versions.
CURRENT = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag", "StorageClass")
VERSIONS = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", *CURRENT[2:])

#: For each field: name in ORC and Parquet, type, type in the manifest for ORC, and for Parquet.
_TYPES: dict[str, tuple[str, pa.DataType, str, str]] = {
    "Bucket": ("bucket", pa.string(), "string", "required binary bucket (UTF8)"),
    "Key": ("key", pa.string(), "string", "required binary key (UTF8)"),
    "VersionId": ("version_id", pa.string(), "string", "optional binary version_id (UTF8)"),
    "IsLatest": ("is_latest", pa.bool_(), "boolean", "optional boolean is_latest"),
    "IsDeleteMarker": ("is_delete_marker", pa.bool_(), "boolean", "optional boolean is_delete_marker"),
    "Size": ("size", pa.int64(), "bigint", "optional int64 size"),
    "LastModifiedDate": (
        "last_modified_date",
        pa.timestamp("ms"),
        "timestamp",
        "optional int64 last_modified_date (TIMESTAMP(MILLIS,true))",
    ),
    "ETag": ("e_tag", pa.string(), "string", "optional binary e_tag (UTF8)"),
    "StorageClass": ("storage_class", pa.string(), "string", "optional binary storage_class (UTF8)"),
}


@frozen
class Row:
    """An object in an inventory; `milliseconds` is the time of its last change."""

    key: str
    size: int | None = 1
    etag: str | None = "e"
    milliseconds: int = 0
    version: str = ""
    latest: bool = True
    marker: bool = False

    def value(self, field: str, bucket: str) -> Any:
        """Return the value of a field."""
        return {
            "Bucket": bucket,
            "Key": self.key,
            "VersionId": self.version,
            "IsLatest": self.latest,
            "IsDeleteMarker": self.marker,
            "Size": self.size,
            "LastModifiedDate": self.milliseconds,
            "ETag": self.etag,
            "StorageClass": "STANDARD",
        }[field]


def inventory_of(objects: Iterable[ObjectInfo], prefix: str = "") -> list[Row]:
    """Return the rows for the objects of a store, which is at `prefix` in its bucket."""
    return [
        Row(prefix + info.path, info.size, info.etag.strip('"'), round(info.last_modified * 1000))
        for info in objects
    ]


def write_inventory(
    store: ObjectStore,
    rows: Sequence[Row],
    format: str,
    *,
    bucket: str = "source",
    above: str = "inventories/source/all",
    date: str = "2026-11-06T21-32Z",
    milliseconds: int = 1_000_000,
    fields: Collection[str] = CURRENT,
    files: int = 2,
) -> str:
    """Write an inventory of a bucket; return the path of its manifest.

    Args:
        store: the bucket for the inventory.
        rows: the objects.
        format: one of `FORMATS`.
        bucket: name of the listed bucket.
        above: directory of all dates.
        date: directory of this date.
        milliseconds: the time at which the listing began.
        fields: the fields of the data files.
        files: number of data files.
    """
    written = []
    for number in range(files):
        body = _encode(rows[number::files], format, bucket, fields)
        suffix = {"CSV": "csv.gz", "ORC": "orc", "Parquet": "parquet"}[format]
        key = f"{above}/data/{date}-{number}.{suffix}"
        store.put(key, body)
        checksum = hashlib.md5(body, usedforsecurity=False).hexdigest()
        written.append({"key": key, "size": len(body), "MD5checksum": checksum})
    manifest = {
        "sourceBucket": bucket,
        "destinationBucket": "arn:aws:s3:::destination",
        "version": "2016-11-30",
        "creationTimestamp": str(milliseconds),
        "fileFormat": format,
        "fileSchema": _schema(format, fields),
        "files": written,
    }
    content = json.dumps(manifest, indent=2).encode()
    path = f"{above}/{date}/manifest.json"
    store.put(path, content)
    store.put(f"{above}/{date}/manifest.checksum", _digest(content))
    return path


def _digest(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).hexdigest().encode()


def _schema(format: str, fields: Collection[str]) -> str:
    if format == "CSV":
        return ", ".join(fields)
    if format == "ORC":
        return f"struct<{','.join(f'{_TYPES[each][0]}:{_TYPES[each][2]}' for each in fields)}>"
    return f"message s3.inventory {{ {' '.join(f'{_TYPES[each][3]};' for each in fields)} }}"


def _encode(rows: Sequence[Row], format: str, bucket: str, fields: Collection[str]) -> bytes:
    if format == "CSV":
        return gzip.compress(_csv(rows, bucket, fields).encode())
    columns = {
        _TYPES[each][0]: pa.array([row.value(each, bucket) for row in rows], _TYPES[each][1])
        for each in fields
    }
    file = io.BytesIO()
    if format == "ORC":
        pa.orc.write_table(pa.table(columns), file, compression="zlib")
    else:
        pa.parquet.write_table(pa.table(columns), file, row_group_size=2)
    return file.getvalue()


def _csv(rows: Sequence[Row], bucket: str, fields: Collection[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for row in rows:
        values = {each: row.value(each, bucket) for each in fields}
        values["Key"] = quote_plus(row.key, safe="/")
        if "LastModifiedDate" in values:
            time = pa.scalar(row.milliseconds, pa.timestamp("ms")).as_py()
            values["LastModifiedDate"] = time.isoformat(timespec="milliseconds") + "Z"
        writer.writerow(
            str(each).lower() if isinstance(each, bool) else each for each in values.values()
        )
    return text.getvalue()
