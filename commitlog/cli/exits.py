"""Exit statuses: what a script learns from one byte. Imports errors, and how texts are shown."""

from __future__ import annotations

import enum

import click

from commitlog.cli.show import printable
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    InvalidPath,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
)

__all__ = ["Exit", "message_of", "status_of"]


class Exit(enum.IntEnum):
    """How a command ended.

    The order matters where a command did several things: the highest status is the one returned.
    """

    DONE = 0
    #: It failed, and what failed did not happen.
    FAILED = 1
    #: The command, a URL or a setting is wrong. Nothing was done.
    USAGE = 2
    #: The stated precondition does not hold, or the job is committed already. Nothing was done.
    PRECONDITION = 3
    #: It may have happened. Clean nothing up; read the path again later.
    UNKNOWN = 4
    #: Ctrl-C, as shells count it (128 + SIGINT).
    INTERRUPTED = 130
    #: Whoever read standard output went away, as shells count it (128 + SIGPIPE).
    BROKEN_PIPE = 141


def status_of(error: BaseException) -> Exit:
    """Return the exit status that tells of `error`.

    >>> status_of(AlreadyExists("there")).name, status_of(OutcomeUnknown("lost")).name
    ('PRECONDITION', 'UNKNOWN')
    """
    match error:
        case OutcomeUnknown():
            return Exit.UNKNOWN
        case AlreadyExists() | PreconditionFailed():
            return Exit.PRECONDITION
        case ConfigurationError() | InvalidPath() | NotSupported() | click.UsageError():
            return Exit.USAGE
        case KeyboardInterrupt() | click.Abort():
            return Exit.INTERRUPTED
    return Exit.FAILED


def message_of(error: BaseException) -> str:
    """Return one line that says what went wrong, without a traceback.

    >>> message_of(FileNotFoundError(2, "No such file or directory", "a.txt"))
    'a.txt: No such file or directory'
    >>> message_of(KeyError("x"))
    "unexpected KeyError: 'x' (run it again with --debug to see where)"
    """
    match error:
        case CommitError():
            text = str(error) or type(error).__name__
        case click.ClickException():
            text = error.format_message()
        case KeyboardInterrupt() | click.Abort():
            text = "interrupted; a write that was under way may or may not have happened"
        case OSError(strerror=str(reason)):
            text = f"{error.filename}: {reason}" if error.filename else reason
        case _:
            # A JVM puts its stack into the message.
            said = str(error).partition("\n\tat ")[0]
            text = f"unexpected {type(error).__name__}: {said} (run it again with --debug to see where)"
    return printable(" ".join(text.split()))
