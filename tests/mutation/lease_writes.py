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
        rule="the data request expires with the lease, and the store sees to that",
        edit=Edit(("LeaseCommitter._expiry", _RETURNED, "return None")),
        setting=racing(BOTH, Fault.DELAYED, delays=(4.5,)),
        caught=UNEXPLAINED,
        story=(
            "A's request comes 4.5 s late. B has waited as it should, and has written; A's object "
            "replaces B's, and A, who finds its own nonce, calls that success."
        ),
    ),
    Mutant(
        name="the expiry dated by one's own clock",
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
            "comes when B has written."
        ),
    ),
    Mutant(
        name="the expiry not rounded down by a second",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the expiry is never later than the end of the lease, whatever is rounded on the way",
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
            "A's request comes at the very end of its lease, when B, whose clock is as fast as "
            "clocks may be, has taken over. A store that cuts its clock to whole seconds would "
            "accept it for almost a second more."
        ),
    ),
    Mutant(
        name="a pause before the lease added to the expiry",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the expiry is for the rest of the lease only",
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
            "A is paused for 4 s between its look and its lease; 6 s on its own clock, which goes "
            "faster than the store's. Added to a lease of 6 s on A's clock, they make the store "
            "accept A's request until 11, and B has taken over at 10."
        ),
    ),
    Mutant(
        name="the expiry a full timeout after the look",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the expiry is for what is left of the lease",
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
            "The answer to A's HEAD took half of A's lease. Counted from its date, a whole one lets"
            " the store accept A's request until 8, and B, on a clock that is as fast as clocks may"
            " be, has taken over at 6.1."
        ),
    ),
    Mutant(
        name="read-back before the expiry taken as final",
        where="protocol.md#steps",
        rule="only a read begun after the expiry is final",
        edit=Edit(("LeaseCommitter._resolve_unknown", "if over:\n    return", "if True:\n    return")),
        setting=racing(
            {"A": create("k"), "B": edit("k")},
            forced=(Forced("A put k", Fault.DELAYED, 1, 2),),
            patience=0.5,
            starts={"B": 1.7},
        ),
        caught=UNEXPLAINED,
        story=(
            "A reads back too early, sees nothing, and sends its request again, with success. B "
            "replaces what A wrote. Then A's first request arrives, and puts the old version back "
            "over B's."
        ),
        saved=False,
    ),
    Mutant(
        name="the read-back that shows that it is time taken as final",
        where="protocol.md#steps",
        rule="only a read *begun* after the expiry is final",
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
            "A HEAD takes 2 s, and is dated when it is answered. A reads back at 4.5, and is told "
            "that it is 6, which is past the expiry of its request. But what it is told of is the "
            "object of 4.5, and the request arrives at 5. By the time A tries again, B has replaced"
            " what A wrote."
        ),
        saved=False,
    ),
    Mutant(
        name="the last second of the expiry taken for over",
        where="protocol.md#steps",
        rule="only a read begun when the store's own clock is *past* the expiry is final",
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
            "A's request expires at 2. A reads back when the store's clock says 2, sees the old "
            "object, and takes that as final; the request arrives in that very second. By the time "
            "A tries again, B has replaced what A wrote."
        ),
        saved=False,
    ),
    Mutant(
        name="a read-back taken as final where nothing expires",
        where="protocol.md#lost-answers",
        rule="if the store does not enforce the expiry, what has not landed by then is `OutcomeUnknown`",
        edit=Edit(
            (
                "LeaseCommitter._resolve_unknown",
                "if not fenced:\n    raise mutation.unknown(late) from lost",
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
            "A sees nothing when its request should have expired, and sends it again, with success."
            " B replaces what A wrote. Then A's first request arrives, and puts the old version "
            "back."
        ),
        saved=True,
    ),
    Mutant(
        name="unknown read as failure",
        where="protocol.md#lost-answers",
        rule="a lost answer, and then another object → `OutcomeUnknown`",
        edit=Edit(
            (
                "LeaseCommitter._resolve_unknown",
                'mutation.unknown("the present object is of another writer") from lost',
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
            "A's write happened, and B replaced what A had written before A could read it back. A "
            "is told that nothing was changed."
        ),
        saved=False,
    ),
    Mutant(
        name="a refusal after a lost answer read as failure",
        where="protocol.md#lost-answers",
        rule="a creation that lost an answer and was then refused is `OutcomeUnknown`",
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
            "A's object came, and B removed it again before A could read it back. A tries again, is"
            " refused by another object of B's, and is told that nothing was written."
        ),
        saved=False,
    ),
    Mutant(
        name="any object taken for one's own",
        where="protocol.md#lost-answers",
        rule="an object is mine if it bears my nonce",
        edit=Edit(
            (
                "Mutation.recognises",
                " and info is not None and info.nonce == self.nonce",
                " and info is not None",
            )
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story="B finds A's object, and is told that it is B's.",
        saved=False,
    ),
    Mutant(
        name="what is seen after the lease taken for one's own",
        where="protocol.md#lost-answers",
        rule=(
            "that the object is gone was my doing if it is seen before my lease ended, or the lease can "
            "still be renewed"
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
            "A's deletion never arrived. When A's lease is over B takes it over and deletes the "
            "object; A sees that it is gone, and is told that A did it."
        ),
        saved=False,
    ),
    Mutant(
        name="a large body sent under the lease",
        where="protocol.md#steps",
        rule="a body that the link does not carry within the reserve is staged first",
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
            "A's request begins at 0, and the store finds it in time. Its body is there after ten "
            "seconds; B has taken over and written by then."
        ),
        saved=False,
    ),
    Mutant(
        name="no time kept for the body",
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
            "take 0.375 s. B, whose clock is as fast as clocks may be, has taken over at 3."
        ),
        saved=False,
    ),
    Mutant(
        name="a late answer believed",
        where="protocol.md#steps",
        rule="an answer that comes after the lease counts only if the lease can still be renewed",
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
            "A's link is slower than it says. Its body is there after ten seconds, over B's object, "
            "and the store tells both of success."
        ),
        saved=False,
    ),
    Mutant(
        name="the lease read again instead of renewed",
        where="protocol.md#steps",
        rule="an answer that comes after the lease counts only if the lease can still be *renewed*",
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
            "At 10 B has looked and is about to take the lease over. Then A's body is there. A finds "
            "its own record still in the table, and B replaces it a moment later."
        ),
        saved=False,
    ),
    Mutant(
        name="a nonce found under a lease that was interrupted",
        where="protocol.md#steps",
        rule="an object that is found by a retry counts only if nobody else held the lease meanwhile",
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
            "At 11 A has given up on its first request, and finds nothing. B takes over before A has "
            "renewed its lease, and writes. Then A's body is there, over B's object, and A finds its "
            "nonce when it has the lease again."
        ),
        saved=False,
    ),
    Mutant(
        name="a lost answer settled at the expiry",
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
            "A's request begins at 1.9, just before its expiry, and its body is there at 2.275. At "
            "2.175 A finds nothing, and releases the lease. B takes it and writes. Then A's body is "
            "there, over B's object."
        ),
        saved=False,
    ),
)
