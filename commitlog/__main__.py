"""The process of the command line: ``commitlog``, or ``python -m commitlog``.

Imports the commands only once it is ready for signals, for that takes the longest part of a second.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its status.

    What ends processes otherwise, SIGTERM and SIGHUP, ends it as Ctrl-C does: what can be taken back
    is. A signal that whoever started it has had ignored, as nohup(1) does, stays so.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    try:
        from commitlog.cli import main as command

        command(prog_name="commitlog")
    except KeyboardInterrupt:  # in the midst of imports; commands see to it themselves
        print("commitlog: interrupted before anything was done", file=sys.stderr)
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
