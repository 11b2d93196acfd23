"""Draws from the choices of a simulation, for worlds whose set-up is random too.

All draws come from the one `Choices` of the simulation, so its picks define a run. The first alternative
of each draw is the ordinary one, to which a failed run is shrunk.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from commitlog.testing.sim import Choices, Fault

__all__ = ["RATES", "Draw", "DrawnJitter"]

T = TypeVar("T")

#: For each fault, the alternatives for its probability at each point where it is possible.
RATES: Mapping[Fault, tuple[float, ...]] = MappingProxyType(
    {
        **dict.fromkeys(Fault, (0.0, 0.01, 0.04)),
        Fault.PAUSED: (0.0, 0.003, 0.02),
        Fault.CRASHED: (0.0, 0.003, 0.02),
    }
)


class Draw:
    """A function that draws one of several alternatives with equal probability."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def __call__(self, what: str, options: Sequence[T]) -> T:
        """Return one of `options`; `what` names the decision."""
        return options[self._choices.pick(what, [1.0] * len(options))]


class DrawnJitter(random.Random):
    """Jitter that is drawn too."""

    def __init__(self, draw: Draw, node: str) -> None:
        super().__init__(0)
        self._draw = draw
        self._node = node

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._draw(f"{self._node}'s jitter", (1.0, 0.5, 0.1, 0.0))
