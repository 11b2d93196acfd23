"""The epochs of a log, which tell which table owns it, and the check for them before each change.

::

    <log>/epochs/<number>.json            claims the epoch of that number; the highest number is current
    <log>/logs/<number>-<id>/           the log of that epoch: pending/, decided/, checkpoints/ …

A new log has the epoch 0, which has no record, and whose log is at ``<log>`` itself. A restore claims
the next epoch, and records it in the metadata of the table that it creates; so does a rewrite of the
log.

A client logs a change as pending. Then it checks whether the epoch after that of its metadata is
claimed, and sends the change to the table only if it is not. So a restore that has claimed an epoch, and
then reads the log of the previous one, finds every change that was sent, or may still be sent: it is
decided or pending.

An epoch is complete when its log has a checkpoint, which has all the states of the previous log. An
incomplete epoch was claimed by a restore that died or is still running; the next restore skips it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from commitlog.errors import AlreadyExists, Conflict, Fenced
from commitlog.namespace.log.checkpoint import NamespaceCheckpoints
from commitlog.namespace.metadata import FIRST, Epoch
from commitlog.oplog import OperationLog
from commitlog.oplog.codec import Document
from commitlog.oplog.validate import build, count, text

__all__ = ["Epochs", "FencedLog"]

_CLAIMS, _LOGS = "epochs", "logs"
_CLAIM = "namespace-epoch"


class Epochs:
    """The epochs of one log. Thread-safe.

    Args:
        log: the log of the epoch 0; the other logs are below it.
    """

    def __init__(self, log: OperationLog) -> None:
        self.root = log
        self._claims = log.sibling(_CLAIMS, frozenset({_CLAIM}))
        self._logs = {FIRST: log}

    def newest(self) -> Epoch:
        """Return the current epoch, complete or not."""
        return self.all()[-1]

    def complete(self, new_id: Callable[[], str]) -> Epoch:
        """Return the newest complete epoch: the one to restore from."""
        for epoch in reversed(self.all()):
            if (
                epoch == FIRST
                or NamespaceCheckpoints(self.log_of(epoch), new_id=new_id).newest() is not None
            ):
                return epoch
        return FIRST

    def all(self) -> tuple[Epoch, ...]:
        """Return all epochs, the newest last."""
        names = sorted(each.name for each in self._claims.list())
        return (FIRST, *map(self._read, names))

    def log_of(self, epoch: Epoch) -> OperationLog:
        """Return the log of an epoch."""
        if epoch not in self._logs:
            name = f"{_LOGS}/{_number(epoch.number)}-{epoch.id}"
            self._logs.setdefault(epoch, self.root.below(name))
        return self._logs[epoch]

    def claim(self, *, id: str, table: str, after: Epoch) -> Epoch:
        """Claim the epoch after another one, and so fence the tables of all earlier epochs.

        Args:
            id: a unique id.
            table: URL of the table that will own the epoch.
            after: the epoch that was the newest when the caller began. If the caller is delayed, it
                fences no table that has got the log meanwhile.

        Raises `Conflict` if another process has claimed the epoch, `OutcomeUnknown`.
        """
        epoch = Epoch(number=after.number + 1, id=id, table=table)
        body = {"number": epoch.number, "id": id, "table": table}
        try:
            self._claims.add(_number(epoch.number), Document(_CLAIM, body))
        except AlreadyExists as error:
            if self._read(_number(epoch.number)) != epoch:  # else the client sent the request twice
                raise Conflict(
                    f"another process restores from the log at {self.root.prefix!r} or rewrites it, or"
                    " has done so since this call began: nothing was changed"
                ) from error
        return epoch

    def check(self, epoch: Epoch) -> None:
        """Raise `Fenced` if a later epoch was claimed. Takes one metadata request."""
        if not self._claims.exists(_number(epoch.number + 1)):
            return
        newest = self.newest()
        raise Fenced(
            f"the log at {self.root.prefix!r} belongs to another table: its epoch {newest.number}"
            f" was claimed for {newest.table}, and this table has the epoch {epoch.number}. Nothing was"
            " changed. If this table is the right one, take the log back (`commitlog namespace"
            " rewrite-log --take-over`); if not, open the other table"
        )

    def _read(self, name: str) -> Epoch:
        document = self._claims.get(name)
        body = document.body
        return build(
            document,
            lambda: Epoch(number=count(body["number"]), id=text(body["id"]), table=text(body["table"])),
        )


@frozen(kw_only=True)
class FencedLog:
    """The log of a namespace, for the clients of one table. Thread-safe.

    Args:
        epochs: the epochs of the log.
        epoch: returns the epoch of the table's metadata.
        is_renewed: reads the metadata again; returns whether its epoch is no longer the given one.
    """

    epochs: Epochs
    epoch: Callable[[], Epoch]
    is_renewed: Callable[[Epoch], bool]

    @property
    def root(self) -> OperationLog:
        """The log of the first epoch; the other logs are below it."""
        return self.epochs.root

    @property
    def current(self) -> OperationLog:
        """The log of the table's epoch."""
        return self.epochs.log_of(self.epoch())

    def check(self) -> None:
        """Raise `Fenced` if the log belongs to another table."""
        self.epochs.check(self.epoch())

    @contextlib.contextmanager
    def run(self, body: Mapping[str, Any]) -> Iterator[None]:
        """Log an operation like `OperationLog.run`; raise `Fenced` before the block if fenced."""
        epoch = self.epoch()
        with self.epochs.log_of(epoch).run(body):
            self.epochs.check(epoch)
            yield


def _number(number: int) -> str:
    return f"{number:012d}"
