"""fsspec file systems, for pandas, Dask, zarr and others.

`CommitlogFileSystem` has namespaces: ``commitlog://NAMESPACE/PATH``. The subclasses of `StoreFileSystem`
have plain stores: ``commitlog+s3://BUCKET/KEY``, ``commitlog+file:///PATH``, ``commitlog+memory://NAME/KEY``.

The modules: `filesystem` and `locations` (namespaces), `store_filesystem`, `store_locations` and
`object_writer` (plain stores). Both share `base` (the calls of fsspec), `ports` (what these need of
their files), `file` (open files), `bulk` (calls for many files) and `transactions`.
"""

from commitlog.extras import require

require("fsspec", extra="fsspec", user=__name__)

from commitlog.filesystem.filesystem import CommitlogFileSystem  # noqa: E402
from commitlog.filesystem.store_filesystem import (  # noqa: E402
    LocalStoreFileSystem,
    MemoryStoreFileSystem,
    S3StoreFileSystem,
    StoreFileSystem,
)

__all__ = [
    "CommitlogFileSystem",
    "LocalStoreFileSystem",
    "MemoryStoreFileSystem",
    "S3StoreFileSystem",
    "StoreFileSystem",
]
