"""The commit agent seen from its JVM: its start, its lines, interrupts, and its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agent_driver import AgentDriver, agent_program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('{"id": 2, "answer": {"secretAccessKey": "hunter2"', "that is not JSON"),
        ('{"answer": {"secretAccessKey": "hunter2"}}', "without an id"),
    ],
)
def test_a_line_that_is_no_answer_is_not_shown(tmp_path: Path, line: str, kind: str) -> None:
    """Its length and its kind are, and it ends the agent at once: an answer may have secrets."""
    program = f"""
import os
answers = os.dup(1)
def begin(*_):
    os.write(answers, {line.encode()!r} + b"\\n")
    return {{}}
jobs.JobCommitter.begin = begin
agent.main()
"""
    body = "Agent.startInBackground(conf); ask(begin(path));"
    with AgentDriver(tmp_path, body, python=agent_program(tmp_path / "python", program)) as driver:
        (outcome,) = driver.end()
        log = driver.stderr()
    shown = f"it wrote a line of {len(line)} characters {kind} in place of an answer"
    assert outcome.startswith("begin: commitlog.errors.OutcomeUnknown: ") and shown in outcome
    assert log.count(f"WARN Agent: the commit agent is ended: {shown}") == 3
    assert "hunter2" not in outcome + log and "secretAccessKey" not in outcome + log
