"""Where the project is, and the environment of a Python process that imports test modules."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ROOT", "TESTS", "environment"]

#: The root of the checkout.
ROOT = Path(__file__).parents[2]

#: The directory from which test modules are imported.
TESTS = ROOT / "tests"


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of this process, with `variables`, in which `TESTS` is on the import path."""
    return {**os.environ, "PYTHONPATH": str(TESTS), **variables}
