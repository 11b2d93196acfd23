"""Mutants of how a lease is acquired, and of the HEAD requests that go with it."""

from __future__ import annotations

from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.stores import BareHeads
from mutation.worlds import AS_IT_IS, BOTH, FAST, HELD, LONGER, SMALL, UNEXPLAINED, racing
from sim.leases.actions import read, update

__all__ = ["LEASE_ACQUIRE"]

LEASE_ACQUIRE: tuple[Mutant, ...] = (
    Mutant(
        name="the first record is put whatever is there",
        where="protocol.md#steps",
        rule="a record is created only if there is none",
        edit=Edit(
            (
                "Lease.begin_acquire",
                "Absent() if previous is None else previous.unchanged()",
                "None if previous is None else previous.unchanged()",
            )
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story="B overwrites A's record with its own, so both hold the lease.",
        saved=False,
    ),
    Mutant(
        name="own clock started after the send",
        where="protocol.md#waiting-rules-in-time",
        rule="the holder counts from *before* it sends the request for its lease",
        edit=Edit(
            (
                "Lease.begin_acquire",
                "self._first_sent.setdefault(wanted.generation, self._clock.monotonic())",
                "",
            ),
            (
                "Lease.begin_acquire.take",
                "return self._judge(found)",
                (
                    "self._first_sent.setdefault(wanted.generation, self._clock.monotonic())\n"
                    "return self._judge(found)"
                ),
            ),
        ),
        setting=racing(BOTH, Fault.DELAYED, delays=(3.0,), patience=4, clocks={"B": FAST}),
        caught=UNEXPLAINED,
        story=(
            "A's record is there at 0, its HEAD is answered at 3. A counts its 3 s from then, B "
            "from when it saw the record: on B's clock, as fast as clocks may be, 4.5 s are over at"
            " 3. Both are sure that it is their turn."
        ),
        saved=False,
    ),
    Mutant(
        name="own clock started anew by a second request",
        where="protocol.md#waiting-rules-in-time",
        rule="the holder counts from before it sends the *first* request for its lease",
        edit=Edit(
            (
                "Lease.begin_acquire",
                "self._first_sent.setdefault(wanted.generation, self._clock.monotonic())",
                "self._first_sent[wanted.generation] = self._clock.monotonic()",
            )
        ),
        setting=racing(
            BOTH,
            Fault.SWEPT,
            forced=(
                Forced("A table.put k *", Fault.DUPLICATED, 1, 4.15),
                Forced("A head k", Fault.PAUSED, 4, 2),
                Forced("A put k", Fault.DELAYED, 1, 1.85),
            ),
            starts={"A": 5, "B": 9.2},
            clocks={"B": FAST},
            records=[HELD],
            settings=lambda cls: cls(**{**SMALL, "test_interval": 2.05}),
        ),
        caught=UNEXPLAINED,
        story=(
            "A's first request for the lease meets the record of a dead holder, which TTL drops. A "
            "copy of that request arrives after that, and takes the lease, which B sees at 9.2. A, "
            "paused, sends its second request at 11.1, and finds a record of its own: it counts "
            "from 11.1, and B from 9.2, on a clock that is as fast as clocks may be."
        ),
        saved=False,
    ),
    Mutant(
        name="any record of the same generation taken for one's own",
        where="protocol.md#steps",
        rule="a record is mine if it bears my `owner`",
        edit=Edit(
            ("Lease._judge", "found.owner == self._owner and found.generation", "found.generation")
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story=(
            "B is told of A's record, of generation 0 as B's own would be, and goes on as its holder."
        ),
        saved=False,
    ),
    Mutant(
        name="etag compared with its quotes",
        where="protocol.md#strategies",
        rule="an etag is the same, quoted or bare",
        edit=Edit(
            (
                "holds",
                "info is not None and same_etag(info.etag, condition.etag)",
                "info is not None and info.etag == condition.etag",
            )
        ),
        setting=racing({"A": update("k")}, objects={"k": "old"}, wrap=BareHeads),
        caught=UNEXPLAINED,
        story=(
            "The store spells the etag without quotes in its answer to HEAD. A is told that the "
            "object has changed, and it has not."
        ),
        saved=False,
    ),
    Mutant(
        name="the lease of an etag as the caller spells it",
        where="protocol.md#the-record",
        rule="the key of a record has the etag as the store gives it",
        edit=Edit(
            ("LeaseCommitter._first_hold", "if look.info.etag == etag:", "if mutation.holds(look.info):")
        ),
        setting=racing(
            {"A": update("k"), "B": update("k")},
            forced=(Forced("B put k", Fault.DELAYED, 1, 1),),
            starts={"A": 0.1},
            objects={"k": "old"},
            own={"B": AS_IT_IS},
            wrap=BareHeads,
        ),
        caught=UNEXPLAINED,
        story=(
            "The store spells the etag without quotes in its answer to HEAD. B, which stands for "
            "any client that goes by that, such as those of `object_store`, holds a lease under "
            "that key, and A one under its own."
        ),
        saved=False,
    ),
    Mutant(
        name="no HEAD after a slow acquire",
        where="protocol.md#steps",
        rule="a look older than a `timeout` is made anew",
        edit=Edit(
            (
                "LeaseCommitter._valid",
                "return now - look.sent <= self._settings.timeout and left >= _LEAST",
                "return left >= _LEAST",
            )
        ),
        setting=racing(BOTH, Fault.SWEPT, forced=(Forced("A clock", Fault.PAUSED, 2, 10),)),
        caught=UNEXPLAINED,
        story=(
            "A looks, and is paused before it asks for the lease. B creates the object meanwhile, "
            "and its record is dropped by TTL, so that nothing tells A of it: it acts on a look "
            "that is ten seconds old."
        ),
        saved=True,
    ),
    Mutant(
        name="the look from before the conflict used after it",
        where="protocol.md#steps",
        rule="the object is looked at once more before a record is replaced",
        edit=Edit(
            (
                "LeaseCommitter._hold",
                "previous, fresh = self._wait(lease, mutation, obstacle, give_up)",
                "previous, _ = self._wait(lease, mutation, obstacle, give_up)\nfresh = look",
            )
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story=(
            "B looked before A wrote. By the time B's request for the lease arrives, A has released"
            " its own; B takes it over, and believes what it saw before."
        ),
        saved=False,
    ),
    Mutant(
        name="the look begun before the holder's time was up",
        where="protocol.md#steps",
        rule="first the holder's time is over, then the object is looked at",
        edit=Edit(
            (
                "LeaseCommitter._wait",
                (
                    "now = self._clock.monotonic()\n"
                    "due = obstacle.reclaimable_at(self._settings.max_clock_skew_rate)\n"
                    "look = self._begin_look(mutation)()"
                ),
                (
                    "look = self._begin_look(mutation)()\n"
                    "now = self._clock.monotonic()\n"
                    "due = obstacle.reclaimable_at(self._settings.max_clock_skew_rate)"
                ),
            )
        ),
        setting=racing(
            {**BOTH, "C": read("k")},
            Fault.PAUSED,
            delays=(2.5,),
            forced=(Forced("A put k", Fault.DELAYED, 1, 5),),
            starts={"B": 0.1, "C": 5.5},
            clocks={"B": FAST},
            settings=lambda cls: cls(**LONGER),
        ),
        caught=UNEXPLAINED,
        story=(
            "B looks while A's request is still on its way. When B reads its clock after that, A's "
            "time is up, and B acts on what it saw before. C shows that A's object was there in "
            "between."
        ),
        saved=False,
    ),
)
