"""Cases that only a run with ``--all`` or a campaign has, and the cases of the present run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

__all__ = ["examples", "in_campaigns", "one_in", "select_examples", "wanted", "with_all", "with_all_but"]

#: Whether tests with examples take all of them: in a run with ``--all``, or in a campaign.
_takes_all = True


def select_examples(expression: str) -> bool:
    """Let a run with this expression for markers take all examples, unless it leaves out ``all``.

    Returns whether it takes all.
    """
    global _takes_all
    _takes_all = "not all" not in expression
    return _takes_all


def examples(few: int, many: int) -> int:
    """Return a number of examples, seeds or rounds of a test: `many` with ``--all``, else `few`."""
    return many if _takes_all else few


def with_all(*values: object, marks: Sequence[pytest.MarkDecorator] = ()) -> Any:
    """Return one case of a parametrized test that runs only with ``--all``."""
    return pytest.param(*values, marks=[pytest.mark.all, *marks])


def in_campaigns(*values: object, marks: Sequence[pytest.MarkDecorator] = ()) -> Any:
    """Return one case of a parametrized test that runs only in campaigns: with ``-m campaign``."""
    return pytest.param(*values, marks=[pytest.mark.campaign, *marks])


def with_all_but(keep: Callable[..., bool], cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test; those that `keep` rejects run only with ``--all``.

    Args:
        keep: takes the values of a case as its arguments.
        cases: for each case a tuple of values, or a value.
    """
    marked = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marked.append(case if keep(*values) else with_all(*values))
    return marked


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test, of which one in `step` runs by default."""
    numbers = itertools.count()
    return with_all_but(lambda *values: next(numbers) % step == 0, cases)


def wanted(request: pytest.FixtureRequest, test: Callable[..., object], *names: str) -> list[Any]:
    """Return the values of the parameters `names` in each case of `test` in this run, in order.

    A fixture uses it to prepare all cases of a test at once.
    """
    return [
        tuple(item.callspec.params[name] for name in names)
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test
    ]
