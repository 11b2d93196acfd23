"""What must be so of a namespace on the simulator, after each request and at each answer.

At every request that changes anything, wherever it came from and however late, all invariants are
checked (`support.namespace.Auditor`), and

* the operation that it belongs to was not told to have failed, or done before;
* the tree is what that operation makes of the plain one (`support.namespace.Model`): with
  `stable_paths`, as an operation on paths; without, only what it may remove is gone, since it may have
  been made to a directory that others have just renamed;
* nothing was added to a directory that is closed;
* the log knows every version that there is, and has decided nothing that did not happen (I8).

At every answer: what was done was done once; what failed did nothing, and for a reason that the plain
tree gives at some moment of the call; what was read is what the plain tree had at some moment of it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

from attrs import define, field, frozen

from commitlog.errors import CommitError, ObjectChanged, TransactionCanceled
from commitlog.namespace.model.records import Entry
from commitlog.oplog import Decision
from commitlog.oplog.codec import decode
from commitlog.tables.api import Item
from commitlog.testing.sim import table_state
from sim.namespace.actions import Do
from sim.namespace.servers import WatchedStore, WatchedTable
from support.namespace import Auditor, Model

LAKE = "lake"

#: What a call may raise at any time: nothing happened, and nothing follows from it.
_TROUBLE = ("Conflict", "Fenced", "Unavailable")


@define
class Call:
    """An operation that a node has begun.

    Attributes:
        do: the operation.
        node: of which node.
        possible: what the plain tree would have answered since it began.
        told: "done", "unknown", or the name of an error; "" as long as it is under way.
        changes: how many transactions of it were done.
    """

    do: Do
    node: str
    possible: set[Hashable] = field(factory=set)
    told: str = ""
    changes: int = 0

    def __str__(self) -> str:
        return f"{self.do.name} of {self.node}"

    def state(self) -> Hashable:
        """Return what of it matters from now on."""
        over = self.told not in ("", "unknown")
        return self.node, self.told, self.changes, frozenset() if over else frozenset(self.possible)


#: Paths of operations in a log, that of an epoch included.
_OPERATION = re.compile(r"log/(?:logs/[^/]+/)?(?P<kind>pending|decided)/(?P<id>[^/]+)\.json")

#: An operation that is logged: its body, its decision, and the ids and versions of what it writes.
_Logged: TypeAlias = tuple[Mapping[str, Any], Decision | None, frozenset[tuple[str, int]]]


@frozen
class _Audit:
    """What a world has remembered after an audit that found nothing wrong."""

    found: Model
    ids: set[str]
    closed: dict[str, set[str]]
    seen: dict[str, Entry]
    gone: frozenset[str]
    objects: frozenset[str]


@define
class Known:
    """What runs of one world have in common, since all of them begin alike.

    Attributes:
        audits: what was found right, and is not looked at again.
        items, objects, applied: what servers have at the beginning.
        more: what other judges remember.
        shared: whether there is more than one run. If not, nothing has to be recognised.
    """

    shared: bool = True
    audits: dict[int, _Audit] = field(factory=dict)
    items: tuple[Item, ...] = ()
    objects: tuple[Mapping[str, Any], ...] = ()
    applied: tuple[str, ...] = ()
    more: dict[Hashable, Any] = field(factory=dict)


class NamespaceJudge:
    """Of one namespace: looks at its table and store, and at what its clients are told.

    Args:
        table, store: what there is of it; each tells `_changed` of what is done to it.
        logs: what has its log, or None.
        stable: whether paths are.
        exact: see `NamespaceWorld`.
        known: what is known from other runs of this world.
    """

    def __init__(
        self,
        *,
        table: WatchedTable,
        store: WatchedStore,
        logs: WatchedStore | None,
        stable: bool,
        exact: bool,
        known: Known,
    ) -> None:
        self.table = table
        self.store = store
        self.logs = logs
        self.model = Model()
        self.auditor = Auditor(table, LAKE, store)
        self.calls: list[Call] = []
        self._stable = stable
        self._exact = exact
        self._known = known
        self._passed = 0
        #: The state of table and store that was audited last, and the tree that was found.
        self._audited: tuple[tuple[WatchedTable, int, int], Model] | None = None
        #: The state of log, table and store whose log was checked last.
        self._logged: object = None
        #: Logged operations, by path and etag.
        self._entries: dict[tuple[str, str], _Logged] = {}
        self._watching = False
        self._tampered = False
        self._running: dict[str, Call] = {}
        #: Which call a word was made for.
        self._owners: dict[str, Call] = {}
        #: What directories have to which nothing may be added.
        self._closed: dict[str, set[str]] = {}
        #: What is in the tree, by id.
        self._ids: set[str] = set()

    def _judge_answer(self, call: Call, value: object) -> None:
        if call.told == "unknown":
            return
        assert call.told != TransactionCanceled.__name__, f"{call} lets an inner error out"
        if call.told == "done":
            done = [each for each in self.calls if each.told == "done" and each.do.once == call.do.once]
            assert not call.do.once or done == [call], f"{call.do.once} is told done to two"
            if call.do.changes == "one":
                assert call.changes == 1, f"{call} is told that it was done, and nothing happened"
            answer: Hashable = ("done", value)
        else:
            if call.do.changes != "many":
                assert not call.changes, f"{call} is told {call.told}, and it was done"
            if call.told in _TROUBLE:
                return
            answer = call.told
            if self._tampered and call.told == ObjectChanged.__name__:
                return
        if self._exact and call.do.changes != "many":
            assert self._fits(call, answer), f"{call} is told {answer}, and it was never so"

    def _fits(self, call: Call, answer: Hashable) -> bool:
        """Tell whether the answer is right at some moment of the call."""
        return answer in call.possible

    def _notice(self, call: Call) -> None:
        """Remember what a call may be told that sees what is now."""
        call.possible.add(self._would(call.do))

    def _would(self, do: Do) -> Hashable:
        """Return what the plain tree answers now."""
        try:
            return "done", do.model(self.model.copy())
        except CommitError as error:
            return type(error).__name__

    # what must be so

    def _changed(self, token: str) -> None:
        """Check everything, after a request that has changed something."""
        if not self._watching:
            return
        try:
            self._check(self._owners.get(token))
        except CommitError as error:  # which would be taken for the server's answer
            raise AssertionError(f"I4: {error}") from error

    def _check(self, call: Call | None) -> None:
        if call is not None:
            self._took_effect(call)
        before = self._ids
        found = self._audit()
        if call is None:
            assert found == self.model, f"the tree changed by itself: {self.model} to {found}"
            return  # what calls may be told is as it was
        if call.do.changes == "many" and (self._stable or not call.do.follows):
            assert call.do.step(self.model, found), f"{call} has made {found} of {self.model}"
        elif self._stable:
            try:
                call.do.model(self.model)
            except CommitError as error:
                raise AssertionError(f"{call} took effect where there is {error!r}") from error
            assert found == self.model, f"{call} has made {found}, instead of {self.model}"
        else:
            gone = before - self._ids
            removes = call.do.removes
            assert removes is None or len(gone) <= removes, f"{call} has removed {sorted(gone)}"
        self.model = found
        for running in self._running.values():
            self._notice(running)

    def _audit(self) -> Model:
        """Check what is so without regard to who did what; return the tree.

        Runs of an exploration begin alike. What one has passed through is known to be right.
        """
        if not self._known.shared:
            self._passed += 1
            return self._audit_changes().copy()
        stores = (self.store,) if self.logs is None else (self.store, self.logs)
        listed = tuple(tuple(store.etags().items()) for store in stores)
        items = table_state(self.table)()
        self._passed = hash((self._passed, items, listed, tuple(self.table.applied)))
        known = self._known.audits.get(self._passed)
        if known is None or self._tampered:
            self._audited = self._logged = None
            found = self._audit_changes()
            known = _Audit(
                found=found,
                ids=self._ids,
                closed=self._closed,
                seen=self.auditor._seen,
                gone=frozenset(self.auditor._gone),
                objects=frozenset(self.auditor.objects),
            )
            self._known.audits[self._passed] = known
        self._ids, self._closed = known.ids, known.closed
        self.auditor._seen = known.seen
        self.auditor._gone, self.auditor.objects = set(known.gone), set(known.objects)
        return known.found.copy()

    def _audit_changes(self) -> Model:
        """Audit table, store and log as far as they have changed since the last audit."""
        state = self.table, self.table.changes, self.store.changes
        if self._audited is None or self._audited[0] != state or self._tampered:
            tree = self.auditor.audit()
            if self._audited is None or self._audited[0][:2] != state[:2]:
                self._look(tree)
            self._audited = state, self._found(tree)
        if self.logs is not None:
            # Content that is stored or removed changes neither the log nor the table.
            logged = self.logs.changes, self.table, self.table.changes, len(self.table.applied)
            if self._logged != logged:
                self._check_log()
                self._logged = logged
        return self._audited[1]

    def _took_effect(self, call: Call) -> None:
        late = call.told not in ("", "unknown") and not call.do.tidies
        assert not late, f"{call} was told {call.told}, and takes effect after that"
        call.changes += 1
        if call.do.changes != "many":
            assert call.changes == 1, f"{call} took effect twice"

    def _found(self, tree: Mapping[str, Entry]) -> Model:
        found = Model()
        for path, entry in tree.items():
            names = tuple(path.split("/"))
            body = None
            if entry.data is not None:
                body = self.model.nodes.get(names) if self._tampered else None
                if body is None:
                    body = self.store.get(entry.data.path).data
            found.nodes[names] = body
        return found

    def _look(self, tree: Mapping[str, Entry]) -> None:
        """Check that nothing was added to what is closed; remember what there is."""
        self._ids = {entry.id for entry in tree.values()}
        gates: set[str] = set()
        children: dict[str, set[str]] = {}
        known: set[str] = set()
        for item in self.table.scan():
            if "id" in item:
                known.add(str(item["id"]))
            _, kind, *rest = [*str(item["place"]).split("/"), ""]
            if kind == "g":
                gates.add(rest[0])
            elif kind == "e":
                children.setdefault(rest[0], set()).add(str(item["id"]))
        for id, had in self._closed.items():
            more = children.get(id, set()) - had
            assert id in gates or not more, f"{sorted(more)} was added to a directory that is closed"
        self._closed = {id: children.get(id, set()) for id in known - gates - {"trash"}}

    def _check_log(self) -> None:
        """I8: the log knows all versions that there are, and what it has decided is so."""
        versions: set[tuple[str, int]] = set()
        newest: dict[str, int] = {}
        applied = set(self.table.applied)
        for operation, decision, puts in self._logged_operations():
            word = operation["word"]
            done = word in applied
            if decision is Decision.COMMITTED:
                assert done, f"I8: {word} is logged as committed, and was not done"
            if decision is Decision.ROLLED_BACK:
                assert not done, f"I8: {word} is logged as rolled back, and was done"
            if decision is Decision.ROLLED_BACK:
                continue
            versions |= puts
            if decision is Decision.COMMITTED:
                for id, version in puts:
                    newest[id] = max(version, newest.get(id, version))
        for entry in self.auditor._seen.values():
            assert (entry.id, entry.version) in versions, (
                f"I8: version {entry.version} of {entry.name} is in no log"
            )
            assert newest.get(entry.id, entry.version) <= entry.version, (
                f"I8: {entry.name} is older than the log has it"
            )

    def _operations(self) -> list[tuple[Mapping[str, Any], Decision | None]]:
        return [(body, decision) for body, decision, _ in self._logged_operations()]

    def _logged_operations(self) -> list[_Logged]:
        """Return what is decided, then what is pending; decode each entry once."""
        assert self.logs is not None
        found: dict[str, dict[str, _Logged]] = {"decided": {}, "pending": {}}
        entries: dict[tuple[str, str], _Logged] = {}
        for path, etag in self.logs.etags().items():
            place = _OPERATION.fullmatch(path)
            if place is None:
                continue
            logged = self._entries.get((path, etag)) or self._read_entry(path)
            found[place["kind"]][place["id"]] = entries[path, etag] = logged
        self._entries = entries
        decided, pending = found["decided"], found["pending"]
        return [*decided.values(), *(each for id, each in pending.items() if id not in decided)]

    def _read_entry(self, path: str) -> _Logged:
        assert self.logs is not None
        fields = decode(self.logs.get(path).data, ("operation", "decision"), path=path).body
        decision = Decision(fields["decision"]) if "decision" in fields else None
        body = fields["operation"]
        puts = frozenset((item["id"], item["version"]) for item in body["put"] if "version" in item)
        return body, decision, puts

    # the end
