"""Results of reading and recovering an output."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import field, frozen

from commitlog.outputs.records import DataFile, total_rows

__all__ = ["LostFiles", "OutputGcReport", "RecoveryReport", "Snapshot"]


@frozen(kw_only=True)
class Snapshot:
    """An output at one version: whole jobs only.

    Attributes:
        version: version of its last commit; 0 if there is none.
        files: the files that are part of it, in order of commit.
        list_jobs: returns `jobs`.
        schema: schema of the last commit that had one, as a JSON text.
    """

    version: int
    files: tuple[DataFile, ...] = field(repr=lambda files: f"<{len(files)} files>")
    list_jobs: Callable[[], tuple[str, ...]] = field(repr=False, eq=False)
    schema: str | None = field(default=None, repr=False)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The callers' job ids of all commits up to it, in order.

        The first use reads them all from the store, and raises its errors and `CorruptRecord`.
        """
        return self.list_jobs()

    @property
    def rows(self) -> int | None:
        """Number of rows in all files, or None if one of them is not known."""
        return total_rows(self.files)


@frozen(kw_only=True)
class LostFiles:
    """Files of a committed job whose uploads are gone, and that were never published.

    A lifecycle rule on multipart uploads does that, or a program that aborts the uploads of others. The
    rows are lost. Readers of the log stay at the versions before until the job was run again: under
    another job id, in mode ``overwrite-files`` with all files of this version as `replaces`, or in a
    mode that overwrites more.

    Attributes:
        job_id: the job to run again.
        version: the version of the output that its commit made.
        files: paths of the lost files, relative to the output.
    """

    job_id: str
    version: int
    files: tuple[str, ...]


@frozen(kw_only=True)
class RecoveryReport:
    """The result of `Output.recover`.

    Attributes:
        completed: versions whose files were published, because their drivers had not done it.
        aborted: attempts that were considered dead and were aborted, with their job ids if known.
        uploads: number of uploads that were dropped.
        live: undecided attempts that are younger than `older_than`.
        lost: committed jobs that cannot be completed, because files of them are gone. Each recovery
            reports them, until later jobs have replaced these files.
    """

    completed: tuple[int, ...] = ()
    aborted: Mapping[str, str | None] = field(factory=dict, hash=False)
    uploads: int = 0
    live: tuple[str, ...] = ()
    lost: tuple[LostFiles, ...] = ()


@frozen(kw_only=True)
class OutputGcReport:
    """The result of `Output.gc`.

    Attributes:
        recovery: the result of the recovery that comes first.
        expired: versions below this one cannot be read any more; 0 if all can.
        removed: number of removed objects.
    """

    recovery: RecoveryReport
    expired: int
    removed: int
