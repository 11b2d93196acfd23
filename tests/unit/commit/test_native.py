"""Conditions that the store enforces, over a store whose answers get lost."""

from __future__ import annotations

from typing import Any

import pytest

from commitlog.commit.probe_report import Kind
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    Conflict,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import NONCE, IfAbsent, IfMatch
from commitlog.stores.body import STAGE_ABOVE
from support.commit import World, after, lost_after, lost_before, proven, raising, repeated


@pytest.fixture
def world() -> World:
    """A store that was proven to enforce every condition."""
    return World(mode="native", ignores=False, probe_report=proven(*Kind))


def theirs(world: World, path: str = "a") -> str:
    """Another writer's object; returns its etag."""
    return world.objects.put(path, b"theirs", metadata={NONCE: "their word"}).etag


def test_a_create_is_one_round_trip(world: World) -> None:
    """One request, with its condition; nothing is read back."""
    world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["put"]
    assert world.script.sent("put")[0]["condition"] == IfAbsent()


def test_an_etag_is_sent_in_quotes(world: World) -> None:
    """However the caller spelt it."""
    etag = theirs(world)
    world.client.put_if_match("a", b"mine", etag=etag.strip('"'))
    assert world.script.sent("put")[0]["condition"] == IfMatch(etag)


def test_a_refusal_is_believed_if_what_is_there_is_not_mine(world: World) -> None:
    """Of a put, one look at the object tells; a deletion has nothing to be told by."""
    theirs(world)
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    with pytest.raises(PreconditionFailed):
        world.client.put_if_match("a", b"mine", etag="old")
    with pytest.raises(PreconditionFailed):
        world.client.delete_if_match("a", etag="old")
    assert world.script.log == ["put", "head", "put", "head", "delete"]


def test_a_put_that_was_repeated_on_the_way_is_recognised(world: World) -> None:
    """The second one met the first, and its refusal came back; the object bears the nonce."""
    world.script.next("put", repeated, repeated)
    etag = world.client.put_if_absent("a", b"one").etag
    assert etag == world.objects.head("a").etag
    assert world.client.put_if_match("a", b"two", etag=etag).etag == world.objects.head("a").etag


def test_a_publication_that_was_repeated_on_the_way_is_recognised(world: World) -> None:
    """The second one found no upload any more, and the object bears the nonce."""
    world.script.next("publish", repeated)
    staged = world.objects.stage("a", b"mine")
    assert world.client.publish_if_absent(staged).etag == world.objects.head("a").etag


def test_a_refusal_that_cannot_be_looked_into_leaves_the_outcome_unknown(world: World) -> None:
    """It may be the answer to a repetition."""
    theirs(world)
    world.script.next("head", raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match=r"already.*down"):
        world.client.put_if_absent("a", b"mine")


def test_my_own_success_is_recognised_behind_a_refusal(world: World) -> None:
    """The retry of a put that had landed is refused; the object bears my nonce."""
    world.script.next("put", lost_after)
    result = world.client.put_if_absent("a", b"mine")
    assert result.etag == world.objects.head("a").etag
    assert world.script.log == ["put", "put", "head"]


def test_all_attempts_carry_one_nonce(world: World) -> None:
    """So any of them is recognised."""
    world.script.next("put", lost_before, raising(Conflict("busy")))
    world.client.put_if_absent("a", b"mine")
    nonces = {sent["metadata"][NONCE] for sent in world.script.sent("put")}
    assert len(world.script.sent("put")) == 3
    assert nonces == {world.objects.head("a").nonce}


def test_a_conflict_does_not_mean_that_there_is_an_object(world: World) -> None:
    """409 says try again."""
    world.script.next("put", raising(Conflict("409")), raising(Conflict("409")))
    assert world.client.put_if_absent("a", b"mine")


@pytest.mark.parametrize("error", [Conflict("409"), Unavailable("503")])
def test_retries_have_an_end(world: World, error: Exception) -> None:
    """The last failure comes out; nothing happened."""
    world.script.next("put", *[raising(error)] * 5)
    with pytest.raises(type(error)):
        world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["put"] * 5


