"""fsspec file systems, for pandas, Dask, zarr and others.

`CommitlogFileSystem` has namespaces: ``commitlog://NAMESPACE/PATH``. The subclasses of `StoreFileSystem`
have plain stores: ``commitlog+s3://BUCKET/KEY``, ``commitlog+file:///PATH``, ``commitlog+memory://NAME/KEY``.
`ZarrStore` and `WriteOnceZarrStore` are for zarr, and need it. They are not in ``__all__``: most of
their members are those of zarr's class.

The modules: `filesystem` and `locations` (namespaces), `store_filesystem`, `store_locations` and
`object_writer` (plain stores). Both share `base` (the calls of fsspec), `ports` (what these need of
their files), `file` (open files), `bulk` (calls for many files) and `transactions`. `zarr_store` is
imported with its first name.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from commitlog.extras import require

require("fsspec", extra="fsspec", user=__name__)

from commitlog.filesystem.filesystem import CommitlogFileSystem  # noqa: E402
from commitlog.filesystem.store_filesystem import (  # noqa: E402
    LocalStoreFileSystem,
    MemoryStoreFileSystem,
    S3StoreFileSystem,
    StoreFileSystem,
)

#: The module that needs zarr.
_OF_ZARR = "zarr_store"

__all__ = [
    "CommitlogFileSystem",
    "LocalStoreFileSystem",
    "MemoryStoreFileSystem",
    "S3StoreFileSystem",
    "StoreFileSystem",
]


def __getattr__(name: str) -> Any:
    if name not in ("WriteOnceZarrStore", "ZarrStore"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("zarr") is None:
        raise ImportError(f"{__name__}.{name} needs zarr: pip install 'zarr>=3.1'", name="zarr")
    return getattr(import_module(f"{__name__}.{_OF_ZARR}"), name)
