"""The judge of a world of namespaces: invariants after each change, and checks of each result.

After each change of table or store, whichever request made it, `support.namespace.Auditor` checks all
invariants. In addition,

* the action that made the change has not failed or succeeded before;
* the tree is the result of that action on the plain tree (`support.namespace.Model`). With
  `stable_paths`, the action names a path. Without, it may have affected a directory that another client
  renamed, so only the removed entries are compared;
* no entry was added to a closed directory;
* the log has every version, and no decision about an operation that did not happen (I8).

Each result is checked: an action that succeeded happened once. An action that failed did nothing, and
the plain tree has its error at some moment of the call. A read returned the state of the plain tree at
some moment of the call.
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
from sim.namespace.actions import Action
from sim.namespace.servers import WatchedStore, WatchedTable
from support.namespace import Auditor, Model

NAME = "lake"

#: Errors that a call may raise at any time. They prove that nothing happened.
_TROUBLE = ("Conflict", "Fenced", "Unavailable")


@define
class Call:
    """A call of an action.

    Attributes:
        do: the action.
        node: the name of the node.
        possible: the results of the plain tree since it began.
        outcome: "done", "unknown", or the name of an error; "" before its end.
        changes: number of its transactions so far.
    """

    do: Action
    node: str
    possible: set[Hashable] = field(factory=set)
    outcome: str = ""
    changes: int = 0

    def __str__(self) -> str:
        return f"{self.do.name} of {self.node}"

    def state(self) -> Hashable:
        """Return the part of the call on which the future depends."""
        over = self.outcome not in ("", "unknown")
        return self.node, self.outcome, self.changes, frozenset() if over else frozenset(self.possible)


#: Paths of operations in a log, including the logs of epochs.
_OPERATION = re.compile(r"log/(?:logs/[^/]+/)?(?P<kind>pending|decided)/(?P<id>[^/]+)\.json")

#: A logged operation: its body, its decision, and the ids and versions that it writes.
_Logged: TypeAlias = tuple[Mapping[str, Any], Decision | None, frozenset[tuple[str, int]]]


@frozen
class _Audit:
    """The state of a judge after a successful audit."""

    found: Model
    ids: set[str]
    closed: dict[str, set[str]]
    seen: dict[str, Entry]
    gone: frozenset[str]
    objects: frozenset[str]


@define
class Known:
    """The common knowledge of all runs of one world, which begin in the same way.

    Attributes:
        audits: states that passed an audit, and are not audited again.
        items, objects, applied: the initial contents of the servers.
        more: the knowledge of other judges.
        shared: whether there is more than one run. If not, no state needs to be recognized.
    """

    shared: bool = True
    audits: dict[int, _Audit] = field(factory=dict)
    items: tuple[Item, ...] = ()
    objects: tuple[Mapping[str, Any], ...] = ()
    applied: tuple[str, ...] = ()
    more: dict[Hashable, Any] = field(factory=dict)


class NamespaceJudge:
    """The judge of one namespace: checks its table and store, and the results of its clients.

    Args:
        table, store: the servers, which report each change to `_changed`.
        logs: the store of its log, or None.
        stable, exact: see `NamespaceWorld`.
        known: the knowledge from other runs of this world.
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
        self.auditor = Auditor(table, NAME, store)
        self.calls: list[Call] = []
        self._stable = stable
        self._exact = exact
        self._known = known
        self._passed = 0
        #: The last audited state of table and store, and its tree.
        self._audited: tuple[tuple[WatchedTable, int, int], Model] | None = None
        #: The last state of log, table and store whose log was checked.
        self._logged: object = None
        #: Logged operations, by path and etag.
        self._entries: dict[tuple[str, str], _Logged] = {}
        self._watching = False
        self._tampered = False
        self._running: dict[str, Call] = {}
        #: The call for which an id was made.
        self._owners: dict[str, Call] = {}
        #: The entries of closed directories, to which no entry may be added.
        self._closed: dict[str, set[str]] = {}
        #: The ids of all entries of the tree.
        self._ids: set[str] = set()

    def _judge_answer(self, call: Call, value: object) -> None:
        if call.outcome == "unknown":
            return
        assert call.outcome != TransactionCanceled.__name__, f"{call} raised an internal error"
        if call.outcome == "done":
            done = [
                each for each in self.calls if each.outcome == "done" and each.do.once == call.do.once
            ]
            assert not call.do.once or done == [call], f"{call.do.once} succeeded twice"
            if call.do.changes == "one":
                assert call.changes == 1, f"{call} succeeded, but changed nothing"
            answer: Hashable = ("done", value)
        else:
            if call.do.changes != "many":
                assert not call.changes, f"{call} got {call.outcome}, but took effect"
            if call.outcome in _TROUBLE:
                return
            answer = call.outcome
            if self._tampered and call.outcome == ObjectChanged.__name__:
                return
        if self._exact and call.do.changes != "many":
            assert self._fits(call, answer), f"{call} got {answer}, which was never correct"

    def _fits(self, call: Call, answer: Hashable) -> bool:
        """Return whether the result is correct at some moment of the call."""
        return answer in call.possible

    def _notice(self, call: Call) -> None:
        """Record the result of a call that sees the current state."""
        call.possible.add(self._would(call.do))

    def _would(self, do: Action) -> Hashable:
        """Return the current result of the plain tree."""
        try:
            return "done", do.model(self.model.copy())
        except CommitError as error:
            return type(error).__name__

    # invariants

    def _changed(self, token: str) -> None:
        """Check all invariants after a change."""
        if not self._watching:
            return
        try:
            self._check(self._owners.get(token))
        except CommitError as error:  # the client would take it for the server's error
            raise AssertionError(f"I4: {error}") from error

    def _check(self, call: Call | None) -> None:
        if call is not None:
            self._took_effect(call)
        before = self._ids
        found = self._audit()
        if call is None:
            assert found == self.model, f"the tree changed without a call: {self.model} to {found}"
            return  # the possible results of calls are unchanged
        if call.do.changes == "many" and (self._stable or not call.do.follows):
            assert call.do.step(self.model, found), f"{call} changed {self.model} to {found}"
        elif self._stable:
            try:
                call.do.model(self.model)
            except CommitError as error:
                raise AssertionError(f"{call} took effect despite {error!r}") from error
            assert found == self.model, f"{call} resulted in {found}, not {self.model}"
        else:
            gone = before - self._ids
            removes = call.do.removes
            assert removes is None or len(gone) <= removes, f"{call} has removed {sorted(gone)}"
        self.model = found
        for running in self._running.values():
            self._notice(running)

    def _audit(self) -> Model:
        """Check the invariants that do not depend on the action; return the tree.

        The runs of an exploration share states. A state that passed in one run is not audited again.
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
        """Audit table, store and log if they have changed since the last audit."""
        state = self.table, self.table.changes, self.store.changes
        if self._audited is None or self._audited[0] != state or self._tampered:
            tree = self.auditor.audit()
            if self._audited is None or self._audited[0][:2] != state[:2]:
                self._look(tree)
            self._audited = state, self._found(tree)
        if self.logs is not None:
            # A change of content affects neither the log nor the table.
            logged = self.logs.changes, self.table, self.table.changes, len(self.table.applied)
            if self._logged != logged:
                self._check_log()
                self._logged = logged
        return self._audited[1]

    def _took_effect(self, call: Call) -> None:
        late = call.outcome not in ("", "unknown") and not call.do.tidies
        assert not late, f"{call} took effect after its outcome {call.outcome}"
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
        """Check that no entry was added to a closed directory; record the current entries."""
        self._ids = {entry.id for entry in tree.values()}
        guards: set[str] = set()
        children: dict[str, set[str]] = {}
        known: set[str] = set()
        for item in self.table.scan():
            if "id" in item:
                known.add(str(item["id"]))
            _, kind, *rest = [*str(item["place"]).split("/"), ""]
            if kind == "g":
                guards.add(rest[0])
            elif kind == "e":
                children.setdefault(rest[0], set()).add(str(item["id"]))
        for id, had in self._closed.items():
            more = children.get(id, set()) - had
            assert id in guards or not more, f"{sorted(more)} was added to a closed directory"
        self._closed = {id: children.get(id, set()) for id in known - guards - {"trash"}}

    def _check_log(self) -> None:
        """I8: the log has all versions, and its decisions are correct."""
        versions: set[tuple[str, int]] = set()
        newest: dict[str, int] = {}
        applied = set(self.table.applied)
        for operation, decision, puts in self._logged_operations():
            change_id = operation["change_id"]
            done = change_id in applied
            if decision is Decision.COMMITTED:
                assert done, f"I8: {change_id} is logged as committed, but did not happen"
            if decision is Decision.ROLLED_BACK:
                assert not done, f"I8: {change_id} is logged as rolled back, but happened"
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
                f"I8: {entry.name} is older than in the log"
            )

    def _operations(self) -> list[tuple[Mapping[str, Any], Decision | None]]:
        return [(body, decision) for body, decision, _ in self._logged_operations()]

    def _logged_operations(self) -> list[_Logged]:
        """Return the decided operations, then the pending ones; decode each entry once."""
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
