"""The cleaning of a source: files are deleted or archived in time, or stay."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    BucketNotFound,
    ConfigurationError,
    InputUnreadable,
    NotSupported,
    StateMismatch,
)
from commitlog.ingest import Cleaned, Cleaner, IngestAdmin, IngestSettings, Pinned, Slice, store_to_clean
from commitlog.ingest.cleaning_queue import Commits
from commitlog.ingest.quarantine import WANTED
from commitlog.ingest.rows import epoch_prefix
from commitlog.stores.api import Observation
from commitlog.stores.counting_store import CountingStore
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import ItemPage
from commitlog.testing import ManualClock
from commitlog.urls import parse_store_url
from support.ingest import Bucket, Checkpoint, Engine, Stop, records_of, state_table
from support.requests import Recorder

GRACE = 60.0


class Site:
    """A source that cleans, with its bucket and its query. Files of paths in `bad` cannot be read."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = Bucket(clock=self.clock)
        self.recorder = Recorder()
        self.table = state_table()
        self.bad: set[str] = set()
        chosen = {"source": "s", "grace": GRACE, "clean": "delete", "unreadable": "quarantine"}
        self.settings = IngestSettings(**{**chosen, **settings})
        self.checkpoint = Checkpoint()
        self.cleaner = self.new_cleaner()

    def new_cleaner(self) -> Cleaner:
        """Return the cleaner of a new process."""
        counted = CountingStore(self.store, self.recorder)
        store = ConditionalStore(counted, mode="native", clock=self.clock)
        return Cleaner(store, self.table, self.settings, clock=self.clock)

    def engine(self, **options: Any) -> Engine:
        """Return the query in a new process."""
        return Engine(
            store=self.store,
            table=self.table,
            settings=self.settings,
            clock=self.clock,
            checkpoint=self.checkpoint,
            decode=self._decode,
            **options,
        )

    def put(self, path: str, body: bytes = b"1") -> None:
        """Put an object and let a second pass."""
        self.store.put(path, body)
        self.clock.advance(1)

    def read(self) -> list[str]:
        """Run the query to its end; return the paths of the files that it reads."""
        before = len(self.checkpoint.sink)
        self.engine().drain()
        new = range(before, len(self.checkpoint.sink))
        return [each.file.path for number in new for each in self.checkpoint.slices[number]]

    def age(self) -> None:
        """Let the grace window pass, and let the query find out."""
        self.clock.advance(GRACE + 2)
        assert self.read() == []

    def paths(self) -> list[str]:
        """Return the paths of all objects."""
        return [info.path for info in self.store.list()]

    def _decode(self, pinned: Pinned, slice: Slice) -> Any:
        for number, batch in enumerate(records_of(pinned, slice)):
            if number and slice.file.path in self.bad:
                raise InputUnreadable("bad", offset=2 * number)
            yield batch


def test_delivered_files_are_deleted_once_their_time_says_that_they_are_known() -> None:
    """Until then, a new upload with the same content would look like the delivered one."""
    site = Site()
    for path in "abc":
        site.put(path)
    assert site.read() == ["a", "b", "c"]
    assert site.cleaner.clean() == Cleaned()
    site.age()
    site.put("d")
    assert site.cleaner.clean() == Cleaned(files=3)
    assert site.paths() == ["d"]
    assert site.cleaner.clean() == Cleaned()
    assert site.read() == ["d"]


def test_if_everything_is_remembered_files_are_deleted_at_once() -> None:
    """A new version with the same name is another file."""
    site = Site(remember="everything")
    site.put("a", b"1")
    assert site.read() == ["a"]
    assert site.cleaner.clean() == Cleaned(files=1)
    site.put("a", b"22")
    assert site.read() == ["a"]
    assert site.cleaner.clean() == Cleaned(files=1)
    assert site.paths() == []


