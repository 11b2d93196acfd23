"""Which table a log belongs to: the epochs of a log, and the fence before each change.

::

    <log>/epochs/<number>.json            claims the epoch of that number; the highest number holds
    <log>/logs/<number>-<word>/           the log of that epoch: pending/, decided/, base/, base-parts/

Until a namespace is restored, or its log written again, its log has the epoch 0, which has no record,
and is at ``<log>`` itself. A restore claims the next epoch, and the marker of the table that it makes
says so. A client logs a change as pending, then looks whether the epoch after that of its marker is
claimed, and sends the change to the table only if it is not. So a restore that has claimed an epoch, and
then reads the log of the one before, finds every change that was sent, or may still be: it is decided
there, or pending. An epoch is complete when its log has a base, which says all that the log before it
said. One that is not complete was claimed by a restore that died, or that still works; the next restore
passes over it.

Imports the ground floor, the operation log and its siblings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from commitlog.errors import AlreadyExists, Conflict, Fenced
from commitlog.namespace.base import Bases
from commitlog.namespace.marker import FIRST, Epoch
from commitlog.oplog import OperationLog
from commitlog.oplog.codec import Document
from commitlog.oplog.fields import build, count, text

__all__ = ["Epochs", "FencedLog"]

_CLAIMS, _LOGS = "epochs", "logs"
_CLAIM = "namespace-epoch"


class Epochs:
    """The epochs of one log. Thread-safe.

    Args:
        log: that of the epoch 0, below which the others are.
    """

    def __init__(self, log: OperationLog) -> None:
        self.root = log
        self._claims = log.beside(_CLAIMS, frozenset({_CLAIM}))
        self._logs = {FIRST: log}

    def newest(self) -> Epoch:
        """Return the epoch that holds, whether it is complete or not."""
        return self.all()[-1]

    def complete(self, words: Callable[[], str]) -> Epoch:
        """Return the newest epoch whose log says all there is: the one to restore from."""
        for epoch in reversed(self.all()):
            if epoch == FIRST or Bases(self.log_of(epoch), words=words).newest() is not None:
                return epoch
        return FIRST

    def all(self) -> tuple[Epoch, ...]:
        """Return all epochs, the newest last."""
        names = sorted(each.name for each in self._claims.list())
        return (FIRST, *map(self._read, names))

    def log_of(self, epoch: Epoch) -> OperationLog:
        """Return the log of an epoch."""
        if epoch not in self._logs:
            name = f"{_LOGS}/{_number(epoch.number)}-{epoch.word}"
            self._logs.setdefault(epoch, self.root.below(name))
        return self._logs[epoch]

    def claim(self, *, word: str, table: str) -> Epoch:
        """Begin the epoch after the newest: from then on all tables of earlier ones are fenced.

        Args:
            word: one that nobody else ever makes.
            table: URL of the table that it will belong to.

        Raises `Conflict` if another process claims it at the same time, `OutcomeUnknown`.
        """
        epoch = Epoch(number=self.newest().number + 1, word=word, table=table)
        body = {"number": epoch.number, "word": word, "table": table}
        try:
            self._claims.add(_number(epoch.number), Document(_CLAIM, body))
        except AlreadyExists as error:
            if self._read(_number(epoch.number)) != epoch:  # else the request was sent twice on its way
                raise Conflict(
                    f"another process restores from the log at {self.root.prefix!r}, and began first"
                ) from error
        return epoch

    def check(self, epoch: Epoch) -> None:
        """Raise `Fenced` if an epoch after this one was begun. One request of metadata."""
        if not self._claims.exists(_number(epoch.number + 1)):
            return
        newest = self.newest()
        raise Fenced(
            f"the log at {self.root.prefix!r} belongs to another table by now: its epoch {newest.number}"
            f" was begun for {newest.table}, and this table has the epoch {epoch.number}. Nothing was"
            " changed. If this table is the right one, take the log back (`commitlog namespace relog"
            " --take-over`); if not, open the other table"
        )

    def _read(self, name: str) -> Epoch:
        document = self._claims.get(name)
        body = document.body
        return build(
            document,
            lambda: Epoch(
                number=count(body["number"]), word=text(body["word"]), table=text(body["table"])
            ),
        )


@frozen(kw_only=True)
class FencedLog:
    """The log of a namespace as clients of one table write it. Thread-safe.

    Args:
        epochs: of its log.
        epoch: returns the one of the table's marker.
    """

    epochs: Epochs
    epoch: Callable[[], Epoch]

    @property
    def root(self) -> OperationLog:
        """The log of the first epoch, below which the others are."""
        return self.epochs.root

    @property
    def log(self) -> OperationLog:
        """The log of the table's epoch."""
        return self.epochs.log_of(self.epoch())

    def check(self) -> None:
        """Raise `Fenced` if the log belongs to another table."""
        self.epochs.check(self.epoch())

    @contextlib.contextmanager
    def run(self, body: Mapping[str, Any]) -> Iterator[None]:
        """Do as `OperationLog.run` does; raise `Fenced` before the block if the table is fenced."""
        epoch = self.epoch()
        with self.epochs.log_of(epoch).run(body):
            self.epochs.check(epoch)
            yield


def _number(number: int) -> str:
    return f"{number:012d}"
