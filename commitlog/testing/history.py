"""Histories: `Call`, one conditional operation or read of a client, and `History`, all of them.

A `Recorder` or a `RecordedStore` makes histories, and `check_linearizable` checks them.

Texts name the versions of an object. No two writes of one key write the same version. All clients use
one time line: seconds of a clock that all of them read, or plain numbers. Only the order of times
matters.
"""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import evolve, field, frozen

from commitlog.errors import CorruptRecord, FormatTooNew

__all__ = ["FORMAT", "Action", "Call", "History", "Outcome", "begin_line", "end_line", "head_line"]

#: Format of the files that are written; this one and all before it are read.
FORMAT = 1


class Action(enum.Enum):
    """The requested effect of a call."""

    #: Write the object if there is none: put, copy, publish.
    CREATE = "create"
    #: Write the object if it still has the expected version.
    REPLACE = "replace"
    #: Remove the object if it still has the expected version.
    REMOVE = "remove"
    #: Read the object: head, get.
    READ = "read"


class Outcome(enum.Enum):
    """The outcome of a call, as its client saw it."""

    #: It happened.
    DONE = "done"
    #: The condition did not hold, so nothing happened: `AlreadyExists`, `PreconditionFailed`.
    CONTRADICTED = "contradicted"
    #: Nothing happened, and the state of the object is unknown: `Unavailable`, `LeaseTimeout`, ...
    NOTHING = "nothing"
    #: `OutcomeUnknown`, or the client died: it takes effect at any time after its beginning, or never.
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class Call:
    """One call of one client on one key.

    Attributes:
        client: the client that made it.
        action: the requested action.
        key: the object.
        expected: for `Action.REPLACE` and `Action.REMOVE`, the expected version of the object.
        version: the version that it writes; for a read, the version that it saw, or None for no object.
        outcome: how it ended.
        invoked: a moment before anything was sent.
        returned: a moment after the response arrived; infinite if and only if the outcome is unknown.
        name: the name of the client's operation, for messages.
    """

    client: str
    action: Action
    key: str
    expected: str | None = None
    version: str | None = None
    outcome: Outcome
    invoked: float
    returned: float = math.inf
    name: str = ""

    def __attrs_post_init__(self) -> None:
        # Checked here: a simulation makes millions of these, and nine validators take longer.
        action, outcome = self.action, self.outcome
        for text in (self.client, self.key, self.name, self.expected or "", self.version or ""):
            if not isinstance(text, str):
                raise TypeError(f"names, keys and versions are str: {self!r}")
        if not isinstance(self.invoked, (int, float)) or not isinstance(self.returned, (int, float)):
            raise TypeError(f"moments are numbers: {self!r}")
        conditional = action is Action.REPLACE or action is Action.REMOVE
        if (self.expected is not None) != conditional:
            raise ValueError(f"a {action.value} {'needs' if conditional else 'has no'} expected version")
        writes = action is Action.CREATE or action is Action.REPLACE
        if action is not Action.READ and (self.version is not None) != writes:
            raise ValueError(f"a {action.value} {'needs' if writes else 'has no'} version")
        if action is Action.READ and outcome is Outcome.CONTRADICTED:
            raise ValueError("a read has no condition that could be contradicted")
        if math.isinf(self.returned) != (outcome is Outcome.UNKNOWN):
            raise ValueError("a call without known outcome never returned, and every other call did")
        if not -math.inf < self.invoked <= self.returned or math.isinf(self.invoked):
            raise ValueError("a call is invoked at some moment, and does not return before it")

    @property
    def needs(self) -> str | None:
        """The version that it saw or expected, or None for no object."""
        return self.version if self.action is Action.READ else self.expected

    @property
    def writes(self) -> bool:
        """Whether it changed the object, or may have."""
        return self.action is not Action.READ and self.outcome in (Outcome.DONE, Outcome.UNKNOWN)


def _sorted(calls: Iterable[Call]) -> tuple[Call, ...]:
    return tuple(sorted(calls, key=lambda call: call.invoked))


