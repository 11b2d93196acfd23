"""The commit agent of a driver: its interpreter, its output, and secrets."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from commitlog.errors import ConfigurationError
from commitlog.spark import error_of
from support.agent import agent_interpreter, agents, other_interpreter
from support.servers import Ministack
from support.spark_jobs import PROTOCOL
from support.spark_session import SparkLogs
from support.spark_status import wait_for_events
from support.spark_targets import new_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _configured(spark: SparkSession) -> Iterator[None]:
    """Configure the committer during the test."""
    spark.conf.set(*PROTOCOL)
    yield
    spark.conf.unset(PROTOCOL[0])


def script(path: Path, *lines: str) -> str:
    """Write an executable file and return its path."""
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return str(path)


def without(path: Path, statement: str) -> str:
    """Return an interpreter that runs `statement` before its program."""
    return script(
        path,
        f"#!{sys.executable}",
        "import sys",
        statement,
        'assert sys.argv[1] == "-c"',
        "program, sys.argv[:] = sys.argv[2], ['-c', *sys.argv[3:]]",
        "exec(program)",
    )


def refused(spark: SparkSession, path: Path, python: str) -> str:
    """Write with an interpreter, check that no task runs and nothing is written; return the error."""
    rows = spark.range(1).selectExpr("raise_error('a task runs') AS id")
    with other_interpreter(spark, python), pytest.raises(Exception) as raised:
        rows.write.parquet(str(path))
    assert not path.exists()
    error = str(raised.value)
    assert isinstance(error_of(raised.value), ConfigurationError)
    assert "a task runs" not in error
    assert error.count("commitlog.errors.ConfigurationError: the commit agent ") == 1
    assert f"the interpreter {python}" in error
    assert "Set spark.commitlog.python to a Python 3.11 or newer with commitlog and pyarrow" in error
    return error


def test_a_missing_interpreter_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the interpreter and the setting, before a task runs."""
    error = refused(spark, tmp_path / "out", str(tmp_path / "nowhere/python"))
    assert "could not be started" in error and "No such file or directory" in error


def test_an_older_interpreter_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The error has both versions."""
    older = "sys.version_info, sys.version = (3, 10, 4), '3.10.4 (main)'"
    error = refused(spark, tmp_path / "out", without(tmp_path / "python", older))
    assert "commitlog needs Python 3.11 or newer, and this is 3.10.4 (main)" in error


#: Makes a package missing.
HIDE = """
class Hidden:
    @staticmethod
    def find_spec(name, *arguments):
        if name.split(".")[0] == "NAME":
            raise ModuleNotFoundError(f"No module named '{name}'")

sys.meta_path.insert(0, Hidden)
"""


@pytest.mark.parametrize("package", ["commitlog", "pyarrow", "pyspark"])
def test_an_interpreter_without_a_package_is_refused(
    spark: SparkSession, tmp_path: Path, package: str
) -> None:
    """The error names the package that is missing."""
    python = without(tmp_path / "python", HIDE.replace("NAME", package))
    error = refused(spark, tmp_path / "out", python)
    assert f"ModuleNotFoundError: No module named '{package}" in error


def test_an_interpreter_that_is_no_python_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its output is part of the error; a line of its standard output is no answer."""
    python = script(tmp_path / "python", "#!/bin/sh", "echo hello", "echo no such option >&2", "exit 7")
    error = refused(spark, tmp_path / "out", python)
    assert "exit code 7" in error and "no such option" in error and "    hello" in error, error


def test_a_greeting_of_the_interpreter_is_skipped(
    spark: SparkSession, spark_logs: SparkLogs, tmp_path: Path
) -> None:
    """A script may print lines before it starts Python. They are logged."""
    greeting = ["Loading the environment…", "", '{"id": "daily"}', "17", "x" * 1000]
    lines = [f"echo {shlex.quote(line)}" for line in greeting]
    python = script(tmp_path / "python", "#!/bin/sh", *lines, f'exec {sys.executable} "$@"')
    with other_interpreter(spark, python):
        spark.range(3).write.parquet(str(tmp_path / "out"))
    assert spark.read.parquet(str(tmp_path / "out")).count() == 3
    log = spark_logs.log.read_text()
    for line in ("Loading the environment…", "17", "x" * 200 + "..."):
        assert f"WARN Agent: {line}\n" in log, line


