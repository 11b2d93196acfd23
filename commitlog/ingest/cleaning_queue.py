"""Queue of the files to clean: the delivered files in the order of their epochs, and the commits.

A source that cleans stores the files that an epoch completes twice: in the epoch, and in the queue under
``clean/<epoch>/<revision>/<number>``. Both are written by the transaction that plans the epoch. A row
stays until its files are cleaned, so an epoch and its remembered files can be forgotten before.

The *commits*, the item ``cleaning``, say which epochs the query has committed, and when. It is not part
of the state row: a commit must not make a concurrent plan fail.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

from attrs import evolve, frozen

from commitlog._util.ids import random_id
from commitlog.errors import CorruptRecord
from commitlog.ingest.files import File
from commitlog.ingest.source_state import document_of, item_name
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.validate import build, count, items, moment, text
from commitlog.tables.api import Absent, ConditionFailed, Equals, Item, Key, Table, TableCondition

__all__ = ["CLEANING", "QUEUE", "CleaningQueue", "Commits", "QueuedFiles", "queued"]

#: Prefix of the range keys of the queue, and the range key of the commits.
QUEUE = "clean/"
CLEANING = "cleaning"

#: Most bytes of JSON in one row, before compression.
_ROW_BYTES = 256 * 1024

#: Most stored commits. If there are more, every second one is dropped.
_MAX_COMMITS = 64

_KIND = "ingest-clean-files"
_COMMITS = "ingest-commits"


@frozen
class QueuedFiles:
    """A row of the queue.

    Attributes:
        range: its range key.
        epoch: the epoch that completes its files.
        files: the files.
    """

    range: str
    epoch: int
    files: tuple[File, ...]

    def to_item(self, source: str) -> Item:
        """Return the row as a table item."""
        body = {"files": [file.to_json() for file in self.files]}
        return {
            "source": source,
            "item": self.range,
            "files": len(self.files),
            "body": zlib.compress(encode(Document(_KIND, body))),
        }

    @classmethod
    def from_item(cls, item: Item) -> QueuedFiles:
        """Return the row that `item` holds. Raises `CorruptRecord`, `FormatTooNew`."""
        range, body = item.get("item"), item.get("body")
        name = item_name(item)
        try:
            epoch, _, _ = map(int, str(range).removeprefix(QUEUE).split("/"))
            data = zlib.decompress(body if isinstance(body, bytes) else b"")
        except (zlib.error, ValueError):
            raise CorruptRecord(f"{name!r} is not a row of files to clean") from None
        document = decode(data, {_KIND}, path=name)
        files = build(
            document, lambda: tuple(File.from_json(each) for each in items(document.body["files"]))
        )
        return cls(str(range), epoch, files)


def queued(epoch: int, revision: int, files: Iterable[File]) -> list[QueuedFiles]:
    """Return rows of the queue for `files`, which the epoch completes."""
    chunks: list[list[File]] = []
    size = _ROW_BYTES
    for file in files:
        more = file.list_bytes
        if size + more > _ROW_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(file)
        size += more
    prefix = f"{QUEUE}{epoch:020d}/{revision:020d}/"
    return [
        QueuedFiles(f"{prefix}{number:05d}", epoch, tuple(chunk)) for number, chunk in enumerate(chunks)
    ]


@frozen(kw_only=True)
class Commits:
    """The epochs that the query has committed.

    Attributes:
        born: the id under which the source's state was created.
        commits: pairs of an epoch and the time (epoch seconds, by the store's clock) at which it and all
            before it were committed; both rise.
        cleaned: the last epoch whose cleaning has begun. Epochs up to it cannot be read again.
        change_id: id of the write.
    """

    born: str
    commits: tuple[tuple[int, float], ...] = ()
    cleaned: int = 0
    change_id: str = ""

    @property
    def committed(self) -> int:
        """The last committed epoch, or 0."""
        return self.commits[-1][0] if self.commits else 0

    def due(self, time: float) -> int:
        """Return the last epoch that was committed at `time` or before."""
        return max((epoch for epoch, committed in self.commits if committed <= time), default=0)

    def with_commit(self, epoch: int, time: float) -> Commits:
        """Return the commits after that of `epoch` at `time`. Dropped ones count as the one after them.

        >>> Commits(born="").with_commit(3, 10.0).with_commit(4, 20.0).due(15.0)
        3
        """
        if epoch <= self.committed:
            return self
        commits = (*self.commits, (epoch, max(time, self.commits[-1][1] if self.commits else time)))
        if len(commits) > _MAX_COMMITS:
            commits = commits[::-2][::-1]
        return evolve(self, commits=commits)

    def with_cleaned(self, epoch: int) -> Commits:
        """Return the commits when the files of all epochs up to `epoch` may be removed."""
        if epoch <= self.cleaned:
            return self
        kept = tuple(each for each in self.commits if each[0] >= epoch)
        return evolve(self, commits=kept, cleaned=epoch)

    def to_item(self, source: str) -> Item:
        """Return the row."""
        body = {
            "born": self.born,
            "commits": [list(each) for each in self.commits],
            "cleaned": self.cleaned,
        }
        return {
            "source": source,
            "item": CLEANING,
            "change_id": self.change_id,
            "body": encode(Document(_COMMITS, body)),
        }

    @classmethod
    def from_item(cls, item: Item) -> Commits:
        """Return the commits in a row. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _COMMITS)
        body = document.body

        def commit(value: object) -> tuple[int, float]:
            epoch, time = items(value)
            return count(epoch), moment(time)

        return build(
            document,
            lambda: cls(
                born=text(body["born"]),
                commits=tuple(map(commit, items(body["commits"]))),
                cleaned=count(body["cleaned"]),
                change_id=text(item.get("change_id")),
            ),
        )


class CleaningQueue:
    """The files to clean of one source. Thread-safe.

    Args:
        table: the table for the state.
        source: id of the source.
        new_id: returns a new id for each call.
    """

    def __init__(self, table: Table, source: str, *, new_id: Callable[[], str] = random_id) -> None:
        self._table = table
        self._source = source
        self._new_id = new_id

    def commits(self, born: str) -> Commits:
        """Return the commits of the source that was created under `born`.

        Those of an earlier source with the same id do not count.
        """
        found = self._stored()
        return Commits(born=born) if found is None or found.born != born else found

    def replace(self, new: Commits) -> bool:
        """Store `new`, which was made from the stored commits; return False if they have changed.

        Commits of an earlier source with the same id are replaced. Raises `OutcomeUnknown`.
        """
        condition: TableCondition = Equals("change_id", new.change_id)
        if not new.change_id:
            earlier = self._stored()
            if earlier is not None and earlier.born == new.born:
                return False
            condition = Absent() if earlier is None else Equals("change_id", earlier.change_id)
        written = evolve(new, change_id=self._new_id())
        try:
            self._table.put(written.to_item(self._source), condition=condition)
        except ConditionFailed:
            return False
        return True

    def rows(self, epoch: int) -> Iterator[QueuedFiles]:
        """Yield the rows of all epochs up to `epoch`, in their order."""
        for item in self._table.query(self._source, start_after=QUEUE):
            if not str(item["item"]).startswith(QUEUE):
                return
            row = QueuedFiles.from_item(item)
            if row.epoch > epoch:
                return
            yield row

    def remove(self, row: QueuedFiles) -> None:
        """Remove a row whose files are cleaned. Idempotent."""
        self._table.delete(Key(self._source, row.range))

    def _stored(self) -> Commits | None:
        item = self._table.get(Key(self._source, CLEANING))
        return None if item is None else Commits.from_item(item)
