"""The plots of the site: each is drawn from a table of measured figures on a page, and shown below it.

The tables are the only place of the figures. On a code host, the pages have the tables alone.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from attrs import frozen
from figures import figure
from matplotlib.figure import Figure

__all__ = ["PLOTS", "Plot", "Table", "number", "table_below", "with_plots"]

# The same figures give the same SVG file, and text stays text.
mpl.rcParams["svg.hashsalt"] = "commitlog"
mpl.rcParams["svg.fonttype"] = "none"

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_RULE = re.compile(r"\|[ :|-]+\|")


@frozen
class Table:
    """A table of a page.

    Args:
        header: the cells of its header.
        rows: the cells of each row; the first one names the row.
        end: index of the line after it, on the page.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    end: int

    def column(self, name: str) -> int:
        """Return the index of a column. Raises `LookupError` if there is none."""
        if name not in self.header:
            raise LookupError(f"the table {self.header[0]!r} has no column {name!r}")
        return self.header.index(name)


@frozen(kw_only=True)
class Plot:
    """A plot.

    Args:
        suite: the benchmark, as ``./run bench`` names it.
        page: the page with the table.
        table: the first cell of the table's header.
        nearby: text that the header has, too, if two tables begin with that cell.
        name: the name of the image.
        caption: the text below the plot.
        draw: draws the table.
    """

    suite: str
    page: str
    table: str
    nearby: str = ""
    name: str
    caption: str
    draw: Callable[[Table], Figure]


def number(cell: str) -> float | None:
    """Return the number with which a cell begins; None if it begins with none.

    >>> number("**1.36**"), number("1,215 / 3"), number("n = 10"), number("(scaled: 267 s)")
    (1.36, 1215.0, None, None)
    """
    found = _NUMBER.match(cell.lstrip("*`"))
    return float(found[0].replace(",", "")) if found else None


def table_below(text: str, first: str, nearby: str = "") -> Table:
    """Return the table whose header begins with a cell. Raises `LookupError` if there is none."""
    lines = text.splitlines()
    for index, line in enumerate(lines[:-1]):
        if line.startswith(f"| {first} |") and nearby in line and _RULE.fullmatch(lines[index + 1]):
            end = index + 2
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            return Table(_cells(line), tuple(map(_cells, lines[index + 2 : end])), end)
    raise LookupError(f"the page has no table whose header begins with {first!r}")


def with_plots(text: str, page: str, into: Path) -> str:
    """Draw the plots of a page, and return the page with each below its table.

    Args:
        text: the page.
        page: its path in the checkout.
        into: the directory of the page's copy; the images go into ``plots`` in it.

    Raises:
        LookupError: a table, or a column of it, is not on the page.
    """
    for plot in PLOTS:
        if plot.page == page:
            table = table_below(text, plot.table, plot.nearby)
            file = into / "plots" / f"{plot.name}.svg"
            file.parent.mkdir(parents=True, exist_ok=True)
            # Without the date, so that the same figures give the same file.
            plot.draw(table).savefig(file, metadata={"Date": None})
            lines = text.splitlines()
            description = f"Plot. {plot.caption}. The figures are those of the table above it."
            lines[table.end : table.end] = [
                "",
                figure(f"plots/{plot.name}.svg", plot.caption, description),
            ]
            text = "\n".join(lines) + "\n"
    return text


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def _label(cell: str) -> str:
    """Return a cell as text without marks."""
    return cell.replace("`", "").replace("*", "")


# -- kinds of plots -------------------------------------------------------------------------------------


def _bars_by_column(
    columns: Sequence[str], unit: str, ours: tuple[str, ...]
) -> Callable[[Table], Figure]:
    """Return a function that draws a panel for each column, with a bar for each row."""

    def draw(table: Table) -> Figure:
        panels = {}
        for column in columns:
            index = table.column(column)
            found = [(_label(row[0]), number(row[index])) for row in table.rows]
            panels[_label(column)] = [(name, value) for name, value in found if value is not None]
        return _bars(panels, unit, ours)

    return draw


