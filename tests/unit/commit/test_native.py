"""Conditions that the store enforces, over a store that loses responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from commitlog.commit.probe_report import Kind
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    ConfigurationError,
    Conflict,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import NONCE, IfAbsent, IfMatch, PutResult
from commitlog.stores.body import STAGE_ABOVE
from support.commit import World, after, lost_after, lost_before, proven, raising, repeated


@pytest.fixture
def world() -> World:
    """A store that is proven to enforce every condition."""
    return World(mode="native", ignores=False, probe_report=proven(*Kind))


def theirs(world: World, path: str = "a") -> str:
    """Write another writer's object; return its etag."""
    return world.objects.put(path, b"theirs", metadata={NONCE: "their word"}).etag


def test_a_create_is_one_round_trip(world: World) -> None:
    """One request with its condition is sent, and nothing is read back."""
    world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["put"]
    assert world.script.sent("put")[0]["condition"] == IfAbsent()


@pytest.mark.parametrize("etag", [None, 7, b"etag"])
def test_an_etag_is_text(world: World, etag: Any) -> None:
    """Nothing is sent for another value, such as None for an etag that is not known."""
    theirs(world)
    with pytest.raises(ConfigurationError, match="an etag is a str"):
        world.client.put_if_match("a", b"mine", etag=etag)
    with pytest.raises(ConfigurationError, match="an etag is a str"):
        world.client.delete_if_match("a", etag=etag)
    assert not world.script.sent("put") and not world.script.sent("delete")


def test_an_etag_is_sent_in_quotes(world: World) -> None:
    """The caller may omit the quotes."""
    etag = theirs(world)
    world.client.put_if_match("a", b"mine", etag=etag.strip('"'))
    assert world.script.sent("put")[0]["condition"] == IfMatch(etag)


def test_a_refusal_is_accepted_if_the_object_is_not_ours(world: World) -> None:
    """After a refused put, one HEAD decides. A deletion leaves nothing to look at."""
    theirs(world)
    with pytest.raises(AlreadyExists):
        world.client.put_if_absent("a", b"mine")
    with pytest.raises(PreconditionFailed):
        world.client.put_if_match("a", b"mine", etag="old")
    with pytest.raises(PreconditionFailed):
        world.client.delete_if_match("a", etag="old")
    assert world.script.log == ["put", "head", "put", "head", "delete"]


def test_a_put_that_the_network_repeats_is_recognised(world: World) -> None:
    """The repetition conflicts with the first request and is refused, but the object has our nonce."""
    world.script.next("put", repeated, repeated)
    etag = world.client.put_if_absent("a", b"one").etag
    assert etag == world.objects.head("a").etag
    assert world.client.put_if_match("a", b"two", etag=etag).etag == world.objects.head("a").etag


def test_a_publication_that_the_network_repeats_is_recognised(world: World) -> None:
    """The repetition finds no upload, but the object has our nonce."""
    world.script.next("publish", repeated)
    staged = world.objects.stage("a", b"mine")
    assert world.client.publish_if_absent(staged).etag == world.objects.head("a").etag


def test_a_refusal_without_a_head_leaves_the_outcome_unknown(world: World) -> None:
    """It may be the response to a repeated request."""
    theirs(world)
    world.script.next("head", raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match=r"already.*down"):
        world.client.put_if_absent("a", b"mine")


def test_a_refused_retry_of_an_applied_put_is_a_success(world: World) -> None:
    """The retry is refused, but the object has our nonce."""
    world.script.next("put", lost_after)
    result = world.client.put_if_absent("a", b"mine")
    assert result.etag == world.objects.head("a").etag
    assert world.script.log == ["put", "put", "head"]


def test_all_attempts_carry_one_nonce(world: World) -> None:
    """So each of them can be recognised."""
    world.script.next("put", lost_before, raising(Conflict("busy")))
    world.client.put_if_absent("a", b"mine")
    nonces = {sent["metadata"][NONCE] for sent in world.script.sent("put")}
    assert len(world.script.sent("put")) == 3
    assert nonces == {world.objects.head("a").nonce}


def test_a_conflict_is_retried(world: World) -> None:
    """A 409 does not mean that the object exists."""
    world.script.next("put", raising(Conflict("409")), raising(Conflict("409")))
    assert world.client.put_if_absent("a", b"mine")


@pytest.mark.parametrize("error", [Conflict("409"), Unavailable("503")])
def test_retries_have_an_end(world: World, error: Exception) -> None:
    """The last error is raised, and nothing was written."""
    world.script.next("put", *[raising(error)] * 5)
    with pytest.raises(type(error)):
        world.client.put_if_absent("a", b"mine")
    assert world.script.log == ["put"] * 5


