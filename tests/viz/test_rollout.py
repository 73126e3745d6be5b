"""Attention over a picture: roll-out by hand, and a page that shows it truly."""

import base64
import html
import itertools
import json
import re

import numpy as np
import pytest
import torch

from polyhead.render.svg import viridis
from polyhead.viz import image_page
from polyhead.viz.image_page import ImageView
from polyhead.viz.rollout import by_patch, rollout

ATTACK = "</script><img src=x onerror='window.hacked=1'><!--{{data}}"


def test_rollout_sums_over_all_paths():
    """Brute force: every way through the layers, each step half attention, half staying."""
    torch.manual_seed(0)
    layers = [torch.rand(2, 4, 4).softmax(-1) for _ in range(3)]
    expected = torch.zeros(4, 4)
    for path in itertools.product(range(4), repeat=4):  # from the last layer down to the first
        share = 1.0
        for weights, (asking, asked) in zip(
            reversed(layers), itertools.pairwise(path), strict=True
        ):
            share *= 0.5 * weights[:, asking, asked].mean().item() + 0.5 * (asking == asked)
        expected[path[0], path[-1]] += share
    found = rollout(layers)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(-1), torch.ones(4))


def test_without_any_attention_everything_stays_where_it_was():
    stay = torch.eye(5).expand(3, 5, 5)
    assert torch.equal(rollout([stay, stay]), torch.eye(5))


def test_patches_are_read_row_by_row_from_the_class_token_or_the_mean():
    weights = torch.arange(49.0).view(7, 7)
    assert by_patch(weights, (2, 3)).tolist() == [[1, 2, 3], [4, 5, 6]]
    mean = torch.arange(36.0).view(6, 6)
    assert by_patch(mean, (2, 3)).tolist() == [[15, 16, 17], [18, 19, 20]]
    assert by_patch(torch.zeros(4, 2, 7, 7), (3, 2)).shape == (4, 2, 3, 2)
    with pytest.raises(ValueError, match="7 tokens are not a grid of 2 x 2 patches"):
        by_patch(weights, (2, 2))


# The page


@pytest.fixture(scope="module")
def picture_view():
    draw = np.random.default_rng(0)
    return ImageView(
        title="cat.png → cat",
        model="runs/pets",
        picture=draw.integers(0, 256, (8, 12, 3), dtype=np.uint8),
        labels=(("cat", 0.75), ("dog", 0.2)),
        pooled="class",
        layers=draw.random((2, 3, 2, 3)).astype(np.float32) / 6,
        rollout=draw.random((2, 3)).astype(np.float32) / 6,
    )


@pytest.fixture
def open_page(browser, tmp_path):
    """Open a page offline; any error or request on it fails the test."""
    contexts, problems = [], []

    def open_page(view, state="", language="en-US", scheme="light"):
        path = image_page.write(view, tmp_path / "page.html")
        context = browser.new_context(offline=True, locale=language, color_scheme=scheme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda said: said.type == "error" and problems.append(said.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda r: r.url.split("#")[0] == path.as_uri() or problems.append(r.url))
        tab.goto(path.as_uri() + state)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def pixels(tab, name):
    found = tab.evaluate(
        """(name) => { const canvas = document.getElementById(name);
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return [canvas.height, canvas.width, ...data]; }""",
        name,
    )
    return np.array(found[2:]).reshape(found[0], found[1], 4)[..., :3]


def test_the_page_is_one_harmless_file(picture_view):
    whole = image_page.render(picture_view)
    assert len(whole.encode()) - len(picture_view.to_json()) < 60_000
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(", whole)
    evil = ImageView(ATTACK, ATTACK, picture_view.picture, ((ATTACK, 1.0),), "mean",
                     picture_view.layers, picture_view.rollout)  # fmt: skip
    assert image_page.render(evil).count("</script>") == whole.count("</script>") == 2


def test_the_numbers_survive_the_way_to_json(picture_view):
    data = json.loads(picture_view.to_json())
    shape = (data["n_layers"], data["n_heads"], data["rows"], data["columns"])
    assert np.abs(np.array(data["layers"]).reshape(shape) - picture_view.layers).max() < 1e-5
    assert base64.b64decode(data["picture"]["bytes"]) == picture_view.picture.tobytes()


def test_the_picture_and_the_map_have_the_right_colours(picture_view, open_page):
    tab = open_page(picture_view, "#layer=2&head=3&alone=1")
    assert np.array_equal(pixels(tab, "seen"), picture_view.picture)
    weights = picture_view.layers[1, 2]
    hexes = [[viridis(float(w / weights.max())) for w in row] for row in weights]
    colours = np.array([[[int(h[i : i + 2], 16) for i in (1, 3, 5)] for h in row] for row in hexes])
    large = np.kron(colours, np.ones((4, 4, 1)))
    assert np.abs(pixels(tab, "map") - large).max() <= 1
    over = pixels(open_page(picture_view, "#layer=2&head=3"), "map")
    mixed = 0.62 * large + 0.38 * picture_view.picture
    assert np.abs(over - mixed).max() <= 2


def test_pointing_and_keys_tell_the_weight_of_a_patch(picture_view, open_page):
    tab = open_page(picture_view, "#layer=1&head=mean")
    box = tab.locator("#map").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.75)
    mean = picture_view.layers[0].mean(0)
    assert tab.locator(".readout .pair").inner_text() == "row 2, column 3"
    assert float(tab.locator(".readout strong").inner_text()) == pytest.approx(mean[1, 2], abs=1e-4)
    tab.mouse.move(0, 0)
    tab.focus("#map")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
    assert tab.locator(".readout .pair").inner_text() == "row 1, column 3"
    assert float(tab.locator(".readout strong").inner_text()) == pytest.approx(mean[0, 2], abs=1e-4)


def test_all_heads_open_one_and_the_page_speaks_korean(picture_view, open_page):
    tab = open_page(picture_view, "#view=all", language="ko-KR", scheme="dark")
    assert tab.locator(".thumbnails button").count() == 6
    assert tab.locator("label[for=view-all]").inner_text() == "모든 헤드"
    tab.click("#head-2-1")
    assert tab.locator("figcaption").first.inner_text() == "레이어 2, 헤드 1"
    tab.go_back()
    assert tab.locator(".thumbnails button").count() == 6


def test_every_head_says_how_spread_out_it_is(picture_view, open_page):
    shares = picture_view.layers.reshape(2, 3, -1).astype(float)
    shares /= shares.sum(-1, keepdims=True)
    bits = -(shares * np.log2(shares)).sum(-1)
    tab = open_page(picture_view, "#view=all")
    said = [float(text) for text in tab.locator(".thumbnails small").all_inner_texts()]
    assert said == pytest.approx(bits.ravel(), abs=0.051)
    tab = open_page(picture_view, "#layer=2")
    said = [float(text) for text in tab.locator(".choice.head small").all_inner_texts()]
    assert said == pytest.approx(bits[1], abs=0.051)
    assert "eight patches alike" in tab.locator("footer").inner_text()


def test_a_notebook_shows_the_picture_in_a_frame(picture_view):
    shown = html.unescape(picture_view._repr_html_())
    assert shown.startswith("<iframe srcdoc=")
    assert image_page.render(picture_view) in shown
