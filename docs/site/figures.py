"""The figures of the site: drawings that the pages link to, and captions and texts for all figures.

A page links to the text of a drawing, a file of Graphviz, in a paragraph of its own. On a code host the
link shows that text; on the site the drawing takes the place of the link.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

__all__ = ["draw", "figure", "with_drawings"]

_DRAWING = re.compile(r"^\[(?P<caption>[^\]\n]+)\]\((?P<file>[^)\s]+\.dot)\)$", re.MULTILINE)


def with_drawings(text: str, folder: Path) -> str:
    """Return a page with its drawings in place of the links to them.

    Args:
        text: the page.
        folder: the directory from which its links lead.
    """

    def replace(match: re.Match[str]) -> str:
        link = match["file"]
        description = _description((folder / link).read_text(), link)
        return figure(str(PurePosixPath(link).with_suffix(".svg")), match["caption"], description)

    return _DRAWING.sub(replace, text)


def figure(file: str, caption: str, description: str) -> str:
    """Return MyST for a figure.

    Args:
        file: the image, relative to the page.
        caption: the text below it.
        description: the text for readers who do not see the image.
    """
    lines = [f":::{{figure}} {file}", f":alt: {description}", ":figclass: drawing", "", caption, ":::"]
    return "\n".join(lines)


def draw(source: Path, into: Path) -> None:
    """Draw a file of Graphviz as SVG.

    Raises:
        FileNotFoundError: the command ``dot`` is missing: install Graphviz.
        CalledProcessError: the file is wrong; `dot` has printed the reason.
    """
    subprocess.run(["dot", "-Tsvg", "-o", into, source], check=True)


def _description(source: str, name: str) -> str:
    """Return the comment at the start of a file of Graphviz. Raises `ValueError` if there is none."""
    lines = []
    for line in source.splitlines():
        if not line.startswith("// "):
            break
        lines.append(line.removeprefix("// "))
    if not lines:
        raise ValueError(f"{name} must begin with a comment (//) that says what the drawing shows")
    return " ".join(lines)
