"""What can go wrong in the simulator, how often, and by whose order.

Imports nothing of the project.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen, validators

__all__ = ["Fault", "Faults", "Forced"]


class Fault(enum.Enum):
    """A kind of misfortune. Requests meet the first ten, nodes the next two, the table the last."""

    #: The request never arrives; its sender gives up after a while, not knowing.
    LOST_REQUEST = "request lost"
    #: The request is performed, and its answer never arrives; its sender gives up, not knowing.
    LOST_RESPONSE = "response lost"
    #: The request arrives late, perhaps after its sender has given up.
    DELAYED = "request delayed"
    #: The request is performed and answered, and performed once more some time later.
    DUPLICATED = "request duplicated"
    #: Something on the way sends the request twice, at once, and passes on the second answer alone.
    REPEATED = "request repeated on the way"
    #: The request is performed and answered as failed, which says nothing (HTTP 500).
    FAILED_AFTER = "5xx after applying"
    #: The service saw a rival, or says so, and did nothing (HTTP 409).
    CONFLICT = "conflict"
    #: The service sheds the request, and did nothing (HTTP 503 Slow Down).
    THROTTLED = "throttled"
    #: Of a bulk deletion some are done, and others are reported as failed.
    PARTIAL = "partial bulk delete"
    #: Something on the way, such as an ingress, answers a read with 404 instead of the store. Only
    #: clients that take any 404 for the store's meet it; for others it is as if no answer came.
    MISROUTED = "404 that is not the store's"
    #: The node stands still for a while, and does not notice.
    PAUSED = "node paused"
    #: The node dies. What it has sent is still on its way.
    CRASHED = "node crashed"
    #: The table drops its expired items at this moment.
    SWEPT = "expired items swept"

    # That of `enum.Enum` is written in Python, and faults are looked up all the time.
    __hash__ = object.__hash__


@frozen
class Forced:
    """A fault that is ordered to happen.

    Attributes:
        where: name of the scheduling point: the node's name and what it is about to do as the trace has
            it, such as ``"A put a/b"``; or ``"A clock"`` before a reading of its clock, ``"A sleep"``
            before a sleep, and ``"table sweep"`` before a step while there is something to sweep.
        fault: what happens there.
        nth: at which visit of that point, from 1.
        seconds: how long the delay or pause is, or how much later the duplicate arrives.
    """

    where: str
    fault: Fault
    nth: int = field(default=1, validator=validators.ge(1))
    seconds: float = field(default=0.0, validator=validators.ge(0))


def _frozen_rates(rates: Mapping[Fault, float]) -> Mapping[Fault, float]:
    return MappingProxyType(dict(rates))


@frozen(kw_only=True)
class Faults:
    """What goes wrong in a run. Without arguments, nothing does.

    Args:
        rates: how probable each fault is at each point where it is possible.
        delays: the lengths that delays, pauses and the distances of duplicates are picked from, in
            seconds of true time.
        most: most faults in one run, ordered ones not counted; None: any number.
        until: moment of true time, in seconds, from which on nothing goes wrong any more.
        forced: faults that happen in any case.

    >>> Faults(rates={Fault.LOST_RESPONSE: 0.1}, until=60.0).rates[Fault.LOST_RESPONSE]
    0.1
    """

    rates: Mapping[Fault, float] = field(factory=dict, converter=_frozen_rates, hash=False)
    delays: tuple[float, ...] = field(default=(1.0,), validator=validators.min_len(1))
    most: int | None = None
    until: float = math.inf
    forced: tuple[Forced, ...] = ()

    def __attrs_post_init__(self) -> None:
        if not all(0 <= rate <= 1 for rate in self.rates.values()) or sum(self.rates.values()) > 1:
            raise ValueError(f"rates are probabilities, and at most 1 together: {dict(self.rates)}")
        if min(self.delays) < 0:
            raise ValueError(f"delays are in seconds, 0 or more: {self.delays}")
