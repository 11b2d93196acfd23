"""Mutants of the native strategy, and of the choice between the two."""

from __future__ import annotations

from attrs import evolve

from commitlog.commit.bucket_identity import BUCKETS
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.testing.sim import Fault, Forced, Node, SimulatedStore
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import BOTH, UNEXPLAINED, Setting, racing
from sim.leases.actions import copy, create, delete, edit
from support.commit import proven

__all__ = ["NATIVE"]

ABSENT = (Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT, Kind.PUBLISH_IF_ABSENT)


def _without_expiry(setting: Setting) -> Setting:
    """Return the setting of a store that enforces no more than its verdict says."""
    return lambda code, _: setting(code, False)


def _url(node: str) -> str:
    return f"s3://bucket?endpoint_url=http://{node.lower()}"


def _spelled(store: SimulatedStore, node: Node) -> SimulatedStore:
    """Return the store under the URL by which the node knows it."""
    store.url = _url(node.name)
    return store


def _told(node: str, *kinds: Kind) -> ProbeReport:
    return evolve(proven(*kinds), url=_url(node))


#: A and B know one store by two URLs, and have different verdicts about it.
_TWO_NAMES: Setting = _without_expiry(
    racing(
        BOTH,
        wrap=_spelled,
        forced=(Forced("B put k", Fault.DELAYED, 1, 1),),
        starts={"A": 0.5},
        conditions=True,
        own={
            "A": {"mode": "auto", "probe_report": _told("A", *ABSENT)},
            "B": {"mode": "auto", "probe_report": _told("B")},
        },
    )
)

#: They come at the same moment, and A's finding takes some time.
_AT_ONCE: Setting = _without_expiry(
    racing(
        BOTH,
        wrap=_spelled,
        forced=(
            Forced("B put k", Fault.DELAYED, 1, 3),
            Forced(f"A table.put {BUCKETS.hash} {BUCKETS.range}", Fault.DELAYED, 1, 1),
        ),
        starts={"A": 0.5, "B": 1},
        conditions=True,
        own={
            "A": {"mode": "auto", "probe_report": _told("A", *ABSENT)},
            "B": {"mode": "auto", "probe_report": _told("B")},
        },
    )
)