def test_a_batch_that_is_not_committed_is_not_cleaned() -> None:
    """The epoch is planned, read and in the sink, but the query may still repeat the batch."""
    site = Site(remember="everything")
    site.put("a")
    site.put("b")

    def step(what: str) -> None:
        if what == "commit":
            raise Stop

    with pytest.raises(Stop):
        site.engine(step=step).drain()
    assert site.cleaner.clean() == Cleaned()
    site.read()
    assert site.cleaner.clean() == Cleaned(files=2)


def test_a_query_that_does_not_own_the_source_commits_nothing() -> None:
    """The owner has not read the file yet."""
    site = Site(remember="everything")
    site.put("a")
    owner, other = site.engine().source, site.engine().source
    start = owner.initial_offset()
    ends = [source.latest_offset(start) for source in (owner, other)]
    owner.partitions(start, ends[0])
    with pytest.raises(StateMismatch, match="by a query with another checkpoint"):
        other.commit(ends[1])
    assert site.cleaner.clean() == Cleaned()
    owner.commit(ends[0])
    assert site.cleaner.clean() == Cleaned(files=1)


def test_the_delay_begins_with_the_commit() -> None:
    """A later commit does not postpone the cleaning of earlier epochs."""
    site = Site(remember="everything", clean_delay=100.0)
    site.put("a")
    site.read()
    site.clock.advance(50)
    site.put("b")
    site.read()
    site.clock.advance(48)
    assert site.cleaner.clean() == Cleaned()
    site.clock.advance(2)
    assert site.cleaner.clean() == Cleaned(files=1)
    assert site.paths() == ["b"]
    site.clock.advance(100)
    assert site.cleaner.clean() == Cleaned(files=1)


