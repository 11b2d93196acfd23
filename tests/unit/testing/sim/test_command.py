"""The command that runs campaigns over the worlds of a file, in separate processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlog.testing.sim.__main__ import main
from commitlog.testing.sim.runner import load_worlds
from support.project import TESTS
from worlds import WORLDS

#: Worlds of one node that stores an object: one is correct, one is judged wrong, one raises an error.
FILE = """
from commitlog.stores.memory import MemoryStore
from commitlog.testing.sim import SimulatedStore, Simulation


def world(wrong, raises):
    def build(choices):
        number = choices.pick("number", [1.0] * 4)
        simulation = Simulation(choices)
        server = MemoryStore(clock=simulation.server_clock(), new_id=simulation.new_id)
        node = simulation.node("A")
        node.start(lambda: SimulatedStore(node, server).put("k", b""))

        def judge():
            if raises and number == 3:
                raise KeyError("the judge is broken")
            assert not wrong or number != 3, "three is wrong"
            return {f"number {number}": 1}

        return simulation, judge

    return build


WORLDS = {"fine": world(False, False), "wrong": world(True, False), "broken": world(False, True)}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of worlds."""
    path = tmp_path / f"worlds_{tmp_path.name.replace('-', '_')}.py"
    path.write_text(FILE)
    return path


def test_reports_do_not_depend_on_the_number_of_processes(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON report and the ledger have every seed once, with one process and with two."""
    reports = []
    for processes in (1, 2):
        report, ledger = tmp_path / f"{processes}.json", tmp_path / f"{processes}.md"
        options = ["--processes", str(processes), "--json", str(report), "--ledger", str(ledger)]
        seeds = ["--seeds", "250", "--from", "7"]
        assert main(["--file", str(file), "--world", "fine", *seeds, *options]) == 0
        found = json.loads(report.read_text())
        [row] = ledger.read_text().splitlines()
        assert "| `fine` | 7 to 256 | 250 | 500 | 0 | 0 |" in row
        assert row.startswith(f"| {found['version']} | ")
        assert (found["seeds"], found["violations"]) == (250, 0)
        world = found["worlds"]["fine"]
        assert world["runs_per_cpu_second"] > 0
        reports.append({name: world[name] for name in ("from", "seeds", "steps", "outcomes")})
    assert reports[0] == reports[1]
    assert sum(reports[0]["outcomes"].values()) == 250
    assert "250 seeds, 0 violations" in capsys.readouterr().out


def test_a_wrong_run_is_reported_and_the_others_go_on(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1, and the message has a command that repeats the run."""
    report = tmp_path / "report.json"
    arguments = ["--file", str(file), "--world", "wrong", "--world", "broken"]
    assert main([*arguments, "--seeds", "20", "--processes", "1", "--json", str(report)]) == 1
    found = json.loads(report.read_text())
    wrong, broken = found["worlds"]["wrong"], found["worlds"]["broken"]
    assert wrong["seeds"] == broken["seeds"] == 20
    assert wrong["violations"].keys() == broken["violations"].keys() != set()
    assert found["violations"] == 2 * len(wrong["violations"])
    for seed, message in wrong["violations"].items():
        assert "three is wrong" in message
        assert f"python -m commitlog.testing.sim --world wrong --seeds 1 --from {seed}" in message
    assert "the judge is broken" in next(iter(broken["violations"].values()))
    seed = next(iter(wrong["violations"]))
    again = ["--file", str(file), "--world", "wrong", "--seeds", "1", "--from", seed, "--processes", "1"]
    assert main(again) == 1
    assert "three is wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a world"),
        (["--world", "no-such-world"], "it has: fine, wrong, broken"),
        (["--world", "fine", "--seeds", "0"], "0 is less than 1"),
        (["--world", "fine", "--file", "missing.py"], "missing.py"),
    ],
)
def test_bad_arguments_are_refused(
    file: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 2, and the message says what to do."""
    with pytest.raises(SystemExit) as caught:
        main(["--file", str(file), *arguments])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_worlds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The worlds of this project are in tests/worlds.py."""
    file = TESTS / "worlds.py"
    assert main(["--file", str(file), "--list"]) == 0
    assert capsys.readouterr().out.split() == list(WORLDS)
    assert list(load_worlds(file)) == list(WORLDS)
