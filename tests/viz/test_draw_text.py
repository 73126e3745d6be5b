"""Drawings of attention over text: well-formed, with every weight in the right colour."""

import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from expected_errors import raises
from PIL import Image
from views import SVG, colours, one_map, svg_groups, svg_texts, words

from polyhead.errors import ConfigError
from polyhead.render.svg import MASKED, PALETTE, rasterize, viridis
from polyhead.viz.draw_text import CELL, draw_text
from polyhead.viz.select import ViewOptions
from polyhead.viz.views import AttentionView


def svg(view, **options):
    return draw_text(view, ViewOptions(**options))


def cells(picture):
    """Return the colours of all cells: one list for each heat-map."""
    return [[rect.get("fill") for rect in group] for group in svg_groups(picture, "cells")]


def curves(picture):
    """Return the opacities of the curves of each head."""
    return {
        int(group.get("data-head")): [float(path.get("stroke-opacity")) for path in group]
        for group in svg_groups(picture, "head")
    }


def corner(group):
    """Return the place of a heat-map."""
    return map(float, group.get("transform")[len("translate(") :].split(")")[0].split())


def small(*texts, weights=None):
    """Build a view of one sentence with one map."""
    even = np.full((1, len(texts), len(texts)), 1 / len(texts))
    return one_map(words(*([text] for text in texts)), even if weights is None else weights)


# Heat-maps


def test_every_weight_is_a_cell_with_its_colour(view):
    one = view.find("cross", 2)
    expected = [[viridis(float(w)) for w in head.ravel()] for head in one.weights]
    assert cells(svg(view, kind="cross", layer=2)) == expected


def test_only_selected_kinds_layers_and_heads_are_drawn(view):
    assert len(cells(svg(view))) == 3 * 3 * 8
    assert len(cells(svg(view, kind="decoder"))) == len(cells(svg(view, layer=2))) == 3 * 8
    everything = cells(svg(view, kind="encoder", layer=1))
    assert cells(svg(view, kind="encoder", layer=1, heads=[3, 8])) == [everything[2], everything[7]]


def test_masked_positions_of_a_decoder_are_grey(view):
    n = len(view.target.tokens)
    for fills in cells(svg(view, kind="decoder", layer=1)):
        grey = np.array(fills).reshape(n, n) == MASKED
        assert (grey == ~np.tri(n, dtype=bool)).all()


def test_rows_and_columns_are_labelled_with_their_tokens(view):
    found = svg_texts(svg(view, kind="cross", layer=1, heads=[1]))
    assert found[0] == "cross-attention, layer 1"
    assert found[1 : 1 + len(view.predictions)] == list(view.predictions)
    assert found[-len(view.source.tokens) :] == [token.text for token in view.source.tokens]


def test_merging_draws_words(view):
    found = svg_texts(svg(view, kind="cross", layer=1, heads=[1], merge=True))
    assert "school" in found
    assert "친구와" in found
    assert [len(one) for one in cells(svg(view, kind="cross", layer=1, merge=True))] == [8 * 7] * 8


def test_markup_and_invalid_characters_in_tokens_are_escaped():
    odd = ["</text><script>alert(1)</script>", "a&b", "\x00\x0b", "\ud800", "]]>", ""]
    for style in ("heatmap", "lines"):
        picture = svg(small(*odd), style=style)
        assert not list(ElementTree.fromstring(picture).iter(f"{SVG}script"))
        assert {"a&b", "]]>", "\ufffd\ufffd", "\ufffd", "␣"} <= set(svg_texts(picture))


def test_everything_drawn_stays_inside_the_picture(view):
    picture = svg(view, kind="cross", layer=1)
    root = ElementTree.fromstring(picture)
    for group in svg_groups(picture, "cells"):
        x, y = corner(group)
        assert x + CELL * len(view.source.tokens) <= float(root.get("width"))
        assert y + CELL * len(view.target.tokens) <= float(root.get("height"))


# Lines


