"""Tests of `support.servers`: servers start, and always end."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from commitlog.errors import ConfigurationError, Unavailable
from support import servers
from support.project import environment
from support.servers import Dynalite, Juicefs, Ministack, Seaweedfs, Server

pytestmark = pytest.mark.servers


class _Broken(Server):
    """A server that prints a message and ends."""

    _health_path = "/"

    def _command(self) -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit('no licence for Tuesdays')"]


class _Mute(Server):
    """A server that runs but never listens."""

    _health_path = "/"

    def _command(self) -> list[str]:
        return [sys.executable, "-c", "print('waiting', flush=True); import time; time.sleep(60)"]

    def _healthy(self) -> bool:
        while b"waiting" not in self._log():
            time.sleep(0.01)
        return super()._healthy()


class _Wrapped(Server):
    """A program that runs the server as its child process."""

    _health_path = "/"

    def _command(self) -> list[str]:
        server = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(self._ports[0])]
        return [sys.executable, "-c", f"import subprocess; subprocess.run({server!r})"]


def _assert_closed(endpoint: str) -> None:
    # No request is used here, because an error response could be mistaken for no response. The kernel
    # may close the sockets of a killed process that is not our child with a delay.
    place = ("127.0.0.1", urlsplit(endpoint).port)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(place, timeout=5).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.01)
    pytest.fail(f"a server still listens on {endpoint}")


@pytest.mark.parametrize("fixture", ["ministack", "seaweedfs", "juicefs"])
def test_an_s3_server_stores_objects(fixture: str, request: pytest.FixtureRequest) -> None:
    """An object that is put into a new bucket right after the start can be read."""
    server: Ministack | Seaweedfs | Juicefs = request.getfixturevalue(fixture)
    bucket = server.new_bucket()
    server.client("s3").put_object(Bucket=bucket, Key="a", Body=b"content")
    assert server.client("s3").get_object(Bucket=bucket, Key="a")["Body"].read() == b"content"
    assert server.new_bucket() != bucket


@pytest.mark.parametrize("fixture", ["ministack", "dynalite"])
def test_a_dynamodb_server_knows_no_new_table_name(fixture: str, request: pytest.FixtureRequest) -> None:
    """A new table name is free, and all names differ."""
    server: Ministack | Dynalite = request.getfixturevalue(fixture)
    name = server.new_table_name()
    client = server.client("dynamodb")
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.describe_table(TableName=name)
    assert server.new_table_name() != name


def test_the_end_of_the_context_stops_the_process_and_removes_its_data() -> None:
    """After the with statement there is no process, no listener and no directory."""
    with Ministack() as server:
        pid, directory, endpoint = server.pid, server._directory, server.endpoint_url
        assert directory.is_dir()
    assert not directory.exists()
    assert not Path("/proc", str(pid)).exists()
    _assert_closed(endpoint)
    server.stop()


def test_the_end_of_the_context_stops_child_processes() -> None:
    """A server that runs as the child of its program is stopped, too."""
    with _Wrapped() as server:
        endpoint = server.endpoint_url
    _assert_closed(endpoint)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels cannot tie processes together")
def test_a_server_dies_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the process that started a server ends the server, too."""
    script = (
        "from support.servers import Ministack\n"
        "import sys\n"
        "with Ministack() as server:\n"
        "    print(server.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(TMPDIR=str(tmp_path)),
    ) as runner:
        assert runner.stdout is not None
        ended = os.pidfd_open(int(runner.stdout.readline()))
        runner.send_signal(signal.SIGKILL)
    try:
        readable, _, _ = select.select([ended], [], [], 60)
        assert readable
    finally:
        os.close(ended)


def test_a_server_that_ends_by_itself_is_reported_with_its_log() -> None:
    """The error has the exit status and the last output of the server."""
    with pytest.raises(Unavailable, match=r"(?s)exit status 1.*no licence for Tuesdays"), _Broken():
        pass


def test_a_server_that_does_not_respond_is_stopped() -> None:
    """After the startup timeout, an error is raised and the process has ended."""
    server = _Mute(startup_timeout=0.5)
    with pytest.raises(Unavailable, match=r"(?s)did not answer within 0\.5 s.*waiting"), server:
        pass
    assert not Path("/proc", str(server.pid)).exists()


def test_a_missing_program_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra that installs it."""
    monkeypatch.setattr(servers.shutil, "which", lambda *args, **options: None)
    with pytest.raises(ConfigurationError, match=r"commitlog-store\[test\]"), Ministack():
        pass


def test_a_taken_port_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose port is taken is started again on another port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = servers._free_ports(1)
        offers = [[taken.getsockname()[1]], ports]
        monkeypatch.setattr(servers, "_free_ports", lambda count: offers.pop(0))
        with Dynalite() as server:
            assert server.endpoint_url.endswith(f":{ports[0]}")


def test_options_are_valid_in_a_url(ministack: Ministack) -> None:
    """`options` has options of an ``s3://`` URL, and no credentials of the developer."""
    assert set(ministack.options) == {"endpoint_url", "region", "access_key_id", "secret_access_key"}
    assert not [name for name in os.environ if name.startswith(("AWS_ACCESS", "AWS_PROFILE"))]
