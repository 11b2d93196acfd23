"""Tail of an ORC file: facts that pyarrow's reader does not return.

Source: the messages FileTail, Footer and StripeInformation of ``orc_proto.proto``, in the format of
protocol buffers, as ORC version 1 has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

__all__ = ["Tail"]

_FOOTER = 2
_STRIPE = 3
_CALENDAR = 12
_OFFSET, _ROWS = 1, 5
_PROLEPTIC = 2


@frozen
class Tail:
    """The end of an ORC file.

    Attributes:
        stripes: of each stripe its first byte, and the number of its rows.
        proleptic: whether dates are those of the calendar that Arrow has, before 1582, too.
    """

    stripes: tuple[tuple[int, int], ...]
    proleptic: bool

    @classmethod
    def of(cls, data: bytes) -> Tail:
        """Return what a serialized FileTail tells; raise `ValueError` if it is none."""
        footer = _bytes(dict(_fields(data)).get(_FOOTER))
        fields = list(_fields(footer))
        stripes = [dict(_fields(_bytes(value))) for number, value in fields if number == _STRIPE]
        return cls(
            tuple((_number(each.get(_OFFSET, 0)), _number(each.get(_ROWS, 0))) for each in stripes),
            dict(fields).get(_CALENDAR) == _PROLEPTIC,
        )


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield numbers and values of the fields of a message.

    >>> list(_fields(b"\\x08\\x96\\x01\\x12\\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"no such kind of field: {kind}")
        if at + size > len(data):
            raise ValueError("a field ends behind its message")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("a number ends behind its message")
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value, at + 1
        shift += 7
        at += 1


def _bytes(value: int | bytes | None) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a message is missing")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a number is missing")
    return value
