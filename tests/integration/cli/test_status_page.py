"""``commitlog status --html``: the file and other output, wrong places, and the page in Chromium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import commitlog
import commitlog.cli.status
from commitlog.outputs import Output
from commitlog.testing import ManualClock
from support.browser import DESKTOP, PHONE, Visit, chromium, served, visiting
from support.outputs import add_job
from support.status_page import StatusPage
from support.status_site import Site, new_site

#: Options with which each target of the site has a finding.
NOW = ("--older-than", "0", "--stale-after", "0", "--max-lag", "0")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Targets that need no attention."""
    return new_site(tmp_path)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The file of the page, which does not exist."""
    directory = tmp_path / "pages"
    directory.mkdir()
    return directory / "status.html"


def read(file: Path) -> StatusPage:
    """Return the page, which is the only file in its directory."""
    assert list(file.parent.iterdir()) == [file]
    return StatusPage(file.read_text())


def test_the_page_has_each_target(site: Site, page: Path) -> None:
    """The exit status is that of the looks, and the findings have their commands."""
    site.dead_job()
    site.deleted_directory()
    site.late_lease()
    site.late_file()
    done = site.run(*site.urls, f"{site.root}/none", *NOW, "--html", str(page))
    assert done.exit_code == 2
    found = read(page)
    kinds = ["dead-job", "abandoned-uploads", "trash", "overdue-lease", "ingest-lag"]
    assert all(f"{kind}: " in found.text for kind in kinds)
    commands = [line.removeprefix("  $ ") for line in done.stdout.splitlines() if line[:4] == "  $ "]
    assert len(commands) == 5
    assert all(command in found.text for command in commands)
    assert "The look failed." in found.text
    assert "there is no output at" in found.text
    [output] = site.records(site.output, status=0)
    assert found.figure("Files by version").values() == {"version 1": output["files"]}
    assert found.figure("Bytes by version").values() == {"version 1": output["bytes"]}


@pytest.mark.parametrize("option", [(), ("--json",), ("--openmetrics",)], ids=str)
def test_other_output_stays_the_same(site: Site, page: Path, option: tuple[str, ...]) -> None:
    """The page is written in addition to text, JSON or metrics."""
    site.dead_job()
    done = site.run(site.output, "--html", str(page), *option)
    assert done.exit_code == 0, done.output
    assert "Nothing needs attention." in read(page).text
    if option == ("--json",):
        [line] = done.stdout.splitlines()
        keys = json.loads(line).keys()
        assert keys == site.records(site.output, status=0)[0].keys()
    elif option == ("--openmetrics",):
        families = list(text_string_to_metric_families(done.stdout))  # type: ignore[no-untyped-call]
        assert families
    else:
        assert done.stdout.splitlines()[-1] == "nothing needs attention"


def test_history_says_how_many_records_are_shown(site: Site, page: Path) -> None:
    """The help has the default, and the page has the numbers of the records."""
    with commitlog.connect(f"file://{site.root}/lake") as store:
        for n in range(15):
            add_job(Output(store, "out"), f"job-{n}", 0)
    assert site.run(site.output, "--html", str(page), "--history", "7").exit_code == 0
    note = read(page).figure("Bytes by version").note
    assert "Records 10 to 16 of the log." in note
    help = " ".join(site.run("--help").stdout.split())
    assert "--history RECORDS" in help
    assert "that the page shows; 100 if not given" in help
    assert site.run(site.output, "--html", str(page), "--history", "0").exit_code == 2
    assert "add --html" in site.run(site.output, "--history", "7").stderr


@pytest.mark.parametrize("json", [False, True])
def test_a_wrong_place(site: Site, page: Path, json: bool) -> None:
    """The command ends with status 2 and a message before it looks at anything."""
    option = ("--json",) if json else ()
    for file, message in (
        (page.parent / "none" / "page.html", "its directory does not exist"),
        (page.parent, "it is a directory"),
        ("/dev/null", "it is not a regular file"),
        ("-", "--html needs a file"),
    ):
        done = site.run(site.output, "--html", str(file), *option)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr
        assert str(file) in done.stderr
    assert Path("/dev/null").is_char_device()
    assert list(page.parent.iterdir()) == []


def test_an_older_page_is_replaced_at_once(site: Site, page: Path) -> None:
    """An open file keeps the older page: the new one is another file, with the same name."""
    page.write_text("older")
    with page.open() as older:
        assert site.run(site.output, "--html", str(page)).exit_code == 0
        assert older.read() == "older"
    assert "Nothing needs attention." in read(page).text


def test_a_link_stays_a_link(site: Site, page: Path, tmp_path: Path) -> None:
    """The file that it names is replaced."""
    link = tmp_path / "link.html"
    link.symlink_to(page)
    assert site.run(site.output, "--html", str(link)).exit_code == 0
    assert link.is_symlink()
    assert "Nothing needs attention." in read(page).text


def test_watch_writes_each_page(site: Site, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each look; a page that cannot be written is an error, and the next look follows."""
    pages: list[str] = []

    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            if self.monotonic() >= 90:
                raise KeyboardInterrupt
            if self.monotonic() == 30:
                assert not page.parent.exists()
                page.parent.mkdir()
            else:
                pages.append(read(page).text)
                site.dead_job()
            if self.monotonic() == 0:
                page.unlink()
                page.parent.rmdir()
            super().sleep(seconds)

    monkeypatch.setattr(commitlog.cli.status, "SystemClock", Clock)
    done = site.run(site.output, "--watch", "30", "--older-than", "0", "--html", str(page))
    assert done.exit_code == 130
    assert done.stderr.count("its directory does not exist") == 1
    assert [text.count("dead-job: ") for text in pages] == [0, 1]


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/out?secret_access_key=geheim",
        "dynamodb://table?endpoint_url=http://me:geheim@127.0.0.1:1",
    ],
)
def test_credentials_of_a_url_are_not_in_the_page(site: Site, page: Path, url: str) -> None:
    """The page of a failed look has the URL without them."""
    assert site.run(url, "--html", str(page)).exit_code == 2
    text = read(page).text
    assert url.partition("?")[0] in text
    assert "geheim" not in page.read_text()


