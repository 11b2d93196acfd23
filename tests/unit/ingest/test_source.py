"""Sources in memory: what is handed out, once, in which epochs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from commitlog.errors import FormatTooNew, InputChanged, InputMissing, StateMismatch
from commitlog.ingest import IngestAdmin, IngestSettings, PathFilter
from commitlog.ingest.watermarks import Watermarks
from commitlog.testing import ManualClock
from support.ingest import Bucket, Checkpoint, Engine, Stop, state_table

GRACE = 60.0


class Place:
    """A bucket, a table, and the queries that read the one and keep state in the other."""

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
        """What an operator works with."""
        return IngestAdmin(self.store, self.table, self.settings, clock=self.clock)

    def put(self, *paths: str, body: bytes = b"1") -> None:
        """Put objects."""
        for path in paths:
            self.store.put(path, body)


def paths(query: Engine) -> list[list[str]]:
    """Return the paths of what each batch read."""
    slices = query.checkpoint.slices
    return [[each.file.path for each in slices[number]] for number in sorted(slices)]


def test_files_come_once_and_in_bounded_epochs() -> None:
    """Every object is read in one epoch, of no more files than asked for, and not again."""
    place = Place(max_files=2)
    place.put("a", "b", "c", "d", "e")
    query = place.query()
    assert query.drain() == 3
    assert paths(query) == [["a", "b"], ["c", "d"], ["e"]]
    place.put("aa")
    query.drain()
    assert paths(query)[3:] == [["aa"]]


def test_files_of_one_second_are_told_apart() -> None:
    """Objects that bear the same time are read, however many there are and whenever they come."""
    place = Place(max_files=1)
    now = place.clock.epoch()
    query = place.query()
    for name in "cab":
        place.store.put_at(name, b"1", now)
        query.drain()
    assert paths(query) == [["c"], ["a"], ["b"]]


def test_what_comes_late_is_found_inside_the_grace_window() -> None:
    """An object that bears an old time is read if that is not older than the grace window."""
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


def test_with_everything_remembered_no_time_matters() -> None:
    """An object is read whatever time it bears, if everything is remembered."""
    place = Place(remember="everything")
    query = place.query()
    for name in ("b", "c", "a"):
        place.store.put_at(name, b"1", 5.0)
        query.drain()
        place.clock.advance(10 * GRACE)
    assert paths(place.query(query.checkpoint)) == [["b"], ["c"], ["a"]]


def test_state_does_not_grow_with_the_history() -> None:
    """Rows of files that the grace window has passed over are removed."""
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


def test_a_second_process_goes_on_where_the_first_was() -> None:
    """What is remembered is in the table."""
    place = Place(max_files=2)
    place.put("a", "b", "c")
    first = place.query()
    first.batch()
    second = place.query(first.checkpoint)
    second.drain()
    place.query(first.checkpoint).drain()
    assert paths(second) == [["a", "b"], ["c"]]


def test_overwritten_objects_are_read_again() -> None:
    """A new version of an object is read, at once or long after the first."""
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


def test_the_same_content_again_is_no_new_version_inside_the_window() -> None:
    """A writer that repeats its upload adds nothing, and goes on to add nothing while it repeats it."""
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


def test_limits_in_bytes_hold_within_files() -> None:
    """A file that can be split is read over several epochs; each has no more bytes than asked for."""
    place = Place(max_bytes=5, slice_bytes=3)
    place.put("a", body=b"x" * 13)
    place.put("b", body=b"y" * 2)
    query = place.query(splits=True)
    query.drain()
    sizes = [sum(each.size for each in batch) for batch in query.checkpoint.slices.values()]
    assert max(sizes) <= 5 and sum(sizes) == 15
    assert set(query.checkpoint.records.values()) == {1} and len(query.checkpoint.records) == 15


def test_a_file_that_cannot_be_split_is_read_whole() -> None:
    """It is a single slice, in an epoch of its own if it is larger than the limit."""
    place = Place(max_bytes=5, slice_bytes=3)
    place.put("a")
    place.put("b", body=b"x" * 13)
    place.put("c")
    query = place.query()
    query.drain()
    assert paths(query) == [["a"], ["b"], ["c"]]
    assert all(each.whole for batch in query.checkpoint.slices.values() for each in batch)


def test_limits_of_one_call_hold_beside_those_of_the_settings() -> None:
    """The lower of two limits holds."""
    place = Place(max_files=3)
    place.put("a", "b", "c", "d")
    source = place.query().source
    start = source.initial_offset()
    end = source.latest_offset(start, max_files=2)
    again = source.latest_offset(end, max_files=100)
    assert [len(part.slices) for part in source.partitions(start, again)] == [2, 2]


def test_empty_objects_are_handed_out() -> None:
    """An object without content is a slice without bytes."""
    place = Place()
    place.put("a", body=b"")
    query = place.query()
    query.drain()
    assert paths(query) == [["a"]]


def test_names_are_chosen() -> None:
    """Only what matches, below the prefix, is read; hidden names are not."""
    place = Place(prefix="in/", names=PathFilter(glob="2026-*/*.json"))
    place.put("in/2026-1/a.json", "in/2026-1/a.csv", "in/2025-1/a.json", "2026-1/a.json")
    place.put("in/2026-1/_a.json", "in/2026-1/.a.json", "in/2026-2/ü %41.json", "in/2026-2/x/a.json")
    query = place.query()
    query.drain()
    assert paths(query) == [["in/2026-1/a.json", "in/2026-2/ü %41.json"]]


def test_it_starts_from_where_it_is_told() -> None:
    """What was modified before the first start, or before a moment, is not read."""
    place = Place(starting_from="latest")
    place.put("old")
    place.clock.advance(5)
    query = place.query()
    query.drain()
    place.clock.advance(5)
    place.put("new")
    place.query(query.checkpoint).drain()
    assert paths(query) == [["new"]]

    place = Place(starting_from=ManualClock().epoch() + 5)
    place.put("old")
    place.clock.advance(5)
    place.put("new")
    query = place.query()
    query.drain()
    assert paths(query) == [["new"]]


def test_what_is_too_old_is_passed_over_and_counted() -> None:
    """An object that is older than files may be is not read, and status tells how many there were."""
    place = Place(max_file_age=10)
    now = place.clock.epoch()
    place.store.put_at("old", b"1", now - 11)
    place.store.put_at("new", b"1", now - 10)
    query = place.query()
    query.drain()
    query.drain()
    assert paths(query) == [["new"]]
    assert place.operator.status().passed_over == 1


def test_a_listing_goes_on_where_the_last_call_stopped() -> None:
    """A call lists no more than it may, and what it may not is found by the next ones."""
    place = Place(list_limit=3)
    place.put(*(f"{number:02}" for number in range(10)))
    query = place.query()
    query.drain()
    assert [len(each) for each in paths(query)] == [3, 3, 3, 1]
    place.put("99")
    found = [query.batch() for _ in range(5)]
    assert found.index(True) == 2  # the call that found nothing more had begun to list anew


def test_ordered_keys_are_listed_from_where_all_is_settled() -> None:
    """The tail of the listing begins where all keys are older than the grace window."""
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
    place.put("0030")  # not in order, and inside the window
    query.drain()
    assert paths(query)[-2:] == [["0031"], ["0030"]]


def test_what_turns_up_below_the_tail_is_found_by_and_by() -> None:
    """New and overwritten objects below the mark are found by the sweep of the body, and once."""
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


def test_a_source_that_is_no_longer_ordered_finds_everything() -> None:
    """A tail that is longer than the limit does not keep the sweep of the body from going on."""
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


def test_a_finite_run_finds_what_turned_up_below_the_tail() -> None:
    """It goes through all of the listing, whatever the limit, and whatever sweep was under way."""
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


def test_the_list_row_stays_small_while_a_long_sweep_is_under_way() -> None:
    """The mark moves more seldom, the more often it was moved in one sweep of the body."""
    watermarks = Watermarks(tail=0.0)
    for number in range(5_000):
        watermarks = watermarks.raised(float(number)).settled(f"{number:05}", stride=1.0)
    assert len(watermarks.steps) < 500
    assert all(watermarks.of(f"{number:05}") >= number for number in range(0, 4_500, 100))
    assert len(watermarks.swept(4_999.0).steps) == 1


def test_where_all_is_settled_is_known_across_calls() -> None:
    """A young object that one call met keeps the next ones from passing by what comes behind it."""
    place = Place(ordered=True, max_files=1)
    now = place.clock.epoch()
    place.store.put_at("a", b"1", now)
    place.store.put_at("b", b"1", now - 10 * GRACE)
    query = place.query()
    query.drain()
    place.put("aa")
    query.drain()
    assert paths(query) == [["a"], ["b"], ["aa"]]


def test_a_finite_run_reads_the_last_file_to_its_end() -> None:
    """That the listing has come to its end does not mean that all of the last file was handed out."""
    place = Place(max_bytes=2)
    place.put("a", body=b"x" * 9)
    query = place.query(splits=True)
    query.source.finish()
    assert query.drain() == 5
    assert len(query.checkpoint.records) == 9


def test_a_finite_run_ends_while_objects_keep_coming() -> None:
    """After `finish`, what was there is handed out, and what comes while it runs is left to the next."""
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


def test_a_finite_run_reads_what_came_in_the_second_in_which_it_began() -> None:
    """Times of files have fractions, and a store's clock tells whole seconds: what was put just before
    the run began bears a later time than that."""
    place = Place()
    place.clock.advance(0.5)
    place.store.put_at("a", b"1", place.clock.epoch())
    place.clock.advance(0.25)
    query = place.query()
    query.source.finish()
    query.drain()
    assert paths(query) == [["a"]]


def test_a_finite_run_takes_up_a_sweep_that_was_under_way() -> None:
    """What came behind the place where an earlier run stopped is found as well."""
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


# -- what is offered again -----------------------------------------------------------------------------


def test_an_epoch_that_was_planned_is_offered_again() -> None:
    """A crash after planning, before the offset is in the log, changes nothing of the epoch."""
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
def test_a_crash_between_any_two_calls_loses_and_repeats_nothing(place_to_die: str) -> None:
    """Whatever call comes next when the driver dies, each object is read once."""
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


def test_two_drivers_are_told_the_same() -> None:
    """Of two drivers that plan at the same time one is first, and the other is told of that plan."""
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


def test_an_older_checkpoint_is_offered_the_same_epochs_while_they_are_kept() -> None:
    """Whoever goes back by no more epochs than are kept gets the same ones again, and then new ones."""
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


def test_a_checkpoint_that_is_too_old_is_refused() -> None:
    """Whoever goes back further is told so, and nothing is skipped."""
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


def test_an_epoch_is_the_same_whatever_was_remembered_since() -> None:
    """What is only remembered for longer is stored beside the epoch, and is no part of it."""
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


def test_an_epoch_of_which_a_part_is_gone_is_not_handed_out() -> None:
    """What is left of an epoch, since it has to be remembered, is not taken for all of it."""
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


def test_what_lies_at_the_edge_of_the_window_is_remembered() -> None:
    """An object of the very moment from which on objects are looked up is not read twice."""
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


def test_a_checkpoint_that_is_gone_is_noticed() -> None:
    """A query without a checkpoint is refused a source that another one has begun to read."""
    place = Place()
    place.put("a")
    place.query().drain()
    place.put("b")
    with pytest.raises(StateMismatch, match="another checkpoint: restore that checkpoint"):
        place.query().drain()


def test_two_queries_cannot_share_a_source() -> None:
    """The one whose batch begins first has it; the other one is refused then and later."""
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


def test_state_that_is_gone_or_anew_is_noticed() -> None:
    """A checkpoint whose state was lost, restored or made anew is refused."""
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


def test_a_batch_that_nobody_read_is_not_in_the_way() -> None:
    """Spark may find that it needs nothing of a batch, and go on to the next."""
    place = Place(max_files=1)
    place.put("a", "b")
    source = place.query().source
    end = source.latest_offset(source.initial_offset())
    again = source.latest_offset(end)
    assert again["epoch"] == 2
    assert len(place.query().source.partitions(end, again)) == 1


def test_offsets_of_others_are_refused() -> None:
    """An offset of another source, of a newer release, or of no source at all is not taken for one."""
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


def test_offsets_are_written_alike() -> None:
    """Nothing new means the very same offset, the order of its fields included."""
    place = Place()
    place.put("a")
    source = place.query().source
    end = source.latest_offset(source.initial_offset())
    source.partitions(source.initial_offset(), end)
    assert list(source.latest_offset(end).items()) == list(end.items())
    assert source.partitions(end, end) == []


# -- several sources -----------------------------------------------------------------------------------


def test_sources_share_a_table_and_are_dropped_alone() -> None:
    """The state of a source can be removed, and that of others stays."""
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


def test_a_driver_that_slept_through_a_reset_changes_nothing() -> None:
    """A step is made on the very list row that was read, not on one of the same revision."""
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


def test_state_that_was_removed_in_part_is_not_taken_for_state() -> None:
    """While a reset has not come to its end, nobody reads the source."""
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
    """An epoch of very many files is a handful of bounded items."""
    place = Place(max_files=10_000)
    place.put(*(f"year=2026/month=11/part-{number:05}-ü %2F.json" for number in range(10_000)))
    query = place.query()
    assert query.drain() == 1
    assert sum(map(len, paths(query))) == 10_000
    assert sum(1 for _ in place.table.scan()) < 12


def test_an_epoch_is_as_large_as_one_transaction_can_be() -> None:
    """Files with the longest names make epochs of fewer files, and none is lost."""
    place = Place(max_files=10_000)
    place.put(*(f"{number:05}" + "ü" * 500 for number in range(4_000)))
    query = place.query()
    assert 1 < query.drain() < 5
    assert sum(map(len, paths(query))) == 4_000


def test_missing_objects_stop_the_query_unless_they_may_be_skipped() -> None:
    """The same epoch can be read with another policy after it had failed."""
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
