"""The lease protocol, rule by rule, over ports that fail on demand."""

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
    LeaseTimeout,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
    TableNotFound,
    Unavailable,
)
from commitlog.stores.api import NONCE, Observation, Staged
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
    """A store that ignores conditions, as those do for which leases are made."""
    return World()


def create_elsewhere(world: World, path: str = "a") -> None:
    """Another writer creates the object."""
    world.objects.put(path, b"theirs", metadata={NONCE: "their word"})


# -- rule 1: HEAD beside acquire -------------------------------------------------------------------


def test_an_uncontended_create_is_two_round_trips_and_a_release(world: World) -> None:
    """HEAD and acquire are both under way before either is awaited; the release comes last."""
    assert world.client.put_if_absent("a", b"mine").etag == world.objects.head("a").etag
    assert world.script.log == ["check", "head", "take", "put", "take"]
    world.client.put_if_absent("b", b"mine")
    assert world.script.log[5:] == ["head", "take", "put", "take"]


def test_no_condition_is_sent_under_a_lease(world: World) -> None:
    """Some stores answer 501 to conditions; the lease does without."""
    world.client.put_if_absent("a", b"mine")
    assert world.script.sent("put")[0]["condition"] is None


def test_the_table_is_checked_once_before_its_first_use(world: World) -> None:
    """A table that is missing or of other keys is named before anything is written."""
    world.script.next("check", raising(TableNotFound("no table")))
    with pytest.raises(TableNotFound):
        world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["check"]


def test_the_own_lease_counts_from_before_its_request(world: World) -> None:
    """A lease whose request took nearly all of it is renewed before anything is written."""
    world.script.next("take", after(lambda: world.clock.advance(18.5)))
    world.client.put_if_absent("a", b"mine")
    generations = [sent["item"]["generation"] for sent in world.script.sent("take")]
    assert generations == [0, 1, 2]
    assert world.script.log == ["check", "head", "take", "head", "take", "put", "take"]


def test_a_head_that_fails_gives_the_lease_back(world: World) -> None:
    """The answer to the acquire is awaited all the same, and what it took is released."""
    world.script.next("head", raising(Unavailable("no answer")))
    with pytest.raises(Unavailable):
        world.client.put_if_absent("a", b"mine")
    assert world.record().released
    assert "put" not in world.script.log


def test_a_table_that_fails_leaves_the_object_alone(world: World) -> None:
    """Without a lease nothing is written, and the caller learns why."""
    world.script.next("take", raising(AccessDenied("no permission to PutItem")))
    with pytest.raises(AccessDenied):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log


# -- rule 2: HEAD contradicts ----------------------------------------------------------------------


def test_an_object_that_is_there_already_ends_the_create(world: World) -> None:
    """The failure is typed, nothing is written, and the lease that was taken beside is released."""
    create_elsewhere(world)
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log
    assert world.record().released


@pytest.mark.parametrize("there", [True, False])
def test_an_object_that_changed_or_went_ends_the_update(world: World, there: bool) -> None:
    """An update of another version, or of nothing, is refused."""
    if there:
        create_elsewhere(world)
    with pytest.raises(PreconditionFailed):
        world.client.put_if_match("a", b"mine", etag="old")
    with pytest.raises(PreconditionFailed):
        world.client.delete_if_match("a", etag="old")
    assert not {"put", "delete"} & set(world.script.log)


def test_the_key_of_an_update_is_the_etag_as_head_spells_it(world: World) -> None:
    """An etag given bare leads to the same record as the quoted one."""
    etag = world.objects.put("a", b"one").etag
    assert etag.startswith('"')
    world.client.put_if_match("a", b"two", etag=etag.strip('"'))
    assert world.record(etag=etag).released
    assert len(list(world.items.scan())) == 1


def test_a_store_with_bare_etags_has_one_record_too(world: World) -> None:
    """The lease is taken again under HEAD's spelling before anything is written."""
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


# -- rule 3: somebody else's lease -----------------------------------------------------------------


@pytest.mark.parametrize("owner", ["stranger", None])
def test_a_dead_holder_is_waited_out(world: World, owner: str | None) -> None:
    """The record is taken over after its stored timeout × my skew rate, with the next generation."""
    world.plant(timeout=5000, generation=4, owner=owner)
    world.client.put_if_absent("a", b"mine")
    assert 15.0 <= world.clock.monotonic() <= 15.2
    assert world.script.sent("take")[1]["item"]["generation"] == 5
    assert world.record().generation == 6