#: Returns the widths of the window and of its content, and where drawings and their parts are.
_LAYOUT = """() => {
  const box = (element) => {
    const {left, top, right, bottom} = element.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const boxes = (parent, what) => [...parent.querySelectorAll(what)].map(box);
  return {
    width: innerWidth,
    scroll: document.documentElement.scrollWidth,
    tables: boxes(document, "table").map(([left, top, right, bottom]) => bottom - top),
    drawings: [...document.querySelectorAll("figure svg")].map((drawing) => ({
      box: box(drawing), marks: boxes(drawing, ".mark"), texts: boxes(drawing, "text"),
    })),
  };
}"""

#: Returns the contrast of each colour of text with its backgrounds, by WCAG 2.2:
#: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
_CONTRASTS = """() => {
  const style = getComputedStyle(document.documentElement);
  const luminance = (name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    const full = hex.length == 3 ? [...hex].map((c) => c + c).join("") : hex;
    const [r, g, b] = [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16) / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return ["--text", "--soft", "--bad", "--good", "--mark"].flatMap((name) =>
    ["--page", "--box"].map((ground) => {
      const [low, high] = [luminance(name), luminance(ground)].sort((a, b) => a - b);
      return (high + 0.05) / (low + 0.05);
    }));
}"""


@pytest.mark.all
def test_the_page_in_chromium(site: Site, page: Path) -> None:
    """It loads nothing else, fits on a desktop and a phone, and shows its charts, light and dark."""
    site.dead_job()
    site.deleted_directory()
    site.late_lease()
    site.late_file()
    hostile = "<script>document.title='taken'</script>" + "x" * 200
    with commitlog.connect(f"file://{site.root}/lake") as store:
        output = Output(store, "out")
        for n in range(12):
            add_job(output, f"job-{n}", 0)
        output.heartbeat(output.begin(hostile).attempt)
    urls = [*site.urls, f"{site.root}/{hostile.replace('/', '')}"]
    assert site.run(*urls, *NOW, "--html", str(page)).exit_code == 2
    figures = len(read(page).figures)
    assert figures >= 10
    with chromium() as browser, served(page.parent) as base:
        for size in (DESKTOP, PHONE):
            with visiting(browser, base, size) as visit:
                _check_visit(visit, page.name, size, figures)


def _check_visit(visit: Visit, name: str, size: tuple[int, int], figures: int) -> None:
    """Open a page in a window, and check it."""
    requests: list[str] = []
    visit.page.on("request", lambda request: requests.append(request.url))
    page = visit.open(name)
    assert page.title().endswith("status of commitlog")
    _check_layout(page.evaluate(_LAYOUT), size, figures)
    for summary in page.locator("summary").all():
        summary.click()
    layout = page.evaluate(_LAYOUT)
    _check_layout(layout, size, figures)
    assert min(layout["tables"]) > 0
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert min(page.evaluate(_CONTRASTS)) >= 4.5
    assert len(grounds) == 2
    assert [url for url in requests if not url.startswith("data:")] == [visit.base + name]
    assert visit.problems == []


def _check_layout(layout: dict[str, Any], size: tuple[int, int], figures: int) -> None:
    """Check that nothing is wider than the window, and that each drawing, mark and text is in view."""
    assert layout["width"] == size[0]
    assert layout["scroll"] <= size[0]
    assert len(layout["drawings"]) == figures - 1  # no job of the test has given its rows
    assert len(layout["tables"]) == figures
    for drawing in layout["drawings"]:
        left, top, right, bottom = drawing["box"]
        assert 0 <= left < left + 300 <= right <= size[0]
        assert bottom - top >= 30
        for x, y, end, low in drawing["texts"] + drawing["marks"]:
            assert left - 0.5 <= x <= end <= right + 0.5
            assert top - 0.5 <= y <= low <= bottom + 0.5
        assert max((end - x) * (low - y) for x, y, end, low in drawing["marks"]) > 20
