"""The XML and the dates that S3 speaks."""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from commitlog.aws import parse_date

__all__ = [
    "complete_body",
    "delete_body",
    "error_of",
    "http_date",
    "is_xml",
    "iso_date",
    "parse",
    "refused_rows",
]

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


def parse(body: bytes) -> ElementTree.Element | None:
    """Return the root of an XML body, tags without namespace; None if it is none.

    >>> parse(b'<R xmlns="urn:x"><A>1</A></R>').findtext("A")
    '1'
    """
    try:
        # White space that keeps a connection alive may precede the declaration.
        root = ElementTree.fromstring(body.lstrip())
    except (ElementTree.ParseError, ValueError, LookupError):  # the last two: of its encoding
        return None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def error_of(body: bytes) -> tuple[str, str]:
    """Return code and message of an error body; empty strings if the body is none.

    >>> error_of(b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>")
    ('NoSuchKey', 'gone')
    """
    root = parse(body) if body else None
    if root is not None and root.tag == "ErrorResponse":
        root = root.find("Error")
    if root is None or root.tag != "Error":
        return "", ""
    return root.findtext("Code", "").strip(), root.findtext("Message", "").strip()


def complete_body(etags: Sequence[str]) -> bytes:
    """Return the body that completes an upload of these parts.

    >>> complete_body(['"a"']).partition(b">")[2]
    b'<Part><PartNumber>1</PartNumber><ETag>"a"</ETag></Part></CompleteMultipartUpload>'
    """
    parts = [
        f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
        for number, etag in enumerate(etags, 1)
    ]
    return _document("CompleteMultipartUpload", "".join(parts))


def delete_body(keys: Sequence[str]) -> bytes:
    """Return the body that deletes these keys, and asks for errors only."""
    objects = [f"<Object><Key>{escape(key)}</Key></Object>" for key in keys]
    return _document("Delete", f"{''.join(objects)}<Quiet>true</Quiet>")


def is_xml(text: str) -> bool:
    """Return whether XML can hold a text without control characters, as the path of an object is."""
    return "\ufffe" not in text and "\uffff" not in text


def refused_rows(root: ElementTree.Element) -> Iterator[tuple[str, str, str]]:
    """Yield key, code and message of each object that a DeleteObjects could not delete."""
    for row in root.iterfind("Error"):
        yield row.findtext("Key", ""), row.findtext("Code", ""), row.findtext("Message", "")


def iso_date(text: str) -> float:
    """Return the epoch seconds of an XML date, in any form that boto3 reads. Raises `ValueError`.

    >>> iso_date("2026-11-21T10:00:00.500Z"), iso_date("Sat, 21 Nov 2026 10:00:00 GMT")
    (1795255200.5, 1795255200.0)
    """
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = parse_date(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return moment.timestamp()


def http_date(text: str | None) -> int | None:
    """Return the epoch seconds of an HTTP header's date, or None if it is missing or none.

    >>> http_date("Sat, 21 Nov 2026 10:00:00 GMT")
    1795255200
    >>> http_date("Sat Nov 21 10:00:00 2026")
    1795255200
    >>> http_date("soon") is None
    True
    """
    if text is None:
        return None
    try:
        if len(text) == 29 and text.endswith(" GMT"):  # the form that HTTP asks for, read fast
            month = _MONTHS.index(text[8:11]) // 3 + 1
            clock = int(text[17:19]), int(text[20:22]), int(text[23:25])
            return calendar.timegm((int(text[12:16]), month, int(text[5:7]), *clock))
        moment = parsedate_to_datetime(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def _document(tag: str, content: str) -> bytes:
    return f'<{tag} xmlns="{_NAMESPACE}">{content}</{tag}>'.encode()
