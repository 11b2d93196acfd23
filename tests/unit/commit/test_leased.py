"""The lease protocol, rule by rule, over ports with scripted failures."""

from __future__ import annotations

import math
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from commitlog.commit import LeaseSettings
from commitlog.commit.lease_committer import _HeadResult
from commitlog.commit.probe_report import Kind
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    CommitError,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    InvalidPath,
    LeaseTimeout,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
    TableNotFound,
    Unavailable,
)
from commitlog.stores.api import NONCE, Observation, Staged
from commitlog.stores.memory import MemoryStore
from commitlog.stores.s3.xml import complete_body
from commitlog.tables.api import Absent
from support.commit import (
    UNKNOWN,
    Delayed,
    World,
    after,
    followed_by,
    lost_after,
    lost_before,
    proven,
    raising,
    repeated,
)

MIB = 1024 * 1024


@pytest.fixture
def world() -> World:
    """A store that ignores conditions, as stores that need leases do."""
    return World()


def create_elsewhere(world: World, path: str = "a") -> None:
    """Let another writer create the object."""
    world.objects.put(path, b"theirs", metadata={NONCE: "their word"})


# -- rule 1: HEAD and acquire in parallel ----------------------------------------------------------


def test_an_uncontended_create_is_two_round_trips_and_a_release(world: World) -> None:
    """HEAD and acquire are both sent before either response is awaited. The release comes last."""
    assert world.client.put_if_absent("a", b"mine").etag == world.objects.head("a").etag
    assert world.script.log == ["check", "head", "take", "put", "take"]
    world.client.put_if_absent("b", b"mine")
    assert world.script.log[5:] == ["head", "take", "put", "take"]


def test_no_condition_is_sent_under_a_lease(world: World) -> None:
    """Some stores answer 501 to conditions, and the lease makes them unnecessary."""
    world.client.put_if_absent("a", b"mine")
    assert world.script.sent("put")[0]["condition"] is None


def test_the_table_is_checked_once_before_its_first_use(world: World) -> None:
    """A missing table, or one with another key schema, is reported before anything is written."""
    world.script.next("check", raising(TableNotFound("no table")))
    with pytest.raises(TableNotFound):
        world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["check"]


def test_a_lease_starts_before_its_request_is_sent(world: World) -> None:
    """A lease whose request took nearly all of its time is renewed before anything is written."""
    world.script.next("take", after(lambda: world.clock.advance(18.5)))
    world.client.put_if_absent("a", b"mine")
    generations = [sent["item"]["generation"] for sent in world.script.sent("take")]
    assert generations == [0, 1, 2]
    assert world.script.log == ["check", "head", "take", "head", "take", "put", "take"]


def test_a_failed_head_releases_the_lease(world: World) -> None:
    """The response to the acquire is still awaited, and the lease is released."""
    world.script.next("head", raising(Unavailable("no answer")))
    with pytest.raises(Unavailable):
        world.client.put_if_absent("a", b"mine")
    assert world.record().released
    assert "put" not in world.script.log


def test_a_failing_table_leaves_the_object_unchanged(world: World) -> None:
    """Without a lease nothing is written, and the caller gets the error of the table."""
    world.script.next("take", raising(AccessDenied("no permission to PutItem")))
    with pytest.raises(AccessDenied):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log


@pytest.mark.parametrize("size", [1, 200_000, 9 * MIB])
def test_a_key_that_no_record_can_have_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A local store has the absolute path of a file as its key, and may be deep in the file system."""
    monkeypatch.setattr(MemoryStore, "key", lambda self, path: "é" * 1024 + path)
    with pytest.raises(InvalidPath, match=r"has 2049 bytes.*at most 2048; nothing was sent"):
        world.client.put_if_absent("a", bytes(size))
    assert world.script.log == []
    assert not list(world.objects.list_staged())


# -- rule 2: HEAD contradicts ----------------------------------------------------------------------


def test_an_existing_object_ends_the_create(world: World) -> None:
    """The error is typed, nothing is written, and the lease acquired in parallel is released."""
    create_elsewhere(world)
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log
    assert world.record().released


@pytest.mark.parametrize("there", [True, False])
def test_a_changed_or_deleted_object_ends_the_update(world: World, there: bool) -> None:
    """An update of another version, or of a missing object, is refused."""
    if there:
        create_elsewhere(world)
    with pytest.raises(PreconditionFailed):
        world.client.put_if_match("a", b"mine", etag="old")
    with pytest.raises(PreconditionFailed):
        world.client.delete_if_match("a", etag="old")
    assert not {"put", "delete"} & set(world.script.log)


def test_the_key_of_an_update_is_the_etag_as_head_spells_it(world: World) -> None:
    """An etag without quotes leads to the same record as the quoted one."""
    etag = world.objects.put("a", b"one").etag
    assert etag.startswith('"')
    world.client.put_if_match("a", b"two", etag=etag.strip('"'))
    assert world.record(etag=etag).released
    assert len(list(world.items.scan())) == 1


def test_a_store_with_bare_etags_has_one_record_too(world: World) -> None:
    """The lease is acquired again under HEAD's spelling before anything is written."""
    etag = world.objects.put("a", b"one").etag
    bare = etag.strip('"')

    def unquoted(perform: Any) -> Any:
        pending = perform()
        seen = pending()
        info = type(seen.info)(
            path="a", size=3, etag=bare, last_modified=0.0, metadata=seen.info.metadata
        )
        return lambda: Observation(info=info, store_time=seen.store_time)

    world.script.next("head", unquoted, unquoted)
    world.client.put_if_match("a", b"two", etag=etag)
    assert [sent["item"]["etag"] for sent in world.script.sent("take")] == [etag, etag, bare, bare]
    assert world.record(etag=bare).released and world.record(etag=etag).released


