"""The one tree of errors, told apart by what the caller now knows.

Three things can be true after a mutation, and the class says which:

* it returned: the mutation happened;
* it raised anything but `OutcomeUnknown`: **nothing happened**, and nothing will;
* it raised `OutcomeUnknown`: it may have happened, or may still happen. Clean nothing up.

Imports nothing of the project.
"""

from __future__ import annotations

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BucketNotFound",
    "CommitError",
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
    "NotADirectory",
    "NotFound",
    "NotSupported",
    "ObjectChanged",
    "OutcomeUnknown",
    "PreconditionFailed",
    "PublishIncomplete",
    "RequestExpired",
    "RowsReplaced",
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


# -- what was asked for cannot be ---------------------------------------------------------------


class ConfigurationError(CommitError, ValueError):
    """A URL, an option or a combination of settings is wrong. Nothing was sent; correct the call."""


class InvalidPath(CommitError, ValueError):
    """A path is empty, absolute, escapes the root, or cannot be stored there. Nothing was sent."""


class NotSupported(CommitError, NotImplementedError):
    """This store or table cannot do what was asked, and no safe substitute is configured.

    Nothing was sent. The message names the setting that would make it possible.
    """


class TransactionTooLarge(NotSupported):
    """What was asked for takes more writes, or larger ones, than a transaction holds. None was made.

    The message says what to do.
    """


class AccessDenied(CommitError, PermissionError):
    """The service refused the credentials, or they lack a permission. Nothing happened."""


# -- what was asked for did not hold -------------------------------------------------------------


class NotFound(CommitError, FileNotFoundError):
    """There is no object under that path (or no upload under that id). Nothing happened."""


class BucketNotFound(NotFound):
    """The bucket or root directory does not exist. Create it, or correct the URL."""


class TableNotFound(NotFound):
    """The table does not exist. Create it with ``commitlog table create URL``."""


class AlreadyExists(CommitError, FileExistsError):
    """Something is already there, and the caller asked for it to be absent. Nothing happened."""


class NotADirectory(CommitError, NotADirectoryError):
    """A path leads through a file, or a directory was wanted where a file is. Nothing happened."""


class IsADirectory(CommitError, IsADirectoryError):
    """A file was wanted where a directory is. Nothing happened."""


class DirectoryNotEmpty(CommitError, OSError):
    """A directory that was to be empty has something in it. Nothing happened."""


class PreconditionFailed(CommitError):
    """The object or item is no longer what the caller had seen. Nothing happened; read it again."""


class TransactionCanceled(PreconditionFailed):
    """A transaction changed nothing, since at least one of its conditions did not hold.

    Attributes:
        reasons: one entry an operation, in the order given: ``None`` where the condition held,
            else the `commitlog.tables.ConditionFailed` of that operation.
    """

    def __init__(self, message: str, reasons: tuple[BaseException | None, ...] = ()) -> None:
        super().__init__(message)
        self.reasons = reasons


# -- not now ---------------------------------------------------------------------------------------


class Conflict(CommitError):
    """The service saw a competing request and did neither. Nothing happened; try again."""


class Fenced(CommitError):
    """The log of a namespace belongs to another table by now, so this table changes nothing.

    The namespace was restored into the other table, or its log was written again from it. Nothing
    happened, and a repeated call fails in the same way. Open the other table; or, if this table is the
    right one, take the log back with ``commitlog namespace relog --take-over``.
    """


class Unavailable(CommitError, ConnectionError):
    """The service could not be reached, or shed the request. Nothing happened; try again later."""


class RequestExpired(CommitError, TimeoutError):
    """The store refused a request that reached it after its signed expiry. Nothing happened."""


class LeaseTimeout(CommitError, TimeoutError):
    """Another writer held the lease for longer than the caller was willing to wait.

    Nothing happened. ``commitlog locks`` shows the holder and when it can be reclaimed.
    """


class OutcomeUnknown(CommitError):
    """The mutation may have happened, may still happen, or may never happen.

    Raised only when reading back could not settle it: the service stayed unreachable, or what is
    there now was written by somebody else since. Do not clean up after it. Read the path again
    later; the message says what to look for.
    """


# -- what is stored is not what it should be ---------------------------------------------------------


class CorruptRecord(CommitError, ValueError):
    """A stored record cannot be decoded, or its checksum is wrong. The record was left as it is."""


class FormatTooNew(CommitError):
    """A stored record or table was written in a newer format. Upgrade this library to read it."""


class WrongTableSchema(CommitError):
    """A table exists under that name, but with other keys than needed. Nothing was changed."""


class ObjectChanged(PreconditionFailed):
    """The object that holds a file's data is gone, or has other content than the file was given.

    Somebody changed the store behind the back of its metadata. Nothing of it was returned.
    """


class StoreEmpty(CommitError):
    """The store lacks what the namespace knows it by: its mark, or any object. No file was removed.

    It is not mounted, or not the right one, so what it has not may be there all the same. The message
    says how to go on if it is the right one, and that was removed from it.
    """


# -- jobs --------------------------------------------------------------------------------------------


class JobAlreadyCommitted(AlreadyExists):
    """A job of that id is already part of the output. Its rows are there once; nothing was added.

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
    """The job was aborted, by its driver or by a recovery that took it for dead.

    Nothing of it is visible, and nothing ever will be. Run it again under a new attempt.
    """


class PublishIncomplete(OutcomeUnknown):
    """The job **is** committed, but not all of its files are visible to plain listings yet.

    Log-aware readers complete it, and so does ``commitlog recover`` or the next commit, unless files are
    `lost`. Clean nothing up and do not run the job again under its id: it is part of the output.

    Attributes:
        job_id: the id in question.
        version: the version of the output that the job's commit made.
        lost: paths, relative to the output, of files that are neither visible nor staged any more.
            Nothing brings them back; see `RecoveryReport.lost`.
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
    """An object is no longer the version that was listed. Nothing of the new one was read."""


class InputMissing(NotFound):
    """An object was deleted after it was listed, and before it was read."""


class InputUnreadable(CorruptRecord):
    """The content of an input object cannot be read as what it should be. It was left as it is.

    Attributes:
        offset: byte of the object at which reading failed, if known.
    """

    # A default, since unpickling makes the error from its message and then sets the attribute.
    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class UnknownColumns(CommitError, ValueError):
    """An input has columns that the query does not know, and it is to stop then. None of it was read."""


class RowsReplaced(CommitError):
    """A version of an output that is being followed removed rows, and some may have been read.

    Nothing of it was read. The message says what can be done about it.

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
    """The checkpoint of a query and the state of its source tell of different pasts.

    Nothing was read and nothing was changed. The message says which of the two is behind, and what to
    do about it.
    """
