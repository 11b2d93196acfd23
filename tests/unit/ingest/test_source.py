"""Sources in memory: files are handed out once, in bounded epochs, and invalid state is refused."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from commitlog.errors import ConfigurationError, FormatTooNew, InputChanged, InputMissing, StateMismatch
from commitlog.ingest import INGEST_SCHEMA, File, IngestAdmin, IngestSettings, PathFilter, Slice
from commitlog.ingest.epoch_builder import EpochBuilder, Limits
from commitlog.ingest.rows import FileEntry, encoded
from commitlog.ingest.seen_files import SeenFiles
from commitlog.ingest.watermarks import Watermarks
from commitlog.stores.api import InFlight, Observation, Page
from commitlog.tables.rules import check_item
from commitlog.testing import ManualClock
from support.ingest import Bucket, Checkpoint, Engine, Stop, state_table

GRACE = 60.0


class Place:
    """A bucket, a table, and queries that read the bucket and keep state in the table."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = Bucket(clock=self.clock)
        self.table = state_table()
        self.settings = IngestSettings(**{"source": "a", "grace": GRACE, **settings})

    def query(self, checkpoint: Checkpoint | None = None, **options: Any) -> Engine:
        """Return a process that runs a query."""
        return Engine(
            store=self.store,
            table=self.table,
            settings=self.settings,
            clock=self.clock,
            checkpoint=checkpoint or Checkpoint(),
            **options,
        )

    @property
    def operator(self) -> IngestAdmin:
        """The administration of the source."""
        return IngestAdmin(self.store, self.table, self.settings, clock=self.clock)

    def put(self, *paths: str, body: bytes = b"1") -> None:
        """Put objects."""
        for path in paths:
            self.store.put(path, body)


def paths(query: Engine) -> list[list[str]]:
    """Return the paths that each batch read."""
    slices = query.checkpoint.slices
    return [[each.file.path for each in slices[number]] for number in sorted(slices)]


def test_files_are_read_once_in_bounded_epochs() -> None:
    """Every object is read in one epoch, and an epoch has at most `max_files` files."""
    place = Place(max_files=2)
    place.put("a", "b", "c", "d", "e")
    query = place.query()
    assert query.drain() == 3
    assert paths(query) == [["a", "b"], ["c", "d"], ["e"]]
    place.put("aa")
    query.drain()
    assert paths(query)[3:] == [["aa"]]


def test_files_with_the_same_time_are_all_read() -> None:
    """This holds for any number of objects, and for later ones with the same time."""
    place = Place(max_files=1)
    now = place.clock.epoch()
    query = place.query()
    for name in "cab":
        place.store.put_at(name, b"1", now)
        query.drain()
    assert paths(query) == [["c"], ["a"], ["b"]]


def test_late_objects_are_found_inside_the_grace_window() -> None:
    """An object with an old time is read if it is not older than the grace window."""
    place = Place()
    query = place.query()
    place.put("first")
    query.drain()
    place.clock.advance(10 * GRACE)
    place.put("second")
    query.drain()
    now = place.clock.epoch()
    place.store.put_at("late", b"1", now - GRACE)
    place.store.put_at("too late", b"1", now - GRACE - 1)
    query.drain()
    assert paths(query) == [["first"], ["second"], ["late"]]


def test_if_the_clock_of_the_store_goes_back_no_file_is_read_twice() -> None:
    """What was known by its time stays known, though the table remembers it no longer."""
    place = Place()
    query = place.query()
    for name in "abcd":
        place.put(name)
        query.drain()
        place.clock.advance(2 * GRACE)
    place.put("e")
    place.clock.set_forward(-9 * GRACE)
    place.query(query.checkpoint).drain()
    assert paths(query) == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_times_do_not_matter_with_remember_everything() -> None:
    """With `remember='everything'` an object is read whatever its time is."""
    place = Place(remember="everything")
    query = place.query()
    for name in ("b", "c", "a"):
        place.store.put_at(name, b"1", 5.0)
        query.drain()
        place.clock.advance(10 * GRACE)
    assert paths(place.query(query.checkpoint)) == [["b"], ["c"], ["a"]]


def test_state_does_not_grow_with_the_history() -> None:
    """Rows of files that have left the grace window are removed."""
    place = Place(max_files=10)
    query = place.query()
    counts = []
    for number in range(40):
        place.put(*(f"{number:04}-{each}" for each in range(10)))
        query.drain()
        counts.append(sum(1 for _ in place.table.scan()))
        place.clock.advance(GRACE / 3)
    assert max(counts) <= 8
    assert sum(map(len, paths(query))) == 400


