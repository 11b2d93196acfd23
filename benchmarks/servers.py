"""The test servers of the checkout and the jars of S3A, from `tests/support`.

Import them from here: then a benchmark also runs as ``python benchmarks/NAME.py``, without a path for
modules in the environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parents[1] / "tests")
if _TESTS not in sys.path:
    # Behind all other entries: the tests hide no installed module.
    sys.path.append(_TESTS)

from support.s3a import hadoop_committer_jars, s3a_jars, s3a_settings  # noqa: E402
from support.servers import Juicefs, Ministack, Seaweedfs, Server  # noqa: E402

__all__ = [
    "Juicefs",
    "Ministack",
    "Seaweedfs",
    "Server",
    "hadoop_committer_jars",
    "s3a_jars",
    "s3a_settings",
]