def test_an_object_over_mine_leaves_the_outcome_unknown(world: World) -> None:
    """Mine may have landed, and been replaced since."""
    etag = theirs(world)
    world.script.next("put", lost_before, after(lambda: theirs(world)))
    with pytest.raises(OutcomeUnknown, match="word-0"):
        world.client.put_if_match("a", b"mine", etag=etag)


def test_an_object_that_is_gone_again_leaves_the_outcome_unknown(world: World) -> None:
    """The refusal told of an object that was perhaps mine."""
    world.script.next("put", lost_before, after(lambda: theirs(world)))
    world.script.next("head", after(lambda: world.objects.delete("a")))
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", b"mine")


def test_a_denial_after_a_lost_answer_leaves_the_outcome_unknown(world: World) -> None:
    """The first attempt may have landed before the permission went."""
    world.script.next("put", lost_before, raising(AccessDenied("no")))
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", b"mine")


def test_a_store_that_stays_silent_leaves_the_outcome_unknown(world: World) -> None:
    """Also when it cannot be read back."""
    world.script.next("put", *[lost_before] * 5)
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", b"mine")
    world.script.next("put", *[lost_before] * 5)
    world.script.next("head", raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match="down"):
        world.client.put_if_absent("b", b"mine")


def test_the_last_silent_attempt_is_read_back(world: World) -> None:
    """It may have landed."""
    world.script.next("put", *[lost_before] * 4, lost_after)
    assert world.client.put_if_absent("a", b"mine").etag == world.objects.head("a").etag


def test_a_copy_is_retried_while_its_target_is_absent(world: World) -> None:
    """The store refuses the second one if the first landed."""
    world.objects.put("source", b"x")
    world.script.next("copy", lost_before)
    world.client.copy_if_absent("source", "a")
    assert world.script.log == ["copy", "copy"]


def test_a_copy_that_finds_its_target_leaves_the_outcome_unknown(world: World) -> None:
    """A copy has no nonce of its own: the target may be mine or another's copy of the same source."""
    world.objects.put("source", b"x")
    world.script.next("copy", lost_after)
    with pytest.raises(OutcomeUnknown):
        world.client.copy_if_absent("source", "a")


def test_a_copy_without_source_is_refused(world: World) -> None:
    """Nothing happened."""
    with pytest.raises(NotFound):
        world.client.copy_if_absent("source", "a")


@pytest.mark.parametrize(("fate", "expected"), [(lost_before, None), (lost_after, OutcomeUnknown)])
def test_a_deletion_is_retried_while_the_object_is_there(
    world: World, fate: Any, expected: type[Exception] | None
) -> None:
    """If it is gone, it may have been mine or another's deletion."""
    etag = theirs(world)
    world.script.next("delete", fate)
    if expected is None:
        world.client.delete_if_match("a", etag=etag)
    else:
        with pytest.raises(expected):
            world.client.delete_if_match("a", etag=etag)
    assert world.objects.begin_head("a")().info is None


def test_publishing_is_idempotent(world: World) -> None:
    """Whoever published it, and whether or not the answer was lost, the object bears the nonce."""
    staged = world.objects.stage("a", b"mine")
    world.script.next("publish", lost_after)
    first = world.client.publish_if_absent(staged)
    assert world.client.publish_if_absent(staged) == first


def test_publishing_over_another_s_object_is_refused(world: World) -> None:
    """The upload stays staged."""
    staged = world.objects.stage("a", b"mine")
    theirs(world)
    with pytest.raises(AlreadyExists):
        world.client.publish_if_absent(staged)
    assert [upload.upload_id for upload in world.objects.list_staged()] == [staged.upload_id]


@pytest.mark.parametrize("call", ["put", "publish"])
def test_a_missing_bucket_is_reported_as_such(world: World, call: str) -> None:
    """A look at the object could not tell the missing bucket from a missing object."""
    staged = world.objects.stage("a", b"mine")
    client = world.client
    send = {
        "put": lambda: client.put_if_absent("a", b"mine"),
        "publish": lambda: client.publish_if_absent(staged),
    }
    world.script.next(call, raising(BucketNotFound("no such bucket")))
    with pytest.raises(BucketNotFound):
        send[call]()
    assert world.script.log == [call]


