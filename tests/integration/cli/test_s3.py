"""The command line with S3 and DynamoDB: environment, endpoints, leases, and secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from attrs import frozen
from click.testing import CliRunner, Result

import commitlog
from commitlog.cli import main
from commitlog.outputs import Output
from commitlog.testing.proxy import Proxy, ProxyFault
from support.servers import Ministack

pytestmark = pytest.mark.servers


@frozen
class Shell:
    """The command line with a server's credentials in its environment."""

    server: Ministack
    bucket: str
    table: str

    def run(self, *words: str, stdin: bytes = b"") -> Result:
        """Run a command; whatever it prints, a secret is not in it."""
        env = {
            "AWS_ACCESS_KEY_ID": self.server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_access_key,
            "COMMITLOG_ENDPOINT_URL": self.server.endpoint_url,
            "COMMITLOG_REGION": self.server.region,
        }
        done = CliRunner(env=env).invoke(main, list(words), input=stdin)
        assert self.server.secret_access_key not in done.output
        assert "Signature" not in done.output
        return done


@pytest.fixture(scope="module")
def shell(ministack: Ministack) -> Shell:
    """A bucket, and a table of leases on the same endpoint."""
    place = f"endpoint_url={ministack.endpoint_url}&region={ministack.region}"
    table = f"dynamodb://{ministack.new_table_name()}?{place}"
    shell = Shell(ministack, f"s3://{ministack.new_bucket()}", table)
    created = shell.run("table", "create", table)
    assert created.exit_code == 0, created.output
    return shell


@pytest.mark.parametrize("strategy", ["native", "lease"])
def test_conditions_hold(shell: Shell, strategy: str) -> None:
    """Natively and with leases, a second create and a stale update have status 3."""
    how = ["--commit", strategy] + (["--table", shell.table] if strategy == "lease" else [])
    url = f"{shell.bucket}/{strategy}/ü b.bin"
    body = bytes(range(256))
    first = shell.run("put", "-", url, "--if-absent", *how, stdin=body)
    assert first.exit_code == 0, first.output
    assert shell.run("put", "-", url, "--if-absent", *how, stdin=b"2").exit_code == 3
    assert shell.run("cat", url).stdout_bytes == body
    etag = first.stdout.strip()
    assert shell.run("put", "-", url, "--if-match", etag, *how, stdin=b"3").exit_code == 0
    assert shell.run("put", "-", url, "--if-match", etag, *how, stdin=b"4").exit_code == 3
    assert shell.run("cat", url).stdout == "3"


def test_leases_are_shown_and_released(shell: Shell) -> None:
    """A conditional write with a lease leaves a released record with the whole key."""
    url = f"{shell.bucket}/dir/seen"
    put = shell.run("put", "-", url, "--if-absent", "--commit", "lease", "--table", shell.table)
    assert put.exit_code == 0, put.output
    rows = [
        json.loads(line)
        for line in shell.run("lease", "list", shell.table, "--all", "--json").stdout.split("\n")
        if line
    ]
    assert [row["state"] for row in rows if row["path"] == "dir/seen"] == ["released"]
    assert "dir/seen" not in shell.run("lease", "list", shell.table).stdout


def test_copy_and_move_with_leases(shell: Shell) -> None:
    """A store that ignores the precondition of a copy is not used for it."""
    how = ["--commit", "lease", "--table", shell.table]
    assert shell.run("put", "-", f"{shell.bucket}/mv/a", stdin=b"1").exit_code == 0
    assert shell.run("put", "-", f"{shell.bucket}/mv/b", stdin=b"2").exit_code == 0
    assert (
        shell.run("cp", f"{shell.bucket}/mv/a", f"{shell.bucket}/mv/b", "--if-absent", *how).exit_code
        == 3
    )
    assert (
        shell.run("mv", f"{shell.bucket}/mv/a", f"{shell.bucket}/mv/c", "--if-absent", *how).exit_code
        == 0
    )
    listed = shell.run("ls", f"{shell.bucket}/mv/").stdout.split()
    assert listed == [f"{shell.bucket}/mv/b", f"{shell.bucket}/mv/c"]


def test_an_object_is_not_moved_onto_itself_by_another_url(shell: Shell) -> None:
    """Options such as a storage class do not make it another object, which could be removed."""
    bucket, options = shell.bucket, f"?endpoint_url={shell.server.endpoint_url}/&tagging=a=b"
    assert shell.run("put", "-", f"{bucket}/self/a", stdin=b"1").exit_code == 0
    for words in (
        ("mv", f"{bucket}/self/a", f"{bucket}/self/a{options}"),
        ("mv", "-r", f"{bucket}/self", f"{bucket}/self{options}"),
        ("mv", "-r", f"{bucket}/self", f"{bucket}/self/deep{options}"),
        ("cp", "-r", f"{bucket}/self", f"{bucket}/self/deep{options}"),
    ):
        done = shell.run(*words, "--commit", "native")
        assert done.exit_code == 2, done.output
    assert shell.run("ls", "-R", f"{bucket}/self/").stdout.split() == [f"{bucket}/self/a"]
    done = shell.run("cp", f"{bucket}/self/a", f"{bucket}/self/a{options}")
    assert done.exit_code == 0, done.output
    assert shell.run("cat", f"{bucket}/self/a").stdout == "1"