def test_an_object_that_may_have_replaced_ours_leaves_the_outcome_unknown(world: World) -> None:
    """Our object may have been written and then replaced."""
    etag = theirs(world)
    world.script.next("put", lost_before, after(lambda: theirs(world)))
    with pytest.raises(OutcomeUnknown, match="word-0"):
        world.client.put_if_match("a", b"mine", etag=etag)


def test_a_deleted_object_leaves_the_outcome_unknown(world: World) -> None:
    """The refusal was caused by an object that may have been ours."""
    world.script.next("put", lost_before, after(lambda: theirs(world)))
    world.script.next("head", after(lambda: world.objects.delete("a")))
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", b"mine")


def test_a_denial_after_a_lost_response_leaves_the_outcome_unknown(world: World) -> None:
    """The first attempt may have been applied before the permission was removed."""
    world.script.next("put", lost_before, raising(AccessDenied("no")))
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", b"mine")


def test_a_store_that_never_responds_leaves_the_outcome_unknown(world: World) -> None:
    """This holds with and without a HEAD afterwards."""
    world.script.next("put", *[lost_before] * 5)
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", b"mine")
    world.script.next("put", *[lost_before] * 5)
    world.script.next("head", raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match="down"):
        world.client.put_if_absent("b", b"mine")


def test_the_last_attempt_without_a_response_is_read_back(world: World) -> None:
    """It may have been applied."""
    world.script.next("put", *[lost_before] * 4, lost_after)
    assert world.client.put_if_absent("a", b"mine").etag == world.objects.head("a").etag


def test_a_copy_is_retried_while_its_target_is_missing(world: World) -> None:
    """The store refuses the second copy if the first was applied."""
    world.objects.put("source", b"x")
    world.script.next("copy", lost_before)
    world.client.copy_if_absent("source", "a")
    assert world.script.log == ["copy", "copy", "head"]


def test_a_copy_that_finds_its_target_leaves_the_outcome_unknown(world: World) -> None:
    """A copy has no nonce, so another client may have made the target from the same source."""
    world.objects.put("source", b"x")
    world.script.next("copy", lost_after)
    with pytest.raises(OutcomeUnknown):
        world.client.copy_if_absent("source", "a")


def test_a_copy_without_source_is_refused(world: World) -> None:
    """Nothing was written."""
    with pytest.raises(NotFound):
        world.client.copy_if_absent("source", "a")


@pytest.mark.parametrize(("fate", "expected"), [(lost_before, None), (lost_after, OutcomeUnknown)])
def test_a_deletion_is_retried_while_the_object_exists(
    world: World, fate: Any, expected: type[Exception] | None
) -> None:
    """If the object is missing, another client may have deleted it."""
    etag = theirs(world)
    world.script.next("delete", fate)
    if expected is None:
        world.client.delete_if_match("a", etag=etag)
    else:
        with pytest.raises(expected):
            world.client.delete_if_match("a", etag=etag)
    assert world.objects.begin_head("a")().info is None


def test_publishing_is_idempotent(world: World) -> None:
    """The object has the nonce of the upload, for any publisher and even after a lost response."""
    staged = world.objects.stage("a", b"mine")
    world.script.next("publish", lost_after)
    first = world.client.publish_if_absent(staged)
    assert world.client.publish_if_absent(staged) == first


def test_publishing_over_an_existing_object_is_refused(world: World) -> None:
    """The upload stays staged."""
    staged = world.objects.stage("a", b"mine")
    theirs(world)
    with pytest.raises(AlreadyExists):
        world.client.publish_if_absent(staged)
    assert [upload.upload_id for upload in world.objects.list_staged()] == [staged.upload_id]


@pytest.mark.parametrize("call", ["put", "publish"])
def test_a_missing_bucket_is_reported_as_such(world: World, call: str) -> None:
    """A HEAD could not distinguish it from a missing object."""
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


def test_a_missing_bucket_after_a_lost_response_leaves_the_outcome_unknown(world: World) -> None:
    """The first request may have been applied, for instance if the second went to another endpoint."""
    world.script.next("put", lost_before, raising(BucketNotFound("no such bucket")))
    with pytest.raises(OutcomeUnknown, match="no such bucket"):
        world.client.put_if_absent("a", b"mine")
    world.script.next("put", lost_after, raising(BucketNotFound("no such bucket")))
    assert world.client.put_if_absent("b", b"mine").etag == world.objects.head("b").etag


def test_publishing_an_aborted_upload_is_refused(world: World) -> None:
    """The upload was aborted, and its object does not exist."""
    staged = world.objects.stage("a", b"mine")
    world.objects.abort(staged)
    with pytest.raises(NotFound):
        world.client.publish_if_absent(staged)


