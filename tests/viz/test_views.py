"""Attention views: merged words, JSON round trips and invalid values."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from expected_errors import raises
from hypothesis import given
from hypothesis import strategies as st
from views import hashed, image, one_map, words

from polyhead.errors import DataError
from polyhead.render.html import iframe
from polyhead.viz.page import render
from polyhead.viz.views import AttentionMap, AttentionView

PIECES = st.lists(st.text(max_size=4), min_size=1, max_size=4)
RECIPES = st.tuples(  # words of pieces, number of heads, layer, seed
    st.lists(PIECES, min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)


def random_view(recipe):
    """Build a view of a random sentence with random weights whose rows sum to one."""
    pieces, heads, layer, seed = recipe
    sentence = words(*pieces)
    n = len(sentence.tokens)
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.full(n, 0.3), size=(heads, n)).astype(np.float32)
    return one_map(sentence, weights, layer=layer, title=pieces[0][0], model=pieces[-1][0])


# Words


@given(RECIPES)
def test_merging_sums_columns_and_averages_rows(recipe):
    view = random_view(recipe)
    weights, merged = view.maps[0].weights, view.merged().maps[0].weights
    places = np.array([token.word for token in view.source.tokens])
    for row, column in np.ndindex(*merged.shape[1:]):
        block = weights[:, places == row][:, :, places == column].astype(np.float64)
        expected = block.sum(axis=2).mean(axis=1)
        np.testing.assert_allclose(merged[:, row, column], expected, atol=1e-6)
    np.testing.assert_allclose(merged.sum(axis=2), 1, atol=1e-6)
    assert view.merged().merged() == view.merged()


def test_words_are_merged_and_special_tokens_are_not(view):
    merged = view.merged()
    source = [token.text for token in merged.source.tokens]
    assert source == ["저는", "내일", "친구와", "학교에", "갑니다", ".", "</s>"]
    assert [token.special for token in merged.source.tokens] == [False] * 6 + [True]
    target = [token.text for token in merged.target.tokens]
    assert target == ["<s>", "Tomorrow", "I", "will", "go", "to", "school", "."]
    assert merged.predictions == ("Tomorrow", "I", "will", "go", "to", "school", ".", "</s>")


def test_rows_of_a_decoder_are_merged_by_the_word_they_write(view):
    cross, merged = view.find("cross", 1).weights, view.merged().find("cross", 1).weights
    # rows 0 and 1 write "Tom" and "orrow"; columns 2 and 3 are "친구" and "와"
    by_hand = cross[:, 0:2, 2:4].astype(np.float64).sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(merged[:, 0, 2], by_hand, atol=1e-6)
    weights = [[[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]]]  # a text without a start token
    written = ("ool", "is", "</s>")
    text = one_map(words(["sch", "ool"], ["is"]), weights, "decoder", predictions=written).merged()
    assert text.predictions == written
    np.testing.assert_allclose(text.maps[0].weights, [[[1, 0], [1, 0], [0.5, 0.5]]], atol=1e-6)
    assert text.merged() == text


def test_rows_are_named_by_written_tokens_and_columns_by_read_tokens(view):
    cross = view.find("cross", 1)
    assert [token.text for token in view.rows(cross)] == list(view.predictions)
    assert view.columns(cross) == view.source.tokens
    assert view.columns(view.find("decoder", 1)) == view.target.tokens
    assert view.rows(view.find("encoder", 1)) == view.source.tokens
    assert [token.special for token in view.written] == [False] * 9 + [True]
    assert replace(view, predictions=()).rows(cross) == view.target.tokens


# Entropy


def test_entropy_is_zero_for_one_key_and_log2_n_for_n_keys_alike():
    for n in (1, 2, 5, 8):
        same, one = np.full((n, n), 1 / n), np.eye(n)
        view = one_map(words(*[["x"]] * n), [same, one])
        assert view.find("encoder", 1).entropy() == pytest.approx((np.log2(n), 0), abs=1e-6)


# JSON


@given(RECIPES)
def test_json_round_trip_is_exact(recipe):
    view = random_view(recipe)
    again = AttentionView.from_json(view.to_json())
    assert again == view
    for one, other in zip(view.maps, again.maps, strict=True):
        assert one.weights.tobytes() == other.weights.tobytes()
        assert other.weights.dtype == np.float32


def test_json_round_trip_with_target_predictions_and_invalid_characters(view):
    odd = one_map(words(["\ud800", "\x00"], ["</script>\u2028"]), np.full((1, 3, 3), 1 / 3))
    for one in (view, odd):
        assert AttentionView.from_json(one.to_json()) == one
        assert AttentionView.from_json(one.to_json().encode("ascii")) == one


def test_saved_views_name_no_absolute_paths(view, tmp_path):
    for name, saved in ((str(tmp_path / "mine"), "mine"), ("runs/mine", "runs/mine")):
        assert replace(view, model=name).describe()["model"] == saved


def test_views_that_differ_in_one_weight_are_not_equal(view):
    weights = view.maps[0].weights.copy()
    weights[0, 0, 0] = np.nextafter(weights[0, 0, 0], np.float32(0))
    other = replace(view, maps=(replace(view.maps[0], weights=weights), *view.maps[1:]))
    assert other != view
    assert AttentionView.from_json(other.to_json()) == other


def test_json_round_trip_with_buckets_and_allowed_pairs():
    view = hashed()
    again = AttentionView.from_json(view.to_json())
    assert again == view
    (one,) = again.maps
    assert (one.seen == view.maps[0].seen).all()
    assert (one.buckets == view.maps[0].buckets).all()
    assert again != replace(view, maps=(replace(one, seen=~one.seen),))
    assert again != replace(view, maps=(replace(one, buckets=None),))


def test_merged_words_see_what_any_of_their_pieces_sees():
    (one,), (merged,) = hashed().maps, hashed().merged().maps
    for head, i, j in np.ndindex(2, 4, 4):
        assert merged.seen[head, i, j] == one.seen[head, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].any()
    assert merged.buckets is None


def damaged(view, change):
    content = json.loads(view.to_json())
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update(seen="!"),
        lambda one: one.update(seen="AAAA"),
        lambda one: one["buckets"].update(numbers="AAAA"),
        lambda one: one["buckets"].update(shape=[1, 4, 8]),
    ],
)
def test_damaged_buckets_are_refused(change):
    with raises(DataError, "damaged"):
        AttentionView.from_json(damaged(hashed(), lambda content: change(content["maps"][0])))


@pytest.mark.parametrize(
    ("change", "mention"),
    [
        (lambda c: c.pop("source"), "'source'"),
        (lambda c: c.update(title=7), "7"),
        (lambda c: c["maps"][0].update(weights="!"), "base64"),
        (lambda c: c["maps"][0].update(weights="AAAA"), ""),
        (lambda c: c["maps"][0].update(shape=[1, 2, 3]), "[1, 2, 3]"),
        (lambda c: c["maps"][0].update(shape=[8, -10, -10]), "[8, -10, -10]"),
        (lambda c: c["maps"][0].update(layer=0), "layer 0"),
        (lambda c: c["maps"][0].update(kind="middle"), "'middle'"),
        (lambda c: c["source"]["tokens"].pop(), "encoder layer 1"),
        (lambda c: c.update(target=None), "target"),
        (lambda c: c.update(target=0), ""),
        (lambda c: c["source"]["tokens"][0].update(word="x"), ""),
        (lambda c: c.update(maps=[3]), ""),
        (lambda c: c["maps"].append(c["maps"][0]), "encoder"),
    ],
)
def test_damaged_file_is_reported_in_one_line(view, change, mention):
    with raises(DataError, "damaged", mention) as caught:
        AttentionView.from_json(damaged(view, change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "not_json"), ("no", "not_json"), ("[]", "unknown_format"), ("7", "unknown_format"),
     ("{}", "unknown_format"), ('{"format": "other"}', "unknown_format"),
     (b"\xff\xfe", "not_json"), ("[" * 100_000, "not_json")],
)  # fmt: skip
def test_files_that_are_no_view_are_refused(text, code):
    with raises(DataError, code, "polyhead-attention-1"):
        AttentionView.from_json(text)


# Invalid values


@pytest.mark.parametrize(
    ("weights", "mention"),
    [
        (np.zeros((2, 2), dtype=np.float32), r"\(2, 2\)"),
        (np.zeros((1, 2, 2), dtype=np.float64), "float64"),
        (np.zeros((1, 0, 2), dtype=np.float32), r"\(1, 0, 2\)"),
        (np.full((1, 2, 2), np.nan, dtype=np.float32), "finite"),
        (np.full((1, 2, 2), -1, dtype=np.float32), "≥ 0"),
    ],
)
def test_invalid_weights_are_refused(weights, mention):
    # Not through the constructor, whose types are checked first while tests run.
    one = SimpleNamespace(kind="encoder", layer=1, weights=weights)
    with pytest.raises(ValueError, match=mention):
        AttentionMap.__post_init__(one)
    with pytest.raises(ValueError, match=r"\(2, 2\) weights for \(3, 3\) tokens"):
        one_map(words(["a"], ["b"], ["c"]), np.zeros((1, 2, 2)))


def test_notebook_shows_the_page_in_a_frame(view):
    for shown in (view, image()):
        assert shown._repr_html_() == iframe(render(shown))
