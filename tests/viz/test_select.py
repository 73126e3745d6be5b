"""What is chosen of a view is what is drawn, and what makes no sense says so."""

import numpy as np
import pytest
from views import build, hashed

from polyhead.errors import ConfigError
from polyhead.render.svg import MASKED
from polyhead.viz.draw_text import drawn, scaled
from polyhead.viz.select import ViewOptions, sheets


@pytest.fixture(scope="module")
def view():
    return build()


@pytest.mark.parametrize(("heads", "together"), [("mean", np.mean), ("max", np.max)])
def test_heads_put_together_are_one_matrix(view, heads, together):
    (sheet,) = sheets(view, ViewOptions("cross", 2, heads))
    (panel,) = sheet.panels
    np.testing.assert_allclose(
        panel.weights, together(view.find("cross", 2).weights, axis=0), rtol=1e-6
    )
    assert panel.name == {"mean": "mean of 8 heads", "max": "largest of 8 heads"}[heads]
    assert panel.name in drawn(view, ViewOptions("cross", 2, heads))


def test_special_tokens_can_be_left_out(view):
    for sheet in sheets(view, ViewOptions(special=False)):
        assert not any(token.special for token in (*sheet.rows, *sheet.columns))
        one = view.find(sheet.kind, sheet.layer)
        down, across = (
            [i for i, token in enumerate(tokens) if not token.special]
            for tokens in (view.rows(one), view.columns(one))
        )
        for panel in sheet.panels:
            expected = one.weights[panel.head - 1][np.ix_(down, across)]
            np.testing.assert_array_equal(panel.weights, expected)
            later = np.array(across)[None, :] > np.array(down)[:, None]
            assert (panel.unseen == (later & (sheet.kind == "decoder"))).all()


def test_what_hashing_hides_is_no_zero_by_choice():
    view = hashed()
    (sheet,) = sheets(view, ViewOptions())
    seen = view.maps[0].seen
    for panel in sheet.panels:
        assert (panel.unseen == ~seen[panel.head - 1]).all()
    assert drawn(view, ViewOptions()).count(MASKED) == (~seen).sum() > 0
    (sheet,) = sheets(view, ViewOptions(heads="mean"))
    assert (sheet.panels[0].unseen == ~seen.any(axis=0)).all()


def test_lines_of_one_word_or_column_leave_the_others_dark(view):
    (sheet,) = sheets(view, ViewOptions(style="lines", column=3))
    assert sheet.lit_columns == {2}
    assert len(sheet.lit_rows) == len(sheet.rows)
    (sheet,) = sheets(view, ViewOptions("decoder", style="lines", word="school", special=False))
    assert {sheet.rows[row].text for row in sheet.lit_rows} == {"sch", "ool"}
    assert len(sheet.lit_columns) == len(sheet.columns)


def test_the_logarithmic_scale_begins_at_a_ten_thousandth():
    assert scaled(1.0) == 1
    assert scaled(0.01) == pytest.approx(0.5)
    assert scaled(1e-4) == pytest.approx(0)
    assert scaled(0.0) == 0


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"heads": "sum"}, "heads 'sum': expected mean, max or numbers of heads"),
        ({"heads": "mean", "style": "lines"}, "heads 'mean': expected numbers of heads for lines"),
        ({"column": 2}, "column 2: only lines can be drawn for one column"),
        ({"column": 11, "style": "lines"}, "column 11: no such column; there are 1 to 10"),
    ],
)
def test_a_wrong_choice_says_what_there_is(view, choice, message):
    with pytest.raises(ConfigError, match=message):
        sheets(view, ViewOptions(**choice))