def test_files_of_a_missing_bucket_are_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A HEAD does not report it, and a listing does. The files stay queued."""

    def missing(self: Bucket, *args: Any, **options: Any) -> Any:
        raise BucketNotFound("no such bucket")

    site = Site(remember="everything")
    for path in "ab":
        site.put(path)
    site.read()
    site.store.delete("a")
    with monkeypatch.context() as patch:
        nothing = Observation(info=None, store_time=int(site.clock.epoch()))
        patch.setattr(Bucket, "begin_head", lambda self, path: lambda: nothing)
        patch.setattr(Bucket, "list_page", missing)
        with pytest.raises(BucketNotFound):
            site.cleaner.clean()
    assert site.cleaner.clean() == Cleaned(files=1, gone=1)
    assert site.paths() == []


def test_a_newer_version_stays_and_is_read() -> None:
    """The entry of the old version is dropped."""
    site = Site()
    site.put("a", b"1")
    site.read()
    site.age()
    site.put("a", b"22")
    assert site.cleaner.clean() == Cleaned(kept=1)
    assert site.read() == ["a"]
    site.age()
    assert site.cleaner.clean() == Cleaned(files=1)


def test_a_newer_version_with_the_same_content_stays() -> None:
    """Where etags depend on the content alone, versions differ by their times."""
    site = Site()
    etag = site.store.put_at("a", b"1", site.clock.epoch(), etag='"same"')
    site.read()
    site.age()
    site.store.put_at("a", b"1", site.clock.epoch(), etag=etag)
    assert site.cleaner.clean() == Cleaned(kept=1)
    assert site.read() == ["a"]


def test_the_same_content_is_new_after_the_cleaning() -> None:
    """The driver, which still has the deleted version in its memory, reads the new one."""
    site = Site()
    query = site.engine()
    site.store.put_at("a", b"1", site.clock.epoch(), etag='"same"')
    query.drain()
    site.clock.advance(GRACE + 2)
    query.drain()
    assert site.cleaner.clean() == Cleaned(files=1)
    site.store.put_at("a", b"1", site.clock.epoch(), etag='"same"')
    assert query.drain() == 1
    assert query.drain() == 0


def test_an_upload_that_is_repeated_within_the_window_is_deleted_too() -> None:
    """It is no new version, so it is not read, and its time is that of the last upload."""
    site = Site()
    site.store.put_at("a", b"1", site.clock.epoch(), etag='"same"')
    assert site.read() == ["a"]
    site.clock.advance(GRACE / 2)
    site.store.put_at("a", b"1", site.clock.epoch(), etag='"same"')
    assert site.read() == []
    site.age()
    site.put("b")
    site.read()
    assert site.cleaner.clean() == Cleaned(files=1, kept=1)
    assert site.paths() == ["b"]


def test_a_file_with_unreadable_data_stays_until_it_was_delivered() -> None:
    """It is queued again with the epoch that delivers the rest."""
    site = Site(remember="everything")
    site.bad.add("a")
    site.put("a", b"123456")
    site.put("b")
    site.read()
    assert site.cleaner.clean() == Cleaned(files=1, kept=1)
    site.bad.clear()
    IngestAdmin(None, site.table, site.settings).retry()
    assert site.cleaner.clean() == Cleaned()
    assert site.read() == ["a"]
    assert site.cleaner.clean() == Cleaned(files=1)
    assert set(site.checkpoint.records.values()) == {1}


def test_a_file_stays_while_a_slice_of_it_is_on_its_way() -> None:
    """Its rest is to be read again: it waits for that, and then is in an epoch that is not committed."""
    site = Site(remember="everything", clean_delay=10.0)
    site.bad.add("a")
    site.put("a", b"123456")
    site.read()
    site.bad.clear()
    IngestAdmin(None, site.table, site.settings).retry()
    site.clock.advance(20)
    first = site.cleaner.clean()
    assert first == Cleaned(kept=1)

    site = Site(remember="everything", clean_delay=10.0)
    site.bad.add("a")
    site.put("a", b"123456")
    site.read()
    site.bad.clear()
    IngestAdmin(None, site.table, site.settings).retry()
    site.engine().source.latest_offset(site.checkpoint.log[-1])
    site.clock.advance(20)
    assert site.cleaner.clean() == Cleaned(kept=1)
    site.read()
    site.clock.advance(20)
    assert site.cleaner.clean() == Cleaned(files=1)
    assert set(site.checkpoint.records.values()) == {1}


def test_a_file_stays_if_its_rest_fails_again_while_a_cleaner_looks() -> None:
    """The rest leaves the slices to retry, and is in an epoch, and then is a problem again."""
    site = Site(remember="everything")
    site.bad.add("a")
    site.put("a", b"123456")
    site.read()
    IngestAdmin(None, site.table, site.settings).retry()
    query_page = site.table.query_page

    def slow(source: str, *, start_after: str = "", **options: Any) -> ItemPage:
        if start_after == WANTED:
            site.table.query_page = query_page  # type: ignore[method-assign]
            for path in "bcd":
                site.put(path)
                assert site.read()
        return query_page(source, start_after=start_after, **options)

    site.table.query_page = slow  # type: ignore[method-assign]
    site.cleaner.clean()
    assert "a" in site.paths()
    site.bad.clear()
    IngestAdmin(None, site.table, site.settings).retry()
    site.read()
    assert sum(path == "a" for path, _, _ in site.checkpoint.records) == 6


def test_epochs_that_are_planned_while_a_cleaner_looks_are_no_error() -> None:
    """The slices of the epochs that it has seen may be removed before it reads them."""
    site = Site()
    site.put("a")
    site.read()
    site.age()
    for path in "bc":
        site.put(path)
        engine = site.engine()
        engine.source.commit = lambda end: None  # type: ignore[method-assign]
        engine.drain()
    query_page = site.table.query_page

    def slow(source: str, *, start_after: str = "", **options: Any) -> ItemPage:
        if start_after == epoch_prefix(2):
            site.table.query_page = query_page  # type: ignore[method-assign]
            for path in "de":
                site.clock.advance(GRACE + 2)
                site.put(path)
                assert site.read() == [path]
        return query_page(source, start_after=start_after, **options)

    site.table.query_page = slow  # type: ignore[method-assign]
    assert site.cleaner.clean().files == 1
    assert site.table.query_page == query_page


def test_a_file_that_is_cut_is_cleaned_after_its_last_slice() -> None:
    """The epochs before have parts of it."""
    site = Site(remember="everything", max_bytes=2, slice_bytes=2)
    site.put("a", b"123456")
    query = site.engine(splits=True)
    for _ in range(2):
        query.batch()
        assert site.cleaner.clean() == Cleaned()
    query.batch()
    assert site.cleaner.clean() == Cleaned(files=1)


def test_a_file_stays_while_its_rest_is_not_planned() -> None:
    """Its first slice is read again, which makes it due, before the other slices are in any epoch."""
    site = Site(remember="everything", max_bytes=4, slice_bytes=4)
    site.bad.add("a")
    site.put("a", b"x" * 12)
    assert site.engine(splits=True).batch()
    site.bad.clear()
    IngestAdmin(None, site.table, site.settings).retry()
    assert site.engine(splits=True).batch()
    site.clock.advance(1)
    assert site.cleaner.clean() == Cleaned(kept=1)
    site.engine(splits=True).drain()
    assert len(site.checkpoint.records) == 12
    assert site.cleaner.clean() == Cleaned(files=1)


def test_steps_are_limited_and_requests_counted() -> None:
    """A step continues in the middle of a row. A file takes a HEAD and a DELETE."""
    site = Site(remember="everything")
    for number in range(10):
        site.put(f"in/{number}")
    site.read()
    found = []
    while (cleaned := site.cleaner.clean(most=4)).more:
        found.append(cleaned.files)
    found.append(cleaned.files)
    assert found == [4, 4, 2]
    assert site.recorder.requests == {"store_deletes": 10, "store_heads": 10 + len(found)}
    assert site.cleaner.clean() == Cleaned()


def test_another_cleaner_continues_after_a_crash() -> None:
    """The row is still there, and some of its files are gone."""
    site = Site(remember="everything")
    for path in "abc":
        site.put(path)
    site.read()
    assert site.cleaner.clean(most=2) == Cleaned(files=2, more=True)
    assert site.new_cleaner().clean() == Cleaned(files=1, gone=2)
    assert site.new_cleaner().clean() == Cleaned()


def test_a_checkpoint_before_the_cleaned_epochs_is_refused() -> None:
    """Its batches would find no files."""
    site = Site(remember="everything")
    for path in "abc":
        site.put(path)
        site.read()
    first, second, third = site.checkpoint.log
    source = site.engine().source
    assert source.partitions(first, second)
    assert site.cleaner.clean() == Cleaned(files=3)
    with pytest.raises(StateMismatch, match="had committed epoch 3"):
        source.partitions(first, second)
    site.put("d")
    end = source.latest_offset(third)
    assert source.partitions(third, end)


def test_the_cleaning_is_recorded_before_the_first_file_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cleaner dies after that file, an earlier checkpoint is refused as well."""
    site = Site(remember="everything")
    for path in "ab":
        site.put(path)
        site.read()
    first, second = site.checkpoint.log
    source = site.engine().source
    delete = site.store.delete

    def deleted_last(*args: Any, **options: Any) -> None:
        delete(*args, **options)
        raise Stop

    monkeypatch.setattr(site.store, "delete", deleted_last)
    with pytest.raises(Stop):
        site.cleaner.clean()
    assert site.paths() == ["b"]
    with pytest.raises(StateMismatch, match="had committed epoch 2"):
        source.partitions(first, second)


