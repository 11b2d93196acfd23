"""Every driver of Spark writes to outputs with one jar and one setting, and its agent ends with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest

from commitlog import connect
from commitlog.outputs import Output
from commitlog.outputs.records import AbortRecord
from commitlog.spark import committer_jar
from commitlog.spark.committer.configure import PLUGIN
from support.drivers import BIN, Program, compile_class
from support.selection import in_campaigns

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

REFUSED = "commitlog.errors.JobAlreadyCommitted: job 'daily' is part of the output since version 3"


def log(path: Path) -> list[tuple[str, str | None]]:
    """Return the mode and the job id of each commit, ids that were given only."""
    output = Output(connect(str(path)))
    with output.store:
        return [
            (record.mode, record.job_id if record.job_id == "daily" else None) for record in output.log()
        ]


def ids(path: Path) -> list[int]:
    """Return the column id of the files that a listing shows, sorted."""
    files = [str(file) for file in path.rglob("part-*.parquet") if "_commitlog" not in file.parts]
    table = ds.dataset(files, format="parquet").to_table(["id"])
    return sorted(table.column("id").to_pylist())


def wait_for(condition: Callable[[], object], otherwise: Callable[[], str] = lambda: "") -> None:
    """Return once `condition` is true."""
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.1)


#: Three writes, and one with the job id of the third.
STATEMENTS = """
CREATE TABLE t (id BIGINT) USING parquet LOCATION '{path}';
INSERT INTO t VALUES (1);
INSERT INTO t VALUES (2);
SET spark.commitlog.jobId=daily;
INSERT OVERWRITE t VALUES (3), (4);
SELECT sum(id) FROM t;
INSERT INTO t VALUES (5);
"""

#: The log of these writes.
WRITTEN = [("append", None), ("append", None), ("overwrite", "daily")]


@pytest.mark.all
@pytest.mark.parametrize(("option", "catalog"), [("-e", "in-memory"), ("-f", "hive")])
def test_spark_sql(tmp_path: Path, option: str, catalog: str) -> None:
    """Statements of `spark-sql` commit; a job id counts once."""
    path = tmp_path / "out"
    statements = STATEMENTS.format(path=path)
    if option == "-f":
        (tmp_path / "job.sql").write_text(statements)
        statements = str(tmp_path / "job.sql")
    conf = {"spark.sql.catalogImplementation": catalog}
    with Program(tmp_path / "driver", "spark-sql", option, statements, conf=conf) as program:
        out = program.end()
        assert program.process.returncode == 1 and program.started() == 1
        assert REFUSED in program.stderr()
    assert out.splitlines()[-1] == "7"
    assert log(path) == WRITTEN
    assert ids(path) == [3, 4]


JAVA = """
import org.apache.spark.sql.DataFrameWriter;
import org.apache.spark.sql.SparkSession;

public final class Job {
    private static DataFrameWriter rows(long start, long end, String mode) {
        SparkSession spark = (SparkSession) SparkSession.builder().getOrCreate();
        return spark.range(start, end).write().mode(mode);
    }

    public static void main(String[] args) {
        rows(1, 2, "append").parquet(args[0]);
        rows(2, 3, "append").parquet(args[0]);
        rows(3, 5, "overwrite").option("spark.commitlog.jobId", "daily").parquet(args[0]);
        rows(5, 6, "append").option("spark.commitlog.jobId", "daily").parquet(args[0]);
    }
}
"""

#: A job in Python, with the URL of a Spark Connect server or without.
PYTHON = """
import sys
from pyspark.sql import SparkSession

assert "commitlog" not in sys.modules
path, *servers = sys.argv[1:]
builder = SparkSession.builder
for server in servers:
    builder = builder.remote(server)
spark = builder.getOrCreate()
spark.range(1, 2).write.mode("append").parquet(path)
spark.range(2, 3).write.mode("append").parquet(path)
spark.range(3, 5).write.mode("overwrite").option("spark.commitlog.jobId", "daily").parquet(path)
spark.range(5, 6).write.mode("append").option("spark.commitlog.jobId", "daily").parquet(path)
"""


#: A job that configures its session. It prints the settings that `configure` extends.
CONFIGURED = """
from pyspark.sql import SparkSession
import commitlog.spark

