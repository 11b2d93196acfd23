"""The protocols with one rule broken, to see that the simulator finds out; see docs/mutants.md."""
