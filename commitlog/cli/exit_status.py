"""The exit statuses of commands, and the errors that they stand for."""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from commitlog.cli.output import note, printable, wants_json
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    InvalidPath,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    PreconditionFailed,
)

__all__ = [
    "CouldNotRun",
    "Exit",
    "GaveUp",
    "Interrupted",
    "Question",
    "Trials",
    "complain",
    "message_of",
    "status_of",
]


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
    #: Ctrl-C, as shells count it (128 + SIGINT); also SIGTERM and SIGHUP, which do the same.
    INTERRUPTED = 130
    #: The reader of standard output closed it, as shells count it (128 + SIGPIPE).
    BROKEN_PIPE = 141


class Interrupted(KeyboardInterrupt):
    """The command was interrupted; the message gives the current state."""


class GaveUp(Exception):
    """The command did not try the rest, because each would have failed for the same reason.

    Attributes:
        status: the exit status of the command.
    """

    def __init__(self, message: str, status: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.status = status


class CouldNotRun(click.ClickException):
    """A test could not be completed. The exit status is 2, because 1 is a valid answer."""


class Question(click.Command):
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
            raise CouldNotRun(message_of(error)) from error


class Trials:
    """Several independent operations, each of which is tried even if others fail. Thread-safe.

    Attributes:
        worst: the highest exit status of the operations.
        failures: the number of failed operations.
    """

    def __init__(self) -> None:
        self.worst = Exit.DONE
        self.failures = 0
        self._lock = threading.Lock()
        self._json = wants_json()  # other threads have no context of the command

    @contextmanager
    def of(self, what: str, *, part: bool = False) -> Iterator[None]:
        """Try one operation, named `what` in messages; see `failed`."""
        try:
            yield
        except BrokenPipeError:
            raise
        except (CommitError, OSError) as error:
            self.failed(what, error, part=part)

    def failed(self, what: str, error: BaseException, *, part: bool = False) -> None:
        """Print an error and remember its exit status.

        Args:
            what: the name of the operation that failed.
            error: the error.
            part: whether it is one of many operations that a single argument stands for. An invalid path
                is then a failure, not wrong usage.
        """
        with self._lock:
            status = Exit.FAILED if part and isinstance(error, InvalidPath) else status_of(error)
            complain(error, what=what, status=status, json=self._json)
            self.worst = max(self.worst, status)
            self.failures += 1

    def end(self) -> None:
        """End the command with the status."""
        click.get_current_context().exit(self.worst)


def complain(
    error: BaseException | str,
    *,
    what: str | None = None,
    status: Exit | None = None,
    json: bool | None = None,
) -> None:
    """Print an error on standard error: a line, or a JSON object if the command prints those.

    Args:
        error: the error, or its message.
        what: the failed operation, by a name that the user knows.
        status: the exit status, if it differs from that of `error`.
        json: whether to print JSON; by default, if the command has --json.
    """
    is_error = isinstance(error, BaseException)
    message = message_of(error) if isinstance(error, BaseException) else printable(error)
    if wants_json() if json is None else json:
        if status is None:
            status = status_of(error) if isinstance(error, BaseException) else Exit.FAILED
        record = {"error": type(error).__name__ if is_error else "Failed", "status": int(status)}
        _print_error({**record, "what": what, "message": message})
        return
    if what is not None and not message.startswith(f"{printable(what)}: "):
        message = f"{printable(what)}: {message}"
    note(message, json=False)


def _print_error(record: Mapping[str, Any]) -> None:
    click.echo(json.dumps(record), err=True)


def status_of(error: BaseException) -> Exit:
    """Return the exit status of `error`.

    >>> status_of(AlreadyExists("there")).name, status_of(OutcomeUnknown("lost")).name
    ('PRECONDITION', 'UNKNOWN')
    """
    match error:
        case GaveUp():
            return error.status
        case OutcomeUnknown():
            return Exit.UNKNOWN
        case ObjectChanged():  # the user stated no such precondition
            return Exit.FAILED
        case AlreadyExists() | PreconditionFailed():
            return Exit.PRECONDITION
        case CouldNotRun():
            return Exit.USAGE
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
        case GaveUp():
            text = str(error)
        case Interrupted():
            text = f"interrupted: {error}"
        case KeyboardInterrupt() | click.Abort():
            text = "interrupted; if something was being written, it may or may not have happened"
        case OSError(strerror=str(reason)):
            text = f"{error.filename}: {reason}" if error.filename else reason
        case _:
            # A JVM puts its stack into the message.
            said = str(error).partition("\n\tat ")[0]
            text = f"unexpected {type(error).__name__}: {said} (run it again with --debug to see where)"
    return printable(" ".join(text.split()))
