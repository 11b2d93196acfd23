"""Mutants of the lease: taking it, waiting for it, writing under it, giving it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve
from sim_kit import Ticks, create, delete, edit, in_turn, read, remove, update

from commitlog.commit import LeaseSettings
from commitlog.commit.record import CREATE, LeaseRecord
from commitlog.errors import ConfigurationError
from commitlog.stores.api import Observation, Pending
from commitlog.testing.sim import EPOCH, Fault, Forced, Node, SimulatedStore
from mutants.loader import Edit
from mutants.mutant import Mutant
from mutants.worlds import AS_IT_IS, FAST, SMALL, racing

__all__ = ["LEASE", "SPARE"]

#: What every counter-example to mutual exclusion is judged as.
UNEXPLAINED = "no order of the calls"

#: Leases that are long enough for a second not to matter.
LONGER = {**SMALL, "timeout": 6, "ttl": 18, "test_interval": 6}

BOTH = {"A": create("k"), "B": create("k")}

_TTL = int(EPOCH) + 9
#: What an earlier holder left: released as it should be, or not, since it died.
RELEASED = LeaseRecord(path="k", etag=CREATE, generation=1, timeout=0, ttl=_TTL, owner="earlier")
HELD = LeaseRecord(path="k", etag=CREATE, generation=0, timeout=3000, ttl=_TTL, owner="earlier")


def _shortest_ttl(cls: Callable[..., Any]) -> Any:
    """Return settings with a TTL of a second, or else with the shortest that is allowed."""
    try:
        return cls(**{**SMALL, "ttl": 1, "test_interval": 1})
    except ConfigurationError:
        return cls(**{**SMALL, "test_interval": 1})


class _Wrapped:
    """A client of a store whose conduct is a bit different."""

    def __init__(self, store: SimulatedStore, node: Node) -> None:
        self.store = store
        self.node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class _BareHeads(_Wrapped):
    """A store that spells etags without quotes in what it answers to HEAD, and there alone."""

    def begin_head(self, path: str) -> Pending[Observation]:
        pending = self.store.begin_head(path)

        def wait() -> Observation:
            seen = pending()
            info = seen.info and evolve(seen.info, etag=seen.info.etag.strip('"'))
            return evolve(seen, info=info)

        return wait


class _SlowHeads(_Wrapped):
    """A store that takes two seconds to answer to HEAD, and dates its answer then."""

    def begin_head(self, path: str) -> Pending[Observation]:
        pending = self.store.begin_head(path)

        def wait() -> Observation:
            seen = pending()
            self.node.clock.sleep(2)
            now = self.node.simulation.server_clock().epoch()
            return evolve(seen, store_time=int(now))

        return wait


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

LEASE: tuple[Mutant, ...] = (
    # -- taking it
    Mutant(
        name="the first record is put whatever is there",
        where="protocol.md#steps",
        rule="a record is created only if there is none",
        edit=Edit(
            "commit.lease",
            (
                "condition = Absent() if previous is None else",
                "condition = None if previous is None else",
            ),
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
            "commit.lease",
            ("        self._first_sent.setdefault(wanted.generation, self._clock.monotonic())\n", ""),
            (
                "                return self._judge(found)\n            raise",
                "                self._first_sent.setdefault(\n"
                "                    wanted.generation, self._clock.monotonic()\n"
                "                )\n"
                "                return self._judge(found)\n            raise",
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
            "commit.lease",
            (
                "self._first_sent.setdefault(wanted.generation, self._clock.monotonic())",
                "self._first_sent[wanted.generation] = self._clock.monotonic()",
            ),
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
        edit=Edit("commit.lease", ("found.owner == self._owner and ", "")),
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
            "commit.mutation",
            (
                "info is not None and same_etag(info.etag, condition.etag)",
                "info is not None and info.etag == condition.etag",
            ),
        ),
        setting=racing({"A": update("k")}, objects={"k": "old"}, wrap=_BareHeads),
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
            "commit.leased",
            ("            if look.info.etag == etag:\n", "            if mutation.holds(look.info):\n"),
        ),
        setting=racing(
            {"A": update("k"), "B": update("k")},
            forced=(Forced("B put k", Fault.DELAYED, 1, 1),),
            starts={"A": 0.1},
            objects={"k": "old"},
            own={"B": AS_IT_IS},
            wrap=_BareHeads,
        ),
        caught=UNEXPLAINED,
        story=(
            "The store spells the etag without quotes in its answer to HEAD. B, which stands for "
            "any client that goes by that, such as those of `object_store`, holds a lease under "
            "that key, and A one under its own."
        ),
        saved=False,
    ),
    # -- looking
    Mutant(
        name="no HEAD after a slow acquire",
        where="protocol.md#steps",
        rule="a look older than a `timeout` is made anew",
        edit=Edit(
            "commit.leased",
            ("return now - look.sent <= self._settings.timeout and lease", "return lease"),
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
            "commit.leased",
            (
                "                previous, fresh = self._wait(lease, mutation, obstacle, give_up)\n",
                "                previous, _ = self._wait(lease, mutation, obstacle, give_up)\n"
                "                fresh = look\n",
            ),
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
            "commit.leased",
            (
                "            now = self._clock.monotonic()\n"
                "            due = obstacle.reclaimable_at(self._settings.max_clock_skew_rate)\n"
                "            look = self._begin_look(mutation)()\n",
                "            look = self._begin_look(mutation)()\n"
                "            now = self._clock.monotonic()\n"
                "            due = obstacle.reclaimable_at(self._settings.max_clock_skew_rate)\n",
            ),
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
    # -- waiting
    Mutant(
        name="wait without the skew factor",
        where="protocol.md#steps",
        rule="the holder's `timeout` × `max_clock_skew_rate` is waited for",
        edit=Edit("commit.lease", ("self.record.timeout / 1000 * rate", "self.record.timeout / 1000")),
        setting=racing(BOTH, Fault.DELAYED, delays=(2.0,), clocks={"B": FAST}),
        caught=UNEXPLAINED,
        story=(
            "B's clock is as fast as clocks may be: after 3 s on it, 2 s on A's, B takes over, "
            "while A may still write, and does."
        ),
        saved=False,
    ),
    Mutant(
        name="wait for one's own timeout",
        where="protocol.md#steps",
        rule="*the holder's* `timeout` is waited for",
        edit=Edit(
            "commit.leased",
            (
                "            due = obstacle.reclaimable_at(self._settings.max_clock_skew_rate)\n",
                "            due = obstacle.since + self._settings.timeout * "
                "self._settings.max_clock_skew_rate\n",
            ),
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
            "A's leases are of 6 s, B's of 3 s. B waits for 3 s × 1.5 after it saw A's record, and "
            "takes over while A may still write."
        ),
        saved=False,
    ),
    Mutant(
        name="the count not begun anew when the record changed",
        where="protocol.md#steps",
        rule="a record that changed meanwhile starts the count anew",
        edit=Edit(
            "commit.leased",
            (
                "                obstacle = seen\n",
                "                obstacle = Obstacle(record=seen.record, since=obstacle.since)\n",
            ),
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
            "A's HEAD took so long that A renewed its lease at 2, to 5. B saw that, and goes on "
            "counting from 0.1, when it saw the record before."
        ),
        saved=False,
    ),
    Mutant(
        name="reclaim without the generation",
        where="protocol.md#steps",
        rule="a record is replaced only if it is still the one that was seen",
        edit=Edit(
            "commit.lease", ("else previous.unchanged()\n        self", "else None\n        self")
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
        rule="what is compared is generation, `ttl` and `owner`",
        edit=Edit(
            "commit.record",
            (
                'return Equals("generation", self.generation) & Equals("ttl", self.ttl) & owner',
                'return Equals("generation", self.generation)',
            ),
        ),
        setting=_DROPPED_WHILE_WAITED_FOR,
        caught=UNEXPLAINED,
        story=(
            "The holder that B waited for is dead, and its record, of generation 0, is dropped by "
            "TTL as B is about to replace it. A has made another of generation 0, which B takes for"
            " the one that it waited for. (`owner` or `ttl` alone would do among clients of this "
            "library; those of `object_store` write no owner.)"
        ),
        saved=False,
    ),
    Mutant(
        name="TTL shorter than timeout × skew",
        where="protocol.md#the-record",
        rule="`ttl` ≥ 2 × `timeout` × `max_clock_skew_rate`, which is checked when settings are given",
        edit=Edit(
            "commit.settings",
            ("        least = 2 * self.timeout * self.max_clock_skew_rate\n", "        least = 0\n"),
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
            "With a TTL of 1 s, which the settings refuse, the record of a holder that is alive is "
            "dropped, and B meets none."
        ),
        saved=False,
    ),
    # -- writing in time
    Mutant(
        name="no expiry on the data request",
        where="protocol.md#the-expiry-that-the-store-enforces",
        rule="the data request expires with the lease, and the store sees to that",
        edit=Edit(
            "commit.leased",
            ("        return look.fence(lease.ends, self._settings.timeout)\n", "        return None\n"),
        ),
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
            "commit.leased",
            (
                "        return look.fence(lease.ends, self._settings.timeout)\n",
                "        fence = look.fence(lease.ends, self._settings.timeout)\n"
                "        return fence and Fence(int(self._clock.epoch()), fence.seconds)\n",
            ),
        ),
        setting=racing(BOTH, Fault.DELAYED, delays=(4.5,), clocks={"A": Ticks(offset=60)}),
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
            "commit.leased",
            (
                "math.floor(min(ends - self.received, timeout)) - 1\n",
                "math.floor(min(ends - self.received, timeout))\n",
            ),
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
            "commit.leased",
            (
                "math.floor(min(ends - self.received, timeout)) - 1\n",
                "math.floor(ends - self.received) - 1\n",
            ),
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
        edit=Edit("commit.leased", ("math.floor(min(ends - self.received, timeout))", "round(timeout)")),
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
    # -- giving it back
    Mutant(
        name="release by deleting the record",
        where="protocol.md#steps",
        rule="a lease is released by rewriting its record; it is never deleted",
        edit=Edit(
            "commit.lease",
            (
                "pending = self._table.begin_put(released.to_item(), condition=mine.unchanged())",
                "pending = lambda: self._table.delete(self._key, condition=mine.unchanged())",
            ),
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story=(
            "B looked before A wrote. By the time B's request for the lease arrives, nothing tells "
            "any more that A was there."
        ),
        saved=False,
    ),
    Mutant(
        name="release of whatever record is there",
        where="protocol.md#steps",
        rule="a lease is released only if its record is still mine",
        edit=Edit(
            "commit.lease",
            (
                "begin_put(released.to_item(), condition=mine.unchanged())",
                "begin_put(released.to_item(), condition=None)",
            ),
        ),
        setting=racing(
            {"A": create("k"), "B": in_turn(delete("k"), create("k")), "C": create("k")},
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
            "A found an object, and its release is late. B removes the object, waits, and takes "
            "over A's lease. Now A's release arrives, overwrites B's record, and C takes the lease "
            "at once, while B is writing."
        ),
        saved=False,
    ),
    Mutant(
        name="release after an unknown outcome",
        where="protocol.md#steps",
        rule="the lease is kept as long as the outcome is unknown",
        edit=Edit(
            "commit.leased",
            (
                "        except OutcomeUnknown:\n            raise\n",
                "        except OutcomeUnknown:\n            self._release(lease)\n            raise\n",
            ),
        ),
        setting=racing(
            BOTH,
            forced=(Forced("A put k", Fault.DELAYED, 1, 4),),
            starts={"B": 3.1},
            settings=lambda cls: cls(**{**SMALL, "test_interval": 1}),
        ),
        caught=UNEXPLAINED,
        story=(
            "A does not know what became of its request, which is still on its way. Since A has "
            "released its lease, B need not wait, and is done before A's request arrives."
        ),
        saved=True,
    ),
    # -- lost answers
    Mutant(
        name="read-back before the expiry taken as final",
        where="protocol.md#steps",
        rule="only a read begun after the expiry is final",
        edit=Edit(
            "commit.leased",
            (
                "                if over:\n                    return",
                "                if True:\n                    return",
            ),
        ),
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
            "commit.leased",
            (
                "                        raise mutation.unknown(late) from lost\n"
                "                    continue\n",
                "                        raise mutation.unknown(late) from lost\n"
                "                    return reading, look.info\n",
            ),
        ),
        setting=racing(
            {"A": update("k"), "B": edit("k")},
            forced=(Forced("A put k", Fault.DELAYED, 1, 3),),
            patience=2.5,
            starts={"B": 5.2},
            objects={"k": "old"},
            wrap=_SlowHeads,
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
        name="a read-back taken as final where nothing expires",
        where="protocol.md#lost-answers",
        rule="if the store does not enforce the expiry, what has not landed by then is `OutcomeUnknown`",
        edit=Edit(
            "commit.leased",
            (
                "                    if not fenced:\n"
                "                        raise mutation.unknown(late) from lost\n",
                "",
            ),
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
            "commit.leased",
            (
                'mutation.unknown("what is there now is of another writer") from lost',
                "mutation.contradiction(look.info)",
            ),
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
            "commit.leased",
            (
                "            if lost is not None and isinstance(mutation.condition, IfAbsent):",
                "            if False:",
            ),
        ),
        setting=racing(
            {"A": create("k"), "B": in_turn(remove("k"), create("k"))},
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
            "commit.mutation",
            (" and info is not None and info.nonce == self.nonce", " and info is not None"),
        ),
        setting=racing(BOTH),
        caught=UNEXPLAINED,
        story="B finds A's object, and is told that it is B's.",
        saved=False,
    ),
    Mutant(
        name="what is seen after the lease taken for one's own",
        where="protocol.md#lost-answers",
        rule="that the object is gone was my doing if it is seen *before my lease ended*",
        edit=Edit("commit.leased", ("exclusive=look.received <= ends", "exclusive=True")),
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
)

#: Rules of which each alone can be broken: something else stands in.
SPARE: tuple[Mutant, ...] = (
    Mutant(
        name="reclaim without the owner",
        where="protocol.md#steps",
        rule="what is compared is generation, `ttl` and `owner`",
        edit=Edit("commit.record", (' & Equals("ttl", self.ttl) & owner', ' & Equals("ttl", self.ttl)')),
        setting=_DROPPED_WHILE_WAITED_FOR,
        caught="",
        story=(
            "A record that was made after another one had been dropped has another `ttl`, as long "
            "as clocks are not further apart than "
            "[TTL](protocol.md#assumptions-and-what-is-not-guaranteed) allows."
        ),
    ),
    Mutant(
        name="reclaim without the TTL",
        where="protocol.md#steps",
        rule="what is compared is generation, `ttl` and `owner`",
        edit=Edit("commit.record", (' & Equals("ttl", self.ttl) & owner', " & owner")),
        setting=_DROPPED_WHILE_WAITED_FOR,
        caught="",
        story="No two calls have one `owner`. But those of `object_store` have none.",
    ),
    Mutant(
        name="release under the same generation",
        where="protocol.md#the-record",
        rule="the generation is one more for every change of holder *and every release*",
        edit=Edit(
            "commit.lease",
            ("else previous.generation + 1,", "else previous.generation + (timeout_ms > 0),"),
        ),
        setting=racing(BOTH, Fault.DUPLICATED, delays=(4.5,)),
        caught="",
        story=(
            "A released record can only be replaced, by one of the next generation. The layout is kept "
            "as `object_store` has it."
        ),
    ),
)