def test_the_wait_counts_from_the_answer_that_told_of_the_holder(world: World) -> None:
    """A conflict that took long to arrive does not shorten the holder's lease."""
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


def test_a_waiter_fails_as_soon_as_the_object_is_there(world: World) -> None:
    """HEAD is repeated every test interval."""
    world.plant()
    world.clock.at(1.0, lambda: create_elsewhere(world))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert 1.0 <= world.clock.monotonic() <= 1.2
    assert world.record().owner == "stranger"


def test_a_released_record_is_taken_over_at_once(world: World) -> None:
    """There is nothing to wait for, but a new look after the record was seen."""
    world.plant(timeout=0, generation=3)
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() == 0.0
    assert world.script.log == ["check", "head", "take", "head", "take", "put", "take"]


def test_a_writer_that_finished_between_head_and_acquire_is_seen(world: World) -> None:
    """A released record says that its holder may have written after my HEAD."""

    def finish() -> None:
        create_elsewhere(world)
        world.plant(timeout=0, generation=1)

    world.script.next("take", after(finish))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log


def test_a_release_during_the_wait_ends_it(world: World) -> None:
    """A holder that gave up without writing is not waited for any longer."""
    record = world.plant()
    world.clock.at(2.0, lambda: world.replant(record, generation=1, timeout=0))
    world.client.put_if_absent("a", b"mine")
    assert 2.0 <= world.clock.monotonic() <= 2.2


def test_a_renewal_starts_the_wait_anew(world: World) -> None:
    """The holder is alive: another generation gets a wait of its own."""
    record = world.plant(timeout=5000)
    world.clock.at(14.0, lambda: world.replant(record, generation=1))
    world.client.put_if_absent("a", b"mine")
    assert 29.0 <= world.clock.monotonic() <= 29.3


def test_a_lost_race_for_the_record_is_waited_for_anew(world: World) -> None:
    """Of two waiters one takes it over; the other observes the new holder from then on."""
    record = world.plant(timeout=5000)
    taken = after(lambda: world.replant(record, generation=1, owner="another"))
    world.script.next("take", None, taken)
    world.client.put_if_absent("a", b"mine")
    assert 30.0 <= world.clock.monotonic() <= 30.4
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2, 3]


def test_the_holder_s_last_write_is_seen_after_the_wait(world: World) -> None:
    """The look that counts is begun when the wait is over, not before."""
    world.plant(timeout=5000)
    world.clock.at(15.0, lambda: create_elsewhere(world))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log


def test_a_look_begun_before_the_end_of_the_wait_does_not_count(world: World) -> None:
    """HEAD is evaluated, the holder's last write lands, and HEAD's answer comes after the wait."""
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


def test_a_record_that_ttl_took_while_we_waited_is_no_error(world: World) -> None:
    """Defect 1 of the original: it failed with a generic error."""
    world.plant(timeout=5000)
    world.clock.at(3.0, world.sweep)
    world.client.put_if_absent("a", b"mine")
    assert 3.0 <= world.clock.monotonic() <= 3.2
    assert world.record().generation == 1


@pytest.mark.parametrize("tells", [True, False])
def test_a_record_that_goes_while_it_is_taken_over_is_no_error(tells: bool) -> None:
    """The reclaim fails, there is no item: start again."""
    world = World(tells=tells)
    world.plant(timeout=5000)
    world.script.next("take", None, after(world.sweep))
    world.client.put_if_absent("a", b"mine")
    assert 15.0 <= world.clock.monotonic() <= 15.2
    assert world.record().generation == 1


def test_a_table_that_tells_no_items_is_asked(world: World) -> None:
    """The record is read consistently when the conflict does not bring it along."""
    world = World(tells=False)
    world.plant(timeout=5000)
    world.client.put_if_absent("a", b"mine")
    assert 15.0 <= world.clock.monotonic() <= 15.2
    assert "read" in world.script.log


def test_a_generation_that_started_again_is_not_taken_for_the_old_one(world: World) -> None:
    """Defect 3 of the original: TTL removes the record, another client makes generation 0 anew."""
    world.plant(timeout=5000, owner=None)

    def anew() -> None:
        world.sweep()
        world.plant(timeout=5000, owner=None, ttl=int(world.clock.epoch()) + 3600)

    world.script.next("take", None, after(anew))
    world.client.put_if_absent("a", b"mine")
    assert 30.0 <= world.clock.monotonic() <= 30.4