def test_a_missing_bucket_after_a_lost_answer_leaves_the_outcome_unknown(world: World) -> None:
    """The first request may have landed, for instance if the second went to another endpoint."""
    world.script.next("put", lost_before, raising(BucketNotFound("no such bucket")))
    with pytest.raises(OutcomeUnknown, match="no such bucket"):
        world.client.put_if_absent("a", b"mine")
    world.script.next("put", lost_after, raising(BucketNotFound("no such bucket")))
    assert world.client.put_if_absent("b", b"mine").etag == world.objects.head("b").etag


def test_publishing_what_is_not_staged_is_refused(world: World) -> None:
    """It was aborted, and its object is not there."""
    staged = world.objects.stage("a", b"mine")
    world.objects.abort(staged)
    with pytest.raises(NotFound):
        world.client.publish_if_absent(staged)


# S3 tells whoever gets a 409 for the completion of an upload to begin the upload anew. It does not say
# whether it has dropped the old one by then.


def drop_uploads(world: World) -> None:
    """What S3 may do with an upload when it answers 409."""
    for upload in list(world.objects.list_staged()):
        world.objects.abort(upload)


LARGE = bytes(STAGE_ABOVE + 1)


def test_an_upload_that_outlives_a_conflict_is_published(world: World) -> None:
    """It is uploaded once, and completed when the rival is out of the way."""
    world.script.next("publish", raising(Conflict("409")))
    world.client.put_if_absent("a", LARGE)
    assert world.script.log == ["head", "stage", "publish", "publish"]
    assert world.objects.get("a").data == LARGE


@pytest.mark.parametrize("mode", ["native", "lease"])
def test_an_upload_that_goes_with_a_conflict_is_a_conflict(mode: str) -> None:
    """Nothing was written, and nobody is in the way: the caller may write it again."""
    world = World(mode=mode, ignores=False, probe_report=proven(*Kind))
    conflict = after(lambda: drop_uploads(world), raising(Conflict("409")))
    world.script.next("publish", conflict)
    with pytest.raises(Conflict, match="Write it again"):
        world.client.put_if_absent("a", LARGE)
    etag = theirs(world)
    world.script.next("publish", conflict)
    with pytest.raises(Conflict, match="Write it again"):
        world.client.put_if_match("a", LARGE, etag=etag)
    assert world.objects.get("a").data == b"theirs"
    assert world.client.put_if_match("a", LARGE, etag=etag)


def test_a_rival_that_made_the_conflict_is_named(world: World) -> None:
    """If the object is the rival's by then, the condition does not hold."""

    def rival() -> None:
        theirs(world)
        drop_uploads(world)

    world.script.next("publish", after(rival, raising(Conflict("409"))))
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", LARGE)
    etag = world.objects.put("b", b"old").etag
    world.script.next(
        "publish",
        after(lambda: (theirs(world, "b"), drop_uploads(world)), raising(Conflict("409"))),
    )
    with pytest.raises(PreconditionFailed):
        world.client.put_if_match("b", LARGE, etag=etag)


def test_a_lost_answer_before_the_upload_went_leaves_the_outcome_unknown(world: World) -> None:
    """It may be gone because it was published, and its object removed since."""
    gone = after(lambda: drop_uploads(world), raising(Conflict("409")))
    world.script.next("publish", lost_before, gone)
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", LARGE)


def test_an_upload_of_the_caller_s_that_goes_with_a_conflict_is_missing(world: World) -> None:
    """Who staged it has to stage it again."""
    staged = world.objects.stage("a", b"mine")
    world.script.next("publish", after(lambda: drop_uploads(world), raising(Conflict("409"))))
    with pytest.raises(NotFound):
        world.client.publish_if_absent(staged)


def test_an_upload_is_not_called_missing_unless_its_object_was_looked_for(world: World) -> None:
    """It may have been published before, which is a success."""
    staged = world.objects.stage("a", b"mine")
    world.client.publish_if_absent(staged)
    world.script.next("head", raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match="down"):
        world.client.publish_if_absent(staged)
