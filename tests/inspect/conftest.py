"""A small view to look at, and the browser to look with."""

import os
import shutil

import numpy as np
import pytest

from polyhead.inspect.maps import AttentionMap, AttentionView, Sentence, Token
from polyhead.inspect.page import write

SOURCE = [("저는", 0), ("내일", 1), ("친구", 2), ("와", 2), ("학교", 3), ("에", 3),
          ("갑", 4), ("니다", 4), (".", 5)]  # fmt: skip
TARGET = [("Tom", 1), ("orrow", 1), ("I", 2), ("will", 3), ("go", 4), ("to", 5), ("sch", 6),
          ("ool", 6), (".", 7)]  # fmt: skip
ATTACK = "</script><img src=x onerror='window.hacked=1'><!--{{data}}"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]  # fmt: skip


def softmax(scores):
    exponents = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (exponents / exponents.sum(axis=-1, keepdims=True)).astype(np.float32)


def plausible(random, heads, queries, keys, *, causal):
    """Some heads look at one place, some at a neighbour, some everywhere."""
    distance = np.abs(np.arange(queries)[:, None] * keys / queries - np.arange(keys)[None, :])
    sharpness = random.uniform(0, 1.6, size=(heads, 1, 1))
    scores = random.normal(size=(heads, queries, keys)) * 1.5 - sharpness * distance
    if causal:
        scores = np.where(np.tri(queries, keys, dtype=bool), scores, -np.inf)
    return softmax(scores)


def sentence(text, pieces, *, start=False, end=False):
    tokens = [Token(piece, word) for piece, word in pieces]
    first = [Token("<s>", 0, special=True)] if start else []
    last = [Token("</s>", pieces[-1][1] + 1, special=True)] if end else []
    return Sentence(text, (*first, *tokens, *last))


def build(layers=3, heads=8, seed=1):
    random = np.random.default_rng(seed)
    source = sentence("저는 내일 친구와 학교에 갑니다.", SOURCE, end=True)
    target = sentence("Tomorrow I will go to school.", TARGET, start=True)
    n, m = len(target.tokens), len(source.tokens)
    maps = [
        AttentionMap(kind, layer, plausible(random, heads, q, k, causal=causal), queries, keys)
        for kind, queries, keys, q, k, causal in (
            ("encoder", "source", "source", m, m, False),
            ("decoder", "target", "target", n, n, True),
            ("cross", "target", "source", n, m, False),
        )
        for layer in range(1, layers + 1)
    ]
    predictions = (*(piece for piece, _ in TARGET), "</s>")
    return AttentionView(
        "저는 내일 친구와 학교에 갑니다", "demo, 3 layers", source, target, predictions, tuple(maps)
    )


@pytest.fixture(scope="session")
def view():
    """A Korean sentence and its translation, with invented weights."""
    return build()


@pytest.fixture(scope="session")
def hostile(view):
    """The same view, but every text is an attack."""
    source = Sentence(ATTACK, tuple(Token(ATTACK, token.word) for token in view.source.tokens))
    predictions = tuple(ATTACK for _ in view.predictions)
    return AttentionView(ATTACK, ATTACK, source, view.target, predictions, view.maps)


@pytest.fixture(scope="session")
def chromium():
    """The path of a browser of the Chromium family, or a skip that says how to get one."""
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
    """A running browser, for all tests that look at pages."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a view in an offline window; any request or error on the page fails the test."""
    contexts, problems, requested = [], [], []

    def show(view, state="", width=1200, language="en-US", scheme="light"):
        path = write(view, tmp_path / "page.html")
        context = browser.new_context(
            offline=True,
            viewport={"width": width, "height": 1200},
            locale=language,
            color_scheme=scheme,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: said.type == "error" and problems.append(said.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", lambda request: requested.append(request.url.split("#")[0]))
        page.goto(path.as_uri() + state)
        return page

    yield show
    for context in contexts:
        context.close()
    assert problems == []
    assert set(requested) <= {(tmp_path / "page.html").as_uri()}


@pytest.fixture(scope="session")
def one_text():
    """Makes a model that reads one text and has one kind of attention, looking back evenly."""

    def one_text(kind, n=3, heads=1):
        tokens = tuple(Token(f"t{i}", i) for i in range(n))
        weights = np.tri(n, dtype=np.float32) / np.arange(1, n + 1, dtype=np.float32)[:, None]
        one = AttentionMap(kind, 1, np.tile(weights, (heads, 1, 1)), "source", "source")
        predictions = tuple(f"p{i}" for i in range(n)) if kind == "decoder" else ()
        return AttentionView("one", "", Sentence("t0 t1 t2", tokens), None, predictions, (one,))

    return one_text