def test_an_acquire_that_landed_twice_is_mine(world: World) -> None:
    """Defect 4 of the original: a request that was answered twice conflicted with itself."""

    def twice(perform: Any) -> Any:
        perform()
        return perform()

    world.script.next("take", twice)
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() == 0.0
    assert world.script.log == ["check", "head", "take", "put", "take"]


def test_an_acquire_whose_answer_was_lost_is_found_again(world: World) -> None:
    """A consistent read finds my own record; there is no wait."""
    world.script.next("take", lost_after)
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() == 0.0
    assert world.script.log == ["check", "head", "take", "read", "put", "take"]


def test_an_acquire_that_was_lost_is_sent_again(world: World) -> None:
    """A consistent read finds nothing."""
    world.script.next("take", lost_before, lost_before)
    world.client.put_if_absent("a", b"mine")
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 0, 0, 1]


def test_an_acquire_that_arrives_late_counts_from_its_first_sending(world: World) -> None:
    """The first request lands in the end; others may have counted from then, so the lease is renewed."""
    delayed = Delayed()

    def land(perform: Any) -> Any:
        delayed.arrive()
        world.clock.advance(19.0)
        return perform()

    world.script.next("take", delayed, land)
    world.client.put_if_absent("a", b"mine")
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 0, 1, 2]


def test_an_acquire_lost_to_another_is_a_conflict(world: World) -> None:
    """A consistent read finds somebody else's record."""
    world.script.next("take", after(lambda: world.plant(timeout=5000), lost_before))
    world.client.put_if_absent("a", b"mine")
    assert 15.0 <= world.clock.monotonic() <= 15.2


def test_a_reclaim_whose_answer_was_lost_is_found_again(world: World) -> None:
    """The record over there is mine already."""
    world.plant(timeout=0)
    world.script.next("take", None, lost_after)
    world.client.put_if_absent("a", b"mine")
    assert world.record().generation == 2


def test_a_reclaim_that_was_lost_is_sent_again(world: World) -> None:
    """The record over there is still the one to take over."""
    world.plant(timeout=0)
    world.script.next("take", None, lost_before)
    world.client.put_if_absent("a", b"mine")
    assert world.record().generation == 2
    assert world.clock.monotonic() < 1.0


def test_a_table_that_never_answers_means_unavailable(world: World) -> None:
    """Nothing was written, so the outcome is not unknown."""
    world.script.next("take", *[lost_before] * 5)
    with pytest.raises(Unavailable):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log


def test_a_late_acquire_found_while_waiting_is_mine(world: World) -> None:
    """My first request lands after another's record has gone: the poll recognises it."""
    delayed = Delayed()

    def in_between() -> None:
        world.plant(timeout=5000)

    world.script.next("take", delayed)
    world.script.next("read", after(in_between))
    world.clock.at(1.0, lambda: (world.sweep(), delayed.arrive()))
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() <= 1.3
    assert world.objects.get("a").data == b"mine"


def test_patience_has_the_end_that_was_set() -> None:
    """`LeaseTimeout` after max_wait; nothing is written, the record left to its holder."""
    world = World(settings=LeaseSettings(max_wait=2.0))
    record = world.plant(timeout=20_000)
    with pytest.raises(LeaseTimeout, match="58"):
        world.client.put_if_absent("a", b"mine")
    assert 2.0 <= world.clock.monotonic() <= 2.2
    assert world.record() == record
    assert "put" not in world.script.log


def test_a_damaged_record_is_named_and_left(world: World) -> None:
    """Nobody knows how long its holder is still at work."""
    item = {"path": "a", "etag": "*", "generation": 0, "timeout": 20000}
    world.items.put(item)
    with pytest.raises(CorruptRecord, match="ttl"):
        world.client.put_if_absent("a", b"mine")
    assert list(world.items.scan()) == [item]
    assert "put" not in world.script.log


# -- rule 4: a look that is too old ----------------------------------------------------------------


@pytest.mark.parametrize("request_expiry", [True, False])
def test_a_pause_longer_than_a_lease_after_head_means_another_look(request_expiry: bool) -> None:
    """Defect 2 of the original: HEAD, a long pause, a fresh lease, and an object overwritten."""
    world = World(request_expiry=request_expiry)

    def long_pause() -> None:
        world.clock.advance(7200.0)
        create_elsewhere(world)  # whose record TTL has removed since

    world.script.next("head", followed_by(long_pause))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert world.objects.get("a").data == b"theirs"
    assert world.record().released


def test_a_pause_within_a_lease_needs_no_other_look(world: World) -> None:
    """Until then whoever wrote meanwhile has left a record."""
    world.script.next("head", followed_by(lambda: world.clock.advance(15.5)))
    world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["check", "head", "take", "put", "take"]


