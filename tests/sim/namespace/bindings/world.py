"""Worlds with bound directories: clients of a namespace, and other programs that change its objects.

`sim.namespace.bindings.actions` has the actions of clients, `views` the visible tree, and `judge` the
invariants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from commitlog.errors import ObjectChanged
from commitlog.namespace import Namespace
from commitlog.testing import ManualClock
from commitlog.testing.sim import EPOCH, Simulation
from sim.namespace.bindings.judge import BindingJudge
from sim.namespace.bindings.views import Stale, View, is_covered
from support.namespace import Model

#: Changes of other programs: an object and its content, or None to remove it; or a pause in seconds.
Others: TypeAlias = Sequence[tuple[str, bytes | None] | float]


class BindingWorld(BindingJudge):
    """A namespace with bound directories.

    Args:
        simulation: the simulation, with its faults and latencies.
        others: the changes of other programs, in this order, between any two requests.
        options: those of `NamespaceWorld`.
    """

    def __init__(self, simulation: Simulation, *, others: Others = (), **options: Any) -> None:
        super().__init__(simulation, **options)
        self._schedule(others)

    def _schedule(self, others: Others) -> None:
        """Schedule the first change, and the others after it."""
        if not others:
            return
        first, *rest = others
        if isinstance(first, float):
            self.simulation.after(first, f"others, {len(rest)} to go", lambda: self._schedule(rest))
            return
        path, body = first

        def act() -> None:
            self._changing = path
            self.simulation.note(f"others {'remove' if body is None else 'store'} {path}")
            name = f"others, {len(rest)} to go"
            if body is None:
                self.simulation.perform(name, lambda: self.store.delete(path))
            else:
                self.simulation.perform(name, lambda: self.store.put(path, body))
            self._changing = ""
            self._schedule(rest)

        self.simulation.after(0.0, f"others, {len(rest)} to go", act)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if a run that has ended is wrong; return `outcomes`.

        In addition to the checks of `NamespaceWorld`: a client sees and reads the visible tree. After a
        synchronization, the rows agree with the store. Pruning removes only files whose objects are
        gone. Entries that such a file covered are visible at once if lookups read the store, and after
        the next synchronization if they use the rows.
        """
        outcomes = super().judge()
        self._ending = True
        clock = ManualClock(epoch=EPOCH + self.simulation.now + 1e6)
        namespace = self._client_without_faults(clock)
        now = int(clock.epoch() * 1000)
        self._check_seen(namespace, now)
        namespace.bindings.sync()
        recorded = self._state.recorded.tree
        assert recorded == self._current.tree, f"the rows have {recorded}, not {self._current.tree}"
        files = {names for names, body in recorded.nodes.items() if isinstance(body, Stale)}
        namespace.bindings.prune()
        for tombstones in self._state.tombstones.values():
            for each in tombstones.values():
                hides = [
                    info
                    for path, info in self._state.objects.items()
                    if each.hides(info) or (each.etag is None and path.startswith(each.path))
                ]
                assert hides, f"after pruning, a tombstone hides {each.path}, which has no object"
        believed = self._check_seen(namespace, now)
        for names, _ in believed.nodes.items() ^ self._current.tree.nodes.items():
            assert is_covered(names, files), f"after pruning, {names} differs from the store"
        namespace.bindings.sync()
        assert _seen(namespace) == _readable(self._current.tree.nodes), (
            "a client does not see the current tree"
        )
        return outcomes

    def _check_seen(self, namespace: Namespace, now: int) -> Model:
        """Check that a client sees the visible tree at a millisecond; return the tree."""
        believed = View.of(self._state, lambda binding: not binding.is_fresh(now)).tree
        assert _seen(namespace) == _readable(believed.nodes), "a client does not see the expected tree"
        return believed


def _seen(namespace: Namespace) -> dict[tuple[str, ...], bytes | None]:
    found: dict[tuple[str, ...], bytes | None] = {(): None}
    for each in list(namespace.walk()):
        names = tuple(each.path.split("/"))
        try:
            found[names] = None if each.is_directory else namespace.read(each.path)
        except ObjectChanged:
            found[names] = b""
    return found


def _readable(nodes: Mapping[tuple[str, ...], bytes | None]) -> dict[tuple[str, ...], bytes | None]:
    return {names: b"" if isinstance(body, Stale) else body for names, body in nodes.items()}