def test_a_second_process_continues_after_the_first() -> None:
    """The state is in the table."""
    place = Place(max_files=2)
    place.put("a", "b", "c")
    first = place.query()
    first.batch()
    second = place.query(first.checkpoint)
    second.drain()
    place.query(first.checkpoint).drain()
    assert paths(second) == [["a", "b"], ["c"]]


def test_overwritten_objects_are_read_again() -> None:
    """A new version of an object is read, soon or long after the first one."""
    place = Place()
    place.put("a")
    query = place.query()
    query.drain()
    place.put("a", body=b"22")
    query.drain()
    place.clock.advance(10 * GRACE)
    query.drain()
    place.put("a", body=b"333")
    query.drain()
    assert sorted(place_[0] for place_ in paths(query)) == ["a"] * 3
    assert len(query.checkpoint.records) == 1 + 2 + 3


def test_a_repeated_upload_inside_the_window_is_no_new_version() -> None:
    """This holds as long as each upload follows the previous one within the window."""
    place = Place()
    etag = place.store.put_at("a", b"1", place.clock.epoch())
    query = place.query()
    for number in range(8):
        query.drain()
        place.clock.advance(GRACE / 2)
        place.store.put_at("a", b"1", place.clock.epoch(), etag=etag)
        place.put(f"b{number}")
        query = place.query(query.checkpoint)
    query.drain()
    assert sum(batch.count("a") for batch in paths(query)) == 1


@pytest.mark.parametrize("after", [0.0, 10 * GRACE])
def test_overwritten_objects_can_be_ignored_or_refused(after: float) -> None:
    """With another policy, no path is read twice, however long ago the first time was."""
    ignoring = Place(changed="ignore", remember="everything")
    failing = Place(changed="fail", remember="everything")
    for place in (ignoring, failing):
        place.put("a")
        query = place.query()
        query.drain()
        place.clock.advance(after)
        query.drain()
        place.put("a", body=b"22")
        if place is failing:
            with pytest.raises(InputChanged, match="changed='again'"):
                query.drain()
        else:
            place.query(query.checkpoint).drain()
        assert paths(query) == [["a"]]


def test_byte_limits_hold_within_files() -> None:
    """A splittable file is read over several epochs, each with at most `max_bytes` bytes."""
    place = Place(max_bytes=5, slice_bytes=3)
    place.put("a", body=b"x" * 13)
    place.put("b", body=b"y" * 2)
    query = place.query(splits=True)
    query.drain()
    sizes = [sum(each.size for each in batch) for batch in query.checkpoint.slices.values()]
    assert max(sizes) <= 5 and sum(sizes) == 15
    assert set(query.checkpoint.records.values()) == {1} and len(query.checkpoint.records) == 15


def test_an_unsplittable_file_is_read_whole() -> None:
    """It is a single slice, and has its own epoch if it is larger than the limit."""
    place = Place(max_bytes=5, slice_bytes=3)
    place.put("a")
    place.put("b", body=b"x" * 13)
    place.put("c")
    query = place.query()
    query.drain()
    assert paths(query) == [["a"], ["b"], ["c"]]
    assert all(each.whole for batch in query.checkpoint.slices.values() for each in batch)


def test_the_lower_of_call_and_settings_limits_holds() -> None:
    """A call may have its own limit."""
    place = Place(max_files=3)
    place.put("a", "b", "c", "d")
    source = place.query().source
    start = source.initial_offset()
    end = source.latest_offset(start, max_files=2)
    again = source.latest_offset(end, max_files=100)
    assert [len(part.slices) for part in source.partitions(start, again)] == [2, 2]


@pytest.mark.parametrize("limit", [{"max_files": 1.5}, {"max_bytes": 1.5}], ids=str)
def test_a_limit_that_is_no_whole_number_is_refused(limit: dict[str, Any]) -> None:
    """A slice that ends within a byte could be stored, but no query could read its epoch."""
    place = Place(slice_bytes=1)
    place.put("a", body=b"12345")
    source = place.query(splits=True).source
    start = source.initial_offset()
    with pytest.raises(ConfigurationError, match="a whole number"):
        source.latest_offset(start, **limit)
    assert len(source.partitions(start, source.latest_offset(start))) == 1


def test_empty_objects_are_handed_out() -> None:
    """An object without content is a slice without bytes."""
    place = Place()
    place.put("a", body=b"")
    query = place.query()
    query.drain()
    assert paths(query) == [["a"]]