def test_a_record_that_is_used_again_has_a_ttl_of_its_own(world: World) -> None:
    """With that of its first holder, it could expire in the table while it is held."""
    world.client.put_if_absent("a", b"1")
    world.objects.delete("a")
    world.clock.advance(3590.0)
    held: list[int] = []
    world.script.next("put", after(lambda: held.append(world.record().ttl)))
    world.client.put_if_absent("a", b"2")
    assert held == [int(world.clock.epoch()) + 3600]


@pytest.mark.parametrize("nothing", [Conflict("busy"), Unavailable("503")])
def test_what_did_nothing_is_sent_again_under_a_renewed_lease_after_a_look(
    world: World, nothing: CommitError
) -> None:
    """Another client may have written without a lease, or the pause have outlasted the lease."""
    world.script.next("put", raising(nothing))
    world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["check", "head", "take", "put", "head", "take", "put", "take"]
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2]


def test_a_request_is_not_begun_in_the_reserve_of_its_lease(world: World) -> None:
    """Nor in the two seconds before it: the lease is renewed first."""
    world.script.next("take", after(lambda: world.clock.advance(15.6)))
    world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["check", "head", "take", "head", "take", "put", "take"]


def test_a_lease_that_has_run_out_is_taken_at_the_end_of_the_longest_wait() -> None:
    """What is due at that very moment is not given up."""
    world = World(settings=LeaseSettings(max_wait=15.0))
    world.plant(timeout=5000)
    world.client.put_if_absent("a", b"mine")
    assert world.objects.get("a").data == b"mine"


def test_a_body_that_a_slow_link_does_not_carry_in_time_is_staged_before_the_lease(world: World) -> None:
    """A store checks the expiry when a request begins, and its body may arrive long after."""
    most = int(world.settings.largest_body)
    assert most == 64 * 1024 * 20 // 8
    world.client.put_if_absent("a", bytes(most))
    assert world.script.log == ["check", "head", "take", "put", "take"]
    world.script.log.clear()
    world.client.put_if_absent("b", bytes(most + 1))
    assert world.script.log == ["head", "stage", "head", "take", "publish", "take"]
    assert world.objects.head("b").size == most + 1


def test_an_answer_after_the_lease_counts_if_the_lease_can_be_renewed(world: World) -> None:
    """Then nobody has taken it over; and nobody who looked before can take it over any more."""
    world.script.next("put", followed_by(lambda: world.clock.advance(21.0)))
    assert world.client.put_if_absent("a", b"mine").etag == world.objects.head("a").etag
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2]
    assert world.record().timeout == 0


@pytest.mark.parametrize("asked", [True, False])
def test_an_answer_after_the_lease_is_no_success_if_another_took_over(world: World, asked: bool) -> None:
    """The write may lie over that of the next holder. The same if the table cannot be asked."""

    def taken_over() -> None:
        world.clock.advance(61.0)
        world.plant(generation=1, timeout=0)

    world.script.next("put", followed_by(taken_over))
    if not asked:
        world.script.next("take", None, *[raising(Unavailable("busy"))] * 5)
    with pytest.raises(OutcomeUnknown, match="after the lease"):
        world.client.put_if_absent("a", b"mine")


def test_services_slower_than_the_lease_are_named(world: World) -> None:
    """No request is ever sent after its lease; in the end the caller is told to set a longer one."""
    world.script.next("take", *[after(lambda: world.clock.advance(19.0))] * 5)
    with pytest.raises(Unavailable, match="longer timeout"):
        world.client.put_if_absent("a", b"mine")
    assert "put" not in world.script.log
    assert world.record().released


# -- rule 5: the store refuses what comes too late -------------------------------------------------


def test_the_request_expires_with_the_lease(world: World) -> None:
    """Dated by the store, for whole seconds, with one to spare if a store rounds, and a reserve."""
    world.script.next("take", after(lambda: world.clock.advance(3.5)))
    world.client.put_if_absent("a", b"mine")
    expiry = world.script.sent("put")[0]["expiry"]
    assert expiry.date == 1_800_000_000
    # 16.5 s were left when the answer to HEAD had been read; 2.5 of them are the reserve.
    assert expiry.seconds == 13


