"""What answers of S3 say, as the port's records. Imports the port, errors and the XML.

`root` is always the prefix that was opened, with its slash: keys come in, paths go out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element

from commitlog.errors import CorruptRecord, Unavailable
from commitlog.stores.api import ObjectData, ObjectInfo, Page, PutResult, StagedInfo
from commitlog.stores.s3_xml import http_date, iso_date

__all__ = ["META", "next_upload", "object_data", "object_info", "page", "put_result", "uploads"]

#: How the headers begin that bear user metadata.
META = "x-amz-meta-"


def object_info(path: str, headers: Mapping[str, str]) -> ObjectInfo:
    """Return what the answer to a HEAD says."""
    return ObjectInfo(**_facts(path, headers))


def object_data(
    path: str, headers: Mapping[str, str], data: bytes, size: int | None = None
) -> ObjectData:
    """Return what the answer to a GET says.

    Args:
        path: the object's path.
        headers: headers of the answer.
        data: the bytes that were asked for.
        size: bytes of the whole object; None where the Content-Range header tells.
    """
    if size is None:
        total = headers.get("content-range", "").rpartition("/")[2]
        if not total.isdigit():
            raise CorruptRecord(f"the answer to GET {path!r} does not say how large the object is")
        size = int(total)
    return ObjectData(**(_facts(path, headers) | {"size": size}), data=data)


def put_result(path: str, headers: Mapping[str, str], etag: str | None = None) -> PutResult:
    """Return what the answer to a write says; `etag` is given where the body has it."""
    return PutResult(path=path, etag=etag or headers.get("etag", ""), version=_version(headers))


def page(listing: Element, root: str) -> Page:
    """Return a page of a listing of objects, without what stands for empty directories."""
    name, cut = _decoder(listing), len(root)
    objects = (
        ObjectInfo(
            path=name(row, "Key")[cut:],
            size=int(row.findtext("Size", "0")),
            etag=row.findtext("ETag", ""),
            last_modified=iso_date(row.findtext("LastModified", "")),
        )
        for row in listing.iterfind("Contents")
    )
    # Consoles and file systems make empty objects "a/": no path of ours, and nobody's data.
    real = tuple(info for info in objects if info.size or info.path[-1:] not in ("", "/"))
    prefixes = tuple(name(row, "Prefix")[cut:] for row in listing.iterfind("CommonPrefixes"))
    token = listing.findtext("NextContinuationToken") if _truncated(listing) else None
    if _truncated(listing) and not token:
        raise CorruptRecord("a listing goes on, but the store does not say where")
    return Page(objects=real, prefixes=prefixes, next_token=token)


def uploads(listing: Element, root: str) -> Iterator[StagedInfo]:
    """Yield the uploads on a page of their listing."""
    name = _decoder(listing)
    for row in listing.iterfind("Upload"):
        yield StagedInfo(
            path=name(row, "Key")[len(root) :],
            upload_id=row.findtext("UploadId", ""),
            initiated=iso_date(row.findtext("Initiated", "")),
        )


def next_upload(listing: Element) -> dict[str, str] | None:
    """Return what to ask for to get the next page of uploads; None at the end."""
    if not _truncated(listing):
        return None
    return {
        "key-marker": _decoder(listing)(listing, "NextKeyMarker"),
        "upload-id-marker": listing.findtext("NextUploadIdMarker") or "",
    }


def _facts(path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "path": path,
        "size": _size(path, headers.get("content-length", "0")),
        "etag": headers.get("etag", ""),
        "version": _version(headers),
        "last_modified": float(http_date(headers.get("last-modified")) or 0),
        "metadata": {k[len(META) :]: value for k, value in headers.items() if k.startswith(META)},
    }


def _size(path: str, length: str) -> int:
    # int() would take signs, spaces and underscores, too.
    if not (length.isascii() and length.isdigit()):
        raise Unavailable(f"the answer about {path!r} has the length {length!r}; it was not used")
    return int(length)


def _version(headers: Mapping[str, str]) -> str | None:
    version = headers.get("x-amz-version-id")
    # "null" is what a bucket calls all that was written while it kept no versions.
    return None if version == "null" else version


def _truncated(listing: Element) -> bool:
    return listing.findtext("IsTruncated") == "true"


def _decoder(listing: Element) -> Callable[[Element, str], str]:
    """Return how keys are read: a store need not have encoded them, though it was asked to."""
    if listing.findtext("EncodingType") == "url":
        return lambda row, tag: unquote_plus(row.findtext(tag) or "")
    return lambda row, tag: row.findtext(tag) or ""