# -- rule 3: the lease of another client -----------------------------------------------------------


@pytest.mark.parametrize("owner", ["stranger", None])
def test_the_lease_of_a_dead_holder_is_taken_over_after_its_timeout(
    world: World, owner: str | None
) -> None:
    """After the stored timeout × our skew rate, the record is taken over with the next generation."""
    world.plant(timeout=5000, generation=4, owner=owner)
    world.client.put_if_absent("a", b"mine")
    assert 15.0 <= world.clock.monotonic() <= 15.2
    assert world.script.sent("take")[1]["item"]["generation"] == 5
    assert world.record().generation == 6


def test_the_wait_starts_when_the_conflict_is_received(world: World) -> None:
    """A slow response does not shorten the holder's lease."""
    world.plant(timeout=5000)
    slow = after(lambda: None, lambda perform: _then(perform, lambda: world.clock.advance(7.0)))
    world.script.next("take", slow)
    world.client.put_if_absent("a", b"mine")
    assert 22.0 <= world.clock.monotonic() <= 22.2


def _then(perform: Any, event: Any) -> Any:
    try:
        return perform()
    finally:
        event()


def test_a_waiter_fails_as_soon_as_the_object_exists(world: World) -> None:
    """HEAD is repeated every test interval."""
    world.plant()
    world.clock.at(1.0, lambda: create_elsewhere(world))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert 1.0 <= world.clock.monotonic() <= 1.2
    assert world.record().owner == "stranger"


def test_a_released_record_is_taken_over_at_once(world: World) -> None:
    """There is no wait, but another HEAD after the record was seen."""
    world.plant(timeout=0, generation=3)
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() == 0.0
    assert world.script.log == ["check", "head", "take", "head", "take", "put", "take"]


def test_a_writer_that_finished_between_head_and_acquire_is_seen(world: World) -> None:
    """A released record means that its holder may have written after our HEAD."""

    def finish() -> None:
        create_elsewhere(world)
        world.plant(timeout=0, generation=1)

    world.script.next("take", after(finish))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log


def test_a_release_during_the_wait_ends_it(world: World) -> None:
    """A holder that released without writing is not waited for any longer."""
    record = world.plant()
    world.clock.at(2.0, lambda: world.replant(record, generation=1, timeout=0))
    world.client.put_if_absent("a", b"mine")
    assert 2.0 <= world.clock.monotonic() <= 2.2


def test_a_renewal_restarts_the_wait(world: World) -> None:
    """The holder is alive, so the wait starts again for the new generation."""
    record = world.plant(timeout=5000)
    world.clock.at(14.0, lambda: world.replant(record, generation=1))
    world.client.put_if_absent("a", b"mine")
    assert 29.0 <= world.clock.monotonic() <= 29.3


def test_a_lost_race_for_the_record_restarts_the_wait(world: World) -> None:
    """One of two waiters takes the record over. The other then waits for the new holder."""
    record = world.plant(timeout=5000)
    taken = after(lambda: world.replant(record, generation=1, owner="another"))
    world.script.next("take", None, taken)
    world.client.put_if_absent("a", b"mine")
    assert 30.0 <= world.clock.monotonic() <= 30.4
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2, 3]


def test_the_last_write_of_the_holder_is_seen_after_the_wait(world: World) -> None:
    """The decisive HEAD is sent after the wait, not before."""
    world.plant(timeout=5000)
    world.clock.at(15.0, lambda: create_elsewhere(world))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log


def test_a_head_sent_before_the_end_of_the_wait_does_not_count(world: World) -> None:
    """HEAD is evaluated, the holder's last write lands, and HEAD's response arrives after the wait."""
    world.plant(timeout=5000)
    world.clock.at(15.0, lambda: create_elsewhere(world))

    def slow(perform: Any) -> Any:
        pending = perform()
        if 14.8 < world.clock.monotonic() < 15.0:
            world.clock.advance(0.5)
        return pending

    world.script.next("head", *[slow] * 200)
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert world.objects.get("a").data == b"theirs"


def test_a_record_that_ttl_removes_during_the_wait_is_no_error(world: World) -> None:
    """Defect 1 of the original: it failed with a generic error."""
    world.plant(timeout=5000)
    world.clock.at(3.0, world.sweep)
    world.client.put_if_absent("a", b"mine")
    assert 3.0 <= world.clock.monotonic() <= 3.2
    assert world.record().generation == 1


@pytest.mark.parametrize("tells", [True, False])
def test_a_record_that_is_removed_during_a_takeover_is_no_error(tells: bool) -> None:
    """The takeover fails because there is no item, and the acquire starts again."""
    world = World(returns_old_item=tells)
    world.plant(timeout=5000)
    world.script.next("take", None, after(world.sweep))
    world.client.put_if_absent("a", b"mine")
    assert 15.0 <= world.clock.monotonic() <= 15.2
    assert world.record().generation == 1


