"""Lists of files that are too long for a record: objects of their own, named by the record.

A job of many files writes its list once, as one or more gzipped objects of JSON lines. Its pending entry
and its commit record name them with their checksums. So a record stays small however many files a job
has, or names for it to replace, and a list is read line by line.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import AlreadyExists, CorruptRecord, FormatTooNew, NotFound
from commitlog.oplog.codec import ADVICE, Document
from commitlog.oplog.validate import build, items, mapping, text
from commitlog.outputs.foreign import ForeignFile
from commitlog.outputs.job import StagedFile
from commitlog.outputs.records import DataFile, Manifest, total_rows
from commitlog.paths import join
from commitlog.stores.api import Staged

__all__ = ["Manifests", "staged_from_json", "staged_to_json"]

#: Files in one manifest: some hundred kilobytes, compressed.
MANIFEST_FILES = 10_000

_FORMAT = 1
_HEADER = {"format": _FORMAT, "kind": "manifest"}

T = TypeVar("T")


class Manifests:
    """The manifests of one output. Thread-safe.

    Args:
        store: the store of the output.
        directory: the directory of the manifests.
    """

    def __init__(self, store: ConditionalStore, directory: str) -> None:
        self._store = store
        self.directory = directory

    def write(self, attempt: str, files: Sequence[StagedFile]) -> tuple[Manifest, ...]:
        """Store the files of `attempt` in as many manifests as necessary; return their descriptions.

        A repeated call with the same files is no error. Raises `AlreadyExists` if the attempt has other
        files, and the errors of the store.
        """
        return tuple(
            self._write(
                f"{attempt}-{number:05d}",
                map(staged_to_json, part),
                rows=total_rows(list(map(DataFile.of, part))),
            )
            for number, part in _parts(files)
        )

    def write_replaced(self, attempt: str, files: Sequence[DataFile]) -> tuple[Manifest, ...]:
        """Store likewise the list of the files that `attempt` replaces."""
        return tuple(
            self._write(
                f"{attempt}-replaced-{number:05d}",
                (file.to_json() for file in part),
                rows=total_rows(part),
            )
            for number, part in _parts(files)
        )

    def write_foreign(self, attempt: str, files: Sequence[ForeignFile]) -> tuple[Manifest, ...]:
        """Store likewise a list of foreign files that `attempt` replaces.

        Each list has a name of its own: calls to commit one attempt may find different files.
        """
        listed = repr([file.to_json() for file in files]).encode()
        word = hashlib.sha256(listed).hexdigest()[:16]
        return tuple(
            self._write(
                f"{attempt}-foreign-{word}-{number:05d}",
                (file.to_json() for file in part),
                rows=None,
            )
            for number, part in _parts(files)
        )

    def read(self, manifest: Manifest) -> Iterator[StagedFile]:
        """Yield the staged files of `manifest`.

        Raises `CorruptRecord` also if it is missing: a record that names it was read before; and
        `FormatTooNew`.
        """
        return self._read(manifest, staged_from_json)

    def files(self, manifest: Manifest) -> Iterator[DataFile]:
        """Yield the files as committed ones, or the files of a list of replaced ones."""
        return self._read(manifest, DataFile.from_json)

    def foreign(self, manifest: Manifest) -> Iterator[ForeignFile]:
        """Yield the files of a list of foreign ones."""
        return self._read(manifest, ForeignFile.from_json)

    def path(self, manifest: Manifest) -> str:
        """Return the path of a manifest."""
        return join(self.directory, manifest.name)

    def _read(self, manifest: Manifest, make: Callable[[object], T]) -> Iterator[T]:
        path = self.path(manifest)
        try:
            data = self._store.get(path).data
        except NotFound as error:
            raise CorruptRecord(
                f"{path!r} is missing; a record has its list of {manifest.files} files there. Restore"
                " it from a backup or an older version of the object"
            ) from error
        if hashlib.sha256(data).hexdigest() != manifest.sha256:
            raise CorruptRecord(f"{path!r} does not match the checksum in its record. {ADVICE}")
        try:
            lines = gzip.decompress(data).splitlines()
            found = json.loads(lines[0])["format"]
        except (
            OSError,
            EOFError,
            zlib.error,
            ValueError,
            LookupError,
            TypeError,
            RecursionError,
        ) as error:
            raise CorruptRecord(f"{path!r} is not a manifest: {error}. {ADVICE}") from error
        if type(found) is int and found > _FORMAT:
            raise FormatTooNew(f"{path!r} has format {found}; this library reads up to {_FORMAT}")
        if type(found) is not int or found < 1 or len(lines) - 1 != manifest.files:
            raise CorruptRecord(
                f"{path!r} has format {found!r} and {len(lines) - 1} files, of which its record tells"
                f" {manifest.files}. {ADVICE}"
            )
        for line in lines[1:]:
            yield build(Document("manifest", {}, path), lambda line=line: _parse(line, make))  # type: ignore[misc]

    def _write(self, stem: str, stored: Iterable[dict[str, Any]], *, rows: int | None) -> Manifest:
        stored = list(stored)
        lines = [json.dumps(item, ensure_ascii=False) for item in (_HEADER, *stored)]
        data = gzip.compress("\n".join(lines).encode(), compresslevel=6, mtime=0)
        manifest = Manifest(
            name=f"{stem}.jsonl.gz",
            sha256=hashlib.sha256(data).hexdigest(),
            files=len(stored),
            rows=rows,
            bytes=sum(item["size"] for item in stored),
        )
        path = self.path(manifest)
        try:
            self._store.put_if_absent(path, data)
        except AlreadyExists:
            if self._store.get(path).data != data:
                raise
        return manifest


def staged_to_json(file: StagedFile) -> dict[str, Any]:
    """Return the JSON form of a staged file."""
    uploaded = {"upload": file.staged.upload_id, "parts": list(file.staged.parts)}
    return {**DataFile.of(file).to_json(), **uploaded}


def staged_from_json(item: object) -> StagedFile:
    """Return the staged file that `item` describes; for use in `build`."""
    data, fields = DataFile.from_json(item), mapping(item)
    staged = Staged(
        path=data.path,
        upload_id=text(fields["upload"]),
        size=data.size,
        nonce=data.nonce,
        parts=tuple(map(text, items(fields["parts"]))),
    )
    return StagedFile(staged=staged, rows=data.rows, partition=data.partition, stats=data.stats)


def _parts(files: Sequence[T]) -> Iterator[tuple[int, Sequence[T]]]:
    starts = range(0, len(files), MANIFEST_FILES)
    return ((number, files[start : start + MANIFEST_FILES]) for number, start in enumerate(starts))


def _parse(line: bytes, make: Callable[[object], T]) -> T:
    try:
        return make(json.loads(line))
    except RecursionError:
        raise ValueError("it is nested too deep") from None
