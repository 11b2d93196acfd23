"""Python side of the committer: commits the jobs of Spark's file writers to an output.

The Java side (``java/``) calls it through py4j's callback server, as ``foreachBatch`` does. By then,
tasks have written their files below a hidden directory of the output. If readers list the output, each
file becomes a staged upload of its store with one rename, and is published as usual. If readers use the
log, the files stay where they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from attrs import evolve, field, frozen
from pyspark.sql.types import StringType, StructField, StructType

from commitlog._util.ids import random_id
from commitlog.errors import ConfigurationError, CorruptRecord, JobAlreadyCommitted, NotSupported
from commitlog.outputs import Job, Mode, Output, StagedFile, State
from commitlog.outputs.foreign import ForeignFile, lies_in, partition_in
from commitlog.outputs.job import HIDDEN
from commitlog.paths import join
from commitlog.spark.committer.heartbeat import send_heartbeats
from commitlog.spark.partitions import check_spelling
from commitlog.spark.schema import arrow_schema, dump_schema, load_schema, merge_schemas, nullable
from commitlog.spark.targets.base import PUBLISHERS
from commitlog.spark.targets.output import WriteOptions, open_output, warn_of_foreign
from commitlog.stores.api import Staged
from commitlog.stores.local.store import LocalStore
from commitlog.urls import parse_store_url

__all__ = ["Committer"]

#: The settings ``spark.commitlog.…``.
OPTIONS = ("jobId", "onDuplicate", "table", "visibility")

#: The settings that apply to one write only, not to later writes to the same table.
WRITE_OPTIONS = ("jobId", "onDuplicate")

#: Seconds between two heartbeats of a running job.
HEARTBEAT = 60.0


@frozen(kw_only=True)
class _Running:
    """A job between its begin and its end.

    Attributes:
        options: options of its output.
        output: the output; open from the job's begin to its end.
        job: the job.
        staging: the directory for its files, relative to the output.
        replaced: directories of the partitions that it replaces as a whole. They may name only some of
            the partition columns.
        duplicate: True if the job was committed before and is skipped.
        opened: stops the heartbeats and closes the output.
    """

    options: WriteOptions
    output: Output
    job: Job
    staging: str
    replaced: Sequence[str]
    duplicate: bool
    opened: ExitStack = field(repr=False)


class Committer:
    """Handles the calls of the Java side. Thread-safe: jobs run concurrently."""

    class Java:
        """Declaration for py4j of the implemented Java interfaces."""

        implements = ("io.commitlog.Handler",)

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}

    def call(self, request: str) -> str:
        """Handle the call in the JSON text `request`; return the answer, which may be an error."""
        try:
            fields = json.loads(request)
            calls: dict[str, Callable[[dict[str, Any]], dict[str, Any]]]
            calls = {"begin": self._begin, "commit": self._commit, "abort": self._abort}
            answer = calls[fields["call"]](fields)
        except Exception as error:
            kind = type(error)
            answer = {"error": f"{kind.__module__}.{kind.__qualname__}: {error}"}
        return json.dumps(answer)

    def _begin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        options = WriteOptions.parse({**settings(request), "path": request["path"]})
        replaced: list[str] = request["replaced"]
        with ExitStack() as opened:
            output = open_output(options, opened.enter_context(ThreadPoolExecutor(PUBLISHERS)))
            opened.enter_context(output.store)
            attempt, duplicate = output.new_attempt(), False
            mode = _mode(replaced, request["dynamic"])
            columns = _columns(request["schema"])

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
                job = begin(options.job.job_id)
            except JobAlreadyCommitted:
                if options.job.on_duplicate == "error":
                    raise
                # The tasks run in any case: their files are dropped.
                job, duplicate = begin(None), True
            listed = job.visibility == "listed"
            if listed and parse_store_url(output.store.url).scheme != "file":
                raise NotSupported(
                    f"{options.url}: the committer publishes files in local directories only. Write"
                    " with format('commitlog'), or set spark.commitlog.visibility=logged"
                )
            if mode == "append" and not job.last_commit:
                warn_of_foreign(output)
            opened.enter_context(send_heartbeats(output, attempt, HEARTBEAT))
            running = _Running(
                options=options,
                output=output,
                job=job,
                staging=join(HIDDEN, attempt) if listed else HIDDEN,
                replaced=[prefix for prefix in replaced if prefix],
                duplicate=duplicate,
                opened=opened.pop_all(),
            )
        self._running[request["job"]] = running
        return {"attempt": attempt, "directory": running.staging, "temporary": listed}

    def _commit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        running = self._running[request["job"]]
        output = running.output
        if not running.duplicate:
            job = _overwriting(output, running, request["files"])
            files = _staged(output, running, request["files"])
            try:
                output.commit(_with_partitions(job, files), files, foreign=_foreign(output, running))
            except JobAlreadyCommitted:
                if running.options.job.on_duplicate == "error":
                    raise
                output.abort(running.job)
        running.opened.close()
        del self._running[request["job"]]
        return {}

    def _abort(self, request: Mapping[str, Any]) -> dict[str, Any]:
        running = self._running.pop(request["job"])  # even if the abort fails: no call follows
        with running.opened:
            logged = running.job.visibility == "logged"
            known = _in_place(running.output, running, request["files"]) if logged else []
            running.output.abort(running.job, known)
        return {}


def settings(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a write by their documented names.

    Spark keeps the options of saveAsTable and CREATE TABLE as properties of the table. It passes them to
    every later write to the table, and does not pass the options of a later saveAsTable. So a job id in
    the table's properties counts only if it is an option of the current statement.

    Args:
        request: ``options``: all options that Spark passes to the write; ``table``: those from the
            properties of the table; ``statement``: those of saveAsTable or CREATE TABLE; ``session``:
            those of the session; ``thread``: the job id of the thread, or None.

    Raises `ConfigurationError` for an unknown setting.
    """
    of_table = _documented(request.get("table", {}))
    kept = {name for name in WRITE_OPTIONS if name in of_table}
    lowered = {name.lower() for name in kept}
    found = _documented({n: v for n, v in request["options"].items() if n.lower() not in lowered})
    for origin in ("session", "statement"):
        values = _documented(request.get(origin, {}))
        wanted = WRITE_OPTIONS if origin == "statement" else kept
        found |= {name: values[name] for name in wanted if name in values}
    if request.get("thread") is not None:
        found.setdefault("jobId", request["thread"])
    return found


