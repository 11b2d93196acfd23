"""The faults that the proxy injects: named faults, and hazards that strike at random from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Literal, TypeAlias, get_args

from attrs import field, frozen, validators

__all__ = ["Action", "FaultPlan", "Hazard", "ProxyFault", "Strike"]

#: The kinds of faults of a request:
#:
#: * ``drop_request``: the connection is reset, and the server does not get the request.
#: * ``drop_response``: the server performs the request, then the connection is reset.
#: * ``reset``: the connection is reset at once, and the server gets the request `seconds` later.
#: * ``delay``: the server gets the request `seconds` later, while the client waits.
#: * ``duplicate``: the server gets the request twice, and the client the first answer. The second comes
#:   `seconds` after that answer; for 0, right behind the first, before the answer goes out and before
#:   any other mutation of the same path that comes through this proxy.
#: * ``fail``: the server performs the request, and the client gets `status` instead of its answer.
#: * ``answer``: the client gets `status`, and the server does not get the request.
Action: TypeAlias = Literal[
    "drop_request", "drop_response", "reset", "delay", "duplicate", "fail", "answer"
]
_ACTIONS: tuple[Action, ...] = get_args(Action)


def _as_tuple(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


@frozen(kw_only=True)
class ProxyFault:
    """A fault of the next requests of one kind.

    Attributes:
        kind: which requests; see `commitlog.testing.proxy.Proxy`.
        action: the kind of the fault; see `Action`.
        path: only requests whose path and query contain this.
        without: only requests that have none of these headers, in lower case.
        skip: number of matching requests to let through first.
        times: number of requests to strike after that.
        seconds: see `Action`.
        status: HTTP status of an ``answer`` or a ``fail``.
        body: body of the same.
    """

    kind: str
    action: Action = field(validator=validators.in_(_ACTIONS))
    path: str = ""
    without: tuple[str, ...] = field(default=(), converter=_as_tuple)
    skip: int = field(default=0, validator=validators.ge(0))
    times: int = field(default=1, validator=validators.ge(1))
    seconds: float = field(default=0.0, validator=validators.ge(0))
    status: int = 503
    body: str = ""


def _pair(value: tuple[float, float]) -> tuple[float, float]:
    shortest, longest = value
    if not 0 <= shortest <= longest:
        raise ValueError(f"seconds are {value}; they must be the shortest and the longest time")
    return shortest, longest


@frozen(kw_only=True)
class Hazard:
    """A fault that strikes random requests, drawn from a seed.

    Attributes:
        kinds: which requests: those that are of all these kinds; see `commitlog.testing.proxy.Proxy`.
        action: the kind of the fault; see `Action`.
        rate: the share of these requests that it strikes, from 0 to 1.
        path: only requests whose path and query contain this.
        seconds: shortest and longest time, see `Action`; evenly spread.
        status: HTTP status of an ``answer`` or a ``fail``.

    Raises `ValueError` for values out of range.
    """

    kinds: tuple[str, ...] = field(converter=_as_tuple)
    action: Action = field(validator=validators.in_(_ACTIONS))
    rate: float = field(validator=[validators.ge(0), validators.le(1)])
    path: str = ""
    seconds: tuple[float, float] = field(default=(0.0, 0.0), converter=_pair)
    status: int = 500


@frozen
class Strike:
    """The effect of a fault on a request.

    Attributes:
        kind: the request's own kind, the narrowest.
        action: the fault.
        status: the server's response status, for a ``duplicate`` that of the second request; 0 if the
            server got no request or did not answer. A store that refuses late requests shows 403 here.
    """

    kind: str
    action: Action
    status: int


class FaultPlan:
    """The faults of future requests, as a function of the seed. Not thread-safe.

    Args:
        hazards: the possible faults. If several strike the same request, the first one does.
        seed: the seed.

    >>> plan = FaultPlan((Hazard(kinds=("PUT",), action="delay", rate=0.5, seconds=(0, 2)),), seed=1)
    >>> [None if fault is None else round(fault.seconds, 2) for fault in
    ...     (plan.next(("PUT", "S3"), "/bucket/a") for _ in range(4))]
    [None, 1.81, None, None]
    """

    def __init__(self, hazards: tuple[Hazard, ...], seed: int) -> None:
        self._hazards = hazards
        self._seed = seed
        self._counts: dict[str, int] = {}

    def next(self, kinds: tuple[str, ...], target: str) -> ProxyFault | None:
        """Return the fault of the next request of these kinds, narrowest first, or None."""
        kind = kinds[0]
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        # A separate generator for each request, so that no other request affects its fate.
        random = Random(f"{self._seed} {kind} {number}")
        for hazard in self._hazards:
            drawn, seconds = random.random(), random.uniform(*hazard.seconds)
            if drawn < hazard.rate and hazard.path in target and set(hazard.kinds) <= set(kinds):
                return ProxyFault(kind=kind, action=hazard.action, seconds=seconds, status=hazard.status)
        return None
