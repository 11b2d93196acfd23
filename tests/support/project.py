"""Paths of the project, and the environment of a Python process that imports test modules."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["IMPORT_PATH", "ROOT", "TESTS", "environment"]

#: The root of the checkout.
ROOT = Path(__file__).parents[2]

#: The directory from which test modules are imported.
TESTS = ROOT / "tests"

#: The import path of test modules and of the demo, as PYTHONPATH has it.
IMPORT_PATH = os.pathsep.join([str(TESTS), str(ROOT / "examples")])


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of this process, with `IMPORT_PATH` and `variables`."""
    return {**os.environ, "PYTHONPATH": IMPORT_PATH, **variables}
