"""Assertions of the contract checks of both ports: a call that must fail, and racing calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from commitlog.errors import CommitError

__all__ = ["assert_raises", "race"]

T = TypeVar("T")
P = ParamSpec("P")


def assert_raises(
    kind: type[Exception],
    because: str,
    call: Callable[P, object],
    *args: P.args,
    **keywords: P.kwargs,
) -> None:
    """Assert that the call raises `kind`; `because` explains the failure."""
    try:
        result = call(*args, **keywords)
    except kind:
        return
    except Exception as error:
        raise AssertionError(f"{because}: expected {kind.__name__}, not {error!r}") from error
    raise AssertionError(f"{because}: expected {kind.__name__}, not {result!r}")


def race(calls: Sequence[Callable[[], T]]) -> list[T | CommitError]:
    """Start all calls at once, each in a thread; return the result or the error of each."""
    barrier = threading.Barrier(len(calls), timeout=60.0)

    def racer(call: Callable[[], T]) -> T | CommitError:
        barrier.wait()
        try:
            return call()
        except CommitError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(racer, calls))