def test_a_listing_without_etags_loses_no_file() -> None:
    """The etag comes from a HEAD, for those objects only that may be new. Some are gone by then."""
    place = Place(names=PathFilter(name="*.json"), list_limit=2)
    place.put("a.json", "b.csv", "c.json", "d.json", "e/f.json")
    list_page, begin_head = place.store.list_page, place.store.begin_head
    looked_up = []

    def without_etags(*args: Any, **options: Any) -> Page:
        page = list_page(*args, **options)
        return evolve(page, objects=tuple(evolve(info, etag="") for info in page.objects))

    def head(path: str) -> Any:
        looked_up.append(path)
        if path == "c.json":
            place.store.delete(path)
        return begin_head(path)

    place.store.list_page = without_etags  # type: ignore[method-assign]
    place.store.begin_head = head  # type: ignore[method-assign]
    query = place.query()
    query.drain()
    assert paths(query) == [["a.json"], ["d.json", "e/f.json"]]
    assert len(query.checkpoint.records) == 3
    assert "b.csv" not in looked_up
    assert place.operator.status().problems == 0
    assert place.operator.backlog().files == 0


def test_the_filter_of_names_applies_below_the_prefix() -> None:
    """Only matching names below the prefix are read. Hidden names are not."""
    place = Place(prefix="in/", names=PathFilter(glob="2026-*/*.json"))
    place.put("in/2026-1/a.json", "in/2026-1/a.csv", "in/2025-1/a.json", "2026-1/a.json")
    place.put("in/2026-1/_a.json", "in/2026-1/.a.json", "in/2026-2/ü %41.json", "in/2026-2/x/a.json")
    query = place.query()
    query.drain()
    assert paths(query) == [["in/2026-1/a.json", "in/2026-2/ü %41.json"]]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"list_limit": 1},
        {"ordered": True},
        {"remember": "everything"},
        {"remember": "everything", "changed": "fail"},
    ],
    ids=str,
)
def test_a_source_starts_after_the_objects_that_it_lists_first(settings: dict[str, Any]) -> None:
    """They are skipped, and no others, whatever their times are; so are their new versions read."""
    place = Place(starting_from="latest", **settings)
    now = place.clock.epoch()
    place.store.put_at("old", b"1", now - 9 * GRACE)
    place.store.put_at("overwritten", b"1", now - 1)
    place.store.put_at("recent", b"1", now - 1)
    query = place.query()
    assert not any(query.batch() for _ in range(5))
    place.put("overwritten", body=b"22")
    place.store.put_at("upload", b"1", now - 5)  # it began before the start, and ended after it
    if "remember" in settings:
        place.store.put_at("moved in", b"1", now - 99 * GRACE)
    place.clock.advance(5)
    place.put("later")
    query = place.query(query.checkpoint)
    query.source.finish()
    query.drain()
    place.clock.advance(9 * GRACE)
    place.query(query.checkpoint).drain()
    moved = ["moved in"] if "remember" in settings else []
    found = sorted(path for batch in paths(query) for path in batch)
    assert found == ["later", *moved, "overwritten", "upload"]


def test_objects_that_appear_during_the_first_listing_are_read() -> None:
    """The first listing takes many calls, and it skips what had been there before the first one."""
    place = Place(starting_from="latest", list_limit=2)
    place.put(*"abcdefgh")
    place.clock.advance(1)
    query = place.query()
    for number in range(4):
        assert query.batch() is False or number
        place.put(f"{'zyaA'[number]}{number}")
        place.clock.advance(1)
    query.source.finish()
    query.drain()
    assert sorted(path for batch in paths(query) for path in batch) == ["A3", "a2", "y1", "z0"]


def test_many_objects_are_skipped_in_one_call() -> None:
    """They take more steps than one, as a transaction has room for some thousand."""
    place = Place(starting_from="latest", remember="everything")
    name = "x" * 900
    place.put(*(f"{number:05}{name}" for number in range(4000)))
    place.clock.advance(1)
    query = place.query()
    assert not query.batch()
    state = query.source.state.read()
    assert state is not None and state.tails and state.revision > 2
    place.put("new")
    query.drain()
    assert paths(query) == [["new"]]


def test_a_source_starts_from_the_configured_time() -> None:
    """Objects that were modified before it are not read."""
    place = Place(starting_from=ManualClock().epoch() + 5)
    place.put("old")
    place.clock.advance(5)
    place.put("new")
    query = place.query()
    query.drain()
    assert paths(query) == [["new"]]