# After a 409 for the completion of an upload, S3 tells the client to start the upload again. It does not
# say whether it has dropped the old upload.


def drop_uploads(world: World) -> None:
    """Drop all uploads, as S3 may do when it answers 409."""
    for upload in list(world.objects.list_staged()):
        world.objects.abort(upload)


LARGE = bytes(STAGE_ABOVE + 1)


def test_an_upload_that_outlives_a_conflict_is_published(world: World) -> None:
    """It is uploaded once, and completed after the conflict."""
    world.script.next("publish", raising(Conflict("409")))
    world.client.put_if_absent("a", LARGE)
    assert world.script.log == ["head", "stage", "publish", "publish"]
    assert world.objects.get("a").data == LARGE


@pytest.mark.parametrize("mode", ["native", "lease"])
def test_an_upload_that_a_conflict_drops_is_a_conflict(mode: str) -> None:
    """Nothing was written, and the condition still holds, so the caller may write again."""
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


def test_a_conflict_with_a_successful_rival_is_a_failed_condition(world: World) -> None:
    """The rival has written the object, so the condition does not hold."""

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


def test_a_dropped_upload_after_a_lost_response_leaves_the_outcome_unknown(world: World) -> None:
    """The upload may have been published, and its object removed afterwards."""
    gone = after(lambda: drop_uploads(world), raising(Conflict("409")))
    world.script.next("publish", lost_before, gone)
    with pytest.raises(OutcomeUnknown):
        world.client.put_if_absent("a", LARGE)


def test_a_caller_s_upload_that_a_conflict_drops_is_not_found(world: World) -> None:
    """The caller has to stage it again."""
    staged = world.objects.stage("a", b"mine")
    world.script.next("publish", after(lambda: drop_uploads(world), raising(Conflict("409"))))
    with pytest.raises(NotFound):
        world.client.publish_if_absent(staged)


def test_a_missing_upload_is_reported_only_after_a_head(world: World) -> None:
    """It may already have been published, which is a success."""
    staged = world.objects.stage("a", b"mine")
    world.client.publish_if_absent(staged)
    world.script.next("head", raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match="down"):
        world.client.publish_if_absent(staged)


# -- a success that is not the caller's ---------------------------------------------------------------


def claimed(_perform: Any) -> PutResult:
    """Do nothing, and answer with success, as to a request that is already being performed."""
    return PutResult(path="a", etag='"claimed"')


@pytest.mark.parametrize("mode", ["native", "lease"])
@pytest.mark.parametrize("operation", ["put", "update", "copy", "publish", "delete"])
def test_a_success_after_a_lost_answer_has_to_be_seen(operation: str, mode: Any) -> None:
    """A store may answer a repeated request with success, and refuse the first one a moment later."""
    world = World(mode=mode, ignores=False, probe_report=proven(*Kind))
    world.objects.put("source", b"x")
    etag = theirs(world) if operation in ("update", "delete") else ""
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: world.client.put_if_absent("a", b"mine"),
        "update": lambda: world.client.put_if_match("a", b"mine", etag=etag),
        "copy": lambda: world.client.copy_if_absent("source", "a"),
        "publish": lambda: world.client.publish_if_absent(staged, abort=True),
        "delete": lambda: world.client.delete_if_match("a", etag=etag),
    }
    staged = world.client.stage("a", b"mine")
    sent = "put" if operation == "update" else operation
    world.script.next(sent, lost_before, claimed)
    with pytest.raises(OutcomeUnknown, match="answered with success"):
        calls[operation]()
    assert len(world.script.sent(sent)) == 2
    # The own effect is a success, whatever the answer said.
    world = World(mode=mode, ignores=False, probe_report=proven(*Kind))
    world.objects.put("source", b"x")
    etag = theirs(world) if operation in ("update", "delete") else ""
    staged = world.client.stage("a", b"mine")
    world.script.next(sent, lost_before)
    calls[operation]()
    assert (world.objects.begin_head("a")().info is None) == (operation == "delete")


def test_an_upload_that_others_may_publish_is_read_back(world: World) -> None:
    """Another process sent the same request, which the store refuses. This one gets a success."""
    staged = world.client.stage("a", b"mine")
    theirs(world)
    world.script.next("publish", claimed)
    with pytest.raises(OutcomeUnknown, match="answered with success"):
        world.client.publish_if_absent(staged)


def test_a_success_that_cannot_be_read_back_is_unknown(world: World) -> None:
    """The HEAD fails."""
    world.script.next("put", lost_before)
    world.script.next("head", raising(Unavailable("no answer")))
    with pytest.raises(OutcomeUnknown, match="reading it back failed"):
        world.client.put_if_absent("a", b"mine")
