"""Offset of a query in a source, which Spark keeps in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from commitlog.errors import FormatTooNew, StateMismatch

__all__ = ["OFFSET_FORMAT", "Offset"]

#: Format of the offsets that this library writes. It reads this format and all earlier ones.
OFFSET_FORMAT = 1


@frozen(kw_only=True)
class Offset:
    """The end of an epoch.

    Attributes:
        source: the source's id.
        epoch: number of the epoch; 0 is the beginning.
        born: the id under which the source's state was created; "" in offsets of epoch 0.
        claim: the id of the query that owns the source, from its first epoch on; "" before.
    """

    source: str
    epoch: int
    born: str = ""
    claim: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields, always in the same order: Spark compares offsets as text."""
        return {
            "format": OFFSET_FORMAT,
            "source": self.source,
            "epoch": self.epoch,
            "born": self.born,
            "claim": self.claim,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], *, source: str) -> Offset:
        """Return the offset in `value`, which must be one of `source`.

        Raises:
            FormatTooNew: a newer library wrote it.
            StateMismatch: the offset belongs to another source, or this library did not write it.
        """
        format, epoch = value.get("format"), value.get("epoch")
        born, claim = value.get("born"), value.get("claim")
        if type(format) is int and format > OFFSET_FORMAT:
            raise FormatTooNew(f"the checkpoint has offsets of format {format}: upgrade commitlog-store")
        if (
            format != OFFSET_FORMAT
            or not (type(epoch) is int and epoch >= 0)
            or not (isinstance(born, str) and isinstance(claim, str))
        ):
            raise StateMismatch(
                f"the checkpoint's offset does not belong to source {source!r}: start the query with a"
                " checkpoint directory of its own"
            )
        if value.get("source") != source:
            raise StateMismatch(
                f"the checkpoint belongs to source {value.get('source')!r}, but the query reads"
                f" {source!r}: use the earlier source id, or a new checkpoint directory"
            )
        return cls(source=source, epoch=epoch, born=born, claim=claim)
