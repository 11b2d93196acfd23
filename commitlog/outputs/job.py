"""A job and the files that it stages: plain data that travels between driver and workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from attrs import Attribute, field, frozen

from commitlog._util.parsing import check_choice
from commitlog.errors import ConfigurationError, InvalidPath
from commitlog.oplog.validate import MAX_COUNT, count, maybe_count, maybe_text, scalar, text
from commitlog.paths import check_path
from commitlog.stores.api import Staged

__all__ = [
    "HIDDEN",
    "MAGIC",
    "NAMING",
    "Batch",
    "Job",
    "Mode",
    "StagedFile",
    "Stats",
    "Visibility",
    "attempt_of",
    "check_job_id",
]

#: What happens to existing data: the job adds to it; is refused; replaces all of it; replaces it in the
#: partitions of its own files; or replaces files that it names, by other rows, or by the same rows.
Mode: TypeAlias = Literal[
    "append", "error", "overwrite", "overwrite-partitions", "overwrite-files", "rewrite"
]

#: The modes of jobs that name the files to replace.
NAMING: frozenset[Mode] = frozenset({"overwrite-files", "rewrite"})

#: The readers of an output: all that can list its directory, or only those that read its log.
Visibility: TypeAlias = Literal["listed", "logged"]

#: The directory of the files that only the log of an output shows.
HIDDEN = "_commitlog/data"

#: First characters of the directories in which Hadoop's S3A keeps records of uploads (CommitConstants).
MAGIC = "__magic"

#: Smallest and largest value of a column, and the number of nulls.
Stats: TypeAlias = tuple[object, object, int | None]

MAX_JOB_ID_BYTES = 512

_ATTEMPT = re.compile(r"[0-9a-f]{32}")
_BATCH_ID = re.compile(r"(?P<stream>.+)/(?P<number>0|[1-9][0-9]{0,18})", re.DOTALL)
_NAMED_ATTEMPT = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


def attempt_of(path: str) -> str | None:
    """Return the job attempt in the last segment of `path`, or None.

    >>> attempt_of("a=1/part-00003-0123456789abcdef0123456789abcdef-c000.parquet")
    '0123456789abcdef0123456789abcdef'
    """
    found = _NAMED_ATTEMPT.search(path.rpartition("/")[2])
    return found and found[0]


def check_job_id(value: str) -> None:
    """Raise `ConfigurationError` unless `value` is a valid job id."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError("a job id is a str that is not blank")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"job id {value!r} is not valid Unicode") from None
    if size > MAX_JOB_ID_BYTES:
        raise ConfigurationError(f"a job id has at most {MAX_JOB_ID_BYTES} bytes of UTF-8, not {size}")


def _check_attempt(_job: object, _attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not _ATTEMPT.fullmatch(value):
        raise ConfigurationError(f"an attempt is 32 lower-case hexadecimal digits, not {value!r}")


@frozen
class Batch:
    """A micro-batch of a stream. It identifies a job that the stream may run again.

    Attributes:
        stream: id of the stream, which outlives restarts; not empty.
        number: its batches are committed in the order of their numbers, each once; from 0 on, and
            below 2**63.

    Raises `ConfigurationError` for other values.
    """

    stream: str = field()
    number: int = field()

    @stream.validator
    def _check_stream(self, _: object, value: str) -> None:
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"the id of a stream is a str that is not empty, not {value!r}")

    @number.validator
    def _check_number(self, _: object, value: int) -> None:
        if type(value) is not int or not 0 <= value <= MAX_COUNT:
            raise ConfigurationError(
                f"the number of a batch is an int from 0 on, below 2**63, not {value!r}"
            )

    @property
    def job_id(self) -> str:
        """The id of the job that the batch is: stream and number.

        >>> Batch("clicks", 7).job_id
        'clicks/7'
        """
        return f"{self.stream}/{self.number}"

    def check_job_id(self, job_id: str) -> None:
        """Raise `ConfigurationError` if `job_id` is not the batch's own."""
        if job_id != self.job_id:
            raise ConfigurationError(
                f"job {job_id!r} cannot be batch {self.number} of stream {self.stream!r}: the id of that"
                f" job is {self.job_id!r}. Give a job id or a batch, not both"
            )

    @classmethod
    def named(cls, job_id: str) -> Batch | None:
        """Return the batch whose job has that id; None if no batch has.

        >>> Batch.named("clicks/7"), Batch.named("clicks/07")
        (Batch(stream='clicks', number=7), None)
        """
        found = _BATCH_ID.fullmatch(job_id)
        if found is None or int(found["number"]) > MAX_COUNT:
            return None
        return cls(found["stream"], int(found["number"]))


#: Checks the value of an attribute when an object is made.
_Validator: TypeAlias = "Callable[[Any, Attribute[Any], Any], None]"


def _one_of(kinds: Any) -> _Validator:
    """Return a validator that accepts the values of a literal type."""

    return lambda _object, attribute, value: check_choice(attribute.name, value, get_args(kinds))


