"""The judge of a world of ingest: each byte of each version is delivered exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from commitlog.errors import StateMismatch
from support.ingest import Checkpoint, Engine

__all__ = ["check_delivered_once", "drain", "missing_bytes"]

#: More batches than any world has.
_MANY = 200


def check_delivered_once(checkpoint: Checkpoint) -> None:
    """Check that no byte was delivered twice."""
    for (path, etag, number), times in checkpoint.records.items():
        assert times == 1, f"byte {number} of {path} {etag} was delivered {times} times"


def missing_bytes(
    checkpoint: Checkpoint,
    versions: Mapping[str, str],
    sizes: Mapping[tuple[str, str], int],
    broken: Mapping[str, int],
) -> list[str]:
    """Return an error for each byte that was not delivered and can be read.

    Args:
        checkpoint: the checkpoint of the query.
        versions: the etag of the version of each path that must be delivered.
        sizes: the size of each version, by path and etag.
        broken: the first byte of each path that cannot be read.
    """
    records = checkpoint.records
    return [
        f"byte {number} of {path} {etag} was never delivered"
        for path, etag in versions.items()
        for number in range(sizes[path, etag])
        if not records[path, etag, number] and number < broken.get(path, 99)
    ]


def drain(engine: Engine, check: Callable[[], object], *, idle: int) -> None:
    """Run batches until `idle` calls in a row find nothing new; call `check` after each call."""
    found_nothing = 0
    for _ in range(_MANY):
        try:
            found_nothing = 0 if engine.batch() else found_nothing + 1
        except StateMismatch as error:
            raise AssertionError(f"the query cannot continue: {error}") from error
        check()
        if found_nothing == idle:
            return
    raise AssertionError("the batches do not end")
