"""The page of an image view, in a real browser."""

import base64
import json

import numpy as np
import pytest
from browsing import canvas_pixels, eventually
from views import colours, image

pytestmark = pytest.mark.browser
VIEW = image()


def test_json_has_all_weights_and_pixels():
    data = json.loads(VIEW.to_json())
    shape = (data["n_layers"], data["n_heads"], data["rows"], data["columns"])
    assert np.abs(np.array(data["layers"]).reshape(shape) - VIEW.layers).max() < 1e-5
    assert base64.b64decode(data["picture"]["bytes"]) == VIEW.picture.tobytes()


def test_image_and_map_have_the_right_colours(show):
    tab = show(VIEW, "#layer=2&head=3&alone=1")
    assert np.array_equal(canvas_pixels(tab, "#seen")[..., :3], VIEW.picture)
    weights = VIEW.layers[1, 2]
    large = np.kron(colours(weights / weights.max()), np.ones((4, 4, 1)))
    assert np.abs(canvas_pixels(tab, "#map")[..., :3] - large).max() <= 1
    over = canvas_pixels(show(VIEW, "#layer=2&head=3"), "#map")[..., :3]
    mixed = 0.62 * large + 0.38 * VIEW.picture
    assert np.abs(over - mixed).max() <= 2


def test_pointer_and_keys_show_the_weight_of_a_patch(show):
    tab = show(VIEW, "#layer=1&head=mean")
    box = tab.locator("#map").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.75)
    mean = VIEW.layers[0].mean(0)
    assert tab.locator(".readout .pair").inner_text() == "row 2, column 3"
    assert float(tab.locator(".readout strong").inner_text()) == pytest.approx(mean[1, 2], abs=1e-4)
    tab.mouse.move(0, 0)
    tab.focus("#map")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
    assert tab.locator(".readout .pair").inner_text() == "row 1, column 3"
    assert float(tab.locator(".readout strong").inner_text()) == pytest.approx(mean[0, 2], abs=1e-4)


def test_overview_opens_a_head_and_is_translated_to_korean(show):
    tab = show(VIEW, "#view=all", language="ko-KR", scheme="dark")
    assert tab.locator(".thumbnails button").count() == 6
    assert tab.locator("label[for=view-all]").inner_text() == "모든 헤드"
    tab.click("#head-2-1")
    assert tab.locator("figcaption").first.inner_text() == "레이어 2, 헤드 1"
    tab.go_back()
    eventually(tab, tab.locator(".thumbnails button").count, 6)


def test_entropy_of_every_head_is_shown(show):
    shares = VIEW.layers.reshape(2, 3, -1).astype(float)
    shares /= shares.sum(-1, keepdims=True)
    bits = -(shares * np.log2(shares)).sum(-1)
    tab = show(VIEW, "#view=all")
    said = [float(text) for text in tab.locator(".thumbnails small").all_inner_texts()]
    assert said == pytest.approx(bits.ravel(), abs=0.051)
    tab = show(VIEW, "#layer=2")
    said = [float(text) for text in tab.locator(".choice.head small").all_inner_texts()]
    assert said == pytest.approx(bits[1], abs=0.051)
    assert "eight patches alike" in tab.locator("footer").inner_text()
