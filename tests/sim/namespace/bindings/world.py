"""Worlds for tests of bound directories on the simulator: clients of one tree, and others who store and
remove objects without knowing of it.

What clients do with bound directories is in `sim.namespace.bindings.actions`, what is to be seen in
`sim.namespace.bindings.views`, what must be so in `sim.namespace.bindings.judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from commitlog.errors import ObjectChanged
from commitlog.namespace import Namespace
from commitlog.testing import ManualClock
from commitlog.testing.sim import EPOCH, Simulation
from sim.namespace.bindings.judge import BoundJudge
from sim.namespace.bindings.views import Stale, View, is_covered
from support.namespace import Model

#: What others do: an object, and its content, or None when they remove it; or a pause in seconds.
Others: TypeAlias = Sequence[tuple[str, bytes | None] | float]


class BoundWorld(BoundJudge):
    """A namespace with bound directories.

    Args:
        simulation: where it all happens.
        others: what others do, one after the other, between any two requests.
        options: those of `NamespaceWorld`.
    """

    def __init__(self, simulation: Simulation, *, others: Others = (), **options: Any) -> None:
        super().__init__(simulation, **options)
        self._let_others(others)

    def _let_others(self, others: Others) -> None:
        """Let them do the first thing, when its turn comes, and then the rest."""
        if not others:
            return
        first, *rest = others
        if isinstance(first, float):
            self.simulation.after(first, f"others, {len(rest)} to go", lambda: self._let_others(rest))
            return
        path, body = first

        def act() -> None:
            self._theirs = path
            self.simulation.note(f"others {'remove' if body is None else 'store'} {path}")
            name = f"others, {len(rest)} to go"
            if body is None:
                self.simulation.perform(name, lambda: self.store.delete(path))
            else:
                self.simulation.perform(name, lambda: self.store.put(path, body))
            self._theirs = ""
            self._let_others(rest)

        self.simulation.after(0.0, f"others, {len(rest)} to go", act)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if something is wrong in a run that has ended; return `outcomes`.

        Beside what every `NamespaceWorld` has to be in the end: what is believed is what a client sees,
        and reads; after a synchronisation the rows are as the store is. Pruning removes only files that
        have lost their objects. What such a file covered is visible at once where the store is asked,
        and after the next synchronisation where the rows are believed.
        """
        told = super().judge()
        self._ending = True
        clock = ManualClock(epoch=EPOCH + self.simulation.now + 1e6)
        lake = self._bystander(clock)
        now = int(clock.epoch() * 1000)
        self._check_seen(lake, now)
        lake.bindings.sync()
        rowed = self._sight.rowed.tree
        assert rowed == self._asked.tree, f"synchronised, {rowed} is not {self._asked.tree}"
        files = {names for names, body in rowed.nodes.items() if isinstance(body, Stale)}
        lake.bindings.prune()
        for tombstones in self._sight.tombstones.values():
            for each in tombstones.values():
                hides = [
                    info
                    for path, info in self._sight.objects.items()
                    if each.hides(info) or (each.etag is None and path.startswith(each.path))
                ]
                assert hides, f"pruned, and {each.path} is still hidden, of which there is nothing"
        believed = self._check_seen(lake, now)
        for names, _ in believed.nodes.items() ^ self._asked.tree.nodes.items():
            assert is_covered(names, files), f"pruned, and {names} is not as it is in the store"
        lake.bindings.sync()
        assert _seen(lake) == _readable(self._asked.tree.nodes), "what is seen is not what is so"
        return told

    def _check_seen(self, lake: Namespace, now: int) -> Model:
        """Return what is believed at a millisecond, which is what a client sees then."""
        believed = View.of(self._sight, lambda binding: not binding.is_fresh(now)).tree
        assert _seen(lake) == _readable(believed.nodes), "what is seen is not what is believed"
        return believed


def _seen(lake: Namespace) -> dict[tuple[str, ...], bytes | None]:
    found: dict[tuple[str, ...], bytes | None] = {(): None}
    for each in list(lake.walk()):
        names = tuple(each.path.split("/"))
        try:
            found[names] = None if each.is_directory else lake.read(each.path)
        except ObjectChanged:
            found[names] = b""
    return found


def _readable(nodes: Mapping[tuple[str, ...], bytes | None]) -> dict[tuple[str, ...], bytes | None]:
    return {names: b"" if isinstance(body, Stale) else body for names, body in nodes.items()}
