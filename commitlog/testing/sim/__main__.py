"""The command that runs campaigns: many seeds of many worlds, in several processes.

``python -m commitlog.testing.sim --world lease --seeds 10000 --from 0 --processes 2 --json report.json``

Exit status: 0 if no run was wrong, 1 if some run was, 2 if the arguments are wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from commitlog.testing.sim.faults import Fault
from commitlog.testing.sim.runner import WorldResult, load_worlds, run_worlds

__all__ = ["main"]

_COMMAND = "python -m commitlog.testing.sim"
_FILE = Path("tests/worlds.py")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the shell; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        worlds = load_worlds(options.file)
    except (OSError, ImportError, AttributeError) as error:
        parser.error(f"--file {options.file}: {error}")
    if options.list:
        print("\n".join(worlds))
        return 0
    wanted = list(worlds) if options.world == ["all"] else options.world
    if not wanted:
        parser.error(
            "name a world with --world NAME, or all of them with --world all; --list lists them"
        )
    if unknown := [name for name in wanted if name not in worlds]:
        parser.error(f"no world {unknown[0]!r} in {options.file}; it has: {', '.join(worlds)}")
    results = run_worlds(
        options.file,
        wanted,
        first=options.first,
        seeds=options.seeds,
        processes=options.processes,
        command=_COMMAND,
        progress=lambda line: print(line, file=sys.stderr),
    )
    for name, result in results.items():
        print(f"{name}: {result.report}")
        for seed, message in result.violations.items():
            print(f"{name}: WRONG, seed {seed}\n{message}")
    summary = _summary(options, results)
    if options.json is not None:
        options.json.write_text(json.dumps(summary, indent=2) + "\n")
    if options.ledger is not None:
        with options.ledger.open("a", encoding="utf-8") as ledger:
            ledger.writelines(_rows(summary))
    print(f"{summary['seeds']} seeds, {summary['violations']} violations")
    return 1 if summary["violations"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Run seeds of simulated worlds, and report each run that is wrong.",
        epilog=f"example: {_COMMAND} --world lease --world oplog-effects --seeds 1000 --from 5000",
    )
    parser.add_argument(
        "--world", action="append", default=[], metavar="NAME", help="repeatable; or: all"
    )
    parser.add_argument("--seeds", type=_positive, default=1000, metavar="N", help="runs of each world")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="S", help="the first seed")
    parser.add_argument(
        "--processes",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="P",
        help="processes at a time (default: one for each CPU)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument(
        "--ledger", type=Path, metavar="FILE", help="append one row for each world to a Markdown table"
    )
    parser.add_argument(
        "--file",
        type=Path,
        default=_FILE,
        help=f"Python file with a mapping WORLDS from names to worlds (default: {_FILE})",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the worlds and end")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _summary(options: argparse.Namespace, results: Mapping[str, WorldResult]) -> dict[str, Any]:
    worlds = {
        name: {
            "from": options.first,
            "seeds": result.report.runs,
            "steps": result.report.steps,
            "cpu_seconds": round(result.cpu, 3),
            "runs_per_cpu_second": round(result.report.runs / max(result.cpu, 1e-9), 1),
            "faults": {fault.value: count for fault, count in _by_name(result.report.faults)},
            "outcomes": dict(sorted(result.report.outcomes.items())),
            "violations": {str(seed): text for seed, text in sorted(result.violations.items())},
        }
        for name, result in results.items()
    }
    return {
        "version": _version(),
        "python": platform.python_version(),
        "processes": options.processes,
        "seeds": sum(result.report.runs for result in results.values()),
        "violations": sum(len(result.violations) for result in results.values()),
        "worlds": worlds,
    }


def _by_name(faults: Mapping[Fault, int]) -> list[tuple[Fault, int]]:
    return sorted(faults.items(), key=lambda each: each[0].value)


def _rows(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a Markdown table: version, date, world, seeds, steps, faults, violations."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    for name, world in summary["worlds"].items():
        last = world["from"] + world["seeds"] - 1
        seeds = f"{world['from']:,} to {last:,}"
        faults = sum(world["faults"].values())
        yield (
            f"| {summary['version']} | {day} | `{name}` | {seeds} | {world['seeds']:,} | "
            f"{world['steps']:,} | {faults:,} | {len(world['violations'])} |\n"
        )


def _version() -> str:
    """Return the version of the library, and the commit if this is a checkout."""
    try:
        release = version("commitlog-store")
    except PackageNotFoundError:
        release = "unknown"
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{release} {found.stdout.strip()}".strip()


if __name__ == "__main__":
    sys.exit(main())
