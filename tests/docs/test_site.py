"""The site that ``./run docs`` builds, in a real Chromium."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.browser import DESKTOP, PHONE, chromium, served, visiting
from support.environments import require
from support.project import ROOT
from support.selection import with_all
from support.source import MODULES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# One worker builds the site, for all tests.
pytestmark = pytest.mark.xdist_group("site")

BUILD = ROOT / "docs/site/build.py"

#: Pages that the small site has as they are, one of each kind. Of the others, it has the headings.
WHOLE = ("index", "protocol", "outputs", "decisions/index")

#: Packages that the small site documents.
PACKAGES = ("commitlog", "commitlog.outputs")

#: One page of each kind; ``--all`` opens every page of the whole site.
KINDS = (
    *("index.html", "protocol.html", "outputs.html"),
    *("decisions/index.html", "deploy/README.html", "api/commitlog.html"),
)

#: Windows that load pages at the same time.
WINDOWS = 6

#: Packages that export names.
PUBLIC = {module.name: module for module in MODULES.values() if module.is_package and module.exports}

#: Packages whose names are for the library itself, and those whose names `commitlog` exports.
NO_PAGE = {
    *("commitlog.aws", "commitlog.cli", "commitlog.cli.fs", "commitlog.cli.namespace"),
    *("commitlog.cli.outputs", "commitlog.commit", "commitlog.files", "commitlog.spark.targets"),
    "commitlog.tabular",
}


def _build(program: Path, into: Path, *options: str) -> subprocess.CompletedProcess[str]:
    for module in ("sphinx", "myst_parser", "furo"):
        require(f"{module} is missing: ./run test installs it", find_spec(module) is not None)
    require("Graphviz is missing: install graphviz", shutil.which("dot") is not None)
    command = [sys.executable, str(program), str(into), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


_FENCE = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def _small_checkout(root: Path) -> Path:
    """Make a checkout with a part of the pages and of the reference; return its program."""
    shutil.copytree(BUILD.parent, root / "docs/site", ignore=shutil.ignore_patterns("__pycache__"))
    for name, constant in (("reference", f"PACKAGES = {PACKAGES}"), ("plots", "PLOTS = ()")):
        file = root / f"docs/site/{name}.py"
        file.write_text(f"{file.read_text()}\n{constant}\n")
    shutil.copytree(ROOT / "docs/diagrams", root / "docs/diagrams")
    (root / "commitlog").mkdir()
    pages = [file for file in (ROOT / "docs").glob("*.md") if file.name != "package.md"]
    pages += [ROOT / "docs/decisions/index.md", ROOT / "deploy/README.md", ROOT / "CHANGES.md"]
    for page in pages:
        copy = root / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        name = page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")
        text = page.read_text()
        if name not in (*WHOLE, "deploy/README"):
            headings = [line for line in _FENCE.sub("", text).splitlines() if re.match("#+ ", line)]
            text = "\n\n".join(headings) + "\n"
        copy.write_text(_LINK.sub(partial(_kept_link, page, pages), text))
    return root / "docs/site/build.py"


def _kept_link(page: Path, pages: Sequence[Path], link: re.Match[str]) -> str:
    """Return a link, or only its text if the target is not in the small checkout."""
    target = (page.parent / link[2].partition("#")[0]).resolve()
    kept = link[2][0] == "#" or "://" in link[2] or target in pages or target.suffix == ".dot"
    return link[0] if kept else link[1]


def _built(program: Path, into: Path) -> Path:
    done = _build(program, into)
    assert done.returncode == 0, done.stdout + done.stderr
    return into / "html"


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small site: some pages, and the reference of some packages."""
    directory = tmp_path_factory.mktemp("small")
    return _built(_small_checkout(directory / "checkout"), directory / "out")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site. A warning of Sphinx fails the build."""
    return _built(BUILD, tmp_path_factory.mktemp("docs"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for all tests."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def url(html: Path) -> Iterator[str]:
    """The URL of the small site."""
    with served(html) as found:
        yield found


def _problems(
    browser: Browser, url: str, paths: list[str], sizes: Sequence[tuple[int, int]] = (DESKTOP, PHONE)
) -> list[str]:
    """Open pages in windows of some sizes; return their problems."""
    problems = []
    for size in sizes:
        with ExitStack() as stack:
            visits = [stack.enter_context(visiting(browser, url, size)) for _ in paths[:WINDOWS]]
            for group in (paths[at : at + WINDOWS] for at in range(0, len(paths), WINDOWS)):
                opened = list(zip(visits, group, strict=False))
                for visit, path in opened:
                    visit.begin(path)
                for visit, path in opened:
                    page = visit.settle()
                    width = page.evaluate("document.documentElement.scrollWidth")
                    if width > size[0]:
                        problems.append(f"{path}: {width} pixels wide in a window of {size[0]}")
                    if path != "search.html" and not page.locator("h1").first.is_visible():
                        problems.append(f"{path}: no heading is visible in a window of {size[0]}")
            problems += [problem for visit in visits for problem in visit.problems]
    return problems


@pytest.mark.parametrize("path", KINDS)
def test_a_page_opens_without_errors_and_fits_a_phone(path: str, browser: Browser, url: str) -> None:
    """The console has no error, no request fails or leaves the site, and nothing scrolls sideways."""
    assert not _problems(browser, url, [path])


@pytest.mark.all
def test_every_page_opens_without_errors_and_fits_a_phone(browser: Browser, whole: Path) -> None:
    """The same for all pages on a phone, also those of the reference, the index and the search."""
    paths = [path.relative_to(whole).as_posix() for path in sorted(whole.rglob("*.html"))]
    assert set(KINDS) <= set(paths)
    with served(whole) as url:
        assert not _problems(browser, url, paths, [PHONE])


def _entries(html: Path) -> list[tuple[str, str]]:
    """Return the kind and the name of each entry in the inventory of the site, without aliases."""
    *_, compressed = (html / "objects.inv").read_bytes().split(b"\n", 4)
    lines = [line.split(" ", 4) for line in zlib.decompress(compressed).decode().splitlines()]
    return [(kind, name) for name, kind, priority, *_ in lines if priority != "-1"]


@pytest.mark.all
def test_each_public_name_has_one_entry(whole: Path) -> None:
    """A name that two packages export has its entry in one of them, and no other name has one."""
    entries = [name for kind, name in _entries(whole) if kind.startswith("py:")]
    spellings = defaultdict(set)
    for package in PUBLIC.keys() - NO_PAGE:
        for name in PUBLIC[package].exports:
            value = getattr(importlib.import_module(package), name)
            spellings[name, id(value)].add(f"{package}.{name}")
    counts = {min(names): len(names & set(entries)) for names in spellings.values()}
    assert counts == dict.fromkeys(counts, 1)
    assert len(entries) == len(set(entries))
    packages = {name for kind, name in _entries(whole) if kind == "py:module"}
    public = {f"{package}.{name}" for package in packages for name in _exports(package)} | packages
    others = [name for name in entries if name not in public and name.rpartition(".")[0] not in public]
    assert not others
    assert not [name for name in entries if "._" in name]


def _exports(package: str) -> list[str]:
    return list(importlib.import_module(package).__all__)


@pytest.mark.parametrize(
    ("page", "entry"),
    [
        ("index.html", "commitlog.html#commitlog.connect"),
        ("protocol.html", "commitlog.html#commitlog.ConditionalStore"),
        ("outputs.html", "commitlog.outputs.html#commitlog.outputs.Output.tail"),
        ("api/commitlog.outputs.html", "commitlog.html#commitlog.ConfigurationError"),
    ],
)
def test_a_name_on_a_page_leads_to_its_entry(page: str, entry: str, html: Path) -> None:
    """A name in code is a link: with its package, with its class, and alone."""
    text = (html / page).read_text()
    assert re.search(rf'<a class="reference internal" href="(?:api/)?{re.escape(entry)}"', text)
    target, _, anchor = entry.partition("#")
    assert f'id="{anchor}"' in (html / "api" / target).read_text()


DRAWINGS = sorted((ROOT / "docs/diagrams").glob("*.dot"))


@pytest.mark.parametrize(
    ("drawing", "site"),
    [("commit", "html"), ("lease", "html"), *(with_all(each.stem, "whole") for each in DRAWINGS)],
)
def test_a_drawing_replaces_the_link_to_its_text(
    drawing: str, site: str, request: pytest.FixtureRequest
) -> None:
    """The page has the drawing, and its description for readers who do not see it."""
    html: Path = request.getfixturevalue(site)
    source = f"diagrams/{drawing}.dot"
    [page] = [page for page in (ROOT / "docs").glob("*.md") if f"({source})" in page.read_text()]
    comments = re.findall(r"^// (.*)$", (ROOT / "docs" / source).read_text(), re.MULTILINE)
    text = (html / page.with_suffix(".html").name).read_text()
    [image] = re.findall(rf"<img [^>]*{drawing}\.svg[^>]*>", text)
    assert f'alt="{" ".join(comments)}"' in unescape(image)
    assert source not in text
    assert "<svg" in (html / f"_images/{drawing}.svg").read_text()


def test_the_drawing_of_a_lease_has_the_states_of_the_table() -> None:
    """The drawing and the table of protocol.md have the same states."""
    section = (ROOT / "docs/protocol.md").read_text().split("### States of a record")[1].split("\n##")[0]
    states = re.findall(r"^\| (\w+) \|", section, re.MULTILINE)
    nodes = re.findall(
        r'^ +(\w+) \[label="\1\\n', (ROOT / "docs/diagrams/lease.dot").read_text(), re.MULTILINE
    )
    assert nodes == states[1:]


def test_the_drawing_of_a_commit_has_the_steps_and_crashes_of_the_tables() -> None:
    """The drawing and the tables of outputs.md have the same steps and crashes."""
    drawing = (ROOT / "docs/diagrams/commit.dot").read_text()
    page = (ROOT / "docs/outputs.md").read_text()
    steps = page.split("## A job, step by step")[1].split("\n\n")[1]
    nodes = re.findall(r'label="([\w ]+) \((driver|tasks)\)', drawing)
    named = re.findall(r"^\| \**([\w ]+?)\** \| (driver|tasks) \|", steps, re.MULTILINE)
    assert [(name.lower(), who) for name, who in nodes] == named
    crashes = page.split("## State after a crash")[1].split("##")[0]
    assert re.findall(r"crash (\d)\"", drawing) == re.findall(r"^\| (\d): ", crashes, re.MULTILINE)


@pytest.mark.all
def test_plots_are_on_their_pages(whole: Path) -> None:
    """Each suite of benchmarks has its plot below the table of its figures."""
    pages = {page: page.read_text() for page in whole.glob("*.html")}
    for name in ("conditional-writes", "committers-on-s3", "ingest-rates", "rename-times", "checks"):
        assert f"_images/{name}.svg" in pages[whole / "benchmarks.html"]
    assert "_images/cost.svg" in pages[whole / "cost.html"]
    assert "_images/log.svg" in pages[whole / "namespace.html"]


@pytest.mark.parametrize("size", [with_all(DESKTOP), PHONE], ids=["desktop", "phone"])
def test_search_finds_a_name(size: tuple[int, int], browser: Browser, url: str) -> None:
    """A reader types `put_if_absent` into the search field, and the first result is its entry."""
    with visiting(browser, url, size) as visit:
        page = visit.open("index.html")
        if size == PHONE:
            page.locator("label[for=__navigation]:visible").first.click()
        page.locator("input[name=q]").fill("put_if_absent")
        page.locator("input[name=q]").press("Enter")
        results = page.locator("#search-results ul.search li a")
        results.first.wait_for()
        # The page of results reads the pages that it lists.
        page.wait_for_load_state("networkidle")
        results.first.click()
        page.wait_for_load_state("networkidle")
        assert page.url.endswith("api/commitlog.html#commitlog.ConditionalStore.put_if_absent")
        assert "put_if_absent" in page.locator("article").inner_text()
        assert not visit.problems


def test_a_reader_with_a_phone_reaches_the_pages(browser: Browser, url: str) -> None:
    """The menu opens, has a group for each kind of reader in order, and leads to a page."""
    with visiting(browser, url, PHONE) as visit:
        page = visit.open("index.html")
        entry = page.locator(".sidebar-tree a", has_text="Quick start")
        assert not entry.is_visible() or entry.bounding_box()["x"] < 0
        page.locator("label[for=__navigation]:visible").first.click()
        captions = page.locator(".sidebar-tree .caption").all_text_contents()
        assert [caption.strip() for caption in captions] == [
            "Start here",
            "Tasks",
            "Concepts",
            "Reference",
            "Operations",
            "Proof",
        ]
        entry.click()
        page.wait_for_url("**/quickstart.html")
        assert not visit.problems


def test_a_problem_is_seen(browser: Browser, tmp_path: Path) -> None:
    """A script that fails, a missing file, another host and a wide line are all reported."""
    (tmp_path / "bad.html").write_text(
        "<h1>Bad</h1><p style='width: 2000px'>wide</p><script>missing()</script>"
        "<img src=missing.png><img src='http://127.0.0.1:9/elsewhere.png'>"
    )
    with served(tmp_path) as url:
        found = "\n".join(_problems(browser, url, ["bad.html"]))
    for text in ("missing is not defined", "status 404", "another host", "pixels wide"):
        assert text in found


def _pages(root: Path) -> Path:
    """Make a checkout of two pages and of the program that builds the site; return the program."""
    shutil.copytree(BUILD.parent, root / "docs/site", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "docs/index.md").write_text("# First\n\n* [Changes](../CHANGES.md)\n")
    (root / "CHANGES.md").write_text("# Changes\n")
    return root / "docs/site/build.py"


@pytest.mark.parametrize(
    ("page", "text", "message"),
    [
        ("docs/index.md", "# First\n\n* [Second](second.md)\n", "second"),
        with_all("docs/other.md", "# Other\n", "toctree"),
        ("CHANGES.md", "# Changes\n\n[A drawing](docs/bad.dot)\n", "syntax error in line 2"),
    ],
    ids=["a link without a target", "a page that is not listed", "a drawing with an error"],
)
def test_a_warning_fails_the_build(page: str, text: str, message: str, tmp_path: Path) -> None:
    """The build ends with an error, which names the link, the page or the line of the drawing."""
    program = _pages(tmp_path)
    (tmp_path / "docs/bad.dot").write_text("// A drawing.\ndigraph {a -> -> b}\n")
    (tmp_path / page).write_text(text)
    done = _build(program, tmp_path / "out")
    assert done.returncode, done.stdout
    assert message in done.stderr


@pytest.mark.all
def test_links_to_other_hosts_are_checked_on_request(tmp_path: Path) -> None:
    """With ``--external-links`` a link to a missing page of another server is an error."""
    program = _pages(tmp_path / "checkout")
    (tmp_path / "there.html").touch()
    with served(tmp_path) as url:
        page = program.parents[1] / "index.md"
        page.write_text(f"{page.read_text()}\n[There]({url}there.html)\n")
        assert _build(program, tmp_path / "out", "--external-links").returncode == 0
        page.write_text(f"{page.read_text()}\n[Missing]({url}missing.html)\n")
        done = _build(program, tmp_path / "out", "--external-links")
    assert done.returncode
    assert "missing.html" in done.stderr
    assert "there.html" not in done.stderr
