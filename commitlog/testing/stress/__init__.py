"""Stress tests: processes write conditionally to a real store, through a faulty network, and get killed.

`run_stress` starts worker processes that call one store at random. A proxy between them and the store
loses, delays and duplicates their requests. The run also kills and stops workers. At the end,
`commitlog.testing.check_linearizable` checks the history of all calls. ``python -m
commitlog.testing.stress --help`` describes the command.

The modules: `plan` (settings, faults and signals), `run` (a run and its report), `fleet` (the worker
processes), `worker` (one worker), `foreign` (a worker that uses obstore).
"""

from commitlog.testing.stress.plan import StressSettings
from commitlog.testing.stress.run import StressReport, run_stress

__all__ = ["StressReport", "StressSettings", "run_stress"]
