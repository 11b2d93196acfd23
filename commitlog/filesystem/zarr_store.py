"""Stores for zarr over fsspec, in which creating a key has one winner. Needs zarr 3.

A module of its own, because only its users import zarr. zarr's own `FsspecStore` checks whether a key
exists and then writes it, so two processes can both write it, and the later one replaces what the
earlier one wrote (`zarr.abc.store.Store.set_if_not_exists`).
"""

from __future__ import annotations

import contextlib

from zarr.core.buffer import Buffer
from zarr.storage import FsspecStore

__all__ = ["WriteOnceZarrStore", "ZarrStore"]

#: The last parts of the keys that hold the metadata of arrays and groups, in the formats 3 and 2.
_METADATA = frozenset({"zarr.json", ".zarray", ".zgroup"})


class ZarrStore(FsspecStore):
    """zarr's `FsspecStore`, with a `set_if_not_exists` that has one winner.

    Use it with the file systems of this package, for example ``ZarrStore.from_url("commitlog+s3://…")``.
    zarr makes missing parent groups in this way: they never replace a group that another process made
    meanwhile, with its attributes.

    Non-guarantee: zarr itself checks whether an array or a group exists and then calls `set`. So two
    processes can create the same one, and the later one replaces its metadata. See `WriteOnceZarrStore`.
    """

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Store a value unless the key exists. One of several callers stores its value.

        Raises `OutcomeUnknown` if it is not known whether this value was stored.
        """
        with contextlib.suppress(FileExistsError):
            await self._create(key, value)

    async def _create(self, key: str, value: Buffer) -> None:
        if not self._is_open:
            await self._open()
        self._check_writable()
        path = f"{self.path.rstrip('/')}/{key}"
        await self.fs._pipe_file(path, value.to_bytes(), mode="create")


class WriteOnceZarrStore(ZarrStore):
    """A `ZarrStore` in which the metadata of an array or a group is written once.

    Of several processes that create the same array or group, one succeeds. The others get an
    `AlreadyExists`, which is a `FileExistsError`, or zarr's own error that it exists. Chunks can be
    written as usual. To change attributes or a shape, use another store class: here it raises
    `AlreadyExists`.
    """

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        """Store a value. Metadata must be new: raises `AlreadyExists`."""
        if key.rpartition("/")[2] in _METADATA:
            await self._create(key, value)
        else:
            await super().set(key, value, byte_range)