def test_a_checkpoint_before_the_cleaned_epochs_is_refused_without_cleaning_too() -> None:
    """The files that were cleaned before the option was set to off are gone all the same."""
    site = Site(remember="everything")
    for path in "abc":
        site.put(path)
        site.read()
    first, second, third = site.checkpoint.log
    assert site.cleaner.clean() == Cleaned(files=3)
    site.put("d")
    site.settings = evolve(site.settings, clean="off")
    source = site.engine().source
    end = source.latest_offset(third)
    with pytest.raises(StateMismatch, match="had committed epoch 3"):
        source.partitions(first, second)
    assert source.partitions(third, end)


def test_a_checkpoint_before_the_last_epoch_is_refused_without_cleaning_too() -> None:
    """The query had committed that epoch, too, and its files are gone."""
    site = Site(remember="everything")
    for path in "ab":
        site.put(path)
        site.read()
    first, second = site.checkpoint.log
    assert site.cleaner.clean() == Cleaned(files=2)
    site.settings = evolve(site.settings, clean="off")
    source = site.engine().source
    assert source.latest_offset(first) == second
    with pytest.raises(StateMismatch, match="had committed epoch 2"):
        source.partitions(first, second)


def test_a_reset_source_does_not_inherit_commits() -> None:
    """A commit of the earlier source that arrives late says nothing about the new one."""
    site = Site(remember="everything")
    site.put("a")
    site.read()
    site.read()
    zombie, end = site.engine().source, site.checkpoint.log[-1]
    IngestAdmin(None, site.table, site.settings).reset()
    site.checkpoint = Checkpoint()
    source = site.engine().source
    source.latest_offset(source.initial_offset())
    with pytest.raises(StateMismatch):
        zombie.commit(end)
    assert site.cleaner.clean() == Cleaned()
    assert site.read() == ["a"]
    assert site.cleaner.clean() == Cleaned(files=1)


