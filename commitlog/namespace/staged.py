"""Uploads that nobody is going to finish: those of writers that died.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from commitlog.clock import Clock, SystemClock
from commitlog.namespace.attempts import STAGING_AGE
from commitlog.namespace.content import is_content
from commitlog.namespace.namespace import Namespace

__all__ = ["abort_uploads"]


def abort_uploads(
    lake: Namespace, *, older_than: float = STAGING_AGE, clock: Clock | None = None
) -> int:
    """Abort the uploads of content that were begun so many seconds ago; return how many.

    Those of other namespaces in the same part of the store are among them, and no others: neither those
    of outputs, nor of programs that know nothing of namespaces. Can be broken off and repeated.

    Args:
        lake: the namespace.
        older_than: longer than it takes to write any file, by as much as clocks may differ. A writer
            whose upload is aborted makes no file, and is told.
        clock: the system clock by default.

    Raises `AccessDenied`, `Unavailable` and the like; some are aborted then, and others not.
    """
    lake.check()
    latest = (SystemClock() if clock is None else clock).epoch() - older_than
    aborted = 0
    for upload in lake.store.list_staged():
        if is_content(upload.path) and upload.initiated <= latest:
            lake.store.abort(upload)
            aborted += 1
    return aborted
