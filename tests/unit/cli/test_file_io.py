"""Local files that appear when they are complete."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from commitlog.cli.file_io import atomic_file
from commitlog.errors import AlreadyExists


@pytest.fixture
def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let link(2) fail, as on FAT."""

    def link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    monkeypatch.setattr(os, "link", link)


@pytest.mark.usefixtures("without_links")
def test_a_file_appears_on_a_file_system_without_hard_links(tmp_path: Path) -> None:
    """A second one under the same name does not replace it."""
    file = tmp_path / "file"
    with atomic_file(str(file), absent=True) as target:
        target.write(b"one")
        assert not file.exists()
    with pytest.raises(AlreadyExists), atomic_file(str(file), absent=True) as target:
        target.write(b"two")
    assert file.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]
