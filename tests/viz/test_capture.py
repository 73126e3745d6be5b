"""What is shown is what the model did, and words are put together rightly."""

import numpy as np
import pytest
import torch

from polyhead.errors import ConfigError
from polyhead.layers.attention_factory import LSHConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.attention_ladder import Ladder, LadderConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.pipelines.translator import load
from polyhead.viz.capture_translation import alignment, attention, record, write_picture
from polyhead.viz.views import AttentionView

TEXT = "민준 씨는 내일 부산에 가요."


@pytest.fixture(scope="module")
def translator(tiny_run):
    return load(tiny_run, device="cpu")


@pytest.fixture(scope="module")
def view(translator):
    return attention(translator, TEXT)


def test_every_layer_and_kind_is_there(view):
    assert [(one.kind, one.layer) for one in view.maps] == [
        ("encoder", 1), ("encoder", 2), ("decoder", 1), ("decoder", 2), ("cross", 1), ("cross", 2),
    ]  # fmt: skip
    for one in view.maps:
        np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-5)
        if one.kind == "decoder":
            assert (np.triu(one.weights, 1) == 0).all()


def test_tokens_spell_the_text_and_rows_are_named_by_what_was_written(view):
    words = view.source.merged().tokens
    assert " ".join(t.text for t in words if not t.special) == TEXT
    assert view.predictions[-1] == "</s>"
    assert len(view.predictions) == len(view.target.tokens)
    assert view.target.tokens[0].text == "<s>"


def test_a_given_translation_is_looked_at_instead(translator):
    view = attention(translator, TEXT, "Minjun goes to Busan tomorrow.")
    assert view.target.text == "Minjun goes to Busan tomorrow."
    merged = view.merged()
    assert list(merged.predictions) == ["Minjun", "goes", "to", "Busan", "tomorrow.", "</s>"]


def test_merging_words_sums_the_columns_that_a_token_row_saw(view):
    one, merged = view.find("cross", 1), view.merged().find("cross", 1)
    n_first = sum(token.word == 0 for token in view.source.tokens)
    rows = [i for i, token in enumerate(view.written) if token.word == view.written[0].word]
    expected = one.weights[:, rows, :n_first].sum(-1).mean(1)
    np.testing.assert_allclose(merged.weights[:, 0, 0], expected, atol=1e-6)


def test_alignment_follows_the_heaviest_weights(translator, monkeypatch):
    tokenizers = translator.tokenizers
    ids = tokenizers.target.encode("Minjun tomorrow")[:-1]
    n_source = len(tokenizers.source.encode("내일 부산"))
    pieces = tokenizers.source.pieces("내일 부산")
    second = next(i for i, p in enumerate(pieces) if "부" in p.text)

    class Fixed:
        kind = "cross"
        weights = np.zeros((2, len(ids) + 1, n_source), dtype=np.float32)

    half = next(
        i for i, p in enumerate(tokenizers.target.pieces_of_ids(ids)) if i and " " in p.text
    )
    Fixed.weights[:, :half, second] = 1.0
    Fixed.weights[:, half:, 0] = 1.0
    monkeypatch.setattr("polyhead.viz.capture_translation.record", lambda *_: [Fixed])
    assert alignment(translator, ["내일 부산"], [ids]) == [[(1, 0, 1.0), (0, 1, 1.0)]]


def test_recording_does_not_change_what_the_model_says(translator):
    model = translator.models[0].model
    source, target = [5, 6, 7, 2], [8, 9, 2]
    inputs = torch.tensor([source]), torch.tensor([[1, *target[:-1]]])
    before = model(*inputs)
    record(model, source, target)
    assert torch.equal(model(*inputs), before)


@pytest.mark.parametrize("ending", ["html", "svg", "png", "json"])
def test_every_kind_of_file_is_written(view, ending, tmp_path):
    path = tmp_path / f"page.{ending}"
    write_picture(view, path, kind=None if ending in ("html", "json") else "cross")
    content = path.read_bytes()
    starts = {"html": b"<!doctype html", "svg": b"<svg", "png": b"\x89PNG", "json": b"{"}
    assert content[:40].lower().lstrip().startswith(starts[ending].lower())
    if ending == "json":
        assert AttentionView.from_json(content).maps == view.maps


def test_bad_requests_are_one_line(translator, view, tmp_path):
    with pytest.raises(ConfigError, match="the text is empty"):
        attention(translator, "  ")
    with pytest.raises(ConfigError, match="longer than the model's 256 tokens"):
        attention(translator, "가 " * 400)
    with pytest.raises(ConfigError, match=r"the ending must be \.html, \.svg, \.png or \.json"):
        write_picture(view, tmp_path / "page.pdf")


def test_a_recurrent_translator_shows_what_it_looks_back_at():
    model = Ladder(LadderConfig(11, 11, d_model=16)).eval()
    (only,) = record(model, [4, 5, 6, 2], [7, 8, 2])
    assert (only.kind, only.layer, only.weights.shape) == ("cross", 1, (1, 3, 4))


def test_a_translator_without_attention_says_so():
    model = Ladder(LadderConfig(11, 11, d_model=16, context="none")).eval()
    with pytest.raises(ConfigError, match="has no attention: there is nothing to look at"):
        record(model, [4, 5, 6, 2], [7, 8, 2])


def test_layers_that_hash_show_their_buckets_and_who_could_see_whom():
    torch.manual_seed(0)
    stack = StackConfig(n_layers=2, d_model=16, n_heads=2, d_ff=16, lsh=LSHConfig(chunk=2))
    config = TransformerConfig(20, 20, stack=stack, encoder_attention=("full", "lsh"))
    maps = record(Transformer(config).eval(), list(range(4, 16)), [5, 6, 2])
    hashed = {(one.kind, one.layer) for one in maps if one.buckets is not None}
    assert hashed == {(one.kind, one.layer) for one in maps if one.seen is not None}
    assert hashed == {("encoder", 2)}
    (one,) = (one for one in maps if one.buckets is not None)
    assert one.buckets.shape == (2, 2, 12)  # rounds, heads, positions
    assert (one.weights[~one.seen] == 0).all()
    assert not one.seen.all()
