"""Planning: one step of a source, from its list row and what it remembers to the next list row.

The rule of the listing. A *sweep* goes through a stretch of the listing once, in the store's order, in
as many steps as it takes. When it has come to the end, every object that was there when it *began* has
been dealt with. An object of that stretch that bears a time of more than the grace window before that
moment was there, so from then on it is known by its time alone (it lies below the *floor*), and need
not be remembered. An object above the floor is known if it is remembered by path and etag. So a sweep
remembers what it hands out from its own floor-to-be on, and a row is forgotten once floors have passed
over it.

Where keys grow, the listing is cut in two at a *mark*: the tail behind it is swept by each call, the
body before it by many, a bounded number of objects in each. The mark moves up, at the end of a sweep of
the tail, over keys that are all older than the grace window; where it goes is a matter of speed alone.

* All that the mark passes over lies below the floor of the sweep that has just ended, or is
  remembered. So that floor is kept as a step of its own, for just the keys that were passed over:
  later floors of the tail say nothing about what turns up among them. A complete sweep of the body
  lifts all steps.
* The body is swept only when no sweep of the tail is under way, and up to where the mark is then. So
  whoever wants all that is there at a moment waits for one sweep of each that began after it: what the
  one of the tail does not see lies below the mark from which it began, and the one of the body,
  whether it ended before or after, came as far as that mark at least.
* Floors rise with the keys: a sweep of the body lifts none above that of the tail at its begin.

Without an order of keys the mark stays at the beginning, and all is tail.

Imports its siblings, and the `ObjectStore` and `Clock` ports.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterator, Sequence

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


#: The mark is moved as often as this in a grace window, and not within so many seconds.
_STRIDES = 8
_MIN_STRIDE = 1.0


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
            caught_up = head.tail is None and head.rest is None
        epoch = head.epoch + (1 if cargo.files else 0)
        head = evolve(head, epoch=epoch, files=head.files + cargo.files, bytes=head.bytes + cargo.bytes)
        rows = encoded(epoch, head.revision + 1, cargo.entries)
        room = MAX_WRITES - 1 - len(rows) - len(removed)
        removed += window.removable(epoch - settings.keep_epochs, head.floors, room)
        # That a floor rose is no reason to write: it rises again.
        moved = _place(before) != _place(head)
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
        if modified < head.floors.of(info.path):
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

    def waiting(
        self, head: Head, window: Window, *, listed: Callable[[], object]
    ) -> Iterator[ObjectInfo]:
        """Yield what would be read if there were no limits, in the order of the listing.

        `listed` is called for each object that is listed. Raises `InputChanged`.
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
                # What a sweep has dealt with is known as if it were complete.
                known = tail if behind else body
            if self.judge(known, sweep or fresh, window, info) is Verdict.READ:
                yield info

    # inside

    def _listed(self, after: str) -> Iterator[ObjectInfo]:
        return self._store.list(self._settings.listed_prefix, start_after=after)

    def _begin(self, cursor: str, *, most: float = math.inf) -> Sweep:
        """Return a new sweep from `cursor` on, after which no more than `most` is known by its time."""
        began, settings = self.now(), self._settings
        floor = -math.inf if settings.remember == "everything" else began - settings.grace
        return Sweep(began=began, floor=min(floor, most), cursor=cursor, settled=cursor)

    def _tail_swept(self, head: Head, sweep: Sweep) -> Head:
        """Return the list row once a sweep of the tail is complete."""
        settings, floors = self._settings, head.floors.raised(sweep.floor)
        if settings.ordered:
            stride = max(settings.grace / _STRIDES, _MIN_STRIDE) if sweep.floor > -math.inf else 0.0
            floors = floors.settled(sweep.settled, stride=stride)
        return evolve(head, floors=floors, tail=None, tails=head.tails + 1)

    def _body_swept(self, head: Head, sweep: Sweep) -> Head:
        """Return the list row once a sweep of the body is complete."""
        return evolve(head, floors=head.floors.swept(sweep.floor), body=None, bodies=head.bodies + 1)

    def _list(self, head: Head, window: Window, cargo: Cargo, *, finite: bool) -> tuple[Head, int]:
        """Go on with the sweep of the tail, and once that is complete with the one of the body.

        Returns the list row, and how many objects were listed.
        """
        most = self._settings.tail_limit
        begun, listed = False, 0
        # If a sweep ends with nothing found, another one may find what came behind its back.
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
                break  # or a tail that is longer than the limit would never let the body have its turn
        mark = head.floors.mark
        if not mark or head.rest is not None or cargo.full:
            return head, listed
        body = head.body or self._begin("", most=head.floors.tail)
        # The mark may have moved over what this very step hands out.
        taken = {(entry.file.path, entry.file.etag) for entry, _ in cargo.entries}
        limit = self._settings.body_limit
        head, body, count, ended = self._sweep(
            head, body, window, cargo, limit, upto=mark, taken=taken, finite=finite
        )
        head = self._body_swept(head, body) if ended else evolve(head, body=body)
        return head, listed + count

    def _sweep(
        self,
        head: Head,
        sweep: Sweep,
        window: Window,
        cargo: Cargo,
        most: int | None,
        *,
        upto: str | None = None,
        taken: Collection[tuple[str, str]] = (),
        finite: bool,
    ) -> tuple[Head, Sweep, int, bool]:
        """Go on with a sweep until it ends, or until there is enough.

        Returns the list row and the sweep, how many objects were listed, and whether it ended.
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
            # Stores tell whole seconds of their clocks: what bears this one may have been there.
            late = finite and info.last_modified >= sweep.began + 1
            known = late or (info.path, info.etag) in taken
            verdict = Verdict.PASS if known else self.judge(head, sweep, window, info)
            recent = info.last_modified >= sweep.floor
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
            quiet = quiet and info.last_modified < settled_before
            settled = cursor if quiet else settled
            if most is not None and count >= most and (cargo.files or not finite):
                ended = False
                break
        head = evolve(head, rest=rest, passed_over=passed_over)
        return head, evolve(sweep, cursor=cursor, settled=settled), count, ended


def _place(head: Head) -> tuple[object, ...]:
    return head.tail, head.body, head.floors.mark, head.passed_over
