"""fsspec's own tests of file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from commitlog.filesystem import CommitlogFileSystem
from commitlog.namespaces import create_namespace


class _Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, tmp_path: Path) -> Iterator[CommitlogFileSystem]:
        url = f"memory://{tmp_path.name}"
        with create_namespace("lake", store=url, metadata=url, log=False):  # there as long as it is open
            yield CommitlogFileSystem(url, skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self) -> str:
        return "lake"

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *names: "/".join(names)


class TestCopy(_Fixtures, AbstractCopyTests):
    """Copying from namespace to namespace."""


class TestGet(_Fixtures, AbstractGetTests):
    """Copying to a local directory."""


class TestPut(_Fixtures, AbstractPutTests):
    """Copying from a local directory."""


class TestOpen(_Fixtures, AbstractOpenTests):
    """Opening files."""


class TestPipe(_Fixtures, AbstractPipeTests):
    """Files of bytes."""
