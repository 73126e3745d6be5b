"""Pictures: well-formed, one cell for each weight in the right colour, letters that are letters."""

import io
import re
import sys
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from polyhead.errors import ConfigError, MissingError
from polyhead.render import svg as svg_drawing
from polyhead.render.html import base_style
from polyhead.render.svg import FONTS, MASKED, PALETTE, rasterize, viridis
from polyhead.viz import draw_text as drawing
from polyhead.viz.draw_text import png, svg
from polyhead.viz.views import AttentionMap, AttentionView, Token, TokenizedText

NAMESPACE = "{http://www.w3.org/2000/svg}"

# The nine-colour viridis scale as it is published with the R package viridisLite.
PUBLISHED = ("#440154", "#472D7B", "#3B528B", "#2C728E", "#21908C", "#27AD81", "#5DC863", "#AADC32",
             "#FDE725")  # fmt: skip

# What red-, green- and blue-blind people see, in linear RGB (Machado et al. 2009).
BLINDNESS = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998]],
    "green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
              [-0.011820, 0.042940, 0.968881]],
    "blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
             [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def parsed(picture):
    return ElementTree.fromstring(picture)


def cells(picture):
    """The colours of all cells: one list for each heat-map."""
    groups = [g for g in parsed(picture).iter(f"{NAMESPACE}g") if g.get("class") == "cells"]
    return [[rect.get("fill") for rect in group] for group in groups]


def labels(picture):
    return [text.text for text in parsed(picture).iter(f"{NAMESPACE}text")]


def curves(picture):
    """The opacities of the curves of each head."""
    groups = [g for g in parsed(picture).iter(f"{NAMESPACE}g") if g.get("class") == "head"]
    return {
        int(group.get("data-head")): [float(path.get("stroke-opacity")) for path in group]
        for group in groups
    }


def rgb(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def small(*texts, weights=None, kind="encoder"):
    """A view of one sentence with one map."""
    n = len(texts)
    weights = np.full((1, n, n), 1 / n) if weights is None else np.array(weights)
    one = AttentionMap(kind, 1, weights.astype(np.float32), "source", "source")
    sentence = TokenizedText(" ".join(texts), tuple(Token(text, i) for i, text in enumerate(texts)))
    return AttentionView(texts[0], "", sentence, None, (), (one,))


# Colours


def test_viridis_is_the_published_scale():
    for step, colour in enumerate(PUBLISHED):
        assert np.abs(rgb(viridis(step / 8)) - rgb(colour)).max() <= 2


def test_viridis_ends_where_it_should_and_stays_there():
    assert viridis(0) == viridis(-1) == PUBLISHED[0].lower()
    assert viridis(1) == viridis(1.0000001) == PUBLISHED[-1].lower()


def test_viridis_gets_brighter_all_the_way():
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
    """The colours of heads on the page: by day and by night."""
    colours = re.findall(r"--head-\d: (#\w+);", base_style())
    return {"light": colours[:8], "dark": colours[8:]}


def test_pictures_and_the_page_have_the_same_colours():
    assert page_palettes()["light"] == list(PALETTE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_the_colours_of_heads_stay_apart_for_every_kind_of_colour_vision(scheme, blindness):
    # Okabe and Ito's well-known eight colours come as near as 16 in the same measure.
    seen = [perceived(colour, blindness) for colour in page_palettes()[scheme]]
    assert len(seen) == 8
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 20


# Heat-maps


def test_every_weight_is_a_cell_of_its_colour(view):
    one = view.find("cross", 2)
    expected = [[viridis(float(w)) for w in head.ravel()] for head in one.weights]
    assert cells(svg(view, kind="cross", layer=2)) == expected


def test_only_the_chosen_heads_are_drawn(view):
    everything = cells(svg(view, kind="encoder", layer=1))
    assert cells(svg(view, kind="encoder", layer=1, heads=[3, 8])) == [everything[2], everything[7]]


def test_all_kinds_and_layers_are_drawn_when_none_is_chosen(view):
    assert len(cells(svg(view))) == 3 * 3 * 8
    assert len(cells(svg(view, kind="decoder"))) == 3 * 8
    assert len(cells(svg(view, layer=2))) == 3 * 8


def test_what_a_decoder_may_not_see_is_grey_and_not_zero(view):
    n = len(view.target.tokens)
    for fills in cells(svg(view, kind="decoder", layer=1)):
        grey = np.array(fills).reshape(n, n) == MASKED
        assert (grey == ~np.tri(n, dtype=bool)).all()


def test_rows_and_columns_carry_their_tokens(view):
    found = labels(svg(view, kind="cross", layer=1, heads=[1]))
    assert found[0] == "cross-attention, layer 1"
    assert found[1 : 1 + len(view.predictions)] == list(view.predictions)
    assert found[-len(view.source.tokens) :] == [token.text for token in view.source.tokens]


def test_merging_draws_words(view):
    found = labels(svg(view, kind="cross", layer=1, heads=[1], merge=True))
    assert "school" in found
    assert "친구와" in found
    assert [len(one) for one in cells(svg(view, kind="cross", layer=1, merge=True))] == [8 * 7] * 8


def test_tokens_that_are_markup_or_not_even_text_stay_text():
    odd = ["</text><script>alert(1)</script>", "a&b", "\x00\x0b", "\ud800", "]]>", ""]
    for style in ("heatmap", "lines"):
        picture = svg(small(*odd), style=style)
        assert not list(parsed(picture).iter(f"{NAMESPACE}script"))
        assert {"a&b", "]]>", "\ufffd\ufffd", "\ufffd", "␣"} <= set(labels(picture))


def test_long_labels_are_cut():
    found = labels(svg(small("나" * 500, "a" * 1_000_000)))
    cut = [label for label in found if label.endswith("…")]
    assert len(cut) == 4  # beside the rows and above the columns
    assert max(map(len, cut)) < 20


def test_everything_drawn_stays_inside_the_picture(view):
    root = parsed(svg(view, kind="cross", layer=1))
    width, height = float(root.get("width")), float(root.get("height"))
    for group in root.iter(f"{NAMESPACE}g"):
        if group.get("class") == "cells":
            x, y = map(float, group.get("transform")[len("translate(") :].split(")")[0].split())
            assert x + drawing.CELL * len(view.source.tokens) <= width
            assert y + drawing.CELL * len(view.target.tokens) <= height


# Lines


def test_each_head_has_a_curve_for_each_weight_that_can_be_seen(view):
    weights = view.find("cross", 3).weights
    found = curves(svg(view, style="lines", kind="cross", layer=3))
    assert sorted(found) == list(range(1, 9))
    for head, opacities in found.items():
        strong = weights[head - 1][weights[head - 1] >= 0.01]
        np.testing.assert_allclose(opacities, strong, rtol=1e-3)


def test_a_word_is_found_by_its_number_its_text_and_its_pieces(view):
    weights = view.find("cross", 3).weights
    row = view.predictions.index("sch")

    def drawn(word):
        return sum(map(len, curves(svg(view, style="lines", word=word)).values()))

    piece, other = ((weights[:, i] >= 0.01).sum() for i in (row, row + 1))
    assert drawn("sch") == drawn(row + 1) == piece
    assert drawn("school") == piece + other
    assert drawn(None) == (weights >= 0.01).sum()


def test_lines_show_the_last_layer_of_the_last_kind_when_none_is_chosen(view):
    assert labels(svg(view, style="lines"))[0] == "cross-attention, layer 3"
    assert labels(svg(small("a", "b"), style="lines"))[0] == "encoder self-attention, layer 1"


def test_nine_heads_use_the_eight_colours_again():
    weights = np.full((9, 2, 2), 0.5)
    root = parsed(svg(small("a", "b", weights=weights), style="lines"))
    strokes = [g.get("stroke") for g in root.iter(f"{NAMESPACE}g") if g.get("class") == "head"]
    assert strokes == [*PALETTE, PALETTE[0]]


# What cannot be drawn


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"kind": "middle"}, "kind 'middle': .* it has encoder, decoder, cross"),
        ({"kind": "cross", "layer": 7}, "layer 7: no such cross layer; there are 1, 2, 3"),
        ({"layer": 7}, "layer 7: no such layer; there are 1, 2, 3"),
        ({"heads": [0]}, "head 0: no such head; encoder layer 1 has heads 1 to 8"),
        ({"heads": []}, "heads: none chosen; choose from 1 to 8"),
        ({"style": "pie"}, "style 'pie': no such style; there are heatmap and lines"),
        ({"word": "school"}, "word 'school': only lines"),
        ({"word": "church", "style": "lines"}, "word 'church': no such row; .* 3 ‘I’, 4 ‘will’"),
        ({"word": 11, "style": "lines"}, "word 11: no such row; there are 1 ‘Tom’"),
        ({"word": 0, "style": "lines"}, "word 0: no such row"),
    ],
)
def test_a_wrong_choice_says_what_there_is(view, choice, message):
    with pytest.raises(ConfigError, match=message) as caught:
        svg(view, **choice)
    assert "\n" not in str(caught.value)