@pytest.mark.parametrize(("parts", "seconds"), [(1, 16), (1_600, 16), (5_000, 11), (10_000, 4)])
def test_a_long_list_of_parts_has_a_longer_reserve(world: World, parts: int, seconds: int) -> None:
    """It arrives within the lease at the bandwidth that is set, and a lost one is waited for so long."""
    staged = _many_parts(world, parts)
    reserve = max(2.5, len(complete_body(staged.parts)) / world.settings.min_bandwidth)
    world.client.publish_if_absent(staged)
    expiry = world.script.sent("publish")[0]["expiry"]
    assert expiry.seconds == seconds
    assert expiry.seconds + 1 + reserve <= world.settings.timeout


def test_a_list_of_parts_that_no_lease_is_long_enough_for_is_refused() -> None:
    """Nothing is sent, and the upload stays."""
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
def test_no_request_is_under_way_once_a_waiter_may_take_over(
    timeout: float, head: float, answer: float, offset: float, rates: tuple[float, float, float]
) -> None:
    """Whatever the clocks say and, within the skew rate, however fast they run.

    The store read its clock when mine read `head`, counted from the start of the lease (before it, if we
    paused between look and lease), and was heard `answer` later; `rates` are those of my clock, the
    store's and the waiter's.
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
    # Its clock being cut to whole seconds, the store accepts until just before the next one.
    last_accepted = real_head + (expiry.expires_at + 1 - store_clock) / stores
    taken_over = 3 * timeout / waiters
    assert last_accepted + reserve <= taken_over + 1e-6


def test_a_delayed_request_is_refused_after_the_lease(world: World) -> None:
    """Defect 5 of the original: giving up on a request does not recall it."""
    delayed = Delayed()
    world.script.next("put", delayed)
    world.script.next("head", None, *[raising(Unavailable("no answer"))] * 1000)
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", b"mine")
    with pytest.raises(RequestExpired):
        delayed.arrive()


def test_an_expired_request_is_sent_again_under_a_renewed_lease(world: World) -> None:
    """Nothing happened; go on."""
    world.script.next("put", after(lambda: world.clock.advance(25.0)))
    world.client.put_if_absent("a", b"mine")
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2]
    assert world.objects.get("a").data == b"mine"


def test_after_a_renewal_the_object_is_looked_at_again(world: World) -> None:
    """Another writer overruled us and was done before our next attempt."""

    def overruled() -> None:
        world.clock.advance(70.0)
        create_elsewhere(world)
        world.plant(generation=2, timeout=0)

    world.script.next("put", after(overruled))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    assert world.objects.get("a").data == b"theirs"
    assert world.record().owner == "stranger"


def test_a_store_without_expiry_is_sent_none() -> None:
    """Where the client cannot ask for it, the request goes without."""
    world = World(request_expiry=False)
    world.client.put_if_absent("a", b"mine")
    assert world.script.sent("put")[0]["expiry"] is None


def test_a_store_that_tells_no_time_is_sent_none(world: World) -> None:
    """There is nothing to date the expiry by."""
    world.script.next("head", lambda perform: lambda: Observation(info=None, store_time=None))
    world.client.put_if_absent("a", b"mine")
    assert world.script.sent("put")[0]["expiry"] is None


def test_only_the_publishing_of_a_large_body_needs_the_lease(world: World) -> None:
    """However long the upload takes, the lease is young when its small completion is sent."""
    world.script.next("stage", followed_by(lambda: world.clock.advance(3600.0)))
    world.client.put_if_absent("a", bytes(9 * MIB))
    assert world.script.log == ["head", "stage", "check", "head", "take", "publish", "take"]
    assert world.script.sent("publish")[0]["expiry"] is not None
    assert world.objects.head("a").size == 9 * MIB


def test_nothing_is_uploaded_that_is_refused_anyway(world: World) -> None:
    """A large body that cannot succeed costs one HEAD."""
    create_elsewhere(world)
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", bytes(9 * MIB))
    assert world.script.log == ["head"]


def test_a_refused_upload_is_dropped(world: World) -> None:
    """A typed failure leaves nothing behind."""
    world.script.next("stage", followed_by(lambda: create_elsewhere(world)))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", bytes(9 * MIB))
    assert not list(world.objects.list_staged())


def test_an_upload_of_unknown_fate_is_kept(world: World) -> None:
    """Nothing is cleaned up after `OutcomeUnknown`: it may be on its way to the readers."""
    world.script.next("publish", lost_before)
    world.script.next("head", None, None, *[raising(Unavailable("no answer"))] * 1000)
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", bytes(9 * MIB))
    assert len(list(world.objects.list_staged())) == 1
    assert "abort" not in world.script.log


def test_a_publication_that_was_repeated_on_the_way_is_recognised(world: World) -> None:
    """The second one found no upload any more, and the object bears the nonce."""
    world.script.next("publish", repeated)
    assert world.client.put_if_absent("a", bytes(9 * MIB)).etag == world.objects.head("a").etag
    assert world.record().timeout == 0


def test_an_upload_that_is_missing_leaves_the_outcome_unknown_if_nobody_can_look(world: World) -> None:
    """Its object may be there: a repetition on the way is answered like that, too."""
    staged = world.objects.stage("a", b"mine")
    world.script.next("publish", after(lambda: world.objects.abort(staged)))
    world.script.next("head", None, raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match=r"no staged upload.*down"):
        world.client.publish_if_absent(staged)


def test_an_upload_that_is_missing_is_not_found(world: World) -> None:
    """And its object is not there; the lease is given up."""
    staged = world.objects.stage("a", b"mine")
    world.objects.abort(staged)
    with pytest.raises(NotFound):
        world.client.publish_if_absent(staged)
    assert world.record().timeout == 0


def test_a_missing_bucket_is_reported_as_such(world: World) -> None:
    """A look at the object could not tell it from a missing object; the lease is released."""
    staged = world.objects.stage("a", b"mine")
    world.script.next("publish", raising(BucketNotFound("no such bucket")))
    with pytest.raises(BucketNotFound):
        world.client.publish_if_absent(staged)
    assert world.script.log.count("head") == 1
    assert world.record().timeout == 0


# -- rule 6: release -------------------------------------------------------------------------------


def test_a_release_keeps_the_record_and_its_generation(world: World) -> None:
    """Timeout 0 under the next generation: an ``object_store`` client takes that over at once, too."""
    world.client.put_if_absent("a", b"mine")
    record = world.record()
    assert (record.generation, record.timeout) == (1, 0)
    assert record.ttl == int(world.clock.epoch()) + 3600


def test_creating_after_deleting_does_not_wait(world: World) -> None:
    """Defects 7 and 8 of the original: a path that was used before cost a whole lease."""
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
def test_a_release_that_fails_changes_nothing_of_the_outcome(world: World, failure: Any) -> None:
    """The object is written; the lease will run out."""
    world.script.next("take", None, failure)
    assert world.client.put_if_absent("a", b"mine").etag
    assert world.record().timeout == 20_000


def test_a_lease_that_was_overruled_is_not_released_for_its_new_holder(world: World) -> None:
    """The release is conditional on the record being mine."""
    world.script.next("put", followed_by(lambda: world.plant(generation=7)))
    world.client.put_if_absent("a", b"mine")
    assert world.record().generation == 7
    assert not world.record().released


def test_a_typed_failure_of_the_store_releases(world: World) -> None:
    """Nothing happened, so nobody need wait."""
    world.script.next("put", raising(AccessDenied("no")))
    with pytest.raises(AccessDenied):
        world.client.put_if_absent("a", b"mine")
    assert world.record().released


@pytest.mark.parametrize("nothing", [Conflict("busy"), Unavailable("503")])
def test_what_did_nothing_is_tried_again(world: World, nothing: Exception) -> None:
    """A few times, each with a look at the object; then the lease is released."""
    world.script.next("put", raising(nothing), raising(nothing))
    world.client.put_if_absent("a", b"mine")
    world.script.next("put", *[raising(nothing)] * 5)
    with pytest.raises(Unavailable):
        world.client.put_if_absent("b", b"mine")
    assert world.record("b").released


def test_a_bug_in_between_does_not_release(world: World) -> None:
    """What is no answer of the store proves nothing; the lease runs out by itself."""
    world.script.next("put", raising(KeyboardInterrupt()))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        world.client.put_if_absent("a", b"mine")
    assert not world.record().released


# -- rule 7: an answer that was lost ---------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_a_put_that_landed_is_recognised(world: World, delay: float) -> None:
    """By its nonce, also if it lands only later, before the expiry."""
    delayed = Delayed()
    world.script.next("put", delayed if delay else lost_after)
    world.clock.at(5.0, delayed.arrive)
    result = world.client.put_if_absent("a", b"mine")
    assert result.etag == world.objects.head("a").etag
    assert delay <= world.clock.monotonic() <= delay + 0.2
    assert len(world.script.sent("put")) == 1
    assert world.record().released


def test_an_update_to_the_same_content_is_recognised(world: World) -> None:
    """The nonce tells, though the etag does not."""
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


def test_an_update_seen_while_it_lands_has_its_own_etag(world: World) -> None:
    """Some stores read etag and metadata one after the other; the etag before is not the result."""
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


def test_a_put_that_was_lost_is_sent_again_once_it_cannot_land(world: World) -> None:
    """The read is final when the store's own clock is past the expiry; then the lease is renewed."""
    world.script.next("put", lost_before)
    world.client.put_if_absent("a", b"mine")
    assert world.clock.monotonic() >= 17.0
    assert len(world.script.sent("put")) == 2
    assert [sent["item"]["generation"] for sent in world.script.sent("take")] == [0, 1, 2]