def test_the_record_is_read_if_the_conflict_does_not_contain_it(world: World) -> None:
    """The read is consistent."""
    world = World(returns_old_item=False)
    world.plant(timeout=5000)
    world.client.put_if_absent("a", b"mine")
    assert 15.0 <= world.clock.monotonic() <= 15.2
    assert "read" in world.script.log


def test_a_restarted_generation_is_not_confused_with_the_old_one(world: World) -> None:
    """Defect 3 of the original: TTL removes the record, and another client creates generation 0."""
    world.plant(timeout=5000, owner=None)

    def anew() -> None:
        world.sweep()
        world.plant(timeout=5000, owner=None, ttl=int(world.clock.epoch()) + 3600)

    world.script.next("take", None, after(anew))
    world.client.put_if_absent("a", b"mine")
    assert 30.0 <= world.clock.monotonic() <= 30.4


def test_an_acquire_that_was_applied_twice_is_recognised(world: World) -> None:
    """Defect 4 of the original: a request that was executed twice conflicted with itself."""

    def twice(perform: Any) -> Any:
        perform()
        return perform()

    world.script.next("take", twice)
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() == 0.0
    assert world.script.log == ["check", "head", "take", "put", "take"]


def test_an_acquire_whose_response_was_lost_is_recognised(world: World) -> None:
    """A consistent read finds our own record, and there is no wait."""
    world.script.next("take", lost_after)
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() == 0.0
    assert world.script.log == ["check", "head", "take", "read", "put", "take"]


def test_an_acquire_that_was_lost_is_sent_again(world: World) -> None:
    """A consistent read finds no record."""
    world.script.next("take", lost_before, lost_before)
    world.client.put_if_absent("a", b"mine")
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 0, 0, 1]


def test_a_late_acquire_starts_when_it_was_first_sent(world: World) -> None:
    """The first request is applied late. Others may count from its sending, so the lease is renewed."""
    delayed = Delayed()

    def land(perform: Any) -> Any:
        delayed.arrive()
        world.clock.advance(19.0)
        return perform()

    world.script.next("take", delayed, land)
    world.client.put_if_absent("a", b"mine")
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 0, 1, 2]


def test_a_lost_acquire_behind_another_holder_is_a_conflict(world: World) -> None:
    """A consistent read finds the record of another client."""
    world.script.next("take", after(lambda: world.plant(timeout=5000), lost_before))
    world.client.put_if_absent("a", b"mine")
    assert 15.0 <= world.clock.monotonic() <= 15.2


def test_a_takeover_whose_response_was_lost_is_recognised(world: World) -> None:
    """The record in the table is already ours."""
    world.plant(timeout=0)
    world.script.next("take", None, lost_after)
    world.client.put_if_absent("a", b"mine")
    assert world.record().generation == 2


def test_a_takeover_that_was_lost_is_sent_again(world: World) -> None:
    """The record in the table is still the one to take over."""
    world.plant(timeout=0)
    world.script.next("take", None, lost_before)
    world.client.put_if_absent("a", b"mine")
    assert world.record().generation == 2
    assert world.clock.monotonic() < 1.0


def test_a_table_that_never_responds_is_unavailable(world: World) -> None:
    """The object was not written, so the outcome is not unknown."""
    world.script.next("take", *[lost_before] * 5)
    with pytest.raises(Unavailable):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log


def test_a_late_acquire_is_recognised_during_the_wait(world: World) -> None:
    """Our first request is applied after another client's record is removed, and the poll finds it."""
    delayed = Delayed()

    def in_between() -> None:
        world.plant(timeout=5000)

    world.script.next("take", delayed)
    world.script.next("read", after(in_between))
    world.clock.at(1.0, lambda: (world.sweep(), delayed.arrive()))
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() <= 1.3
    assert world.objects.get("a").data == b"mine"


def test_the_wait_ends_after_max_wait() -> None:
    """It raises `LeaseTimeout`. Nothing is written, and the record is unchanged."""
    world = World(settings=LeaseSettings(max_wait=2.0))
    record = world.plant(timeout=20_000)
    with pytest.raises(LeaseTimeout, match="58"):
        world.client.put_if_absent("a", b"mine")
    assert 2.0 <= world.clock.monotonic() <= 2.2
    assert world.record() == record
    assert "put" not in world.script.log


def test_a_damaged_record_is_reported_and_unchanged(world: World) -> None:
    """It does not show how long its holder may still write."""
    item = {"path": "a", "etag": "*", "generation": 0, "timeout": 20000}
    world.items.put(item)
    with pytest.raises(CorruptRecord, match="ttl"):
        world.client.put_if_absent("a", b"mine")
    assert list(world.items.scan()) == [item]
    assert "put" not in world.script.log


# -- rule 4: a HEAD that is too old ----------------------------------------------------------------


@pytest.mark.parametrize("request_expiry", [True, False])
def test_a_pause_longer_than_a_lease_after_head_requires_another_head(request_expiry: bool) -> None:
    """Defect 2 of the original: HEAD, a long pause, a fresh lease, and an overwritten object."""
    world = World(request_expiry=request_expiry)

    def long_pause() -> None:
        world.clock.advance(7200.0)
        create_elsewhere(world)  # TTL has removed the record of that writer.

    world.script.next("head", followed_by(long_pause))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert world.objects.get("a").data == b"theirs"
    assert world.record().released


