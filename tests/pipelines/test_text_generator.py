"""TextGenerator: whole characters, stops, prompts, scores, loading, attention."""

import math
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from tiny_gpt import train_gpt

import polyhead
from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.generate import generate
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.layers.attention_hooks import record_attention
from polyhead.pipelines.text_generator import TextGenerator, stream_text, truncate_at_stop
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import EOS
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.viz.capture import attention_view
from polyhead.viz.select import ViewOptions
from polyhead.viz.views import AttentionView
from polyhead.viz.writer import write_view

GREEDY = DecodeConfig(max_length=20)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_gpt(tmp_path_factory.mktemp("writer"))


@pytest.fixture(scope="module")
def writer(run):
    return TextGenerator.from_dir(run, device="cpu")


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    return TextGenerator.from_dir(
        train_gpt(folder, "text.kind=characters", "model.positions=learned"), device="cpu"
    )


@pytest.fixture(scope="module")
def pieces():
    lines = ["오늘은 회의가 있어요.", "내일은 부산에 가요.", "오늘은 비가 와요."]
    return train_tokenizers(lines, [], TextConfig(vocab=320, character_coverage=0.98)).source


# Streaming


@pytest.mark.parametrize(
    "text", ["오늘은 부산에 가요.", "뷁쉛 퉯, 🚀 naïve", "a  b", "가\ufffd나", ""]
)
def test_streamed_pieces_are_whole_characters_and_join_to_the_decoded_text(pieces, text):
    ids = pieces.encode(text)[:-1]  # a rare character has several
    parts = list(stream_text(pieces, [EOS], ids))
    assert "".join(parts) == pieces.decode(ids) == pieces.normalise(text)
    for part in parts:
        assert part
        assert "\ufffd" not in part.rstrip("나") or "\ufffd" in text


def test_streaming_can_start_after_any_prefix(pieces):
    text = "오늘은 뷁쉛에 가요. 🚀"
    ids = pieces.encode(text)[:-1]
    for place in range(len(ids)):
        before = pieces.decode(ids[:place]).rstrip("\ufffd")
        rest = "".join(stream_text(pieces, ids[:place], ids[place:]))
        if not pieces.decode(ids[:place]).endswith("\ufffd"):
            assert before + rest == text


def test_a_long_line_is_streamed_as_it_is_decoded(pieces):
    text = " ".join(["오늘은 뷁쉛에 가요. 🚀🚀"] * 40)
    ids = pieces.encode(text)[:-1]
    assert len(ids) > 500
    assert "".join(stream_text(pieces, [EOS], ids)) == text


def test_an_unfinished_character_at_the_end_is_left_out(pieces):
    ids = pieces.encode("가 뷁")[:-1]
    assert "".join(stream_text(pieces, [], ids[:-1])) == pieces.decode(ids[:-1]).rstrip("\ufffd")
    assert "".join(stream_text(pieces, [], [*ids[:-1], EOS, *ids])).endswith("\n가 뷁")


@pytest.mark.parametrize(
    ("stop", "parts", "expected"),
    [
        ((), ["ab", "c"], "abc"),
        (("bc",), ["ab", "cd"], "a"),
        (("bcx",), ["ab", "c", "d"], "abcd"),
        (("aab",), ["a", "a", "a", "b", "c"], "a"),
        (("xy", "b"), ["a", "xbxy"], "ax"),
        (("abc",), ["ab"], "ab"),
        (("a",), ["a"], ""),
    ],
)
def test_text_ends_before_a_stop_that_spans_pieces(stop, parts, expected):
    assert "".join(truncate_at_stop(stop, parts)) == expected
    held_back = truncate_at_stop(["\n\n"], iter(["a\n", "b\n", "\nc"]))
    assert list(held_back) == ["a", "\nb"]


# Generation


def test_a_stream_joins_to_the_text_and_greedy_search_ignores_the_seed(writer):
    whole = writer.generate("오늘은", options=GREEDY)
    assert "".join(writer.stream("오늘은", options=GREEDY)) == whole
    assert writer.generate("오늘은", options=GREEDY, seed=5) == whole
    assert len(whole) > 0


