"""Opening stores by URL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commitlog.errors import ConfigurationError
from commitlog.stores.local.store import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.stores.open import open_store
from commitlog.stores.s3.store import S3Store
from commitlog.testing import ManualClock
from commitlog.urls import parse_store_url


def test_the_scheme_names_the_implementation(tmp_path: Path) -> None:
    """A URL as text or parsed, and the path of a directory, open the matching store."""
    assert isinstance(open_store("memory://"), MemoryStore)
    assert isinstance(open_store(parse_store_url("memory://x")), MemoryStore)
    for url in (str(tmp_path), f"file://{tmp_path}"):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.url == f"file://{tmp_path}"
    s3 = open_store("s3://bucket/p", endpoint_url="http://127.0.0.1:9", region="us-east-1", profile=None)
    assert isinstance(s3, S3Store)
    s3.close()


def test_the_clock_is_passed_on() -> None:
    """The store uses the clock that it was opened with."""
    assert open_store("memory://", clock=ManualClock(epoch=7.0)).begin_head("a")().store_time == 7


@pytest.mark.parametrize(
    ("url", "option"),
    [("memory://", "region"), ("/tmp", "profile"), ("s3://bucket", "colour"), ("memory://", "colour")],
)
def test_an_option_that_the_store_does_not_have_is_refused(url: str, option: str) -> None:
    """Options are never ignored, because the user expects an effect."""
    with pytest.raises(ConfigurationError, match=option):
        open_store(url, **{option: "x"})


def test_boto3_is_not_imported_for_a_local_store(tmp_path: Path) -> None:
    """The S3 client is loaded only for S3."""
    code = (
        "import sys; from commitlog.stores.open import open_store;"
        f"open_store({str(tmp_path)!r}).put('a', b''); open_store('memory://');"
        "sys.exit(any(name in sys.modules for name in ('boto3', 'botocore', 'urllib3')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
