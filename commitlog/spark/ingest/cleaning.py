"""Cleaning of a source next to its query: a thread of the driver's reader deletes or archives files.

It is a module of its own because only it has threads that live as long as a query.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Any

from commitlog.clock import SystemClock
from commitlog.connect import connect
from commitlog.errors import Conflict, OutcomeUnknown, StateMismatch, Unavailable
from commitlog.ingest import Cleaner, store_to_clean
from commitlog.spark.ingest.options import SourceOptions

__all__ = ["BackgroundCleaner"]

#: Seconds between two cleanings while the query finds nothing new.
IDLE_SECONDS = 60.0

#: Number of files that are cleaned at the same time.
_CLEANERS = 16

#: Errors that may be gone at the next cleaning.
_TRANSIENT = (Unavailable, OutcomeUnknown, Conflict, StateMismatch)


class BackgroundCleaner:
    """Cleans the source of a query in a thread, one step after the other while there is work.

    A context manager; its end waits for the current step, and for that of a cleaning that waits for the
    thread. Not thread-safe.

    Args:
        options: options of the source.
        connection: further arguments of `connect`, which override the options of the store.
    """

    def __init__(self, options: SourceOptions, connection: Mapping[str, Any] | None = None) -> None:
        self._options = options
        self._connection = dict(connection or {})
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commitlog-clean")
        #: The cleaning that runs, and the one that waits for its end.
        self._cleanings: deque[Future[None]] = deque()
        self._begun: float | None = None
        self._clock = SystemClock()
        self._stopped = threading.Event()

    def begin(self, *, idle: bool = False) -> None:
        """Begin to clean the files that are due. If a cleaning is running, another one follows it.

        The one that is running may have read the commits before the last one.

        Args:
            idle: begin only if the last cleaning began a minute ago, and none is running.

        Raises the error of the last cleaning if it needs the user.
        """
        while self._cleanings and self._cleanings[0].done():
            self._cleanings.popleft().result()
        if len(self._cleanings) > (0 if idle else 1):
            return
        now = self._clock.monotonic()
        if idle and self._begun is not None and now < self._begun + IDLE_SECONDS:
            return
        self._begun = now
        self._cleanings.append(self._thread.submit(self._clean))

    def __enter__(self) -> BackgroundCleaner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        self._thread.shutdown()

    def _clean(self) -> None:
        options = self._options
        url, below = store_to_clean(options.store_url, options.settings)
        with ExitStack() as opened:
            opened_store = connect(url, commit="native", **self._connection)
            store = opened.enter_context(closing(opened_store))
            table = opened.enter_context(options.opened_table())
            executor = opened.enter_context(ThreadPoolExecutor(_CLEANERS))
            cleaner = Cleaner(store, table, options.settings, below=below, executor=executor)
            with suppress(*_TRANSIENT):
                while cleaner.clean().more and not self._stopped.is_set():
                    pass
