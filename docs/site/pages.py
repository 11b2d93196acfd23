"""The pages as Sphinx reads them: copies, with links and tables of contents that fit the site.

The pages in the checkout are read on a code host too. So they have no directives, and their links are
relative to the checkout. In the copies, ``docs/`` is the root, and each list of pages on the pages in
`CONTENTS` is followed by a hidden table of contents, from which the theme makes the navigation.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from attrs import frozen
from figures import draw, with_drawings
from plots import with_plots

__all__ = ["CONTENTS", "GeneratedPage", "pages", "stage"]

#: The pages whose lists are tables of contents.
CONTENTS = ("docs/index.md", "docs/decisions/index.md", "deploy/README.md")

#: Pages in `docs/` for other readers: that of the package index.
_LEFT_OUT = frozenset({"docs/package.md"})

#: The page of the site that stands for one that is not part of it.
_STANDS_FOR = {"README.md": "index.md"}

_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^(?P<marks>```+).*?^(?P=marks)$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^[*|] \[[^\]]+\]\(([^)\s#]+\.md)", re.MULTILINE)
_SECTION = re.compile(r"^(?=## )", re.MULTILINE)


@frozen(kw_only=True)
class GeneratedPage:
    """A page of the site that is not in the checkout.

    Args:
        section: the heading of the list on the first page that gets a link to it.
        place: its place among the copies, without a suffix.
        title: the text of the link.
        summary: the text after it.
    """

    section: str
    place: str
    title: str
    summary: str


def pages(root: Path) -> list[str]:
    """Return the pages of the site, as paths in the checkout `root`."""
    found = [root / "CHANGES.md", *(root / "docs").rglob("*.md"), *(root / "deploy").rglob("*.md")]
    return sorted({path.relative_to(root).as_posix() for path in found} - _LEFT_OUT)


def stage(root: Path, into: Path, generated: Sequence[GeneratedPage] = ()) -> None:
    """Copy the pages of a checkout, and linked files, for Sphinx; make drawings and plots.

    Args:
        root: the checkout.
        into: a directory to create.
        generated: pages that something else writes, for the lists of the first page.
    """
    every = pages(root)
    linked: set[str] = set()
    for page in every:
        text = (root / page).read_text()
        linked |= set(_targets(page, text))
        copy = into / _place(page)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = with_plots(text, page, copy.parent)
        text = _outside_code(text, partial(with_drawings, folder=(root / page).parent))
        text = _outside_code(text, partial(_relinked, page=page))
        if page in CONTENTS:
            text = _with_contents(text, generated if page == CONTENTS[0] else ())
        copy.write_text(text)
    for file in sorted(linked - set(every)):
        if (root / file).is_file() and file not in _STANDS_FOR:
            copy = into / _place(file)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if copy.suffix == ".dot":
                draw(root / file, copy.with_suffix(".svg"))
            else:
                shutil.copyfile(root / file, copy)


def _place(path: str) -> str:
    """Return the place of a file of the checkout among the copies."""
    return _STANDS_FOR.get(path, path.removeprefix("docs/"))


def _targets(page: str, text: str) -> Iterator[str]:
    """Yield the targets of relative links outside of code, as paths in the checkout."""
    for match in _LINK.finditer(_FENCE.sub("", text)):
        if "://" not in match[1] and not match[1].startswith("mailto:"):
            yield _resolved(page, match[1])


def _resolved(page: str, link: str) -> str:
    return os.path.normpath(PurePosixPath(page).parent / link)


def _relinked(text: str, page: str) -> str:
    """Return text of a page with links that lead to the same files from its copy."""

    def replace(match: re.Match[str]) -> str:
        if "://" in match[1] or match[1].startswith("mailto:"):
            return match[0]
        target = _place(_resolved(page, match[1]))
        return os.path.relpath(target, PurePosixPath(_place(page)).parent) + (match[2] or "")

    return _LINK.sub(replace, text)


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return a text with its parts outside of blocks of code changed; blocks lose blank last lines."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        # A doctest ends with a blank line, which a reader need not see.
        parts += [change(text[end : fence.start()]), re.sub(r"\n+(?=\n`+$)", "", fence[0])]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def _with_contents(text: str, generated: Sequence[GeneratedPage]) -> str:
    """Return a page with a hidden table of contents after each section that lists pages."""
    sections = []
    for section in _SECTION.split(text):
        heading = section.partition("\n")[0].removeprefix("## ").strip()
        for page in generated:
            if page.section == heading:
                section = f"{section.rstrip()}\n* [{page.title}]({page.place}.md): {page.summary}\n"
        if entries := [link.removesuffix(".md") for link in _ITEM.findall(section)]:
            caption = [f":caption: {heading}"] if section.startswith("## ") else []
            lines = ["```{toctree}", ":hidden:", *caption, "", *entries, "```", ""]
            section = section.rstrip() + "\n\n" + "\n".join(lines) + "\n"
        sections.append(section)
    return "".join(sections)
