"""The error tree of the library. The class of an error says whether the change happened.

After a mutation there are four cases:

* It returned: the mutation happened.
* It raised `Committed`: the mutation happened, and some work is left, which others can do. Clean
  nothing up, and do not repeat it.
* It raised `OutcomeUnknown`: the mutation may have happened, or may still happen. Clean nothing up.
* It raised any other error: **nothing happened**, and nothing will happen later.
"""

from __future__ import annotations

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BucketNotFound",
    "CommitError",
    "Committed",
    "ConfigurationError",
    "Conflict",
    "CorruptRecord",
    "DirectoryNotEmpty",
    "Fenced",
    "FormatTooNew",
    "InputChanged",
    "InputMissing",
    "InputUnreadable",
    "InvalidPath",
    "IsADirectory",
    "JobAborted",
    "JobAlreadyCommitted",
    "LeaseTimeout",
    "LockLost",
    "LockNotHeld",
    "NotADirectory",
    "NotFound",
    "NotSupported",
    "ObjectChanged",
    "OutcomeUnknown",
    "PreconditionFailed",
    "PublishIncomplete",
    "RequestExpired",
    "RowsReplaced",
    "StaleToken",
    "StateMismatch",
    "StoreEmpty",
    "TableNotFound",
    "TransactionCanceled",
    "TransactionTooLarge",
    "Unavailable",
    "UnknownColumns",
    "WrongTableSchema",
]


class CommitError(Exception):
    """Root of every error that this library raises on purpose."""


# -- invalid or impossible requests ---------------------------------------------------------------


class ConfigurationError(CommitError, ValueError):
    """A URL, an option or a combination of settings is wrong. Nothing was sent; correct the call."""


class InvalidPath(CommitError, ValueError):
    """A path is empty, absolute, escapes the root, or cannot be stored there. Nothing was sent."""


class NotSupported(CommitError, NotImplementedError):
    """The store or table does not support the operation, and no safe substitute is configured.

    Nothing was sent. The message names the setting that would make it possible.
    """


class TransactionTooLarge(NotSupported):
    """The operation needs more or larger writes than one transaction can hold. Nothing was written.

    The message says how to avoid it.
    """


class AccessDenied(CommitError, PermissionError):
    """The service refused the credentials, or they lack a permission. Nothing happened."""


# -- failed conditions -------------------------------------------------------------


class BucketNotFound(CommitError):
    """The bucket or root directory does not exist. Create it, or correct the URL. Nothing happened.

    It is not a `NotFound`, because it says nothing about the objects in the bucket.
    """


class TableNotFound(CommitError):
    """The table does not exist. Create it with ``commitlog table create URL``. Nothing happened.

    It is not a `NotFound`, because it says nothing about the items in the table.
    """


class NotFound(CommitError, FileNotFoundError):
    """There is no such object, upload, path or version in an existing store or table.

    Nothing happened.
    """


class AlreadyExists(CommitError, FileExistsError):
    """The object already exists, but the caller required it to be absent. Nothing happened."""


class NotADirectory(CommitError, NotADirectoryError):
    """The path is a file or leads through one, but a directory is needed. Nothing happened."""


class IsADirectory(CommitError, IsADirectoryError):
    """The path is a directory, but a file is needed. Nothing happened."""


class DirectoryNotEmpty(CommitError, OSError):
    """The directory must be empty, but is not. Nothing happened."""


class PreconditionFailed(CommitError):
    """The object or item has changed since the caller read it. Nothing happened; read it again."""


class TransactionCanceled(PreconditionFailed):
    """At least one condition of a transaction did not hold, so the transaction changed nothing.

    Attributes:
        reasons: one entry for each operation, in the given order: ``None`` if its condition held,
            else the `commitlog.tables.ConditionFailed` of that operation.
    """

    def __init__(self, message: str, reasons: tuple[BaseException | None, ...] = ()) -> None:
        super().__init__(message)
        self.reasons = reasons


# -- not now ---------------------------------------------------------------------------------------


class Conflict(CommitError):
    """The service rejected a request because of a competing one. Nothing happened; try again."""


class Fenced(CommitError):
    """The log of the namespace now belongs to another table, so this table cannot change it.

    The namespace was restored into the other table, or its log was written again from it. Nothing
    happened, and a repeated call fails in the same way. Open the other table. If this table is the
    right one, take the log back with ``commitlog namespace rewrite-log --take-over``.
    """


class Unavailable(CommitError, ConnectionError):
    """The service was unreachable or overloaded. Nothing happened; try again later."""


class Busy(Unavailable):
    """Other writers held the lock of a file for as long as this call was to wait. Nothing happened.

    The library does not try again by itself: a writer that stands still would let each try wait as long.
    """


class RequestExpired(CommitError, TimeoutError):
    """The store refused a request that reached it after its signed expiry. Nothing happened."""


