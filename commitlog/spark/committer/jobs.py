"""Jobs of Spark's file writers, committed to outputs.

The tasks have written their files before the commit. Where they wrote them depends on the output:

* a listed output in a local directory: below a hidden directory. Each file becomes a staged upload of
  the store with one rename.
* a listed output in S3: at a magic path of S3A, so each file is a multipart upload that is not completed
  (Hadoop's "S3A Committers: Architecture and Implementation", section "Magic Committer").
* a logged output: at their final paths, which no listing shows.

`JobCommitter` keeps nothing that a new process could not have: `JobCommitter.begin` returns the state of
a job as plain data, and the later calls bring it back. So the process may be replaced between two calls.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from attrs import asdict, evolve, field, frozen

from commitlog._util.concurrency import Executor
from commitlog._util.fork import WorkLock
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    CommitError,
    Committed,
    ConfigurationError,
    JobAborted,
    JobAlreadyCommitted,
    NotSupported,
    OutcomeUnknown,
)
from commitlog.files import OUTPUT_FORMATS, output_format_of
from commitlog.outputs import Job, Mode, Output, StagedFile, State
from commitlog.outputs.foreign import ForeignFile, lies_in, partition_in
from commitlog.outputs.job import HIDDEN
from commitlog.paths import join
from commitlog.spark.committer.s3a import s3_connection, s3_url
from commitlog.spark.options import connection_names
from commitlog.spark.targets.output import WriteOptions, open_output, warn_of_foreign
from commitlog.stores.api import Staged
from commitlog.stores.local.store import LocalStore
from commitlog.tabular import send_heartbeats
from commitlog.tabular.columns import OutputColumns
from commitlog.tabular.partitions import check_spelling
from commitlog.tabular.schema import check_positions
from commitlog.urls import parse_store_url

__all__ = ["JobCommitter", "settings"]

_log = logging.getLogger(__name__)

#: The settings ``spark.commitlog.…`` of one write, which do not apply to later writes to its table.
WRITE_OPTIONS = ("jobId", "onDuplicate")

#: All settings ``spark.commitlog.…`` of writes.
OPTIONS = (
    *WRITE_OPTIONS,
    "visibility",
    "commit",
    *(name for name in connection_names("table") if name != "path"),
)

#: The settings ``spark.commitlog.…`` of the driver, which the Java half reads.
DRIVER_OPTIONS = ("python",)

#: Formats of Spark whose files tell their columns; None: the setting of the Parquet writer told them.
_WITH_FOOTER = (None, "parquet", "orc")

#: Options, in lower case, that do not change how Spark's JSON writer spells a value.
_HARMLESS = frozenset(
    ("path", "compression", "maxrecordsperfile", "partitionoverwritemode", "ignorenullfields")
)

#: Compressions of JSON that readers of the log know by the name of the file.
_COMPRESSIONS = ("none", "uncompressed", "gzip", "bzip2")

#: Number of requests at the same time to publish files, as Hadoop's fs.s3a.committer.threads.
_PUBLISHERS = 32

#: Number of stores, and of connections, that are kept for later jobs. Expired credentials make new ones.
_KEPT = 32

K = TypeVar("K")
V = TypeVar("V")

#: Seconds between two heartbeats of a running job.
HEARTBEAT = 60.0


@frozen(kw_only=True)
class _Running:
    """A job between its begin and its end.

    Attributes:
        options: options of its output.
        output: the output, open.
        job: the job.
        replaced: directories of the partitions that it replaces as a whole. They may name only some of
            the partition columns.
        partition: the partition columns of the files that are there, when the job began; None: there are
            none, or it replaces all of them.
        case_sensitive: whether Spark tells apart names of columns that differ in case.
        duplicate: True if the job was committed before and is skipped.
        resources: stops the heartbeats and closes the output.
        lock: held by the call that ends the job.
    """

    options: WriteOptions
    output: Output
    job: Job
    replaced: Sequence[str]
    partition: Sequence[str] | None
    case_sensitive: bool
    duplicate: bool
    resources: ExitStack = field(repr=False)
    lock: WorkLock = field(factory=WorkLock, repr=False)

    @property
    def in_s3(self) -> bool:
        """True if the output is in S3."""
        return parse_store_url(self.output.store.url).scheme == "s3"

    @property
    def staging(self) -> str:
        """The directory of the files before the commit, relative to the output; not for magic paths."""
        return HIDDEN if self.job.visibility == "logged" else join(HIDDEN, self.job.attempt)

    def partition_in(self, path: str) -> dict[str, str | None]:
        """Return the partition values in the directories of `path`, by the names that the output has."""
        columns = OutputColumns.parse(self.job.schema).names if self.job.schema else []
        known = _spellings([*columns, *(self.partition or ())], self.case_sensitive)
        found = partition_in(path)
        return {known.get(_folded(n, self.case_sensitive), n): value for n, value in found.items()}


class JobCommitter:
    """Begins, commits and aborts jobs. Thread-safe: jobs run concurrently.

    Args:
        heartbeat: seconds between two heartbeats of a running job.
    """

    def __init__(self, *, heartbeat: float = HEARTBEAT) -> None:
        self._heartbeat = heartbeat
        self._running: dict[str, _Running] = {}
        self._stores: dict[Hashable, ConditionalStore] = {}
        self._connections: dict[tuple[str, frozenset[tuple[str, str]]], Mapping[str, Any]] = {}
        self._lock = WorkLock()

    def begin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a job.

        Args:
            request: ``path``: URL of the directory; ``hadoop``: settings of its file system; ``schema``:
                columns of the files in Spark's JSON, or None; ``format``: name of their format, or None;
                ``formatOptions``: options of their writer; ``replaced``: directories that the job
                replaces, relative to the output, "" for all of it; ``dynamic``: whether it replaces
                the partitions of its own files; ``exclusive``: whether it must find no data, now and
                when it commits; ``partition``: the partition columns of the statement, if Spark tells
                them; ``caseSensitive``: whether names of columns differ by case; besides those of
                `settings`.

        Returns:
            ``attempt``: name of the attempt, which every name of a file must have; ``staging``: how
            tasks write, ``magic`` or ``directory``; ``directory``: where they write, relative to the
            output; ``state``: the job, for the later calls.

        Raises the errors of `Output.begin`, and `ConfigurationError` or `NotSupported` for a place or a
        setting. Nothing was changed then.
        """
        options = {"path": _url(request["path"]), **settings(request)}
        replaced: list[str] = request["replaced"]
        with ExitStack() as resources:
            place = {"options": options, "hadoop": request.get("hadoop")}
            parsed, output = self._open(place, resources)
            attempt, duplicate = output.new_attempt(), False
            mode = _mode(request)
            columns = _columns(request)
            names, case_sensitive = request.get("partition"), bool(request.get("caseSensitive"))
            partition: list[str] | None = None

            def merge(state: State) -> str:
                schema = _merged(columns, State() if mode == "overwrite" else state)
                return _with_strings(schema, names or (), case_sensitive)

            def look(state: State) -> str:
                nonlocal partition
                if mode != "overwrite":
                    partition = next((list(file.partition) for file in state.files.values()), None)
                if names is not None:
                    _check_partitioning(partition, names, case_sensitive)
                return attempt

            begin = partial(
                output.begin,
                mode=mode,
                schema=merge,
                visibility=parsed.visibility,
                attempt=look,
            )
            try:
                job = begin(parsed.job.job_id)
            except JobAlreadyCommitted:
                if parsed.job.on_duplicate == "error":
                    raise
                # The tasks run in any case: their files are dropped.
                job, duplicate = begin(None, mode="append"), True
            if mode == "append" and not job.last_commit:
                warn_of_foreign(output)
            state = {
                **place,
                "job": asdict(job),
                "replaced": [prefix for prefix in replaced if prefix],
                "partition": partition,
                "case_sensitive": case_sensitive,
                "duplicate": duplicate,
            }
            running = self._run(state, parsed, output, resources)
        magic = running.in_s3 and job.visibility == "listed"
        return {
            "attempt": attempt,
            "staging": "magic" if magic else "directory",
            "directory": "" if magic else running.staging,
            "state": state,
        }

    def resume(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send the heartbeats of a job that another process has begun; ``state`` is of `begin`."""
        self._get(request["state"])
        return {}

    def commit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Commit a job. May be called again, also in another process.

        Args:
            request: ``state``: from `begin`; ``files``: the files that tasks report, see `_staged`;
                ``magic``: the directory of the job's magic paths, relative to the output, if tasks wrote
                there; ``again``: whether an earlier call may have reached its commit point.

        Raises the errors of `Output.commit`, except that an unknown outcome is settled first: the job is
        either committed and visible, and the call returns, or it is excluded permanently.
        """
        running = self._get(request["state"])
        with running.lock:
            if running.duplicate:
                _drop(running, request["files"])
            else:
                self._commit(running, request)
            _clean(running, request)
        self._end(running.job.attempt)
        return {}

    def abort(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Exclude a job permanently, and drop its files; do nothing if it is committed.

        Arguments as for `commit`; ``files`` are the files that are known. May be called again. If a
        commit of the job is running, as after an interrupt, it comes first.
        """
        running = self._get(request["state"])
        with running.lock:
            self._end(running.job.attempt, close=False)  # even if the abort fails: no call follows
            with running.resources:
                logged = running.job.visibility == "logged"
                known = _in_place(running, request["files"]) if logged else []
                if running.output.abort(running.job, known) is None:
                    _clean(running, request)
        return {}

    # inside

    def _run(
        self, state: Mapping[str, Any], options: WriteOptions, output: Output, resources: ExitStack
    ) -> _Running:
        """Begin to send heartbeats; take over `resources`."""
        job = Job(**{**state["job"], "replaces": ()})
        with self._lock:
            running = self._running.get(job.attempt)
            if running is None:
                resources.enter_context(send_heartbeats(output, job.attempt, self._heartbeat))
                running = self._running[job.attempt] = _Running(
                    options=options,
                    output=output,
                    job=job,
                    replaced=state["replaced"],
                    partition=state["partition"],
                    case_sensitive=state["case_sensitive"],
                    duplicate=state["duplicate"],
                    resources=resources.pop_all(),
                )
        return running

    def _get(self, state: Mapping[str, Any]) -> _Running:
        """Return a running job; open its output if another process has begun it."""
        with self._lock:
            running = self._running.get(state["job"]["attempt"])
        if running is not None:
            return running
        with ExitStack() as resources:
            options, output = self._open(state, resources)
            return self._run(state, options, output, resources)

    def open_output(self, options: WriteOptions, executor: Executor) -> Output:
        """Open the output at `options`. The caller closes its store, unless it is in S3.

        All outputs in a bucket share one store, with its connections and its probe results, as long as
        the process lives.
        """
        url = parse_store_url(options.url)
        if url.scheme != "s3":
            return open_output(options, executor)
        bucket = evolve(options, url=str(evolve(url, prefix="")))
        connection = dict(bucket.connection)
        key = (
            bucket.url,
            bucket.table,
            id(connection.pop("session", None)),  # the session lives as long as its connection
            frozenset(connection.items()),
            frozenset(bucket.table_options.items()),
        )
        with self._lock:
            store = self._stores.get(key)
            if store is None:
                _make_room(self._stores)
                store = self._stores[key] = bucket.open()
                # While the tasks run, so that the commit does not wait for it.
                threading.Thread(target=_probe, args=(store,), daemon=True).start()
        return Output(store, url.prefix, executor=executor)

    def _open(self, place: Mapping[str, Any], resources: ExitStack) -> tuple[WriteOptions, Output]:
        """Open an output: ``options`` are of its write, ``hadoop`` the settings of S3A or None."""
        options = WriteOptions.parse(place["options"])
        if place["hadoop"] is not None:
            known = self._connection(parse_store_url(options.url).name, place["hadoop"])
            options = evolve(options, connection={**known, **options.connection})
        executor = resources.enter_context(ThreadPoolExecutor(_PUBLISHERS))
        output = self.open_output(options, executor)
        if place["hadoop"] is None:
            resources.enter_context(output.store)
        return options, output

    def _connection(self, bucket: str, hadoop: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the arguments of `connect` for a bucket, made once for the same settings."""
        key = bucket, frozenset(hadoop.items())
        with self._lock:
            known = self._connections.get(key)
        if known is None:
            known = s3_connection(hadoop, bucket).arguments()
            with self._lock:
                _make_room(self._connections)
                known = self._connections.setdefault(key, known)
        return known

    def _end(self, attempt: str, *, close: bool = True) -> None:
        with self._lock:
            running = self._running.pop(attempt, None)
        if running is not None and close:
            running.resources.close()

    def _commit(self, running: _Running, request: Mapping[str, Any]) -> None:
        output, files = running.output, request["files"]
        try:
            job = _overwriting(running, files)
            staged = _staged(running, files)
            for names in {tuple(file.partition) for file in staged}:
                _check_partitioning(running.partition, names, running.case_sensitive)
            output.commit(_with_partitions(job, staged), staged, foreign=_foreign(running))
        except JobAlreadyCommitted:
            if output.resolve(running.job) is None and running.options.job.on_duplicate == "error":
                raise
        except Exception as error:
            # The log has the outcome of this call, or of an earlier one whose answer was lost. An error
            # of another kind, such as a lack of memory, may come after the commit point.
            is_committed = isinstance(error, Committed)
            unknown = not isinstance(error, CommitError) or isinstance(error, OutcomeUnknown)
            tried = is_committed and isinstance(error.__cause__, CommitError | None)
            if tried or not (request.get("again") or unknown or is_committed):
                raise
            try:
                record = output.resolve(running.job)
            except Committed:
                raise
            except Exception as other:
                if is_committed:
                    raise error from other
                raise OutcomeUnknown(
                    f"job {running.job.job_id!r} may or may not be committed, and the log could not be"
                    f" read to find out ({other}). Run it again with the same job id"
                ) from error
            if record is None:
                if not unknown:
                    raise
                raise JobAborted(
                    f"job {running.job.job_id!r} was not committed: {error}. It was aborted then, and"
                    " nothing of it is visible. Run it again"
                ) from error


# -- settings ----------------------------------------------------------------------------------------


def _url(path: str) -> str:
    """Return the URL of the output for this library, from that of Hadoop."""
    scheme = path.partition(":/")[0] if ":/" in path else "file"
    if scheme == "s3a":
        return s3_url(path)
    if scheme == "file":
        return path
    advice = "Write to s3a://…, through S3A" if scheme in ("s3", "s3n") else "Write elsewhere"
    raise NotSupported(
        f"{path}: the committer publishes files in local directories and, through S3A, in S3; not in"
        f" the file system {scheme!r}. {advice}, or set spark.sql.sources.commitProtocolClass to the"
        " protocol of Spark, org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    )


def settings(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a write by their documented names.

    Spark keeps the options of saveAsTable and CREATE TABLE as properties of the table. It passes them to
    every later write to the table, and does not pass the options of a later saveAsTable. So a job id in
    the table's properties counts only if it is an option of the current statement. An option of the
    write overrides the job id of the thread, which overrides that of the session.

    Args:
        request: ``options``: all options that Spark passes to the write; ``table``: those from the
            properties of the table; ``statement``: those of saveAsTable or CREATE TABLE, None if Spark
            hides them; ``session``: those of the session; ``thread``: the job id of the thread,
            or None.

    Raises `ConfigurationError` for an unknown setting, and `NotSupported` if a job id may be hidden.
    """
    of_table = _documented(request.get("table", {}))
    kept = {name for name in WRITE_OPTIONS if name in of_table}
    lowered = {name.lower() for name in kept}
    found = _documented({n: v for n, v in request["options"].items() if n.lower() not in lowered})
    session = _documented(request.get("session") or {})
    found |= {name: session[name] for name in kept if name in session}
    # The options of a write include the settings of the session.
    if request.get("thread") is not None and found.get("jobId") == session.get("jobId"):
        found["jobId"] = request["thread"]
    statement = _documented(request.get("statement") or {})
    found |= {name: statement[name] for name in WRITE_OPTIONS if name in statement}
    if request.get("statement", {}) is None and "jobId" in of_table and "jobId" not in found:
        raise NotSupported(
            "the table was created with a job id, and Spark before 4.1 hides the options of saveAsTable"
            " with a table that exists. Nothing was written: set spark.commitlog.jobId for the thread"
            " (sc.setLocalProperty) or for the session, or use insertInto for a write without an id"
        )
    return found


def _documented(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings by their documented names: Spark stores those of a table in lower case."""
    documented = {name.lower(): name for name in OPTIONS}
    found: dict[str, str] = {}
    for name, value in settings.items():
        known = documented.get(name.lower())
        if name.lower() in DRIVER_OPTIONS:
            continue
        if known is None:
            listed = ", ".join(f"spark.commitlog.{each}" for each in OPTIONS)
            raise ConfigurationError(f"unknown setting spark.commitlog.{name}; known: {listed}")
        if found.setdefault(known, value) != value:
            raise ConfigurationError(f"spark.commitlog.{known} is given twice, with different values")
    return found


def _mode(request: Mapping[str, Any]) -> Mode:
    if "" in request["replaced"]:
        return "overwrite"
    if request["replaced"] or request["dynamic"]:
        return "overwrite-partitions"
    return "error" if request["exclusive"] else "append"


def _columns(request: Mapping[str, Any]) -> OutputColumns:
    """Return the columns of the files; they are unknown if only Spark's reader of the format has them.

    Files of Parquet and ORC have their columns in a footer. JSON names them, and has one spelling of
    values as long as no option asks for another one. Of other formats, the options that Spark must be
    given to read the files are in no file.
    """
    schema, name = request["schema"], request.get("format")
    if schema is None:
        return OutputColumns.unknown_of(name or "", [])
    columns = OutputColumns.of_spark(schema)
    if name in _WITH_FOOTER or (name == "json" and _is_plain_json(columns, request)):
        return columns
    return OutputColumns.unknown_of(name or "", columns.names)


def _is_plain_json(columns: OutputColumns, request: Mapping[str, Any]) -> bool:
    options = {name.lower(): value for name, value in request.get("formatOptions", {}).items()}
    if any(name not in _HARMLESS and not name.startswith("spark.commitlog.") for name in options):
        return False
    if options.get("compression", "none").lower() not in _COMPRESSIONS:
        return False
    try:
        OUTPUT_FORMATS["json"].check(columns.arrow())
    except NotSupported:
        return False
    return True


def _merged(columns: OutputColumns, state: State) -> str:
    """Return the schema of the output after rows with `columns` are added; raise if they do not fit."""
    if state.schema is None:
        return columns.dump()
    existing = OutputColumns.parse(state.schema)
    if state.files and existing.unknown is None and columns.unknown is not None:
        raise NotSupported(
            f"the output has the columns {existing}, and no record can describe files of Spark's"
            f" writer of {columns.unknown or 'another format'} with these options: no reader of the log"
            " could read the output any more. Nothing was written: append the rows as Parquet, or with"
            " format('commitlog') and option fileFormat, or overwrite the output"
        )
    if not state.files and existing.unknown != columns.unknown:
        return columns.dump()
    merged = existing.merged(columns)
    if merged is None:
        raise ConfigurationError(
            f"the output has the columns {existing}, but the rows to append have {columns}, and no"
            " reader can read both: cast them, or overwrite the output"
        )
    if merged == existing:
        return state.schema
    if merged.unknown is None:
        check_positions(state.files.values())
    return merged.dump()


def _folded(name: str, case_sensitive: bool) -> str:
    return name if case_sensitive else name.lower()


def _spellings(names: Iterable[str], case_sensitive: bool) -> dict[str, str]:
    """Return `names` by what Spark compares of them; the first spelling counts."""
    return {_folded(name, case_sensitive): name for name in reversed(list(names))}


def _with_strings(schema: str, names: Iterable[str], case_sensitive: bool) -> str:
    """Return `schema` with those of the partition columns `names` that it lacks, as strings.

    Spark writes no file, and no directory, for a job without rows.
    """
    columns = OutputColumns.parse(schema)
    known = _spellings(columns.names, case_sensitive)
    added = [name for name in names if _folded(name, case_sensitive) not in known]
    return columns.with_strings(added).dump() if added else schema


def _check_partitioning(there: Sequence[str] | None, names: Sequence[str], case_sensitive: bool) -> None:
    """Raise `ConfigurationError` if no reader could read files with both of these partition columns."""
    same = there is None or [_folded(name, case_sensitive) for name in there] == [
        _folded(name, case_sensitive) for name in names
    ]
    if not same:
        raise ConfigurationError(
            f"the output is partitioned by {', '.join(there or ()) or 'nothing'}, and the rows by"
            f" {', '.join(names) or 'nothing'}; nothing was added. Give the same partition columns, or"
            " overwrite the output"
        )


def _with_partitions(job: Job, files: Sequence[StagedFile]) -> Job:
    """Return `job` with the partition columns in its paths, as strings if their type is unknown.

    Raises `NotSupported` if the type is known and readers would not read the same values, or if the
    columns are known and the name of a file does not tell its format.
    """
    if job.schema is None or not files:
        return job
    columns = OutputColumns.parse(job.schema)
    if columns.unknown is None:
        for file in files:
            output_format_of(file.staged.path)
    kinds = columns.readable()
    for partition in {tuple(file.partition.items()) for file in files}:
        check_spelling(dict(partition), kinds)
    known = columns.with_strings(files[0].partition)
    return job if known == columns else evolve(job, schema=known.dump())


def _make_room(cache: dict[K, V]) -> None:
    """Drop the oldest entry of a full cache. A job that uses it keeps it."""
    if len(cache) >= _KEPT:
        del cache[next(iter(cache))]


def _probe(store: ConditionalStore) -> None:
    try:
        store.probe()
    except CommitError as error:  # the commit has it, too
        _log.debug("%s could not be probed: %s", store.url, error)


# -- files -------------------------------------------------------------------------------------------


def _staged(running: _Running, files: Iterable[Mapping[str, Any]]) -> list[StagedFile]:
    """Return the files of a job, ready for the commit.

    Args:
        running: the job.
        files: for each file its ``name``, relative to the output, and ``size`` in bytes; for an upload
            also ``upload`` (its id), ``etags`` (of its parts, in order), and ``stored``: whether S3A has
            stored the record of it.
    """
    if running.job.visibility == "logged":
        return _in_place(running, files)
    output = running.output
    if running.in_s3:
        return [
            _file(running, "", each, upload_id=each["upload"], parts=tuple(each["etags"]))
            for each in files
        ]
    placed = _in_place(running, files)
    top = join(output.path, join(running.staging, ""))
    targets = {
        file.staged.path: join(output.path, file.staged.path.removeprefix(top)) for file in placed
    }
    with closing(LocalStore(output.store.url)) as store:
        uploads = store.stage_files(targets, key=running.job.attempt)
    return [evolve(file, staged=staged) for file, staged in zip(placed, uploads, strict=True)]


def _in_place(running: _Running, files: Iterable[Mapping[str, Any]]) -> list[StagedFile]:
    """Return the files of a job at the paths where tasks wrote them."""
    return [_file(running, running.staging, each) for each in files]


def _file(
    running: _Running,
    directory: str,
    file: Mapping[str, Any],
    *,
    upload_id: str = "",
    parts: tuple[str, ...] = (),
) -> StagedFile:
    name = file["name"]
    path = join(running.output.path, join(directory, name))
    # The name of a file is of one task attempt, which writes it once: it needs no nonce.
    staged = Staged(path=path, upload_id=upload_id, size=file["size"], nonce="", parts=parts)
    return StagedFile(staged=staged, partition=running.partition_in(name))


def _overwriting(running: _Running, files: Iterable[Mapping[str, Any]]) -> Job:
    """Return the job, with the list of files that it replaces if its mode does not imply them."""
    # The slash distinguishes day=1 from day=10.
    wanted = [running.partition_in(prefix + "/").items() for prefix in running.replaced]
    if not wanted:
        return running.job
    new = [running.partition_in(file["name"]) for file in files]
    replaced = [
        file
        for file in running.output.state().files.values()
        if any(some <= file.partition.items() for some in wanted)
    ]
    if all(file.partition in new for file in replaced):
        return running.job
    # Some replaced partitions get no new rows: list the files, so that these become empty.
    return evolve(running.job, mode="overwrite-files", replaces=tuple(file.path for file in replaced))


def _foreign(running: _Running) -> list[ForeignFile] | None:
    """Return the foreign files that a job replaces; None if its mode implies them."""
    if running.job.mode == "overwrite" or not running.replaced:
        return None
    wanted = [partition_in(prefix + "/") for prefix in running.replaced]
    found = running.output.foreign((prefix + "/" for prefix in running.replaced), whole=True)
    return [file for file in found if lies_in(file.path, wanted)]


def _drop(running: _Running, files: Iterable[Mapping[str, Any]]) -> None:
    """Drop the files of a duplicate, which was never a part of the output, and all of its uploads."""
    if running.job.visibility == "logged":
        running.output.drop(running.job, _in_place(running, files))
    elif running.in_s3:
        running.output.drop(running.job, _staged(running, files), others=True)


def _clean(running: _Running, request: Mapping[str, Any]) -> None:
    """Remove the other files of the tasks; a failure leaves them for gc.

    The records of S3A are listed only if a task has read one: most S3A keep them in memory.
    """
    output, job = running.output, running.job
    if job.visibility == "logged":
        return
    try:
        if running.in_s3:
            magic, files = request.get("magic"), request["files"]
            if magic is not None and (not files or any(file["stored"] for file in files)):
                rest = output.store.list(join(output.path, join(magic, "")))
                for error in output.store.delete_many(info.path for info in rest).values():
                    raise error
        else:
            top = Path(parse_store_url(output.store.url).name, output.path)
            shutil.rmtree(top / running.staging)
    except FileNotFoundError:
        pass
    except Exception as error:  # the outcome of the job is decided
        _log.warning("files of attempt %s are left for gc: %s", job.attempt, error)
