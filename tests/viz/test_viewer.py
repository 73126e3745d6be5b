"""The page in a real browser: weights, words and colours as in the view."""

import io

import numpy as np
import pytest
from browsing import canvas_pixels
from PIL import Image
from views import causal, colours, hashed

from polyhead.viz.views import AttentionView

pytestmark = pytest.mark.browser


def shown_colours(page):
    """Return the colours of all cells of the canvas, and whether they are painted."""
    rgba = canvas_pixels(page)
    return rgba[..., :3], rgba[..., 3] == 255


def on_screen(page, x, y):
    """Return the colour of one pixel of a screenshot."""
    shot = page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})
    return Image.open(io.BytesIO(shot)).convert("RGB").getpixel((0, 0))


# Heat-map


def test_pixel_has_the_colour_of_its_weight(view, show):
    page = show(view, "#kind=cross&layer=2&head=3")
    weights = view.find("cross", 2).weights[2]
    box = page.locator("#cells").bounding_box()
    height, width = box["height"] / weights.shape[0], box["width"] / weights.shape[1]
    for row, column in ((0, 0), (3, 7), (9, 9), tuple(np.argwhere(weights == weights.max())[0])):
        seen = on_screen(page, box["x"] + (column + 0.5) * width, box["y"] + (row + 0.5) * height)
        assert seen == tuple(colours(weights[row, column]))


def test_masked_positions_of_a_decoder_are_empty(view, show):
    page = show(view, "#kind=decoder&layer=1&head=1")
    _, painted = shown_colours(page)
    assert (painted == np.tri(len(painted), dtype=bool)).all()
    cell = page.locator("#cells").bounding_box()["width"] / len(painted)
    page.locator("#cells").hover(position={"x": 3.5 * cell, "y": 0.5 * cell})
    assert "masked: later position" in page.locator(".readout").inner_text()


def test_pointer_on_a_cell_shows_its_tokens_and_weight(view, show):
    page = show(view, "#kind=cross&layer=2&head=3")
    weight = view.find("cross", 2).weights[2, 6, 4]
    cell = page.locator("#cells").bounding_box()["width"] / len(view.source.tokens)
    page.locator("#cells").hover(position={"x": 4.5 * cell, "y": 6.5 * cell})
    told = page.locator(".readout").inner_text()
    assert "‘학교’ → ‘sch’" in told
    assert f"{weight:.3f}" in told
    assert "layer 2 · head 3 · after reading ‘to’" in told
    assert page.locator(".name.on").all_inner_texts() == ["학교", "sch"]
    band, post = (page.locator(part).bounding_box() for part in (".band", ".post"))
    box = page.locator("#cells").bounding_box()
    assert band["y"] - box["y"] == pytest.approx(6 * cell, abs=1)
    assert post["x"] - box["x"] == pytest.approx(4 * cell, abs=1)
    page.mouse.move(5, 5)
    assert page.locator(".name.on").count() == 0


def test_entropy_of_each_head_is_shown(view, show):
    page = show(view, "#kind=encoder&layer=3")
    expected = [f"{bits:.1f}" for bits in view.find("encoder", 3).entropy()]
    assert page.locator(".head .chip small").all_inner_texts() == expected
    page.locator("label[for=view-model]").click()
    assert page.locator(".thumbnails small").all_inner_texts()[16:] == expected


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_one_kind_of_attention_is_shown_in_all_views(show, kind):
    page = show(causal(kind))
    for choice in ("view-lines", "view-model", "view-heat"):
        page.locator(f"label[for={choice}]").click()
        assert page.locator(".figure canvas").count() >= 1
    assert page.locator(".kind .chip").count() == 1
    expected = ["p0", "p1", "p2"] if kind == "decoder" else ["t0", "t1", "t2"]
    assert page.locator(".beside-names .name").all_inner_texts() == expected


def test_view_without_maps_shows_a_message(view, show):
    page = show(AttentionView("none", "", view.source, None, (), ()))
    assert page.inner_text("#attention") == "This file contains no attention maps."


def test_page_follows_the_dark_theme(view, show):
    assert sum(on_screen(show(view, scheme="light"), 3, 3)) > 700
    assert sum(on_screen(show(view, scheme="dark"), 3, 3)) < 100


# Attention that does not see everything


def test_pairs_that_hashing_separates_are_empty(show):
    view = hashed()
    (one,) = view.maps
    _, painted = shown_colours(show(view, "#head=2"))
    assert (painted == one.seen[1]).all()
    page = show(view, "#head=mean")
    _, painted = shown_colours(page)
    assert (painted == one.seen.any(axis=0)).all()
    assert "Hatched cells are not visible" in page.inner_text("footer")
    _, painted = shown_colours(show(view, "#head=1&merge=1"))
    assert (painted == view.merged().maps[0].seen[0]).all()
    row, column = np.argwhere(~one.seen[1])[0]
    page = show(view, "#head=2")
    cell = page.locator("#cells").bounding_box()["width"] / 8
    page.locator("#cells").hover(position={"x": (column + 0.5) * cell, "y": (row + 0.5) * cell})
    assert "not visible to this query" in page.inner_text(".readout")


def test_tokens_are_numbered_and_sorted_by_bucket(show):
    view = hashed()
    buckets = view.maps[0].buckets
    page = show(view, "#head=2")
    badges = ".beside-names .bucket"
    assert page.locator(badges).all_inner_texts() == [str(one) for one in buckets[0, 1]]
    page.locator("label[for=round-2]").click()
    assert page.locator(badges).all_inner_texts() == [str(one) for one in buckets[1, 1]]
    page.locator("label[for=sorted]").click()
    assert page.locator(badges).all_inner_texts() == [str(one) for one in sorted(buckets[1, 1])]
    order = np.argsort(buckets[1, 1], kind="stable")
    _, painted = shown_colours(page)
    assert (painted == view.maps[0].seen[1][np.ix_(order, order)]).all()
    page.reload()
    assert page.locator("#sorted").is_checked()
    page.locator("label[for=head-mean]").click()
    assert page.locator(badges).count() == 0
    assert "Select a single head" in page.inner_text("footer")