def test_a_request_cannot_land_after_the_final_read(world: World) -> None:
    """What was resent is not overtaken by what was given up."""
    delayed = Delayed()
    world.script.next("put", delayed)
    world.client.put_if_absent("a", b"mine")
    with pytest.raises(RequestExpired):
        delayed.arrive()


def test_another_writer_s_object_leaves_the_outcome_unknown(world: World) -> None:
    """Mine may have been there before; the lease is kept."""
    world.script.next("put", after(lambda: create_elsewhere(world), lost_before))
    with pytest.raises(OutcomeUnknown, match=r"commitlog-nonce=word-"):
        world.client.put_if_absent("a", b"mine")
    assert not world.record().released


def test_an_unreachable_store_leaves_the_outcome_unknown(world: World) -> None:
    """It is asked for one timeout more than the lease, and for as long as a body may take to arrive."""
    world.script.next("put", lost_after)
    world.script.next("head", None, *[raising(Unavailable("down"))] * 1000)
    with pytest.raises(OutcomeUnknown, match="down"):
        world.client.put_if_absent("a", b"mine")
    assert 48.0 <= world.clock.monotonic() <= 49.0
    assert not world.record().released


def test_a_store_that_comes_back_settles_the_outcome(world: World) -> None:
    """Failures to read are nothing but waiting."""
    world.script.next("put", lost_after)
    world.script.next("head", None, *[raising(Unavailable("down"))] * 20)
    assert world.client.put_if_absent("a", b"mine")


