"""Small views, and a browser that opens their pages."""

import numpy as np
import pytest
from views import build

from polyhead.viz.tokens import Token
from polyhead.viz.views import AttentionMap, AttentionView, TokenizedText
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


@pytest.fixture(scope="session")
def one_text():
    """Return a function that builds a view of one text with even, causal attention."""

    def one_text(kind, n=3, heads=1):
        tokens = tuple(Token(f"t{i}", i) for i in range(n))
        weights = np.tri(n, dtype=np.float32) / np.arange(1, n + 1, dtype=np.float32)[:, None]
        one = AttentionMap(kind, 1, np.tile(weights, (heads, 1, 1)), "source", "source")
        predictions = tuple(f"p{i}" for i in range(n)) if kind == "decoder" else ()
        return AttentionView(
            "one", "", TokenizedText("t0 t1 t2", tokens), None, predictions, (one,)
        )

    return one_text
