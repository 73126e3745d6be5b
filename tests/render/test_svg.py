"""Colours, PNG files in which every letter is drawn, truncated text and ticks."""

import io
import re
import sys
from itertools import combinations

import numpy as np
import pytest
from expected_errors import raises
from PIL import Image

from polyhead.errors import MissingError
from polyhead.render import svg as svg_module
from polyhead.render.html import base_style
from polyhead.render.svg import (
    FONTS,
    PALETTE,
    document,
    label,
    rasterize,
    round_ticks,
    truncate,
    viridis,
)

# The nine-colour viridis scale as it is published with the R package viridisLite.
PUBLISHED = ("#440154", "#472D7B", "#3B528B", "#2C728E", "#21908C", "#27AD81", "#5DC863", "#AADC32",
             "#FDE725")  # fmt: skip

# Simulation of colour blindness in linear RGB (Machado et al. 2009).
BLINDNESS = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998]],
    "green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
              [-0.011820, 0.042940, 0.968881]],
    "blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
             [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def rgb(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def test_viridis_is_the_published_scale():
    for step, colour in enumerate(PUBLISHED):
        assert np.abs(rgb(viridis(step / 8)) - rgb(colour)).max() <= 2


def test_viridis_is_constant_outside_of_0_to_1():
    assert viridis(0) == viridis(-1) == PUBLISHED[0].lower()
    assert viridis(1) == viridis(1.0000001) == PUBLISHED[-1].lower()


def test_viridis_is_monotonic_in_brightness():
    brightness = [rgb(viridis(t)) @ [0.2126, 0.7152, 0.0722] for t in np.linspace(0, 1, 200)]
    assert (np.diff(brightness) > -0.5).all()


def perceived(colour, blindness):
    """CIE Lab of a colour as seen with a kind of colour blindness."""
    channel = rgb(colour) / 255
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(BLINDNESS[blindness]) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ linear / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def page_palettes():
    """Return the colours of heads in the light and the dark theme."""
    colours = re.findall(r"--head-\d: (#\w+);", base_style())
    return {"light": colours[:8], "dark": colours[8:]}


def test_drawings_and_pages_have_the_same_palette():
    assert page_palettes()["light"] == list(PALETTE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_palette_is_distinguishable_with_every_kind_of_colour_vision(scheme, blindness):
    # Okabe and Ito's well-known eight colours come as near as 16 in the same measure.
    seen = [perceived(colour, blindness) for colour in page_palettes()[scheme]]
    assert len(seen) == 8
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 20


# PNG


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def skip_without_hangul_font():
    try:
        rasterize(letter("가"))
    except MissingError as problem:
        pytest.skip(str(problem))


def letter(text):
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="60" '
        f'font-family="{FONTS}"><rect width="60" height="60" fill="#fff"/>'
        f'<text x="10" y="45" font-size="40">{text}</text></svg>'
    )


def test_hangul_is_drawn_as_letters_and_not_as_boxes():
    skip_without_hangul_font()
    box = pixels(rasterize(letter("\U0010fffd")))  # no font has this
    images = [pixels(rasterize(letter(text))) for text in "학교힣"]
    for image in images:
        assert (image != box).any()
        assert (image < 128).all(axis=2).sum() > 50  # ink
    for first, second in combinations(images, 2):
        assert (first != second).any()


def test_without_resvg_the_message_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with raises(MissingError, "missing_package", "pip install"):
        rasterize(letter("a"))


@pytest.mark.parametrize(
    ("text", "package"),
    [("학교", "fonts-nanum"), ("水", "fonts-noto-cjk"), ("school", "fonts-dejavu-core")],
)
def test_without_a_font_the_message_names_its_package(text, package, monkeypatch):
    monkeypatch.setattr(svg_module, "RESVG_FONTS", {"skip_system_fonts": True})
    with raises(MissingError, "missing_font", package):
        rasterize(document("", 60, 20, [label(0, 15, text)]))


# Text and ticks


@pytest.mark.parametrize("text", ["나" * 500, "a" * 1_000_000])
def test_long_text_is_truncated_to_its_width(text):
    assert truncate(text, 9).endswith("…")
    assert len(truncate(text, 9)) < 20
    assert truncate("short", 9) == "short"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.7, 12), (0.011, 0.012), (90, 4000)])
def test_ticks_are_few_round_numbers_in_the_range(low, high):
    ticks = list(round_ticks(low, high))
    assert 3 <= len(ticks) <= 7
    assert low <= ticks[0]
    assert ticks[-1] <= high + 1e-9
    step = ticks[1] - ticks[0]
    assert float(f"{step:.3e}".split("e")[0]) in (1, 2, 5)
    np.testing.assert_allclose(np.diff(ticks), step)
