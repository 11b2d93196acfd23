"""Streaming reader of a source, on the driver and in tasks.

One object lives in a process next to the driver for as long as the query runs. Each task has a copy that
was pickled before. A task needs only its partition and the options.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from commitlog.clock import SystemClock
from commitlog.errors import ConfigurationError
from commitlog.files import combine_batches
from commitlog.ingest import Fetch, Ingest, Pinned, Quarantine, Slice, SourceMetadata
from commitlog.ingest.source import SLICE_COST
from commitlog.spark.ingest.cleaning import BackgroundCleaner
from commitlog.spark.ingest.columns import RowBuilder
from commitlog.spark.ingest.options import IngestOptions
from commitlog.spark.tasks import freeze_gc

__all__ = ["IngestReader"]

#: The cost in bytes of opening a file on a disk. There is no network to wait for: the start of a task
#: takes as long as opening a hundred files.
LOCAL_SLICE_COST = 128 * 1024

#: Number of requests that a task sends at the same time.
FETCHERS = 16


class IngestReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of the epochs of a source.

    Args:
        options: options of the source.
        builder: builds the rows.
    """

    def __init__(self, options: IngestOptions, builder: RowBuilder) -> None:
        self._options = options
        self._builder = builder
        self._opened: Ingest | None = None
        self._connections = ExitStack()
        self._latest: dict[str, Any] | None = None
        self._cleaner: BackgroundCleaner | None = None

    # on the driver

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query end with the files that exist now; see `Ingest.finish`."""
        self._ingest.finish()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit by files. Spark takes only one limit; `Ingest` applies that by bytes too."""
        return ReadMaxFiles(self._options.settings.max_files)

    def initialOffset(self) -> dict[str, Any]:
        """See `Ingest.initial_offset`."""
        return self._ingest.initial_offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """See `Ingest.latest_offset`."""
        latest = self._ingest.latest_offset(
            start,
            max_files=limit.max_files if isinstance(limit, ReadMaxFiles) else None,
            max_bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None,
        )
        if self._latest is None:
            self._describe()
        self._latest = latest
        if latest == start and self._options.settings.cleans:
            self._cleaning.begin(idle=True)
        return latest

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last offset with the source's counters, for the query's progress."""
        return None if self._latest is None else self._ingest.counters().to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """See `Ingest.partitions`."""
        options = self._options
        found = self._ingest.partitions(
            start,
            end,
            partition_bytes=options.partition_bytes,
            slice_cost=LOCAL_SLICE_COST if options.local else SLICE_COST,
        )
        return [InputPartition(each) for each in found]

    def commit(self, end: dict[str, Any]) -> None:
        """See `Ingest.commit`. Clean due files in the background.

        Raises the error of the last cleaning, unless it may be gone at the next one.
        """
        self._ingest.commit(end)
        if self._options.settings.cleans:
            self._cleaning.begin()

    def stop(self) -> None:
        """End the cleaning after its current step, and close the connections."""
        self._connections.close()

    @property
    def _ingest(self) -> Ingest:
        if self._opened is None:
            options = self._options
            store = self._connections.enter_context(options.opened_store())
            table = self._connections.enter_context(options.opened_table())
            queue = self._connections.enter_context(options.opened_queue())
            self._opened = Ingest(
                store, table, options.settings, splits=options.input.splits, notifications=queue
            )
        return self._opened

    @property
    def _cleaning(self) -> BackgroundCleaner:
        if self._cleaner is None:
            self._cleaner = self._connections.enter_context(BackgroundCleaner(self._options))
        return self._cleaner

    def _describe(self) -> None:
        """Store the settings of the query for operators, once the query has claimed the source."""
        options = self._options
        metadata = SourceMetadata(
            url=str(options.store_url), format=options.input.name, settings=options.settings
        )
        self._ingest.state.describe(metadata)

    # in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Raises as `Fetch.read`."""
        freeze_gc()
        options, builder = self._options, self._builder
        with ExitStack() as opened:
            store = opened.enter_context(options.opened_store())
            table = opened.enter_context(options.opened_table())
            # A disk answers faster than threads can switch.
            fetchers = None if options.local else opened.enter_context(ThreadPoolExecutor(FETCHERS))
            quarantine = Quarantine(table, options.settings.source, clock=SystemClock())

            def decode(pinned: Pinned, slice: Slice) -> Iterator[pa.RecordBatch]:
                if not (slice.whole or options.input.splits(slice.file.path)):
                    raise ConfigurationError(
                        f"{slice.file.path!r} was cut into slices, and cannot be read in slices with the"
                        " options that the query has now: start it with its earlier options until the"
                        " file is read"
                    )
                for records in options.input.decode(pinned, slice, builder.columns(slice.file)):
                    yield builder.rows(records, slice, store.url)

            rows = Fetch(store, quarantine, options.settings, executor=fetchers).read(
                partition.value,
                decode,
                count=lambda batch: int(batch.num_rows),
                drop=lambda batch, first: batch.slice(first),
            )
            yield from combine_batches(rows)