def _bars_by_row(
    columns: Sequence[str], unit: str, ours: tuple[str, ...], *, rows: str = ""
) -> Callable[[Table], Figure]:
    """Return a function that draws a panel for each row, with a bar for each column.

    Args:
        columns, unit, ours: as in `_bars`.
        rows: only rows whose name ends in this.
    """

    def draw(table: Table) -> Figure:
        panels = {}
        for row in table.rows:
            if not _label(row[0]).endswith(rows):
                continue
            found = [(_label(column), number(row[table.column(column)])) for column in columns]
            panels[_label(row[0])] = [(name, value) for name, value in found if value is not None]
        return _bars(panels, unit, ours)

    return draw


def _lines_by_row(
    columns: Sequence[str], across: str, unit: str, ours: tuple[str, ...]
) -> Callable[[Table], Figure]:
    """Return a function that draws a line for each row, over the numbers in the names of columns."""

    def draw(table: Table) -> Figure:
        lines = {}
        for row in table.rows:
            places = [(number(name.removeprefix("n = ")), row[table.column(name)]) for name in columns]
            lines[_label(row[0])] = [(place, number(cell)) for place, cell in places]
        return _lines(lines, across, unit, ours)

    return draw


def _lines_by_name(
    names: Sequence[str], over: str, of: str, across: str, unit: str, ours: tuple[str, ...]
) -> Callable[[Table], Figure]:
    """Return a function that draws a line for all rows with the same cells in some columns."""

    def draw(table: Table) -> Figure:
        lines: dict[str, list[tuple[float | None, float | None]]] = {}
        for row in table.rows:
            name = ", ".join(_label(row[table.column(column)]) for column in names)
            point = (number(row[table.column(over)]), number(row[table.column(of)]))
            lines.setdefault(name, []).append(point)
        return _lines(lines, across, unit, ours)

    return draw


def _outcomes(table: Table) -> Figure:
    """Draw a field for each cell: wrong if it is bold, right if not, empty if it is a dash."""
    height, width = len(table.rows), len(table.header) - 1
    drawing = Figure(figsize=(3.2 + 1.2 * width, 0.5 + 0.3 * height), layout="constrained")
    panel = drawing.subplots()
    for y, row in enumerate(table.rows):
        for x, cell in enumerate(row[1:]):
            if cell != "–":
                wrong = cell.startswith("**")
                colour, text = ("#f4c7c3", "wrong") if wrong else ("#d5ecd4", "right")
                panel.barh(y, 0.96, left=x + 0.02, height=0.9, color=colour)
                panel.text(x + 0.5, y, text, ha="center", va="center", fontsize=8)
    panel.set_yticks(range(height), [_label(row[0]) for row in table.rows], fontsize=8)
    panel.set_xticks([x + 0.5 for x in range(width)], map(_label, table.header[1:]), fontsize=8)
    panel.set_xlim(0, width)
    panel.xaxis.tick_top()
    panel.tick_params(length=0)
    panel.invert_yaxis()
    panel.spines[:].set_visible(False)
    return drawing


def _bars(panels: dict[str, list[tuple[str, float]]], unit: str, ours: tuple[str, ...]) -> Figure:
    """Draw panels of bars; those whose name begins with one of `ours` are blue."""
    names = list(dict.fromkeys(name for bars in panels.values() for name, _ in bars))
    drawing = Figure(figsize=(9, 1 + 0.26 * len(names)), layout="constrained")
    for index, (title, bars) in enumerate(panels.items()):
        panel = drawing.add_subplot(1, len(panels), index + 1)
        colours = ["tab:blue" if name.startswith(ours) else "0.65" for name, _ in bars]
        places = [names.index(name) for name, _ in bars]
        container = panel.barh(places, [value for _, value in bars], color=colours)
        panel.bar_label(container, [_short(value) for _, value in bars], padding=2, fontsize=8)
        panel.set_yticks(range(len(names)), names if not index else [], fontsize=8)
        panel.set_xticks([])
        panel.margins(x=0.35)
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.set_title(textwrap.fill(title, 24), fontsize=9)
        panel.set_xlabel(unit, fontsize=8)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    return drawing


