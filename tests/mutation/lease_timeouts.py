"""Mutants of how a client waits for a lease, reclaims it and releases it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commitlog.commit import LeaseSettings
from commitlog.errors import ConfigurationError
from commitlog.testing.sim import Fault, Forced
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import BOTH, FAST, HELD, LONGER, RELEASED, SMALL, UNEXPLAINED, racing
from sim.leases.actions import create, delete
from sim.nodes import in_sequence

__all__ = ["LEASE_TIMEOUTS", "SURVIVORS"]


def _shortest_ttl(cls: Callable[..., Any]) -> Any:
    """Return settings with a TTL of a second, or else with the shortest that is allowed."""
    try:
        return cls(**{**SMALL, "ttl": 1, "test_interval": 1})
    except ConfigurationError:
        return cls(**{**SMALL, "test_interval": 1})


_DROPPED_WHILE_WAITED_FOR = racing(
    BOTH,
    Fault.SWEPT,
    forced=(
        Forced("B table.put k *", Fault.DELAYED, 2, 0.5),
        Forced("A put k", Fault.DELAYED, 1, 1),
    ),
    starts={"A": 9.5, "B": 6.2},
    clocks={"B": FAST},
    records=[HELD],
)

LEASE_TIMEOUTS: tuple[Mutant, ...] = (
    Mutant(
        name="wait without the skew factor",
        where="protocol.md#steps",
        rule="a waiter waits for the holder's `timeout` × `max_clock_skew_rate`",
        edit=Edit(
            (
                "HeldLease.reclaimable_at",
                "self.record.timeout / 1000 * rate",
                "self.record.timeout / 1000",
            )
        ),
        setting=racing(BOTH, Fault.DELAYED, delays=(2.0,), clocks={"B": FAST}),
        caught=UNEXPLAINED,
        story=(
            "B's clock is as fast as allowed: its 3 s are 2 s on A's clock. B takes over while A may "
            "still write, and A does."
        ),
        saved=False,
    ),
    Mutant(
        name="a waiter that counts from before it sent its request",
        where="protocol.md#waiting-rules-in-time",
        rule="a waiter counts from *after* it received the answer with the record",
        edit=Edit(
            ("Lease._judge", "since=self._clock.monotonic())", "since=max(self._first_sent.values()))")
        ),
        setting=racing(
            BOTH,
            forced=(
                Forced("B table.put k *", Fault.DELAYED, 1, 2),
                Forced("A put k", Fault.DELAYED, 1, 2),
            ),
            starts={"A": 1},
            clocks={"B": FAST},
        ),
        caught=UNEXPLAINED,
        story=(
            "B asks for the lease at 0, and learns at 1.33 that A has held it since 1. B's clock is "
            "as fast as allowed, so 4.5 s after 0 are over at 3. A may write until 4."
        ),
        saved=False,
    ),
    Mutant(
        name="a wait for the waiter's own timeout",
        where="protocol.md#steps",
        rule="a waiter waits for *the holder's* `timeout`",
        edit=Edit(
            (
                "LeaseCommitter._wait",
                "due = obstacle.reclaimable_at(self._settings.max_clock_skew_rate)",
                "due = obstacle.since + self._settings.timeout * self._settings.max_clock_skew_rate",
            )
        ),
        setting=racing(
            BOTH,
            Fault.DELAYED,
            delays=(5.0,),
            patience=5,
            own={"A": {"settings": LeaseSettings(**LONGER)}},
        ),
        caught=UNEXPLAINED,
        story=(
            "A's leases last 6 s, B's 3 s. B waits for 3 s × 1.5 after it saw A's record, and takes "
            "over while A may still write."
        ),
        saved=False,
    ),
    Mutant(
        name="the count not restarted when the record changed",
        where="protocol.md#steps",
        rule="if the record changed meanwhile, the count starts again",
        edit=Edit(
            (
                "LeaseCommitter._wait",
                "obstacle = seen",
                "obstacle = HeldLease(record=seen.record, since=obstacle.since)",
            )
        ),
        setting=racing(
            BOTH,
            forced=(
                Forced("A head k", Fault.DELAYED, 1, 2),
                Forced("A put k", Fault.DELAYED, 1, 2),
            ),
            starts={"B": 0.1},
            clocks={"B": FAST},
        ),
        caught=UNEXPLAINED,
        story=(
            "A's HEAD took so long that A renewed its lease at 2, until 5. B saw the new record, but "
            "continues to count from 0.1, when it saw the old one."
        ),
        saved=False,
    ),
    Mutant(
        name="reclaim without the generation",
        where="protocol.md#steps",
        rule="a record is replaced only if it is still the one that the waiter saw",
        edit=Edit(
            (
                "Lease.begin_acquire",
                "Absent() if previous is None else previous.unchanged()",
                "Absent() if previous is None else None",
            )
        ),
        setting=racing(BOTH, records=[RELEASED]),
        caught=UNEXPLAINED,
        story=(
            "An earlier holder has released the lease, and both take it over. The second one "
            "overwrites the record of the first."
        ),
        saved=False,
    ),
    Mutant(
        name="reclaim by the generation alone",
        where="protocol.md#steps",
        rule="a reclaim compares generation, `ttl` and `owner`",
        edit=Edit(
            (
                "LeaseRecord.unchanged",
                'return Equals("generation", self.generation) & Equals("ttl", self.ttl) & owner',
                'return Equals("generation", self.generation)',
            )
        ),
        setting=_DROPPED_WHILE_WAITED_FOR,
        caught=UNEXPLAINED,
        story=(
            "The holder that B waits for is dead. TTL drops its record, of generation 0, just before "
            "B replaces it. A creates another record of generation 0, and B takes it for the old one. "
            "(Among clients of this library, `owner` or `ttl` alone would suffice; those of "
            "`object_store` write no owner.)"
        ),
        saved=False,
    ),
    Mutant(
        name="TTL shorter than timeout × skew",
        where="protocol.md#the-record",
        rule="`ttl` ≥ 2 × `timeout` × `max_clock_skew_rate` is checked when the settings are created",
        edit=Edit(
            (
                "LeaseSettings.__attrs_post_init__",
                "least = 2 * self.timeout * self.max_clock_skew_rate",
                "least = 0",
            )
        ),
        setting=racing(
            BOTH,
            Fault.SWEPT,
            forced=(Forced("A put k", Fault.DELAYED, 1, 2),),
            starts={"B": 0.5},
            settings=_shortest_ttl,
        ),
        caught=UNEXPLAINED,
        story=(
            "With a TTL of 1 s, which the settings refuse, the record of a live holder is dropped, "
            "and B meets none."
        ),
        saved=False,
    ),
    Mutant(
        name="release by deleting the record",
        where="protocol.md#steps",
        rule="a lease is released by rewriting its record; it is never deleted",
        edit=Edit(
            (
                "Lease.begin_release",
                "pending = self._table.begin_put(released.to_item(), condition=mine.unchanged())",
                "pending = lambda: self._table.delete(self._key, condition=mine.unchanged())",
            )
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story=(
            "B sends its HEAD before A writes. When B's request for the lease arrives, no record "
            "shows that A held it."
        ),
        saved=False,
    ),
    Mutant(
        name="release without a condition",
        where="protocol.md#steps",
        rule="a lease is released only if its record is still mine",
        edit=Edit(
            (
                "Lease.begin_release",
                "begin_put(released.to_item(), condition=mine.unchanged())",
                "begin_put(released.to_item(), condition=None)",
            )
        ),
        setting=racing(
            {"A": create("k"), "B": in_sequence(delete("k"), create("k")), "C": create("k")},
            forced=(
                Forced("A table.put k *", Fault.DELAYED, 2, 3.6),
                Forced("B put k", Fault.DELAYED, 1, 0.3),
            ),
            patience=4,
            objects={"k": "old"},
            starts={"B": 0.5, "C": 3.7},
            clocks={"B": FAST},
        ),
        caught=UNEXPLAINED,
        story=(
            "A found an object, and its release is late. B removes the object, waits, and takes over "
            "A's lease. Then A's release arrives and overwrites B's record. C takes the lease at "
            "once, while B is writing."
        ),
        saved=False,
    ),
    Mutant(
        name="release after an unknown outcome",
        where="protocol.md#steps",
        rule="the lease is kept while the outcome is unknown",
        edit=Edit(
            (
                "LeaseCommitter.run",
                "except OutcomeUnknown:\n    raise",
                "except OutcomeUnknown:\n    self._release(lease)\n    raise",
            )
        ),
        setting=racing(
            BOTH,
            forced=(Forced("A put k", Fault.DELAYED, 1, 4),),
            starts={"B": 3.1},
            settings=lambda cls: cls(**{**SMALL, "test_interval": 1}),
        ),
        caught=UNEXPLAINED,
        story=(
            "A does not know the outcome of its request, which is still in flight. Since A has "
            "released its lease, B need not wait, and finishes before A's request arrives."
        ),
        saved=True,
    ),
)

#: Rules of which each alone can be broken: something else stands in.
SURVIVORS: tuple[Mutant, ...] = (
    Mutant(
        name="reclaim without the owner",
        where="protocol.md#steps",
        rule="a reclaim compares generation, `ttl` and `owner`",
        edit=Edit(
            ("LeaseRecord.unchanged", ' & Equals("ttl", self.ttl) & owner', ' & Equals("ttl", self.ttl)')
        ),
        setting=_DROPPED_WHILE_WAITED_FOR,
        caught="",
        story=(
            "A record that was created after another one was dropped has another `ttl`, as long as "
            "clocks differ no more than [TTL](protocol.md#assumptions-and-non-guarantees) allows."
        ),
    ),
    Mutant(
        name="reclaim without the TTL",
        where="protocol.md#steps",
        rule="a reclaim compares generation, `ttl` and `owner`",
        edit=Edit(("LeaseRecord.unchanged", ' & Equals("ttl", self.ttl) & owner', " & owner")),
        setting=_DROPPED_WHILE_WAITED_FOR,
        caught="",
        story="No two calls have the same `owner`. But the calls of `object_store` have none.",
    ),
    Mutant(
        name="release without a new generation",
        where="protocol.md#the-record",
        rule="the generation grows by one with every change of holder *and every release*",
        edit=Edit(
            (
                "Lease._next",
                "else previous.generation + 1",
                "else previous.generation + (timeout_ms > 0)",
            )
        ),
        setting=racing(BOTH, Fault.DUPLICATED, delays=(4.5,)),
        caught="",
        story=(
            "A released record can only be replaced by one of the next generation. The layout is that "
            "of `object_store`."
        ),
    ),
)
