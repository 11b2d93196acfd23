"""Charts as HTML: each is a drawing in SVG, and a table with the same figures.

The drawings need no script. `STYLE` has their style sheet; the page around them defines the colours.
Every text is escaped here.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, TypeAlias
from unicodedata import east_asian_width

from attrs import frozen

from commitlog.cli.output import duration, printable, readable

__all__ = ["STYLE", "Chart", "Mark", "Unit", "escape", "render"]

#: What the values of a chart are: a number, bytes or seconds.
Unit: TypeAlias = Literal["count", "bytes", "seconds"]

#: The headings of values.
_HEADINGS: Mapping[Unit, str] = {"count": "number", "bytes": "size", "seconds": "time"}

#: The size of a drawing of columns, and its plot: left, top, right and bottom edge.
_WIDTH, _HEIGHT = 360, 190
_LEFT, _TOP, _RIGHT, _BOTTOM = 58, 10, 352, 160

#: The widest column.
_WIDEST = 40

#: Height of a row of a drawing of bars, and of the bar in it.
_ROW, _BAR = 34, 12

#: Most columns whose names all fit below them.
_NAMED = 8

#: Most characters of the name of a bar; wide ones count twice.
_NAME = 40

#: The rules for charts. The page defines the colours --text, --soft, --line, --mark and --limit.
STYLE = """
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; }
figure p { margin: .25rem 0 .5rem; color: var(--soft); font-size: .875rem; }
svg { display: block; width: 100%; max-width: 30rem; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
svg .tick { font-size: 10px; }
svg .name { fill: var(--text); }
svg .mark { fill: var(--mark); }
svg .mark:hover { opacity: .75; }
svg .line { stroke: var(--line); stroke-width: 1; }
svg .limit { stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 4 3; }
details { margin: .25rem 0; font-size: .875rem; }
summary { cursor: pointer; color: var(--soft); }
.rows { max-height: 20rem; overflow: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .2rem .5rem .2rem 0; border-bottom: 1px solid var(--line); text-align: start; }
th:last-child, td:last-child { text-align: end; white-space: nowrap; padding-inline-end: .25rem; }
td { overflow-wrap: anywhere; }
"""


@frozen(kw_only=True)
class Mark:
    """A value of a chart.

    Attributes:
        name: the thing, version or time that has the value.
        value: the value, at least 0; None if it is not known: the chart has a gap there.
        tick: a short name for the axis; by default `name`.
    """

    name: str
    value: float | None
    tick: str | None = None


@frozen(kw_only=True)
class Chart:
    """A chart. Its texts are not escaped.

    Attributes:
        title: its title, also for readers that do not see the drawing.
        note: its scope, in a sentence or two.
        form: ``columns``: in a given order, as of time; ``bars``: one below the other, with names.
        of: what the names are, as the heading of the table.
        unit: what the values are.
        marks: the values.
        limit: a value from which on something needs attention; None if there is none.
    """

    title: str
    note: str
    form: Literal["columns", "bars"]
    of: str
    unit: Unit
    marks: Sequence[Mark]
    limit: float | None = None


def escape(text: str) -> str:
    """Return text as HTML, also for attributes in double quotes; control characters are visible.

    >>> escape('<a title="x">\\u202e\\n')
    '&lt;a title=&quot;x&quot;&gt;\\\\u202e\\\\n'
    """
    return html.escape(printable(text))


def render(chart: Chart, id: str) -> str:
    """Return a chart as a ``figure``: title, note, drawing and table.

    Args:
        chart: the chart; without any known value there is no drawing.
        id: an id that no other element of the page has; letters, digits and hyphens.
    """
    known = any(mark.value is not None for mark in chart.marks)
    drawing = "".join(_drawing(chart, id)) if known else ""
    note = chart.note
    if chart.limit is not None:
        note += f" The dashed line is at {_shown(chart.limit, chart.unit)}."
    return (
        f'<figure id="{id}"><figcaption>{escape(chart.title)}</figcaption>\n'
        f"<p>{escape(note)}</p>\n{drawing}{_table(chart)}</figure>\n"
    )


def _shown(value: float | None, unit: Unit) -> str:
    if value is None:
        return "not known"
    match unit:
        case "bytes":
            return readable(round(value))
        case "seconds":
            return duration(value)
        case _:
            return f"{value:,g}" if value < 1e6 else f"{round(value):,}"


def _table(chart: Chart) -> str:
    rows = "".join(
        f"<tr><td><bdi>{escape(mark.name)}</bdi></td><td>{_cell(mark.value, chart.unit)}</td></tr>\n"
        for mark in chart.marks
    )
    return (
        f'<details><summary aria-label="Table: {escape(chart.title)}">Table</summary>\n'
        f'<div class="rows" tabindex="0" role="region" aria-label="{escape(chart.title)}"><table>\n'
        f'<thead><tr><th scope="col">{escape(chart.of)}</th>'
        f'<th scope="col">{_HEADINGS[chart.unit]}</th></tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div></details>"
    )


def _cell(value: float | None, unit: Unit) -> str:
    shown = escape(_shown(value, unit))
    return shown if value is None else f'<data value="{value:.15g}">{shown}</data>'


# -- drawings ------------------------------------------------------------------------------------------


def _drawing(chart: Chart, id: str) -> Iterator[str]:
    height = _HEIGHT if chart.form == "columns" else _ROW * len(chart.marks) + 4
    yield (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{id}-title {id}-desc">\n'
        f'<title id="{id}-title">{escape(chart.title)}</title>\n'
        f'<desc id="{id}-desc">{escape(_summary(chart))}</desc>\n'
    )
    yield from _columns(chart) if chart.form == "columns" else _bars(chart)
    yield "</svg>\n"


def _summary(chart: Chart) -> str:
    """Return the range of a chart, for readers that do not see it."""
    known = [(mark.value, mark.name) for mark in chart.marks if mark.value is not None]
    least, most = min(known), max(known)
    parts = [f"{len(known)} values, from {_shown(least[0], chart.unit)} ({least[1]})"]
    parts.append(f"to {_shown(most[0], chart.unit)} ({most[1]}).")
    if chart.limit is not None:
        parts.append(f"The limit is {_shown(chart.limit, chart.unit)}.")
    return " ".join([*parts, "The table below has all values."])


def _values(chart: Chart) -> list[float]:
    return [mark.value for mark in chart.marks if mark.value is not None]


def _tooltip(mark: Mark, unit: Unit) -> str:
    return f"<title>{escape(mark.name)}: {escape(_shown(mark.value, unit))}</title>"


def _columns(chart: Chart) -> Iterator[str]:
    top = _axis(max(_values(chart)), chart.unit)
    for share in (0.0, 0.5, 1.0):
        y = _BOTTOM - share * (_BOTTOM - _TOP)
        yield f'<line class="line" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:g}" y2="{y:g}"/>\n'
        label = escape(_axis_label(top * share, chart.unit))
        yield f'<text x="{_LEFT - 6}" y="{y + 4:g}" text-anchor="end">{label}</text>\n'
    step = (_RIGHT - _LEFT) / len(chart.marks)
    width = min(step - min(step / 5, 4), _WIDEST)
    for number, mark in enumerate(chart.marks):
        if mark.value is None:
            continue
        height = mark.value / top * (_BOTTOM - _TOP)
        yield (
            f'<rect class="mark" x="{_LEFT + (number + 0.5) * step - width / 2:.2f}"'
            f' y="{_BOTTOM - height:.3f}" width="{width:.2f}" height="{height:.3f}">'
            f"{_tooltip(mark, chart.unit)}</rect>\n"
        )
    yield from _ticks(chart.marks, step)


def _ticks(marks: Sequence[Mark], step: float) -> Iterator[str]:
    texts = [escape(mark.name if mark.tick is None else mark.tick) for mark in marks]
    y = _BOTTOM + 16
    if len(texts) <= _NAMED and len(texts) != 2:
        for number, text in enumerate(texts):
            x = _LEFT + (number + 0.5) * step
            yield f'<text class="tick" x="{x:.2f}" y="{y}" text-anchor="middle">{text}</text>\n'
        return
    yield f'<text x="{_LEFT}" y="{y}">{texts[0]}</text>\n'
    yield f'<text x="{_RIGHT}" y="{y}" text-anchor="end">{texts[-1]}</text>\n'


def _bars(chart: Chart) -> Iterator[str]:
    top = max(*_values(chart), chart.limit or 0.0) or 1.0
    width = _WIDTH - 8
    for number, mark in enumerate(chart.marks):
        y = number * _ROW + 14
        yield f'<text class="name" x="4" y="{y}">{escape(_cut(mark.name))}</text>\n'
        shown = escape(_shown(mark.value, chart.unit))
        yield f'<text x="{_WIDTH - 4}" y="{y}" text-anchor="end">{shown}</text>\n'
        if mark.value is not None:
            yield (
                f'<rect class="mark" x="4" y="{y + 5}" width="{mark.value / top * width:.3f}"'
                f' height="{_BAR}">{_tooltip(mark, chart.unit)}</rect>\n'
            )
    if chart.limit is not None:
        x = 4 + chart.limit / top * width
        yield (
            f'<line class="limit" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{_ROW * len(chart.marks)}">'
            f"<title>{escape(_shown(chart.limit, chart.unit))}</title></line>\n"
        )


def _cut(name: str) -> str:
    """Return the beginning of a name that fits above its bar.

    >>> _cut("a" * 50) == "a" * 40 + "…", _cut("日" * 30) == "日" * 20 + "…", _cut("a\\n")
    (True, True, 'a\\\\n')
    """
    name = printable(name)
    widths = accumulate(2 if east_asian_width(char) in "WF" else 1 for char in name)
    fitting = sum(width <= _NAME for width in widths)
    return name if fitting == len(name) else name[:fitting] + "…"


def _axis_label(value: float, unit: Unit) -> str:
    """Return a value as a short text.

    >>> _axis_label(250, "count"), _axis_label(60_000_000, "count"), _axis_label(2**34, "bytes")
    ('250', '60 M', '16 GiB')
    """
    if unit != "count":
        return _shown(value, unit).replace(".0 ", " ")
    for factor, prefix in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= 10 * factor or (value >= factor and factor > 1e3):
            return f"{value / factor:,g}{prefix}"
    return f"{value:,g}"


def _axis(most: float, unit: Unit) -> float:
    """Return the value at the top of an axis: the next round one from `most` on.

    >>> _axis(7, "count"), _axis(1200, "count"), _axis(0, "bytes"), _axis(3 * 2**20, "bytes") / 2**20
    (8.0, 2000.0, 2.0, 4.0)
    """
    if unit == "bytes":
        return float(2 ** max(1, math.ceil(math.log2(max(most, 2)))))
    most = max(most, 2)
    power = 10.0 ** math.floor(math.log10(most))
    return next(factor * power for factor in (1, 2, 4, 6, 8, 10, 20) if factor * power >= most)