def test_a_cleaner_that_outlived_a_reset_cleans_all_files() -> None:
    """The new rows of the queue may have the keys of those that it has cleaned."""
    site = Site(remember="everything")
    site.put("a")
    site.put("b")
    site.read()
    assert site.cleaner.clean() == Cleaned(files=2)
    IngestAdmin(None, site.table, site.settings).reset()
    site.checkpoint = Checkpoint()
    site.put("c")
    site.put("d")
    site.read()
    assert site.cleaner.clean() == Cleaned(files=2)
    assert site.paths() == []


def test_a_store_without_any_of_the_files_is_recognized() -> None:
    """Another endpoint may have a bucket of the same name. One of the last files is enough."""
    site = Site(remember="everything")
    site.cleaner.check_store()
    for path in "abc":
        site.put(path)
    site.read()
    site.cleaner.check_store()
    files = {path: site.store.get(path).data for path in "abc"}
    site.store.delete_many("abc")
    site.put("other")
    with pytest.raises(ConfigurationError, match=r"has none of the last files .* nothing was"):
        site.cleaner.check_store()
    site.put("c", files["c"])
    site.cleaner.check_store()
    site.cleaner.clean()
    site.cleaner.check_store()  # nothing is queued


def test_archived_files_keep_their_paths() -> None:
    """A later version of a name gets a name of its own; nothing in the archive is replaced."""
    site = Site(remember="everything", clean="archive", archive="_old/")
    bodies = [b"1", b"22", b"333"]
    for body in bodies:
        site.put("in/a.json", body)
        assert site.read() == ["in/a.json"]
        assert site.cleaner.clean() == Cleaned(files=1)
    first, *others = sorted(site.paths(), key=len)
    assert first == "_old/in/a.json"
    assert all(path.startswith("_old/in/a.") and path.endswith(".json") for path in others)
    assert sorted(site.store.get(path).data for path in site.paths()) == sorted(bodies)


