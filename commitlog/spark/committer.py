"""The Python half of the configured committer: Spark's job commits, handed on to an output.

The Java half (``java/``) asks, by py4j's callback server, as ``foreachBatch`` does. Tasks have written
their files below a hidden directory of the output by then. If readers list the output, the files
become staged uploads of its store, which takes a rename each, and are published as ever; if readers go
by the log, they stay where they are.

Imports outputs, the local store, and the rest of this package; pyspark from outside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

from attrs import evolve, field, frozen
from pyspark.sql.types import StringType, StructField, StructType

from commitlog.errors import ConfigurationError, CorruptRecord, JobAlreadyCommitted, NotSupported
from commitlog.outputs import Job, Mode, Output, StagedFile, State
from commitlog.outputs.foreign import ForeignFile, lies_in, partition_in
from commitlog.outputs.job import HIDDEN
from commitlog.paths import join
from commitlog.spark.alive import kept_alive
from commitlog.spark.options import WriteOptions
from commitlog.spark.partitions import check_spelling
from commitlog.spark.schema import arrow_schema, dump_schema, load_schema, merge_schemas, nullable
from commitlog.spark.source import open_output, warn_of_foreign
from commitlog.spark.writer import PUBLISHERS
from commitlog.stores.api import Staged
from commitlog.stores.local import LocalStore
from commitlog.words import random_word

__all__ = ["Committer"]

#: What can be set, as ``spark.commitlog.…``.
OPTIONS = ("jobId", "onDuplicate", "table", "visibility")

#: Those of them that are of one write, and not of later ones to the same table.
OF_WRITE = ("jobId", "onDuplicate")

#: Seconds between two signs of life of a running job.
HEARTBEAT = 60.0


@frozen(kw_only=True)
class _Running:
    """A job between its begin and its end.

    Attributes:
        options: of its output.
        output: the output; open from the job's begin to its end.
        job: the job.
        staging: where its files are written, relative to the output.
        replaced: the partitions that it is to replace as a whole, by directory; of some columns only
            perhaps.
        duplicate: True if the job was committed before, and is to be skipped.
        opened: ends the signs of life, and closes the output.
    """

    options: WriteOptions
    output: Output
    job: Job
    staging: str
    replaced: Sequence[str]
    duplicate: bool
    opened: ExitStack = field(repr=False)


class Committer:
    """Answers what the Java half asks. Thread-safe: jobs run side by side."""

    class Java:
        """What py4j has to know."""

        implements = ("io.commitlog.Handler",)

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}

    def call(self, request: str) -> str:
        """Do what the JSON text `request` asks for, and return the answer; errors are in it."""
        try:
            asked = json.loads(request)
            calls: dict[str, Callable[[dict[str, Any]], dict[str, Any]]]
            calls = {"begin": self._begin, "commit": self._commit, "abort": self._abort}
            answer = calls[asked["call"]](asked)
        except Exception as error:
            kind = type(error)
            answer = {"error": f"{kind.__module__}.{kind.__qualname__}: {error}"}
        return json.dumps(answer)

    def _begin(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        options = WriteOptions.parse({**settings(asked), "path": asked["path"]})
        replaced: list[str] = asked["replaced"]
        with ExitStack() as opened:
            output = open_output(options, opened.enter_context(ThreadPoolExecutor(PUBLISHERS)))
            opened.enter_context(output.store)
            attempt, duplicate = output.new_attempt(), False
            mode = _mode(replaced, asked["dynamic"])
            columns = _columns(asked["schema"])

            def merge(state: State) -> str:
                assert columns is not None
                return _merged(columns, State() if mode == "overwrite" else state)

            begin = partial(
                output.begin,
                mode=mode,
                schema=None if columns is None else merge,
                visibility=options.visibility,
                attempt=attempt,
            )
            try:
                job = begin(options.job_id)
            except JobAlreadyCommitted:
                if options.on_duplicate == "error":
                    raise
                # The tasks cannot be kept from running: what they write is dropped.
                job, duplicate = begin(None), True
            listed = job.visibility == "listed"
            if listed and not isinstance(output.store.store, LocalStore):
                raise NotSupported(
                    f"{options.url}: the committer publishes files in local directories only. Write"
                    " with format('commitlog'), or set spark.commitlog.visibility=logged"
                )
            if mode == "append":
                warn_of_foreign(output)
            opened.enter_context(kept_alive(output, attempt, HEARTBEAT))
            running = _Running(
                options=options,
                output=output,
                job=job,
                staging=join(HIDDEN, attempt) if listed else HIDDEN,
                replaced=[prefix for prefix in replaced if prefix],
                duplicate=duplicate,
                opened=opened.pop_all(),
            )
        self._running[asked["job"]] = running
        return {"attempt": attempt, "directory": running.staging, "temporary": listed}

    def _commit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        running = self._running[asked["job"]]
        output = running.output
        if not running.duplicate:
            job = _overwriting(output, running, asked["files"])
            files = _staged(output, running, asked["files"])
            try:
                output.commit(_with_partitions(job, files), files, foreign=_foreign(output, running))
            except JobAlreadyCommitted:
                if running.options.on_duplicate == "error":
                    raise
                output.abort(running.job)
        running.opened.close()
        del self._running[asked["job"]]
        return {}

    def _abort(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        running = self._running.pop(asked["job"])  # whatever comes of it: nobody will ask again
        with running.opened:
            logged = running.job.visibility == "logged"
            known = _in_place(running.output, running, asked["files"]) if logged else []
            running.output.abort(running.job, known)
        return {}


def settings(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a write, by their documented names, of all that Spark has of them.

    Spark keeps the options of saveAsTable and CREATE TABLE as properties of the table, hands them to
    every later write to it, and hands those of a later saveAsTable to none. So a job id that the table
    has counts only if the statement at hand was given it.

    Args:
        asked: ``options``: what Spark hands to the write, from everywhere; ``table``: those of them that
            the table has; ``statement``: those that saveAsTable or CREATE TABLE was given; ``session``:
            those of the session; ``thread``: the job id of the thread, or None.

    Raises `ConfigurationError` for an unknown setting.
    """
    of_table = _known(asked.get("table", {}))
    kept = {name for name in OF_WRITE if name in of_table}
    lowered = {name.lower() for name in kept}
    given = _known({n: value for n, value in asked["options"].items() if n.lower() not in lowered})
    for place in ("session", "statement"):
        told = _known(asked.get(place, {}))
        given |= {n: told[n] for n in OF_WRITE if n in told and (n in kept or place == "statement")}
    if asked.get("thread") is not None:
        given.setdefault("jobId", asked["thread"])
    return given


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings by their documented names: Spark lowers those that a table keeps."""
    documented = {name.lower(): name for name in OPTIONS}
    found: dict[str, str] = {}
    for name, value in given.items():
        known = documented.get(name.lower())
        if known is None:
            listed = ", ".join(f"spark.commitlog.{each}" for each in OPTIONS)
            raise ConfigurationError(f"unknown setting spark.commitlog.{name}; known: {listed}")
        if found.setdefault(known, value) != value:
            raise ConfigurationError(f"spark.commitlog.{known} is given twice, with different values")
    return found


def _mode(replaced: Sequence[str], dynamic: bool) -> Mode:
    if "" in replaced:
        return "overwrite"
    return "overwrite-partitions" if replaced or dynamic else "append"


def _columns(told: str | None) -> StructType | None:
    """Return the columns of the files, if Spark tells them and a commit record can."""
    if told is None:
        return None
    try:
        return nullable(load_schema(told))
    except (CorruptRecord, NotSupported):
        return None  # intervals and the like: only Spark itself reads them


def _merged(columns: StructType, state: State) -> str:
    """Return the schema that the output has with rows of `columns`."""
    if state.schema is None:
        return dump_schema(columns)
    there = load_schema(state.schema)
    merged = merge_schemas(there, columns)
    if merged is None:
        raise ConfigurationError(
            f"the output has the columns {there.simpleString()}, the rows to append"
            f" {columns.simpleString()}, and no reader can read both: cast them, or overwrite it"
        )
    # The same text for the same columns, so that jobs which run side by side do not stop each other.
    return state.schema if merged == there else dump_schema(merged)


def _with_partitions(job: Job, files: Sequence[StagedFile]) -> Job:
    """Return `job` with the columns that are in paths, of which nothing tells the type.

    Raises `NotSupported` if a type is known, and readers would not get the values back.
    """
    if job.schema is None or not files:
        return job
    columns = load_schema(job.schema)
    kinds = arrow_schema(columns)
    for partition in {tuple(file.partition.items()) for file in files}:
        check_spelling(dict(partition), kinds)
    added = [StructField(name, StringType()) for name in files[0].partition if name not in columns.names]
    return evolve(job, schema=dump_schema(StructType([*columns, *added]))) if added else job


def _staged(output: Output, running: _Running, files: Iterable[Mapping[str, Any]]) -> list[StagedFile]:
    """Return the files of a job, ready to be committed."""
    placed = _in_place(output, running, files)
    store = output.store.store
    if running.job.visibility == "logged" or not isinstance(store, LocalStore):
        return placed
    top = join(output.path, join(running.staging, ""))
    targets = {
        file.staged.path: join(output.path, file.staged.path.removeprefix(top)) for file in placed
    }
    uploads = store.adopt(targets)
    return [evolve(file, staged=staged) for file, staged in zip(placed, uploads, strict=True)]


def _in_place(output: Output, running: _Running, files: Iterable[Mapping[str, Any]]) -> list[StagedFile]:
    """Return the files of a job as they were written."""
    top = join(output.path, running.staging)
    return [
        StagedFile(
            staged=Staged(
                path=join(top, file["name"]), upload_id="", size=file["size"], nonce=random_word()
            ),
            partition=partition_in(file["name"]),
        )
        for file in files
    ]


def _overwriting(output: Output, running: _Running, files: Iterable[Mapping[str, Any]]) -> Job:
    """Return the job, with the files that it is to replace if its mode does not tell which they are."""
    # The slash keeps day=1 apart from day=10.
    wanted = [partition_in(prefix + "/").items() for prefix in running.replaced]
    if not wanted:
        return running.job
    new = [partition_in(file["name"]) for file in files]
    there = [
        file
        for file in output.state().files.values()
        if any(some <= file.partition.items() for some in wanted)
    ]
    if all(file.partition in new for file in there):
        return running.job
    # Partitions are emptied that get no new rows.
    return evolve(running.job, mode="overwrite-files", replaces=tuple(file.path for file in there))


def _foreign(output: Output, running: _Running) -> list[ForeignFile] | None:
    """Return the foreign files that a job replaces; None if its mode alone tells which they are."""
    if running.job.mode == "overwrite" or not running.replaced:
        return None
    wanted = [partition_in(prefix + "/") for prefix in running.replaced]
    found = output.foreign(prefix + "/" for prefix in running.replaced)
    return [file for file in found if lies_in(file.path, wanted)]
