"""Stored records: one JSON object with a kind, a format version and a checksum.

Operation logs and outputs keep different records in the same envelope, so that every reader refuses
what is damaged or newer than itself in the same way. Imports errors alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from attrs import frozen

from commitlog.errors import CorruptRecord, FormatTooNew

__all__ = ["FORMAT", "Document", "decode", "encode"]

#: Format of the records that this library writes; it reads this one and all before it.
FORMAT = 1

_ENVELOPE = frozenset({"format", "kind", "checksum"})


@frozen
class Document:
    """A record as it is stored: what kind it is, and its fields as JSON values."""

    kind: str
    body: Mapping[str, Any]


def encode(document: Document) -> bytes:
    """Return `document` as canonical JSON: keys sorted, no blanks, UTF-8.

    Raises `TypeError` or `ValueError` if a field is no JSON value; NaN and infinity are none.

    >>> encode(Document("note", {"text": "ü"})).decode()
    '{"checksum":"...","format":1,"kind":"note","text":"ü"}'
    """
    if taken := _ENVELOPE & document.body.keys():
        raise ValueError(f"{sorted(taken)[0]!r} belongs to the envelope: name the field otherwise")
    fields = {**document.body, "format": FORMAT, "kind": document.kind}
    return _canonical({**fields, "checksum": _checksum(fields)})


def decode(data: bytes, kinds: Collection[str], *, path: str) -> Document:
    """Return the record in `data`, which must be one of `kinds`; `path` is named in errors.

    Raises:
        FormatTooNew: a newer library wrote it. Nothing else of it was looked at.
        CorruptRecord: it is cut short, altered, or of another kind.

    >>> decode(encode(Document("note", {"text": "ü"})), {"note"}, path="n.json").body["text"]
    'ü'
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{path!r} is not JSON: {error}. {_ADVICE}") from error
    if not isinstance(fields, dict) or type(fields.get("format")) is not int:
        raise CorruptRecord(f"{path!r} has no format version. {_ADVICE}")
    if fields["format"] > FORMAT:
        raise FormatTooNew(
            f"{path!r} has format {fields['format']}, and this library reads up to {FORMAT}: upgrade it"
        )
    checksum = fields.pop("checksum", None)
    if fields["format"] < 1 or checksum != _checksum(fields):
        raise CorruptRecord(f"{path!r} does not match its checksum. {_ADVICE}")
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise CorruptRecord(f"{path!r} is a {kind!r}, not {' or '.join(sorted(kinds))}. {_ADVICE}")
    del fields["format"]
    return Document(kind, fields)


_ADVICE = "It was left as it is; restore it from a backup or an older version of the object"


def _canonical(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _checksum(fields: Mapping[str, Any]) -> str:
    try:
        return hashlib.sha256(_canonical(fields)).hexdigest()
    except ValueError:  # only data that we did not write: NaN, lone surrogates
        return ""
