"""Cases that only a run with ``--all`` has, and the cases that a run has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

__all__ = ["wanted", "with_all", "with_all_but"]


def with_all(*values: object, marks: Sequence[pytest.MarkDecorator] = ()) -> Any:
    """Return one case of a parametrized test that runs with ``--all`` only."""
    return pytest.param(*values, marks=[pytest.mark.all, *marks])


def with_all_but(keep: Callable[..., bool], cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test; those that `keep` refuses run with ``--all`` only.

    Args:
        keep: takes the values of a case as its arguments.
        cases: a tuple of values each, or a value.
    """
    marked = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marked.append(case if keep(*values) else with_all(*values))
    return marked


def wanted(request: pytest.FixtureRequest, test: Callable[..., object], *names: str) -> list[Any]:
    """Return the values of the parameters `names` in each case of `test` that this run has, in order.

    For a fixture that prepares all cases of a test at once.
    """
    return [
        tuple(item.callspec.params[name] for name in names)
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test
    ]
