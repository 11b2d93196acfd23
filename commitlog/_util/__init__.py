"""Helpers that know nothing of object stores.

`background` (threads that repeat a call), `batching` (calls of threads made as one), `bin_packing`
(groups of items), `bounded` (iteration up to a limit), `concurrency` (parallel work), `fork`
(connections and locks around a fork), `frozen_map` (immutable records), `ids` (random ids), `interrupts`
(the end of a process after Ctrl-C), `metrics` (metrics as text), `parsing` (durations and sizes),
`read_ahead` (blocks of large files), `request_stats` (counters of requests), `retry` (retry policies),
`sqlite_locking` (fair waiting for the write lock of SQLite) and `tracing` (spans of OpenTelemetry).
"""