def test_each_head_has_a_curve_for_each_weight_above_the_threshold(view):
    weights = view.find("cross", 3).weights
    found = curves(svg(view, style="lines", kind="cross", layer=3))
    assert sorted(found) == list(range(1, 9))
    for head, opacities in found.items():
        strong = weights[head - 1][weights[head - 1] >= 0.01]
        np.testing.assert_allclose(opacities, strong, rtol=1e-3)


def test_word_is_selected_by_number_text_or_piece(view):
    weights = view.find("cross", 3).weights
    row = view.predictions.index("sch")

    def n_curves(word):
        return sum(map(len, curves(svg(view, style="lines", word=word)).values()))

    piece, other = ((weights[:, i] >= 0.01).sum() for i in (row, row + 1))
    assert n_curves("sch") == n_curves(row + 1) == piece
    assert n_curves("school") == piece + other
    assert n_curves(None) == (weights >= 0.01).sum()


def test_lines_show_the_last_layer_of_the_last_kind_by_default(view):
    assert svg_texts(svg(view, style="lines"))[0] == "cross-attention, layer 3"
    assert svg_texts(svg(small("a", "b"), style="lines"))[0] == "encoder self-attention, layer 1"


def test_ninth_head_has_the_first_colour_again():
    weights = np.full((9, 2, 2), 0.5)
    picture = svg(small("a", "b", weights=weights), style="lines")
    strokes = [group.get("stroke") for group in svg_groups(picture, "head")]
    assert strokes == [*PALETTE, PALETTE[0]]


def test_png_has_the_same_colours():
    weights = [[[0.25, 0.75], [1.0, 0.0]]]
    drawing = svg(small("a", "b", weights=weights))
    x, y = corner(svg_groups(drawing, "cells")[0])
    image = np.asarray(Image.open(io.BytesIO(rasterize(drawing, 2))).convert("RGB"))
    for row, column in np.ndindex(2, 2):
        right, down = (int(2 * (at + CELL * (i + 0.5))) for at, i in ((x, column), (y, row)))
        assert tuple(image[down, right]) == tuple(colours(weights[0][row][column]))


# Errors


@pytest.mark.parametrize(
    ("options", "code", "mentions"),
    [
        ({"kind": "middle"}, "unknown_kind", ["'middle'", "encoder, decoder, cross"]),
        ({"kind": "cross", "layer": 7}, "unknown_layer", ["layer 7", "1, 2, 3"]),
        ({"kind": "cross", "layer": 0}, "unknown_layer", ["layer 0", "1, 2, 3"]),
        ({"layer": 7}, "unknown_layer", ["layer 7", "1, 2, 3"]),
        ({"heads": [0]}, "unknown_head", ["head 0", "1 to 8"]),
        ({"heads": []}, "no_heads", ["1 to 8"]),
        ({"heads": "sum"}, "unknown_head", ["'sum'", "mean, max"]),
        ({"heads": "mean", "style": "lines"}, "unknown_head", ["'mean'"]),
        ({"style": "pie"}, "unknown_style", ["'pie'", "heatmap or lines"]),
        ({"word": "school"}, "requires_lines", ["'school'"]),
        ({"column": 2}, "requires_lines", ["column 2"]),
        ({"column": 11, "style": "lines"}, "unknown_column", ["column 11", "1 to 10"]),
        ({"word": "church", "style": "lines"}, "unknown_word", ["'church'", "3 ‘I’, 4 ‘will’"]),
        ({"word": 11, "style": "lines"}, "unknown_word", ["11"]),
        ({"word": 0, "style": "lines"}, "unknown_word", ["0"]),
    ],
)
def test_wrong_options_list_the_right_ones(view, options, code, mentions):
    with raises(ConfigError, code, *mentions) as caught:
        svg(view, **options)
    assert "\n" not in str(caught.value)


def test_views_with_no_maps_or_too_many_cells_are_not_drawn(view):
    with raises(ConfigError, "no_attention"):
        svg(AttentionView("", "", view.source, None, (), ()))
    with raises(ConfigError, "too_many_cells", "270000", "a kind, a layer or heads"):
        svg(small(*"x" * 300, weights=np.full((3, 300, 300), 1 / 300)))
