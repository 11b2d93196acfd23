"""Real S3 and DynamoDB servers on loopback, started for a test and ended with it.

Each is a context manager around one process which keeps its data in a directory of its own. All of
it is gone at the end, also when the test run is killed: on Linux the kernel kills the server once
the *thread* that started it is gone, so start it in a thread that outlives its use.

An entered server answers requests, listens on 127.0.0.1 only, and never sees the caller's credentials.
The methods of a running server may be called from any thread.
"""

from __future__ import annotations

import abc
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Any, ClassVar

from commitlog.errors import ConfigurationError, Unavailable
from commitlog.testing.processes import ProcessOwner

__all__ = ["Dynalite", "Juicefs", "Ministack", "S3Server", "Seaweedfs", "Server"]

#: Below the kernel's range for outgoing connections, and so that `port + 10000` is as well: SeaweedFS
#: puts its gRPC services there.
_PORTS = range(10_240, 22_000)
_GRPC_OFFSET = 10_000
_POLL_SECONDS = 0.05
_LOG_TAIL_BYTES = 4000

#: Run in front of the server to tie its life to ours. A `preexec_fn` could do the same, but is not
#: safe once there are threads. The parent may be gone before the call: hence the second look.
_BIND_TO_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class Server(ProcessOwner):
    """A server process; the base of all the servers here.

    Args:
        startup_timeout: seconds within which the server has to answer.

    Entering raises `ConfigurationError` if the program is not installed, and `Unavailable`, with the
    end of the server's log, if it does not come up. An instance can be entered once.
    """

    #: Credentials that the server takes. They open nothing else.
    access_key_id: ClassVar[str] = "commitlog-test"
    secret_access_key: ClassVar[str] = "commitlog-test-secret"
    region: ClassVar[str] = "us-east-1"

    _health_path: ClassVar[str]
    _port_count: ClassVar[int] = 1

    def __init__(self, *, startup_timeout: float = 60.0) -> None:
        self._startup_timeout = startup_timeout
        self._directory = Path()
        self._ports: Sequence[int] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: dict[str, Any] = {}

    # life

    def stop(self) -> None:
        """End the server and remove its data. Idempotent."""
        while self._clients:
            self._clients.popitem()[1].close()
        if self._process is not None:
            # Its data goes with it, so there is nothing to shut down in order. The whole group, for the
            # program may be a wrapper that runs the server as a child.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._directory != Path():
            shutil.rmtree(self._directory, ignore_errors=True)

    # use

    @property
    def endpoint_url(self) -> str:
        """The URL that clients are to talk to."""
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def options(self) -> dict[str, str]:
        """The options with which an ``s3://`` or ``dynamodb://`` URL reaches this server."""
        return {
            "endpoint_url": self.endpoint_url,
            "region": self.region,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }

    def client(self, service: str) -> Any:
        """Return a plain boto3 client of a service, such as ``s3``, that never retries.

        The same one each time; it is closed with the server.
        """
        if service not in self._clients:
            import boto3
            from botocore.config import Config

            session: Any = boto3.session.Session(
                aws_access_key_id=self.access_key_id,
                aws_secret_access_key=self.secret_access_key,
                region_name=self.region,
            )
            self._clients[service] = session.client(
                service,
                endpoint_url=self.endpoint_url,
                config=Config(
                    retries={"total_max_attempts": 1},
                    s3={"addressing_style": "path"},
                    max_pool_connections=32,
                ),
            )
        return self._clients[service]

    # how one kind of server differs from another

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """Prepare `self._directory` and return the command, its program as an absolute path."""

    def _environment(self) -> Mapping[str, str]:
        return {}

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()

    def _start(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix=f"commitlog-{self._name}-"))
        deadline = time.monotonic() + self._startup_timeout
        while True:
            self._ports = _free_ports(self._port_count)
            self._process = self._launch()
            while self._process.poll() is None:
                if self._healthy():
                    return
                if time.monotonic() > deadline:
                    self._fail(f"did not answer within {self._startup_timeout:g} s")
                time.sleep(_POLL_SECONDS)
            # Another process may have taken one of the ports meanwhile; others will do.
            if b"address already in use" not in self._log().lower():
                self._fail(f"ended by itself with exit status {self._process.returncode}")

    def _launch(self) -> subprocess.Popen[bytes]:
        command = self._command()
        guard = [sys.executable, "-I", "-S", "-c", _BIND_TO_PARENT, str(os.getpid())]
        with open(self._directory / "log", "wb") as log:
            return subprocess.Popen(
                [*guard, *command],
                cwd=self._directory,
                env=self._base_environment() | dict(self._environment()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _base_environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._directory)}

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[0], timeout=1.0)
        try:
            connection.request("GET", self._health_path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _log(self) -> bytes:
        with open(self._directory / "log", "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            return log.read()

    def _fail(self, what: str) -> None:
        tail = self._log().decode(errors="replace").strip() or "(empty)"
        raise Unavailable(f"the test server {self._name} {what}. The end of its log:\n{tail}")


class S3Server(Server):
    """A server with S3."""

    def new_bucket(self) -> str:
        """Create an empty bucket and return its name, which was never used before."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client("s3").create_bucket(Bucket=name)
        return name


class _DynamoServer(Server):
    def new_table_name(self) -> str:
        """Return a table name that was never used before. The table is not created."""
        return f"table-{uuid.uuid4().hex[:12]}"


class Ministack(S3Server, _DynamoServer):
    """ministack: S3, DynamoDB and more on one endpoint, in memory; needs the extra ``test``.

    It enforces every precondition but that of CopyObject. It takes any credentials, except for requests
    that are signed in their query: of those it checks signature and expiry. Its CloudFormation creates
    tables without their expiry and their recovery, and no alarms with expressions.
    """

    _health_path = "/_ministack/health"

    def _command(self) -> list[str]:
        return [_program("ministack", extra="test")]

    def _environment(self) -> Mapping[str, str]:
        return {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self._ports[0]),
            "SERVICES": "s3,dynamodb,sqs,cloudformation,monitoring",
            "S3_PERSIST": "0",
            # Without this it listens on all interfaces, on a fixed port.
            "IOT_MTLS_ENABLED": "0",
            "LOG_LEVEL": "ERROR",
            # The one account whose query-signed requests it takes; it checks no other signatures.
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
        }


class Seaweedfs(S3Server):
    """SeaweedFS: a real S3 store on disk, which checks signatures; needs the extra ``test``.

    It enforces every precondition, also that of CopyObject, but contended conditional puts take it
    about a second each; and it creates an unknown bucket on the first put.
    """

    _health_path = "/healthz"
    _port_count = 4

    def _command(self) -> list[str]:
        s3, master, volume, filer = self._ports
        keys = self._directory / "keys.json"
        keys.write_text(json.dumps(self._identities()))
        data = self._directory / "data"
        data.mkdir(exist_ok=True)
        options = {
            "dir": data,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.port": master,
            "master.volumeSizeLimitMB": 64,
            "volume.port": volume,
            "volume.max": 0,
            "filer.port": filer,
            "s3.port": s3,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.config": keys,
        }
        weed = _program("weed", extra="test")
        return [
            weed,
            "server",
            "-filer",
            "-s3",
            *(f"-{name}={value}" for name, value in options.items()),
        ]

    def _identities(self) -> dict[str, Any]:
        credentials = {"accessKey": self.access_key_id, "secretKey": self.secret_access_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        return {"identities": [{"name": "test", "credentials": [credentials], "actions": actions}]}


class Juicefs(S3Server):
    """The S3 gateway of JuiceFS, which *silently ignores* preconditions; needs the extra ``test``.

    This is the kind of store that leases are for: eight of eight racing creators "win".
    """

    _health_path = "/minio/health/ready"
    _port_count = 2

    def _command(self) -> list[str]:
        juicefs = _program("juicefs", extra="test")
        s3, metrics = self._ports
        database = f"sqlite3://{self._directory}/meta.db"
        if not (self._directory / "meta.db").exists():
            data = f"{self._directory}/data/"
            self._format(
                [juicefs, "format", "--storage", "file", "--bucket", data, "--trash-days", "0", database]
            )
        return [
            *(juicefs, "gateway", "--no-usage-report", "--no-banner", "--multi-buckets"),
            *("--keep-etag", "--object-tag", "--object-meta"),
            *("--cache-dir", f"{self._directory}/cache", "--log", f"{self._directory}/gateway.log"),
            *("--metrics", f"127.0.0.1:{metrics}", database, f"127.0.0.1:{s3}"),
        ]

    def _environment(self) -> Mapping[str, str]:
        return {"MINIO_ROOT_USER": self.access_key_id, "MINIO_ROOT_PASSWORD": self.secret_access_key}

    def _format(self, command: Sequence[str]) -> None:
        done = subprocess.run(
            [*command, "commitlog"],
            env=self._base_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=self._startup_timeout,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"juicefs cannot format a volume: {done.stdout.decode(errors='replace')}")


class Dynalite(_DynamoServer):
    """dynalite: a second, independent DynamoDB (an npm package, installed by ``./run test``).

    It never returns the old item of a failed condition and has neither transactions nor TTL, so it
    shows what must not be taken for granted.
    """

    _health_path = "/"

    def _command(self) -> list[str]:
        instant = [f for name in ("create", "delete", "update") for f in (f"--{name}TableMs", "0")]
        where = Path(sys.prefix, "dynalite", "node_modules", ".bin")
        dynalite = _program("dynalite", where=where)
        return [dynalite, "--host", "127.0.0.1", "--port", str(self._ports[0]), *instant]


def _program(name: str, *, extra: str = "", where: Path | None = None) -> str:
    # Prefer the environment's own programs: those on PATH may have any version.
    beside = where or Path(sys.executable).parent
    found = shutil.which(name, path=str(beside)) or shutil.which(name)
    if found is None:
        how = f"pip install 'commitlog-store[{extra}]'" if extra else "./run test, which sets it up"
        raise ConfigurationError(f"the test server {name!r} is neither in {beside} nor on PATH: {how}")
    return os.path.abspath(found)


def _free_ports(count: int) -> list[int]:
    random = SystemRandom()
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(_PORTS)
        if port not in ports and _is_free(port) and _is_free(port + _GRPC_OFFSET):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
