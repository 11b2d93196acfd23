"""The versions of a Lance table: manifests that are created once, and never replaced.

A manifest is the whole state of one version. Lance writes it under a staging name, and asks for its
creation under its final name in ``_versions/``. Both names are Lance's own ("Table Versioning" in its
documentation), so any reader of Lance opens the table by its URL.

Lance repeats a commit that was refused on top of the other writer's version, so a wrong refusal adds the
rows twice, and a wrong success loses those of the other writer. Therefore, after any other
answer than a success, the stored version is compared with the staged one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import frozen

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    NotFound,
    NotSupported,
    OutcomeUnknown,
)
from commitlog.stores.api import ObjectInfo

__all__ = ["TableVersions", "VersionManifest"]

#: The number that names of the scheme V2 count down from, so that a listing begins with the latest.
_TOP: Final = 2**64 - 1
#: The first version number of the detached ones, which are not part of a table's history.
_DETACHED: Final = 2**63
_NAME = re.compile(r"([0-9]+)\.manifest")
_STAGED = re.compile(r"[0-9]+\.manifest-[0-9A-Za-z-]+")
_V2_DIGITS: Final = 20
#: Names on a page of a search for the latest version; staged manifests may come first.
_FEW: Final = 20
_BRANCH = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


@frozen(kw_only=True)
class VersionManifest:
    """A version's manifest.

    Attributes:
        version: number of the version.
        path: path of the manifest in the store.
        size: bytes, or None if it is not known.
        etag: the store's etag, or "" if it is not known.
        created: epoch seconds by the store's clock, or None if it is not known.
    """

    version: int
    path: str
    size: int | None = None
    etag: str = ""
    created: float | None = None


class TableVersions:
    """The versions of one branch of a table. Thread-safe.

    Args:
        store: the store of the table.
        location: path of the table's directory in the store.
        branch: name of a branch, or None for the main one.

    Guarantees: of all writers that create one version with this class, at most one succeeds. After an
    error other than `OutcomeUnknown`, this call has not created the version, and will not create it.

    Non-guarantees: writers that create manifests without this class, such as plain Lance, are excluded
    only where the store enforces preconditions natively. If a version is removed while a writer is still
    creating the same one, that writer may create it again, below the latest: keep versions for longer
    than a commit takes.
    """

    def __init__(self, store: ConditionalStore, location: str, *, branch: str | None = None) -> None:
        self._store = store
        if branch is not None and (not _BRANCH.fullmatch(branch) or ".." in branch):
            raise ConfigurationError(f"{branch!r} is not the name of a branch")
        chain = location if branch is None else f"{location}/tree/{branch}"
        self._directory = f"{chain}/_versions"

    def create(self, version: int, staged: str, *, scheme: str = "V2") -> VersionManifest:
        """Create a version from a staged manifest, which is removed afterwards.

        A copy inside the store, or, where that takes no condition, a put of the same bytes. Repeating a
        call that succeeded raises `NotFound`, because the staged manifest is gone.

        Args:
            version: number of the version; at least 1.
            staged: name of the staged manifest, without its directory.
            scheme: naming scheme of the table, ``V1`` or ``V2``.

        Raises:
            AlreadyExists: another writer created the version. The staged manifest stays.
            NotFound: there is no staged manifest; nothing was created.
            ConfigurationError: the version or a name is not one of Lance. Nothing was sent.
            NotSupported: the store does not enforce the condition, and there is no table of leases.
            OutcomeUnknown: an answer was lost, and the version could not be read. It stays staged.
        """
        if not _STAGED.fullmatch(staged):
            raise ConfigurationError(f"{staged!r} is not the name of a staged manifest of Lance")
        source = f"{self._directory}/{staged}"
        target = f"{self._directory}/{_name(version, scheme)}"
        try:
            etag = self._create(source, target)
        except (AlreadyExists, OutcomeUnknown) as error:
            etag = self._read_back(source, target, error)
        self._discard(source)
        return VersionManifest(version=version, path=target, etag=etag)

    def _create(self, source: str, target: str) -> str:
        try:
            return self._store.copy_if_absent(source, target).etag
        except NotSupported:
            # Nothing was sent. Both conditions are enforced on the target, so the two ways exclude each
            # other, too.
            data = self._store.get(source).data
            return self._store.put_if_absent(target, data).etag

    def _read_back(self, source: str, target: str, failure: CommitError) -> str:
        """Return the etag of the version if it has the bytes of the staged manifest, else raise.

        A manifest has the random id of its transaction. So a version with the same bytes was created by
        this call, or by an earlier attempt of it whose answer was lost or taken for a refusal.
        """
        try:
            found = self._store.get(target)
            mine = self._store.get(source).data
        except CommitError as error:
            if isinstance(failure, OutcomeUnknown):
                raise failure from error
            raise OutcomeUnknown(
                f"the creation of {target!r} was refused, and reading it back failed ({error}). Read it"
                " again: it may have been created by this call"
            ) from failure
        if found.data == mine:
            return found.etag
        if isinstance(failure, AlreadyExists):
            raise failure
        raise AlreadyExists(f"another writer created {target!r}; nothing was written") from failure

    def _discard(self, source: str) -> None:
        with contextlib.suppress(CommitError):  # Lance's `cleanup_old_versions` removes it
            self._store.delete(source)

    def find(self, version: int) -> VersionManifest | None:
        """Return the manifest of a version, of either naming scheme; or None if there is none."""
        for scheme in ("V2", "V1"):
            path = f"{self._directory}/{_name(version, scheme)}"
            try:
                info = self._store.head(path)
            except NotFound:
                continue
            return _manifest(info, version)
        return None

    def latest(self) -> VersionManifest | None:
        """Return the manifest of the latest version; or None if no version was created."""
        prefix = f"{self._directory}/"
        token: str | None = None
        limit = _FEW
        while True:
            page = self._store.list_page(prefix, limit=limit, token=token)
            paths = [info.path for info in page.objects]
            names = [path.removeprefix(prefix) for path in paths]
            if paths != sorted(paths) or any(_is_v1(name) for name in names):
                return max(self._all(), key=lambda manifest: manifest.version, default=None)
            for info in page.objects:
                version = _version(info.path.removeprefix(prefix))
                if version is not None:
                    return _manifest(info, version)
            if page.next_token is None:
                return None
            # A token goes with the other arguments unchanged.
            token = page.next_token

    def list(self) -> list[VersionManifest]:
        """Return the manifests of all versions, the latest first."""
        return sorted(self._all(), key=lambda manifest: -manifest.version)

    def _all(self) -> Iterator[VersionManifest]:
        prefix = f"{self._directory}/"
        for info in self._store.list(prefix):
            version = _version(info.path.removeprefix(prefix))
            if version is not None:
                yield _manifest(info, version)

    def delete(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Remove the manifests of old versions, and return how many.

        Files of data that only they name are left for Lance's ``cleanup_old_versions``. References to
        the versions (tags, branches) are not checked.

        Args:
            ranges: pairs of the first version, and the one after the last, or a negative number for all.

        Raises:
            NotSupported: the latest version is among them: its number would be given out again.
                Nothing was removed.
            CommitError: a manifest could not be removed. Others may be gone.
        """
        wanted = tuple(ranges)
        manifests = self.list()
        chosen = [
            manifest
            for manifest in manifests
            if any(
                start <= manifest.version and (end < 0 or manifest.version < end)
                for start, end in wanted
            )
        ]
        if manifests and manifests[0] in chosen:
            raise NotSupported(
                f"version {manifests[0].version} is the latest, and can not be removed: its number would"
                " be given out again. Restore an older version, or drop the table. Nothing was removed"
            )
        # The oldest first, so that an interruption leaves no gap.
        failed: Mapping[str, CommitError] = self._store.delete_many(
            [manifest.path for manifest in reversed(chosen)]
        )
        for error in failed.values():
            raise error
        return len(chosen)


def _name(version: int, scheme: str) -> str:
    if not 1 <= version < _DETACHED:
        raise ConfigurationError(
            f"{version} is not the number of a version. Detached commits are not supported: commit to a"
            " branch"
        )
    if scheme == "V1":
        return f"{version}.manifest"
    if scheme == "V2":
        return f"{_TOP - version:0{_V2_DIGITS}}.manifest"
    raise ConfigurationError(f"naming scheme {scheme!r} is not V1 or V2: upgrade commitlog")


def _version(name: str) -> int | None:
    """Return the version of a final manifest's name; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    number = int(found[1])
    return _TOP - number if len(found[1]) == _V2_DIGITS else number


def _is_v1(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and len(found[1]) != _V2_DIGITS


def _manifest(info: ObjectInfo, version: int) -> VersionManifest:
    return VersionManifest(
        version=version, path=info.path, size=info.size, etag=info.etag, created=info.last_modified
    )
