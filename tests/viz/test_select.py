"""Selected heads, rows and columns of a view."""

import numpy as np
import pytest
from views import hashed

from polyhead.render.svg import MASKED
from polyhead.viz.draw_text import draw_text, log_scale
from polyhead.viz.select import ViewOptions, narrow, select_maps


@pytest.mark.parametrize(("heads", "reduce"), [("mean", np.mean), ("max", np.max)])
def test_heads_are_reduced_to_one_matrix(view, heads, reduce):
    (selected,) = select_maps(view, ViewOptions("cross", 2, heads))
    (panel,) = selected.panels
    expected = reduce(view.find("cross", 2).weights, axis=0)
    np.testing.assert_allclose(panel.weights, expected, rtol=1e-6)
    assert panel.name == {"mean": "mean of 8 heads", "max": "largest of 8 heads"}[heads]
    assert panel.name in draw_text(view, ViewOptions("cross", 2, heads))


def test_narrowed_view_has_the_selected_maps_and_heads(view):
    narrowed = narrow(view, ViewOptions("cross", heads=[3, 1]))
    assert [(one.kind, one.layer) for one in narrowed.maps] == [("cross", n) for n in (1, 2, 3)]
    for one in narrowed.maps:
        np.testing.assert_array_equal(one.weights, view.find("cross", one.layer).weights[[2, 0]])


def test_special_tokens_can_be_excluded(view):
    for selected in select_maps(view, ViewOptions(special=False)):
        assert not any(token.special for token in (*selected.rows, *selected.columns))
        one = view.find(selected.kind, selected.layer)
        rows, columns = (
            [i for i, token in enumerate(tokens) if not token.special]
            for tokens in (view.rows(one), view.columns(one))
        )
        for panel in selected.panels:
            expected = one.weights[panel.head - 1][np.ix_(rows, columns)]
            np.testing.assert_array_equal(panel.weights, expected)
            later = np.array(columns)[None, :] > np.array(rows)[:, None]
            assert (panel.unseen == (later & (selected.kind == "decoder"))).all()


def test_pairs_that_hashing_separates_are_masked():
    view = hashed()
    (selected,) = select_maps(view, ViewOptions())
    seen = view.maps[0].seen
    for panel in selected.panels:
        assert (panel.unseen == ~seen[panel.head - 1]).all()
    assert draw_text(view, ViewOptions()).count(MASKED) == (~seen).sum() > 0
    (selected,) = select_maps(view, ViewOptions(heads="mean"))
    assert (selected.panels[0].unseen == ~seen.any(axis=0)).all()


def test_only_the_selected_word_or_column_is_highlighted(view):
    (selected,) = select_maps(view, ViewOptions(style="lines", column=3))
    assert selected.highlighted_columns == {2}
    assert len(selected.highlighted_rows) == len(selected.rows)
    options = ViewOptions("decoder", style="lines", word="school", special=False)
    (selected,) = select_maps(view, options)
    assert {selected.rows[row].text for row in selected.highlighted_rows} == {"sch", "ool"}
    assert len(selected.highlighted_columns) == len(selected.columns)


def test_logarithmic_scale_starts_at_a_ten_thousandth():
    assert [log_scale(w) for w in (1.0, 0.01, 1e-4, 0.0)] == pytest.approx([1, 0.5, 0, 0])
