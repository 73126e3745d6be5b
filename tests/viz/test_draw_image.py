"""Drawings of an image model's attention: the image, and every map over it."""

import base64
import io
import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from expected_errors import raises
from PIL import Image
from views import SVG, colours, image, svg_groups, svg_texts

from polyhead.errors import ConfigError
from polyhead.render.svg import rasterize, viridis
from polyhead.viz import draw_text
from polyhead.viz.draw_image import OPACITY, ImageViewOptions, draw_image, to_png
from polyhead.viz.page import read
from polyhead.viz.views import ImageView

ATTACK = "<script>alert(1)</script>]]>\x00&\ud800"


@pytest.fixture(scope="module")
def view():
    return image()


def parsed(picture):
    return ElementTree.fromstring(picture)


def maps(picture):
    """Return the colours and the opacity of every map."""
    groups = svg_groups(picture, "cells")
    return [([rect.get("fill") for rect in group], group.get("fill-opacity")) for group in groups]


def fills(weights):
    return [viridis(float(weight / weights.max())) for weight in weights.ravel()]


def place(use):
    """Return corner and scale of an image in a drawing."""
    corner, scale = use.get("transform").removeprefix("translate(").split(") scale(")
    return *map(float, corner.split()), float(scale.rstrip(")"))


def selected(view, options):
    """Return the weights of the selected maps, in order."""
    layers = range(2) if options.layer is None else [options.layer - 1]
    heads = range(3) if options.heads is None else [head - 1 for head in options.heads]
    rollout = [view.rollout] if options == ImageViewOptions(alone=options.alone) else []
    return [*rollout, *(view.layers[layer, head] for layer in layers for head in heads)]


@pytest.mark.parametrize("channels", [1, 3])
def test_png_is_read_by_pillow(channels):
    picture = np.random.default_rng(1).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    found = np.asarray(Image.open(io.BytesIO(to_png(picture))))
    assert np.array_equal(np.atleast_3d(found), picture)


def test_image_is_in_the_file_once_and_under_every_map(view):
    whole = parsed(draw_image(view, ImageViewOptions()))
    (image,) = whole.iter(f"{SVG}image")
    kind, data = image.get("href").split(",")
    assert kind == "data:image/png;base64"
    assert np.array_equal(Image.open(io.BytesIO(base64.b64decode(data))), view.picture)
    used = [use.get("href") for use in whole.iter(f"{SVG}use")]
    assert used == [f"#{image.get('id')}"] * 8  # itself, the roll-out, six heads
    other = replace(view, picture=255 - view.picture)
    (image_of_other,) = parsed(draw_image(other, ImageViewOptions())).iter(f"{SVG}image")
    assert image_of_other.get("id") != image.get("id")  # two drawings on one page


@pytest.mark.parametrize(
    "options",
    [ImageViewOptions(), ImageViewOptions(layer=2), ImageViewOptions(heads=[3, 1]),
     ImageViewOptions(1, [2]), ImageViewOptions(alone=True)],
)  # fmt: skip
def test_every_selected_map_has_its_fills(view, options):
    opacity = None if options.alone else f"{OPACITY:g}"
    expected = [(fills(weights), opacity) for weights in selected(view, options)]
    assert maps(draw_image(view, options)) == expected


def test_rollout_and_reduced_heads_are_one_map(view):
    reduced = {"mean": view.layers[1].mean(0), "max": view.layers[1].max(0)}
    for reduction, weights in reduced.items():
        ((colours_drawn, _),) = maps(draw_image(view, ImageViewOptions(2, reduction)))
        assert colours_drawn == fills(weights)
    ((colours_drawn, _),) = maps(draw_image(view, ImageViewOptions("rollout")))
    assert colours_drawn == fills(view.rollout)


