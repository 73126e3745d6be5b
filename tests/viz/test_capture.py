"""Attention views of translators: complete, equal to the model's weights, and written to files."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from expected_errors import raises

from polyhead.errors import ConfigError, PolyheadError
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.attention_ladder import Ladder, LadderConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.pipelines.translator import TranslatedSentence, Translation, Translator
from polyhead.special_tokens import BOS, EOS
from polyhead.viz.capture import _framed_tokens, attention_view, translation_maps
from polyhead.viz.select import ViewOptions
from polyhead.viz.views import AttentionView
from polyhead.viz.word_alignment import alignment
from polyhead.viz.writer import write_view

TEXT = "민준 씨는 내일 부산에 가요."


@pytest.fixture(scope="module")
def translator(tiny_run):
    return Translator.from_dir(tiny_run, device="cpu")


@pytest.fixture(scope="module")
def view(translator):
    return attention_view(translator, TEXT)


def test_every_kind_and_layer_is_recorded(view):
    assert [(one.kind, one.layer) for one in view.maps] == [
        ("encoder", 1), ("encoder", 2), ("decoder", 1), ("decoder", 2), ("cross", 1), ("cross", 2),
    ]  # fmt: skip
    for one in view.maps:
        np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-5)
        if one.kind == "decoder":
            assert (np.triu(one.weights, 1) == 0).all()


def test_tokens_join_to_the_text_and_rows_are_named_by_written_tokens(view, translator):
    words = view.source.merged().tokens
    assert " ".join(t.text for t in words if not t.special) == TEXT
    (own,) = translator.n_best([TEXT])[0][0].sentences
    assert (view.predictions[-1] == "</s>") == own.ended
    assert len(view.predictions) == len(view.target.tokens)
    assert view.target.tokens[0].text == "<s>"


def test_given_translation_replaces_the_own_one(translator):
    view = attention_view(translator, TEXT, target="Minjun goes to Busan tomorrow.")
    assert view.target.text == "Minjun goes to Busan tomorrow."
    merged = view.merged()
    assert list(merged.predictions) == ["Minjun", "goes", "to", "Busan", "tomorrow.", "</s>"]


def test_alignment_follows_the_largest_weights(translator, monkeypatch):
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
    monkeypatch.setattr("polyhead.viz.word_alignment.translation_maps", lambda *_: [Fixed])
    sentence = TranslatedSentence("내일 부산", "Minjun tomorrow", tuple(ids), 0.0, False, ())
    links = [(1, 0, 1.0), (0, 1, 1.0)]
    for n_sentences in (1, 2):  # words are numbered through all sentences
        text = Translation("", 0.0, 0.0, (), (sentence,) * n_sentences)
        shifted = [(s + 2 * n, t + 2 * n, w) for n in range(n_sentences) for s, t, w in links]
        assert alignment(translator, [text]) == [shifted]


@pytest.mark.parametrize("ending", ["html", "svg", "png", "json"])
def test_every_file_format_is_written(view, ending, tmp_path):
    path = tmp_path / f"page.{ending}"
    write_view(view, path, ViewOptions("cross"))
    content = path.read_bytes()
    starts = {"html": b"<!doctype html", "svg": b"<svg", "png": b"\x89PNG", "json": b"{"}
    assert content[:40].lower().lstrip().startswith(starts[ending].lower())
    if ending == "json":
        assert AttentionView.from_json(content).maps == view.maps


def test_invalid_input_is_refused(translator, view, tmp_path):
    with raises(ConfigError, "empty"):
        attention_view(translator, "  ")
    with raises(ConfigError, "too_long", "256"):
        attention_view(translator, "가 " * 400)
    with raises(ConfigError, "too_long", "at most 3"):
        attention_view(translator, TEXT, target="Minjun goes to Busan.", max_tokens=3)
    with raises(ConfigError, "unknown_format", ".html, .svg, .png or .json"):
        write_view(view, tmp_path / "page.pdf")
    with raises(PolyheadError, "io", "page.json"):
        write_view(view, tmp_path / "none" / "page.json")


def test_recurrent_translator_has_cross_attention_or_is_refused():
    words = [4, 5, 6, 2], [7, 8, 2]
    (only,) = translation_maps(Ladder(LadderConfig(11, 11, d_model=16)).eval(), *words)
    assert (only.kind, only.layer, only.weights.shape) == ("cross", 1, (1, 3, 4))
    with raises(ConfigError, "no_attention"):
        translation_maps(Ladder(LadderConfig(11, 11, d_model=16, context="none")).eval(), *words)


def test_lsh_layers_have_buckets_and_allowed_pairs():
    torch.manual_seed(0)
    stack = StackConfig(n_layers=2, d_model=16, n_heads=2, d_ff=16, lsh=LSHConfig(chunk=2))
    config = TransformerConfig(20, 20, stack=stack, encoder_attention=("full", "lsh"))
    maps = translation_maps(Transformer(config).eval(), list(range(4, 16)), [5, 6, 2])
    hashed = {(one.kind, one.layer) for one in maps if one.buckets is not None}
    assert hashed == {(one.kind, one.layer) for one in maps if one.seen is not None}
    assert hashed == {("encoder", 2)}
    (one,) = (one for one in maps if one.buckets is not None)
    assert one.buckets.shape == (2, 2, 12)  # rounds, heads, positions
    assert (one.weights[~one.seen] == 0).all()
    assert not one.seen.all()


def test_a_translation_that_was_cut_off_has_no_row_for_its_end(translator):
    options = replace(translator.defaults, max_length=4, beam=1)
    ids = translator.n_best([TEXT], options=options)[0][0].ids
    whole = attention_view(translator, TEXT, target_ids=ids)
    cut = attention_view(translator, TEXT, target_ids=ids, ended=False)
    assert len(ids) == 4
    assert (*cut.predictions, "</s>") == whole.predictions
    assert [len(cut.target.tokens), len(whole.target.tokens)] == [4, 5]  # <s> and those read
    for short, long in zip(cut.maps, whole.maps, strict=True):
        rows = len(short.weights[0])
        np.testing.assert_allclose(
            short.weights, long.weights[:, :rows, : short.weights.shape[2]], rtol=1e-5
        )


def test_tokens_of_a_reader_have_no_symbol_for_spaces(translator, monkeypatch):
    """A token that is only a space is shown as ␣ by the page and the picture."""
    tokenizer = translator.tokenizers.source
    monkeypatch.setattr(tokenizer, "symbol", {7: "▁", 8: "a", 9: "▁b"}.get)
    _, *tokens, _ = _framed_tokens(tokenizer, [BOS, 7, 8, 9, EOS], mask=-1)
    assert [(token.text, token.word) for token in tokens] == [(" ", 1), ("a", 1), ("b", 2)]