def test_a_pause_shorter_than_a_lease_requires_no_other_head(world: World) -> None:
    """A writer in the meantime would have left a record."""
    world.script.next("head", followed_by(lambda: world.clock.advance(15.5)))
    world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["check", "head", "take", "put", "take"]


def test_a_reused_record_gets_a_new_ttl(world: World) -> None:
    """With the TTL of its first holder, the table could drop it while it is held."""
    world.client.put_if_absent("a", b"1")
    world.objects.delete("a")
    world.clock.advance(3590.0)
    held: list[int] = []
    world.script.next("put", after(lambda: held.append(world.record().ttl)))
    world.client.put_if_absent("a", b"2")
    assert held == [int(world.clock.epoch()) + 3600]


@pytest.mark.parametrize("nothing", [Conflict("busy"), Unavailable("503")])
def test_a_request_without_effect_is_retried_after_a_renewal_and_a_head(
    world: World, nothing: CommitError
) -> None:
    """Another client may have written without a lease, or the pause may have outlasted the lease."""
    world.script.next("put", raising(nothing))
    world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["check", "head", "take", "put", "head", "take", "put", "take"]
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2]


def test_a_request_is_not_sent_in_the_reserve_of_its_lease(world: World) -> None:
    """Nor in the two seconds before the reserve: the lease is renewed first."""
    world.script.next("take", after(lambda: world.clock.advance(15.6)))
    world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["check", "head", "take", "head", "take", "put", "take"]


def test_a_lease_that_expires_at_max_wait_is_taken_over() -> None:
    """A lease that expires exactly at `max_wait` is still acquired."""
    world = World(settings=LeaseSettings(max_wait=15.0))
    world.plant(timeout=5000)
    world.client.put_if_absent("a", b"mine")
    assert world.objects.get("a").data == b"mine"


def test_a_body_too_large_for_a_slow_link_is_staged_before_the_lease(world: World) -> None:
    """A store checks the expiry when a request begins, and a large body may arrive long after that."""
    most = int(world.settings.largest_body)
    assert most == 64 * 1024 * 20 // 8
    world.client.put_if_absent("a", bytes(most))
    assert world.script.log == ["check", "head", "take", "put", "take"]
    world.script.log.clear()
    world.client.put_if_absent("b", bytes(most + 1))
    assert world.script.log == ["head", "stage", "head", "take", "publish", "take"]
    assert world.objects.head("b").size == most + 1


def test_a_response_after_the_lease_counts_if_the_lease_can_be_renewed(world: World) -> None:
    """A renewal proves that no client took the lease over, and that none can with an old record."""
    world.script.next("put", followed_by(lambda: world.clock.advance(21.0)))
    assert world.client.put_if_absent("a", b"mine").etag == world.objects.head("a").etag
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2]
    assert world.record().timeout == 0


@pytest.mark.parametrize("asked", [True, False])
def test_a_response_after_a_takeover_is_not_a_success(world: World, asked: bool) -> None:
    """The write may have replaced the next holder's. The same applies if the table is unavailable."""

    def taken_over() -> None:
        world.clock.advance(61.0)
        world.plant(generation=1, timeout=0)

    world.script.next("put", followed_by(taken_over))
    if not asked:
        world.script.next("take", None, *[raising(Unavailable("busy"))] * 5)
    with pytest.raises(OutcomeUnknown, match="after the lease"):
        world.client.put_if_absent("a", b"mine")


def test_services_slower_than_the_lease_are_reported(world: World) -> None:
    """No request is sent after its lease. In the end the error asks for a longer timeout."""
    world.script.next("take", *[after(lambda: world.clock.advance(19.0))] * 5)
    with pytest.raises(Unavailable, match="longer timeout"):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log
    assert world.record().released


# -- rule 5: the store refuses late requests -------------------------------------------------------


def test_the_request_expires_with_the_lease(world: World) -> None:
    """It is dated by the store in whole seconds, with a second for rounding and a reserve."""
    world.script.next("take", after(lambda: world.clock.advance(3.5)))
    world.client.put_if_absent("a", b"mine")
    expiry = world.script.sent("put")[0]["expiry"]
    assert expiry.date == 1_800_000_000
    # 16.5 s were left when the response to HEAD had been read; 2.5 of them are the reserve.
    assert expiry.seconds == 13


@pytest.mark.parametrize(("parts", "seconds"), [(1, 16), (1_600, 16), (5_000, 11), (10_000, 4)])
def test_a_long_list_of_parts_has_a_longer_reserve(world: World, parts: int, seconds: int) -> None:
    """The list arrives within the lease at the minimum bandwidth. A lost one is awaited as long."""
    staged = _many_parts(world, parts)
    reserve = max(2.5, len(complete_body(staged.parts)) / world.settings.min_bandwidth)
    world.client.publish_if_absent(staged)
    expiry = world.script.sent("publish")[0]["expiry"]
    assert expiry.seconds == seconds
    assert expiry.seconds + 1 + reserve <= world.settings.timeout


