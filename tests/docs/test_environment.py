"""The tables of environment variables in docs/operations.md match the behaviour of the code."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import commitlog
from commitlog.aws import AwsOptions, AwsSession
from commitlog.cli import main
from commitlog.cli.lock import TOKEN_VARIABLE
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.tables.open import open_table
from support.commands import commands
from support.project import ROOT
from support.servers import Ministack

#: For each variable, a value that differs from the default.
VALUES = {
    "AWS_ACCESS_KEY_ID": "other",
    "AWS_SECRET_ACCESS_KEY": "other",
    "AWS_SESSION_TOKEN": "other",
    "AWS_PROFILE": "other",
    "AWS_DEFAULT_REGION": "us-west-2",
    "AWS_REGION": "us-west-2",
    "AWS_ENDPOINT_URL": "http://host:9",
    "AWS_ENDPOINT_URL_S3": "http://host:9",
    "AWS_ENDPOINT_URL_DYNAMODB": "http://host:9",
    "AWS_USE_FIPS_ENDPOINT": "true",
    "AWS_USE_DUALSTACK_ENDPOINT": "true",
    "AWS_CA_BUNDLE": "/bundle",
    "REQUESTS_CA_BUNDLE": "/bundle",
    "HTTPS_PROXY": "http://proxy:9",
    "AWS_MAX_ATTEMPTS": "7",
    "AWS_RETRY_MODE": "adaptive",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
}

_CONFIG = "[default]\nregion = eu-south-1\n[profile other]\nregion = ap-south-1\n"
_CREDENTIALS = "[{}]\naws_access_key_id = {}\naws_secret_access_key = s\n"


def rows(begin: str) -> Iterator[list[str]]:
    """Yield the cells of the section's table rows whose variables begin with `begin`."""
    text = (ROOT / "docs/operations.md").read_text().split("\n## Environment variables\n")[1]
    for line in text.split("\n## ")[0].splitlines():
        if re.match(rf"\| `({begin})", line):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_the_table_lists_each_variable_with_its_options() -> None:
    """The table has exactly the variables of the command line."""
    # A variable that is set for a child, and that no option reads.
    options: dict[str, set[str]] = {TOKEN_VARIABLE: set()}
    parameters = [each for _, command in commands(main, "") for each in command.params]
    for each in parameters:
        if isinstance(each.envvar, str) and isinstance(each, click.Option):
            options.setdefault(each.envvar, set()).update(each.opts)
    stated = {row[0].strip("`"): set(re.findall(r"`(--[\w-]+)`", row[1])) for row in rows("COMMITLOG_")}
    assert stated == options
    arguments = {each.envvar for each in parameters if isinstance(each, click.Argument)} - {None}
    assert arguments == {row[0].strip("`") for row in rows("COMMITLOG_") if "argument" in row[1]}


def test_the_library_reads_the_variables_in_the_table() -> None:
    """No module outside of the command line uses another variable."""
    stated = {row[0].strip("`") for row in rows("COMMITLOG_") if row[2].startswith("yes")}
    known = {
        node.value
        for file in (ROOT / "commitlog").rglob("*.py")
        if "cli" not in file.relative_to(ROOT).parts
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"COMMITLOG_[A-Z_]+", node.value)
    }
    assert known == stated


def resolved() -> dict[str, Any]:
    """Return the settings that the environment determines."""
    session = AwsSession(AwsOptions())
    credentials = session.credentials()
    return {
        "credentials": (credentials.access_key, credentials.secret_key, credentials.token),
        "region": session.region,
        "S3": session.endpoint("s3", bucket="bucket"),
        "DynamoDB": session.endpoint("dynamodb"),
        "TLS": session.verify(),
        "proxy": session.proxy("https://host"),
        "attempts": session.backoff().tries,
    }


def test_each_variable_of_aws_determines_the_settings_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It determines all of these settings, and no others."""
    (tmp_path / "config").write_text(_CONFIG)
    (tmp_path / "credentials").write_text(
        _CREDENTIALS.format("default", "k") + _CREDENTIALS.format("other", "o")
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in VALUES:
        monkeypatch.delenv(name, raising=False)
    table = list(rows("AWS_|REQUESTS_|HTTPS_"))
    assert {name for row in table for name in re.findall(r"`(\w+)`", row[0])} == VALUES.keys()
    before = resolved()
    for names, decides in table:
        with monkeypatch.context() as patch:
            for name in re.findall(r"`(\w+)`", names):
                patch.setenv(name, VALUES[name])
            changed = {what for what, value in resolved().items() if value != before[what]}
        assert changed == set(decides.partition(":")[0].split(", ")) - {"nothing"}, names


@pytest.mark.servers
def test_variables_of_aws_configure_the_library_and_the_command_line(
    ministack: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With these variables alone, both use the same store and table."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ministack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ministack.secret_access_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", ministack.region)
    url, table = f"s3://{ministack.new_bucket()}", f"dynamodb://{ministack.new_table_name()}"
    with contextlib.closing(open_table(table, LEASE_SCHEMA)) as opened:
        opened.create()
    words = ["put", "-", f"{url}/a", "--if-absent", "--commit", "lease", "--table", table]
    done = CliRunner().invoke(main, words, input=b"1")
    assert done.exit_code == 0, done.output
    with commitlog.connect(url, commit="lease", table=table) as store:
        assert store.get("a").data == b"1"
        with pytest.raises(commitlog.AlreadyExists):
            store.put_if_absent("a", b"2")