def _documented(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings by their documented names: Spark stores those of a table in lower case."""
    documented = {name.lower(): name for name in OPTIONS}
    found: dict[str, str] = {}
    for name, value in settings.items():
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


def _columns(schema: str | None) -> StructType | None:
    """Return the columns of the files; None if Spark gives none or a commit record cannot store them."""
    if schema is None:
        return None
    try:
        return nullable(load_schema(schema))
    except (CorruptRecord, NotSupported):
        return None  # intervals and the like: only Spark itself reads them


def _merged(columns: StructType, state: State) -> str:
    """Return the schema of the output after rows with `columns` are added."""
    if state.schema is None:
        return dump_schema(columns)
    existing = load_schema(state.schema)
    merged = merge_schemas(existing, columns)
    if merged is None:
        raise ConfigurationError(
            f"the output has the columns {existing.simpleString()}, but the rows to append have"
            f" {columns.simpleString()}, and no reader can read both: cast them, or overwrite the output"
        )
    # Return the same text for the same columns, so that concurrent jobs do not conflict.
    return state.schema if merged == existing else dump_schema(merged)


def _with_partitions(job: Job, files: Sequence[StagedFile]) -> Job:
    """Return `job` with the partition columns in its paths, as strings if their type is unknown.

    Raises `NotSupported` if the type is known and readers would not read the same values.
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
    """Return the files of a job, ready for the commit."""
    placed = _in_place(output, running, files)
    if running.job.visibility == "logged":
        return placed
    top = join(output.path, join(running.staging, ""))
    targets = {
        file.staged.path: join(output.path, file.staged.path.removeprefix(top)) for file in placed
    }
    with closing(LocalStore(output.store.url)) as store:
        uploads = store.adopt(targets)
    return [evolve(file, staged=staged) for file, staged in zip(placed, uploads, strict=True)]


def _in_place(output: Output, running: _Running, files: Iterable[Mapping[str, Any]]) -> list[StagedFile]:
    """Return the files of a job at the paths where tasks wrote them."""
    top = join(output.path, running.staging)
    return [
        StagedFile(
            staged=Staged(
                path=join(top, file["name"]), upload_id="", size=file["size"], nonce=random_id()
            ),
            partition=partition_in(file["name"]),
        )
        for file in files
    ]


def _overwriting(output: Output, running: _Running, files: Iterable[Mapping[str, Any]]) -> Job:
    """Return the job, with the list of files that it replaces if its mode does not imply them."""
    # The slash distinguishes day=1 from day=10.
    wanted = [partition_in(prefix + "/").items() for prefix in running.replaced]
    if not wanted:
        return running.job
    new = [partition_in(file["name"]) for file in files]
    replaced = [
        file
        for file in output.state().files.values()
        if any(some <= file.partition.items() for some in wanted)
    ]
    if all(file.partition in new for file in replaced):
        return running.job
    # Some replaced partitions get no new rows: list the files, so that these become empty.
    return evolve(running.job, mode="overwrite-files", replaces=tuple(file.path for file in replaced))


def _foreign(output: Output, running: _Running) -> list[ForeignFile] | None:
    """Return the foreign files that a job replaces; None if its mode implies them."""
    if running.job.mode == "overwrite" or not running.replaced:
        return None
    wanted = [partition_in(prefix + "/") for prefix in running.replaced]
    found = output.foreign(prefix + "/" for prefix in running.replaced)
    return [file for file in found if lies_in(file.path, wanted)]
