"""Mutants of writes under a lease: their deadlines, and lost answers."""

from __future__ import annotations

from commitlog._util.retry import Backoff
from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.stores import SlowHeads
from mutation.worlds import (
    BOTH,
    FAST,
    LONGER,
    RELEASED,
    SMALL,
    TWO_WINNERS,
    UNEXPLAINED,
    one_winner,
    racing,
)
from sim.leases.actions import create, delete, edit, remove, update
from sim.nodes import ClockSkew, in_sequence

__all__ = ["LEASE_WRITES"]

_RETURNED = "return look.expiry(lease.ends, self._settings.timeout, reserve)"

LEASE_WRITES: tuple[Mutant, ...] = (
    Mutant(
        name="no expiry on the data request",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the data request expires with the lease, and the store enforces the expiry",
        edit=Edit(("LeaseCommitter._expiry", _RETURNED, "return None")),
        setting=racing(BOTH, Fault.DELAYED, delays=(4.5,)),
        caught=UNEXPLAINED,
        story=(
            "A's request arrives 4.5 s late. B has waited correctly, and has written. A's object "
            "replaces B's. A finds its own nonce, and returns successfully."
        ),
    ),
    Mutant(
        name="the expiry dated by the client's clock",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the expiry is dated by the store's own clock",
        edit=Edit(
            (
                "LeaseCommitter._expiry",
                _RETURNED,
                (
                    "expiry = look.expiry(lease.ends, self._settings.timeout, 0)\n"
                    "return expiry and RequestExpiry(int(self._clock.epoch()), expiry.seconds)"
                ),
            )
        ),
        setting=racing(BOTH, Fault.DELAYED, delays=(4.5,), clocks={"A": ClockSkew(offset=60)}),
        caught=UNEXPLAINED,
        story=(
            "A's clock is a minute ahead, so the store accepts A's request a minute too long. It "
            "arrives after B has written."
        ),
    ),
    Mutant(
        name="the expiry not rounded down by a second",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the expiry is never later than the end of the lease, even after rounding",
        edit=Edit(
            (
                "_HeadResult.expiry",
                "math.floor(min(ends - self.received, timeout) - reserve) - 1",
                "math.floor(min(ends - self.received, timeout) - reserve)",
            )
        ),
        setting=racing(BOTH, Fault.DELAYED, delays=(3.0,), clocks={"B": FAST}),
        caught=UNEXPLAINED,
        story=(
            "A's request arrives at the very end of its lease. B's clock is as fast as allowed, and B "
            "has taken over. A store that cuts its clock to whole seconds would accept A's request "
            "for almost a second more."
        ),
    ),
    Mutant(
        name="a pause before the lease added to the expiry",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the expiry covers only the rest of the lease",
        edit=Edit(
            (
                "_HeadResult.expiry",
                "math.floor(min(ends - self.received, timeout) - reserve) - 1",
                "math.floor(ends - self.received - reserve) - 1",
            )
        ),
        setting=racing(
            BOTH,
            forced=(Forced("A clock", Fault.PAUSED, 9, 4), Forced("A put k", Fault.DELAYED, 1, 7)),
            patience=12,
            starts={"B": 4},
            clocks={"A": FAST, "B": FAST},
            records=[RELEASED],
            settings=lambda cls: cls(**LONGER),
        ),
        caught=UNEXPLAINED,
        story=(
            "A is paused for 4 s between its HEAD and its lease. These are 6 s on its own clock, "
            "which is faster than the store's. Added to a lease of 6 s on A's clock, they let the "
            "store accept A's request until 11. B takes over at 10."
        ),
    ),
    Mutant(
        name="the expiry a full timeout after the HEAD",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the expiry covers only the rest of the lease",
        edit=Edit(
            (
                "_HeadResult.expiry",
                "math.floor(min(ends - self.received, timeout) - reserve)",
                "round(timeout - reserve)",
            )
        ),
        setting=racing(
            BOTH,
            forced=(
                Forced("A head k", Fault.DELAYED, 1, 3),
                Forced("A put k", Fault.DELAYED, 1, 4),
            ),
            patience=5,
            starts={"B": 0.1},
            clocks={"B": FAST},
            settings=lambda cls: cls(**LONGER),
        ),
        caught=UNEXPLAINED,
        story=(
            "The answer to A's HEAD took half of A's lease. The expiry is a full timeout after the "
            "date of that answer, so the store accepts A's request until 8. B's clock is as fast as "
            "allowed, and B takes over at 6.1."
        ),
    ),
    Mutant(
        name="read-back before the expiry taken as final",
        where="protocol.md#steps",
        rule="only a read that begins after the expiry is final",
        edit=Edit(("LeaseCommitter._resolve_unknown", "if over:\n    return", "if True:\n    return")),
        setting=racing(
            {"A": create("k"), "B": edit("k")},
            forced=(Forced("A put k", Fault.DELAYED, 1, 2),),
            patience=0.5,
            starts={"B": 1.7},
        ),
        caught=UNEXPLAINED,
        story=(
            "A reads back too early, finds nothing, and repeats its request successfully. B replaces "
            "A's object. Then A's first request arrives, and overwrites B's object with the old "
            "version."
        ),
        saved=False,
    ),
    Mutant(
        name="the read-back that first shows the end of the expiry taken as final",
        where="protocol.md#steps",
        rule="only a read that *begins* after the expiry is final",
        edit=Edit(
            (
                "LeaseCommitter._resolve_unknown",
                "    raise mutation.unknown(late) from lost\ncontinue",
                "    raise mutation.unknown(late) from lost\nreturn reading, look.info",
            )
        ),
        setting=racing(
            {"A": update("k"), "B": edit("k")},
            forced=(Forced("A put k", Fault.DELAYED, 1, 3),),
            patience=2.5,
            starts={"B": 5.2},
            objects={"k": "old"},
            wrap=SlowHeads,
            settings=lambda cls: cls(**LONGER),
        ),
        caught=UNEXPLAINED,
        story=(
            "A HEAD takes 2 s, and the answer has the date of its end. A reads back at 4.5, and the "
            "answer is dated 6, which is after the expiry of its request. But the answer shows the "
            "object of 4.5, and the request arrives at 5. When A tries again, B has replaced A's "
            "object."
        ),
        saved=False,
    ),
    Mutant(
        name="the last second of the expiry counted as over",
        where="protocol.md#steps",
        rule="only a read that begins when the store's own clock is *past* the expiry is final",
        edit=Edit(
            (
                "LeaseCommitter._resolve_unknown",
                "store_time > expiry.expires_at",
                "store_time >= expiry.expires_at",
            )
        ),
        setting=racing(
            {"A": update("k"), "B": edit("k")},
            forced=(Forced("A put k", Fault.DELAYED, 1, 2),),
            patience=1,
            starts={"B": 2.2},
            objects={"k": "old"},
            settings=lambda cls: cls(**{**SMALL, "test_interval": 1}),
        ),
        caught=UNEXPLAINED,
        story=(
            "A's request expires at 2. A reads back when the store's clock shows 2, finds the old "
            "object, and takes that as final. The request arrives in that very second. When A tries "
            "again, B has replaced A's object."
        ),
        saved=False,
    ),
    Mutant(
        name="a read-back taken as final without an expiry",
        where="protocol.md#lost-answers",
        rule=(
            "if the store does not enforce the expiry, a request that has had no effect by then is "
            "`OutcomeUnknown`"
        ),
        edit=Edit(
            (
                "LeaseCommitter._resolve_unknown",
                "if not enforced:\n    raise mutation.unknown(late) from lost",
                "",
            )
        ),
        setting=racing(
            {"A": create("k"), "B": edit("k")},
            forced=(Forced("A put k", Fault.DELAYED, 1, 5),),
            starts={"B": 4.5},
            settings=lambda cls: cls(**{**SMALL, "test_interval": 1}),
        ),
        caught=UNEXPLAINED,
        story=(
            "A finds nothing when its request should have expired, and repeats it successfully. B "
            "replaces A's object. Then A's first request arrives, and restores the old version."
        ),
        saved=True,
    ),
    Mutant(
        name="an unknown outcome reported as a failure",
        where="protocol.md#lost-answers",
        rule="a lost answer, and then another object → `OutcomeUnknown`",
        edit=Edit(
            (
                "LeaseCommitter._resolve_unknown",
                'mutation.unknown("the present object was written by another writer") from lost',
                "mutation.contradiction(look.info)",
            )
        ),
        setting=racing(
            {"A": update("k"), "B": edit("k")},
            Fault.LOST_RESPONSE,
            objects={"k": "old"},
            starts={"B": 1},
        ),
        caught=UNEXPLAINED,
        story=(
            "A's write happened, and B replaced A's object before A read it back. A reports that "
            "nothing changed."
        ),
        saved=False,
    ),
    Mutant(
        name="a refusal after a lost answer reported as a failure",
        where="protocol.md#lost-answers",
        rule="a creation by lease that lost an answer and was then refused is `OutcomeUnknown`",
        edit=Edit(
            (
                "LeaseCommitter.run",
                "if lost is not None and isinstance(mutation.condition, IfAbsent):",
                "if False:",
            )
        ),
        setting=racing(
            {"A": create("k"), "B": in_sequence(remove("k"), create("k"))},
            forced=(Forced("A put k", Fault.LOST_RESPONSE),),
            starts={"B": 1},
        ),
        caught=UNEXPLAINED,
        story=(
            "A's object was created, and B removed it before A read it back. A tries again and is "
            "refused, because B has created another object. A reports that nothing was written."
        ),
        saved=False,
    ),
    Mutant(
        name="any object taken for one's own",
        where="protocol.md#lost-answers",
        rule="an object with my nonce is mine",
        edit=Edit(
            (
                "Mutation.recognises",
                " and info is not None and info.nonce == self.nonce",
                " and info is not None",
            )
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story="B finds A's object, and reports it as its own.",
        saved=False,
    ),
    Mutant(
        name="a deletion seen after the lease taken for one's own",
        where="protocol.md#lost-answers",
        rule=(
            "a missing object proves my deletion only if I see it before my lease ended, or while it "
            "can be renewed"
        ),
        edit=Edit(
            (
                "LeaseCommitter._resolve_unknown",
                "self._check_mine(lease, mutation, look.received, lost)\nreturn reading",
                "return reading",
            )
        ),
        setting=racing(
            {"A": delete("k"), "B": delete("k")},
            forced=(Forced("A delete k", Fault.LOST_REQUEST),),
            objects={"k": "old"},
            starts={"B": 0.1},
        ),
        caught=UNEXPLAINED,
        story=(
            "A's deletion never arrived. When A's lease is over, B takes it over and deletes the "
            "object. A finds no object, and reports its own deletion."
        ),
        saved=False,
    ),
    Mutant(
        name="a large body sent under the lease",
        where="protocol.md#steps",
        rule="a body that the link cannot carry within the reserve is staged first",
        edit=Edit(
            (
                "ConditionalStore._put",
                "len(small) > self._settings.largest_body",
                "len(small) > STAGE_ABOVE",
            )
        ),
        setting=racing(
            BOTH,
            bandwidths={"A": 0.3},
            settings=lambda cls: cls(**{**SMALL, "min_bandwidth": 0.3}),
        ),
        caught=UNEXPLAINED,
        story=(
            "A's request begins at 0, and the store accepts it in time. Its body takes ten seconds. B "
            "has taken over and written by then."
        ),
        saved=False,
    ),
    Mutant(
        name="no time reserved for the body",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the expiry is an eighth of the timeout before the end of the lease",
        edit=Edit(
            (
                "_HeadResult.expiry",
                "math.floor(min(ends - self.received, timeout) - reserve) - 1",
                "math.floor(min(ends - self.received, timeout)) - 1",
            )
        ),
        setting=racing(
            BOTH,
            Fault.DELAYED,
            delays=(2.9,),
            patience=4,
            clocks={"B": FAST},
            bandwidths={"A": 8.0},
            settings=lambda cls: cls(**{**SMALL, "min_bandwidth": 8.0}),
        ),
        caught=UNEXPLAINED,
        story=(
            "A's request begins at 2.9, in the last second that the store accepts. Its three bytes "
            "take 0.375 s. B's clock is as fast as allowed, and B takes over at 3."
        ),
        saved=False,
    ),
    Mutant(
        name="a late answer accepted",
        where="protocol.md#steps",
        rule="an answer after the end of the lease counts only if the lease can still be renewed",
        edit=Edit(
            (
                "LeaseCommitter.run",
                (
                    "self._check_mine(lease, mutation, self._clock.monotonic())\n"
                    "self._release(lease)\n"
                    "return result"
                ),
                "self._release(lease)\nreturn result",
            )
        ),
        setting=racing(BOTH, bandwidths={"A": 0.3}, judge=one_winner),
        caught=TWO_WINNERS,
        story=(
            "A's link is slower than its settings say. Its body takes ten seconds, and replaces B's "
            "object. Both calls return successfully."
        ),
        saved=False,
    ),
    Mutant(
        name="the lease read again instead of renewed",
        where="protocol.md#steps",
        rule="an answer after the end of the lease counts only if the lease can still be *renewed*",
        edit=Edit(
            (
                "LeaseCommitter._check_mine",
                "lease.begin_acquire(lease.record)() is None",
                "lease.observe() is None",
            )
        ),
        setting=racing(
            BOTH,
            Fault.PAUSED,
            delays=(10.0,),
            bandwidths={"A": 0.3},
            judge=one_winner,
        ),
        caught=TWO_WINNERS,
        story=(
            "At 10 B has sent its HEAD, and is about to take over the lease. Then A's body arrives. A "
            "finds its own record still in the table, and B replaces it a moment later."
        ),
        saved=False,
    ),
    Mutant(
        name="a nonce found under a lease that was interrupted",
        where="protocol.md#steps",
        rule="an object that a retry finds counts only if no other client held the lease meanwhile",
        edit=Edit(
            (
                "LeaseCommitter.run",
                "if lease.interrupted:\n    raise mutation.unknown(_OVERTAKEN) from lost",
                "",
            )
        ),
        setting=racing(
            BOTH,
            forced=(Forced("A put k", Fault.DELAYED, 1, 1.9),),
            patience=1,
            starts={"B": 6.5},
            bandwidths={"A": 0.3},
            judge=one_winner,
        ),
        caught=TWO_WINNERS,
        story=(
            "At 11 A has given up its first request, and finds nothing. B takes over before A has "
            "renewed its lease, and writes. Then A's body arrives and replaces B's object. A finds "
            "its nonce when it has the lease again."
        ),
        saved=False,
    ),
    Mutant(
        name="a lost answer resolved at the expiry",
        where="protocol.md#steps",
        rule="after a lost answer the lease is kept until a body that began in time has arrived",
        edit=Edit(("LeaseCommitter._resolve_unknown", "expiry.expires_at + body", "expiry.expires_at")),
        setting=racing(
            BOTH,
            forced=(Forced("A put k", Fault.DELAYED, 1, 1.9),),
            patience=1,
            bandwidths={"A": 8.0},
            backoff=lambda _: Backoff(tries=1),
            settings=lambda cls: cls(**{**SMALL, "min_bandwidth": 8.0, "test_interval": 0.2}),
        ),
        caught=UNEXPLAINED,
        story=(
            "A's request begins at 1.9, just before its expiry, and its body arrives at 2.275. At "
            "2.175 A finds nothing, and releases the lease. B takes it and writes. Then A's body "
            "arrives and replaces B's object."
        ),
        saved=False,
    ),
)
