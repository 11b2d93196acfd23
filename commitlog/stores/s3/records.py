"""Responses of S3 as records of the port.

`root` is always the opened prefix with its slash: keys come in, paths go out. XML that does not match
the API reference raises `ValueError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element

from commitlog.errors import Unavailable
from commitlog.stores.api import ObjectData, ObjectInfo, Page, PutResult, StagedInfo, Versioning
from commitlog.stores.s3.xml import http_date, iso_date

__all__ = [
    "META",
    "next_upload",
    "no_etag",
    "object_data",
    "object_info",
    "page",
    "put_result",
    "range_data",
    "text_of",
    "uploads",
    "versioning_of",
]

#: The prefix of the headers with user metadata.
META = "x-amz-meta-"
#: Google Cloud Storage may answer with the other one.
_METAS = (META, "x-goog-meta-")
#: Headers with the version of an object, those of vendors last.
_VERSIONS = ("x-amz-version-id", "x-oss-version-id", "x-cos-version-id", "x-goog-generation")

_NUMBER = re.compile("[0-9]{1,18}")
#: S3Mock says "bytes 0--1/0" of an empty object.
_RANGE = re.compile("bytes ([0-9]{1,18})-(-1|[0-9]{1,18})/([0-9]{1,18})")


def no_etag(headers: Mapping[str, str]) -> str:
    """Return why the answer to a HEAD or a GET is unusable; "" if it has an etag.

    JuiceFS sends none at the moment at which an object is replaced. Without an etag, the expected object
    would be taken for another one.
    """
    if headers.get("etag"):
        return ""
    return (
        "the answer has no etag, on which all guarantees rest. If every answer lacks it, the server is "
        "not S3, or keeps no etags (the gateway of JuiceFS needs --keep-etag)"
    )


def object_info(path: str, headers: Mapping[str, str]) -> ObjectInfo:
    """Return what the answer to a HEAD says, which has an etag."""
    return ObjectInfo(**_facts(path, headers))


def object_data(path: str, headers: Mapping[str, str], data: bytes, size: int) -> ObjectData:
    """Return what the answer to a GET says, which has an etag.

    Args:
        path: the object's path.
        headers: headers of the answer.
        data: the bytes that were asked for.
        size: bytes of the whole object.
    """
    return ObjectData(**(_facts(path, headers) | {"size": size}), data=data)


def range_data(
    path: str, headers: Mapping[str, str], data: bytes, start: int, end: int | None
) -> ObjectData:
    """Return what the answer to a GET of the bytes ``[start, end)`` says.

    Raises `Unavailable` if it has other bytes, or does not say which.
    """
    content_range = headers.get("content-range", "")
    found = _RANGE.fullmatch(content_range)
    if found is not None:
        first, last, size = map(int, found.groups())
        stop = size if end is None else min(end, size)
        if (first, last + 1, len(data)) == (start, stop, stop - start) or size == len(data) == 0:
            return object_data(path, headers, data, size)
    raise Unavailable(
        f"the answer to GET {path!r} was not used: it has {len(data)} bytes and says"
        f" {content_range!r:.80}; bytes {start} to {'the end' if end is None else end} were requested"
    )


def put_result(path: str, headers: Mapping[str, str], etag: str | None = None) -> PutResult:
    """Return what the answer to a write says; `etag` is given where the body has it.

    Raises `ValueError` if it is no answer of S3's: something answers to all with 200, such as a page
    that wants a login.
    """
    etag = etag or headers.get("etag", "")
    if not etag and "x-amz-request-id" not in headers:
        raise ValueError("it has neither an etag nor a request id, and S3's have")
    return PutResult(path=path, etag=etag, version=_version(headers))


def page(listing: Element, root: str) -> Page:
    """Return a page of a listing of objects, without what stands for empty directories."""
    name = _namer(listing, root)
    rows = (
        (name(row, "Key"), _digits(row.findtext("Size", "0")), row)
        for row in listing.iterfind("Contents")
    )
    # Consoles and file systems make empty objects "a/": they are not valid paths, and hold no data.
    # Of these, s3proxy lists neither size nor date.
    real = tuple(
        ObjectInfo(
            path=path,
            size=size,
            etag=row.findtext("ETag", ""),
            last_modified=iso_date(row.findtext("LastModified", "")),
        )
        for path, size, row in rows
        if size or path[-1:] not in ("", "/")
    )
    prefixes = tuple(name(row, "Prefix") for row in listing.iterfind("CommonPrefixes"))
    token = listing.findtext("NextContinuationToken") if _truncated(listing) else None
    if _truncated(listing) and not token:
        raise ValueError("it goes on, but does not say where")
    return Page(objects=real, prefixes=prefixes, next_token=token)


def uploads(listing: Element, root: str) -> tuple[StagedInfo, ...]:
    """Return the uploads on a page of their listing."""
    name = _namer(listing, root)
    return tuple(
        StagedInfo(
            path=name(row, "Key"),
            upload_id=text_of(row, "UploadId"),
            initiated=iso_date(row.findtext("Initiated", "")),
        )
        for row in listing.iterfind("Upload")
    )


def next_upload(listing: Element) -> dict[str, str] | None:
    """Return what to ask for to get the next page of uploads; None at the end."""
    if not _truncated(listing):
        return None
    following = {
        "key-marker": _decoder(listing)(listing.findtext("NextKeyMarker") or ""),
        "upload-id-marker": listing.findtext("NextUploadIdMarker") or "",
    }
    if not following["key-marker"]:
        raise ValueError("it goes on, but does not say where")
    return following


def versioning_of(answer: Element) -> Versioning:
    """Return what the answer to a GetBucketVersioning says. Raises `ValueError`."""
    status = answer.findtext("Status") or Versioning.NEVER.value
    try:
        return Versioning(status.lower())
    except ValueError:
        raise ValueError(f"it has the status {status!r:.40}") from None


def text_of(row: Element, tag: str) -> str:
    """Return the text of a child that must be there."""
    text = row.findtext(tag)
    if not text:
        raise ValueError(f"it has no {tag}")
    return text


def _facts(path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "path": path,
        "size": _size(path, headers.get("content-length", "0")),
        "etag": headers["etag"],
        "version": _version(headers),
        "last_modified": float(http_date(headers.get("last-modified")) or 0),
        "metadata": {
            k.partition("-meta-")[2]: value for k, value in headers.items() if k.startswith(_METAS)
        },
    }


def _size(path: str, length: str) -> int:
    try:
        return _digits(length)
    except ValueError:
        raise Unavailable(
            f"the answer about {path!r} has the length {length!r:.40}; it was not used"
        ) from None


def _digits(text: str) -> int:
    # int() would take signs, spaces and underscores, too.
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r:.40} is not a size")
    return int(text)


def _version(headers: Mapping[str, str]) -> str | None:
    # "null" is what a bucket calls all that was written while it kept no versions.
    found = (headers.get(name, "null") for name in _VERSIONS)
    return next((version for version in found if version not in ("null", "")), None)


def _truncated(listing: Element) -> bool:
    return listing.findtext("IsTruncated") == "true"


def _namer(listing: Element, root: str) -> Callable[[Element, str], str]:
    """Return how a path is read from a row."""
    decoded = _decoder(listing)

    def name(row: Element, tag: str) -> str:
        key = decoded(row.findtext(tag) or "")
        if not key.startswith(root):
            raise ValueError(f"it has the key {key!r}, which is not below {root!r}")
        return key[len(root) :]

    return name


def _decoder(listing: Element) -> Callable[[str], str]:
    """Return how keys are read: a store need not have encoded them, though it was asked to."""
    return unquote_plus if listing.findtext("EncodingType") == "url" else str
