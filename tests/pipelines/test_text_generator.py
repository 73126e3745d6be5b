"""TextGenerator: whole characters, stops, prompts, scores, loading, attention."""

import math
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from tiny_gpt import train_gpt

import polyhead
from polyhead.decoding.generate import generate
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.pipelines.step_through import steps
from polyhead.pipelines.text_generator import (
    ScoredToken,
    TextGenerator,
    stream_text,
    truncate_at_stop,
)
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


def test_the_options_of_a_generator_are_keywords(writer):
    options = replace(writer.defaults, sample=True, top_k=3, max_length=9)
    keywords = {"sample": True, "top_k": 3, "max_length": 9, "seed": 4}
    assert writer.generate("오늘은", **keywords) == writer.generate(
        "오늘은", options=options, seed=4
    )
    for method in (writer.generate, writer.stream, writer.generate_tokens):
        with raises(ConfigError, "unknown_key", "beam"):  # of translators only
            method("오늘은", beam=3)


def test_the_seed_determines_the_sample(writer):
    texts = [writer.generate("오늘은", seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_the_text_is_that_of_the_generated_ids_line_by_line(writer):
    """With more tokens than the context, and incomplete characters of a hardly trained model."""
    options = replace(writer.defaults, max_length=200)
    dice = torch.Generator().manual_seed(3)
    trace = generate(writer.saved.model, [EOS], options, dice, writer.max_length)
    ids = [step.chosen.id for step in trace]
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
    monkeypatch.setattr(TextGenerator, "encode", lambda *_: before)
    forced = {"forced": ids[len(before) :], "options": DecodeConfig(max_length=1)}
    assert writer.generate_tokens("오늘은", **forced).text == " 비가"
    assert writer.generate_tokens("오늘은 ", **forced).text == "비가"


def test_learned_positions_limit_the_context(letters):
    assert letters.max_length == 16
    about = {**letters.saved.about, "run": {}}
    config = replace(letters.saved.config, max_length=5)
    saved = replace(letters.saved, config=config, about=about)
    short = letters.from_saved(saved, letters.name, letters.device)
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
    assert [token.text for token in words.source.tokens] == ["오늘은", "비가", "와요."]
    assert words.predictions[:3] == ("늘은", "비가", "와요.")  # the first token is given
    write_view(view, tmp_path / "page.html")
    write_view(view, tmp_path / "lines.svg", ViewOptions(style="lines"))
    write_view(view, tmp_path / "maps.svg", ViewOptions("decoder", merge=True))
    assert "오늘은" in (tmp_path / "lines.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(("symbol", "shown"), [("▁내일", "내일"), ("일", "일"), ("▁", " ")])
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


def test_attention_of_a_long_text_covers_its_end(writer):
    n_read = writer.max_length
    words = "오늘은 비가 와요. 내일은 서울에 가요. " * 4
    ids = writer.tokenizer.encode(words)[:-1]
    assert len(ids) > n_read
    view = attention_view(writer, words)
    pieces = [piece.text.strip(" ") for piece in writer.tokenizer.pieces(words.strip())]
    assert [token.text for token in view.source.tokens] == pieces[-n_read:]
    assert view.title.startswith("… ")
    assert view.title.endswith("가요.")
    assert AttentionView.from_json(view.to_json()) == replace(view, model="run")
    with raises(ConfigError, "too_long", "9"):
        attention_view(writer, words, max_tokens=9)


@torch.inference_mode()
def weights_by_hand(gpt, ids):
    """Return the weights of every layer by q kᵀ / √d and softmax, from the inputs of attention."""
    inputs = []
    modules = [block.self_attention for block in gpt.stack.blocks]
    hooks = [
        m.kernel.register_forward_pre_hook(lambda _, given: inputs.append(given[:2]))
        for m in modules
    ]
    logits = gpt(torch.tensor([ids]))[0]
    for hook in hooks:
        hook.remove()
    hidden = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
    scores = [(q @ k.mT / q.size(-1) ** 0.5)[0].masked_fill(hidden, -torch.inf) for q, k in inputs]
    return [one.softmax(-1) for one in scores], logits


@pytest.mark.parametrize("prompt", ["오늘은", "오늘은 비가\n내일", "오늘은 비가 와요. " * 9, ""])
@pytest.mark.parametrize("n", [1, 5, 40])
def test_attention_and_steps_are_those_of_the_sampled_tokens(writer, prompt, n):
    """With line ends in the text, and with more tokens than the context."""
    options = DecodeConfig(max_length=n, sample=True, temperature=1.5, top_k=40, top_p=0.9)
    found = writer.generate_tokens(prompt, options=options, seed=4)
    ids = [token.id for token in found.tokens]
    assert found.text == writer.generate(prompt, options=options, seed=4)
    for forced in ([], ids[: n // 2], ids):
        trace = steps(writer, prompt, options=options, seed=4, forced=forced)
        assert (trace.ids, trace.text) == (tuple(ids), found.text)
        assert [
            ScoredToken(s.id, s.text, s.probability, s.sampling_probability) for s in trace.steps
        ] == list(found.tokens)
    view = attention_view(writer, prompt, target_ids=ids)
    all_ids = [*writer.encode(prompt), *ids]
    read = all_ids[:-1]
    if len(read) > writer.max_length:  # the window was halved whenever it was full
        n_old = min(len(all_ids) - n, writer.max_length)
        n_read = n_old + n - 1
        while n_read > writer.max_length:
            n_read -= writer.max_length + 1 - writer.max_length // 2
        read = read[-n_read:]
    weights, logits = weights_by_hand(writer.saved.model, read)
    for one, expected in zip(view.maps, weights, strict=True):
        torch.testing.assert_close(torch.tensor(one.weights), expected, atol=1e-5, rtol=1e-4)
    row = logits[-1].softmax(-1)
    assert found.tokens[-1].probability == pytest.approx(float(row[ids[-1]]), abs=1e-5)
    assert [token.special for token in view.source.tokens] == [id == EOS for id in read]
    last = writer.tokenizer.symbol(ids[-1])
    assert view.predictions[-1] == (last.removeprefix("▁") or " ")


def test_a_stop_is_among_the_tokens_and_not_in_the_text(writer):
    options = DecodeConfig(max_length=30, sample=True)
    whole = writer.generate_tokens("오늘은", options=options, seed=1)
    stop = whole.text[len(whole.text) // 2]
    found = writer.generate_tokens("오늘은", options=options, seed=1, stop=[stop])
    n = len(found.tokens)
    assert found.text == whole.text.partition(stop)[0]
    assert found.tokens == whole.tokens[:n]
    texts = [
        steps(writer, "오늘은", forced=[t.id for t in found.tokens[:m]], max_tokens=m).text
        for m in (n - 1, n)
    ]
    assert [stop in text for text in texts] == [False, True]


def test_forced_tokens_are_checked(writer):
    for forced in ([1], [len(writer.tokenizer)], [5] * 31):
        with raises(ConfigError, "bad_token"):
            writer.generate_tokens("오늘은", forced=forced)
    with raises(ConfigError, "bad_token"):
        attention_view(writer, "오늘은", target_ids=[0])