def test_without_an_expiry_silence_is_never_final() -> None:
    """A 404 after a lost answer proves nothing where a late request may still be applied."""
    world = World(request_expiry=False)
    delayed = Delayed()
    world.script.next("put", delayed)
    with pytest.raises(OutcomeUnknown, match="how late"):
        world.client.put_if_absent("a", b"mine")
    assert 20.0 <= world.clock.monotonic() <= 20.3
    assert len(world.script.sent("put")) == 1


def test_an_expiry_that_the_store_does_not_enforce_is_not_trusted() -> None:
    """Such a store may apply the lost request at any time."""
    world = World(probe_report=proven())
    world.script.next("put", lost_before)
    with pytest.raises(OutcomeUnknown, match="how late"):
        world.client.put_if_absent("a", b"mine")
    assert 24.0 <= world.clock.monotonic() <= 25.1
    assert len(world.script.sent("put")) == 1


@pytest.mark.parametrize("enforced", [True, False])
def test_whether_expiries_are_enforced_is_measured_when_it_matters(enforced: bool) -> None:
    """On a scratch object, and only after an answer was lost."""
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
    assert world.client.probe_report.proves(Kind.FENCE) is enforced


def test_what_cannot_be_measured_is_not_trusted() -> None:
    """A probe that is refused does not pass its error off as that of the call, which may have landed."""
    world = World(probe_report=UNKNOWN)
    delayed = Delayed()
    world.script.next("put", delayed, raising(AccessDenied("no scratch objects here")))
    with pytest.raises(OutcomeUnknown, match="no scratch"):
        world.client.put_if_absent("a", b"mine")
    assert not world.record().released


def test_the_final_read_is_begun_after_the_expiry(world: World) -> None:
    """HEAD is evaluated, the request lands in time, and HEAD's answer is dated after the expiry."""
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
def test_a_creation_that_may_have_come_and_gone_is_unknown(world: World, refused: bool) -> None:
    """That there is no object after a lost answer does not prove that there was none in between."""

    def come_and_gone(perform: Any) -> Any:
        perform()
        world.objects.delete("a")
        raise OutcomeUnknown("lost")

    world.script.next("put", come_and_gone, raising(AccessDenied("no")))
    if not refused:  # another creates it while the lease is renewed
        world.script.next("take", None, followed_by(lambda: create_elsewhere(world)))
    with pytest.raises(OutcomeUnknown, match="come and gone"):
        world.client.put_if_absent("a", b"mine")


