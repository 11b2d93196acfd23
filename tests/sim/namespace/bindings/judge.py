"""The judge of a world with bound directories: further invariants after each change and of each result.

Objects of other programs are changed only by these programs. The visible tree
(`sim.namespace.bindings.views`) changes

* when another program changes an object;
* by the one transaction of an action, as the plain tree changes by that action. Entries that were
  covered, or that other programs have stored meanwhile, may become visible;
* when a client records objects of the store in the table. Only empty directories may appear. The rows
  become the state of the store at some moment of the call. A directory that is marked as synchronized
  since a moment has only entries that existed since.

A deleted entry does not become visible again, unless another program stores it again. A lookup returns
the state at some moment of the call; while the rows of a directory are used, it returns them. After a
synchronization, the rows agree with the store.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from commitlog.errors import CommitError
from commitlog.namespace.model.binding import Binding
from commitlog.testing.sim import EPOCH, Node, Simulation
from sim.namespace.actions import Action
from sim.namespace.bindings.actions import Prune, Sync
from sim.namespace.bindings.call_history import CallHistory, DeletedPaths
from sim.namespace.bindings.views import Names, Stale, State, View, is_covered
from sim.namespace.judge import Call
from sim.namespace.world import NamespaceWorld
from support.namespace import Model

#: Prefixes below which other programs store objects.
BOUND_PREFIXES = ("raw/", "old/")


class BindingJudge(NamespaceWorld):
    """A world whose store other programs change too. Options are those of `NamespaceWorld`."""

    def __init__(self, simulation: Simulation, **options: Any) -> None:
        self._token = ""
        #: Ids of transactions that record objects of the store.
        self._recording_ids: set[str] = set()
        #: The path of the object that another program is changing.
        self._changing = ""
        #: Number of changes by other programs, and the number of the last put of each object.
        self._puts = 0
        self._put_at: dict[str, int] = {}
        self._deleted = DeletedPaths()
        self._histories: dict[int, CallHistory] = {}
        self._ending = False
        self._state: State
        self._current: View
        super().__init__(simulation, **{"stored": True, **options})
        simulation.add_state(lambda: (self._deleted.state(), self._puts))
        simulation.add_state(self._remembered)

    def _begin(self, *made: Any) -> None:
        self.auditor.spared = frozenset(("object-missing", "object-changed", "out-of-date"))
        super()._begin(*made)
        self._observe()

    def _client(self, node: Node) -> Any:
        """Return a client whose recordings of objects can be distinguished from its changes."""
        namespace = super()._client(node)
        new_id = namespace._context.new_id

        def new_recording_id() -> str:
            made = new_id()
            self._recording_ids.add(made)
            return made

        object.__setattr__(namespace._context.row_planning, "new_id", new_recording_id)
        return namespace

    def _remembered(self) -> Hashable:
        return tuple(self._history_of(call).state() for call in self._running.values())

    # the visible tree

    def _found(self, tree: Mapping[str, object]) -> Model:
        return Model()

    def _observe(self) -> None:
        seen = self._known.more.get(self._passed)
        if seen is None:
            state = self._see()
            seen = self._known.more[self._passed] = (state, state.current)
        self._state, self._current = seen
        self.model = self._current.tree

    def _see(self) -> State:
        bodies = self._known.more.setdefault("bodies", {})
        infos = {info.path: info for info in self.store.list()}
        for info in infos.values():
            if (info.path, info.etag) not in bodies:
                bodies[info.path, info.etag] = self.store.get(info.path).data
        snapshot = self.auditor.snapshot()
        for entry in snapshot.entries.values():
            if entry.data is not None and entry.data.own:
                there = infos.get(entry.data.path)
                assert there is not None and there.etag == entry.data.etag, f"I4: {entry.name} is lost"
        bound = {path: info for path, info in infos.items() if path.startswith(BOUND_PREFIXES)}
        return State.of(snapshot, bound, bodies)

    def _believed(self) -> Callable[[Binding], bool]:
        """Return a function that returns whether lookups of a directory read the store now."""
        now = int((EPOCH + self.simulation.now) * 1000)
        return lambda binding: not binding.is_fresh(now)

    # after each change

    def _changed(self, token: str) -> None:
        self._token = token
        super()._changed(token)

    def _check(self, call: Call | None) -> None:
        before, previous = self._state, self._current
        self._audit()
        self._observe()
        after = self._state
        if after.objects != before.objects:
            self._check_other_writes(before, after)
        elif call is None:
            self._check_unowned_change(before, previous)
        elif isinstance(call.do, Prune):
            self._took_effect(call)
            self._check_pruned(before, previous, files=True)
        elif self._token in self._recording_ids and call.do.name not in ("bind", "unbind"):
            self._check_taken(call, before, previous)
        else:
            self._check_done(call, before, previous)
        self._deleted.check(self._current)
        for running in self._running.values():
            self._notice(running)

    def _check_other_writes(self, before: State, after: State) -> None:
        changed = {
            path
            for path in before.objects.keys() | after.objects.keys()
            if before.objects.get(path) != after.objects.get(path)
        }
        assert changed == {self._changing}, (
            f"{sorted(changed)} was changed, but belongs to another program"
        )
        self._puts += 1
        for path in changed & after.objects.keys():
            self._put_at[path] = self._puts
            self._deleted.stored(path)

    def _check_unowned_change(self, before: State, previous: View) -> None:
        """Check a change of no call: only unreferenced content and pruned tombstones may go."""
        if self._ending or self._pruning():
            self._check_pruned(before, previous, files=self._ending)
            return
        assert previous.tree == self._current.tree, (
            f"the tree changed without a call: {previous.tree} to {self._current.tree}"
        )

    def _pruning(self) -> list[Call]:
        return [
            call for call in self.calls if isinstance(call.do, Prune) and call.outcome in ("", "unknown")
        ]

    def _check_pruned(self, before: State, previous: View, *, files: bool) -> None:
        """Check that only useless tombstones went, and, if `files`, files whose objects are gone.

        Such a file may have covered an object or a prefix with its name. By docs/namespace.md, it is
        visible when the file is gone.
        """
        pruning = self._pruning()
        was, now = previous.tree.nodes, self._current.tree.nodes
        lost = {
            names for names, body in was.items() if isinstance(body, Stale) and now.get(names) != body
        }
        gone = {names for names, body in was.items() - now.items() if names not in lost}
        assert not gone, f"pruning has removed {sorted(gone)}"
        assert files or not lost, f"pruning has removed {sorted(lost)}"
        puts = min((self._history_of(call).puts for call in pruning), default=self._puts)
        old = any(isinstance(call.do, Prune) and call.do.hidden for call in pruning)
        for names, _ in now.items() - was.items():
            if is_covered(names, lost):
                continue
            assert names in self._current.alone, f"pruning has created {_path(names)}"
            assert old or self._is_newer(names, puts), f"pruning has brought back {_path(names)}"
            self._deleted.pruned(self._current.alone[names])
        self._deleted.unhidden(before, self._state, lambda path: old or self._put_at.get(path, 0) > puts)

    def _check_taken(self, call: Call, before: State, previous: View) -> None:
        """Check a recording of objects: the visible tree does not change."""
        new = dict(self._current.tree.nodes.items() - previous.tree.nodes.items())
        lost = dict(previous.tree.nodes.items() - self._current.tree.nodes.items())
        assert not lost, f"{call} recorded objects, but removed {lost}"
        over = call.outcome != ""
        history = self._history_of(call)
        for names, body in new.items():
            empty = body is None and (over or None in history.ever(names))
            assert empty, f"{call} recorded {_path(names)}, which is not visible"
        if over:
            return
        old, rows = before.recorded.tree.nodes, self._state.recorded.tree.nodes
        for names in old.keys() | rows.keys():
            there = rows.get(names, "nothing")
            if old.get(names, "nothing") != there:
                was = history.ever(names)
                assert there in was, f"{call} recorded {_path(names)} as {there!r}, but it was {was}"
        self._check_marks(call, before, history)

    def _check_marks(self, call: Call, before: State, history: CallHistory) -> None:
        """Check a directory that was marked as synchronized: it has the entries since that moment."""
        recorded = self._state.recorded
        was = before.recorded
        for names, (_, binding) in recorded.places.items():
            _, earlier = was.places.get(names, ("", None))
            if binding is None or binding.synced is None or binding == earlier:
                continue
            since = [each for each in history.moments if _milliseconds(each.at) >= binding.synced]
            first = len(history.moments) - len(since)
            since = history.moments[max(0, first - 1) :]
            known = {
                each for moment in since for each in moment.current.tree.nodes
            } | recorded.tree.nodes.keys()
            for child in known:
                if child[:-1] != names or not child:
                    continue
                there = recorded.tree.nodes.get(child, "nothing")
                ever = {moment.current.tree.nodes.get(child, "nothing") for moment in since}
                assert there in ever, (
                    f"{call} marked {_path(names)} as synchronised, but {_path(child)} was different"
                )

    def _check_done(self, call: Call, before: State, previous: View) -> None:
        """Check a change of an action: it has the same effect on the plain tree."""
        self._took_effect(call)
        if call.do.changes == "many":
            done = call.do.step(previous.tree, self._current.tree)
            assert done, f"{call} changed {previous.tree} to {self._current.tree}"
            self._deleted.found(self._state)
            return
        puts = self._history_of(call).puts
        unseen = {path for path, at in self._put_at.items() if at > puts}
        asks = self._believed()
        # The action may have seen a file before another program removed its object, or after. In the
        # second case, a directory with only such files is empty.
        for keeps in (True, False):
            planned = View.of(before, asks, keeps=keeps, unseen=unseen).tree
            expected = planned.copy()
            try:
                call.do.model(expected)
                break
            except CommitError as error:
                refused = f"{call} took effect despite {error!r}, in {planned}"
        else:
            raise AssertionError(refused)
        view = View.of(self._state, asks, keeps=keeps)
        found = view.tree.nodes
        touched = planned.nodes.items() ^ expected.nodes.items()
        for names in found.keys() | expected.nodes.keys():
            if names in found and names in expected.nodes and found[names] == expected.nodes[names]:
                continue
            alone = any(names[:length] in view.alone for length in range(1, len(names) + 1))
            covered = any(names[: len(each)] == each for each, _ in touched)
            appeared = alone and (covered or self._is_newer(names, puts))
            assert appeared, f"{call} resulted in {view.tree}, not {expected}"
        self._deleted.changed(before, self._state)

    def _is_newer(self, names: Names, puts: int) -> bool:
        """Return whether another program has stored an entry, or one below it, since change `puts`."""
        inner = [each for each in self._current.tree.nodes if each[: len(names)] == names]
        return any(self._put_at.get(self._path_of(each), 0) > puts for each in inner)

    def _path_of(self, names: Names) -> str:
        _, binding = self._current.places.get(names[:-1], ("", None))
        return "" if binding is None else binding.path_of(names[-1])

    # at each answer

    def _notice(self, call: Call) -> None:
        self._history_of(call).add(self.simulation.now, self._current)
        believed = View.of(self._state, self._believed())
        call.possible.add(self._expected_outcome(call.do, believed.tree))
        if believed.has_asked:
            call.possible.add(self._expected_outcome(call.do, self._current.tree))

    def _history_of(self, call: Call) -> CallHistory:
        return self._histories.setdefault(id(call), CallHistory(puts=self._puts))

    def _expected_outcome(self, do: Action, tree: Model) -> Hashable:
        try:
            answer = do.model(tree.copy())
        except CommitError as error:
            return type(error).__name__
        if do.name == "read" and isinstance(answer, Stale):
            return "ObjectChanged"
        return "done", answer

    def _judge_answer(self, call: Call, value: object) -> None:
        if call.outcome != "unknown":
            self._notice(call)
        super()._judge_answer(call, value)
        if call.outcome == "done" and isinstance(call.do, Sync):
            self._check_synced(call, call.do.path)

    def _fits(self, call: Call, answer: Hashable) -> bool:
        if answer == "ObjectChanged" and len(call.possible) > 1:
            return True  # the object was replaced after the file was opened
        if call.do.name != "list" or isinstance(answer, str):
            return answer in call.possible
        lists = [set[str](each[1]) for each in call.possible if isinstance(each, tuple)]
        assert isinstance(answer, tuple)
        found = set(answer[1])
        return bool(lists) and set.intersection(*lists) <= found <= set.union(*lists)

    def _check_synced(self, call: Call, path: str) -> None:
        """Check that the rows have all entries that existed all the time, and none that never did.

        By docs/namespace.md, a synchronization may miss a directory that was moved meanwhile.
        """
        history = self._history_of(call)
        below = tuple(path.split("/")) if path else ()
        recorded = self._state.recorded
        for names in recorded.tree.nodes.keys() | self._current.tree.nodes.keys():
            if names[: len(below)] != below:
                continue
            ever = history.ever(names)
            there = recorded.tree.nodes.get(names, "nothing")
            assert len(ever) > 1 or there in ever or history.was_moved(self._current, names), (
                f"{call} succeeded, but {_path(names)} is {there!r}, not {ever}"
            )


def _path(names: Names) -> str:
    return "/".join(names)


def _milliseconds(seconds: float) -> int:
    return int((EPOCH + seconds) * 1000)