NATIVE: tuple[Mutant, ...] = (
    Mutant(
        name='409 read as "exists"',
        where="protocol.md#native",
        rule="409 says that nothing happened, and nothing else: it is tried again",
        edit=Edit(
            (
                "NativeCommitter.run.send",
                "except OutcomeUnknown as error:",
                (
                    "except Conflict:\n"
                    "    raise mutation.contradiction(None) from None\n"
                    "except OutcomeUnknown as error:"
                ),
            )
        ),
        setting=racing({"A": create("k")}, Fault.CONFLICT, mode="native"),
        caught=UNEXPLAINED,
        story=(
            "The store says that another request was under way, and A is told that there is an "
            "object. There is none."
        ),
    ),
    Mutant(
        name="client retries left on",
        where="protocol.md#native",
        rule="a refusal after a lost answer does not say that somebody else was first",
        edit=Edit(
            (
                "NativeCommitter.run",
                (
                    "    return mutation.send(self._spelled(mutation), None)\n"
                    "except OutcomeUnknown as error:"
                ),
                (
                    "    try:\n"
                    "        return mutation.send(self._spelled(mutation), None)\n"
                    "    except OutcomeUnknown:  # as a client library does inside\n"
                    "        return mutation.send(self._spelled(mutation), None)\n"
                    "except OutcomeUnknown as error:"
                ),
            )
        ),
        setting=racing({"A": delete("k")}, Fault.LOST_RESPONSE, objects={"k": "old"}, mode="native"),
        caught=UNEXPLAINED,
        story=(
            "The first request is performed, its answer lost. The client library sends it again by "
            "itself and passes on the refusal of the second, which nobody can tell from a refusal "
            "of the first: a deletion leaves no nonce."
        ),
    ),
    Mutant(
        name="a refusal believed without a look",
        where="protocol.md#native",
        rule="a put that is refused looks first whether the object bears its nonce",
        edit=Edit(
            (
                "NativeCommitter.run",
                "if lost is None and not (refused and mutation.nonce is not None):",
                "if lost is None:",
            )
        ),
        setting=racing({"A": create("k")}, Fault.REPEATED, mode="native"),
        caught=UNEXPLAINED,
        story=(
            "Something on the way sends the request twice. The second one is refused because of the"
            " first, and A is told that somebody else's object is there."
        ),
    ),
    Mutant(
        name="a lost answer forgotten after the read-back",
        where="protocol.md#lost-answers",
        rule="a lost answer, and then another object → `OutcomeUnknown`",
        edit=Edit(
            (
                "NativeCommitter._read_back",
                'raise mutation.unknown(f"an answer was lost, and then: {failure}") from lost',
                "raise failure",
            )
        ),
        setting=racing(
            {"A": create("k"), "B": edit("k")}, Fault.LOST_RESPONSE, starts={"B": 1}, mode="native"
        ),
        caught=UNEXPLAINED,
        story=(
            "A's write happened, B replaced what A had written, and A's second attempt is refused. "
            "A is told that nothing was written."
        ),
    ),
    Mutant(
        name="a retry without the condition",
        where="protocol.md#native",
        rule="what was lost is tried again under the same condition and nonce",
        edit=Edit(
            (
                "NativeCommitter.run",
                "mutation.send(self._spelled(mutation), None)",
                "mutation.send(None if lost else self._spelled(mutation), None)",
            )
        ),
        setting=racing(BOTH, Fault.LOST_REQUEST, starts={"B": 1}, mode="native"),
        caught=UNEXPLAINED,
        story=(
            "B's first request never arrives, and the second one goes without the condition: it "
            "replaces A's object."
        ),
    ),
    Mutant(
        name="what is gone taken for one's own deletion",
        where="protocol.md#lost-answers",
        rule="natively, a lost answer and then no object → `OutcomeUnknown`",
        edit=Edit(("NativeCommitter._read_back", "exclusive=False", "exclusive=True")),
        setting=racing(
            {"A": delete("k"), "B": delete("k")},
            Fault.LOST_REQUEST,
            objects={"k": "old"},
            starts={"B": 1},
            mode="native",
        ),
        caught=UNEXPLAINED,
        story=(
            "B's first request never arrives, and the second one is refused, since A has deleted "
            "the object. B is told that B did."
        ),
    ),
    Mutant(
        name="rivals go different ways",
        where="protocol.md#strategies",
        rule="calls that can compete go the same way",
        edit=Edit(
            (
                "_Strategy.choose",
                "if self._lease is None or all(self._enforced(rival, condition) for rival in rivals):",
                "if True:",
            )
        ),
        setting=_without_expiry(
            racing(
                {"A": create("k"), "B": copy("a", "k")},
                objects={"a": "copied"},
                conditions=True,
                own={
                    name: {"mode": "auto", "probe_report": proven(Kind.PUT_IF_ABSENT)} for name in BOTH
                },
            )
        ),
        caught=UNEXPLAINED,
        story=(
            "The store is known to honour put-if-absent, and copy-if-absent not. A asks the store, "
            "B takes a lease: neither keeps out the other."
        ),
    ),
    Mutant(
        name="each client goes by its own verdict",
        where="protocol.md#strategies",
        rule="the first finding about a bucket is kept in the table, and all go by it",
        edit=Edit(
            (
                "ProbeCache._find",
                "rows = kept or initial or self._measure(kind)",
                "rows = initial or kept or self._measure(kind)",
            )
        ),
        setting=_without_expiry(
            racing(
                BOTH,
                forced=(Forced("B put k", Fault.DELAYED, 1, 1),),
                starts={"A": 0.5},
                conditions=True,
                own={
                    "A": {"mode": "auto", "probe_report": proven(*ABSENT)},
                    "B": {"mode": "auto", "probe_report": proven()},
                },
            )
        ),
        caught=UNEXPLAINED,
        story=(
            "B was told that the store honours no condition, and takes a lease; A was told that it "
            "honours all, and does not ask for one."
        ),
    ),
    Mutant(
        name="findings belong to a URL",
        where="protocol.md#one-bucket-several-urls",
        rule="a finding belongs to the bucket, whatever URL leads to it",
        edit=Edit(
            (
                "StoredReports._url",
                "return self._bucket.url if kind is Kind.FENCE else self._bucket.name()",
                "return self._bucket.url",
            )
        ),
        setting=_TWO_NAMES,
        caught=UNEXPLAINED,
        story=(
            "A and B know one store by two URLs. What B keeps in the table, that the store honours no "
            "condition, A does not find: B takes a lease, and A asks the store."
        ),
    ),
    Mutant(
        name="a new URL is a new bucket",
        where="protocol.md#one-bucket-several-urls",
        rule="a client with a URL that is not in the list looks for the identity objects of the list",
        edit=Edit(
            ("BucketIdentity._with_url", "there = identities.has(bucket.identity)", "there = False")
        ),
        setting=_TWO_NAMES,
        caught=UNEXPLAINED,
        story="A does not look for the object that B has stored, and lists the bucket a second time.",
    ),
    Mutant(
        name="the list of buckets is replaced whatever it is",
        where="protocol.md#one-bucket-several-urls",
        rule="the list is replaced only if it has not changed; if it has, new objects are looked for",
        edit=Edit(
            (
                "BucketIdentity._write",
                "self._table.put(item, condition=condition)",
                "self._table.put(item)",
            )
        ),
        setting=_AT_ONCE,
        caught=UNEXPLAINED,
        story=(
            "A's request to list the bucket is slow. Meanwhile B has listed it, and goes by its own "
            "finding. A's list takes the place of B's, and A goes by its own, too."
        ),
    ),
)
