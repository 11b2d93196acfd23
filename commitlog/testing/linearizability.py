"""`check_linearizable`: checks whether the observed calls can have happened one at a time."""

from __future__ import annotations

from collections.abc import Iterable

from commitlog.testing.counterexample import Counterexample
from commitlog.testing.history import Call, History
from commitlog.testing.linearization import CheckUndecided, linearize

__all__ = ["CheckUndecided", "NotLinearizable", "check_linearizable"]

#: They take a few seconds and tens of megabytes.
_LIMIT = 200_000


class NotLinearizable(AssertionError):
    """No order of the calls on a key explains their results. The message shows a minimal example.

    Attributes:
        key: the key.
        example: the calls, and the longest valid order of them.
    """

    # Defaults, since unpickling makes the error from its message and then sets the attributes.
    def __init__(self, message: str, *, key: str = "", example: Counterexample | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.example = example


def check_linearizable(history: Iterable[Call], *, limit: int = _LIMIT) -> None:
    """Check that the calls on each key can be put in an order that explains all their results.

    Initially, there is no object. A call that was done or refused takes effect at one moment between its
    invocation and its return. A call with an unknown outcome takes effect at any moment after its
    invocation, or never. A call that did nothing never takes effect. This is linearizability (Herlihy
    and Wing, 1990). It holds for a store if and only if it holds for each key. It implies that

    * at most one of the writes that expect the same version happens, and at most one creation until the
      object is removed;
    * readers see the last written version until the next write;
    * a failed call has no effect, then or later.

    Args:
        history: calls on any number of keys. It must include all writes to these keys.
        limit: maximum number of configurations to examine per key. A check needs about as many as there
            are writes, and more if many writes overlap or have unknown outcomes.

    Raises:
        NotLinearizable: a key has no such order. The error is about the first such key found.
        CheckUndecided: `limit` did not suffice. That key and the keys after it remain unchecked.

    >>> from commitlog.testing import Action, Outcome
    >>> def read(version: str | None, at: float) -> Call:
    ...     return Call(client="A", action=Action.READ, key="k", version=version, outcome=Outcome.DONE,
    ...                 invoked=at, returned=at + 1)
    >>> check_linearizable([read(None, 1)])
    >>> check_linearizable([read("w1", 1)])
    Traceback (most recent call last):
    commitlog.testing.linearizability.NotLinearizable: ...
    """
    for key, calls in History(tuple(history)).by_key().items():
        if not linearize(calls, limit=limit).complete:
            example = Counterexample.of(calls.calls, limit=limit)
            raise NotLinearizable(
                f"no order of the calls on {key!r} explains their results; {example}",
                key=key,
                example=example,
            )
