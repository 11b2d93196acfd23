"""The exit statuses of commands, and the errors that they stand for."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from commitlog._util.fork import WorkLock
from commitlog.cli.output import note, printable, wants_json
from commitlog.cli.urls import without_credentials
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Committed,
    ConfigurationError,
    InvalidPath,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    PreconditionFailed,
)

__all__ = [
    "Exit",
    "FailureCollector",
    "Interrupted",
    "PredicateCommand",
    "PredicateError",
    "TooManyFailures",
    "message_of",
    "print_error",
    "status_of",
]


class Exit(enum.IntEnum):
    """How a command ended.

    The order matters where a command did several things: the highest status is the one returned.
    """

    DONE = 0
    #: The operation failed and did not happen. Other operations of the command may have succeeded.
    FAILED = 1
    #: The command, a URL or a setting is wrong. Nothing was done.
    USAGE = 2
    #: The stated precondition does not hold, or the job is committed already. Nothing was done.
    PRECONDITION = 3
    #: The outcome is unknown: the change may have happened. Or it happened, and work is left. Remove
    #: nothing; read the path again later, or follow the message.
    UNKNOWN = 4
    #: Ctrl-C (128 + SIGINT, as in shells), SIGTERM or SIGHUP.
    INTERRUPTED = 130
    #: The reader of standard output closed it (128 + SIGPIPE, as in shells).
    BROKEN_PIPE = 141


class Interrupted(KeyboardInterrupt):
    """The command was interrupted; the message gives the current state."""


class TooManyFailures(Exception):
    """The command skipped the rest after many failures in a row, because each would probably fail.

    Attributes:
        status: the exit status of the command.
    """

    def __init__(self, message: str, status: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.status = status


class PredicateError(click.ClickException):
    """A test could not be completed. The exit status is 2, because 1 is a valid answer."""


class PredicateCommand(click.Command):
    """A command whose statuses 0 and 1 are answers, as in diff(1). Its failures exit with 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if status_of(error) is not Exit.FAILED:
                raise
            raise PredicateError(message_of(error)) from error


class FailureCollector:
    """The failures of several independent operations, each of which is tried. Thread-safe.

    Attributes:
        status: the highest exit status of the operations.
        count: the number of failed operations.
    """

    def __init__(self) -> None:
        self.status = Exit.DONE
        self.count = 0
        self._lock = WorkLock()
        self._json = wants_json()  # other threads have no context of the command

    @contextmanager
    def collect(self, name: str, *, part: bool = False) -> Iterator[None]:
        """Run one operation, called `name` in messages. Record its failure; see `add`."""
        try:
            yield
        except BrokenPipeError:
            raise
        except (CommitError, OSError) as error:
            self.add(name, error, part=part)

    def add(self, name: str, error: BaseException, *, part: bool = False) -> None:
        """Print an error and record its exit status.

        Args:
            name: the operation that failed, in messages.
            error: the error.
            part: whether one argument of the command stands for many operations, of which this is one.
                An invalid path is then a failure, not wrong usage.
        """
        with self._lock:
            status = Exit.FAILED if part and isinstance(error, InvalidPath) else status_of(error)
            print_error(error, what=name, status=status, json=self._json)
            self.status = max(self.status, status)
            self.count += 1

    def exit(self) -> None:
        """End the command with the exit status."""
        click.get_current_context().exit(self.status)


def print_error(
    error: BaseException | str,
    *,
    what: str | None = None,
    status: Exit | None = None,
    json: bool | None = None,
) -> None:
    """Print an error on standard error, as a line or as a JSON object.

    Args:
        error: the error, or its message.
        what: the failed operation, by a name that the user knows. Credentials in a URL are left out.
        status: the exit status, if it differs from that of `error`.
        json: whether to print JSON; by default, if the command has --json.
    """
    what = what and _without_credentials(what)
    is_error = isinstance(error, BaseException)
    message = message_of(error) if isinstance(error, BaseException) else printable(error)
    if wants_json() if json is None else json:
        if status is None:
            status = status_of(error) if isinstance(error, BaseException) else Exit.FAILED
        record = {"error": type(error).__name__ if is_error else "Failed", "status": int(status)}
        _print_json_error({**record, "what": what, "message": message})
        return
    if what is not None and not message.startswith(f"{printable(what)}: "):
        message = f"{printable(what)}: {message}"
    note(message, json=False)


def _print_json_error(record: Mapping[str, Any]) -> None:
    click.echo(json.dumps(record), err=True)


def status_of(error: BaseException) -> Exit:
    """Return the exit status of `error`.

    >>> status_of(AlreadyExists("there")).name, status_of(OutcomeUnknown("lost")).name
    ('PRECONDITION', 'UNKNOWN')
    """
    match error:
        case TooManyFailures():
            return error.status
        case OutcomeUnknown() | Committed():
            return Exit.UNKNOWN
        case ObjectChanged():  # the user stated no such precondition
            return Exit.FAILED
        case AlreadyExists() | PreconditionFailed():
            return Exit.PRECONDITION
        case PredicateError():
            return Exit.USAGE
        case ConfigurationError() | InvalidPath() | NotSupported() | click.UsageError():
            return Exit.USAGE
        case KeyboardInterrupt() | click.Abort():
            return Exit.INTERRUPTED
    return Exit.FAILED


def _without_credentials(name: str) -> str:
    """Return a name from the command line without the credentials that it has if it is a URL."""
    is_url = "://" in name and not name.startswith("commitlog://")
    return without_credentials(name) if is_url else name


def message_of(error: BaseException) -> str:
    """Return one line that says what went wrong, without a traceback.

    >>> message_of(FileNotFoundError(2, "No such file or directory", "a.txt"))
    'a.txt: No such file or directory'
    >>> message_of(KeyError("x"))
    "unexpected KeyError: 'x' (add --debug to print the traceback)"
    """
    match error:
        case CommitError():
            text = str(error) or type(error).__name__
        case click.ClickException():
            text = error.format_message()
        case TooManyFailures():
            text = str(error)
        case Interrupted():
            text = f"interrupted: {error}"
        case KeyboardInterrupt() | click.Abort():
            text = "interrupted; a write in progress may or may not have happened"
        case OSError(strerror=str(reason)):
            text = f"{_without_credentials(str(error.filename))}: {reason}" if error.filename else reason
        case _:
            # A JVM puts its stack into the message.
            reason = str(error).partition("\n\tat ")[0]
            text = f"unexpected {type(error).__name__}: {reason} (add --debug to print the traceback)"
    return printable(" ".join(text.split()))
