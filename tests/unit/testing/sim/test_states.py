"""States of the explorer: states with different futures are different."""

from __future__ import annotations

from commitlog.testing.sim import Choices, Fault, Faults, Simulation, explore


def test_pauses_between_clock_readings_are_different_states() -> None:
    """A pause between two readings of a clock differs from a pause before or after both."""
    spans = set()

    def world(choices: Choices) -> tuple[Simulation, object]:
        simulation = Simulation(choices, faults=Faults(rates={Fault.PAUSED: 0.1}, delays=(5.0,), most=1))
        node = simulation.node("A")

        def program() -> None:
            first, second, third = (node.clock.monotonic() for _ in range(3))
            node.clock.sleep(1)
            spans.add((second - first, third - second))

        node.start(program)
        return simulation, lambda: None

    assert explore(world).complete
    assert spans == {(0, 0), (5, 0), (0, 5)}
