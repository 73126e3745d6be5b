"""Pictures of where an image model looks: the picture itself, and every map over it."""

import base64
import io
import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from polyhead.errors import ConfigError
from polyhead.render.svg import rasterize, viridis
from polyhead.viz import draw_text as drawing
from polyhead.viz.draw_image import OPAQUE, ImageViewOptions, drawn, png_of
from polyhead.viz.image_page import ImageView
from polyhead.viz.page import read

NAMESPACE = "{http://www.w3.org/2000/svg}"
ATTACK = "<script>alert(1)</script>]]>\x00&\ud800"


@pytest.fixture(scope="module")
def view():
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


def parsed(picture):
    return ElementTree.fromstring(picture)


def labels(picture):
    return [text.text for text in parsed(picture).iter(f"{NAMESPACE}text")]


def maps(picture):
    """The colours of every map, and how opaque it is."""
    groups = [g for g in parsed(picture).iter(f"{NAMESPACE}g") if g.get("class") == "cells"]
    return [([rect.get("fill") for rect in g], g.get("fill-opacity")) for g in groups]


def colours(weights):
    return [viridis(float(weight / weights.max())) for weight in weights.ravel()]


def chosen(view, choice):
    """What is to be seen of the view, in order."""
    layers = range(2) if choice.layer is None else [choice.layer - 1]
    heads = range(3) if choice.heads is None else [head - 1 for head in choice.heads]
    rollout = [view.rollout] if choice == ImageViewOptions(alone=choice.alone) else []
    return [*rollout, *(view.layers[layer, head] for layer in layers for head in heads)]


@pytest.mark.parametrize("channels", [1, 3])
def test_the_picture_is_a_png_that_others_can_read(channels):
    picture = np.random.default_rng(1).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    found = np.asarray(Image.open(io.BytesIO(png_of(picture))))
    assert np.array_equal(np.atleast_3d(found), picture)


def test_the_picture_stands_in_the_file_once_and_under_every_map(view):
    whole = parsed(drawn(view, ImageViewOptions()))
    (image,) = whole.iter(f"{NAMESPACE}image")
    kind, data = image.get("href").split(",")
    assert kind == "data:image/png;base64"
    assert np.array_equal(Image.open(io.BytesIO(base64.b64decode(data))), view.picture)
    used = [use.get("href") for use in whole.iter(f"{NAMESPACE}use")]
    assert used == [f"#{image.get('id')}"] * 8  # itself, the roll-out, six heads
    other = replace(view, picture=255 - view.picture)
    (image_of_other,) = parsed(drawn(other, ImageViewOptions())).iter(f"{NAMESPACE}image")
    assert image_of_other.get("id") != image.get("id")  # on one page they are not mistaken


@pytest.mark.parametrize(
    "choice",
    [ImageViewOptions(), ImageViewOptions(layer=2), ImageViewOptions(heads=[3, 1]),
     ImageViewOptions(1, [2]),
     ImageViewOptions(alone=True)],
)  # fmt: skip
def test_every_map_that_is_chosen_has_its_colours(view, choice):
    opacity = None if choice.alone else f"{OPAQUE:g}"
    expected = [(colours(weights), opacity) for weights in chosen(view, choice)]
    assert maps(drawn(view, choice)) == expected


def test_the_roll_out_and_heads_put_together_are_one_map(view):
    together = {"mean": view.layers[1].mean(0), "max": view.layers[1].max(0)}
    for way, weights in together.items():
        ((found, _),) = maps(drawn(view, ImageViewOptions(2, way)))
        assert found == colours(weights)
    ((found, _),) = maps(drawn(view, ImageViewOptions("rollout")))
    assert found == colours(view.rollout)


def test_the_answer_and_the_names_can_be_read(view):
    said = labels(drawn(view, ImageViewOptions(2, "mean")))
    most = f"{view.layers[1].mean(0).max():.2g}"
    assert said == ["cat.png → cat", "75.0 %", "cat", "20.0 %", "dog", "what the model saw",
                    f"layer 2, mean of 3 heads · 0 to {most}"]  # fmt: skip
    names = [text.split(" · ")[0] for text in labels(drawn(view, ImageViewOptions()))[5:]]
    heads = [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2, 3)]
    assert names == ["what the model saw", "roll-out", *heads]