def test_an_update_whose_requests_did_nothing_is_refused_with_certainty(world: World) -> None:
    """The object that was to be replaced was there all along, until another replaced it."""
    etag = world.objects.put("a", b"old").etag
    world.script.next("put", lost_before, raising(AccessDenied("no")))
    with pytest.raises(AccessDenied):
        world.client.put_if_match("a", b"mine", etag=etag)


def test_a_copy_that_landed_is_ours(world: World) -> None:
    """It bears its source's nonce; but under the lease nobody else can have created the target."""
    world.objects.put("source", b"x", metadata={NONCE: "of the source"})
    world.script.next("copy", lost_after)
    assert world.client.copy_if_absent("source", "a").etag == world.objects.head("a").etag
    assert world.record().released


@pytest.mark.parametrize("metadata", [{}, {NONCE: "of the source"}])
def test_a_copy_that_was_replaced_since_cannot_be_told_of(
    world: World, metadata: dict[str, str]
) -> None:
    """With the etag of what is there, the caller would take another's object for the copy."""
    world.objects.put("source", b"x", metadata=metadata)

    def replaced(perform: Any) -> None:
        perform()
        world.objects.put("a", b"another's", metadata={NONCE: "of another"})
        raise OutcomeUnknown("the answer was lost")

    world.script.next("copy", replaced)
    with pytest.raises(OutcomeUnknown, match="of another writer"):
        world.client.copy_if_absent("source", "a")


def test_a_copy_is_not_believed_while_its_source_cannot_be_seen(world: World) -> None:
    """Then it is looked for again, as long as the lease goes on."""
    world.objects.put("source", b"x", metadata={NONCE: "of the source"})
    world.script.next("copy", lost_after)
    world.script.next("head", None, None, raising(Unavailable("down")))
    assert world.client.copy_if_absent("source", "a").etag == world.objects.head("a").etag
    assert [sent["path"] for sent in world.script.sent("head")] == ["a", "a", "source", "a", "source"]


def test_a_copy_seen_after_the_lease_is_perhaps_another_s(world: World) -> None:
    """Whoever overruled us may have made it."""
    world.objects.put("source", b"x")
    world.script.next("copy", lost_before)
    world.script.next("head", None, *[raising(Unavailable("down"))] * 250)
    world.clock.at(24.0, lambda: create_elsewhere(world))
    with pytest.raises(OutcomeUnknown):
        world.client.copy_if_absent("source", "a")


def test_a_copy_that_was_lost_is_sent_again(world: World) -> None:
    """Once it cannot land any more."""
    world.objects.put("source", b"x")
    world.script.next("copy", lost_before)
    world.client.copy_if_absent("source", "a")
    assert len(world.script.sent("copy")) == 2


def test_a_copy_without_source_is_refused(world: World) -> None:
    """Nothing happened, and the lease is released."""
    with pytest.raises(NotFound):
        world.client.copy_if_absent("source", "a")
    assert world.record().released


@pytest.mark.parametrize(("fate", "requests"), [(lost_after, 1), (lost_before, 2)])
def test_a_deletion_is_settled(world: World, fate: Any, requests: int) -> None:
    """Gone under the lease: it was ours. Still there after the expiry: once more."""
    etag = world.objects.put("a", b"x").etag
    world.script.next("delete", fate)
    world.client.delete_if_match("a", etag=etag)
    assert len(world.script.sent("delete")) == requests
    assert world.objects.begin_head("a")().info is None


def test_a_deletion_followed_by_a_creation_is_unknown(world: World) -> None:
    """The object is another's: it may have been replaced instead."""
    etag = world.objects.put("a", b"x").etag
    world.script.next("delete", after(lambda: create_elsewhere(world), lost_before))
    with pytest.raises(OutcomeUnknown):
        world.client.delete_if_match("a", etag=etag)


def test_answers_lost_for_ever_end_in_a_typed_failure(world: World) -> None:
    """Each was proven to have done nothing, so nothing happened in all."""
    etag = world.objects.put("a", b"old").etag
    world.script.next("put", *[lost_before] * 5)
    with pytest.raises(Unavailable, match="5 attempts"):
        world.client.put_if_match("a", b"mine", etag=etag)
    assert world.record(etag=etag).released
    assert world.objects.get("a").data == b"old"


def test_a_take_over_is_conditional_on_nothing_but_absence_at_first(world: World) -> None:
    """The first request for a lease never overwrites a record."""
    world.client.put_if_absent("a", b"mine")
    assert world.script.sent("take")[0]["condition"] == Absent()
