"""`check_linearizable`: judges whether what clients saw can have happened one call at a time.

Imports the history, the search for an order, and what is shown where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable

from commitlog.testing.counterexample import Counterexample
from commitlog.testing.history import Call, History
from commitlog.testing.linearization import CheckUndecided, linearize

__all__ = ["CheckUndecided", "NotLinearizable", "check_linearizable"]

#: They take a few seconds and tens of megabytes.
_LIMIT = 200_000


class NotLinearizable(AssertionError):
    """No order of the calls on a key explains what they returned. The message shows the fewest that do.

    Attributes:
        key: the key.
        example: the calls, and how far an order of them came.
    """

    # Defaults, since unpickling makes the error from its message and then sets the attributes.
    def __init__(self, message: str, *, key: str = "", example: Counterexample | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.example = example


def check_linearizable(history: Iterable[Call], *, limit: int = _LIMIT) -> None:
    """Check that the calls on each key can be put in an order that explains all that clients were told.

    At the beginning there is no object. A call that was done or refused takes effect at one moment
    between its invocation and its return; one whose outcome is unknown at any moment after its
    invocation, or never; one that did nothing never. That is linearizability (Herlihy and Wing, 1990),
    which holds of a store if and only if it holds of each key. So it follows, too, that

    * of the writes that expect one version at most one happens, and of creations at most one until the
      object is removed;
    * what was written is what readers see until the next write;
    * what failed has no effect, then or later.

    Args:
        history: calls on any number of keys, all those that wrote to them included.
        limit: how many configurations may be looked at for one key. About as many are needed as there
            are writes; more if many overlap, or have unknown outcomes.

    Raises:
        NotLinearizable: there is no such order for one of the keys, the first that is found.
        CheckUndecided: `limit` did not suffice. Nothing is known of that key, nor of those after it.

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
                f"no order of the calls on {key!r} explains what they returned; {example}",
                key=key,
                example=example,
            )