def test_probe_reports_ignored_preconditions(shell: Shell) -> None:
    """This server ignores the precondition of a copy. The probe leaves no object."""
    done = shell.run("probe", f"{shell.bucket}/scratch", "--only", "copy-if-absent", "--json")
    assert json.loads(done.stdout)["proven"] == []
    assert shell.run("ls", "-R", f"{shell.bucket}/scratch").stdout == ""


def test_output_is_recovered(shell: Shell) -> None:
    """Recovery removes the uploads of a dead driver, and the log shows the abort."""
    url = f"{shell.bucket}/out"
    with commitlog.connect(url, **shell.server.options, commit="native") as store:
        output = Output(store)
        job = output.begin("daily")
        output.commit(job, [output.stage(job, job.file_name(0), b"1", rows=1)])
        dead = output.begin("dead")
        output.stage(dead, dead.file_name(0), b"2")
    how = ["--commit", "native", "--json"]
    report = json.loads(shell.run("output", "recover", url, "--older-than", "0s", *how).stdout)
    assert (len(report["aborted"]), report["uploads"]) == (1, 1)
    kinds = [
        json.loads(line)["kind"] for line in shell.run("output", "log", url, *how).stdout.splitlines()
    ]
    assert kinds == ["commit", "abort"]


def test_a_missing_bucket_and_a_missing_table_are_named(shell: Shell) -> None:
    """The status is 1, without a traceback."""
    bucket = shell.run("stat", "s3://no-such-bucket-here/a")
    assert bucket.exit_code == 1
    table = shell.run("table", "describe", "dynamodb://no-such-table")
    assert table.exit_code == 1
    assert "commitlog table create" in table.stderr
    assert "Traceback" not in bucket.output + table.output
    log = shell.run("output", "log", "s3://no-such-bucket-here/out")
    assert log.exit_code == 1 and "no such bucket" in log.stderr


def test_lease_list_refuses_other_tables(shell: Shell) -> None:
    """A table with other keys, or of a newer format, is an error and not an empty list."""
    client = shell.server.client("dynamodb")
    other, newer = shell.server.new_table_name(), shell.server.new_table_name()
    client.create_table(
        TableName=other,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    assert shell.run("table", "create", f"dynamodb://{newer}").exit_code == 0
    marker = {"path": {"S": "../VERSION"}, "etag": {"S": "../VERSION"}, "table_version": {"N": "99"}}
    client.put_item(TableName=newer, Item=marker)
    for name, reason in ((other, "has the keys 'id'"), (newer, "upgrade commitlog-store")):
        done = shell.run("lease", "list", f"dynamodb://{name}")
        assert done.exit_code == 1 and reason in done.stderr


def test_a_probe_report_describes_one_bucket(shell: Shell, tmp_path: Path) -> None:
    """A copy between two buckets uses it for the right one. Another bucket refuses it."""
    kept, other = tmp_path / "verdict.json", f"s3://{shell.server.new_bucket()}"
    kept.write_text(shell.run("probe", shell.bucket, "--only", "put-if-absent", "--json").stdout)
    how = ["--probe-report", str(kept)]
    assert shell.run("put", "-", f"{other}/a", stdin=b"1").exit_code == 0
    for source, target in ((other, shell.bucket), (shell.bucket, other)):
        done = shell.run("cp", f"{source}/a", f"{target}/a", *how)
        assert done.exit_code == 0, done.output
    for words in (("stat", f"{other}/a"), ("cp", f"{other}/a", f"{other}/b")):
        done = shell.run(*words, *how)
        assert done.exit_code == 2 and shell.bucket in done.stderr and other in done.stderr


def test_a_lost_answer_of_a_probe_is_not_the_outcome_of_the_write(shell: Shell) -> None:
    """If the connection breaks during the probe, the probe continues and the write succeeds."""
    with Proxy(shell.server.endpoint_url) as proxy:
        proxy.inject(ProxyFault(kind="PUT", action="drop_response"))
        url = f"{shell.bucket}/after-a-lost-probe?endpoint_url={proxy.endpoint_url}"
        done = shell.run("put", "-", url, "--if-absent", stdin=b"1")
    assert done.exit_code == 0, done.output


def test_a_lost_answer_of_a_plain_write_is_unknown(shell: Shell) -> None:
    """The status is 4, and the message names the object and what to do."""
    with Proxy(shell.server.endpoint_url) as proxy:
        proxy.inject(ProxyFault(kind="PUT", action="drop_response"))
        done = shell.run(
            "put", "-", f"{shell.bucket}/lost?endpoint_url={proxy.endpoint_url}", stdin=b"1"
        )
    assert done.exit_code == 4
    assert "PUT 'lost' in s3://" in done.stderr and "It may have happened" in done.stderr


def test_unreachable_endpoint_is_a_failure(shell: Shell) -> None:
    """A read ends with status 1."""
    done = shell.run("stat", f"{shell.bucket}/a?endpoint_url=http://127.0.0.1:9")
    assert done.exit_code == 1
    assert done.stderr.startswith("commitlog: ")


def test_tracebacks_contain_no_secret(shell: Shell) -> None:
    """No credential and no signature is printed."""
    done = shell.run(
        "--debug",
        "put",
        "-",
        "s3://no-such-bucket-here/a",
        "--commit",
        "lease",
        "--table",
        shell.table,
        "--if-absent",
    )
    assert done.exit_code in (1, 4)
    assert "Traceback" in done.stderr
    assert os.environ.get("AWS_SECRET_ACCESS_KEY") is None
