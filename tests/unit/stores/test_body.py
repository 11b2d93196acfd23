"""Blocks of content that are written to local files."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest

from commitlog.stores.body import write_block


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 1_000_001])
def test_a_block_is_written_whole_in_small_pieces(size: int) -> None:
    """No write is large, and the file has all bytes in their order."""
    pieces: list[bytes] = []

    class Target(io.RawIOBase):
        def write(self, data: Any) -> int:
            pieces.append(bytes(data))
            return len(data)

    block = random.Random(size).randbytes(size)
    assert write_block(Target(), block) == size
    assert b"".join(pieces) == block
    assert all(len(piece) <= 256 * 1024 for piece in pieces)