def _lines(
    lines: dict[str, list[tuple[float | None, float | None]]],
    across: str,
    unit: str,
    ours: tuple[str, ...],
) -> Figure:
    """Draw lines with logarithmic scales; those whose name begins with one of `ours` are solid."""
    drawing = Figure(figsize=(8, 4), layout="constrained")
    panel = drawing.subplots()
    for name, points in lines.items():
        known = [(x, y) for x, y in points if x is not None and y is not None]
        style = "o-" if name.startswith(ours) else "s--"
        panel.plot([x for x, _ in known], [y for _, y in known], style, label=name)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel(across, fontsize=9)
    panel.set_ylabel(unit, fontsize=9)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    return drawing


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


_BENCHMARKS = "docs/benchmarks.md"

#: The plots. `formats` has none: no page has a table of its figures.
PLOTS = (
    Plot(
        suite="conditional_put",
        page=_BENCHMARKS,
        table="row",
        nearby="loopback, 1",
        name="conditional-writes",
        caption="Milliseconds of a put_if_absent, by setup and number of writers",
        draw=_bars_by_column(
            ("loopback, 1", "latency, 1", "loopback, 8", "latency, 8"), "ms", ("lease", "native")
        ),
    ),
    Plot(
        suite="committer",
        page=_BENCHMARKS,
        table="seconds of the job / of its commit",
        name="committers-on-s3",
        caption="Seconds of a Spark job on S3, by number of files",
        draw=_bars_by_column(("10 files", "100", "1,000", "10,000"), "seconds", ("listed", "logged")),
    ),
    Plot(
        suite="ingest",
        page=_BENCHMARKS,
        table="rows per second, whole query",
        name="ingest-rates",
        caption="Rows per second of a query that reads each file once",
        draw=_bars_by_row(
            ("built-in", "built-in tuned", "ours", "ours by Python"), "rows per second", ("ours",)
        ),
    ),
    Plot(
        suite="namespace",
        page=_BENCHMARKS,
        table="milliseconds of a rename",
        name="rename-times",
        caption="Milliseconds of renaming a directory, by number of files in it",
        draw=_lines_by_row(
            ("1 file", "1,000", "10,000", "100,000"), "files in the directory", "ms", ("namespace",)
        ),
    ),
    Plot(
        suite="fsck",
        page=_BENCHMARKS,
        table="Work",
        name="checks",
        caption="Seconds of checks and restores on Spark, by size",
        draw=_lines_by_name(
            ("Work", "Where"),
            "Entries, states",
            "Seconds",
            "entries, states",
            "seconds",
            ("verify", "restore", "reduce"),
        ),
    ),
    Plot(
        suite="transfers",
        page=_BENCHMARKS,
        table="transfer",
        nearby="s3fs",
        name="transfers",
        caption="Seconds of a transfer of 1 GiB",
        draw=_bars_by_row(
            ("`commitlog`, `fsspec`", "`boto3`", "`obstore`", "`s3fs`"),
            "seconds",
            ("commitlog",),
            rows="1 GiB",
        ),
    ),
    Plot(
        suite="faults",
        page=_BENCHMARKS,
        table="scenario",
        nearby="built-in v1",
        name="faults-local",
        caption="Results under faults, on local directories",
        draw=_outcomes,
    ),
    Plot(
        suite="faults",
        page=_BENCHMARKS,
        table="scenario",
        nearby="magic",
        name="faults-s3",
        caption="Results under faults, on S3",
        draw=_outcomes,
    ),
    Plot(
        suite="cost",
        page="docs/cost.md",
        table="job",
        nearby="n = 1 |",
        name="cost",
        caption="Dollars per thousand jobs, by number of files",
        draw=_lines_by_row(
            ("n = 1", "n = 10", "n = 100", "n = 1,000"),
            "files of the job",
            "dollars",
            ("Spark, commitlog",),
        ),
    ),
    Plot(
        suite="log",
        page="docs/namespace.md",
        table="log in",
        name="log",
        caption="Seconds to read, and to restore, a log of 1,000 changes",
        draw=_bars_by_row(
            ("read, one thread", "read, 16 threads", "restored, one thread", "restored, 16 threads"),
            "seconds",
            ("read, 16", "restored, 16"),
        ),
    ),
)