def test_too_old_objects_are_skipped_and_counted() -> None:
    """An object older than `max_file_age` is not read, and the status has their number."""
    place = Place(max_file_age=10)
    now = place.clock.epoch()
    place.store.put_at("old", b"1", now - 11)
    place.store.put_at("new", b"1", now - 10)
    query = place.query()
    query.drain()
    query.drain()
    assert paths(query) == [["new"]]
    assert place.operator.status().passed_over == 1


def test_a_limited_listing_continues_in_the_next_call() -> None:
    """A call lists at most `list_limit` objects, and the next calls find the rest."""
    place = Place(list_limit=3)
    place.put(*(f"{number:02}" for number in range(10)))
    query = place.query()
    query.drain()
    assert [len(each) for each in paths(query)] == [3, 3, 3, 1]
    place.put("99")
    found = [query.batch() for _ in range(5)]
    assert found.index(True) == 2  # The call that found no more objects had started a new pass.


def test_with_ordered_keys_only_the_tail_is_listed() -> None:
    """The tail starts after the keys that are all older than the grace window."""
    place = Place(ordered=True)
    query = place.query()
    for number in range(30):
        place.put(f"{number:04}")
        query.drain()
        place.clock.advance(GRACE / 4)
    query.drain()
    state = query.source.state.read()
    assert state is not None and "0020" < state.watermarks.boundary < "0030"
    assert sum(map(len, paths(query))) == 30
    place.put("0031")
    query.drain()
    place.put("0030")  # out of order, and inside the window
    query.drain()
    assert paths(query)[-2:] == [["0031"], ["0030"]]


def test_a_call_lists_a_file_twice_and_reads_it_once() -> None:
    """The boundary passes a file that the tail hands out, and the sweep before it sees it again."""
    place = Place(ordered=True, remember="everything")
    place.store.put_at("a", b"1", place.clock.epoch() - 9 * GRACE)
    place.put("b")
    query = place.query()
    query.drain()
    assert paths(query) == [["a", "b"]]


def test_objects_before_the_tail_are_found_by_the_sweep() -> None:
    """The sweep of the body finds new and overwritten objects before the tail, and each once."""
    place = Place(ordered=True, list_limit=5)
    query = place.query()
    for number in range(40):
        place.put(f"{number:04}")
        query.drain()
        place.clock.advance(GRACE / 4)
    now = place.clock.epoch()
    place.store.put_at("0003x", b"1", now - GRACE)
    place.put("0007", "0040")
    calls = [query.batch() for _ in range(20)]
    assert calls[0] and sum(calls) <= 3
    found = sorted(path for batch in paths(query)[40:] for path in batch)
    assert found == ["0003x", "0007", "0040"]


def test_a_source_that_is_no_longer_ordered_finds_all_objects() -> None:
    """A tail that exceeds the limit does not block the sweep of the body."""
    place = Place(ordered=True)
    query = place.query()
    for number in range(8):
        place.put(f"{number:04}")
        query.drain()
        place.clock.advance(GRACE / 4)
    place.settings = evolve(place.settings, ordered=False, list_limit=3)
    place.put("0000x")
    query = place.query(query.checkpoint)
    assert [query.batch() for _ in range(20)].count(True) == 1
    assert paths(query)[-1] == ["0000x"]


def test_a_finite_run_finds_objects_before_the_tail() -> None:
    """It lists all objects, whatever the limit, and after any unfinished sweep."""
    place = Place(ordered=True, list_limit=2)
    query = place.query()
    for number in range(30):
        place.put(f"{number:04}")
        query.batch()
        place.clock.advance(GRACE / 4)
    for number in range(5):
        place.put(f"{number:04}x")
        last = place.query(query.checkpoint)
        last.source.finish()
        last.drain()
        assert paths(query)[-1] == [f"{number:04}x"]


def test_the_list_row_stays_small_during_a_long_sweep() -> None:
    """The longer a sweep of the body is, the less often the watermark is moved."""
    watermarks = Watermarks(tail=0.0)
    for number in range(5_000):
        watermarks = watermarks.raised(float(number)).settled(f"{number:05}", stride=1.0)
    assert len(watermarks.steps) < 500
    assert all(watermarks.of(f"{number:05}") >= number for number in range(0, 4_500, 100))
    assert len(watermarks.swept(4_999.0).steps) == 1


def test_the_settled_position_is_kept_across_calls() -> None:
    """After a call that read a young object, later calls do not skip the objects behind it."""
    place = Place(ordered=True, max_files=1)
    now = place.clock.epoch()
    place.store.put_at("a", b"1", now)
    place.store.put_at("b", b"1", now - 10 * GRACE)
    query = place.query()
    query.drain()
    place.put("aa")
    query.drain()
    assert paths(query) == [["a"], ["b"], ["aa"]]