def test_the_seed_determines_the_sample(writer):
    texts = [writer.generate("오늘은", seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_the_text_is_that_of_the_generated_ids_line_by_line(writer):
    """With more tokens than the context, and incomplete characters of a hardly trained model."""
    options = replace(writer.defaults, max_length=200)
    dice = torch.Generator().manual_seed(3)
    ids = list(generate(writer.saved.model, [EOS], options, dice, writer.max_length))
    lines, rest = [], ids
    while EOS in rest:
        lines.append(rest[: rest.index(EOS)])
        rest = rest[rest.index(EOS) + 1 :]
    lines.append(rest)
    expected = "\n".join(writer.tokenizer.decode(line).rstrip("\ufffd") for line in lines)
    assert len(lines) > 1
    assert writer.generate("", options=options, seed=3) == expected


def test_the_last_line_of_a_prompt_is_not_closed(writer):
    encode = writer.tokenizer.encode
    assert writer.encode("") == [EOS]
    assert writer.encode("오늘은") == encode("오늘은")[:-1]
    assert writer.encode("오늘은\n내일") == [*encode("오늘은"), *encode("내일")[:-1]]
    assert writer.encode("오늘은\n") == encode("오늘은")
    assert writer.encode("오늘은 ") == writer.encode("오늘은")


def test_characters_keep_the_space_at_the_end_of_a_prompt(letters):
    (space,) = letters.encode("오 늘")[1:2]
    assert letters.encode("오늘 ") == [*letters.encode("오늘"), space]
    assert letters.encode(" ") == [EOS]


def test_the_space_at_the_end_of_a_prompt_is_not_repeated(pieces, writer, monkeypatch):
    monkeypatch.setattr(TextGenerator, "tokenizer", pieces)
    ids = pieces.encode("오늘은 비가")[:-1]
    before = pieces.encode("오늘은")[:-1]
    monkeypatch.setattr(
        "polyhead.pipelines.text_generator.generate", lambda *_: iter(ids[len(before) :])
    )
    monkeypatch.setattr(TextGenerator, "encode", lambda *_: before)
    assert writer.generate("오늘은") == " 비가"
    assert writer.generate("오늘은 ") == "비가"


def test_learned_positions_limit_the_context(letters):
    assert letters.max_length == 16
    about = {**letters.saved.about, "run": {}}
    config = replace(letters.saved.config, max_length=5)
    short = replace(letters, saved=replace(letters.saved, config=config, about=about))
    assert short.max_length == 5


@pytest.mark.parametrize("stop", ["text", [""]])
def test_an_empty_stop_is_refused(writer, stop):
    with raises(ConfigError, "bad_stop"):
        writer.generate("", stop=stop)


# Scores


def test_the_score_equals_the_sum_over_single_predictions(letters):
    lines = ["오늘은 비가 와요.", "", "내일"]
    n_characters = sum(len(line) + 1 for line in lines)
    stream = [EOS, *(id for line in lines for id in letters.tokenizer.encode(line))]
    total = 0.0
    with torch.inference_mode():
        for place in range(1, len(stream)):
            start = (place - 1) // 16 * 16  # the window that it stands in
            logits = letters.saved.model(torch.tensor([stream[start:place]]))[0, -1]
            total -= logits.log_softmax(-1)[stream[place]].item()
    found = letters.score(lines)
    assert (found.n_tokens, found.n_characters) == (n_characters, n_characters)
    assert found.loss == pytest.approx(total / n_characters, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(total / n_characters), rel=1e-5)
    assert found.bits_per_character == pytest.approx(total / n_characters / math.log(2), rel=1e-5)
    assert [letters.score([line]).n_unknown for line in ("오늘", "ꙮꙮ 오늘")] == [0, 2]


def test_an_empty_text_cannot_be_scored(writer):
    with raises(DataError, "empty_text"):
        writer.score(["", " "])
    with raises(ConfigError, "not_a_list"):
        writer.score("text")


# Loading


def test_load_returns_the_pipeline_of_the_task(run, tiny_run):
    assert isinstance(polyhead.load(run, device="cpu"), TextGenerator)
    assert isinstance(polyhead.load(tiny_run, device="cpu"), Translator)


def test_a_model_of_another_task_is_refused_with_the_right_command(run, tiny_run):
    for paths in ((run,), (run, run), (tiny_run, run)):
        with raises(CheckpointError, "wrong_task", f"polyhead generate {run}"):
            Translator.from_dir(*paths)
    with raises(CheckpointError, "wrong_task", f"polyhead translate {tiny_run}"):
        TextGenerator.from_dir(tiny_run)
    with raises(CheckpointError, "wrong_task"):
        polyhead.load(run, run)
    with raises(ConfigError, "no_model"):
        polyhead.load()


def test_a_model_without_tokenizer_or_with_a_bad_run_is_refused(writer):
    bare = replace(writer.saved, tokenizers=None)
    with raises(CheckpointError, "no_tokenizer"):
        TextGenerator.from_saved(bare, "bare", writer.device)
    bad = replace(writer.saved, about={"run": {"data": {"max_length": "many"}}})
    with raises(CheckpointError, "bad_config", "max_length"):
        print(TextGenerator.from_saved(bad, "bad", writer.device).max_length)


# Attention


def test_attention_of_a_language_model_is_causal(writer, tmp_path):
    view = attention_view(writer, "오늘은 비가 와요.")
    assert view.kinds == ("decoder",)
    assert [one.layer for one in view.maps] == [1, 2]
    for one in view.maps:
        torch.testing.assert_close(
            torch.tensor(one.weights).sum(-1), torch.ones(one.weights.shape[:2])
        )
        assert not torch.tensor(one.weights).triu(1).any()
    words = view.merged()
    assert [token.text for token in words.source.tokens] == ["</s>", "오늘은", "비가", "와요."]
    assert words.predictions[:3] == ("오늘은", "비가", "와요.")
    write_view(view, tmp_path / "page.html")
    write_view(view, tmp_path / "lines.svg", ViewOptions(style="lines"))
    write_view(view, tmp_path / "maps.svg", ViewOptions("decoder", merge=True))
    assert "오늘은" in (tmp_path / "lines.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(("symbol", "shown"), [("▁내일", "내일"), ("일", "일"), ("▁", "▁")])
def test_the_predicted_token_is_shown_without_its_word_mark(writer, monkeypatch, symbol, shown):
    monkeypatch.setattr(type(writer.tokenizer), "symbol", lambda _self, _id: symbol)
    assert attention_view(writer, "오늘은 비가").predictions[-1] == shown


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (" ", None, "the text is empty"),
        ("오늘은", "today", "only a translator has a target"),
    ],
)
def test_an_empty_text_or_a_target_is_refused(writer, text, target, message):
    with pytest.raises(ConfigError, match=message):
        attention_view(writer, text, target=target)


@pytest.mark.parametrize("most", [None, 9])
def test_attention_of_a_long_text_covers_its_end(writer, most):
    n_read = most or writer.max_length
    words = "오늘은 비가 와요. 내일은 서울에 가요. " * 4
    ids = writer.tokenizer.encode(words)[:-1]
    assert len(ids) > writer.max_length
    view = attention_view(writer, words, max_tokens=most)
    pieces = [piece.text.strip(" ") for piece in writer.tokenizer.pieces(words.strip())]
    assert [token.text for token in view.source.tokens] == pieces[-n_read:]
    assert not any(token.special for token in view.source.tokens)
    assert view.title.startswith("… ")
    assert view.title.endswith("가요.")
    with torch.inference_mode(), record_attention(writer.saved.model) as found:
        writer.saved.model(torch.tensor([ids[-n_read:]]))
    for one, weights in zip(view.maps, found.values(), strict=True):
        torch.testing.assert_close(torch.tensor(one.weights), weights[0])
    assert AttentionView.from_json(view.to_json()) == view


def test_attention_of_a_text_that_fits_covers_all_of_it(writer):
    ids = writer.tokenizer.encode("오늘은 비가 와요.")
    view = attention_view(writer, "오늘은 비가 와요.", max_tokens=len(ids))
    assert view.source.tokens[0].special
    assert view.title == "오늘은 비가 와요."
