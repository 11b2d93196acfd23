"""Pages of ``commitlog status --html``, read back: their elements, and the figures of their charts."""

from __future__ import annotations

from html.parser import HTMLParser

from attrs import define, field

__all__ = ["Figure", "StatusPage"]

_VOID = ("meta", "link")


@define
class Figure:
    """A chart of a page.

    Attributes:
        title: its title.
        note: the text below the title.
        table: the rows of its table: a name, and the exact value, or None where the value is not known.
        marks: the rectangles of its drawing: the height of a column, or the width of a bar, in units of
            the drawing, with the text that a pointer shows.
        labels: the texts of its drawing.
    """

    title: str = ""
    note: str = ""
    table: list[tuple[str, float | None]] = field(factory=list)
    marks: list[tuple[float, str]] = field(factory=list)
    labels: list[str] = field(factory=list)

    def values(self) -> dict[str, float | None]:
        """Return the table as a mapping, after checking that the drawing has the same figures."""
        found = dict(self.table)
        assert len(found) == len(self.table)
        known = {name: value for name, value in found.items() if value is not None}
        assert len(self.marks) == len(known)
        highest = max(known.values(), default=0.0)
        scale = max((size for size, _ in self.marks), default=0.0)
        for (name, value), (size, tooltip) in zip(known.items(), self.marks, strict=True):
            assert tooltip.startswith(f"{name}: ")
            # Rounded to a thousandth of a unit.
            assert abs(size * highest - value * scale) <= 0.002 * max(highest, value, 1.0)
        return found


class StatusPage(HTMLParser):
    """A page.

    Attributes:
        tags: the names of all elements, in order.
        attributes: their attributes, as pairs of a name and a value.
        text: the text outside of style sheets.
        figures: its charts.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.figures: list[Figure] = []
        self._open: list[str] = []
        self._size = 0.0
        self._cells: list[str] = []
        self._value: float | None = None
        self.feed(page)
        self.close()
        assert self._open == [], "an element is not closed"

    def figure(self, title: str) -> Figure:
        """Return the only chart with a title."""
        [found] = [figure for figure in self.figures if figure.title == title]
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        found = dict(attrs)
        if tag == "figure":
            self.figures.append(Figure())
        elif tag == "svg":
            assert found["role"] == "img"
        elif tag == "rect":
            side = "width" if found["x"] == "4" else "height"  # bars begin at the left edge
            self._size = float(found[side] or "")
        elif tag == "tr":
            self._cells, self._value = [], None
        elif tag == "td":
            self._cells.append("")
        elif tag == "data":
            self._value = float(found["value"] or "")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the element is the last one that was opened."""
        assert self._open.pop() == tag
        if tag == "tr" and self._cells:
            name, shown = self._cells
            assert (self._value is None) == (shown == "not known")
            self.figures[-1].table.append((name, self._value))

    def handle_data(self, data: str) -> None:
        """Note a text."""
        if not self._open or self._open[-1] == "style":
            return
        self.text += data
        if self._open[-1] == "figcaption":
            self.figures[-1].title += data
        elif self._open[-2:] == ["figure", "p"]:
            self.figures[-1].note += data
        elif self._open[-2:] == ["rect", "title"]:
            self.figures[-1].marks.append((self._size, data))
        elif self._open[-1] == "text":
            self.figures[-1].labels.append(data)
        elif "td" in self._open:
            self._cells[-1] += data