def test_a_finite_run_reads_all_slices_of_the_last_file() -> None:
    """At the end of the listing, slices of the last file may still be left."""
    place = Place(max_bytes=2)
    place.put("a", body=b"x" * 9)
    query = place.query(splits=True)
    query.source.finish()
    assert query.drain() == 5
    assert len(query.checkpoint.records) == 9


def test_a_finite_run_ends_while_objects_keep_coming() -> None:
    """After `finish`, existing objects are read, and later ones are left to the next run."""
    place = Place(max_files=1, list_limit=2)
    place.put("a", "b", "c")
    place.query().drain()
    place = Place(max_files=1, list_limit=1)
    place.put("d", "e", "f", "g")
    query = place.query()
    query.source.finish()
    for number in range(100):
        place.clock.advance(1)
        place.put(f"g{number:03}")
        if not query.batch():
            break
    found = [path for batch in paths(query) for path in batch]
    assert {"d", "e", "f", "g"} <= set(found) and len(found) < 10
    place.query(query.checkpoint).drain()
    assert len([path for batch in paths(query) for path in batch]) == 4 + number + 1


def test_a_finite_run_reads_objects_of_the_second_in_which_it_starts() -> None:
    """The clock of a store has whole seconds, and times of files have fractions.

    So an object that was put just before the run may have a later time than the start of the run.
    """
    place = Place()
    place.clock.advance(0.5)
    place.store.put_at("a", b"1", place.clock.epoch())
    place.clock.advance(0.25)
    query = place.query()
    query.source.finish()
    query.drain()
    assert paths(query) == [["a"]]


def test_a_finite_run_covers_the_part_before_an_unfinished_sweep() -> None:
    """Objects before the position where an earlier run stopped are found as well."""
    place = Place(max_files=1)
    place.put("b", "c", "d")
    query = place.query()
    query.batch()
    place.put("a")
    query = place.query(query.checkpoint)
    query.source.finish()
    query.drain()
    assert paths(query) == [["b"], ["c"], ["d"], ["a"]]
    assert not query.batch()


# -- repeated offers -----------------------------------------------------------------------------------


def test_a_planned_epoch_is_offered_again() -> None:
    """A crash after planning, and before the offset is in the log, does not change the epoch."""
    place = Place(max_files=2)
    place.put("b", "c")
    first = place.query().source
    start = first.initial_offset()
    planned = first.latest_offset(start)
    place.put("a")
    second = place.query().source
    offered = second.latest_offset(start)
    assert offered["epoch"] == planned["epoch"] == 1
    parts = second.partitions(start, offered)
    assert [each.file.path for part in parts for each in part.slices] == ["b", "c"]


@pytest.mark.parametrize(
    "place_to_die",
    ["latest_offset", "log", "initial_offset again", "partitions", "read", "sink", "commit"],
)
def test_a_crash_between_any_two_calls_loses_and_repeats_no_record(place_to_die: str) -> None:
    """Each object is read once, wherever the driver dies."""
    place = Place(max_files=2)
    checkpoint = Checkpoint()
    for number in range(12):
        place.put(f"{number % 5}{number:03}")

        def die(what: str) -> None:
            if what == place_to_die:
                raise Stop

        with pytest.raises(Stop):
            place.query(checkpoint, step=die).drain()
        if number % 3 == 2:
            place.query(checkpoint).batch()
        place.clock.advance(GRACE / 5)
    place.query(checkpoint).drain()
    assert len(checkpoint.records) == 12
    assert set(checkpoint.records.values()) == {1}


def test_two_concurrent_drivers_get_the_same_plan() -> None:
    """One of two concurrent drivers plans first, and the other one gets that plan."""
    place = Place(max_files=2)
    place.put("a", "b", "c")
    one, two = place.query().source, place.query().source
    start = one.initial_offset()
    read = one.state.read
    raced = False

    def racing() -> Any:
        nonlocal raced
        state = read()
        if not raced:
            raced = True
            assert two.latest_offset(start)["epoch"] == 1
        return state

    one.state.read = racing  # type: ignore[method-assign]
    end = one.latest_offset(start)
    assert end["epoch"] == 1
    assert [len(part.slices) for part in two.partitions(start, {**end})] == [2]
    state = read()
    assert state is not None and state.epoch == 1 and state.files == 2


