"""The operator's face: the ``commitlog`` command.

Data goes to stdout, diagnostics to stderr as ``commitlog: <message>``, and the exit status tells the
four outcomes apart (`commitlog.cli.exits`). Credentials come from the environment or a profile,
never from the command line. Nothing here decides anything: every rule lives below, in the library.
"""

from commitlog.cli.app import main

__all__ = ["main"]
