"""A real Chromium, and a server on loopback for the pages that it opens."""

from __future__ import annotations

import contextlib
import functools
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from support.environments import require

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

__all__ = ["DESKTOP", "PHONE", "Visit", "chromium", "served", "visiting"]

#: Width and height of a window, in CSS pixels.
DESKTOP = (1280, 800)
PHONE = (375, 667)

_COMMANDS = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run a Chromium without a window. Skip the test if it or playwright is missing."""
    require("playwright is missing: ./run test installs it", find_spec("playwright") is not None)
    found = next(filter(None, map(shutil.which, _COMMANDS)), None)
    require("Chromium is missing: install chromium", found is not None)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep requests out of the output of tests."""


@contextlib.contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve the files of a directory on loopback during the block; yield the URL with a last ``/``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@define
class Visit:
    """One window of the browser, and what went wrong in it.

    Args:
        page: the page of playwright.
        base: the URL of the site.
    """

    page: Page
    base: str
    problems: list[str] = field(factory=list)

    def open(self, path: str) -> Page:
        """Open a page of the site, and wait until all its requests are answered."""
        self.begin(path)
        return self.settle()

    def begin(self, path: str) -> None:
        """Begin to open a page of the site. Windows that load at the same time take less time."""
        self.page.goto(self.base + path, wait_until="commit")

    def settle(self) -> Page:
        """Wait until all requests of the page are answered; return it."""
        self.page.wait_for_load_state("networkidle")
        return self.page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{self.page.url}: console: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.problems.append(f"{self.page.url}: a request to another host: {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{self.page.url}: {response.url}: status {response.status}")


@contextlib.contextmanager
def visiting(browser: Browser, base: str, size: tuple[int, int]) -> Iterator[Visit]:
    """Open a window of a size in CSS pixels, without cookies or storage of other windows.

    The block may look at `Visit.problems`: errors and warnings in the console, exceptions of scripts,
    requests that fail, and requests to other hosts.
    """
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    try:
        visit = Visit(context.new_page(), base)
        page = visit.page
        # Lambdas, because playwright sets attributes on the object of a bound method.
        page.on("console", lambda message: visit._console(message))
        page.on("pageerror", lambda error: visit.problems.append(f"{page.url}: {error}"))
        page.on("request", lambda request: visit._request(request))
        page.on(
            "requestfailed", lambda request: visit.problems.append(f"{request.url}: {request.failure}")
        )
        page.on("response", lambda response: visit._response(response))
        yield visit
    finally:
        context.close()
