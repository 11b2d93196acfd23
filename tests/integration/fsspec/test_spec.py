"""fsspec's own tests of file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from commitlog.filesystem import CommitlogFileSystem, LocalStoreFileSystem, MemoryStoreFileSystem
from commitlog.namespaces import create_namespace


class _Fixtures(AbstractFixtures):
    @pytest.fixture(params=["namespace", "memory", "file"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        """A namespace, or a plain store."""
        kind: str = request.param
        return kind

    @pytest.fixture
    def fs(self, kind: str, tmp_path: Path) -> Iterator[Any]:
        if kind == "memory":
            yield MemoryStoreFileSystem(skip_instance_cache=True)
        elif kind == "file":
            yield LocalStoreFileSystem(root=f"{tmp_path}/lake", skip_instance_cache=True)
        else:
            url = f"memory://{tmp_path.name}"
            # there as long as it is open
            with create_namespace("lake", store=url, metadata=url, log=False):
                yield CommitlogFileSystem(url, skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self, kind: str, tmp_path: Path) -> str:
        return f"{tmp_path}/lake" if kind == "file" else "lake"

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *names: "/".join(names)

    @pytest.fixture
    def supports_empty_directories(self, kind: str) -> bool:
        return kind == "namespace"


class TestCopy(_Fixtures, AbstractCopyTests):
    """Copying within a file system."""


class TestGet(_Fixtures, AbstractGetTests):
    """Copying to a local directory."""


class TestPut(_Fixtures, AbstractPutTests):
    """Copying from a local directory."""


class TestOpen(_Fixtures, AbstractOpenTests):
    """Opening files."""


class TestPipe(_Fixtures, AbstractPipeTests):
    """Files of bytes."""
