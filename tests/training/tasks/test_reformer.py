"""Reformer and LSH attention: training, use, evaluation, refused configurations."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from expected_errors import raises
from tiny import SMALL as TINY_TRANSLATOR
from tiny import write_corpus

import polyhead
from polyhead.checkpoint import model_dir as model_folder
from polyhead.cli.main import main
from polyhead.data.batches.language_model import consecutive_windows
from polyhead.decoding.generate import generate
from polyhead.decoding.hypotheses import make_generator
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.lsh.attention import set_eval_rounds
from polyhead.metrics.perplexity import TextWindows
from polyhead.models.reformer import PUBLISHED, Reformer
from polyhead.special_tokens import EOS
from polyhead.training.config import check_positions, read_run
from polyhead.training.trainer import train
from polyhead.viz.capture import attention_view

TINY = (
    "data.max_length=40", "text.vocab=900", "model.max_length=40", "model.stack.d_model=16",
    "model.stack.n_heads=2", "model.stack.d_ff=32", "model.stack.window=6",
    "model.stack.lsh.chunk=8", "train.steps=8", "train.max_tokens=160", "train.validate_every=4",
    "train.save_every=4", "train.schedule.warmup=4", "decode.max_length=30",
)  # fmt: skip
CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run and its training text."""
    folder = tmp_path_factory.mktemp("reformer")
    text = write_corpus(folder)["source"]
    train(read_run("reformer-tiny", TINY, {"text": text}), folder / "run")
    return folder / "run", text[0]


def test_a_trained_reformer_continues_a_text_beyond_its_context(run):
    writer = polyhead.load(run[0], device="cpu")
    assert isinstance(writer.saved.model, Reformer)
    assert writer.max_length == 40
    prompt = "오늘은 " * 60
    assert len(writer.encode(prompt)) > 40
    torch.manual_seed(1)
    first = writer.generate(prompt, seed=4)
    torch.manual_seed(2)
    assert writer.generate(prompt, seed=4) == first != writer.generate(prompt, seed=5)


@pytest.mark.parametrize("n", [1, 20, 60])
def test_attention_of_a_generated_text_is_that_of_its_generation(run, n):
    """Steps attend to all tokens, not by hashing as a text that is read at once."""
    writer = polyhead.load(run[0], device="cpu")
    options = writer.defaults.with_options({"max_length": n, "sample": True})
    prompt, rows = "오늘은 비가 와요. " * 5, []
    with record_attention(writer.saved.model) as maps:
        read = writer.encode(prompt)
        found = generate(writer.saved.model, read, options, make_generator(3), writer.max_length)
        ids = [
            (step.chosen.id, rows.append([one[0, :, -1] for one in maps.values()]))[0]
            for step in found
        ]
    view = attention_view(writer, prompt, target_ids=ids)
    n_shown = len(view.source.tokens)
    for back in range(1, min(n, n_shown, 15) + 1):
        for one, row in zip(view.maps, rows[-back], strict=True):
            expected = torch.zeros(one.weights.shape[0], n_shown)
            seen = min(row.size(-1), n_shown)
            expected[:, :seen] = row[:, :seen]
            torch.testing.assert_close(
                torch.tensor(one.weights[:, -back]), expected, atol=1e-5, rtol=1e-4
            )


def test_the_score_is_reproducible_and_changes_with_the_rounds(run, capfd):
    folder, text = run

    def loss(*words):
        assert main(["evaluate", str(folder), "--text", text, "--json", *words, *CPU]) == 0
        return json.loads(capfd.readouterr().out)["loss"]

    alone = loss()
    assert loss() == alone
    assert loss("--rounds", "2") == alone  # as many as in training
    assert loss("--rounds", "8") != alone


def test_evaluation_as_generated_is_the_loss_of_the_steps_of_generate(run, monkeypatch):
    """Sampled far beyond the context of 40, so that windows are read again, by hashing."""
    writer = polyhead.load(run[0], device="cpu")
    step, seen = writer.model.step, []

    def recorded(*arguments):
        seen.append(step(*arguments))
        return seen[-1].clone()

    monkeypatch.setattr(writer.model, "step", recorded)
    options = DecodeConfig(max_length=100, sample=True)
    steps = generate(writer.model, [EOS], options, make_generator(3), 40)
    ids = [step.chosen.id for step in steps]
    picked = [logits[0, 0].log_softmax(-1)[id] for logits, id in zip(seen, ids, strict=True)]
    monkeypatch.undo()
    windows = TextWindows(consecutive_windows(torch.tensor([EOS, *ids]), 40, 80), 100, 1, 0)
    score = writer.score_windows(windows, as_generated=True)
    assert score.loss == pytest.approx(-torch.stack(picked).mean().item(), rel=1e-6)
    assert abs(score.loss - writer.score_windows(windows).loss) > 1e-5  # hashed, and by windows