def test_a_list_of_parts_too_long_for_the_lease_is_refused() -> None:
    """No request is sent, and the upload stays."""
    world = World(settings=LeaseSettings(timeout=10.0))
    staged = _many_parts(world, 10_000)
    with pytest.raises(ConfigurationError, match="longer timeout, or a larger part size"):
        world.client.publish_if_absent(staged)
    assert world.script.log == []
    assert [upload.path for upload in world.objects.list_staged()] == ["a"]


def _many_parts(world: World, parts: int) -> Staged:
    with world.objects.begin_stage("a") as writer:
        return evolve(writer.finish(), parts=(f'"{7:032x}"',) * parts)


@given(
    timeout=st.floats(3, 1000),
    head=st.floats(-900, 900),
    answer=st.floats(0, 900),
    offset=st.floats(-1e6, 1e6),
    rates=st.tuples(st.floats(1, 3), st.floats(1, 3), st.floats(1, 3)),
)
def test_no_request_is_in_flight_once_a_waiter_may_take_over(
    timeout: float, head: float, answer: float, offset: float, rates: tuple[float, float, float]
) -> None:
    """This holds for any clock offsets and, within the skew rate, for any clock rates.

    The store read its clock when ours read `head`, counted from the start of the lease (before it, if
    there was a pause between HEAD and lease). Its response arrived `answer` later. `rates` are those of
    our clock, the store's and the waiter's.
    """
    mine, stores, waiters = rates
    real_head = head / mine
    store_clock = 1e9 + offset + stores * real_head
    look = _HeadResult(
        observation=Observation(info=None, store_time=math.floor(store_clock)),
        sent=head,
        received=head + answer,
    )
    reserve = timeout / 8
    if timeout - look.received - reserve < 2:
        return
    expiry = look.expiry(timeout, timeout, reserve)
    assert expiry is not None
    # The store's time is cut to whole seconds, so it accepts until just before the next second.
    last_accepted = real_head + (expiry.expires_at + 1 - store_clock) / stores
    taken_over = 3 * timeout / waiters
    assert last_accepted + reserve <= taken_over + 1e-6


def test_a_delayed_request_is_refused_after_the_lease(world: World) -> None:
    """Defect 5 of the original: a request that was given up could still be applied."""
    delayed = Delayed()
    world.script.next("put", delayed)
    world.script.next("head", None, *[raising(Unavailable("no answer"))] * 1000)
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", b"mine")
    with pytest.raises(RequestExpired):
        delayed.arrive()


def test_an_expired_request_is_sent_again_under_a_renewed_lease(world: World) -> None:
    """It had no effect, so the write goes on."""
    world.script.next("put", after(lambda: world.clock.advance(25.0)))
    world.client.put_if_absent("a", b"mine")
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2]
    assert world.objects.get("a").data == b"mine"


def test_a_renewal_is_followed_by_another_head(world: World) -> None:
    """Another writer took the lease over and finished before our next attempt."""

    def overruled() -> None:
        world.clock.advance(70.0)
        create_elsewhere(world)
        world.plant(generation=2, timeout=0)

    world.script.next("put", after(overruled))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert world.objects.get("a").data == b"theirs"
    assert world.record().owner == "stranger"


def test_no_expiry_is_sent_to_a_store_without_expiries() -> None:
    """The request is sent without it."""
    world = World(request_expiry=False)
    world.client.put_if_absent("a", b"mine")
    assert world.script.sent("put")[0]["expiry"] is None


def test_no_expiry_is_sent_to_a_store_without_a_date(world: World) -> None:
    """There is no time of the store to compute the expiry from."""
    world.script.next("head", lambda perform: lambda: Observation(info=None, store_time=None))
    world.client.put_if_absent("a", b"mine")
    assert world.script.sent("put")[0]["expiry"] is None


def test_only_the_publishing_of_a_large_body_needs_the_lease(world: World) -> None:
    """The upload may take any time. The lease is young when the small completion request is sent."""
    world.script.next("stage", followed_by(lambda: world.clock.advance(3600.0)))
    world.client.put_if_absent("a", bytes(9 * MIB))
    assert world.script.log == ["head", "stage", "check", "head", "take", "publish", "take"]
    assert world.script.sent("publish")[0]["expiry"] is not None
    assert world.objects.head("a").size == 9 * MIB


def test_a_large_body_is_not_uploaded_if_the_object_exists(world: World) -> None:
    """It costs one HEAD."""
    create_elsewhere(world)
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", bytes(9 * MIB))
    assert world.script.log == ["head"]


def test_a_refused_upload_is_aborted(world: World) -> None:
    """A typed failure leaves no upload."""
    world.script.next("stage", followed_by(lambda: create_elsewhere(world)))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", bytes(9 * MIB))
    assert not list(world.objects.list_staged())


def test_an_upload_with_an_unknown_outcome_is_kept(world: World) -> None:
    """Nothing is cleaned up after `OutcomeUnknown`, because the object may still appear."""
    world.script.next("publish", lost_before)
    world.script.next("head", None, None, *[raising(Unavailable("no answer"))] * 1000)
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", bytes(9 * MIB))
    assert len(list(world.objects.list_staged())) == 1
    assert "abort" not in world.script.log


def test_a_publication_that_the_network_repeats_is_recognised(world: World) -> None:
    """The second request finds no upload, but the object has the nonce."""
    world.script.next("publish", repeated)
    assert world.client.put_if_absent("a", bytes(9 * MIB)).etag == world.objects.head("a").etag
    assert world.record().timeout == 0


