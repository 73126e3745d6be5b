"""`polyhead cost`: figures a reader can check, JSON a program can read, one line for mistakes."""

import json

import pytest
import torch

from polyhead.api.run import read_run
from polyhead.cli.main import main
from polyhead.models.transformer import Transformer


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def call(*words):
        code = main(["cost", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def numbers(run, *words):
    code, out, err = run(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_table_shows_every_part_and_the_papers_figures(run):
    code, out, err = run("base")
    assert (code, err) == (0, "")
    for words in ("embeddings", "encoder", "decoder", "output", "Adam's averages", "decoding cache",
                  "3.3e+18", "2.3e+19", "65 M", "213 M", "5,000,000,000 tokens"):  # fmt: skip
        assert words in out
    with torch.device("meta"):
        model = Transformer(read_run("base").model)
    assert f"{sum(p.numel() for p in model.parameters()):,}" in out


def test_json_holds_the_same_and_adds_up(run):
    found = numbers(run, "base", "--length", "25")
    assert found["recipe"] == "base"
    assert found["shape"] == {"batch": 1000, "length": 25, "source": 25}
    parts = found["parts"].values()
    assert found["total"]["parameters"] == sum(part["parameters"] for part in parts)
    assert found["tokens"] == 100_000 * 50_000
    per_batch = found["total"]["training"]
    assert found["flops"] == pytest.approx(per_batch * 100_000)
    # the rule of thumb of 6 FLOPs per weight and token: encoder, decoder and softmax see half each
    weights = found["total"]["parameters"]
    assert found["flops"] == pytest.approx(6 * weights * found["tokens"] / 2, rel=0.1)


def test_the_papers_estimate_stands_beside_our_count(run):
    base, big = numbers(run, "base")["references"]
    assert (base["flops"], big["flops"]) == (
        pytest.approx(3.283e18, rel=1e-3), pytest.approx(2.298e19, rel=1e-3),
    )  # fmt: skip
    assert base["counted"] == pytest.approx(numbers(run, "base")["flops"])
    assert big["counted"] == pytest.approx(numbers(run, "big")["flops"])


def test_changes_tokens_and_epochs_count(run):
    assert numbers(run, "small")["flops"] is None  # the recipe counts in epochs
    _, out, _ = run("small")
    assert "the recipe counts in epochs: give --tokens N or train.steps=N" in out
    one, two = (numbers(run, "small", "--tokens", n)["flops"] for n in ("1000", "2000"))
    assert two == pytest.approx(2 * one)
    steps = numbers(run, "small", "train.steps=10", "train.accumulate=3", "train.max_tokens=100")
    assert steps["tokens"] == 3000
    wide = numbers(run, "small", "model.stack.d_ff=2048")["parts"]
    narrow = numbers(run, "small")["parts"]
    assert wide["encoder"]["parameters"] > narrow["encoder"]["parameters"]
    assert wide["embeddings"] == narrow["embeddings"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smal"], "there is no recipe 'smal'; did you mean small?"),
        (["base", "--length", "0"], "length 0: expected at least 1 token"),
        (["base", "--tokens", "-5"], "tokens -5: expected at least 1"),
        (["base", "--tokens", "many"], "should be a valid integer"),
        (["base", "model.stack.n_head=3"], "no such option; did you mean n_heads?"),
        ([], "Missing parameter: recipe"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(run, words, message):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_has_an_example(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "polyhead cost base" in out
