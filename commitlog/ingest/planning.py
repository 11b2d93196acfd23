"""Planning of a step of a source: from its state row and remembered files to the next state row.

A *sweep* goes through a part of the listing once, in the store's order, in as many steps as it takes.
When it is complete, every object that existed when the sweep *began* has been processed. Objects are
then known in one of two ways:

* An object whose time is more than the grace window before the begin of the sweep existed when the sweep
  began. So after the sweep its time alone says that it is known: it is below the *watermark*. It need
  not be remembered.
* An object above the watermark is known if its path and etag are remembered.

So a sweep remembers the objects that it hands out above its future watermark. A row is forgotten once
the watermarks have passed over it.

If keys grow, a *boundary* cuts the listing in two. Each call sweeps the tail after the boundary. The
body before it is swept over many calls, a limited number of objects in each. At the end of a sweep of
the tail, the boundary moves up over keys that are all older than the grace window. Its position affects
only speed.

* Everything that the boundary passes is below the watermark of the sweep that has just ended, or is
  remembered. So that watermark is stored as a step of its own for exactly these keys: later watermarks
  of the tail say nothing about new objects among them. A complete sweep of the body raises all steps.
* The body is swept only between two sweeps of the tail, and up to the boundary of that moment. So a
  caller who wants everything that exists at a moment waits for one sweep of each that began after it.
  The sweep of the tail does not see objects below the boundary where it began. The sweep of the body
  goes at least up to that boundary, whether it ends before or after.
* Watermarks rise with the keys: a sweep of the body raises no watermark above that of the tail at its
  begin.

If keys have no order, the boundary stays at the beginning, and the whole listing is the tail. So it does
if the store sorts directory by directory: else objects would be in neither part. If that shows only
after the boundary has moved, planning fails.
"""

from __future__ import annotations

import enum
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.errors import InputChanged, InvalidPath
from commitlog.ingest.cleaning_queue import QueuedFiles, queued
from commitlog.ingest.epoch_builder import EpochBuilder, Limits
from commitlog.ingest.files import File, Slice
from commitlog.ingest.quarantine import InputProblem
from commitlog.ingest.rows import MAX_LIST_BYTES, FileEntry, FilesRow, encoded
from commitlog.ingest.seen_files import Seen, SeenFiles
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.source_state import ListingPass, SourceState
from commitlog.paths import join
from commitlog.stores.api import InFlight, ObjectInfo, ObjectStore, Observation
from commitlog.stores.order import in_order, up_to
from commitlog.tables.api import MAX_TRANSACTION_WRITES

__all__ = ["MAX_WANTED", "FileDecision", "Plan", "Planner", "store_time"]

_log = logging.getLogger(__name__)

#: What to do if the store turns out to list in an order that does not allow a boundary.
_ADVICE = (
    "objects may have been left out. Run `commitlog ingest reset`, and restart without `ordered` and"
    " with a new checkpoint directory, which reads everything again"
)

#: Most slices that are retried in one epoch.
MAX_WANTED = 20

#: Number of objects that are looked up at the same time after notifications.
_HEADS = 32

#: Most moves of the boundary in a grace window, and the least number of seconds between two moves.
_STRIDES = 8
_MIN_STRIDE = 1.0


def store_time(store: ObjectStore, prefix: str, clock: Clock) -> float:
    """Return the time by the store's clock, rounded down; if it gives none, the time of `clock`.

    `prefix`: the paths below it can be read.
    """
    observed = store.begin_head(join(prefix.rpartition("/")[0], "now"))().store_time
    return float(int(clock.epoch()) if observed is None else observed)


class FileDecision(enum.Enum):
    """Decision about a listed object."""

    #: Hand it out.
    READ = "read"
    #: Remember it for longer; it was handed out before.
    REMEMBER = "remember"
    #: Skip and count it; it is older than `max_file_age`.
    TOO_OLD = "too old"
    #: Skip it and remember it; it existed before the first start.
    EARLIER = "earlier"
    #: Skip it; its name or time does not match, or it is known.
    PASS = "pass"