def test_a_greeting_is_part_of_the_error(spark: SparkSession, tmp_path: Path) -> None:
    """If there is nothing else."""
    python = script(tmp_path / "python", "#!/bin/sh", "echo 'usage: tool [-h]'", "exit 2")
    error = refused(spark, tmp_path / "out", python)
    assert "exit code 2\n    usage: tool [-h]\n" in error, error


def test_greetings_without_end_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The process is ended."""
    error = refused(spark, tmp_path / "out", script(tmp_path / "python", "#!/bin/sh", "exec yes"))
    assert "exit code 137\n    y\n" in error, error
    assert "it wrote a line of 1 characters that is not JSON" in error


def test_the_output_of_the_agent_is_in_the_log_of_spark(
    spark: SparkSession, spark_logs: SparkLogs, tmp_path: Path
) -> None:
    """Lines of its standard error and of its standard output, which has only answers otherwise."""
    program = """
import logging, sys
from commitlog.outputs import Output
from commitlog.spark.committer import agent
commit = Output.commit
def loud(*args, **options):
    print("a line on stdout: ü", flush=True)
    print("a line on stderr", file=sys.stderr, flush=True)
    logging.getLogger("commitlog").warning("a warning")
    return commit(*args, **options)
Output.commit = loud
agent.main()
"""
    python = agent_interpreter(tmp_path / "agent", f"exec({program!r})")
    with other_interpreter(spark, python):
        spark.range(3).write.parquet(str(tmp_path / "out"))
    assert spark.read.parquet(str(tmp_path / "out")).count() == 3
    lines = spark_logs.log.read_text().splitlines()
    for text in ("a line on stdout: ü", "a line on stderr", "WARNING commitlog: a warning"):
        assert [line for line in lines if line.endswith(f"WARN Agent: {text}")], text


@pytest.mark.servers
@pytest.mark.parametrize("origin", ["of Hadoop", "of commitlog"])
def test_secrets_are_not_shown(
    spark: SparkSession, spark_logs: SparkLogs, ministack: Ministack, tmp_path: Path, origin: str
) -> None:
    """Neither the agent's arguments and environment nor logs and errors contain them."""
    place = new_place("s3a", tmp_path, lambda: ministack)
    assert place.s3a is not None
    url, hadoop = place.s3a
    names = {"accessKeyId": "access.key", "secretAccessKey": "secret.key"}
    if origin == "of Hadoop":
        options = {name: value for name, value in place.options.items() if name not in names}
    else:
        options = dict(place.options)
    given = {f"spark.commitlog.{name}": value for name, value in options.items()}

    def write(**more: str) -> None:
        rows = spark.range(3).write.mode("append").options(**hadoop, **given)
        rows.options(**{f"spark.commitlog.{name}": value for name, value in more.items()}).save(url)

    errors = []
    write(jobId="daily")
    for wrong in ({"jobId": "daily"}, {"colour": "blue"}, {"secretAccessKey": "", "endpointUrl": "x"}):
        with pytest.raises(Exception, match=r"commitlog\.errors\.") as raised:
            write(**wrong)
        errors.append(str(raised.value))
    wait_for_events(spark)

    jvm: int = spark.sparkContext._gateway.proc.pid  # type: ignore[attr-defined]
    (agent,) = agents(jvm)
    process = psutil.Process(agent.pid)
    shown = [shlex.join(process.cmdline()), str(process.environ()), spark_logs.text(), *errors]
    for secret in (ministack.access_key_id, ministack.secret_access_key):
        assert [text for text in shown if secret in text] == []
