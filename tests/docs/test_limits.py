"""The page of limits: each number is that of its constant in the code, or has a source."""

from __future__ import annotations

import re

import pytest
from attrs import frozen

from support.constants import value_of
from support.project import ROOT

_BYTES = {"": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS = _BYTES | {"s": 1, "h": 3600, "day": 86_400, "days": 86_400}


@frozen
class Row:
    """A row of the table.

    Attributes:
        limit: what is limited.
        value: the value, as it is on the page.
        source: the constant and links.
    """

    limit: str
    value: str
    source: str

    @property
    def constant(self) -> str | None:
        """The name of the constant below ``commitlog``, or None."""
        found = re.match(r"`([\w.]+(?:\(\w+\))?)`", self.source)
        return found and found[1]

    @property
    def number(self) -> float | tuple[int, ...]:
        """The value in bytes or seconds; a version as numbers."""
        if version := re.fullmatch(r"(\d)\.(\d)", self.value):
            found = (int(version[1]), int(version[2]))
            return found if ".versions." in self.source else float(self.value)
        number, _, unit = self.value.partition(" ")
        return float(number.replace(",", "")) * _UNITS[unit]


def _rows() -> list[Row]:
    text = (ROOT / "docs/limits.md").read_text().split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [Row(each[1].strip(), each[2].strip(), each[4].strip()) for each in cells[1:]]


ROWS = _rows()


def test_each_limit_has_a_source() -> None:
    """A limit has a constant, or a link to a page that states it."""
    assert len(ROWS) > 80
    assert not [row.limit for row in ROWS if row.constant is None and "](" not in row.source]
    assert len({row.constant for row in ROWS if row.constant}) == sum(map(bool, map(_constant, ROWS)))


def _constant(row: Row) -> str | None:
    return row.constant


@pytest.mark.parametrize("row", [row for row in ROWS if row.constant], ids=_constant)
def test_each_number_is_that_of_its_constant(row: Row) -> None:
    """The page has the number that the code has."""
    assert row.constant is not None
    assert row.number == value_of(row.constant)


def test_all_limits_are_on_the_page() -> None:
    """Every constant of the library whose name says that it is a maximum or minimum is in the table.

    Those that only bound the work of one step, so that no user meets them, are listed here.
    """
    inner = {
        "aws.connections._MAX_HEAD",
        "aws.connections._MAX_INTERIM",
        "cli.ingest.commands._MAX_LISTED",
        "cli.progress._MAX_COUNTED",
        "commit.record._MAX_NUMBER",
        "ingest.cleaning_queue._MAX_COMMITS",
        "ingest.fetch.MAX_BYTES",
        "ingest.fetch.MAX_FILES",
        "ingest.notifications._MAX_DEPTH",
        "ingest.planning.MAX_WANTED",
        "ingest.planning._MIN_STRIDE",
        "ingest.source.MAX_PROBLEMS",
        "oplog.validate.MAX_COUNT",
        "files.binary.MAX_BYTES",
        "tables.rules.MAX_INT",
        "tables.rules.MAX_TOKEN_CHARS",
        "tables.rules._MAX_SEGMENTS",
    }
    shown = {row.constant for row in ROWS}
    found = {
        f"{'.'.join(file.relative_to(ROOT / 'commitlog').with_suffix('').parts)}.{name}"
        for file in (ROOT / "commitlog").rglob("*.py")
        if "testing" not in file.parts
        for name in re.findall(r"^(_?(?:MAX|MIN)_[A-Z_]+)\b.* = ", file.read_text(), re.M)
    }
    assert found - shown - inner == set()
