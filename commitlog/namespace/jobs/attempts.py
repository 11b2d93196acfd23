"""Attempts at jobs in progress, and the cleanup of attempts whose jobs have died."""

from __future__ import annotations

import contextlib
from typing import Literal, TypeAlias

from attrs import frozen

from commitlog.clock import Clock, SystemClock
from commitlog.errors import NotFound, PreconditionFailed
from commitlog.namespace.model.keys import ATTEMPT, STAGING
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.write.content import is_content

__all__ = ["STAGING_AGE", "Attempt", "Mode", "abort_uploads", "sweep_staging"]

#: How to treat an existing directory: add to it; refuse; or replace it with all that is in it.
Mode: TypeAlias = Literal["append", "error", "overwrite"]

#: Seconds after which a job that was neither published nor aborted is assumed dead.
STAGING_AGE = 7 * 86400.0


@frozen(kw_only=True)
class Attempt:
    """One attempt at a job, made by `DirectoryCommitter.begin`. Can be pickled.

    Attributes:
        job_id: identifies the job, which is published at most once into one directory.
        mode: how to treat an existing directory.
        staging: path of the attempt's own directory.
        id: of that directory; identifies the attempt, also after the directory has moved.
    """

    job_id: str
    mode: Mode
    staging: str
    id: str


def sweep_staging(
    lake: Namespace, *, older_than: float = STAGING_AGE, clock: Clock | None = None
) -> int:
    """Abort jobs that were begun, or began to be published, `older_than` seconds ago; return how many.

    Args:
        lake: the namespace.
        older_than: more than the longest job takes, plus the largest difference of clocks.
        clock: the system clock by default.
    """
    now = (SystemClock() if clock is None else clock).epoch()
    aborted = 0
    try:
        staged = [each for each in lake.list(STAGING) if each.is_directory]
    except NotFound:
        return 0
    for each in staged:
        # Other entries, which an earlier release allowed here, are left alone.
        if ATTEMPT.fullmatch(each.name) and each.updated <= (now - older_than) * 1000:
            with contextlib.suppress(NotFound, PreconditionFailed):  # another client does it, too
                lake.delete(each.path, recursive=True, expected=each)
                aborted += 1
    return aborted


def abort_uploads(
    lake: Namespace, *, older_than: float = STAGING_AGE, clock: Clock | None = None
) -> int:
    """Abort uploads of content that were begun `older_than` seconds ago; return how many.

    This includes uploads of other namespaces in the same part of the store. Uploads of outputs, and of
    programs that do not use namespaces, are left alone. Can be interrupted and repeated.

    Args:
        lake: the namespace.
        older_than: more than writing any file takes, plus the largest difference of clocks. A writer
            whose upload is aborted makes no file, and gets an error.
        clock: the system clock by default.

    Raises `AccessDenied`, `Unavailable` and similar errors; some uploads may be aborted then.
    """
    lake.describe()
    latest = (SystemClock() if clock is None else clock).epoch() - older_than
    aborted = 0
    for upload in lake.store.list_staged():
        if is_content(upload.path) and upload.initiated <= latest:
            lake.store.abort(upload)
            aborted += 1
    return aborted