spark = commitlog.spark.configure(SparkSession.builder).getOrCreate()
for name in ("spark.jars", "spark.plugins", "spark.commitlog.python"):
    print(spark.conf.get(name))
"""


@pytest.mark.all
def test_a_configured_session_keeps_the_settings_of_spark_submit(tmp_path: Path) -> None:
    """The jars, plugins and the interpreter stay."""
    (tmp_path / "job.py").write_text(CONFIGURED)
    other = compile_class(tmp_path / "classes", "Job", JAVA)
    jars = f"--jars={other},{committer_jar()}"
    with Program(tmp_path / "driver", "spark-submit", jars, str(tmp_path / "job.py")) as program:
        listed, plugins, python = program.end().splitlines()[-3:]
        assert program.process.returncode == 0, program.stderr()
    assert {Path(jar).name for jar in listed.split(",")} == {other.name, committer_jar().name}
    assert plugins == PLUGIN
    assert python == str(tmp_path / "driver/python")


@pytest.mark.all
@pytest.mark.parametrize("language", ["java", "python"])
def test_spark_submit(tmp_path: Path, language: str) -> None:
    """A job that knows nothing of this library commits."""
    path = tmp_path / "out"
    if language == "java":
        job = ["--class=Job", str(compile_class(tmp_path / "classes", "Job", JAVA))]
    else:
        (tmp_path / "job.py").write_text(PYTHON)
        job = [str(tmp_path / "job.py")]
    with Program(tmp_path / "driver", "spark-submit", *job, str(path)) as program:
        out = program.end()
        assert program.process.returncode == 1 and program.started() == 1
        assert REFUSED in out + program.stderr()
    assert log(path) == WRITTEN
    assert ids(path) == [3, 4]


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def listens(port: int) -> bool:
    """Return whether a server accepts connections."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.all
