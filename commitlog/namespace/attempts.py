"""Attempts at jobs that are under way, each in a directory of its own; and those whose jobs have died.

Imports the ground floor, and its siblings.
"""

from __future__ import annotations

import contextlib
from typing import Literal, TypeAlias

from attrs import frozen

from commitlog.absence import SuppressAbsent, is_absent
from commitlog.clock import Clock, SystemClock
from commitlog.errors import NotFound, PreconditionFailed
from commitlog.namespace.keys import ATTEMPT, STAGING
from commitlog.namespace.namespace import Namespace

__all__ = ["STAGING_AGE", "Attempt", "Mode", "sweep_staging"]

#: What to do about a directory that is there: add to it; refuse; replace it with all that is in it.
Mode: TypeAlias = Literal["append", "error", "overwrite"]

#: Seconds after which a job that was begun, and neither published nor aborted, is taken for dead.
STAGING_AGE = 7 * 86400.0


@frozen(kw_only=True)
class Attempt:
    """One attempt at a job, made by `commitlog.namespace.publishing.Publication.begin`. May be pickled.

    Attributes:
        job_id: what is published at most once into one directory.
        mode: what to do about a directory that is there.
        staging: path of the directory that the attempt has to itself.
        id: of that directory; tells the attempt from all others, wherever the directory is by then.
    """

    job_id: str
    mode: Mode
    staging: str
    id: str


def sweep_staging(
    lake: Namespace, *, older_than: float = STAGING_AGE, clock: Clock | None = None
) -> int:
    """Abort the jobs that were begun, or began to be published, so many seconds ago; return how many.

    Args:
        lake: the namespace.
        older_than: longer than any job takes, by as much as clocks may differ.
        clock: the system clock by default.
    """
    now = (SystemClock() if clock is None else clock).epoch()
    aborted = 0
    try:
        staged = [each for each in lake.list(STAGING) if each.is_directory]
    except NotFound as error:
        if not is_absent(error):
            raise
        return 0
    for each in staged:
        # What else an earlier release has let come to be there is left alone.
        if ATTEMPT.fullmatch(each.name) and each.updated <= (now - older_than) * 1000:
            with SuppressAbsent(), contextlib.suppress(PreconditionFailed):  # others are about it, too
                lake.delete(each.path, recursive=True, expected=each)
                aborted += 1
    return aborted
