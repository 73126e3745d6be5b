"""`polyhead cost`: figures a reader can check, JSON a program can read, one line for mistakes."""

import json
from dataclasses import replace

import pytest
import torch

from polyhead.models.registry import FAMILIES
from polyhead.models.transformer import Transformer
from polyhead.training.config import read_run, recipe_names


@pytest.fixture
def cost(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    return lambda *words: run("cost", *words)


def numbers(cost, *words):
    code, out, err = cost(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_table_shows_every_part_and_the_papers_figures(cost):
    code, out, err = cost("base")
    assert (code, err) == (0, "")
    for words in ("embeddings", "encoder", "decoder", "output", "Adam's averages", "decoding cache",
                  "3.3e+18", "2.3e+19", "65 M", "213 M", "5,000,000,000 tokens"):  # fmt: skip
        assert words in out
    with torch.device("meta"):
        model = Transformer(read_run("base").model)
    assert f"{sum(p.numel() for p in model.parameters()):,}" in out


def test_json_holds_the_same_and_adds_up(cost):
    found = numbers(cost, "base", "--length", "25")
    assert found["recipe"] == "base"
    assert found["shape"] == {"batch": 1000, "length": 25, "source": 25}
    assert found["tokens"] == 100_000 * 50_000
    assert found["flops"] == pytest.approx(found["total"]["training"] * 100_000)
    # the rule of thumb of 6 FLOPs per weight and token: encoder, decoder and softmax see half each
    weights = found["total"]["parameters"]
    assert found["flops"] == pytest.approx(6 * weights * found["tokens"] / 2, rel=0.1)


def test_the_papers_estimate_stands_beside_our_count(cost):
    base, big = numbers(cost, "base")["references"]
    assert [base["flops"], big["flops"]] == pytest.approx([3.283e18, 2.298e19], rel=1e-3)
    assert base["counted"] == pytest.approx(numbers(cost, "base")["flops"])
    assert big["counted"] == pytest.approx(numbers(cost, "big")["flops"])


def test_changes_tokens_and_epochs_count(cost):
    assert numbers(cost, "small")["flops"] is None  # the recipe counts in epochs
    _, out, _ = cost("small")
    assert "the recipe counts in epochs: give --tokens N or train.steps=N" in out
    one, two = (numbers(cost, "small", "--tokens", n)["flops"] for n in ("1000", "2000"))
    assert two == pytest.approx(2 * one)
    steps = numbers(cost, "small", "train.steps=10", "train.accumulate=3", "train.max_tokens=100")
    assert steps["tokens"] == 3000
    wide = numbers(cost, "small", "model.stack.d_ff=2048")["parts"]
    narrow = numbers(cost, "small")["parts"]
    assert wide["encoder"]["parameters"] > narrow["encoder"]["parameters"]
    assert wide["embeddings"] == narrow["embeddings"]


def test_every_recipe_has_a_cost(cost):
    for name in recipe_names():
        asked = read_run(name)
        length = [] if asked.task == "image_classification" else ["--length", "4"]
        found = numbers(cost, name, *length)
        total, parts = found["total"], found["parts"].values()
        assert total["parameters"] == sum(part["parameters"] for part in parts)
        assert 1.9 * total["forward"] < total["backward"] < 4 * total["forward"], name
        assert found["memory"]["total"] > 16 * total["parameters"]
        assert found["assumed"], name


@pytest.mark.parametrize(
    ("recipe", "owner"),
    [("bert-tiny", "model"), ("electra-tiny", "model"), ("classify-small", "encoder"),
     ("vit-digits", None), ("reformer-tiny", None), ("multi30k-de-en-gru", None)],
)  # fmt: skip
def test_parameters_are_those_that_training_will_build(cost, recipe, owner):
    asked = read_run(recipe)
    config, vocab = asked.model, asked.text.vocab + 1  # with [MASK], as the tokenizer sets it
    if owner == "model":
        config = replace(config, vocab=vocab)
    elif owner == "encoder":
        config = replace(config, encoder=replace(config.encoder, vocab=vocab))
    with torch.device("meta"):
        model = FAMILIES[asked.family].model(config)
    found = numbers(cost, recipe)
    assert found["total"]["parameters"] == sum(p.numel() for p in model.parameters())


def test_a_measured_cost_is_marked_and_has_no_parts(cost):
    found = numbers(cost, "multi30k-de-en-lstm", "--tokens", "1000")
    assert found["measured"] is True
    encoder = found["parts"]["encoder"]
    assert encoder["forward"] is encoder["training"] is encoder["kept"] is None
    assert found["flops"] == pytest.approx(1000 * found["per_token"]["mean"])
    # two layers of LSTM with 8 d² weights in either half, and the output layer at the target's
    d, vocab = 256, 4000
    source, target = 2 * 2 * 8 * d * d, 2 * (2 * 8 * d * d + vocab * d)
    assert found["per_token"]["mean"] == pytest.approx(3 * (source + target) / 2)
    _, out, _ = cost("multi30k-de-en-lstm")
    assert "measured on one sentence" in out
    assert "?" in out
    assert numbers(cost, "small")["measured"] is False


def test_assumptions_about_the_data_are_listed(cost):
    _, out, _ = cost("vit-b-16")
    assert "assumed: 1,000 classes: model.classes" in out
    _, out, _ = cost("bert-nsmc")
    assert "assumed: a vocabulary of 8,000 and [MASK]" in out
    assert "blanks at 30% of the tokens" in out
    few = numbers(cost, "vit-b-16", "model.classes=10")
    assert few["parts"]["output"]["parameters"] == 10 * 768 + 10


def test_the_length_is_a_language_models_window_or_an_images_patches(cost):
    assert numbers(cost, "gpt2")["shape"] == {"batch": 8, "length": 1024, "source": 0}
    assert numbers(cost, "vit-b-16")["shape"] == {"batch": 64, "length": 197, "source": 0}
    long = numbers(cost, "reformer-enwik8")
    assert long["shape"]["length"] == 65_536
    assert long["flops"] > 6 * 148e6 * long["tokens"]  # more than each weight of the stack once


def test_a_model_too_large_to_be_measured_has_no_cost(cost):
    words = ("multi30k-de-en-moe", "model.d_ff=65536", "--tokens", "1000")
    found = numbers(cost, *words)
    assert found["total"]["parameters"] > 200_000_000
    assert found["total"]["forward"] is found["flops"] is found["memory"]["total"] is None
    _, out, _ = cost(*words)
    assert "too large to be measured" in out


@pytest.mark.parametrize(
    ("words", "mention"),
    [
        (["vit-digits", "--length", "30"], "length 30"), (["gpt2", "--length", "1025"], "1024"),
        (["multi30k-de-en-ladder", "model.context=positional", "--length", "300"], "256"),
        (["smal"], "small"), (["base", "--length", "0"], "length 0"),
        (["base", "--tokens", "-5"], "tokens -5"), (["base", "--tokens", "many"], "integer"),
        (["base", "model.stack.n_head=3"], "n_heads"), ([], "'recipe'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_two(fail, words, mention):
    fail("cost", *words, code=2, mention=mention)