def test_classes_and_names_are_labelled(view):
    said = svg_texts(draw_image(view, ImageViewOptions(2, "mean")))
    most = f"{view.layers[1].mean(0).max():.2g}"
    assert said == ["cat.png → cat", "75.0 %", "cat", "20.0 %", "dog", "input image",
                    f"layer 2, mean of 3 heads · 0 to {most}"]  # fmt: skip
    names = [text.split(" · ")[0] for text in svg_texts(draw_image(view, ImageViewOptions()))[5:]]
    heads = [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2, 3)]
    assert names == ["input image", "roll-out", *heads]


def test_maps_are_inside_the_drawing_and_do_not_overlap(view):
    for options in (ImageViewOptions(), ImageViewOptions(1), ImageViewOptions(1, "max")):
        whole = parsed(draw_image(view, options))
        right, bottom = (float(whole.get(side)) for side in ("width", "height"))
        corners = []
        for use in whole.iter(f"{SVG}use"):
            x, y, scale = place(use)
            corners.append((x, y))
            assert x + 12 * scale <= right
            assert y + 8 * scale <= bottom
        assert len(set(corners)) == len(corners)


def test_names_do_not_overlap(view):
    many = replace(view, layers=np.full((12, 16, 2, 3), 0.0123, np.float32))
    for options in (ImageViewOptions(), ImageViewOptions(heads="mean")):
        found = {}
        for text in parsed(draw_image(many, options)).iter(f"{SVG}text"):
            if " · " in text.text:
                found.setdefault(text.get("y"), []).append((float(text.get("x")), text.text))
        for row in found.values():
            for (x, name), (beside, _) in itertools.pairwise(row):
                assert x + 6.6 * len(name) < beside


def test_pixels_mix_the_map_and_the_image(view):
    drawing = draw_image(view, ImageViewOptions(2, [3]))
    _, over = parsed(drawing).iter(f"{SVG}use")
    x, y, scale = place(over)
    seen = np.asarray(Image.open(io.BytesIO(rasterize(drawing, 1))).convert("RGB"))
    map_colours = colours(view.layers[1, 2] / view.layers[1, 2].max())
    for row, column in np.ndindex(8, 12):
        map_colour = map_colours[row // 4, column // 4]
        expected = OPACITY * map_colour + (1 - OPACITY) * view.picture[row, column]
        found = seen[int(y + (row + 0.5) * scale), int(x + (column + 0.5) * scale)]
        assert np.abs(found - expected).max() <= 3
    assert f"OPACITY = {OPACITY};" in read("picture.js")  # as on the page


def test_markup_in_names_is_escaped(view):
    evil = ImageView(ATTACK, ATTACK, view.picture, ((ATTACK, 1.0), ("x" * 999, 0.0)), "mean",
                     view.layers, view.rollout)  # fmt: skip
    picture = draw_image(evil, ImageViewOptions())
    assert "<script" not in picture
    said = svg_texts(picture)
    assert said[2].startswith("<script>alert(1)")
    assert said[4].endswith("…")
    assert float(parsed(picture).get("width")) < 900


@pytest.mark.parametrize(
    ("options", "code", "mentions"),
    [
        ((3,), "unknown_layer", ["layer 3", "1 to 2"]),
        ((0,), "unknown_layer", ["layer 0"]),
        (("all",), "unknown_layer", ["'all'", "rollout"]),
        ((1, [4]), "unknown_head", ["head 4", "1 to 3"]),
        ((1, [0]), "unknown_head", ["head 0"]),
        ((1, []), "no_heads", ["1 to 3"]),
        ((1, "sum"), "unknown_head", ["'sum'", "mean, max"]),
        (("rollout", [1]), "unknown_head", ["roll-out"]),
    ],
)
def test_wrong_options_list_the_right_ones(view, options, code, mentions):
    with raises(ConfigError, code, *mentions):
        draw_image(view, ImageViewOptions(*options))


def test_too_many_cells_are_refused(view, monkeypatch):
    monkeypatch.setattr(draw_text, "MAX_CELLS", 41)
    with raises(ConfigError, "too_many_cells", "42", "a layer or heads"):
        draw_image(view, ImageViewOptions())
    draw_image(view, ImageViewOptions(1))
