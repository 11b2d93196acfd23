"""Transactions of fsspec, each of which is one transaction of the metadata table."""

from __future__ import annotations

from collections import deque
from typing import Any

from fsspec.transaction import Transaction

from commitlog.errors import ConfigurationError
from commitlog.filesystem.files import WriteFile, publish

__all__ = ["NamespaceTransaction"]


class NamespaceTransaction(Transaction):
    """A transaction that makes all files opened and closed in it at once.

    Not thread-safe: it belongs to one `CommitlogFileSystem`, and fsspec gives each thread its own.
    """

    fs: Any
    files: deque[WriteFile]

    def start(self) -> None:
        """Start the transaction. Raises `ConfigurationError` inside another transaction."""
        if self.fs._intrans:
            raise ConfigurationError("a transaction is under way already, and they do not nest")
        super().start()

    def complete(self, commit: bool = True) -> None:
        """Make all files or none. Raises the errors of `commitlog.filesystem.files.publish`."""
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