def test_the_command_scores_a_text_as_generated(run, tmp_path, capfd):
    writer, text = polyhead.load(run[0], device="cpu"), tmp_path / "text.txt"
    text.write_text("내일 회의가 있어요.\n", encoding="utf-8")
    ids = writer.tokenizer.encode("내일 회의가 있어요.")
    state = writer.model.begin(torch.zeros(1, 0, dtype=torch.long), width=1, max_length=40)
    expected = 0.0
    for last, id in pairwise([EOS, *ids]):
        logits = writer.model.step(torch.tensor([[last]]), state)[0, 0]
        expected -= logits.log_softmax(-1)[id].item() / len(ids)
    words = ["evaluate", str(run[0]), "--text", str(text), "--as-generated", "--json", *CPU]
    assert main(words) == 0
    assert json.loads(capfd.readouterr().out)["loss"] == pytest.approx(expected, rel=1e-6)
    assert main([*words, "--rounds", "3"]) == 2


def test_the_attention_page_is_written(run, tmp_path):
    folder, page = str(run[0]), tmp_path / "page.html"
    assert main(["attention", folder, "내일 회의가 있어요.", "--output", str(page), *CPU]) == 0
    assert page.stat().st_size > 1000


def test_rounds_are_refused_where_nothing_is_hashed():
    with pytest.raises(ConfigError, match="this model has no LSH attention"):
        set_eval_rounds(torch.nn.Linear(2, 2), 4)
    with pytest.raises(ConfigError, match="rounds = 0: expected at least 1"):
        set_eval_rounds(torch.nn.Linear(2, 2), 0)


def test_the_recipe_has_the_published_sizes():
    model = read_run("reformer-enwik8").model
    published = PUBLISHED["reformer-enwik8"]
    stack = replace(published.stack, feed_chunk=model.stack.feed_chunk)
    assert model == replace(published, vocab=model.vocab, stack=stack)


def test_a_translator_with_lsh_in_its_encoder_is_trained_and_used(tmp_path):
    short = ("train.steps=2", "train.validate_every=2", "model.stack.lsh.chunk=4")
    train(read_run("small-lsh", (*TINY_TRANSLATOR, *short), write_corpus(tmp_path)), tmp_path / "r")
    translator = polyhead.load(tmp_path / "r", device="cpu")
    torch.manual_seed(1)
    first = translator.n_best(["내일 회의가 있어요."])
    torch.manual_seed(2)
    assert translator.n_best(["내일 회의가 있어요."]) == first
    names = model_folder.weights_of(translator.model)
    assert "encoder.blocks.0.self_attention.w_q.weight" not in names  # one projection with w_k
    assert "decoder.blocks.0.self_attention.w_q.weight" in names


@pytest.mark.parametrize(
    ("recipe", "override", "message"),
    [
        ("reformer-tiny", "model.stack.lsh.buckets=7", "model.stack.lsh: n_buckets must be even"),
        ("reformer-tiny", "model.stack.lsh.rounds=0", "rounds = 0: expected at least 1"),
        ("reformer-tiny", "model.stack.norm=post", 'write norm = "pre", or reversible = false'),
        ("reformer-tiny", "model.stack.score=dot", 'supports score = "scaled_dot" only'),
        ("reformer-tiny", "model.stack.n_heads=3", "(128) must be a multiple of n_heads (3)"),
        ("reformer-tiny", "model.positions=axial model.axial.shape=[3,5]", "has 15 positions"),
        ("reformer-tiny", "model.positions=axial model.axial.widths=[3,5]", "2 numbers that add"),
        ("reformer-tiny", "model.positions=axial data.max_length=600", "only 512 positions"),
        ("reformer-tiny", "model.stack.attention=lhs", "did you mean lsh?"),
        ("gpt-tiny", "text.joint=false", "the model has one vocabulary"),
        ("bert-tiny", "text.joint=false", "the model has one vocabulary"),
        ("small", "model.stack.reversible=true", None),
        ("base", "model.stack.reversible=true", 'norm is "post"; write norm = "pre"'),
    ],
)
def test_invalid_options_are_refused_in_one_line(recipe, override, message, capfd):
    code = main(["train", recipe, *override.split(), "--print-config"])
    err = capfd.readouterr().err
    if message is None:
        assert (code, err) == (0, "")
        return
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("recipe", ["bert-tiny", "electra-tiny"])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "none", "learned", "axial"])
def test_texts_may_exceed_max_length_only_with_unbounded_positions(recipe, positions):
    model = replace(read_run(recipe).model, positions=positions)
    if positions in ("learned", "axial"):
        with raises(ConfigError, "too_few_positions"):
            check_positions(model, model.max_length + 1)
    else:
        check_positions(model, model.max_length + 1)
