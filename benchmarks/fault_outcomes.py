"""Outcomes of the scenarios of the failure benchmark, and their table."""

from __future__ import annotations

from typing import Any

from attrs import frozen

__all__ = ["Outcome", "show", "table_of"]


@frozen(kw_only=True)
class Outcome:
    """The outcome of one scenario with one writer.

    Attributes:
        scenario: the event.
        writer: name of the writer.
        found: the observed state, as text.
        right: whether the observed state is correct.
    """

    scenario: str
    writer: str
    found: str
    right: bool


def table_of(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Return one row for each scenario and writer, with the outcome of its rounds."""
    cells: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        cells.setdefault((outcome.scenario, outcome.writer), []).append(outcome)
    return [
        {
            "scenario": scenario,
            "writer": writer,
            "rounds": len(cell),
            "wrong": sum(not outcome.right for outcome in cell),
            # Of several outcomes, report the worst.
            "found": min(cell, key=lambda outcome: outcome.right).found,
        }
        for (scenario, writer), cell in cells.items()
    ]


def show(outcomes: list[Outcome]) -> None:
    """Print a Markdown table in which wrong outcomes are bold."""
    table = table_of(outcomes)
    ways = list(dict.fromkeys(row["writer"] for row in table))
    cells = {(row["scenario"], row["writer"]): row for row in table}
    print("| " + " | ".join(["scenario", *ways]) + " |")
    print("|---" * (1 + len(ways)) + "|")
    # Some writers leave out scenarios. Their order is that of the writer with the most.
    orders = [[row["scenario"] for row in table if row["writer"] == way] for way in ways]
    for scenario in dict.fromkeys(name for order in sorted(orders, key=len)[::-1] for name in order):
        line = [_cell(cells.get((scenario, way))) for way in ways]
        print("| " + " | ".join([scenario, *line]) + " |")


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    if not row["wrong"]:
        return str(row["found"])
    times = f" ({row['wrong']} of {row['rounds']} times)" if row["rounds"] > 1 else ""
    return f"**{row['found']}**{times}"
