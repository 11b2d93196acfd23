"""Stored records: one JSON object with a kind, a format version and a checksum.

Operation logs and outputs store different records in the same envelope. So every reader refuses records
that are damaged, or newer than itself, in the same way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from attrs import field, frozen

from commitlog.errors import CorruptRecord, FormatTooNew

__all__ = ["ADVICE", "FORMAT", "Document", "decode", "encode"]

#: Format of the records that this library writes, except those whose writer chooses another one; it
#: reads this and all earlier formats. Within a format, fields may be added if a reader that does not
#: know them may ignore them.
FORMAT = 1

#: Maximum nesting depth of a record. A record that one caller can just write must be readable for
#: another, however much of Python's stack it has used.
MAX_DEPTH = 100

#: Advice for error messages about corrupt records.
ADVICE = "It was left as it is; restore it from a backup or an older version of the object"

_CHECKSUM = "checksum"
_ENVELOPE = frozenset({"format", "kind", _CHECKSUM})

#: Made once: `json.dumps` makes an encoder for each call with non-default arguments.
_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@frozen
class Document:
    """A stored record.

    Attributes:
        kind: the kind of the record.
        body: its fields as JSON values.
        path: where it was read, for error messages.
        format: the format in which it was stored, or will be.
    """

    kind: str
    body: Mapping[str, Any]
    path: str = field(default="", eq=False)
    format: int = field(default=FORMAT, eq=False)


def encode(document: Document) -> bytes:
    """Return `document` as canonical JSON: keys sorted, no blanks, UTF-8.

    Raises `TypeError` or `ValueError` if a field is not a JSON value, is NaN or infinite, or is nested
    more than a hundred deep.

    >>> encode(Document("note", {"text": "ü"})).decode()
    '{"checksum":"...","format":1,"kind":"note","text":"ü"}'
    """
    if taken := _ENVELOPE & document.body.keys():
        raise ValueError(f"{sorted(taken)[0]!r} belongs to the envelope: name the field otherwise")
    fields = {**document.body, "format": document.format, "kind": document.kind}
    # The keys are sorted, so the parts before and after the checksum can be encoded separately.
    before = _canonical({name: value for name, value in fields.items() if name < _CHECKSUM})
    after = _canonical({name: value for name, value in fields.items() if name > _CHECKSUM})
    comma = b"," if len(before) > 2 else b""
    start, end = before[:-1] + comma, after[1:]
    return b"%s%s%s" % (start, _checksum(_digest(start + end)), end)


def decode(data: bytes, kinds: Collection[str], *, path: str, newest: int = FORMAT) -> Document:
    """Return the record in `data`, which must be one of `kinds`; `path` is named in errors.

    Args:
        data: the stored bytes.
        kinds: the kinds that may be there.
        path: where it was read.
        newest: the newest format that the caller reads.

    Raises:
        FormatTooNew: a newer library wrote it. Its other fields were not checked.
        CorruptRecord: it is truncated, altered, or of another kind.

    >>> decode(encode(Document("note", {"text": "ü"})), {"note"}, path="n.json").body["text"]
    'ü'
    """
    try:
        fields = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{path!r} is not JSON: {error}. {ADVICE}") from error
    if not isinstance(fields, dict) or type(fields.get("format")) is not int:
        raise CorruptRecord(f"{path!r} has no format version. {ADVICE}")
    if fields["format"] > newest:
        raise FormatTooNew(
            f"{path!r} has format {fields['format']}, and this library reads up to {newest}: upgrade it"
        )
    checksum = fields.pop(_CHECKSUM, None)
    if fields["format"] < 1 or not (_is_as_written(data, checksum) or _fits(checksum, fields)):
        raise CorruptRecord(f"{path!r} does not match its checksum. {ADVICE}")
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise CorruptRecord(f"{path!r} is a {kind!r}, not {' or '.join(sorted(kinds))}. {ADVICE}")
    return Document(kind, fields, path, fields.pop("format"))


def _canonical(fields: Mapping[str, Any]) -> bytes:
    try:
        text = _encoder.encode(fields)
    except RecursionError:
        text = None
    if text is None or (text.count("{") + text.count("[") > MAX_DEPTH and _is_deep(fields)):
        raise ValueError(f"the record is nested more than {MAX_DEPTH} deep")
    return text.encode()


def _is_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list, tuple))
        ]
        if not level:
            return False
    return True


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checksum(digest: str) -> bytes:
    return b'"checksum":"%s",' % digest.encode()


def _is_as_written(data: bytes, checksum: object) -> bool:
    """Return whether `data` has the bytes of which the checksum was made, which saves encoding them."""
    if not isinstance(checksum, str) or not checksum.isascii():
        return False
    return checksum == _digest(data.replace(_checksum(checksum), b"", 1))


def _fits(checksum: object, fields: Mapping[str, Any]) -> bool:
    try:
        return checksum == _digest(_canonical(fields))
    except ValueError:  # only data of other writers: NaN, lone surrogates, excessive nesting
        return False
