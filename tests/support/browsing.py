"""Chromium for tests of pages."""

import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]  # fmt: skip
READY = ".panel > *, #play > .card, #play > .trouble"  # a panel, a form or an error


@pytest.fixture(scope="session")
def chromium():
    """Return the path of Chromium; skip the test if there is none."""
    names = [os.environ.get("CHROME", ""), *BROWSERS]
    found = next((path for path in map(shutil.which, filter(None, names)) if path), None)
    if found is None:
        message = "no Chromium found: apt install chromium (or set CHROME to its path)"
        if os.environ.get("REQUIRE_CHROMIUM") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="session")
def browser(chromium):
    """Start a browser for all tests of pages."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


class Windows:
    """Windows of one test; errors and requests in them are recorded."""

    def __init__(self, browser):
        self.browser, self.contexts = browser, []
        self.problems, self.requested = [], []

    def open(self, address, *, width=1200, height=1200, **options):
        """Open a new window."""
        viewport = {"width": width, "height": height}
        context = self.browser.new_context(viewport=viewport, **options)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: said.type == "error" and self.problems.append(said.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        page.on("request", lambda request: self.requested.append(request.url.split("#")[0]))
        page.goto(address)
        return page

    def close(self):
        """Close all windows."""
        while self.contexts:
            self.contexts.pop().close()


@pytest.fixture
def windows(browser):
    """Open windows; errors in them fail the test."""
    windows = Windows(browser)
    yield windows
    windows.close()
    assert windows.problems == [], windows.problems


def until(page, expression, seconds=20):
    """Wait until an expression is true on the page.

    Playwright's wait_for_function evaluates code in the page, which its content policy forbids.
    """
    for _ in range(seconds * 20):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not after {seconds} seconds: {expression}")


@pytest.fixture
def stand_in():
    """Start a stand-in server with invented models."""
    server = pytest.importorskip("standin", reason="the page needs polyhead[serve]").StandIn()
    yield server
    server.close()


@pytest.fixture
def play(windows, stand_in):
    """Open the playground; requests to other servers fail the test."""

    def play(state="", language="en-US", width=1200, scheme="light"):
        page = windows.open(
            f"{stand_in.url}/{state}", width=width, locale=language, color_scheme=scheme
        )
        page.wait_for_selector(READY)
        return page

    yield play
    windows.close()  # before the server, which may still get requests
    strangers = [url for url in windows.requested if not url.startswith((stand_in.url, "blob:"))]
    assert strangers == []
