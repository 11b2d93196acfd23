"""The command ``commitlog``: its options and commands, and the exit status of errors."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import IO, Any

import click

from commitlog._util.tracing import Outcome, begin_span
from commitlog.cli.connection_options import connection_help
from commitlog.cli.exit_status import Exit, message_of, print_error, status_of
from commitlog.cli.lazy import LazyCommand, LazyGroup
from commitlog.cli.output import use_json, wants_json

__all__ = ["main"]


#: Raised by a group without a command, to show its help; click 8.1 exits instead.
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", click.exceptions.Exit)


_OBJECTS, _STORES, _JOBS, _FILES = "Objects", "Stores and tables", "Outputs and ingest", "Namespaces"

#: The commands by section, with their line in the list of commands.
_COMMANDS = MappingProxyType(
    {
        name: LazyCommand(f"commitlog.cli.{target}", short_help, section)
        for section, name, target, short_help in (
            (_OBJECTS, "put", "objects.write:put", "Upload a file to an object."),
            (_OBJECTS, "get", "objects.read:get", "Download an object."),
            (_OBJECTS, "cat", "objects.read:cat", "Write objects to standard output."),
            (_OBJECTS, "ls", "objects.read:ls", "List objects."),
            (_OBJECTS, "stat", "objects.read:stat", "Show the details of an object."),
            (_OBJECTS, "cp", "objects.move:cp", "Copy objects."),
            (_OBJECTS, "mv", "objects.move:mv", "Move objects."),
            (_OBJECTS, "rm", "objects.write:rm", "Remove objects."),
            (_STORES, "status", "status:status", "Show what needs attention."),
            (_STORES, "probe", "probe:probe", "Measure which preconditions a store enforces."),
            (_STORES, "lease", "leases:lease", "List and break leases."),
            (_STORES, "lock", "lock:lock", "Run a command while holding a lock."),
            (_STORES, "table", "table:table", "Create and describe tables."),
            (_STORES, "upload", "objects.uploads:upload", "List and abort incomplete uploads."),
            (_JOBS, "output", "outputs:output", "Show and maintain outputs of jobs."),
            (_JOBS, "ingest", "ingest.commands:ingest", "Show and maintain sources of queries."),
            (_JOBS, "spark", "spark:spark", "Build the jar of the Spark committer."),
            (_FILES, "namespace", "namespace:namespace", "Create, check and maintain namespaces."),
            (_FILES, "fs", "fs:fs", "Work with files and directories of namespaces."),
        )
    }
)


#: The outcomes of exit statuses, where they say more than the error.
_OUTCOMES: Mapping[int, Outcome] = MappingProxyType(
    {
        Exit.USAGE: "failure",
        Exit.PRECONDITION: "failure",
        Exit.UNKNOWN: "unknown",
        Exit.INTERRUPTED: "unknown",
        Exit.BROKEN_PIPE: "unknown",
    }
)

#: The variables that name the span of the caller.
_CARRIER = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")

#: The arguments of the program, in the `meta` of contexts.
_ARGUMENTS = "commitlog.cli.app.arguments"


class _Failure(click.ClickException):
    """An error as one line on standard error, with an exit status."""

    def __init__(self, error: BaseException) -> None:
        message = message_of(error)
        if isinstance(error, click.NoSuchOption) and error.option_name == "-h":
            message += " (--help shows the help)"
        super().__init__(message)
        self.exit_code = int(status_of(error))  # type: ignore[misc] # click's ClassVar is a default
        context = error.ctx if isinstance(error, click.UsageError) else None
        self._usage = context.get_usage() if context is not None else ""
        self._error = error
        self._json = wants_json()  # there is no context when it is shown

    def show(self, file: IO[Any] | None = None) -> None:
        if self._json:
            print_error(self._error, json=True)
            return
        if self._usage:
            click.echo(self._usage, file=file or sys.stderr)
        click.echo(f"commitlog: {self.message}", file=file or sys.stderr)


class _App(LazyGroup):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Connection options, after the command"):
            formatter.write_dl(list(connection_help()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = tuple(args)
        # Before the command parses its options, so that their errors are printed as JSON, too.
        if "--json" in itertools.takewhile(lambda word: word != "--", args):
            use_json(ctx)
        try:
            return super().parse_args(ctx, args)
        except _NO_ARGUMENTS:
            raise
        except click.UsageError as error:
            raise _Failure(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        if sys.stdout is None:  # the next opened file would get its number
            raise _Failure(OSError(errno.EBADF, "standard output is closed"))
        try:
            result = self._invoke_in_span(ctx)
            sys.stdout.flush()
            return result
        except (click.exceptions.Exit, _NO_ARGUMENTS):
            raise
        except BrokenPipeError:
            # Buffered output must not raise again when the interpreter flushes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(Exit.BROKEN_PIPE)
        except (Exception, KeyboardInterrupt) as error:
            if ctx.params["debug"]:
                traceback.print_exception(error)
            raise _Failure(error) from error

    def _invoke_in_span(self, ctx: click.Context) -> Any:
        """Run the command in the span of a program, below the one that the environment names.

        https://opentelemetry.io/docs/specs/semconv/cli/cli-spans/,
        https://opentelemetry.io/docs/specs/otel/context/env-carriers/
        """
        span = begin_span(
            "commitlog",
            {"process.executable.name": "commitlog", "process.pid": os.getpid()},
            carrier={name.lower(): os.environ[name] for name in _CARRIER if name in os.environ},
        )
        if span is None:
            return super().invoke(ctx)
        try:
            span.rename(self._command_path(ctx))
            result = span.run(partial(super().invoke, ctx))
        except click.exceptions.Exit as ended:
            span.set({"process.exit.code": ended.exit_code})
            if ended.exit_code:
                span.fail(str(ended.exit_code), _OUTCOMES.get(ended.exit_code, "failure"))
            else:
                span.end()
            raise
        except BaseException as error:
            code = Exit.BROKEN_PIPE if isinstance(error, BrokenPipeError) else status_of(error)
            span.set({"process.exit.code": int(code)})
            span.end(error, outcome=_OUTCOMES.get(code))
            raise
        span.set({"process.exit.code": 0})
        span.end()
        return result

    def _command_path(self, ctx: click.Context) -> str:
        """Return the name of the command with those of its groups, without any argument."""
        path = ["commitlog"]
        command: click.Command = self
        for word in ctx.meta[_ARGUMENTS]:
            found = command.get_command(ctx, word) if isinstance(command, click.Group) else None
            if found is not None:
                path.append(word)
                command = found
            elif not word.startswith("-"):
                break
        return " ".join(path)


@click.group(
    cls=_App,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, envvar="COMMITLOG_DEBUG", help="Print the traceback of an error.")
@click.version_option(package_name="commitlog-store", prog_name="commitlog")
def main(debug: bool) -> None:
    """Conditional writes and atomic job output on object stores.

    URLs are s3://bucket/key, file:///dir/key, or the path of a local file.

    \b
    Examples:
      commitlog put report.csv s3://bucket/report.csv --if-absent
      commitlog output log s3://bucket/out
      commitlog fs ls -l commitlog://lake/events

    \b
    Exit status:
      0  done
      1  failed, nothing changed (diff, fsck, status: something was found)
      2  wrong usage, URL or setting; nothing was done
      3  the precondition does not hold, or the job is committed already
      4  the outcome is unknown: the change may have happened; remove nothing
    """