def _storable(check: Callable[[Any], object]) -> _Validator:
    """Return a validator that accepts what `check` accepts, as it does when the record is read.

    A record with another value could be written, but never be read: the output would be unreadable.
    """

    def validate(_object: Any, attribute: Attribute[Any], value: Any) -> None:
        try:
            check(value)
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigurationError(f"{attribute.name} cannot be stored: {error}") from error

    return validate


def _check_partition(partition: Mapping[Any, Any]) -> None:
    for name, value in partition.items():
        text(name)
        maybe_text(value)


def _check_stats(stats: Mapping[Any, Any]) -> None:
    for name, (least, most, nulls) in stats.items():
        text(name)
        scalar(least)
        scalar(most)
        maybe_count(nulls)


@frozen(kw_only=True)
class Job:
    """One attempt to commit one job to one output; made by `Output.begin`. May be pickled.

    Attributes:
        job_id: the id that is committed at most once, ever; that of `batch`, if there is one.
        attempt: 32 hexadecimal digits; distinguishes this attempt, and its files, from all others.
        mode: see `Output.begin`.
        base: version of the log when the job began; every decision about the job comes later.
        schema: schema of the files as a JSON text, or None; kept unchanged in the commit record.
        visibility: the readers that see the files once the job is committed.
        batch: the batch of a stream that the job is, or None.
        replaces: paths of the files to replace, if its mode names them. Only `Output.commit` needs them:
            workers may get the job without them.
        last_commit: version of the last commit when the job began; 0 if there was none.
        base_id: identifies record `base`; "" if it is not known. The job is refused in a log that has
            another record of that number.
    """

    job_id: str = field(validator=lambda _job, _attribute, value: check_job_id(value))
    attempt: str = field(validator=_check_attempt)
    mode: Mode = field(default="append", validator=_one_of(Mode))
    base: int = field(default=0, validator=_storable(count))
    schema: str | None = field(default=None, validator=_storable(maybe_text))
    visibility: Visibility = field(default="listed", validator=_one_of(Visibility))
    batch: Batch | None = field(default=None)
    replaces: tuple[str, ...] = field(default=(), repr=lambda paths: f"<{len(paths)} files>")
    last_commit: int = field(default=0, validator=_storable(count))
    base_id: str = field(default="", validator=_storable(text))

    @batch.validator
    def _check_batch(self, _: object, batch: Batch | None) -> None:
        if batch is not None:
            batch.check_job_id(self.job_id)

    @replaces.validator
    def _check_replaces(self, _: object, paths: tuple[str, ...]) -> None:
        if paths and self.mode not in NAMING:
            raise ConfigurationError(
                f"only jobs of mode {' or '.join(sorted(NAMING))} name files to replace,"
                f" not of mode {self.mode!r}"
            )
        if len(set(paths)) != len(paths):
            raise ConfigurationError("a file to replace is named twice")

    def file_name(self, task: int, index: int = 0, suffix: str = "") -> str:
        """Return a name for file number `index` of task number `task` that no other job will use.

        Two attempts at one task get the same name. That is safe: each stages an upload of its own, and
        only the one that is handed to `Output.commit` is published.

        >>> job = Job(job_id="daily", attempt="0123456789abcdef0123456789abcdef")
        >>> job.file_name(3, suffix=".parquet")
        'part-00003-0123456789abcdef0123456789abcdef-c000.parquet'
        """
        return f"part-{task:05d}-{self.attempt}-c{index:03d}{suffix}"

    def check_name(self, name: str) -> str:
        """Return `name`, a path below the output, if this job may stage a file there.

        Raises `InvalidPath` if its last segment does not bear the attempt (recovery would not know whose
        upload it is, and it might replace another job's file), or if listings would hide it.
        """
        check_path(name)
        if attempt_of(name) != self.attempt:
            raise InvalidPath(f"file name {name!r} lacks the job's attempt: make it with job.file_name")
        for segment in name.split("/"):
            if segment.startswith(".") or (segment.startswith("_") and "=" not in segment):
                raise InvalidPath(f"{name!r} has a segment {segment!r}, and readers skip such names")
        return name


@frozen(kw_only=True)
class StagedFile:
    """A staged upload, with the statistics of the file. May be pickled.

    Attributes:
        staged: the complete upload, as `StageWriter.finish` returned it.
        rows: number of rows, if known.
        partition: values of the partition columns, as in a Hive path; None for null.
        stats: for some columns, the smallest and largest value as JSON, and the number of nulls; unknown
            ones are None.

    Raises `ConfigurationError` for values of other types: no record could hold them.
    """

    staged: Staged
    rows: int | None = field(default=None, validator=_storable(maybe_count))
    partition: Mapping[str, str | None] = field(
        factory=dict, hash=False, validator=_storable(_check_partition)
    )
    stats: Mapping[str, Stats] = field(factory=dict, hash=False, validator=_storable(_check_stats))
