"""The plots of the site: they show the figures of the tables, and nothing else."""

from __future__ import annotations

import doctest
import importlib
import re
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from support.environments import require
from support.project import ROOT

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _plots() -> ModuleType:
    """Return the module that draws the plots."""
    require("matplotlib is missing: ./run test installs it", find_spec("matplotlib") is not None)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs/site"))
        return importlib.import_module("plots")


def _value(cell: str) -> float | None:
    digits = re.sub(r"[*`,]", "", cell).split(" / ")[0]
    return float(digits) if re.fullmatch(r"[\d.]+", digits) else None


def _names(cell: str) -> str:
    return re.sub(r"[*`]", "", cell)


def test_plots_have_the_figures_of_their_tables() -> None:
    """Each bar, point and field has the figure of a cell, and each figure of the columns is drawn."""
    plots = _plots()
    for plot in plots.PLOTS:
        table = plots.table_below((ROOT / plot.page).read_text(), plot.table, plot.nearby)
        rows = [dict(zip(map(_names, table.header), row, strict=True)) for row in table.rows]
        drawing = plot.draw(table)
        if plot.suite == "faults":
            drawn = _drawn_outcomes(drawing, rows, plot.table)
        elif drawing.axes[0].lines:
            drawn = _drawn_points(drawing, rows)
        else:
            drawn = _drawn_bars(drawing, rows, _names(plot.table))
        assert drawn, plot.name


def _drawn_bars(drawing: Figure, rows: list[dict[str, str]], first: str) -> int:
    """Check the bars of a drawing; return their number."""
    cells = {}
    for row in rows:
        for column, cell in row.items():
            cells[_names(row[first]), column] = cells[column, _names(row[first])] = _value(cell)
    names = [label.get_text() for label in drawing.axes[0].get_yticklabels()]
    drawn = set()
    for panel in drawing.axes:
        for bar in panel.patches:
            key = names[round(bar.get_y() + bar.get_height() / 2)], panel.get_title().replace("\n", " ")
            assert cells[key] == bar.get_width(), key
            drawn.add(key)
    titles = {panel.get_title().replace("\n", " ") for panel in drawing.axes}
    shown = {
        key for key, value in cells.items() if value is not None and key[0] in names and key[1] in titles
    }
    assert drawn == shown
    return len(drawn)


def _drawn_points(drawing: Figure, rows: list[dict[str, str]]) -> int:
    """Check the points of lines, each named by the first cell of its rows; return their number."""
    found = 0
    for line in drawing.axes[0].lines:
        own = [row for row in rows if _is_named(row, str(line.get_label()))]
        for x, y in line.get_xydata():
            over_columns = [row for row in own if _value(row.get(_column(row, x), "")) == y]
            in_one_row = [row for row in own if {x, y} <= {_value(cell) for cell in row.values()}]
            assert over_columns or in_one_row, (line.get_label(), x, y)
            found += 1
    columns = [name for name in rows[0] if re.search(r"^(n = )?[\d,]+( file)?$", name)]
    assert found == (sum(_value(row[name]) is not None for row in rows for name in columns) or len(rows))
    return found


def _is_named(row: dict[str, str], label: str) -> bool:
    cells = list(map(_names, row.values()))
    return label == cells[0] or label == f"{cells[0]}, {cells[2]}"


def _column(row: dict[str, str], x: float) -> str:
    """Return the name of the column for a number."""
    numbers = {name: re.sub(r"\D", "", name) for name in row}
    return next((name for name, digits in numbers.items() if digits and float(digits) == x), "")


def _drawn_outcomes(drawing: Figure, rows: list[dict[str, str]], first: str) -> int:
    """Check the fields of a drawing: wrong results are in bold on the page; return their number."""
    [panel] = drawing.axes
    columns = [label.get_text() for label in panel.get_xticklabels()]
    names = [label.get_text() for label in panel.get_yticklabels()]
    assert names == [_names(row[first]) for row in rows]
    fields = {text.get_position(): text.get_text() for text in panel.texts}
    expected = {
        (columns.index(column) + 0.5, y): "wrong" if "**" in cell else "right"
        for y, row in enumerate(rows)
        for column, cell in row.items()
        if column != first and cell != "–"
    }
    assert fields == expected
    return len(fields)


def test_examples_of_the_module_run() -> None:
    """The doctests of the module give the results in it."""
    results = doctest.testmod(_plots())
    assert results.attempted
    assert not results.failed


def test_each_suite_has_a_plot() -> None:
    """Each benchmark of `./run bench` has a plot, except `formats`, whose figures no page has."""
    usage = (ROOT / "run").read_text()
    [suites] = re.findall(r"^    (conditional_put \|.*)\)$", usage, re.MULTILINE)
    drawn = {plot.suite for plot in _plots().PLOTS}
    assert drawn == set(suites.split(" | ")) - {"plots", "formats"}