def test_a_missing_upload_leaves_the_outcome_unknown_if_head_fails(world: World) -> None:
    """Its object may exist: a repeated request gets the same response."""
    staged = world.objects.stage("a", b"mine")
    world.script.next("publish", after(lambda: world.objects.abort(staged)))
    world.script.next("head", None, raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match=r"no staged upload.*down"):
        world.client.publish_if_absent(staged)


def test_a_missing_upload_without_an_object_is_not_found(world: World) -> None:
    """The lease is released."""
    staged = world.objects.stage("a", b"mine")
    world.objects.abort(staged)
    with pytest.raises(NotFound):
        world.client.publish_if_absent(staged)
    assert world.record().timeout == 0


def test_a_missing_bucket_is_reported_as_such(world: World) -> None:
    """A HEAD could not distinguish it from a missing object. The lease is released."""
    staged = world.objects.stage("a", b"mine")
    world.script.next("publish", raising(BucketNotFound("no such bucket")))
    with pytest.raises(BucketNotFound):
        world.client.publish_if_absent(staged)
    assert world.script.log.count("head") == 1
    assert world.record().timeout == 0


# -- rule 6: release -------------------------------------------------------------------------------


def test_a_release_keeps_the_record_and_its_generation(world: World) -> None:
    """Its timeout becomes 0 in the next generation, which ``object_store`` also takes over at once."""
    world.client.put_if_absent("a", b"mine")
    record = world.record()
    assert (record.generation, record.timeout) == (1, 0)
    assert record.ttl == int(world.clock.epoch()) + 3600


def test_creating_after_deleting_does_not_wait(world: World) -> None:
    """Defects 7 and 8 of the original: writing a previously used path took a whole lease."""
    for _ in range(3):
        etag = world.client.put_if_absent("a", b"mine").etag
        world.client.delete_if_match("a", etag=etag)
    assert world.clock.monotonic() == 0.0
    assert world.record().generation == 5


def test_returning_to_an_earlier_etag_does_not_wait(world: World) -> None:
    """Defect 6 of the original: the same path and etag once more."""
    etag = world.objects.put("a", b"one").etag
    world.plant(etag=etag, generation=1, timeout=0)
    world.client.put_if_match("a", b"two", etag=etag)
    assert world.clock.monotonic() == 0.0


@pytest.mark.parametrize("failure", [lost_before, raising(Unavailable("down"))])
def test_a_failed_release_does_not_change_the_outcome(world: World, failure: Any) -> None:
    """The object is written, and the lease will expire."""
    world.script.next("take", None, failure)
    assert world.client.put_if_absent("a", b"mine").etag
    assert world.record().timeout == 20_000


def test_a_lease_that_was_taken_over_is_not_released(world: World) -> None:
    """The release is conditional on our own record."""
    world.script.next("put", followed_by(lambda: world.plant(generation=7)))
    world.client.put_if_absent("a", b"mine")
    assert world.record().generation == 7
    assert not world.record().released


def test_a_typed_failure_of_the_store_releases_the_lease(world: World) -> None:
    """The request had no effect, so no client needs to wait."""
    world.script.next("put", raising(AccessDenied("no")))
    with pytest.raises(AccessDenied):
        world.client.put_if_absent("a", b"mine")
    assert world.record().released


@pytest.mark.parametrize("nothing", [Conflict("busy"), Unavailable("503")])
def test_a_request_without_effect_is_retried(world: World, nothing: Exception) -> None:
    """A few times, each with a HEAD. After that the lease is released."""
    world.script.next("put", raising(nothing), raising(nothing))
    world.client.put_if_absent("a", b"mine")
    world.script.next("put", *[raising(nothing)] * 5)
    with pytest.raises(Unavailable):
        world.client.put_if_absent("b", b"mine")
    assert world.record("b").released


def test_another_exception_does_not_release_the_lease(world: World) -> None:
    """An exception that is no response of the store proves nothing, so the lease expires by itself."""
    world.script.next("put", raising(KeyboardInterrupt()))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        world.client.put_if_absent("a", b"mine")
    assert not world.record().released


# -- rule 7: a lost response -----------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_a_put_that_was_applied_is_recognised(world: World, delay: float) -> None:
    """It is recognised by its nonce, also if it is applied later, before the expiry."""
    delayed = Delayed()
    world.script.next("put", delayed if delay else lost_after)
    world.clock.at(5.0, delayed.arrive)
    result = world.client.put_if_absent("a", b"mine")
    assert result.etag == world.objects.head("a").etag
    assert delay <= world.clock.monotonic() <= delay + 0.2
    assert len(world.script.sent("put")) == 1
    assert world.record().released


def test_an_update_to_the_same_content_is_recognised(world: World) -> None:
    """The nonce identifies the write, because the etag does not change."""
    etag = world.objects.put("a", b"same").etag

    def same_etag(perform: Any) -> Any:
        perform()
        space = world.objects._space
        key = next(iter(space.objects))
        space.objects[key] = type(space.objects[key])(b"same", etag, 0.0, space.objects[key].metadata)
        raise OutcomeUnknown("lost")

    world.script.next("put", same_etag)
    assert world.client.put_if_match("a", b"same", etag=etag).etag == etag
    assert len(world.script.sent("put")) == 1


