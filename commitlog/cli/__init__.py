"""The command line interface: the ``commitlog`` command.

Data goes to stdout, diagnostics to stderr as ``commitlog: <message>``, and the exit status distinguishes
four outcomes (`commitlog.cli.exit_status`). Credentials come from the environment or a profile,
never from the command line. The commands only call the library, which implements all rules.
"""

from commitlog.cli.app import main

__all__ = ["main"]
