"""Mutants of how a lease is acquired, and of the HEAD requests that go with it."""

from __future__ import annotations

from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.stores import BareHeads
from mutation.worlds import BOTH, FAST, HELD, LONGER, SMALL, UNCHANGED, UNEXPLAINED, racing
from sim.leases.actions import read, update

__all__ = ["LEASE_ACQUIRE"]

LEASE_ACQUIRE: tuple[Mutant, ...] = (
    Mutant(
        name="first record put without a condition",
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
        name="own clock started after the request was sent",
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
            "A's record is stored at 0, and its HEAD is answered at 3. A counts its 3 s from then. B "
            "counts from when it saw the record: its clock is as fast as allowed, so its 4.5 s are "
            "over at 3. Both write."
        ),
        saved=False,
    ),
    Mutant(
        name="own clock restarted by a second request",
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
            "A's first request for the lease meets the record of a dead holder, which TTL then drops. "
            "A copy of that request arrives later and takes the lease, which B sees at 9.2. A was "
            "paused. It sends its second request at 11.1, and finds its own record. A counts from "
            "11.1. B counts from 9.2, on a clock as fast as allowed."
        ),
        saved=False,
    ),
    Mutant(
        name="any record of the same generation taken for one's own",
        where="protocol.md#steps",
        rule="a record is mine if it bears my `owner`",
        edit=Edit(
            ("Lease.owns", "record.owner == self._owner and record.generation", "record.generation")
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story=(
            "B gets A's record, whose generation is 0, as B's own would be. B continues as if it held "
            "the lease."
        ),
        saved=False,
    ),
    Mutant(
        name="etag compared with its quotes",
        where="protocol.md#strategies",
        rule="quotes do not matter when etags are compared",
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
            "The store omits the quotes of the etag in its answer to HEAD. A gets an error that the "
            "object has changed, but it has not."
        ),
        saved=False,
    ),
    Mutant(
        name="the lease of an etag as the caller writes it",
        where="protocol.md#the-record",
        rule="the key of a record has the etag as the store returns it",
        edit=Edit(
            ("LeaseCommitter._first_hold", "if look.info.etag == etag:", "if mutation.holds(look.info):")
        ),
        setting=racing(
            {"A": update("k"), "B": update("k")},
            forced=(Forced("B put k", Fault.DELAYED, 1, 1),),
            starts={"A": 0.1},
            objects={"k": "old"},
            own={"B": UNCHANGED},
            wrap=BareHeads,
        ),
        caught=UNEXPLAINED,
        story=(
            "The store omits the quotes of the etag in its answer to HEAD. B stands for any client "
            "that uses that spelling, such as those of `object_store`: it holds a lease under that "
            "key, and A holds one under its own."
        ),
        saved=False,
    ),
    Mutant(
        name="no HEAD after a slow acquire",
        where="protocol.md#steps",
        rule="if more than one `timeout` passed since the `HEAD` was sent, it is sent again",
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
            "A sends its HEAD, and is paused before it asks for the lease. B creates the object "
            "meanwhile, and TTL drops its record. So A acts on an answer that is ten seconds old."
        ),
        saved=True,
    ),
    Mutant(
        name="the HEAD from before the conflict used after it",
        where="protocol.md#steps",
        rule="before a record is replaced, the object is read again",
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
            "B sends its HEAD before A writes. When B's request for the lease arrives, A has released "
            "its own lease. B takes it over, and relies on the old answer."
        ),
        saved=False,
    ),
    Mutant(
        name="the HEAD sent before the holder's time was over",
        where="protocol.md#steps",
        rule="the object is read after the holder's time is over",
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
            "B sends its HEAD while A's request is still in flight. When B then reads its clock, A's "
            "time is over, and B relies on the old answer. C shows that A's object existed in "
            "between."
        ),
        saved=False,
    ),
)