def test_an_update_seen_while_it_is_applied_has_its_own_etag(world: World) -> None:
    """Some stores read etag and metadata separately. The etag of the old version is not the result."""
    before = world.objects.put("a", b"theirs").etag

    def half_seen(perform: Any) -> Any:
        pending = perform()

        def wait() -> Observation:
            seen: Observation = pending()
            assert seen.info is not None
            return evolve(seen, info=evolve(seen.info, etag=before))

        return wait

    world.script.next("put", lost_after)
    world.script.next("head", None, half_seen)
    result = world.client.put_if_match("a", b"mine", etag=before)
    assert result.etag == world.objects.head("a").etag != before
    assert len(world.script.sent("put")) == 1


def test_a_lost_put_is_sent_again_after_its_expiry(world: World) -> None:
    """The read is final once the store's own clock is past the expiry. Then the lease is renewed."""
    world.script.next("put", lost_before)
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() >= 17.0
    assert len(world.script.sent("put")) == 2
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2]


def test_a_request_cannot_be_applied_after_the_final_read(world: World) -> None:
    """The second request cannot be overtaken by the first."""
    delayed = Delayed()
    world.script.next("put", delayed)
    world.client.put_if_absent("a", b"mine")
    with pytest.raises(RequestExpired):
        delayed.arrive()


def test_the_object_of_another_writer_leaves_the_outcome_unknown(world: World) -> None:
    """Our object may have existed before it. The lease is kept."""
    world.script.next("put", after(lambda: create_elsewhere(world), lost_before))
    with pytest.raises(OutcomeUnknown, match=r"commitlog-nonce=word-"):
        world.client.put_if_absent("a", b"mine")
    assert not world.record().released


def test_an_unreachable_store_leaves_the_outcome_unknown(world: World) -> None:
    """The client polls for one timeout longer than the lease, plus the time for a body to arrive."""
    world.script.next("put", lost_after)
    world.script.next("head", None, *[raising(Unavailable("down"))] * 1000)
    with pytest.raises(OutcomeUnknown, match="down"):
        world.client.put_if_absent("a", b"mine")
    assert 48.0 <= world.clock.monotonic() <= 49.0
    assert not world.record().released


def test_a_store_that_comes_back_settles_the_outcome(world: World) -> None:
    """Failed reads only prolong the wait."""
    world.script.next("put", lost_after)
    world.script.next("head", None, *[raising(Unavailable("down"))] * 20)
    assert world.client.put_if_absent("a", b"mine")


def test_without_an_expiry_silence_is_never_final() -> None:
    """A 404 after a lost response proves nothing where a late request may still be applied."""
    world = World(request_expiry=False)
    delayed = Delayed()
    world.script.next("put", delayed)
    with pytest.raises(OutcomeUnknown, match="how late"):
        world.client.put_if_absent("a", b"mine")
    assert 20.0 <= world.clock.monotonic() <= 20.3
    assert len(world.script.sent("put")) == 1


def test_an_unenforced_expiry_is_not_trusted() -> None:
    """Such a store may apply the lost request at any time."""
    world = World(probe_report=proven())
    world.script.next("put", lost_before)
    with pytest.raises(OutcomeUnknown, match="how late"):
        world.client.put_if_absent("a", b"mine")
    assert 24.0 <= world.clock.monotonic() <= 25.1
    assert len(world.script.sent("put")) == 1


@pytest.mark.parametrize("enforced", [True, False])
def test_expiries_are_probed_when_they_matter(enforced: bool) -> None:
    """The probe uses a scratch object, and runs only after a response was lost."""
    world = World(probe_report=UNKNOWN)
    world.client.put_if_absent("b", b"mine")
    assert not world.client.probe_report.rows
    accepts_all = after(lambda: None, lambda _: world.objects.put("scratch", b""))
    world.script.next("put", lost_before, None, None if enforced else accepts_all)
    if enforced:
        world.client.put_if_absent("a", b"mine")
    else:
        with pytest.raises(OutcomeUnknown):
            world.client.put_if_absent("a", b"mine")
    assert world.client.probe_report.proves(Kind.REQUEST_EXPIRY) is enforced


def test_a_failed_probe_of_expiries_is_not_trusted() -> None:
    """The error of the probe does not replace `OutcomeUnknown`: the write may have been applied."""
    world = World(probe_report=UNKNOWN)
    delayed = Delayed()
    world.script.next("put", delayed, raising(AccessDenied("no scratch objects here")))
    with pytest.raises(OutcomeUnknown, match="no scratch"):
        world.client.put_if_absent("a", b"mine")
    assert not world.record().released


def test_the_final_read_is_sent_after_the_expiry(world: World) -> None:
    """HEAD is evaluated, the request lands in time, and HEAD's response is dated after the expiry."""
    delayed = Delayed()
    world.objects.put("source", b"x")
    world.script.next("copy", delayed)

    def slow(perform: Any) -> Any:
        seen = perform()()
        world.clock.advance(5.0)
        delayed.arrive()
        world.clock.advance(30.0)
        later = Observation(info=seen.info, store_time=int(world.clock.epoch()))
        return lambda: later

    world.script.next("head", None, slow)
    with pytest.raises(OutcomeUnknown):
        world.client.copy_if_absent("source", "a")


