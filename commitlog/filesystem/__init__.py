"""Namespaces as a file system of fsspec: ``commitlog://NAMESPACE/PATH`` for pandas, Dask and others.

`CommitlogFileSystem` is what fsspec finds under the protocol ``commitlog``. The modules: `looking` (what
is there), `reading` and `making` (files, one or many), `filesystem` (names), `bulk` (several files at a
time), `files` (one open file), `layers` (text and compression around it), `transactions` (files that
show together), `places` (which namespace a path leads to).

Imports fsspec, `commitlog.mount` and all below it.
"""

from commitlog.filesystem.filesystem import CommitlogFileSystem

__all__ = ["CommitlogFileSystem"]