def test_an_older_checkpoint_gets_the_same_epochs_while_they_are_kept() -> None:
    """Within `keep_epochs`, an older checkpoint gets the same epochs again, and then new ones."""
    place = Place(max_files=1, keep_epochs=2)
    place.put("a", "b", "c", "d")
    place.clock.advance(10 * GRACE)
    query = place.query()
    for _ in range(3):
        query.batch()
    for batches in (2, 1):
        back = Checkpoint(log=query.checkpoint.log[:batches], committed=batches)
        again = place.query(back)
        again.batch()
        assert paths(again) == [[" abc"[batches + 1]]]
    again.drain()
    assert paths(again) == [["b"], ["c"], ["d"]]


def test_an_epoch_is_kept_after_its_files_are_known_by_their_time() -> None:
    """The query was idle for longer than the grace window when its checkpoint was restored."""
    place = Place()
    place.put("a")
    query = place.query()
    assert query.batch()
    place.clock.advance(9 * GRACE)
    for _ in range(3):
        place.clock.advance(1)
        assert not query.batch()
    again = place.query(Checkpoint(log=query.checkpoint.log[:1]))
    assert again.batch()
    assert paths(again) == [["a"]]


def test_watermarks_rise_with_the_keys_while_time_passes() -> None:
    """The sweep of the body begins after that of the tail, and yet its watermark is not higher."""

    class Slow(Bucket):
        def begin_head(self, path: str) -> InFlight[Observation]:
            place.clock.advance(GRACE / 2)
            return super().begin_head(path)

    place = Place(ordered=True, list_limit=2)
    place.store = Slow(clock=place.clock)
    query = place.query()
    for number in range(12):
        place.put(f"{number:04}")
        query.drain()
        state = query.source.state.read()
        assert state is not None
        assert all(below <= state.watermarks.tail for _, below in state.watermarks.steps)
        assert state.body is None or state.body.watermark <= state.watermarks.tail
    assert state.watermarks.boundary and state.bodies


def test_a_row_on_both_sides_of_the_boundary_is_kept_until_all_its_files_are_known() -> None:
    """It is kept however often it is looked at, as its file in the body is above the watermark there."""
    seen = SeenFiles()
    files = [FileEntry(File(path, '"1"', 1, 50.0)) for path in ("a", "z")]
    [row] = encoded(1, 1, [(entry, True) for entry in files])
    seen.add(row)
    marks = Watermarks(steps=(("m", 10.0),), tail=100.0)
    assert [seen.removable(1, marks, 9) for _ in range(2)] == [[], []]
    assert seen.removable(1, marks.swept(50.0), 9) == []
    assert seen.removable(1, marks.swept(51.0), 9) == [row.range]


def test_a_checkpoint_that_is_too_old_is_refused() -> None:
    """Otherwise files would be skipped."""
    place = Place(max_files=1)
    place.put("a", "b", "c")
    place.clock.advance(10 * GRACE)
    query = place.query()
    query.drain()
    place.put("d")
    query.drain()
    back = Checkpoint(log=query.checkpoint.log[:1], committed=1)
    with pytest.raises(StateMismatch, match=r"epoch 2 .* not kept any more"):
        place.query(back).source.latest_offset(back.log[0])
    late = Checkpoint(log=query.checkpoint.log[:2], committed=1)
    with pytest.raises(StateMismatch, match="not kept any more"):
        place.query(late).batch()


def test_an_epoch_does_not_change_when_files_are_remembered_again() -> None:
    """Files that are only remembered for longer are stored with the epoch, but are not part of it."""
    place = Place()
    etag = place.store.put_at("a", b"1", place.clock.epoch())
    place.put("b")
    query = place.query()
    query.drain()
    place.clock.advance(1)
    place.store.put_at("a", b"1", place.clock.epoch(), etag=etag)
    query.drain()
    query.checkpoint.committed = 0
    again = place.query(query.checkpoint)
    query.checkpoint.sink.clear()
    again.drain()
    assert paths(again) == [["a", "b"]]


def test_a_partly_removed_epoch_is_not_handed_out() -> None:
    """The remaining rows, which are kept to remember files, are not taken for the whole epoch."""
    place = Place()
    now = place.clock.epoch()
    place.store.put_at("old", b"1", now - 10 * GRACE)
    place.put("new")
    query = place.query()
    for number in range(3):
        query.drain()
        place.put(f"later {number}")
    query.drain()
    back = Checkpoint(log=query.checkpoint.log[:1])
    with pytest.raises(StateMismatch, match="not kept any more"):
        place.query(back).batch()


