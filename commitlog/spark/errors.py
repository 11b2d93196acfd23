"""Errors of this library inside Spark's exceptions, which carry them as text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, cast

from commitlog import errors
from commitlog.errors import CommitError, JobAlreadyCommitted, PublishIncomplete
from commitlog.outputs import Output

__all__ = ["error_of", "own_errors"]

_NAMED = re.compile(r"commitlog\.errors\.(\w+): (.+)")


def error_of(error: BaseException) -> CommitError | None:
    """Return the error of this library that caused an exception of Spark; None if there is none.

    Use it for Spark's own writes, such as ``df.write.format("commitlog").save(url)`` and writes of the
    configured committer. `write` and `compact` raise the library's errors themselves.

    Args:
        error: the exception that Spark raised, in a classic session or with Spark Connect; or that of a
            streaming query, from ``query.exception()``.

    The returned error has its original class and message. Attributes such as ``version`` have their
    defaults, because Spark carries only the message.
    """
    if isinstance(error, CommitError):
        return error
    cause: Any = error
    while cause is not None:
        # A classic session hides the causes of its exceptions, unless it shows the JVM's stack traces.
        found = _named(str(cause)) or _named(getattr(cause, "_stackTrace", None) or "")
        if found is not None:
            return found
        cause = getattr(cause, "_cause", None)
    return None


def _named(text: str) -> CommitError | None:
    """Return the error of this library in the text of an exception."""
    # The root cause comes last. A suppressed exception is a failure of the abort after it, and says
    # nothing about the commit.
    _, _, cause = f"\n{text}".rpartition("\nCaused by: ")
    cause, _, _ = cause.partition("\n\tSuppressed: ")
    known = [(name, text) for name, text in _NAMED.findall(cause) if name in errors.__all__]
    if not known:
        return None
    # In a chain of Python errors, the last one is the one that was raised.
    name, message = known[-1]
    return cast("CommitError", getattr(errors, name)(message.rstrip()))


@contextlib.contextmanager
def own_errors(job_id: str | None = None, output: Output | None = None) -> Iterator[None]:
    """Replace an exception of Spark with the error of this library in its text, if there is one.

    Args:
        job_id: id of the job that is written, for errors with that attribute.
        output: the output, to look up the job's version for errors with that attribute.
    """
    try:
        yield
    except Exception as error:
        own = error_of(error)
        if own is None or own is error:
            raise
        if isinstance(own, (JobAlreadyCommitted, PublishIncomplete)) and job_id is not None:
            own.job_id = job_id
            if output is not None:
                with contextlib.suppress(CommitError):  # the log may be unreadable
                    own.version = output.version_of(job_id) or 0
        raise own from error