def test_a_view_without_maps_says_so(view):
    empty = AttentionView("", "", view.source, None, (), ())
    with pytest.raises(ConfigError, match="holds no attention maps"):
        svg(empty)


def test_a_picture_with_too_many_cells_says_what_to_leave_out():
    n = 300
    with pytest.raises(ConfigError, match=r"270000 cells are too many .* choose a kind, a layer"):
        svg(small(*"x" * n, weights=np.full((3, n, n), 1 / n)))


# PNG


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def hangul_font():
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


def test_png_is_the_same_picture_in_pixels():
    weights = [[[0.25, 0.75], [1.0, 0.0]]]
    view = small("a", "b", weights=weights)
    root = parsed(svg(view))
    group = next(g for g in root.iter(f"{NAMESPACE}g") if g.get("class") == "cells")
    x, y = map(float, group.get("transform")[len("translate(") :].split(")")[0].split())
    image = pixels(png(view, scale=2))
    assert image.shape[1] == pytest.approx(2 * float(root.get("width")), abs=2)
    for row in (0, 1):
        for column in (0, 1):
            right, down = (
                int(2 * (at + drawing.CELL * (i + 0.5))) for at, i in ((x, column), (y, row))
            )
            assert (image[down, right] == rgb(viridis(weights[0][row][column]))).all()