def test_an_object_at_the_edge_of_the_window_is_remembered() -> None:
    """An object with exactly the time from which objects are looked up is not read twice."""
    place = Place()
    place.store.put_at("edge", b"1", place.clock.epoch() - GRACE)
    query = place.query()
    query.drain()
    for number in range(4):
        place.put(f"{number}")
        query = place.query(query.checkpoint)
        query.drain()
    assert len(query.checkpoint.records) == 5
    assert set(query.checkpoint.records.values()) == {1}


def test_a_lost_checkpoint_is_detected() -> None:
    """A query without a checkpoint may not read a source that another query has started to read."""
    place = Place()
    place.put("a")
    place.query().drain()
    place.put("b")
    with pytest.raises(StateMismatch, match="another checkpoint: restore that checkpoint"):
        place.query().drain()


def test_two_queries_cannot_share_a_source() -> None:
    """The query whose batch starts first owns the source. The other one is refused from then on."""
    place = Place(max_files=1)
    place.put("a", "b")
    one, two = place.query(), place.query()
    start = one.source.initial_offset()
    ends = [query.source.latest_offset(start) for query in (one, two)]
    one.source.partitions(start, ends[0])
    with pytest.raises(StateMismatch):
        two.source.partitions(start, ends[1])
    with pytest.raises(StateMismatch, match="a separate source id"):
        two.source.latest_offset(ends[1])
    assert one.source.latest_offset(ends[0])["epoch"] == 2


def test_of_two_queries_that_begin_at_once_one_is_refused() -> None:
    """The one whose request comes second looks again at who owns the source."""
    place = Place()
    place.put("a")
    one, two = place.query().source, place.query().source
    start = one.initial_offset()
    ends = [source.latest_offset(start) for source in (one, two)]
    read = one.state.read

    def racing() -> Any:
        state = read()
        if state is not None and not state.claim:
            assert two.partitions(start, ends[1])
        return state

    one.state.read = racing  # type: ignore[method-assign]
    with pytest.raises(StateMismatch, match="by a query with another checkpoint"):
        one.partitions(start, ends[0])


def test_lost_restored_or_new_state_is_detected() -> None:
    """A checkpoint whose state was lost, restored or created again is refused."""
    place = Place(max_files=1)
    place.put("a", "b")
    query = place.query()
    query.batch()
    old = [dict(item) for item in place.table.scan()]
    query.batch()
    lost = place.query(query.checkpoint)
    lost.table = lost.source.state._table = state_table()
    with pytest.raises(StateMismatch, match="has no state in this table"):
        lost.batch()
    for item in place.table.scan():
        place.table.delete(place.table.schema.key_of(item))
    for item in old:
        place.table.put(item)
    with pytest.raises(StateMismatch, match="at epoch 2, and its state is at epoch 1"):
        place.query(query.checkpoint).batch()
    assert place.operator.reset() > 0
    place.query().drain()
    with pytest.raises(StateMismatch, match="created again"):
        place.query(query.checkpoint).batch()


def test_an_unread_batch_does_not_block_the_next() -> None:
    """Spark may find that it needs no data of a batch, and go on to the next."""
    place = Place(max_files=1)
    place.put("a", "b")
    source = place.query().source
    end = source.latest_offset(source.initial_offset())
    again = source.latest_offset(end)
    assert again["epoch"] == 2
    assert len(place.query().source.partitions(end, again)) == 1


def test_foreign_offsets_are_refused() -> None:
    """This includes offsets of another source, of a newer release, and other values."""
    place = Place()
    source = place.query().source
    offset = source.initial_offset()
    with pytest.raises(StateMismatch, match="belongs to source 'b'"):
        source.latest_offset({**offset, "source": "b"})
    with pytest.raises(FormatTooNew):
        source.latest_offset({**offset, "format": 2})
    for wrong in ({}, {**offset, "epoch": "1"}, {**offset, "epoch": -1}, {**offset, "claim": None}):
        with pytest.raises(StateMismatch, match="does not belong to source"):
            source.latest_offset(wrong)


def test_an_offset_without_new_files_is_identical() -> None:
    """Even the order of its fields is the same."""
    place = Place()
    place.put("a")
    source = place.query().source
    end = source.latest_offset(source.initial_offset())
    source.partitions(source.initial_offset(), end)
    assert list(source.latest_offset(end).items()) == list(end.items())
    assert source.partitions(end, end) == []


# -- several sources -----------------------------------------------------------------------------------


