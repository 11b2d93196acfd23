"""The links and headings of Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FENCE", "broken_links", "without_code"]

#: A block of code: its language and its text.
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    """Return the text of a page without its blocks of code."""
    return FENCE.sub("", text)


def broken_links(page: Path) -> Iterator[str]:
    """Yield each relative link of a page without a target file, or without a heading in it."""
    for link in _LINK.findall(without_code(page.read_text())):
        if "://" not in link:
            target, _, anchor = link.partition("#")
            file = (page.parent / target).resolve() if target else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                yield link


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub creates them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