@pytest.mark.parametrize("refused", [True, False])
def test_a_created_and_deleted_object_leaves_the_outcome_unknown(world: World, refused: bool) -> None:
    """A missing object after a lost response does not prove that the creation had no effect."""

    def come_and_gone(perform: Any) -> Any:
        perform()
        world.objects.delete("a")
        raise OutcomeUnknown("lost")

    world.script.next("put", come_and_gone, raising(AccessDenied("no")))
    if not refused:  # another client creates the object while the lease is renewed
        world.script.next("take", None, followed_by(lambda: create_elsewhere(world)))
    with pytest.raises(OutcomeUnknown, match="come and gone"):
        world.client.put_if_absent("a", b"mine")


def test_an_update_without_effect_has_a_certain_error(world: World) -> None:
    """The old object still exists after the lost request expired, so that request had no effect."""
    etag = world.objects.put("a", b"old").etag
    world.script.next("put", lost_before, raising(AccessDenied("no")))
    with pytest.raises(AccessDenied):
        world.client.put_if_match("a", b"mine", etag=etag)


def test_a_copy_that_was_applied_is_recognised(world: World) -> None:
    """It has its source's nonce, but under the lease no other client can have created the target."""
    world.objects.put("source", b"x", metadata={NONCE: "of the source"})
    world.script.next("copy", lost_after)
    assert world.client.copy_if_absent("source", "a").etag == world.objects.head("a").etag
    assert world.record().released


@pytest.mark.parametrize("metadata", [{}, {NONCE: "of the source"}])
def test_a_copy_that_was_replaced_leaves_the_outcome_unknown(
    world: World, metadata: dict[str, str]
) -> None:
    """Otherwise the caller would get the etag of another writer's object."""
    world.objects.put("source", b"x", metadata=metadata)

    def replaced(perform: Any) -> None:
        perform()
        world.objects.put("a", b"another's", metadata={NONCE: "of another"})
        raise OutcomeUnknown("the answer was lost")

    world.script.next("copy", replaced)
    with pytest.raises(OutcomeUnknown, match="was written by another writer"):
        world.client.copy_if_absent("source", "a")


def test_a_copy_is_not_confirmed_while_its_source_cannot_be_read(world: World) -> None:
    """HEAD is repeated as long as the lease is valid."""
    world.objects.put("source", b"x", metadata={NONCE: "of the source"})
    world.script.next("copy", lost_after)
    world.script.next("head", None, None, raising(Unavailable("down")))
    assert world.client.copy_if_absent("source", "a").etag == world.objects.head("a").etag
    assert [sent["path"] for sent in world.script.sent("head")] == ["a", "a", "source", "a", "source"]


def test_a_copy_seen_after_the_lease_leaves_the_outcome_unknown(world: World) -> None:
    """The next holder of the lease may have made it."""
    world.objects.put("source", b"x")
    world.script.next("copy", lost_before)
    world.script.next("head", None, *[raising(Unavailable("down"))] * 250)
    world.clock.at(24.0, lambda: create_elsewhere(world))
    with pytest.raises(OutcomeUnknown):
        world.client.copy_if_absent("source", "a")


def test_a_copy_that_was_lost_is_sent_again(world: World) -> None:
    """It is sent after the first request has expired."""
    world.objects.put("source", b"x")
    world.script.next("copy", lost_before)
    world.client.copy_if_absent("source", "a")
    assert len(world.script.sent("copy")) == 2


def test_a_copy_without_source_is_refused(world: World) -> None:
    """Nothing was written, and the lease is released."""
    with pytest.raises(NotFound):
        world.client.copy_if_absent("source", "a")
    assert world.record().released


@pytest.mark.parametrize(("fate", "requests"), [(lost_after, 1), (lost_before, 2)])
def test_a_deletion_with_a_lost_response_is_resolved(world: World, fate: Any, requests: int) -> None:
    """An object missing under the lease was deleted by us. If it exists after the expiry, we retry."""
    etag = world.objects.put("a", b"x").etag
    world.script.next("delete", fate)
    world.client.delete_if_match("a", etag=etag)
    assert len(world.script.sent("delete")) == requests
    assert world.objects.begin_head("a")().info is None


def test_a_deletion_followed_by_a_creation_is_unknown(world: World) -> None:
    """The object is from another writer and may have replaced the old one."""
    etag = world.objects.put("a", b"x").etag
    world.script.next("delete", after(lambda: create_elsewhere(world), lost_before))
    with pytest.raises(OutcomeUnknown):
        world.client.delete_if_match("a", etag=etag)


def test_lost_responses_end_in_a_typed_failure(world: World) -> None:
    """Each request was proven to have had no effect, so the whole call had none."""
    etag = world.objects.put("a", b"old").etag
    world.script.next("put", *[lost_before] * 5)
    with pytest.raises(Unavailable, match="5 attempts"):
        world.client.put_if_match("a", b"mine", etag=etag)
    assert world.record(etag=etag).released
    assert world.objects.get("a").data == b"old"


def test_the_first_acquire_is_conditional_on_a_missing_record(world: World) -> None:
    """The first request for a lease never overwrites a record."""
    world.client.put_if_absent("a", b"mine")
    assert world.script.sent("take")[0]["condition"] == Absent()