def test_sources_in_one_table_are_reset_separately() -> None:
    """The state of one source is removed, and that of others stays."""
    place = Place()
    other = Place(source="b")
    other.table = place.table
    for each in (place, other):
        each.put("x", "y")
        each.query().drain()
    before = [item for item in place.table.scan() if item["source"] == "b"]
    assert place.operator.reset() == 2
    assert list(place.table.scan()) == before
    query = place.query()
    query.drain()
    assert paths(query) == [["x", "y"]]


def test_a_driver_that_stalled_during_a_reset_changes_nothing() -> None:
    """A step is conditional on the list row that was read, not only on its revision."""
    place = Place()
    place.put("x")
    state = place.query().source.state
    place.query().drain()
    old = state.read()
    assert old is not None
    place.operator.reset()
    place.query().drain()
    new = state.read()
    assert new is not None and new.revision == old.revision
    assert state.advance(old, old) is None
    assert state.read() == new


def test_a_driver_that_outlived_a_reset_forgets_what_it_knew() -> None:
    """Files that were read before the reset are new again, for a driver that remembers them, too."""
    place = Place(list_limit=2)
    place.put("x", "y")
    zombie = place.query()
    start = zombie.source.initial_offset()
    assert zombie.source.latest_offset(start)["epoch"] == 1
    place.operator.reset()
    assert place.query().source.initial_offset() == start
    place.clock.advance(GRACE + 2)
    zombie.source.latest_offset(start)
    zombie.source.latest_offset(start)
    query = place.query()
    query.drain()
    assert paths(query) == [["x", "y"]]


def test_partly_removed_state_is_refused() -> None:
    """After an incomplete reset, no query can read the source."""
    place = Place(max_files=1)
    place.put("x", "y")
    query = place.query()
    query.drain()
    delete = place.table.delete

    def stop(*args: Any, **options: Any) -> None:
        delete(*args, **options)
        raise Stop

    place.table.delete = stop  # type: ignore[method-assign]
    with pytest.raises(Stop):
        place.operator.reset()
    place.table.delete = delete  # type: ignore[method-assign]
    for process in (place.query(query.checkpoint), place.query()):
        with pytest.raises(StateMismatch, match="run `commitlog ingest reset` again"):
            process.batch()
    place.operator.reset()
    assert not list(place.table.scan())


# -- large epochs --------------------------------------------------------------------------------------


def test_ten_thousand_files_make_one_epoch() -> None:
    """An epoch of very many files takes only a few bounded items."""
    place = Place(max_files=10_000)
    place.put(*(f"year=2026/month=11/part-{number:05}-ü %2F.json" for number in range(10_000)))
    query = place.query()
    assert query.drain() == 1
    assert sum(map(len, paths(query))) == 10_000
    assert sum(1 for _ in place.table.scan()) < 12


def test_the_size_of_an_epoch_is_limited_by_one_transaction() -> None:
    """Files with the longest names make smaller epochs, and none is lost."""
    place = Place(max_files=10_000)
    place.put(*(f"{number:05}" + "ü" * 500 for number in range(4_000)))
    query = place.query()
    assert 1 < query.drain() < 5
    assert sum(map(len, paths(query))) == 4_000


def test_a_vast_file_is_cut_over_several_epochs() -> None:
    """The slices of a file are one entry, and a row must fit into an item, however long its offsets."""
    size, slice_bytes = 5 * 1024**4, 64 * 1024**2 - 1
    builder = EpochBuilder(Limits(files=1), slice_bytes=slice_bytes, splits=lambda path: True)
    rest = builder.add(Slice(File("vast.json", '"e"', size, 1.0), 0, size))
    assert rest is not None and 0 < rest.start < size
    assert builder.bytes == rest.start
    (row,) = encoded(1, 1, builder.entries)
    check_item(INGEST_SCHEMA, row.to_item("s"))
    assert len(row.entries[0].to_json()[-1]) > 1000
    assert row.entries[0].list_bytes <= 256 * 1024


def test_missing_objects_fail_the_query_unless_they_may_be_skipped() -> None:
    """After the failure, the same epoch can be read with another policy."""
    place = Place()
    place.put("a", "b")
    query = place.query()
    query.step = lambda what: place.store.delete("a") if what == "read" else None
    with pytest.raises(InputMissing, match="'a' was listed, but does not exist"):
        query.batch()
    place.settings = IngestSettings(source="a", grace=GRACE, missing="skip")
    query = place.query(query.checkpoint)
    query.drain()
    assert len(query.checkpoint.records) == 1
    assert [problem.kind for problem in place.operator.problems()] == ["missing"]
