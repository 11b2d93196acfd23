"""Mutants of the native strategy, and of the choice between the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from commitlog.commit.bucket_identity import BUCKETS
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.stores.api import Condition, Dialect, IfAbsent, PutResult, Staged
from commitlog.stores.s3.dialects import spoken
from commitlog.testing.sim import Fault, Forced, Node, SimulatedStore
from mutation.edits import Edit
from mutation.mutant import Mutant
from mutation.worlds import BOTH, UNEXPLAINED, Setting, racing
from sim.leases.actions import copy, create, delete, edit, publish
from support.commit import proven
from support.outputs import HookedStore

__all__ = ["NATIVE"]

ABSENT = (Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT, Kind.PUBLISH_IF_ABSENT)


def _without_expiry(setting: Setting) -> Setting:
    """Return the setting of a store that does not enforce the expiry, as its probe report says."""
    return lambda code, _: setting(code, False)


def _url(node: str) -> str:
    return f"s3://bucket?endpoint_url=http://{node.lower()}"


def _spelled(store: SimulatedStore, node: Node) -> SimulatedStore:
    """Return the store with the URL that the node uses."""
    store.url = _url(node.name)
    return store


def _report(node: str, *kinds: Kind) -> ProbeReport:
    return evolve(proven(*kinds), url=_url(node))


#: A and B know one store by two URLs, and have different probe reports on it.
_TWO_NAMES: Setting = _without_expiry(
    racing(
        BOTH,
        wrap=_spelled,
        forced=(Forced("B put k", Fault.DELAYED, 1, 1),),
        starts={"A": 0.5},
        conditions=True,
        own={
            "A": {"mode": "auto", "probe_report": _report("A", *ABSENT)},
            "B": {"mode": "auto", "probe_report": _report("B")},
        },
    )
)

#: B starts while A's request to list the bucket is in flight.
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
            "A": {"mode": "auto", "probe_report": _report("A", *ABSENT)},
            "B": {"mode": "auto", "probe_report": _report("B")},
        },
    )
)


class _Cos(HookedStore):
    """A client of a store that knows no other condition than the header of Tencent COS.

    Args:
        inner: the client of the simulated store.
        versioned: whether the bucket keeps versions. Then the store ignores the header.
    """

    def __init__(self, inner: SimulatedStore, *, versioned: bool = False) -> None:
        super().__init__(inner)
        self.capabilities = evolve(inner.capabilities, enforced=False, dialects=spoken("cos"))
        self._versioned = versioned

    def put(
        self, path: str, body: Any, *, condition: Condition | None = None, **options: Any
    ) -> PutResult:
        known = condition == IfAbsent(Dialect.COS) and not self._versioned
        result = super().put(path, body, condition=IfAbsent() if known else None, **options)
        return evolve(result, version="1") if self._versioned else result


class _Gateway(HookedStore):
    """A client of a store that answers with success if an upload is published again meanwhile."""

    def __init__(self, inner: SimulatedStore) -> None:
        super().__init__(inner)
        self._seen: set[str] = set()

    def publish(self, staged: Staged, **options: Any) -> PutResult:
        if staged.upload_id in self._seen:
            return PutResult(path=staged.path, etag="that of the upload")
        self._seen.add(staged.upload_id)
        return super().publish(staged, **options)


#: Arguments of worlds with such a store, which a probe has checked.
_COS: Mapping[str, Any] = {
    "mode": "native",
    "probe_report": proven(*ABSENT, dialect=Dialect.COS),
    "wrap": lambda store, _: _Cos(store),
}

NATIVE: tuple[Mutant, ...] = (
    Mutant(
        name='409 read as "exists"',
        where="protocol.md#native",
        rule="a 409 says only that nothing happened, and the request is retried",
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
            "The store answers that another request was in progress, and A reports an existing "
            "object. There is none."
        ),
    ),
    Mutant(
        name="client retries left enabled",
        where="protocol.md#native",
        rule="a refusal after a lost answer does not prove that another client was first",
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
            "The first request is performed, but its answer is lost. The client library repeats it, "
            "and passes on the refusal of the second. That cannot be distinguished from a refusal of "
            "the first, because a deletion leaves no nonce."
        ),
    ),
    Mutant(
        name="a refusal accepted without a HEAD",
        where="protocol.md#native",
        rule="after the refusal of a put, a `HEAD` checks whether the object has its nonce",
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
            "An intermediary sends the request twice. The second one is refused because of the first, "
            "and A reports that another client's object exists."
        ),
    ),
    Mutant(
        name="a repeated request's success believed",
        where="protocol.md#native",
        rule="after a lost answer, a `HEAD` has to show that a success is the own one",
        edit=Edit(("NativeCommitter.run", "if lost is not None or mutation.shared:", "if False:")),
        setting=racing(
            {"A": publish("k"), "B": create("k")},
            Fault.LOST_RESPONSE,
            most=2,
            mode="native",
            wrap=lambda store, _: _Gateway(store),
        ),
        caught=UNEXPLAINED,
        story=(
            "B's object is there, so the store refuses A's upload, but the answer is lost. The store "
            "answers the second attempt with success, because it still works on the first, and A "
            "reports that it has created the object."
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
            "A's write happened, and B replaced A's object. A's second attempt is refused, and A "
            "reports that nothing was written."
        ),
    ),
    Mutant(
        name="a retry without the condition",
        where="protocol.md#native",
        rule="a retry has the same condition and nonce",
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
            "B's first request never arrives. The second one has no condition, and replaces A's object."
        ),
    ),
    Mutant(
        name="a missing object taken for one's own deletion",
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
            "B's first request never arrives, and the second one is refused, because A has deleted "
            "the object. B reports its own deletion."
        ),
    ),
    Mutant(
        name="competing calls with different enforcement",
        where="protocol.md#strategies",
        rule="calls that can compete use the same enforcement",
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
            "The store is known to enforce put-if-absent, but not copy-if-absent. A relies on the "
            "store, and B takes a lease: neither excludes the other."
        ),
    ),
    Mutant(
        name="each client uses its own probe report",
        where="protocol.md#strategies",
        rule="the first finding about a bucket is stored in the table, and all clients use it",
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
            "By B's report the store enforces no condition, so B takes a lease. By A's report it "
            "enforces all, so A takes none."
        ),
    ),
    Mutant(
        name="findings belong to a URL",
        where="protocol.md#one-bucket-several-urls",
        rule="a finding belongs to the bucket, whatever URL a client uses",
        edit=Edit(
            (
                "StoredReports._url",
                "return self._bucket.url if kind is Kind.REQUEST_EXPIRY else self._bucket.name()",
                "return self._bucket.url",
            )
        ),
        setting=_TWO_NAMES,
        caught=UNEXPLAINED,
        story=(
            "A and B know one store by two URLs. B stores the finding that the store enforces no "
            "condition, and A does not find it. B takes a lease, and A relies on the store."
        ),
    ),
    Mutant(
        name="a new URL is a new bucket",
        where="protocol.md#one-bucket-several-urls",
        rule="a client whose URL is not in the list looks for the identity objects of the list",
        edit=Edit(
            ("BucketIdentity._with_url", "there = identities.has(bucket.identity)", "there = False")
        ),
        setting=_TWO_NAMES,
        caught=UNEXPLAINED,
        story="A does not look for the object that B has stored, and lists the bucket a second time.",
    ),
    Mutant(
        name="the list of buckets replaced without a condition",
        where="protocol.md#one-bucket-several-urls",
        rule=(
            "the list is replaced only if it has not changed; otherwise the client looks for the new "
            "identity objects"
        ),
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
            "A's request to list the bucket is slow. Meanwhile B has listed it, and uses its own "
            "finding. A's list replaces B's, and A uses its own finding, too."
        ),
    ),
    Mutant(
        name="a vendor's header left out",
        where="protocol.md#native",
        rule="a condition is sent in the dialect that the store is proven to honour",
        edit=Edit(("ConditionalStore._spelled", "return IfAbsent(dialect)", "return condition")),
        setting=racing(BOTH, **_COS),
        caught=UNEXPLAINED,
        story="A and B send the standard header, which the store ignores. Both creations succeed.",
    ),
    Mutant(
        name="a condition trusted in a bucket that keeps versions",
        where="protocol.md#native",
        rule=(
            "if an object has a version where the store ignores the condition then, the outcome is "
            "`OutcomeUnknown`"
        ),
        edit=Edit(
            (
                "NativeCommitter._check_exclusive",
                "if result is None or result.version is None:",
                "if True:",
            )
        ),
        setting=racing(BOTH, **{**_COS, "wrap": lambda store, _: _Cos(store, versioned=True)}),
        caught=UNEXPLAINED,
        story=(
            "Versioning was enabled after the probe, so the store ignores the header. Both creations "
            "succeed."
        ),
    ),
    Mutant(
        name="an own object reported as a conflict in a vendor's dialect",
        where="protocol.md#lost-answers",
        rule="a lost answer, and then the own object: the write happened",
        edit=Edit(
            (
                "NativeCommitter.run",
                "result = self._read_back(mutation, lost, failure)",
                "raise failure",
            )
        ),
        setting=racing({"A": create("k")}, Fault.LOST_RESPONSE, **_COS),
        caught=UNEXPLAINED,
        story=(
            "A's creation happened, but its answer is lost. The store refuses the retry, and A reports "
            "that another client's object exists."
        ),
    ),
)
