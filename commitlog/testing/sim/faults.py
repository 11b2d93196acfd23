"""The faults of the simulator: kinds, rates and forced faults."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen, validators

__all__ = ["Fault", "Faults", "Forced"]


class Fault(enum.Enum):
    """A kind of fault. The first ten strike requests, the next two nodes, the last one the table."""

    #: The request never arrives. Its sender gives up after a while and does not know the outcome.
    LOST_REQUEST = "request lost"
    #: The request is performed, but its answer never arrives. Its sender does not know the outcome.
    LOST_RESPONSE = "response lost"
    #: The request arrives late, perhaps after its sender has given up.
    DELAYED = "request delayed"
    #: The request is performed and answered, and later performed a second time.
    DUPLICATED = "request duplicated"
    #: An intermediary sends the request twice in succession and returns only the second answer.
    REPEATED = "request repeated on the way"
    #: The request is performed, but the answer is an error that proves nothing (HTTP 500).
    FAILED_AFTER = "5xx after applying"
    #: The service reports a concurrent request and did nothing (HTTP 409).
    CONFLICT = "conflict"
    #: The service sheds load and did nothing (HTTP 503 Slow Down).
    THROTTLED = "throttled"
    #: A bulk deletion removes some objects, and reports the others as failed.
    PARTIAL = "partial bulk delete"
    #: An intermediary, such as an ingress, answers a read with 404 instead of the store. This fault
    #: strikes only clients that trust any 404. For other clients, it equals a missing answer.
    MISROUTED = "404 that is not the store's"
    #: The node stops for a while and does not notice it.
    PAUSED = "node paused"
    #: The node crashes. The requests that it has sent still arrive.
    CRASHED = "node crashed"
    #: The table drops its expired items at this time.
    SWEPT = "expired items swept"

    # The hash of `enum.Enum` is written in Python: too slow for the frequent look-ups of faults.
    __hash__ = object.__hash__


@frozen
class Forced:
    """A fault that happens at a given point.

    Attributes:
        where: name of the scheduling point: the node's name and its next action as in the trace, such as
            ``"A put a/b"``; ``"A clock"`` before a reading of its clock; ``"A sleep"`` before a sleep;
            ``"table sweep"`` before a step while the table has items to sweep.
        fault: the fault that happens there.
        nth: the number of the visit of that point, from 1.
        seconds: length of the delay or pause, or the time until the duplicate arrives.
    """

    where: str
    fault: Fault
    nth: int = field(default=1, validator=validators.ge(1))
    seconds: float = field(default=0.0, validator=validators.ge(0))


def _frozen_rates(rates: Mapping[Fault, float]) -> Mapping[Fault, float]:
    return MappingProxyType(dict(rates))


@frozen(kw_only=True)
class Faults:
    """The faults of a run. Without arguments, there are none.

    Args:
        rates: the probability of each fault at each point where it is possible.
        delays: the lengths of delays and pauses, and the times until duplicates arrive, in seconds of
            true time. Each fault picks one of them.
        most: maximum number of faults in one run, without the forced ones; None for no limit.
        until: the true time in seconds after which only forced faults happen.
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