def test_everything_stands_within_the_picture_and_nothing_on_something_else(view):
    for choice in (ImageViewOptions(), ImageViewOptions(1), ImageViewOptions(1, "max")):
        whole = parsed(drawn(view, choice))
        right, bottom = (float(whole.get(side)) for side in ("width", "height"))
        corners = []
        for use in whole.iter(f"{NAMESPACE}use"):
            x, y = map(float, use.get("transform").split(")")[0].removeprefix("translate(").split())
            scale = float(use.get("transform").split("scale(")[1].rstrip(")"))
            corners.append((x, y))
            assert x + 12 * scale <= right
            assert y + 8 * scale <= bottom
        assert len(set(corners)) == len(corners)


def test_names_do_not_run_into_each_other(view):
    many = replace(view, layers=np.full((12, 16, 2, 3), 0.0123, np.float32))
    for choice in (ImageViewOptions(), ImageViewOptions(heads="mean")):
        found = {}
        for text in parsed(drawn(many, choice)).iter(f"{NAMESPACE}text"):
            if " · " in text.text:
                found.setdefault(text.get("y"), []).append((float(text.get("x")), text.text))
        for row in found.values():
            for (x, name), (beside, _) in itertools.pairwise(row):
                assert x + 6.6 * len(name) < beside


def test_a_pixel_is_the_map_over_the_picture(view):
    choice = ImageViewOptions(2, [3])
    whole = parsed(drawn(view, choice))
    _, over = whole.iter(f"{NAMESPACE}use")
    x, y = map(float, over.get("transform").split(")")[0].removeprefix("translate(").split())
    scale = float(over.get("transform").split("scale(")[1].rstrip(")"))
    seen = np.asarray(Image.open(io.BytesIO(rasterize(drawn(view, choice), 1))).convert("RGB"))
    fills = np.array([list(bytes.fromhex(c[1:])) for c in colours(view.layers[1, 2])])
    for row, column in np.ndindex(8, 12):
        map_colour = fills.reshape(2, 3, 3)[row // 4, column // 4]
        expected = OPAQUE * map_colour + (1 - OPAQUE) * view.picture[row, column]
        found = seen[int(y + (row + 0.5) * scale), int(x + (column + 0.5) * scale)]
        assert np.abs(found - expected).max() <= 3
    assert f"OPAQUE = {OPAQUE};" in read("picture.js")  # as on the page


def test_hostile_names_are_only_text(view):
    evil = ImageView(ATTACK, ATTACK, view.picture, ((ATTACK, 1.0), ("x" * 999, 0.0)), "mean",
                     view.layers, view.rollout)  # fmt: skip
    picture = drawn(evil, ImageViewOptions())
    assert "<script" not in picture
    said = labels(picture)
    assert said[2].startswith("<script>alert(1)")
    assert said[4].endswith("…")
    assert float(parsed(picture).get("width")) < 900


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((3,), "layer 3: no such layer; there are 1 to 2"),
        ((0,), "layer 0: no such layer"),
        (("all",), "layer 'all': expected rollout or a number"),
        ((1, [4]), "head 4: no such head; there are 1 to 3"),
        ((1, [0]), "head 0: no such head"),
        ((1, []), "heads: none chosen; choose from 1 to 3"),
        ((1, "sum"), "heads 'sum': expected mean, max or numbers of heads"),
        (("rollout", [1]), "the roll-out is one map of all heads"),
    ],
)
def test_what_does_not_exist_cannot_be_drawn(view, words, error):
    with pytest.raises(ConfigError, match=error):
        drawn(view, ImageViewOptions(*words))


def test_too_many_cells_are_refused(view, monkeypatch):
    monkeypatch.setattr(drawing, "MAX_CELLS", 41)
    with pytest.raises(ConfigError, match=r"42 cells are too many .* choose a layer or heads"):
        drawn(view, ImageViewOptions())
    drawn(view, ImageViewOptions(1))
