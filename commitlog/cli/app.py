"""The command group: its options, its commands, and every error turned into an exit status."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import traceback
from typing import IO, Any

import click

from commitlog.cli.compact import compact
from commitlog.cli.demo import demo
from commitlog.cli.exits import Exit, complain, message_of, status_of
from commitlog.cli.fs import fs
from commitlog.cli.gc import gc
from commitlog.cli.importing import diff, import_
from commitlog.cli.ingest import ingest
from commitlog.cli.locks import locks
from commitlog.cli.log import log
from commitlog.cli.move import cp, mv
from commitlog.cli.namespace import namespace
from commitlog.cli.probe import probe
from commitlog.cli.read import cat, get, ls, stat
from commitlog.cli.recover import recover
from commitlog.cli.show import use_json, wants_json
from commitlog.cli.table import table
from commitlog.cli.uploads import uploads
from commitlog.cli.write import put, rm

__all__ = ["main"]


#: What a group without a command raises, to show its help; click 8.1 exits.
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", click.exceptions.Exit)


class _Failure(click.ClickException):
    """An error as the operator sees it: one line on stderr and a status."""

    def __init__(self, error: BaseException) -> None:
        message = message_of(error)
        if isinstance(error, click.NoSuchOption) and error.option_name == "-h":
            message += " (--help shows the help)"
        super().__init__(message)
        self.exit_code = int(status_of(error))  # type: ignore[misc] # click's ClassVar is a default
        context = error.ctx if isinstance(error, click.UsageError) else None
        self._usage = context.get_usage() if context is not None else ""
        self._error = error
        self._json = wants_json()  # there is no context any more when it is shown

    def show(self, file: IO[Any] | None = None) -> None:
        if self._json:
            complain(self._error, json=True)
            return
        if self._usage:
            click.echo(self._usage, file=file or sys.stderr)
        click.echo(f"commitlog: {self.message}", file=file or sys.stderr)


class _App(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Before a command has parsed its own: its errors are to be printed in the same way.
        if "--json" in itertools.takewhile(lambda word: word != "--", args):
            use_json(ctx)
        try:
            return super().parse_args(ctx, args)
        except _NO_ARGUMENTS:
            raise
        except click.UsageError as error:
            raise _Failure(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        if sys.stdout is None:  # and the next file that is opened would get its number
            raise _Failure(OSError(errno.EBADF, "standard output is closed"))
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (click.exceptions.Exit, _NO_ARGUMENTS):
            raise
        except BrokenPipeError:
            # What is still buffered must not complain again when the interpreter flushes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(Exit.BROKEN_PIPE)
        except (Exception, KeyboardInterrupt) as error:
            if ctx.params["debug"]:
                traceback.print_exception(error)
            raise _Failure(error) from error


@click.group(cls=_App, context_settings={"help_option_names": ["--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, envvar="COMMITLOG_DEBUG", help="Print the traceback of an error.")
@click.version_option(package_name="commitlog-store", prog_name="commitlog")
def main(debug: bool) -> None:
    """Conditional writes and atomic job output on object stores.

    URLs are s3://bucket/key, file:///dir/key, or the path of a local file.

    \b
    Exit status:
      0  done
      1  failed; what failed did not happen (of diff and check: something was found)
      2  wrong usage, URL or setting; nothing was done
      3  the precondition does not hold, or the job is committed already
      4  the outcome is unknown: it may have happened; clean nothing up
    """


for _command in (
    put,
    get,
    cat,
    ls,
    stat,
    cp,
    mv,
    rm,
    probe,
    table,
    uploads,
    locks,
    log,
    recover,
    compact,
    gc,
    ingest,
    fs,
    namespace,
    import_,
    diff,
    demo,
):
    main.add_command(_command)
