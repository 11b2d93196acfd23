"""Planning of a step of a source: from its state row and remembered files to the next state row.

A *sweep* goes through a part of the listing once, in the store's order, in as many steps as it takes.
When it is complete, every object that existed when the sweep *began* has been processed. Objects are
then known in one of two ways:

* An object whose time is more than the grace window before the begin of the sweep existed when the sweep
  began. So after the sweep its time alone says that it is known: it is below the *floor* (the
  watermark). It need not be remembered.
* An object above the floor is known if its path and etag are remembered.

So a sweep remembers the objects that it hands out above its future floor. A row is forgotten once the
floors have passed over it.

If keys grow, a *mark* cuts the listing in two. Each call sweeps the tail after the mark. The body before
it is swept over many calls, a limited number of objects in each. At the end of a sweep of the tail, the
mark moves up over keys that are all older than the grace window. Its position affects only speed.

* Everything that the mark passes is below the floor of the sweep that has just ended, or is remembered.
  So that floor is stored as a step of its own for exactly these keys: later floors of the tail say
  nothing about new objects among them. A complete sweep of the body raises all steps.
* The body is swept only between two sweeps of the tail, and up to the mark of that moment. So a caller
  who wants everything that exists at a moment waits for one sweep of each that began after it. What the
  sweep of the tail does not see is below the mark where it began. The sweep of the body goes at least
  up to that mark, whether it ends before or after.
* Floors rise with the keys: a sweep of the body raises no floor above that of the tail at its begin.

If keys have no order, the mark stays at the beginning, and the whole listing is the tail.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterator, Sequence

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.errors import InputChanged
from commitlog.ingest.epoch_builder import EpochBuilder, Limits
from commitlog.ingest.files import File, Slice
from commitlog.ingest.rows import Row, encoded
from commitlog.ingest.seen_files import Seen, SeenFiles
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.source_state import ListingPass, SourceState
from commitlog.ingest.state import MAX_WRITES
from commitlog.paths import join
from commitlog.stores.api import ObjectInfo, ObjectStore

__all__ = ["MAX_WANTED", "FileDecision", "Plan", "Planner"]

#: Most slices that are retried in one epoch.
MAX_WANTED = 20


#: Most moves of the mark in a grace window, and the least number of seconds between two moves.
_STRIDES = 8
_MIN_STRIDE = 1.0


class FileDecision(enum.Enum):
    """Decision about a listed object."""

    #: Hand it out.
    READ = "read"
    #: Remember it for longer; it was handed out before.
    REMEMBER = "remember"
    #: Skip and count it; it is older than `max_file_age`.
    TOO_OLD = "too old"
    #: Skip it; its name or time does not match, or it is known.
    PASS = "pass"


@frozen(kw_only=True)
class Plan:
    """A step.

    Attributes:
        head: the state row after the step, with the revision and id of the row before it.
        rows: rows of files to add.
        remove: range keys of items to remove.
        needed: whether the step must be written; if not, it can be planned again at any time.
        listed: number of objects that were listed for the step.
        caught_up: whether the listing reached its end and all files that it found are handed out.
    """

    head: SourceState
    rows: Sequence[Row]
    remove: Sequence[str]
    needed: bool
    listed: int
    caught_up: bool


class Planner:
    """Plans the steps of one source. Thread-safe, stateless.

    Args:
        store: the store with the objects.
        settings: the settings of the source.
        splits: returns whether the file at a path can be read by ranges of bytes.
        clock: gives the time if the store does not.
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
        store_time = self._store.begin_head(join(prefix, "now"))().store_time
        return float(int(self._clock.epoch()) if store_time is None else store_time)

    def plan(
        self,
        head: SourceState,
        window: SeenFiles,
        limits: Limits,
        *,
        wanted: Sequence[tuple[str, Slice]] = (),
        finite: bool = False,
    ) -> Plan:
        """Return the next step.

        Args:
            head: the state row.
            window: the remembered files.
            limits: limits of the epoch.
            wanted: slices to hand out first, with the range keys of their rows.
            finite: skip objects modified since the sweep began, so that sweeps end while new objects
                arrive, and continue listing until something is found.

        Raises `InputChanged` if the policy is ``fail``, and the errors of the store. Writes nothing.
        """
        settings = self._settings
        cargo = EpochBuilder(limits, slice_bytes=settings.slice_bytes, splits=self._splits)
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
            caught_up = head.tail is None and head.rest is None
        epoch = head.epoch + (1 if cargo.files else 0)
        head = evolve(head, epoch=epoch, files=head.files + cargo.files, bytes=head.bytes + cargo.bytes)
        rows = encoded(epoch, head.revision + 1, cargo.entries)
        room = MAX_WRITES - 1 - len(rows) - len(removed)
        removed += window.removable(epoch - settings.keep_epochs, head.floors, room)
        # A higher floor alone is no reason to write: the next step raises it again.
        moved = _place(before) != _place(head)
        return Plan(
            head=head,
            rows=rows,
            remove=removed,
            needed=bool(rows or removed or moved),
            listed=listed,
            caught_up=caught_up,
        )

    def judge(
        self, head: SourceState, sweep: ListingPass, window: SeenFiles, info: ObjectInfo
    ) -> FileDecision:
        """Return the decision about a listed object. Raises `InputChanged`."""
        settings = self._settings
        modified = info.last_modified
        # Most listed objects are old: check that first.
        if modified < head.floors.of(info.path):
            return FileDecision.PASS
        if head.since is not None and modified < head.since:
            return FileDecision.PASS
        if not settings.names.wants(info.path[len(settings.prefix) :]):
            return FileDecision.PASS
        seen = window.look(File.of(info))
        if seen is Seen.YES:
            return FileDecision.PASS
        if seen is Seen.AGAIN:
            return FileDecision.REMEMBER if settings.remember == "window" else FileDecision.PASS
        if seen is Seen.OTHER and settings.changed == "ignore":
            return FileDecision.PASS
        if seen is Seen.OTHER and settings.changed == "fail":
            raise InputChanged(
                f"{info.path!r} has changed since it was read: set changed='again' to read such objects"
                " again, or changed='ignore' to skip them"
            )
        oldest = settings.max_file_age
        if oldest is not None and modified < sweep.began - oldest:
            return FileDecision.TOO_OLD
        return FileDecision.READ

    def waiting(
        self, head: SourceState, window: SeenFiles, *, listed: Callable[[], object]
    ) -> Iterator[ObjectInfo]:
        """Yield all objects that wait to be read, ignoring limits, in the order of the listing.

        Call `listed` for each listed object. Raises `InputChanged`.
        """
        fresh = self._begin("")
        tail = head if head.tail is None else self._tail_swept(head, head.tail)
        body = head if head.body is None else self._body_swept(head, head.body)
        for info in self._listed(""):
            listed()
            behind = info.path > head.floors.mark
            sweep = head.tail if behind else head.body
            known = head
            if sweep is not None and info.path <= sweep.cursor:
                # Judge objects that the sweep has processed as if the sweep were complete.
                known = tail if behind else body
            if self.judge(known, sweep or fresh, window, info) is FileDecision.READ:
                yield info

    # inside

    def _listed(self, after: str) -> Iterator[ObjectInfo]:
        return self._store.list(self._settings.listed_prefix, start_after=after)

    def _begin(self, cursor: str, *, most: float = math.inf) -> ListingPass:
        """Return a new sweep from `cursor` on, with a floor of at most `most`."""
        began, settings = self.now(), self._settings
        floor = -math.inf if settings.remember == "everything" else began - settings.grace
        return ListingPass(began=began, floor=min(floor, most), cursor=cursor, settled=cursor)

    def _tail_swept(self, head: SourceState, sweep: ListingPass) -> SourceState:
        """Return the state row after a complete sweep of the tail."""
        settings, floors = self._settings, head.floors.raised(sweep.floor)
        if settings.ordered:
            stride = max(settings.grace / _STRIDES, _MIN_STRIDE) if sweep.floor > -math.inf else 0.0
            floors = floors.settled(sweep.settled, stride=stride)
        return evolve(head, floors=floors, tail=None, tails=head.tails + 1)

    def _body_swept(self, head: SourceState, sweep: ListingPass) -> SourceState:
        """Return the state row after a complete sweep of the body."""
        return evolve(head, floors=head.floors.swept(sweep.floor), body=None, bodies=head.bodies + 1)

    def _list(
        self, head: SourceState, window: SeenFiles, cargo: EpochBuilder, *, finite: bool
    ) -> tuple[SourceState, int]:
        """Continue the sweep of the tail, and after it the sweep of the body.

        Returns the state row and the number of listed objects.
        """
        most = self._settings.tail_limit
        begun, listed = False, 0
        # A sweep that finds nothing may have missed new objects at paths it had passed: start another.
        while head.tail is not None or not (begun or cargo.files):
            begun = begun or head.tail is None
            sweep = head.tail or self._begin(head.floors.mark)
            left = None if most is None else most - listed
            head, sweep, count, ended = self._sweep(head, sweep, window, cargo, left, finite=finite)
            listed += count
            if not ended:
                return evolve(head, tail=sweep), listed
            head = self._tail_swept(head, sweep)
            if most is not None and head.floors.mark:
                break  # else a tail longer than the limit would starve the body
        mark = head.floors.mark
        if not mark or head.rest is not None or cargo.full:
            return head, listed
        body = head.body or self._begin("", most=head.floors.tail)
        # The mark may have moved over files that this step hands out.
        taken = {(entry.file.path, entry.file.etag) for entry, _ in cargo.entries}
        limit = self._settings.body_limit
        head, body, count, ended = self._sweep(
            head, body, window, cargo, limit, upto=mark, taken=taken, finite=finite
        )
        head = self._body_swept(head, body) if ended else evolve(head, body=body)
        return head, listed + count

    def _sweep(
        self,
        head: SourceState,
        sweep: ListingPass,
        window: SeenFiles,
        cargo: EpochBuilder,
        most: int | None,
        *,
        upto: str | None = None,
        taken: Collection[tuple[str, str]] = (),
        finite: bool,
    ) -> tuple[SourceState, ListingPass, int, bool]:
        """Continue a sweep until it ends or the epoch is full.

        Returns the state row, the sweep, the number of listed objects, and whether the sweep ended.
        """
        settled_before = sweep.began - self._settings.grace
        cursor, settled, quiet = sweep.cursor, sweep.settled, sweep.settled == sweep.cursor
        rest, passed_over, count, ended = head.rest, head.passed_over, 0, True
        for info in self._listed(cursor):
            if upto is not None and info.path > upto:
                break
            if rest is not None or cargo.full:
                ended = False
                break
            # Stores give whole seconds: an object with the same second may have existed before.
            late = finite and info.last_modified >= sweep.began + 1
            known = late or (info.path, info.etag) in taken
            verdict = FileDecision.PASS if known else self.judge(head, sweep, window, info)
            recent = info.last_modified >= sweep.floor
            if verdict is FileDecision.READ:
                whole = Slice(File.of(info), 0, info.size)
                rest = cargo.add(whole, recent=recent)
                if rest == whole:
                    rest, ended = None, False
                    break
            elif verdict is not FileDecision.PASS:
                if recent and not cargo.remember(File.of(info)):
                    ended = False
                    break
                passed_over += verdict is FileDecision.TOO_OLD
            count += 1
            cursor = info.path
            quiet = quiet and info.last_modified < settled_before
            settled = cursor if quiet else settled
            if most is not None and count >= most and (cargo.files or not finite):
                ended = False
                break
        head = evolve(head, rest=rest, passed_over=passed_over)
        return head, evolve(sweep, cursor=cursor, settled=settled), count, ended


def _place(head: SourceState) -> tuple[object, ...]:
    return head.tail, head.body, head.floors.mark, head.passed_over
