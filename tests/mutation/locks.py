"""Mutants of locks, and of fenced writes."""

from __future__ import annotations

from commitlog.testing.sim import Fault
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import locking
from sim.locks.actions import hold, jump, remove_record
from sim.nodes import ClockSkew, in_sequence

__all__ = ["LOCKS"]

_TWO_HOLDERS = "two holders at one time"

#: One holder that stops sending heartbeats, and the next one.
_SILENT = {"A": hold(rest=5.0, beats=1, every=0.0), "B": hold(beats=2, timeout=20.0)}

LOCKS: tuple[Mutant, ...] = (
    Mutant(
        name="heartbeat that takes the lock back",
        where="locks.md#rules",
        rule="a heartbeat replaces the holder's own record only",
        edit=Edit(
            (
                "Tenure.renew",
                "found = hold.lease.begin_acquire(hold.record)()",
                (
                    "found = hold.lease.begin_acquire(hold.record)()\n"
                    "while found is not None:\n"
                    "    found = hold.lease.begin_acquire(found.record)()"
                ),
            )
        ),
        setting=locking(
            {"A": hold(beats=1, every=2.9), "B": hold(beats=2, timeout=20.0)},
            Fault.DELAYED,
            delays=(4.5,),
            after={"B": 0.1},
        ),
        caught=_TWO_HOLDERS,
        story="B has taken the lock over, and a late heartbeat of A takes it back while B works.",
    ),
    Mutant(
        name="own record taken for that of another holder",
        where="locks.md#rules",
        rule="a holder recognises the record of every request that it has sent for the lock",
        edit=Edit(
            (
                "Lease.begin_acquire.take",
                "found = _found(failed, self._table, self._key)",
                (
                    "found = _found(failed, self._table, self._key)\n"
                    "return HeldLease(record=found, since=self._clock.monotonic())"
                ),
            )
        ),
        setting=locking({"A": hold(blocking=False)}, Fault.LOST_RESPONSE, Fault.REPEATED),
        caught="refused, though nobody else ever held it",
        story=(
            "A's request is performed, and its answer is lost, or is that of a repeated request. A "
            "finds a record, which is its own, and is refused."
        ),
    ),
    Mutant(
        name="own record taken for that of another after a lost release",
        where="locks.md#rules",
        rule="a holder recognises the record of every request that it has sent for the lock",
        edit=Edit(("Tenure._try", "left_behind is not None", "False")),
        setting=locking(
            {"A": in_sequence(hold(), hold(blocking=False))}, Fault.LOST_REQUEST, Fault.THROTTLED
        ),
        caught="refused, though nobody else ever held it",
        story="A's release does not arrive. A wants the lock again, and waits for itself.",
    ),
    Mutant(
        name="owner of a hold kept for the next one",
        where="locks.md#tokens",
        rule="each holder's token is the generation at which it acquired the lock",
        edit=Edit(("Tenure._take", "self._claims.clear()", "")),
        setting=locking(
            {"A": in_sequence(hold(), hold(blocking=False))}, Fault.LOST_REQUEST, Fault.THROTTLED
        ),
        caught="was given after",
        story=(
            "A's release does not arrive. A wants the lock again, and its old record counts as a new "
            "hold: work that is left from the first hold has the token of the second."
        ),
    ),
    Mutant(
        name="suspension not noticed",
        where="locks.md#rules",
        rule="a holder looks at its monotonic clock before it says that it holds the lock",
        edit=Edit(
            (
                "Tenure._current",
                "if self._clock.monotonic() < hold.ends - self.settings.margin:",
                "if self._clock.monotonic() or True:",
            )
        ),
        setting=locking(_SILENT, after={"B": 0.1}),
        caught=_TWO_HOLDERS,
        story="A was suspended for 5 s, B holds the lock meanwhile, and A says that it holds it.",
    ),
    Mutant(
        name="waiting measured with the wall clock",
        where="locks.md#rules",
        rule="no decision depends on a wall clock",
        edit=Edit(
            ("Lease._judge", "since=self._clock.monotonic())", "since=self._clock.epoch())"),
            (
                "Tenure._try",
                "held.reclaimable_at(rate) - self._clock.monotonic()",
                "held.reclaimable_at(rate) - self._clock.epoch()",
            ),
        ),
        setting=locking(
            {
                "A": hold(beats=1, every=2.5),
                "B": in_sequence(hold(blocking=False), jump(3600.0), hold(blocking=False)),
            },
            after={"B": 0.1},
        ),
        caught=_TWO_HOLDERS,
        story="B's wall clock is set forward by an hour, and B considers A dead.",
    ),
    Mutant(
        name="rate of clocks not considered",
        where="locks.md#rules",
        rule="a waiter waits for the holder's timeout × `max_clock_skew_rate`",
        edit=Edit(("Tenure._try", "rate = self._lease_settings.max_clock_skew_rate", "rate = 1.0")),
        setting=locking(
            {"A": hold(rest=2.5), "B": hold(timeout=20.0)},
            after={"B": 0.1},
            clocks={"B": ClockSkew(rate=1.5)},
        ),
        caught=_TWO_HOLDERS,
        story="A's 3 s last until 3. B's clock is fast, and its 3 s are over at 2.1.",
    ),
    Mutant(
        name="heartbeats of the holder not noticed",
        where="locks.md#rules",
        rule="a new record restarts the wait",
        edit=Edit(
            (
                "Tenure._since",
                "seen is None or seen.record != found.record",
                "seen is None or seen.record is None or found.record is None",
            ),
            (
                "Tenure._since",
                "return min(seen, found, key=lambda each: each.since)",
                "return HeldLease(record=found.record, since=seen.since)",
            ),
        ),
        setting=locking({"A": hold(beats=6), "B": hold(timeout=20.0)}, after={"B": 0.1}),
        caught=_TWO_HOLDERS,
        story="B waits for 4.5 s from the first record that it saw. A has renewed it twice since.",
    ),
    Mutant(
        name="record of a lock that TTL drops",
        where="locks.md#rules",
        rule="the record of a lock never expires",
        edit=Edit(("Lease._next_of_lock", "ttl=NEVER", "ttl=int(self._clock.epoch()) + 1")),
        setting=locking(
            {"A": hold(beats=1, every=2.5), "B": hold(blocking=False)}, Fault.SWEPT, after={"B": 2.2}
        ),
        caught=_TWO_HOLDERS,
        story="The table drops the record of A, which holds the lock. B finds none, and has it, too.",
    ),
    Mutant(
        name="generations from zero after the record was removed",
        where="locks.md#tokens",
        rule="the first generation of a record is the time in milliseconds",
        edit=Edit(("Lease._next_of_lock", "first = int(self._clock.epoch() * 1000)", "first = 1")),
        setting=locking(
            {"A": hold(beats=1), "B": hold(), "C": remove_record(after=2.0)}, after={"B": 3.0}
        ),
        caught="was given after",
        story="Someone removes the record after A's work. B gets a token that A has had.",
    ),
    Mutant(
        name="token that a heartbeat changes back",
        where="locks.md#tokens",
        rule="each holder's token is the generation at which it acquired the lock",
        edit=Edit(
            (
                "Lease._next_of_lock",
                "previous.token if previous is not None and renewed else generation",
                "first if previous is None else previous.token",
            )
        ),
        setting=locking({"A": hold(), "B": hold()}, after={"B": 1.0}),
        caught="was given after",
        story="B gets the token that A has had.",
    ),
    Mutant(
        name="late write of an earlier holder accepted",
        where="locks.md#fenced-writes",
        rule="a write is refused if the object has a larger token",
        edit=Edit(("FencedStore._compare", "if token < found.token:", "if False:")),
        setting=locking(
            {"A": hold(increments=1, work=1), "B": hold(increments=1, work=1, timeout=20.0)},
            Fault.PAUSED,
            after={"B": 0.1},
        ),
        caught="replaced one with|an increment was lost",
        story="A is suspended between its look at the lock and its write, which then undoes B's.",
    ),
    Mutant(
        name="fenced write without a condition",
        where="locks.md#fenced-writes",
        rule="a write replaces the very version whose token it has compared",
        edit=Edit(
            (
                "FencedStore._replace",
                "return self._store.put_if_match(found.path, body, etag=found.etag, metadata=metadata)",
                "return self._store.put(found.path, body, metadata=metadata)",
            )
        ),
        setting=locking(
            {"A": hold(increments=1), "B": hold(increments=1, timeout=20.0)},
            Fault.DELAYED,
            delays=(9.0,),
            after={"B": 0.1},
        ),
        caught="replaced one with|an increment was lost",
        story="A's write arrives 9 s later, after B has compared its token, and written.",
    ),
    Mutant(
        name="object not claimed before it is read",
        where="locks.md#fenced-writes",
        rule="`claim` stores the token before the object is read",
        edit=Edit(
            (
                "FencedStore.claim.write",
                "result = self._replace(found, found.data, token)",
                "return found",
            )
        ),
        setting=locking(
            {
                "A": hold(increments=1, work=5.0),
                "B": hold(increments=1, work=1.0, timeout=20.0),
            },
            after={"B": 0.1},
        ),
        caught="an increment was lost",
        story=(
            "A is slow, and loses the lock. B reads the counter, a late write of A arrives, and "
            "B's write undoes it."
        ),
    ),
)
