"""Several files that appear at once: what fsspec calls a transaction is one of the table here.

Imports fsspec and its siblings.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from fsspec.transaction import Transaction

from commitlog.errors import ConfigurationError
from commitlog.filesystem.files import WriteFile, publish

__all__ = ["NamespaceTransaction"]


class NamespaceTransaction(Transaction):
    """Makes the files that were opened in it, and closed, all in one transaction of the table.

    Not thread-safe: it is that of one `CommitlogFileSystem`, of which fsspec gives each thread its own.
    """

    fs: Any
    files: deque[WriteFile]

    def start(self) -> None:
        """Begin; raises `ConfigurationError` within another one."""
        if self.fs._intrans:
            raise ConfigurationError("a transaction is under way already, and they do not nest")
        super().start()

    def complete(self, commit: bool = True) -> None:
        """Make all files, or none; errors as of `commitlog.filesystem.files.publish`."""
        files = list(self.files)
        self.files = deque()
        try:
            if commit:
                publish(files)
            else:
                for file in files:
                    file.discard()
        finally:
            self.fs._intrans = False
            self.fs._transaction = None
            self.fs = None
