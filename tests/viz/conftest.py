"""Small views, and a browser that opens their pages."""

import pytest
from views import build

from polyhead.viz.writer import write_view


@pytest.fixture(scope="session")
def view():
    """Return a Korean sentence and its translation, with random weights."""
    return build()


@pytest.fixture
def show(windows, tmp_path):
    """Open a view in an offline window; a request or an error on the page fails the test."""

    def show(view, state="", width=1200, language="en-US", scheme="light"):
        path = tmp_path / "page.html"
        write_view(view, path)
        return windows.open(
            path.as_uri() + state, width=width, offline=True, locale=language, color_scheme=scheme
        )

    yield show
    assert set(windows.requested) <= {(tmp_path / "page.html").as_uri()}
