"""What must be so of a namespace with bound directories on the simulator, after each request and at each
answer, beside what `sim.namespace.judge` has.

What others store changes by their hand alone. What there is to be seen (`sim.namespace.bindings.views`)
changes

* with what others do;
* with the one transaction of an operation, as the plain tree does with that operation; what was covered,
  or came from others meanwhile, may come to light;
* with what is taken from the store into the table, only by directories that are empty by now. The rows
  become what was there at some moment of the call, and a directory that is said to be synchronised since
  a moment has nothing but what was there since.

What was deleted is not seen again, unless others store it anew. Whoever looks finds what was there at
some moment of the call; as long as a directory is believed, what its rows say. After a synchronisation,
the rows are as the store is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from commitlog.errors import CommitError
from commitlog.namespace.model.binding import Binding
from commitlog.testing.sim import EPOCH, Node, Simulation
from sim.namespace.actions import Do
from sim.namespace.bindings.actions import Prune, Sync
from sim.namespace.bindings.memory import Deleted, Memory
from sim.namespace.bindings.views import Names, Sight, Stale, View, is_covered
from sim.namespace.cluster import NamespaceWorld
from sim.namespace.judge import Call
from support.namespace import Model

#: Where others store objects.
THEIRS = ("raw/", "old/")


class BoundJudge(NamespaceWorld):
    """A world in whose store others work, too. Options are those of `NamespaceWorld`."""

    def __init__(self, simulation: Simulation, **options: Any) -> None:
        self._token = ""
        #: Words of what takes from the store what is there.
        self._taking: set[str] = set()
        #: What others are just storing or removing.
        self._theirs = ""
        #: How often others have stored anything, and at which of these an object was stored last.
        self._puts = 0
        self._put_at: dict[str, int] = {}
        self._deleted = Deleted()
        self._memories: dict[int, Memory] = {}
        self._ending = False
        self._sight: Sight
        self._asked: View
        super().__init__(simulation, **{"stored": True, **options})
        simulation.add_state(lambda: (self._deleted.state(), self._puts))
        simulation.add_state(self._remembered)

    def _begin(self, *made: Any) -> None:
        self.auditor.spared = frozenset(("object-missing", "object-changed", "out-of-date"))
        super()._begin(*made)
        self._look_again()

    def _client(self, node: Node) -> Any:
        """Return a client that tells what it takes from the store from what it changes."""
        lake = super()._client(node)
        new_id = lake._context.new_id

        def word() -> str:
            made = new_id()
            self._taking.add(made)
            return made

        object.__setattr__(lake._context.row_planning, "new_id", word)
        return lake

    def _remembered(self) -> Hashable:
        return tuple(self._memory(call).state() for call in self._running.values())

    # what is to be seen

    def _found(self, tree: Mapping[str, object]) -> Model:
        return Model()

    def _look_again(self) -> None:
        seen = self._known.more.get(self._passed)
        if seen is None:
            sight = self._see()
            seen = self._known.more[self._passed] = (sight, sight.asked)
        self._sight, self._asked = seen
        self.model = self._asked.tree

    def _see(self) -> Sight:
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
        theirs = {path: info for path, info in infos.items() if path.startswith(THEIRS)}
        return Sight.of(snapshot, theirs, bodies)

    def _believed(self) -> Callable[[Binding], bool]:
        """Return what tells whether the store is asked, now."""
        now = int((EPOCH + self.simulation.now) * 1000)
        return lambda binding: not binding.is_fresh(now)

    # after each change

    def _changed(self, token: str) -> None:
        self._token = token
        super()._changed(token)

    def _check(self, call: Call | None) -> None:
        before, asked = self._sight, self._asked
        self._audit()
        self._look_again()
        after = self._sight
        if after.objects != before.objects:
            self._others_did(before, after)
        elif call is None:
            self._check_nobody(before, asked)
        elif isinstance(call.do, Prune):
            self._took_effect(call)
            self._check_pruned(before, asked, files=True)
        elif self._token in self._taking and call.do.name not in ("bind", "unbind"):
            self._check_taken(call, before, asked)
        else:
            self._check_done(call, before, asked)
        self._deleted.check(self._asked)
        for running in self._running.values():
            self._notice(running)

    def _others_did(self, before: Sight, after: Sight) -> None:
        changed = {
            path
            for path in before.objects.keys() | after.objects.keys()
            if before.objects.get(path) != after.objects.get(path)
        }
        assert changed == {self._theirs}, f"{sorted(changed)} is somebody else's, and was changed"
        self._puts += 1
        for path in changed & after.objects.keys():
            self._put_at[path] = self._puts
            self._deleted.stored(path)

    def _check_nobody(self, before: Sight, asked: View) -> None:
        """What belongs to no call is content that nothing names; what is pruned are tombstones."""
        if self._ending or self._pruning():
            self._check_pruned(before, asked, files=self._ending)
            return
        assert asked.tree == self._asked.tree, f"changed by itself: {asked.tree} to {self._asked.tree}"

    def _pruning(self) -> list[Call]:
        return [
            call for call in self.calls if isinstance(call.do, Prune) and call.told in ("", "unknown")
        ]

    def _check_pruned(self, before: Sight, asked: View, *, files: bool) -> None:
        """Check that only useless tombstones went, and, if `files`, files that have lost their objects.

        Such a file may have covered an object or a prefix of its name. docs/namespace.md promises that
        it is visible when the file is gone.
        """
        pruning = self._pruning()
        was, now = asked.tree.nodes, self._asked.tree.nodes
        lost = {
            names for names, body in was.items() if isinstance(body, Stale) and now.get(names) != body
        }
        gone = {names for names, body in was.items() - now.items() if names not in lost}
        assert not gone, f"pruning has removed {sorted(gone)}"
        assert files or not lost, f"pruning has removed {sorted(lost)}"
        puts = min((self._memory(call).puts for call in pruning), default=self._puts)
        old = any(isinstance(call.do, Prune) and call.do.hidden for call in pruning)
        for names, _ in now.items() - was.items():
            if is_covered(names, lost):
                continue
            assert names in self._asked.alone, f"pruning has made {_path(names)}"
            assert old or self._is_news(names, puts), f"pruning has brought back {_path(names)}"
            self._deleted.pruned(self._asked.alone[names])
        self._deleted.unhidden(before, self._sight, lambda path: old or self._put_at.get(path, 0) > puts)

    def _check_taken(self, call: Call, before: Sight, asked: View) -> None:
        """Nothing changes but how it is kept."""
        new = dict(self._asked.tree.nodes.items() - asked.tree.nodes.items())
        lost = dict(asked.tree.nodes.items() - self._asked.tree.nodes.items())
        assert not lost, f"{call} has taken from the store, and there is no {lost} any more"
        over = call.told != ""
        memory = self._memory(call)
        for names, body in new.items():
            empty = body is None and (over or None in memory.ever(names))
            assert empty, f"{call} has taken {_path(names)} from the store, which is not to be seen"
        if over:
            return
        old, rows = before.rowed.tree.nodes, self._sight.rowed.tree.nodes
        for names in old.keys() | rows.keys():
            there = rows.get(names, "nothing")
            if old.get(names, "nothing") != there:
                was = memory.ever(names)
                assert there in was, f"{call} has taken {_path(names)} as {there!r}, and it was {was}"
        self._check_marks(call, before, memory)

    def _check_marks(self, call: Call, before: Sight, memory: Memory) -> None:
        """A directory that was marked as synchronised has what was there since."""
        rowed = self._sight.rowed
        was = before.rowed
        for names, (_, binding) in rowed.places.items():
            _, earlier = was.places.get(names, ("", None))
            if binding is None or binding.synced is None or binding == earlier:
                continue
            since = [each for each in memory.moments if _ms(each.at) >= binding.synced]
            first = len(memory.moments) - len(since)
            since = memory.moments[max(0, first - 1) :]
            known = {
                each for moment in since for each in moment.asked.tree.nodes
            } | rowed.tree.nodes.keys()
            for child in known:
                if child[:-1] != names or not child:
                    continue
                there = rowed.tree.nodes.get(child, "nothing")
                ever = {moment.asked.tree.nodes.get(child, "nothing") for moment in since}
                assert there in ever, (
                    f"{call} says that {_path(names)} is synchronised, and {_path(child)} was not so"
                )

    def _check_done(self, call: Call, before: Sight, asked: View) -> None:
        """What an operation does is what it does to the plain tree."""
        self._took_effect(call)
        if call.do.changes == "many":
            done = call.do.step(asked.tree, self._asked.tree)
            assert done, f"{call} has made {self._asked.tree} of {asked.tree}"
            self._deleted.found(self._sight)
            return
        puts = self._memory(call).puts
        unseen = {path for path, at in self._put_at.items() if at > puts}
        asks = self._believed()
        # A file whose object others have just removed may have been found before that. Or it was not, as
        # "without the object there is no such file": then a directory is empty that has only such files.
        for keeps in (True, False):
            planned = View.of(before, asks, keeps=keeps, unseen=unseen).tree
            expected = planned.copy()
            try:
                call.do.model(expected)
                break
            except CommitError as error:
                refused = f"{call} took effect where there is {error!r}, in {planned}"
        else:
            raise AssertionError(refused)
        view = View.of(self._sight, asks, keeps=keeps)
        found = view.tree.nodes
        touched = planned.nodes.items() ^ expected.nodes.items()
        for names in found.keys() | expected.nodes.keys():
            if names in found and names in expected.nodes and found[names] == expected.nodes[names]:
                continue
            alone = any(names[:length] in view.alone for length in range(1, len(names) + 1))
            covered = any(names[: len(each)] == each for each, _ in touched)
            news = alone and (covered or self._is_news(names, puts))
            assert news, f"{call} has made {view.tree}, instead of {expected}"
        self._deleted.changed(before, self._sight)

    def _is_news(self, names: Names, puts: int) -> bool:
        """Tell whether others have stored what is seen, or is below, since they had so often."""
        inner = [each for each in self._asked.tree.nodes if each[: len(names)] == names]
        return any(self._put_at.get(self._path_of(each), 0) > puts for each in inner)

    def _path_of(self, names: Names) -> str:
        _, binding = self._asked.places.get(names[:-1], ("", None))
        return "" if binding is None else binding.path_of(names[-1])

    # at each answer

    def _notice(self, call: Call) -> None:
        self._memory(call).add(self.simulation.now, self._asked)
        believed = View.of(self._sight, self._believed())
        call.possible.add(self._told(call.do, believed.tree))
        if believed.has_asked:
            call.possible.add(self._told(call.do, self._asked.tree))

    def _memory(self, call: Call) -> Memory:
        return self._memories.setdefault(id(call), Memory(puts=self._puts))

    def _told(self, do: Do, tree: Model) -> Hashable:
        try:
            answer = do.model(tree.copy())
        except CommitError as error:
            return type(error).__name__
        if do.name == "read" and isinstance(answer, Stale):
            return "ObjectChanged"
        return "done", answer

    def _judge_answer(self, call: Call, value: object) -> None:
        if call.told != "unknown":
            self._notice(call)
        super()._judge_answer(call, value)
        if call.told == "done" and isinstance(call.do, Sync):
            self._check_synced(call, call.do.path)

    def _fits(self, call: Call, answer: Hashable) -> bool:
        if answer == "ObjectChanged" and len(call.possible) > 1:
            return True  # it was another when it was opened
        if call.do.name != "list" or isinstance(answer, str):
            return answer in call.possible
        lists = [set[str](each[1]) for each in call.possible if isinstance(each, tuple)]
        assert isinstance(answer, tuple)
        found = set(answer[1])
        return bool(lists) and set.intersection(*lists) <= found <= set.union(*lists)

    def _check_synced(self, call: Call, path: str) -> None:
        """The rows have what was there all the time, and nothing that never was.

        By docs/namespace.md, a directory may be missed that was moved into another one meanwhile.
        """
        memory = self._memory(call)
        below = tuple(path.split("/")) if path else ()
        rowed = self._sight.rowed
        for names in rowed.tree.nodes.keys() | self._asked.tree.nodes.keys():
            if names[: len(below)] != below:
                continue
            ever = memory.ever(names)
            there = rowed.tree.nodes.get(names, "nothing")
            assert len(ever) > 1 or there in ever or memory.was_moved(self._asked, names), (
                f"{call} is done, and {_path(names)} is {there!r}, not {ever}"
            )


def _path(names: Names) -> str:
    return "/".join(names)


def _ms(seconds: float) -> int:
    return int((EPOCH + seconds) * 1000)
