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
        name="decision of an operation put without a condition",
        where="operation-log.md#rules",
        rule="a decision is one put-if-absent",
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
            "A recovery has rolled the operation back while it was performed. The log said so until "
            "its performer overwrote that record."
        ),
    ),
    Mutant(
        name="pending entry of an operation removed before the decision",
        where="operation-log.md#rules",
        rule="a listing of `pending/` has all undecided operations",
        edit=Edit(
            (
                "OperationLog._decide",
                "sent = self._clock.monotonic()",
                "self._pending.remove(operation.id)\nsent = self._clock.monotonic()",
            )
        ),
        setting=logging({"A": run()}),
        caught="was deleted before the operation was decided",
        story="If A dies now, its operation is neither pending nor decided.",
    ),
    Mutant(
        name="another client's decision on an operation ignored",
        where="operation-log.md#rules",
        rule="a recovery has rolled the operation back meanwhile → `OutcomeUnknown`",
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
            "A recovery has rolled the operation back, and its performer reports that it was committed."
        ),
    ),
)
