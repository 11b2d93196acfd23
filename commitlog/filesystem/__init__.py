"""An fsspec file system for namespaces: ``commitlog://NAMESPACE/PATH`` for pandas, Dask and others.

`CommitlogFileSystem` implements the protocol ``commitlog`` of fsspec. The modules: `looking` (listings
and status), `reading` and `making` (content of one or many files), `filesystem` (names), `bulk` (batches
of files), `files` (one open file), `layers` (text and compression around an open file), `transactions`
(several files that appear at once), `places` (the namespace of a path).
"""

from commitlog.extras import require

require("fsspec", extra="fsspec", user=__name__)

from commitlog.filesystem.filesystem import CommitlogFileSystem  # noqa: E402

__all__ = ["CommitlogFileSystem"]
