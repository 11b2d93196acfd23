"""Where a query is in a source: what Spark keeps in its checkpoint.

Imports the ground floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from commitlog.errors import FormatTooNew, StateMismatch

__all__ = ["OFFSET_FORMAT", "Offset"]

#: Format of the offsets that this library writes; it reads this one and all before it.
OFFSET_FORMAT = 1


@frozen(kw_only=True)
class Offset:
    """The end of an epoch.

    Attributes:
        source: the source's id.
        epoch: number of the epoch; 0 is the beginning.
        born: the word of the creation of the source's state; "" in offsets of epoch 0.
        claim: the word by which the source knows the query, from its first epoch on; "" before.
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
            StateMismatch: it is another source's, or no offset of this library's.
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
                f"the checkpoint's offset is none of source {source!r}: start the query with a"
                " checkpoint directory of its own"
            )
        if value.get("source") != source:
            raise StateMismatch(
                f"the checkpoint is one of source {value.get('source')!r}, and the query reads"
                f" {source!r}: name the source as before, or give a new checkpoint directory"
            )
        return cls(source=source, epoch=epoch, born=born, claim=claim)
