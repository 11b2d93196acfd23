"""A driver of the commit agent without a session of Spark: a JVM that runs one more Java class.

It starts in a second, may be stopped, and its threads can be interrupted.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from commitlog.spark import committer_jar
from commitlog.spark_jar import _COMPILER, _build, _sources
from support.drivers import BIN
from support.project import IMPORT_PATH

__all__ = ["AgentDriver", "agent_program"]

#: The methods that the programs use.
_SOURCE = """
package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkConf;

public final class Program {
    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    /** Returns the request to begin a job. */
    static Map begin(String path) {
        Map request = new HashMap();
        request.put("call", "begin");
        request.put("path", path);
        request.put("options", new HashMap());
        request.put("replaced", new ArrayList());
        request.put("dynamic", Boolean.FALSE);
        request.put("exclusive", Boolean.FALSE);
        request.put("schema", null);
        return request;
    }

    /** Returns the request to end a job that has written no file. */
    static Map ending(String call, JsonNode begun) {
        Map request = new HashMap();
        request.put("call", call);
        request.put("state", begun.get("state"));
        request.put("files", new ArrayList());
        request.put("magic", null);
        return request;
    }

    /** Sends a request, and prints its name and its outcome. */
    static JsonNode ask(Map request) {
        String outcome = "done";
        JsonNode answer = null;
        try {
            answer = Agent.ask(request);
        } catch (CommitException e) {
            outcome = e.getMessage().replace((char) 10, ' ');
        }
        print(request.get("call") + ": " + outcome);
        return answer;
    }

    static void print(String line) {
        synchronized (INPUT) {
            System.out.println(line);
            System.out.flush();
        }
    }

    /** Asks in another thread. */
    static Thread asking(final Map request) {
        Thread thread = new Thread(new Runnable() {
            public void run() {
                ask(request);
                if (Thread.currentThread().isInterrupted()) {
                    print("interrupted");
                }
            }
        });
        thread.start();
        return thread;
    }

    /** Returns once a thread waits. */
    static void untilItWaits(Thread thread) throws InterruptedException {
        while (thread.getState() != Thread.State.WAITING) {
            Thread.sleep(5);
        }
    }

    public static void main(String[] args) throws Exception {
        SparkConf conf = new SparkConf(false).set("spark.commitlog.python", args[0]);
        String path = args[1];
        BODY
    }
}
"""


def _compile(directory: Path, body: str, edit: Callable[[bytes], bytes] | None) -> list[str]:
    """Compile the program in a directory; return the class path for its classes and the committer's.

    The committer is compiled with it only if its sources are changed.
    """
    program = _SOURCE.replace("BODY", body).encode()
    if edit is not None:
        sources = {name: edit(source) for name, source in _sources().items()}
        return [str(_build({**sources, "Program.java": program}, directory, BIN.parent))]
    jar, source = str(committer_jar()), directory / "Program.java"
    source.write_bytes(program)
    spark = sorted(map(str, (BIN.parent / "jars").glob("*.jar")))
    command = ["java", "-cp", f"{BIN.parent}/jars/*", _COMPILER, "-d", str(directory), "-classpath"]
    subprocess.run([*command, os.pathsep.join([jar, *spark]), str(source)], check=True)
    return [str(directory), jar]


class AgentDriver:
    """A JVM that runs the body of a Java method, with the variables ``conf`` and ``path``.

    Args:
        directory: a directory for its files.
        body: the statements. They use the methods of `_SOURCE`.
        python: the interpreter of its agent.
        edit: changes each source of the committer.
        variables: variables of its environment; None removes one.
    """

    def __init__(
        self,
        directory: Path,
        body: str,
        *,
        python: str = sys.executable,
        edit: Callable[[bytes], bytes] | None = None,
        variables: Iterable[tuple[str, str | None]] = (),
    ) -> None:
        (directory / "program").mkdir(parents=True)
        classes = _compile(directory / "program", body, edit)
        path = os.pathsep.join([*classes, f"{BIN.parent}/jars/*"])
        environ = {**os.environ, "SPARK_HOME": str(BIN.parent), **dict(variables)}
        self._log = (directory / "stderr").open("w+")
        self.process = subprocess.Popen(
            [
                *("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
                *("-cp", path, "io.commitlog.Program"),
                *(python, str(directory / "out")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={name: value for name, value in environ.items() if value is not None},
        )

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.stderr()
        return line.rstrip("\n")

    def go_on(self, line: str = "") -> None:
        """Send a line, which it waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def stderr(self) -> str:
        """Return its error output so far."""
        return Path(self._log.name).read_text()

    def wait_for(self, text: str) -> None:
        """Return once its error output has `text`."""
        deadline = time.monotonic() + 100
        while text not in self.stderr():
            assert time.monotonic() < deadline, self.stderr()
            time.sleep(0.05)

    def children(self) -> list[psutil.Process]:
        """Return its processes."""
        found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return found

    def end(self) -> list[str]:
        """Wait until it ends without a failure; return the further lines that it prints."""
        out, _ = self.process.communicate(timeout=200)
        assert self.process.returncode == 0, self.stderr()
        return out.splitlines()

    def __enter__(self) -> AgentDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self._log.close()


def agent_program(path: Path, program: str) -> str:
    """Create an interpreter at `path` that runs `program` instead of the agent; return its path.

    The program ends with ``agent.main()``. ``jobs`` is the module of the jobs.
    """
    start = f"""
import sys
sys.path[:0] = {IMPORT_PATH.split(os.pathsep)!r}
from commitlog.spark.committer import agent, jobs
"""
    run = shlex.join([sys.executable, "-c", re.sub(r"\n+", "\n", start) + program])
    path.write_text(f"#!/bin/sh\nexec {run}\n")
    path.chmod(0o755)
    return str(path)
