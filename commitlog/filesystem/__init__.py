"""An fsspec file system for namespaces: ``commitlog://NAMESPACE/PATH`` for pandas, Dask and others.

`CommitlogFileSystem` implements the protocol ``commitlog`` of fsspec. The modules: `filesystem` (the
class), `locations` (the namespace of a path, and listings), `file` (open files and transactions), `bulk`
(calls for many files).
"""

from commitlog.extras import require

require("fsspec", extra="fsspec", user=__name__)

from commitlog.filesystem.filesystem import CommitlogFileSystem  # noqa: E402

__all__ = ["CommitlogFileSystem"]
