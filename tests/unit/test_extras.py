"""Packages of the library without the extras that they need."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("package", "user", "missing", "extra"),
    [
        ("commitlog.filesystem", "commitlog.filesystem", "fsspec", "fsspec"),
        ("commitlog.dask", "commitlog.dask", "dask", "dask"),
        ("commitlog.ray", "commitlog.ray", "ray", "ray"),
        ("commitlog.spark", "commitlog.spark", "pyarrow", "spark"),
        ("commitlog.spark", "commitlog.spark", "pyspark", "spark"),
        ("commitlog.files.avro", "fileFormat avro", "fastavro", "avro"),
        ("commitlog.testing.sim", "commitlog.testing.sim", "greenlet", "simulator"),
    ],
)
def test_a_missing_extra_is_named(package: str, user: str, missing: str, extra: str) -> None:
    """The import of a package raises an error that says what to install."""
    code = f"import sys; sys.modules[{missing!r}] = None; import {package}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    expected = f"ImportError: {user} needs {missing}: pip install 'commitlog-store[{extra}]'"
    assert done.stderr.splitlines()[-1] == expected