@frozen(kw_only=True)
class Plan:
    """A step.

    Attributes:
        state: the state row after the step, with the revision and id of the row before it.
        rows: rows of files to add.
        queued: rows of the cleaning queue to add.
        remove: range keys of items to remove.
        needed: whether the step must be written; if not, it can be planned again at any time.
        listed: number of objects that were listed for the step.
        caught_up: whether the listing, if it was continued, reached its end, and all files that are
            known are handed out.
        continued: whether the listing was continued.
        notified: paths of the notifications that the step handles.
        undelivered: problems whose objects are the listed versions again. Their slices must be handed
            out before the step is written; then plan it again.
    """

    state: SourceState
    rows: Sequence[FilesRow]
    queued: Sequence[QueuedFiles]
    remove: Sequence[str]
    needed: bool
    listed: int
    caught_up: bool
    continued: bool
    notified: Collection[str]
    undelivered: Sequence[InputProblem]


class Planner:
    """Plans the steps of one source. Thread-safe; it warns once of a store that sorts otherwise.

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
        self._warned = False

    def now(self) -> float:
        """Return the time by the store's clock, rounded down."""
        return store_time(self._store, self._settings.listed_prefix, self._clock)

    def plan(
        self,
        state: SourceState,
        seen_files: SeenFiles,
        limits: Limits,
        *,
        wanted: Sequence[tuple[str, Slice]] = (),
        finite: bool = False,
        notified: Iterable[str] = (),
        lists: bool = True,
    ) -> Plan:
        """Return the next step.

        Args:
            state: the state row.
            seen_files: the remembered files.
            limits: limits of the epoch.
            wanted: slices to hand out first, with the range keys of their rows.
            finite: skip objects modified since the sweep began, so that sweeps end while new objects
                arrive, and continue listing until something is found.
            notified: paths of objects that may be new. As many are handled as fit into the epoch.
            lists: whether to continue the listing if the epoch has room then.

        Raises `InputChanged` if the policy is ``fail``, and the errors of the store. Writes nothing.
        """
        settings = self._settings
        # A file that is to be cleaned is listed twice.
        list_bytes = MAX_LIST_BYTES // (2 if settings.cleans else 1)
        builder = EpochBuilder(
            limits, slice_bytes=settings.slice_bytes, splits=self._splits, list_bytes=list_bytes
        )
        removed: list[str] = []
        for range, each in wanted:
            if builder.full or builder.add(each, cut=False) is not None:
                break
            removed.append(range)
        if state.rest is not None and not builder.full:
            state = evolve(state, rest=builder.add(state.rest))
        before, listed = state, 0
        first = len(builder.entries)
        state, handled, room_left = self._admit(state, seen_files, builder, notified)
        admitted = {_version(entry) for entry, _ in builder.entries[first:]}
        place = _pass(state)
        if lists and room_left:
            state, listed = self._list(state, seen_files, builder, admitted=admitted, finite=finite)
        continued = place != _pass(state)
        caught_up = room_left and state.rest is None and not (lists and state.tail is not None)
        epoch = state.epoch + (1 if builder.files else 0)
        state = evolve(
            state,
            epoch=epoch,
            files=state.files + builder.files,
            bytes=state.bytes + builder.bytes,
        )
        rows = encoded(epoch, state.revision + 1, builder.entries)
        to_clean = queued(epoch, state.revision + 1, builder.finished) if settings.cleans else []
        room = MAX_TRANSACTION_WRITES - 1 - len(rows) - len(to_clean) - len(removed)
        removed += seen_files.removable(epoch - settings.keep_epochs, state.watermarks, room)
        # A higher watermark alone is no reason to write: the next step raises it again. A cleaner waits
        # for it, though.
        moved = _place(before) != _place(state)
        risen = state.watermarks.lowest > before.watermarks.lowest + self._stride
        return Plan(
            state=state,
            rows=rows,
            queued=to_clean,
            remove=removed,
            needed=bool(rows or removed or moved or (risen and settings.cleans)),
            listed=listed,
            caught_up=caught_up,
            continued=continued,
            notified=handled,
            undelivered=builder.undelivered,
        )

    def judge(
        self, state: SourceState, sweep: ListingPass, seen_files: SeenFiles, info: ObjectInfo
    ) -> FileDecision:
        """Return the decision about a listed object. Raises `InputChanged`."""
        settings = self._settings
        if self._is_passed(state, info):
            return FileDecision.PASS
        if state.skips and state.since is not None and info.last_modified < state.since:
            return FileDecision.EARLIER
        seen = seen_files.look(File.of(info), watermark=state.watermarks.of(info.path))
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
        if oldest is not None and info.last_modified < sweep.began - oldest:
            return FileDecision.TOO_OLD
        return FileDecision.READ

    def waiting(
        self, state: SourceState, seen_files: SeenFiles, *, listed: Callable[[], object]
    ) -> Iterator[ObjectInfo]:
        """Yield all objects that wait to be read, ignoring limits, in the order of the listing.

        Call `listed` for each listed object. Raises `InputChanged`.
        """
        fresh = self._begin("")
        known_at = self._known_at(state)
        for info in self._with_etags(self._store.list(self._settings.listed_prefix), known_at):
            listed()
            behind = info.path > state.watermarks.boundary
            sweep = state.tail if behind else state.body
            if self.judge(known_at(info.path), sweep or fresh, seen_files, info) is FileDecision.READ:
                yield info

    # inside

    @property
    def _stride(self) -> float:
        return max(self._settings.grace / _STRIDES, _MIN_STRIDE)

    def _objects(self, state: SourceState, after: str, upto: str | None) -> Iterator[ObjectInfo]:
        """Return the objects that the store lists after a path, and up to `upto`.

        Raises `NotSupported` if the store has listed objects on the wrong side of the boundary.
        """
        store, prefix = self._store, self._settings.listed_prefix
        if not state.watermarks.boundary:
            return store.resume(prefix, after=after)
        if upto is not None:
            rest = store.resume(prefix, after=after)
            return up_to(store, prefix, rest, after=after, last=upto, advice=_ADVICE)
        # At the boundary, the sweep of the body compares the two parts.
        cut = after == state.watermarks.boundary
        rest = store.list(prefix, start_after=after) if cut else store.resume(prefix, after=after)
        return in_order(store, rest, after=after, advice=_ADVICE)

    def _with_etags(
        self, listed: Iterable[ObjectInfo], known_at: Callable[[str], SourceState]
    ) -> Iterator[ObjectInfo]:
        """Yield listed objects. If the listing has no etag of one, a HEAD finds it.

        There is no HEAD of an object that is passed whatever its etag; one that is gone is left out.
        `known_at`: returns the state row by which to judge an object at a path.
        """
        for info in listed:
            if info.etag or self._is_passed(known_at(info.path), info):
                yield info
                continue
            try:
                found = self._store.begin_head(info.path)().info
            except InvalidPath:
                found = info  # its reader reports it
            if found is not None:
                yield found

    def _undelivered(
        self, state: SourceState, seen_files: SeenFiles, info: ObjectInfo
    ) -> Sequence[InputProblem]:
        """Return the problems of a listed version that was handed out, but not delivered."""
        found = seen_files.undelivered(File.of(info), watermark=state.watermarks.of(info.path))
        return () if found and self._is_passed(state, info) else found

    def _is_passed(self, state: SourceState, info: ObjectInfo) -> bool:
        """Return whether an object is passed by its time or its name alone."""
        modified = info.last_modified
        # Most listed objects are old: check that first.
        return (
            modified < state.watermarks.of(info.path)
            or (state.since is not None and not state.latest and modified < state.since)
            or not self._settings.names.wants(info.path[len(self._settings.prefix) :])
        )

    def _begin(self, cursor: str, *, most: float = math.inf) -> ListingPass:
        """Return a new sweep from `cursor` on, with a watermark of at most `most`."""
        began, settings = self.now(), self._settings
        watermark = -math.inf if settings.remember == "everything" else began - settings.grace
        return ListingPass(began=began, watermark=min(watermark, most), cursor=cursor, settled=cursor)

    def _tail_swept(self, state: SourceState, sweep: ListingPass) -> SourceState:
        """Return the state row after a complete sweep of the tail."""
        settings, watermarks = self._settings, state.watermarks.raised(sweep.watermark)
        if settings.ordered:
            stride = self._stride if sweep.watermark > -math.inf else 0.0
            watermarks = watermarks.settled(sweep.settled, stride=stride)
        return evolve(state, watermarks=watermarks, tail=None, tails=state.tails + 1)

    def _body_swept(self, state: SourceState, sweep: ListingPass) -> SourceState:
        """Return the state row after a complete sweep of the body."""
        watermarks = state.watermarks.swept(sweep.watermark)
        return evolve(state, watermarks=watermarks, body=None, bodies=state.bodies + 1)

    def _known_at(self, state: SourceState) -> Callable[[str], SourceState]:
        """Return a function that returns the state row by which to judge an object at a path.

        Objects that a sweep has processed are judged as if it were complete: those below its watermark
        are not remembered.
        """
        tail = state if state.tail is None else self._tail_swept(state, state.tail)
        body = state if state.body is None else self._body_swept(state, state.body)

        def known_at(path: str) -> SourceState:
            behind = path > state.watermarks.boundary
            sweep = state.tail if behind else state.body
            if sweep is None or path > sweep.cursor:
                return state
            return tail if behind else body

        return known_at

    def _admit(
        self,
        state: SourceState,
        seen_files: SeenFiles,
        builder: EpochBuilder,
        paths: Iterable[str],
    ) -> tuple[SourceState, set[str], bool]:
        """Add objects that notifications name, as the store has them now.

        Returns the state row, the handled paths, and whether all are handled and the epoch has room. All
        added files are remembered, because no sweep has found them yet.
        """
        handled: set[str] = set()
        rest, passed_over = state.rest, state.passed_over
        known_at = self._known_at(state)
        waiting = iter(paths)
        while rest is None and not builder.full:
            heads = self._heads(list(islice(waiting, _HEADS)))
            if not heads:
                break
            for path, observed in heads:
                if rest is not None or builder.full:
                    break
                info = None if observed is None else observed.info
                if info is None or observed is None:
                    handled.add(path)
                    continue
                time = self._clock.epoch() if observed.store_time is None else observed.store_time
                sweep = ListingPass(began=float(time), watermark=-math.inf)
                at, file = known_at(path), File.of(info)
                decision = self.judge(at, sweep, seen_files, info)
                builder.undelivered += self._undelivered(at, seen_files, info)
                if decision is FileDecision.READ:
                    whole = Slice(file, 0, info.size)
                    rest = builder.add(whole, recent=True)
                    if rest == whole:
                        return evolve(state, passed_over=passed_over), handled, False
                elif decision not in (FileDecision.PASS, FileDecision.EARLIER):
                    if not builder.remember(file):
                        return evolve(state, passed_over=passed_over), handled, False
                    passed_over += decision is FileDecision.TOO_OLD
                    if decision is FileDecision.REMEMBER:
                        builder.finished.append(file)
                handled.add(path)
        state = evolve(state, rest=rest, passed_over=passed_over)
        return state, handled, rest is None and not builder.full

    def _heads(self, paths: Sequence[str]) -> list[tuple[str, Observation | None]]:
        """Return what the store has at these paths; None for a key that is not a path.

        The listing reports such keys.
        """
        begun: list[tuple[str, InFlight[Observation] | None]] = []
        for path in paths:
            try:
                begun.append((path, self._store.begin_head(path)))
            except InvalidPath:
                begun.append((path, None))
        return [(path, None if pending is None else pending()) for path, pending in begun]

    def _list(
        self,
        state: SourceState,
        seen_files: SeenFiles,
        builder: EpochBuilder,
        *,
        admitted: Collection[tuple[str, str]],
        finite: bool,
    ) -> tuple[SourceState, int]:
        """Continue the sweep of the tail, and after it the sweep of the body.

        `admitted`: path and etag of the files that were added because of notifications.

        Returns the state row and the number of listed objects.
        """
        before = len(admitted)
        most = self._settings.tail_limit
        begun, listed = False, 0
        # A sweep that finds nothing may have missed new objects at paths it had passed: start another.
        while state.tail is not None or not (begun or builder.files > before):
            begun = begun or state.tail is None
            sweep = state.tail or self._begin(state.watermarks.boundary)
            left = None if most is None else most - listed
            # A second sweep in this step passes what the first one has remembered.
            remembered = {_version(entry) for entry, _ in builder.entries if not entry.slices}
            state, sweep, count, ended = self._sweep(
                state, sweep, seen_files, builder, left, taken=remembered.union(admitted), finite=finite
            )
            listed += count
            if not ended:
                return evolve(state, tail=sweep), listed
            state = self._tail_swept(state, sweep)
            if most is not None and state.watermarks.boundary:
                break  # else a tail longer than the limit would starve the body
        boundary = state.watermarks.boundary
        if not boundary or state.rest is not None or builder.full:
            return state, listed
        body = state.body or self._begin("", most=state.watermarks.tail)
        # The boundary may have moved over files that this step hands out.
        taken = {_version(entry) for entry, _ in builder.entries}
        limit = self._settings.body_limit
        state, body, count, ended = self._sweep(
            state, body, seen_files, builder, limit, upto=boundary, taken=taken, finite=finite
        )
        state = self._body_swept(state, body) if ended else evolve(state, body=body)
        return state, listed + count

    def _sweep(
        self,
        state: SourceState,
        sweep: ListingPass,
        seen_files: SeenFiles,
        builder: EpochBuilder,
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
        rest, passed_over, count, ended = state.rest, state.passed_over, 0, True
        for info in self._with_etags(self._objects(state, cursor, upto), lambda _path: state):
            if rest is not None or builder.full:
                ended = False
                break
            # Stores give whole seconds: an object with the same second may have existed before.
            late = finite and info.last_modified >= sweep.began + 1
            known = late or (info.path, info.etag) in taken
            decision = FileDecision.PASS if known else self.judge(state, sweep, seen_files, info)
            recent = info.last_modified >= sweep.watermark
            file = File.of(info)
            if not known:
                builder.undelivered += self._undelivered(state, seen_files, info)
            if decision is FileDecision.READ:
                whole = Slice(file, 0, info.size)
                rest = builder.add(whole, recent=recent)
                if rest == whole:
                    rest, ended = None, False
                    break
            elif decision is not FileDecision.PASS:
                if recent and not builder.remember(file):
                    ended = False
                    break
                passed_over += decision is FileDecision.TOO_OLD
                if decision is FileDecision.REMEMBER and recent:
                    builder.finished.append(file)
            count += 1
            if info.path < cursor:  # a listing that cannot be cut: the boundary stays at the beginning
                self._warn(info.path, cursor)
                quiet, settled = False, ""
            cursor = info.path
            quiet = quiet and info.last_modified < settled_before
            settled = cursor if quiet else settled
            if most is not None and count >= most and (builder.files or not finite):
                ended = False
                break
        state = evolve(state, rest=rest, passed_over=passed_over)
        return state, evolve(sweep, cursor=cursor, settled=settled), count, ended

    def _warn(self, path: str, before: str) -> None:
        if self._settings.ordered and not self._warned:
            self._warned = True
            _log.warning(
                "%s lists %r after %r: it does not sort paths by their bytes, so source %r is read"
                " without the option `ordered`",
                *(self._store.url, path, before, self._settings.source),
            )


def _version(entry: FileEntry) -> tuple[str, str]:
    return entry.file.path, entry.file.etag


def _pass(state: SourceState) -> tuple[object, ...]:
    return state.tail, state.body, state.tails, state.bodies


def _place(state: SourceState) -> tuple[object, ...]:
    return state.tail, state.body, state.watermarks.boundary, state.passed_over
