"""Chromium for tests of pages."""

import io
import os
import shutil

import numpy as np
import pytest
from PIL import Image

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]  # fmt: skip
READY = ".panel > *, #play > main > .card, #play > main > .trouble"  # a panel, a form or an error


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


def until(page, expression, seconds=60):
    """Wait until an expression is true on the page.

    Playwright's wait_for_function evaluates code in the page, which its content policy forbids.
    """
    for _ in range(seconds * 20):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not after {seconds} seconds: {expression}")


def eventually(page, read, expected, seconds=60):
    """Wait until `read()` returns the expected value."""
    for _ in range(seconds * 20):
        if read() == expected:
            return
        page.wait_for_timeout(50)
    assert read() == expected


def canvas_pixels(page, selector="#cells"):
    """Return red, green, blue and opacity of every pixel of a canvas."""
    height, width, *data = page.locator(selector).evaluate("""(canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return [canvas.height, canvas.width, ...data];
    }""")
    return np.array(data).reshape(height, width, 4)


def download(page, kind):
    """Save the view as a file of this kind; return the download."""
    with page.expect_download() as waiting:
        page.locator(f"#save-{kind}").click()
    assert waiting.value.suggested_filename == f"attention.{kind}"
    return waiting.value


def upload(page):
    """Select an image file; return its content."""
    content = io.BytesIO()
    Image.new("RGB", (9, 9), (200, 30, 30)).save(content, "PNG")
    file = {"name": "seven.png", "mimeType": "image/png", "buffer": content.getvalue()}
    page.locator("#file").set_input_files(file)
    return content.getvalue()


def run_inline_script(page):
    """Try to run an inline script; return whether it ran."""
    return page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.hacked = 1";
      document.body.append(script);
      return window.hacked === 1;
    }""")


@pytest.fixture
def refusing(stand_in, windows):
    """Return the stand-in server for a test in which some of its responses are errors."""
    yield stand_in
    assert all("Failed to load resource" in problem for problem in windows.problems)
    windows.problems.clear()


@pytest.fixture
def stand_in():
    """Start a stand-in server with invented models."""
    server = pytest.importorskip("standin", reason="the page needs polyhead[serve]").StandIn()
    yield server
    server.close()


@pytest.fixture
def play(windows, stand_in):
    """Open the playground and wait until it shows an element; foreign requests fail the test."""

    def play(state="", *, shows=READY, language="en-US", width=1200):
        page = windows.open(f"{stand_in.url}/{state}", width=width, locale=language)
        page.wait_for_selector(shows)
        return page

    yield play
    windows.close()  # before the server, which may still get requests
    strangers = [url for url in windows.requested if not url.startswith((stand_in.url, "blob:"))]
    assert strangers == []
