"""Simulated requests from a node to a server: transport, execution, answers and faults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from commitlog.errors import CommitError, Conflict, OutcomeUnknown, Unavailable
from commitlog.stores.api import (
    ObjectData,
    ObjectInfo,
    Observation,
    Page,
    PutResult,
    Staged,
    StageWriter,
)
from commitlog.tables.api import ConditionFailed
from commitlog.testing.clock import EPOCH
from commitlog.testing.sim.faults import Fault
from commitlog.testing.sim.simulation import Node

__all__ = ["Request", "begin", "call", "describe"]

T = TypeVar("T")

_NODE_FAULTS = (Fault.PAUSED, Fault.CRASHED)
_READ_FAULTS = (Fault.LOST_REQUEST, Fault.DELAYED, Fault.THROTTLED)
_WRITE_FAULTS = (
    *_READ_FAULTS,
    Fault.LOST_RESPONSE,
    Fault.DUPLICATED,
    Fault.REPEATED,
    Fault.FAILED_AFTER,
)
#: The faults of requests that name no additional ones.
_READ = (*_NODE_FAULTS, *_READ_FAULTS)
_WRITE = (*_NODE_FAULTS, *_WRITE_FAULTS)
#: Errors that a server may answer with: those of the port, and those of invalid arguments.
_ANSWERS = (CommitError, TypeError, ValueError)
_NONE: Mapping[Fault, Callable[[], Any]] = MappingProxyType({})


def begin(
    node: Node,
    what: str,
    perform: Callable[[], T],
    *,
    mutates: bool,
    more: Collection[Fault] = (),
    instead: Mapping[Fault, Callable[[], T]] = _NONE,
    spared: Collection[Fault] = (),
    body: float = 0.0,
    admit: Callable[[], object] = lambda: None,
) -> Callable[[], T]:
    """Send a request, and return a function that waits for its answer.

    Args:
        node: the sender.
        what: verb and path, for the trace and for forced faults.
        perform: performs the request on the server.
        mutates: whether the request changes state. If a read gets no answer, its sender gets
            `Unavailable`, because a lost read has no effect. If a mutation gets no answer, its sender
            gets `OutcomeUnknown`.
        more: additional faults that may strike the request.
        instead: for each fault, the function that replaces `perform` if the fault strikes.
        spared: faults that never strike the request.
        body: seconds of true time between the arrival of the request's head and that of the last byte of
            its body. The server performs the request after that.
        admit: called when the head arrives, if `body` is not 0. It raises an error to refuse a request.
    """
    if more or instead or spared:
        possible = _possible(mutates, (*more, *instead), frozenset(spared))
    else:
        possible = _WRITE if mutates else _READ
    fault, seconds = node.point(what, possible)
    performed = instead.get(fault, perform) if fault else perform
    request = Request(node, what, performed, mutates, body, admit)
    request.send(fault, seconds)
    return request.wait


@lru_cache(maxsize=256)
def _possible(mutates: bool, more: tuple[Fault, ...], spared: frozenset[Fault]) -> tuple[Fault, ...]:
    """Return the faults that may strike a request, in the order in which they are drawn."""
    return tuple(fault for fault in (*(_WRITE if mutates else _READ), *more) if fault not in spared)


def call(node: Node, what: str, perform: Callable[[], T], **options: Any) -> T:
    """Send a request and wait for its answer. The arguments are those of `begin`."""
    pending: Callable[[], T] = begin(node, what, perform, **options)
    return pending()


class Request(Generic[T]):
    """A request that `begin` sends."""

    def __init__(
        self,
        node: Node,
        what: str,
        perform: Callable[[], T],
        mutates: bool,
        body: float,
        admit: Callable[[], object],
    ) -> None:
        self._node = node
        self._simulation = node.simulation
        self._name = node.next_request()
        self._what = what
        self._perform = perform
        self._mutates = mutates
        self._body = body
        self._admit = admit
        self._answer: Callable[[], T] | None = None

    def send(self, fault: Fault | None, seconds: float) -> None:
        """Schedule the arrival of the request, with `fault`."""
        simulation = self._simulation
        there, back = simulation.latency(self._node.name), simulation.latency(self._node.name)
        if fault is Fault.DELAYED:
            there += seconds
        patience = simulation.patience / self._node.clock.rate
        answered = there + back <= patience and fault not in (Fault.LOST_REQUEST, Fault.LOST_RESPONSE)
        if simulation.tracing:
            length = f" by {seconds:g} s" if seconds else ""
            met = f" [{fault.value}{length}]" if fault else ""
            self._node.note(f"{self._name}: {self._what}{met}")
        if fault is not Fault.LOST_REQUEST:
            # The travel time of the answer is already chosen, so it is part of the event's name.
            self._later(
                there, "arrives", lambda: self._arrive(fault, back if answered else None), back or None
            )
        if fault is Fault.DUPLICATED:
            self._later(there + seconds, "arrives again", self._arrive_again)
        if not answered:
            # The client starts to wait for an answer only after it has sent the body.
            self._later(patience + self._body, "gives up", lambda: self._settle(self._no_answer))

    def wait(self) -> T:
        """Wait for the answer, then return the value or raise the error."""
        while self._answer is None:
            self._node.wait_for(self)
        return self._answer()

    # inside

    def _later(
        self, seconds: float, what: str, action: Callable[[], None], back: float | None = None
    ) -> None:
        self._simulation.after(seconds, (self._name, what, back), action)

    def _arrive(self, fault: Fault | None, back: float | None) -> None:
        answer: Callable[[], T]
        if fault is Fault.CONFLICT:
            answer = _raising(Conflict("another request was under way; nothing happened"))
        elif fault is Fault.THROTTLED:
            answer = _raising(Unavailable("the service sheds load; nothing happened"))
        elif self._body and (refused := self._refusal(self._name)):
            answer = refused
        elif self._body:
            self._later(self._body, "is whole", lambda: self._apply(fault, back), back)
            return
        else:
            self._apply(fault, back)
            return
        self._reply(answer, back)

    def _apply(self, fault: Fault | None, back: float | None) -> None:
        answer = self._effect(self._name)
        if fault is Fault.REPEATED:
            answer = self._effect(f"{self._name}'")
        if fault is Fault.FAILED_AFTER:
            answer = _raising(OutcomeUnknown("the service failed"))
        self._reply(answer, back)

    def _reply(self, answer: Callable[[], T], back: float | None) -> None:
        if back is None:
            return
        if back == 0:
            self._settle(answer)  # no other event can come in between
        else:
            self._later(back, "is answered", lambda: self._settle(answer))

    def _arrive_again(self) -> None:
        name = f"{self._name}'"
        if not self._body:
            self._perform_again(name)
        elif not self._refusal(name):
            self._later(self._body, "is whole again", lambda: self._perform_again(name))

    def _perform_again(self, name: str) -> None:
        self._effect(name)

    def _refusal(self, name: str) -> Callable[[], T] | None:
        """Return the refusal if the server refuses the request before its body arrives, else None."""
        try:
            self._simulation.perform(name, self._admit)
        except _ANSWERS as error:
            self._simulation.note(f"  {name} {self._what}: {describe(error)}")
            return _raising(error)
        return None

    def _effect(self, name: str) -> Callable[[], T]:
        """Perform the request, and return a function that returns or raises the answer."""
        try:
            value = self._simulation.perform(name, self._perform)
        except _ANSWERS as error:
            if self._simulation.tracing:
                self._simulation.note(f"  {name} {self._what}: {describe(error)}")
            return _raising(error)
        if self._mutates and self._simulation.tracing:
            self._simulation.note(f"  {name} {self._what}: {describe(value)}")
        return lambda: value

    def _no_answer(self) -> T:
        if self._mutates:
            raise OutcomeUnknown(f"no answer to {self._what}")
        raise Unavailable(f"no answer to {self._what}")

    def _settle(self, answer: Callable[[], T]) -> None:
        if self._answer is None:
            self._answer = answer
            if self._simulation.tracing:
                self._node.note(f"{self._name} -> {_outcome(answer)}")
            self._node.go_on(self)


def _raising(error: Exception) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


def _outcome(answer: Callable[[], object]) -> str:
    try:
        return describe(answer())
    except _ANSWERS as error:
        return describe(error)


def describe(answer: object) -> str:
    """Return one line for an answer. Different answers have different lines.

    >>> describe(None), describe({"path": "a", "generation": 0})
    ('done', "{'generation': 0, 'path': 'a'}")
    """
    if answer is None:
        return "done"
    if isinstance(answer, Observation):
        seen = "nothing" if answer.info is None else describe(answer.info)
        return f"{seen} at {answer.store_time}"
    if isinstance(answer, ObjectInfo):
        said = [answer.path, answer.etag, f"@{round(answer.last_modified - EPOCH, 9):g}"]
        said += [f"{key}={value}" for key, value in sorted(answer.metadata.items())]
        said += [repr(answer.data)] if isinstance(answer, ObjectData) else []
        return " ".join(said)
    if isinstance(answer, PutResult):
        return f"done, {answer.etag}"
    if isinstance(answer, Staged):
        return f"staged as {answer.upload_id}"
    if isinstance(answer, StageWriter):
        return "an upload"
    if isinstance(answer, Page):
        return (
            f"{[describe(info) for info in answer.objects]} {list(answer.prefixes)} {answer.next_token}"
        )
    if isinstance(answer, ConditionFailed):
        return f"ConditionFailed, there is {describe(answer.item) if answer.item_known else '?'}"
    if isinstance(answer, BaseException):
        return f"{type(answer).__name__}: {answer}"
    if isinstance(answer, Mapping):
        return repr(dict(sorted(answer.items())))
    return repr(answer)
