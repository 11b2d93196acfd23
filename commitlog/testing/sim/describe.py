"""Descriptions of answers for the trace, with everything that the receiver can learn from them."""

from __future__ import annotations

from collections.abc import Mapping

from commitlog.stores.api import (
    ObjectData,
    ObjectInfo,
    Observation,
    Page,
    PutResult,
    Staged,
    StageWriter,
)
from commitlog.tables.api import ConditionFailed
from commitlog.testing.sim.clock import EPOCH

__all__ = ["describe"]


def describe(answer: object) -> str:
    """Return one line for an answer. Different answers have different lines.

    >>> describe(None), describe({"path": "a", "generation": 0})
    ('done', "{'generation': 0, 'path': 'a'}")
    """
    if answer is None:
        return "done"
    if isinstance(answer, Observation):
        seen = "nothing" if answer.info is None else describe(answer.info)
        return f"{seen} at {answer.store_time}"
    if isinstance(answer, ObjectInfo):
        said = [answer.path, answer.etag, f"@{round(answer.last_modified - EPOCH, 9):g}"]
        said += [f"{key}={value}" for key, value in sorted(answer.metadata.items())]
        said += [repr(answer.data)] if isinstance(answer, ObjectData) else []
        return " ".join(said)
    if isinstance(answer, PutResult):
        return f"done, {answer.etag}"
    if isinstance(answer, Staged):
        return f"staged as {answer.upload_id}"
    if isinstance(answer, StageWriter):
        return "an upload"
    if isinstance(answer, Page):
        return (
            f"{[describe(info) for info in answer.objects]} {list(answer.prefixes)} {answer.next_token}"
        )
    if isinstance(answer, ConditionFailed):
        return f"ConditionFailed, there is {describe(answer.item) if answer.item_known else '?'}"
    if isinstance(answer, BaseException):
        return f"{type(answer).__name__}: {answer}"
    if isinstance(answer, Mapping):
        return repr(dict(sorted(answer.items())))
    return repr(answer)
