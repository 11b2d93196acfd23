"""Planning: one step of a source, from its list row and what it remembers to the next list row.

The rule of the listing. A *sweep* goes through the listing once, in the store's order, in as many steps
as it takes. When it has come to the end, every object that was there when it *began* has been dealt
with. An object that bears a time of more than the grace window before that moment was there, so in the
next sweep it is known by its time alone (it lies below the *floor*), and need not be remembered. An
object above the floor is known if it is remembered by path and etag.

So what has to be remembered is what was modified since the grace window before the sweep under way
began, whatever the bucket's history; and no two files are told apart by their times.

Imports its siblings, and the `ObjectStore` and `Clock` ports.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.errors import InputChanged
from commitlog.ingest.cargo import Cargo, Limits
from commitlog.ingest.files import File, Slice
from commitlog.ingest.head import Head, Sweep
from commitlog.ingest.rows import Row, encoded
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.state import MAX_WRITES
from commitlog.ingest.window import Seen, Window
from commitlog.paths import join
from commitlog.stores.api import ObjectInfo, ObjectStore

__all__ = ["MAX_WANTED", "Plan", "Planner", "Verdict"]

#: Most slices that are read again in one epoch.
MAX_WANTED = 20


class Verdict(enum.Enum):
    """What is to be done about an object that was listed."""

    #: It is handed out.
    READ = "read"
    #: It was handed out before, and is remembered for longer from now on.
    REMEMBER = "remember"
    #: It is older than files may be.
    TOO_OLD = "too old"
    #: Its name or time is not wanted, or it is known.
    PASS = "pass"


@frozen(kw_only=True)
class Plan:
    """A step.

    Attributes:
        head: the list row after it; revision and word are those of the row before.
        rows: rows of files that come with it.
        remove: range keys of items that go with it.
        needed: whether it has to be written; if not, the step can be made again at any time.
        listed: how many objects were listed for it.
        caught_up: whether that came to an end, and all that was found is handed out.
    """

    head: Head
    rows: Sequence[Row]
    remove: Sequence[str]
    needed: bool
    listed: int
    caught_up: bool


class Planner:
    """Plans the steps of one source. Thread-safe, stateless.

    Args:
        store: where the objects are.
        settings: which of them are wanted.
        splits: tells of a path whether its file can be read by ranges of bytes.
        clock: tells the time where the store does not.
    """

    def __init__(
        self,
        store: ObjectStore,
        settings: IngestSettings,
        *,
        splits: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._store = store
        self._settings = settings
        self._splits = splits
        self._clock = clock

    def now(self) -> float:
        """Return the time by the store's clock, rounded down."""
        prefix = self._settings.listed_prefix.rpartition("/")[0]
        told = self._store.begin_head(join(prefix, "now"))().store_time
        return float(int(self._clock.epoch()) if told is None else told)

    def plan(
        self,
        head: Head,
        window: Window,
        limits: Limits,
        *,
        wanted: Sequence[tuple[str, Slice]] = (),
        finite: bool = False,
    ) -> Plan:
        """Return the next step.

        Args:
            head: the list row.
            window: what it remembers.
            limits: how much may be handed out.
            wanted: slices to be handed out first, with the range keys of their rows.
            finite: pass over what was modified since the sweep began, so that sweeps end while objects
                keep coming, and list on until something is found.

        Raises `InputChanged` if that is the policy, and what the store raises. Nothing is written.
        """
        settings = self._settings
        cargo = Cargo(limits, slice_bytes=settings.slice_bytes, splits=self._splits)
        removed: list[str] = []
        for range, each in wanted:
            if cargo.full or cargo.add(each, cut=False) is not None:
                break
            removed.append(range)
        if head.rest is not None and not cargo.full:
            head = evolve(head, rest=cargo.add(head.rest))
        before, listed, caught_up = head, 0, False
        if head.rest is None and not cargo.full:
            head, listed = self._list(head, window, cargo, finite=finite)
            caught_up = head.sweep is None and head.rest is None
        epoch = head.epoch + (1 if cargo.files else 0)
        head = evolve(head, epoch=epoch, files=head.files + cargo.files, bytes=head.bytes + cargo.bytes)
        rows = encoded(epoch, head.revision + 1, cargo.entries)
        room = MAX_WRITES - 1 - len(rows) - len(removed)
        removed += window.removable(epoch - settings.keep_epochs, head.floor, room)
        moved = (before.sweep, before.origin, before.passed_over) != (
            head.sweep,
            head.origin,
            head.passed_over,
        )
        return Plan(
            head=head,
            rows=rows,
            remove=removed,
            needed=bool(rows or removed or moved),
            listed=listed,
            caught_up=caught_up,
        )

    def judge(self, head: Head, sweep: Sweep, window: Window, info: ObjectInfo) -> Verdict:
        """Tell what is to be done about an object that was listed. Raises `InputChanged`."""
        settings = self._settings
        modified = info.last_modified
        # Most of what is listed is old, and nothing else need be looked at.
        if head.floor is not None and modified < head.floor:
            return Verdict.PASS
        if head.since is not None and modified < head.since:
            return Verdict.PASS
        if not settings.names.wants(info.path[len(settings.prefix) :]):
            return Verdict.PASS
        seen = window.look(File.of(info))
        if seen is Seen.YES:
            return Verdict.PASS
        if seen is Seen.AGAIN:
            return Verdict.REMEMBER if settings.remember == "window" else Verdict.PASS
        if seen is Seen.OTHER and settings.changed == "ignore":
            return Verdict.PASS
        if seen is Seen.OTHER and settings.changed == "fail":
            raise InputChanged(
                f"{info.path!r} was read before, and has another content now: have it read once more"
                " with changed='again', or pass over such objects with changed='ignore'"
            )
        oldest = settings.max_file_age
        if oldest is not None and modified < sweep.began - oldest:
            return Verdict.TOO_OLD
        return Verdict.READ

    def listed(self, after: str) -> Iterator[ObjectInfo]:
        """Yield the objects that are listed behind a path."""
        return self._store.list(self._settings.listed_prefix, start_after=after)

    def end(self, head: Head, sweep: Sweep, settled: str = "") -> Head:
        """Return the list row once `sweep` is complete."""
        settings = self._settings
        floor = head.floor
        if settings.remember == "window":
            # The store's clock may have gone back; what was known stays known.
            new = sweep.began - settings.grace
            floor = new if floor is None else max(floor, new)
        origin = settled if settings.ordered else ""
        return evolve(head, sweep=None, sweeps=head.sweeps + 1, floor=floor, origin=origin)

    # inside

    def _list(self, head: Head, window: Window, cargo: Cargo, *, finite: bool) -> tuple[Head, int]:
        """Go on with the sweep under way, and begin another one if it ends with nothing found.

        Returns the list row, and how many objects were listed.
        """
        listed, begun = 0, False
        while True:
            if head.sweep is None:
                if begun or cargo.files:
                    break
                begun = True
                head = evolve(
                    head, sweep=Sweep(began=self.now(), cursor=head.origin, settled=head.origin)
                )
            head, more, ended = self._sweep(head, window, cargo, listed, finite=finite)
            listed += more
            if not ended:
                break
        return head, listed

    def _sweep(
        self, head: Head, window: Window, cargo: Cargo, listed: int, *, finite: bool
    ) -> tuple[Head, int, bool]:
        """List until the end, or until there is enough; return the list row, and whether it ended."""
        settings = self._settings
        sweep = head.sweep
        assert sweep is not None
        most = settings.list_limit
        recent_from = sweep.began - settings.grace
        cursor, settled, quiet = sweep.cursor, sweep.settled, sweep.settled == sweep.cursor
        rest, passed_over, count, ended = head.rest, head.passed_over, 0, True
        for info in self.listed(cursor):
            enough = most is not None and listed + count >= most and (cargo.files or not finite)
            if enough or rest is not None or cargo.full:
                ended = False
                break
            late = finite and info.last_modified > sweep.began
            verdict = Verdict.PASS if late else self.judge(head, sweep, window, info)
            recent = info.last_modified >= recent_from or settings.remember == "everything"
            if verdict is Verdict.READ:
                whole = Slice(File.of(info), 0, info.size)
                rest = cargo.add(whole, recent=recent)
                if rest == whole:
                    rest, ended = None, False
                    break
            elif verdict is not Verdict.PASS:
                if recent and not cargo.remember(File.of(info)):
                    ended = False
                    break
                passed_over += verdict is Verdict.TOO_OLD
            count += 1
            cursor = info.path
            quiet = quiet and info.last_modified < recent_from
            settled = cursor if quiet else settled
        head = evolve(head, rest=rest, passed_over=passed_over)
        if not ended:
            return evolve(head, sweep=evolve(sweep, cursor=cursor, settled=settled)), count, False
        return self.end(head, sweep, settled), count, True