class LeaseTimeout(CommitError, TimeoutError):
    """Another writer held the lease for longer than the caller was willing to wait.

    Nothing happened. ``commitlog lease list`` shows the holder and when it can be reclaimed.
    """


class LockNotHeld(CommitError, RuntimeError):
    """The caller does not hold the lock. Nothing happened."""


class LockLost(LockNotHeld):
    """The caller held the lock, and holds it no longer: it ran out, or was broken or taken over.

    Another holder may have begun its work since. Writes with the lock's fencing token through
    `commitlog.locks.FencedStore` are still safe; anything else that was done under the lock may have
    been done at the same time as the work of another holder. Release the lock before it is acquired
    again.
    """


class StaleToken(PreconditionFailed):
    """A holder with a larger fencing token has written the object. Nothing happened.

    The lock was lost. A repeated call fails in the same way; acquire the lock again.
    """


class Committed(CommitError):
    """The mutation **happened**, but some of its work is left.

    Do not repeat the mutation, and clean nothing up. The message names the rest of the work, and the
    docstring of each subclass says who completes it.
    """


class OutcomeUnknown(CommitError):
    """The mutation may have happened, may still happen, or may never happen.

    Raised only if reading back could not decide: the service stayed unreachable, or another writer
    has written the object since. Do not clean up after it. Read the path again
    later; the message says what to look for.
    """


# -- damaged or unexpected stored data ---------------------------------------------------------


class CorruptRecord(CommitError, ValueError):
    """A stored record cannot be decoded, or its checksum is wrong. The record was left as it is."""


class FormatTooNew(CommitError):
    """A newer version of the library wrote the record or table. Upgrade this library to read it."""


class WrongTableSchema(CommitError):
    """The table exists, but its key schema is not the required one. Nothing was changed."""


class ObjectChanged(PreconditionFailed):
    """The object that holds a file's data is gone, or its content is no longer that of the file.

    The store was changed without its metadata. No data was returned.
    """


class StoreEmpty(CommitError):
    """The store has no identity object of the namespace, or no objects at all. No file was removed.

    The store may not be mounted, or may be the wrong one, so its files may still exist. The message
    says how to continue if it is the right store and the objects really were removed.
    """


# -- jobs --------------------------------------------------------------------------------------------


class JobAlreadyCommitted(AlreadyExists):
    """A job with this id is already part of the output. Its rows are there once; nothing was added.

    Attributes:
        job_id: the id in question.
        version: the version of the output that the job's first commit made.
    """

    # Defaults, since unpickling makes the error from its message and then sets the attributes.
    def __init__(self, message: str, *, job_id: str = "", version: int = 0) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.version = version


class JobAborted(CommitError):
    """The job was aborted, by its driver or by a recovery that considered it dead.

    None of its files is visible, now or later. Run the job again as a new attempt.
    """


class PublishIncomplete(Committed):
    """The job **is** committed, but not all of its files are visible to plain listings yet.

    Log-aware readers, ``commitlog output recover`` and the next commit complete it, unless files are
    `lost`. Clean nothing up and do not run the job again under its id: it is part of the output.

    Attributes:
        job_id: the id in question.
        version: the version of the output that the job's commit made.
        lost: paths, relative to the output, of files that are neither visible nor staged any more.
            They cannot be recovered; see `RecoveryReport.lost`.
    """

    # Defaults, since unpickling makes the error from its message and then sets the attributes.
    def __init__(
        self, message: str, *, job_id: str = "", version: int = 0, lost: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.version = version
        self.lost = lost


# -- input -------------------------------------------------------------------------------------------


class InputChanged(PreconditionFailed):
    """An object has changed since it was listed. Nothing of the new version was read."""


class InputMissing(NotFound):
    """An object was deleted after it was listed and before it was read."""


class InputUnreadable(CorruptRecord):
    """The content of an input object is not valid in its format. The object was left unchanged.

    Attributes:
        offset: the byte offset at which reading failed, if known.
    """

    # A default, since unpickling makes the error from its message and then sets the attribute.
    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class UnknownColumns(CommitError, ValueError):
    """An input has unknown columns, and the query is set to stop at them. Nothing of it was read."""


class RowsReplaced(CommitError):
    """A commit removed rows of the followed output that may already have been read.

    Nothing of that commit was read. The message says how to continue.

    Attributes:
        job_id: the job that removed them.
        version: the version of the output that its commit made.
    """

    # Defaults, since unpickling makes the error from its message and then sets the attributes.
    def __init__(self, message: str, *, job_id: str = "", version: int = 0) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.version = version


class StateMismatch(CommitError):
    """The checkpoint of a query and the state of its source, or of the output it writes, do not match.

    Nothing was read and nothing was changed. The message says which of the two is behind, and how to
    continue.
    """
