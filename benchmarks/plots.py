#!/usr/bin/env python
"""Draw the figures of benchmarks/committer.py as the pictures in docs/.

    ./run bench plots FILE [--into DIRECTORY]

FILE is the output of ``--json``. A picture without figures in FILE is not drawn.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

# The same figures give the same SVG file, and text stays text.
mpl.rcParams["svg.hashsalt"] = "commitlog"
mpl.rcParams["svg.fonttype"] = "none"

_JOBS = ("flat", "partitioned", "tiny")


def draw_writers(rows: list[dict[str, Any]]) -> Figure:
    """Draw bars: the time of each writer, with one panel for each job."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    for panel, job in zip(figure.subplots(1, len(_JOBS)), _JOBS, strict=True):
        ways = [row for row in rows if row["job"] == job]
        names = [row["way"] for row in ways]
        seconds = [row["wall_seconds"] for row in ways]
        colours = ["0.65" if name.startswith("built-in") else "tab:blue" for name in names]
        bars = panel.barh(names, seconds, color=colours)
        panel.bar_label(bars, fmt="%.2f", padding=2, fontsize=8)
        panel.margins(x=0.2)
        panel.invert_yaxis()
        panel.set_title(f"{job}, {ways[0]['rows']:,} rows", fontsize=10)
        panel.set_xlabel("seconds (median)")
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        if job != _JOBS[0]:
            panel.set_yticklabels([])
    return figure


def draw_commits(figures: dict[str, Any]) -> Figure:
    """Draw lines: the time of a commit by number of files, one line for each number of threads."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    panel = figure.subplots()
    rows = figures["commits"]
    lines = dict.fromkeys((row["visibility"], row["threads"]) for row in rows)
    for visibility, threads in lines:
        line = [row for row in rows if (row["visibility"], row["threads"]) == (visibility, threads)]
        name = f"listed, {threads} thread{'s' * (threads > 1)}" if visibility == "listed" else "logged"
        style = "o-" if visibility == "listed" else "s--"
        panel.plot([row["files"] for row in line], [row["seconds"] for row in line], style, label=name)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("files of the job")
    panel.set_ylabel("seconds of a commit")
    panel.set_title(f"{figures['latency_seconds'] * 1000:.0f} ms added to each request", fontsize=10)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Draw the pictures that the file has figures for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--into", type=Path, metavar="DIRECTORY", default=Path("docs"))
    arguments = parser.parse_args()
    report = json.loads(arguments.file.read_text())
    pictures = {}
    if "spark" in report:
        pictures["committer-writers"] = draw_writers(report["spark"])
    if "store" in report:
        pictures["committer-commits"] = draw_commits(report["store"])
    for name, figure in pictures.items():
        path = arguments.into / f"{name}.svg"
        # Without the date, so that the same figures give the same file.
        figure.savefig(path, metadata={"Date": None})
        print(path)


if __name__ == "__main__":
    main()