def test_hangul_comes_out_as_letters_and_not_as_boxes():
    hangul_font()
    box = pixels(rasterize(letter("\U0010fffd")))  # no font has this
    drawn = [pixels(rasterize(letter(text))) for text in "학교힣"]
    for image in drawn:
        assert (image != box).any()
        assert (image < 128).all(axis=2).sum() > 50  # ink
    for one, other in combinations(drawn, 2):
        assert (one != other).any()


def test_lines_with_hangul_can_be_drawn_as_png(view):
    hangul_font()
    image = pixels(png(view, style="lines", merge=True, scale=1))
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 100


def test_without_resvg_the_message_says_what_to_install(view, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(MissingError, match=r"pip install 'polyhead\[png\]'"):
        png(view)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("학교", "no installed font has Hangul letters: apt install fonts-nanum"),
        ("水", "no installed font has Chinese or Japanese letters: apt install fonts-noto-cjk"),
        ("school", "no installed font has Latin letters: apt install fonts-dejavu-core"),
    ],
)
def test_without_a_font_for_the_letters_the_message_says_which_to_install(
    text, message, monkeypatch
):
    monkeypatch.setattr(svg_drawing, "RESVG_FONTS", {"skip_system_fonts": True})
    with pytest.raises(MissingError, match=message):
        png(small(text))