@pytest.mark.parametrize("other", [b"other", b"2"], ids=["another size", "the same size"])
def test_a_copy_that_was_made_before_a_crash_is_used(other: bytes) -> None:
    """The cleaner died between the copy and the deletion. Another object at the path is no copy."""
    site = Site(remember="everything", clean="archive", archive="_old/")
    for path in ("in/a", "in/b.c/d"):
        site.put(path)
    site.read()
    info = site.store.head("in/a")
    site.store.put_at("_old/in/a", b"1", info.last_modified, etag=info.etag)
    site.store.put_at("_old/in/b.c/d", other, 1.0)
    assert site.cleaner.clean() == Cleaned(files=2)
    assert [path for path in site.paths() if not path.startswith("_old/in/b.c/d.")] == [
        "_old/in/a",
        "_old/in/b.c/d",
    ]
    assert len(site.paths()) == 3
    assert site.store.get("_old/in/b.c/d").data == other


def test_a_file_that_has_no_path_in_the_archive_stays() -> None:
    """Its key would be too long below the prefix of the archive. Other files are archived."""
    site = Site(remember="everything", clean="archive", archive="_old/")
    long = "a" * 1022
    site.put(long)
    site.put("b")
    site.read()
    assert site.cleaner.clean() == Cleaned(files=1, kept=1)
    assert site.paths() == ["_old/b", long]
    assert site.cleaner.clean() == Cleaned()


def test_an_archive_that_the_query_reads_is_refused() -> None:
    """Each batch would make the next one."""
    with pytest.raises(ConfigurationError, match=r"would read the archived object 'old/name'"):
        Site(clean="archive", archive="old/")
    site = Site(
        remember="everything",
        clean="archive",
        archive="old/",
        names=evolve(IngestSettings(source="s").names, name="*.json"),
    )
    site.put("a.json")
    site.read()
    with pytest.raises(ConfigurationError, match=r"'old/a.json'"):
        site.cleaner.clean()
    assert site.paths() == ["a.json"]
    with pytest.raises(ConfigurationError, match="give both, or neither"):
        IngestSettings(source="s", clean="archive")


def test_a_store_that_does_not_enforce_the_condition_is_refused() -> None:
    """Nothing is deleted. Only a probe can prove that a server enforces it."""
    site = Site(remember="everything")
    site.put("a")
    site.read()
    site.store.capabilities = evolve(MemoryStore.capabilities, enforced=False)
    with pytest.raises(NotSupported):
        site.new_cleaner().clean()
    assert site.paths() == ["a"]


def test_without_cleaning_nothing_is_queued() -> None:
    """Files that were planned before cleaning was switched on stay."""
    site = Site(remember="everything", clean="off")
    site.put("a")
    site.read()
    assert site.cleaner.clean() == Cleaned()
    site.settings = evolve(site.settings, clean="delete")
    site.put("b")
    site.read()
    assert site.new_cleaner().clean() == Cleaned(files=1)
    assert site.paths() == ["a"]


def test_commits_are_thinned_out_to_later_ones() -> None:
    """However many there are, an epoch is never due before its own commit."""
    commits = Commits(born="")
    for epoch in range(1, 1001):
        commits = commits.with_commit(epoch, float(epoch))
    assert len(commits.commits) <= 64
    assert commits.committed == 1000
    for time in range(1, 1001):
        assert commits.due(time) <= time
    assert commits.due(1000) == 1000
    assert commits.due(999) >= 990


def test_a_clock_that_goes_back_makes_no_epoch_due() -> None:
    """An epoch is not committed before an earlier one, whatever the store's clock says."""
    commits = Commits(born="").with_commit(3, 20.0).with_commit(4, 10.0)
    assert commits.due(19.0) == 0
    assert commits.due(20.0) == 4


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"clean": "delete"}, ("s3://bucket/in/x", "")),
        ({"clean": "archive", "archive": "old/"}, ("s3://bucket", "in/x/")),
    ],
)
def test_the_archive_may_be_anywhere_in_the_bucket(settings: Any, place: tuple[str, str]) -> None:
    """A cleaner that archives opens the whole bucket."""
    url, below = store_to_clean(
        parse_store_url("s3://bucket/in/x"), IngestSettings(source="s", **settings)
    )
    assert (str(url), below) == place
