"""This library's errors, as Spark hands them on: as text in an exception of its own.

Imports outputs and errors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import cast

from commitlog import errors
from commitlog.errors import CommitError, JobAlreadyCommitted, PublishIncomplete
from commitlog.outputs import Output

__all__ = ["error_of", "own_errors"]

_NAMED = re.compile(r"commitlog\.errors\.(\w+): (.+)")


def error_of(error: BaseException) -> CommitError | None:
    """Return the error of this library that an exception of Spark is about; None if there is none.

    For writes of Spark's own, such as ``df.write.format("commitlog").save(url)`` and those of the
    configured committer. `write` and `compact` raise it by themselves.

    Args:
        error: what Spark raised, in a classic session or one of Spark Connect.

    The error has the class and the message that it had where it was raised. Attributes such as
    ``version`` have their defaults: only the message travels.
    """
    if isinstance(error, CommitError):
        return error
    # The root cause comes last. What is suppressed is a failure of the abort that followed, and says
    # nothing of the commit.
    _, _, cause = f"\n{error}".rpartition("\nCaused by: ")
    cause, _, _ = cause.partition("\n\tSuppressed: ")
    known = [(name, text) for name, text in _NAMED.findall(cause) if name in errors.__all__]
    if not known:
        return None
    # Of a chain of Python's, the last one is what was raised in the end.
    name, message = known[-1]
    return cast("CommitError", getattr(errors, name)(message.rstrip()))


@contextlib.contextmanager
def own_errors(job_id: str | None = None, output: Output | None = None) -> Iterator[None]:
    """Raise the error of this library in place of the exception of Spark that has it in its text.

    Args:
        job_id: of the job that is written, for the errors that have it.
        output: where its version is looked up, for the errors that have it.
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
                with contextlib.suppress(CommitError):  # the log may be what cannot be read
                    own.version = output.state().jobs.get(job_id, 0)
        raise own from error