def test_thrift_server(tmp_path: Path) -> None:
    """Statements that `beeline` sends to the Thrift server commit."""
    path, port = tmp_path / "out", free_port()
    server = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
    options = ["--hiveconf", f"hive.server2.thrift.port={port}"]
    with Program(
        tmp_path / "driver", "spark-submit", f"--class={server}", "spark-internal", *options
    ) as program:
        wait_for(lambda: listens(port) or program.process.poll() is not None, program.stderr)
        (tmp_path / "job.sql").write_text(STATEMENTS.format(path=path))
        run = [str(BIN / "spark-class"), "org.apache.hive.beeline.BeeLine"]
        url = f"jdbc:hive2://127.0.0.1:{port}/default"
        done = subprocess.run(
            [*run, "-u", url, "-n", "user", "--outputformat=csv2", "-f", str(tmp_path / "job.sql")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0 and REFUSED in done.stderr, done.stderr
        assert "\n7\n" in done.stdout
        program.process.terminate()
        program.end()
        assert program.started() == 1
    assert log(path) == WRITTEN
    assert ids(path) == [3, 4]


@pytest.mark.all
def test_connect_server(tmp_path: Path) -> None:
    """The server of Spark Connect commits what clients write, which have no settings."""
    path, port = tmp_path / "out", free_port()
    server = ["--class=org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    conf = {"spark.connect.grpc.binding.port": str(port)}
    with Program(tmp_path / "driver", "spark-submit", *server, conf=conf) as program:
        wait_for(lambda: listens(port) or program.process.poll() is not None, program.stderr)
        run = [sys.executable, "-c", PYTHON, str(path), f"sc://127.0.0.1:{port}"]
        done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 1 and REFUSED in done.stderr, done.stderr
        program.process.terminate()
        program.end()
        assert program.started() == 1
    assert log(path) == WRITTEN
    assert ids(path) == [3, 4]


LIVES = """
import sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession

def agents():
    return len(Path(sys.argv[2]).read_text().split())

def session():
    return SparkSession.builder.getOrCreate()

def append(spark):
    spark.range(2).write.mode("append").parquet(sys.argv[1])

def wait():
    print("ready", flush=True)
    try:
        time.sleep(300)
        sys.exit("it was not stopped")
    except KeyboardInterrupt:
        print("interrupted", flush=True)

begun = Path(sys.argv[2] + ".tasks")

def slow(rows):
    begun.write_text("")
    time.sleep(300)
    return rows

"""


def running_driver(tmp_path: Path, program: str) -> Program:
    """Start a driver that runs a part of `LIVES`."""
    (tmp_path / "job.py").write_text(LIVES + program)
    paths = [str(tmp_path / "out"), str(tmp_path / "driver/agents")]
    return Program(tmp_path / "driver", "spark-submit", str(tmp_path / "job.py"), *paths)


def wait_until_ready(program: Program) -> None:
    """Return once the driver has written."""
    assert program.process.stdout is not None
    assert program.process.stdout.readline() == "ready\n", program.stderr()


@pytest.mark.all
@pytest.mark.parametrize("sent", [signal.SIGKILL, in_campaigns(signal.SIGTERM)])
def test_the_agent_ends_when_the_jvm_is_killed(tmp_path: Path, sent: signal.Signals) -> None:
    """Whatever kills it."""
    with running_driver(tmp_path, "append(session()); wait()") as program:
        wait_until_ready(program)
        assert len(program.agents()) == 1
        os.kill(program.process.pid, sent)  # spark-submit has become the JVM
        wait_for(lambda: not program.agents())
    assert ids(tmp_path / "out") == [0, 1]


@pytest.mark.campaign
@pytest.mark.parametrize("end", ["", "raise RuntimeError('the job fails')", "import os; os._exit(3)"])
def test_the_agent_ends_with_the_script(tmp_path: Path, end: str) -> None:
    """However the script ends."""
    with running_driver(tmp_path, f"append(session()); {end}") as program:
        program.end()
        assert (program.process.returncode == 0) == (end == "")
    assert ids(tmp_path / "out") == [0, 1]


@pytest.mark.all
def test_an_interrupt_at_the_terminal_is_for_the_driver(tmp_path: Path) -> None:
    """The agent survives it, and commits what a script writes afterwards."""
    script = "append(session()); wait(); append(session())"
    with running_driver(tmp_path, script) as program:
        wait_until_ready(program)
        before = program.agents()
        # As the terminal does; the JVM of a script ignores it.
        for each in (*psutil.Process(program.process.pid).children(recursive=True), *before):
            each.send_signal(signal.SIGINT)
        assert program.end() == "interrupted\n"
        assert program.process.returncode == 0 and program.started() == 1
    assert ids(tmp_path / "out") == [0, 0, 1, 1]


@pytest.mark.campaign
def test_a_script_may_stop_spark_and_start_it_again(tmp_path: Path) -> None:
    """Each application has an agent of its own, which ends when Spark stops."""
    script = """
for number in (1, 2):
    spark = session()
    append(spark)
    assert agents() == number
    spark.stop()
wait()
"""
    with running_driver(tmp_path, script) as program:
        wait_until_ready(program)
        wait_for(lambda: not program.agents())
        assert program.started() == 2
    assert ids(tmp_path / "out") == [0, 0, 1, 1]


@pytest.mark.all
def test_spark_stops_while_a_job_runs(tmp_path: Path) -> None:
    """Its agent aborts the job, and then ends, before the script does. No other agent is started."""
    script = """
spark = session()
append(spark)
numbers = spark.sparkContext.range(0, 2, numSlices=2).mapPartitions(slow).map(lambda n: (n,))
rows = spark.createDataFrame(numbers, "id BIGINT")

def write():
    try:
        rows.write.mode("append").parquet(sys.argv[1])
    except Exception:
        print("the job failed", flush=True)

thread = threading.Thread(target=write)
thread.start()
while not begun.exists():
    time.sleep(0.1)
spark.stop()
thread.join()
wait()
"""
    with running_driver(tmp_path, script) as program:
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == "the job failed\n", program.stderr()
        wait_until_ready(program)
        wait_for(lambda: not program.agents(), program.stderr)
        assert program.started() == 1
    output = Output(connect(str(tmp_path / "out")))
    with output.store:
        assert isinstance(list(output.records())[-1], AbortRecord)
    assert ids(tmp_path / "out") == [0, 1]
