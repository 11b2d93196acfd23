"""The command ``cost``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from commitlog.cli import main
from commitlog.cost import CONTENDERS, US_EAST_1, Usage, operations


def run(*words: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["cost", *words])


def bill(*words: str) -> dict[str, Any]:
    """Return the bill of a command."""
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_own_numbers_are_the_only_operations() -> None:
    """A number of operations leaves out those of the example."""
    found = bill("--jobs", "7", "--files-per-job", "20", "--visibility", "logged")
    [line] = found["lines"]
    job = operations.output_job(20, visibility="logged")
    assert Usage(**line["usage"]) == 7 * job
    assert found["dollars"] == pytest.approx(7 * US_EAST_1.dollars(job), abs=1e-6)
    assert found["others"] == []


def test_without_numbers_the_month_is_an_example() -> None:
    """The lines and the storage add up to the sum."""
    found = bill()
    assert len(found["lines"]) == 9
    parts = sum(line["dollars"] for line in found["lines"]) + found["storage_dollars"]
    assert found["dollars"] == pytest.approx(parts, abs=1e-4)
    text = run().stdout
    assert f"{found['dollars']:,.4f}" in text
    assert US_EAST_1.date in text


def test_other_systems_write_the_same_jobs() -> None:
    """Their lines are not in the sum."""
    found = bill("--jobs", "10", "--files-per-job", "50", "--compare")
    assert [line["operation"] for line in found["others"]] == list(CONTENDERS)
    for line in found["others"]:
        assert Usage(**line["usage"]) == 10 * CONTENDERS[line["operation"]](50)
    assert found["dollars"] == found["lines"][0]["dollars"]


def test_prices_come_from_a_file(tmp_path: Path) -> None:
    """What --print-prices prints can be edited and passed with --prices."""
    prices = json.loads(run("--print-prices").stdout)
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({**prices, "s3_put_per_thousand": 2 * prices["s3_put_per_thousand"]}))
    once, twice = (bill("--conditional-writes", "1000", *more) for more in ([], ["--prices", str(file)]))
    assert twice["dollars"] == pytest.approx(2 * once["dollars"])


@pytest.mark.parametrize("content", [b"{}", b"no JSON", b"\xff"])
def test_a_wrong_price_file_is_wrong_usage(tmp_path: Path, content: bytes) -> None:
    """The message names the problem, and nothing is printed."""
    file = tmp_path / "prices.json"
    file.write_bytes(content)
    done = run("--prices", str(file))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "price table" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--jobs", "-1"],
        ["--jobs", "many"],
        ["--refused", "2"],
        ["--epoch-files", "0"],
        ["--epoch-files", "1001"],
        ["--utilization", "0"],
        ["--prices", "missing.json"],
    ],
)
def test_a_wrong_number_is_wrong_usage(words: list[str]) -> None:
    """The status is 2."""
    assert run(*words).exit_code == 2
