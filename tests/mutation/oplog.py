"""Mutants of the operation log."""

from __future__ import annotations

from commitlog.oplog import Decision
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import logging
from sim.oplog.actions import recover, run

__all__ = ["OPLOG"]

OPLOG: tuple[Mutant, ...] = (
    Mutant(
        name="decision of an operation not put-if-absent",
        where="operation-log.md#rules",
        rule="deciding is one put-if-absent",
        edit=Edit(
            (
                "RecordDirectory.add",
                "self._store.put_if_absent(self.path(name), encode(document))",
                "self._store.put(self.path(name), encode(document))",
            )
        ),
        setting=logging({"A": run(seconds=1), "R": recover(Decision.ROLLED_BACK)}, after={"R": 0.5}),
        caught="was replaced",
        story=(
            "A recovery has rolled the operation back while it was performed, and the log said so "
            "until its performer overwrote that."
        ),
    ),
    Mutant(
        name="pending entry of an operation removed before the decision",
        where="operation-log.md#rules",
        rule="a listing of `pending/` tells what is not decided",
        edit=Edit(
            (
                "OperationLog._decide",
                "sent = self._clock.monotonic()",
                "self._pending.remove(operation.id)\nsent = self._clock.monotonic()",
            )
        ),
        setting=logging({"A": run()}),
        caught="was deleted before the operation was decided",
        story="Should A die now, its operation would be neither pending nor decided.",
    ),
    Mutant(
        name="another's decision on an operation overlooked",
        where="operation-log.md#rules",
        rule="a recovery had rolled the operation back meanwhile → `OutcomeUnknown`",
        edit=Edit(
            (
                "OperationLog.run",
                "if not self._conclude(operation, Decision.COMMITTED, began):",
                "self._conclude(operation, Decision.COMMITTED, began)\nif False:",
            )
        ),
        setting=logging({"A": run(seconds=1), "R": recover(Decision.ROLLED_BACK)}, after={"R": 0.5}),
        caught="a client got",
        story=(
            "A recovery has rolled the operation back, and its performer is told that it was committed."
        ),
    ),
)