@frozen
class History:
    """Calls, in the order in which they began.

    Attributes:
        calls: the calls; sorted when the history is made.

    >>> call = Call(client="A", action=Action.READ, key="k", outcome=Outcome.DONE, invoked=1, returned=2)
    >>> len(History([call]))
    1
    """

    calls: tuple[Call, ...] = field(default=(), converter=_sorted)

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def by_key(self) -> dict[str, History]:
        """Return the history of each key, keys sorted."""
        found: dict[str, list[Call]] = {}
        for call in self.calls:
            found.setdefault(call.key, []).append(call)
        return {key: History(found[key]) for key in sorted(found)}

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the history to a new file, as JSON lines. Raises `FileExistsError`."""
        with open(path, "xb") as file:
            file.write(head_line())
            for number, call in enumerate(self.calls):
                file.write(begin_line(number, call))
                if call.outcome is not Outcome.UNKNOWN:
                    file.write(end_line(number, call))

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> History:
        """Return the content of files that `dump` or a `Recorder` wrote, as one history.

        A call that began and never ended has an unknown outcome: its client was killed, or is still
        waiting. A truncated last line is left out.

        Raises:
            CorruptRecord: a line is invalid.
            FormatTooNew: a newer library wrote the file.
        """
        return cls([call for path in paths for call in _load(path)])


def head_line() -> bytes:
    """Return the line that every file begins with."""
    return _line({"kind": "history", "format": FORMAT})


def begin_line(number: int, call: Call) -> bytes:
    """Return the line for the beginning of `call`; `number` identifies the call in its file."""
    fields = {
        "client": call.client,
        "action": call.action.value,
        "key": call.key,
        "expected": call.expected,
        "version": call.version if call.action is not Action.READ else None,
        "name": call.name,
        "at": call.invoked,
    }
    return _line(
        {"begin": number, **{name: value for name, value in fields.items() if value is not None}}
    )


def end_line(number: int, call: Call) -> bytes:
    """Return the line for the end of `call`."""
    fields: dict[str, Any] = {"end": number, "outcome": call.outcome.value, "at": call.returned}
    if call.action is Action.READ and call.version is not None:
        fields["version"] = call.version
    return _line(fields)


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _load(path: str | os.PathLike[str]) -> Iterable[Call]:
    calls: dict[int, Call] = {}
    ended: set[int] = set()
    with open(path, "rb") as file:
        for place, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break  # the writer was killed while it wrote this line
            try:
                fields = json.loads(line)
                if place == 1:
                    _check_head(fields, path)
                elif "begin" in fields:
                    number = fields.pop("begin")
                    if number in calls:
                        raise ValueError(f"call {number} began before")
                    calls[number] = _begun(fields)
                else:
                    number = fields.pop("end")
                    if number in ended:
                        raise ValueError(f"call {number} ended before")
                    ended.add(number)
                    calls[number] = _ended(calls[number], fields)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise CorruptRecord(
                    f"line {place} of {os.fspath(path)!r} is not a line of a history: {error!r}"
                ) from error
    return calls.values()


def _check_head(fields: dict[str, Any], path: str | os.PathLike[str]) -> None:
    if fields["kind"] != "history" or type(fields["format"]) is not int or fields["format"] < 1:
        raise ValueError("the first line must give the kind and the format of the file")
    if fields["format"] > FORMAT:
        raise FormatTooNew(
            f"{os.fspath(path)!r} has format {fields['format']}, and this library reads up to {FORMAT}: "
            "upgrade it"
        )


def _begun(fields: dict[str, Any]) -> Call:
    action = Action(fields.pop("action"))
    return Call(outcome=Outcome.UNKNOWN, action=action, invoked=fields.pop("at"), **fields)


def _ended(call: Call, fields: dict[str, Any]) -> Call:
    changed = {"outcome": Outcome(fields.pop("outcome")), "returned": fields.pop("at")}
    if call.action is Action.READ:
        changed["version"] = fields.pop("version", None)
    if fields:
        raise ValueError(f"unknown field {sorted(fields)[0]!r} at the end of a call")
    return evolve(call, **changed)
