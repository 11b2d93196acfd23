"""The process of the command line: ``commitlog``, or ``python -m commitlog``.

Imports the commands only once it is ready for signals, for that takes the longest part of a second.
"""

from __future__ import annotations

import os
import signal
import sys

from commitlog._util.interrupts import interrupt

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its status.

    SIGTERM and SIGHUP end the command as Ctrl-C does: it undoes the changes that can be undone, for 30 s
    at most. A signal that was ignored when the process started, as under nohup(1), stays ignored. If
    standard error is closed, messages are dropped.
    """
    if sys.stderr is None:  # the next opened file would get its number
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, interrupt)
    try:
        from commitlog.cli import main as command

        command(prog_name="commitlog")
    except KeyboardInterrupt:  # in the midst of imports; commands see to it themselves
        print("commitlog: interrupted before anything was done", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
