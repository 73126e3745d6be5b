"""Language modelling as a task: from files to a model, the same to the last bit when resumed."""

import hashlib
import json
import math
import os
import signal
from dataclasses import replace

import pytest
import torch
from tiny_gpt import tiny_gpt
from torch import nn

import polyhead
from polyhead.errors import ConfigError
from polyhead.metrics.perplexity import text_windows
from polyhead.models.registry import FAMILIES
from polyhead.pipelines.text_generator import load
from polyhead.tokenizers.storage import EOS, TextConfig, train_tokenizers
from polyhead.training.config import read_run, recipe_names
from polyhead.training.run_log import NullReporter
from polyhead.training.tasks.language_modeling import LanguageModelingTask
from polyhead.training.trainer import train


@pytest.fixture(autouse=True)
def _a_disk_that_does_not_wait(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


class FixedModel(nn.Module):
    """Gives every token but EOS the probability (1 - p) / (vocab - 1), and EOS p."""

    def __init__(self, vocab, p):
        super().__init__()
        self.to_logits = nn.Linear(1, vocab, bias=False)
        with torch.no_grad():
            self.to_logits.weight[:, 0] = math.log((1 - p) / (vocab - 1))
            self.to_logits.weight[EOS, 0] = math.log(p)

    def hidden(self, ids):
        return torch.ones(*ids.shape, 1)


def letters(lines):
    return train_tokenizers(lines, [], TextConfig(kind="characters")).source


@pytest.mark.parametrize("length", [1, 3, 4, 100])
def test_the_full_pass_predicts_every_token_once(length):
    lines = ["abc", "", "a b"]
    tokenizer = letters(lines)
    windows = text_windows(tokenizer, lines, length, max_tokens=8)
    said = [label for batch in windows.batches for label in batch.labels.flatten().tolist()]
    assert said == [id for line in lines for id in tokenizer.encode(line)]
    assert windows.n_tokens == len(said) == windows.n_characters == len("abc\n\na b\n")
    assert windows.batches[0].ids[0, 0] == EOS
    assert all(batch.ids.size(1) <= length for batch in windows.batches)


def test_bits_per_character_by_hand():
    """Three line ends of probability ½, seven letters of ½ shared by the other 8 ids."""
    lines = ["abc", "", "a  bc "]  # the second line end is all of its line; spaces are tidied
    tokenizer = letters(lines)
    assert len(tokenizer) == 4 + 4
    windows = text_windows(tokenizer, lines, 4, max_tokens=8)
    scores = windows.validate(FixedModel(len(tokenizer), 0.5))
    bits = 3 * 1 + 7 * math.log2(2 * 7)
    assert windows.n_characters == 10
    assert scores["bits_per_character"] == pytest.approx(bits / 10)
    assert scores["loss"] == pytest.approx(bits * math.log(2) / 10)
    assert scores["perplexity"] == pytest.approx(2 ** (bits / 10))


def test_bits_per_character_do_not_depend_on_the_cut_into_tokens_but_the_loss_does():
    lines = ["abab", "abba"] * 20
    pieces = train_tokenizers(lines, [], TextConfig(vocab=270)).source
    windows = text_windows(pieces, lines, 8, max_tokens=64)
    assert windows.n_tokens < windows.n_characters == 40 * 5
    scores = windows.validate(FixedModel(len(pieces), 0.1))
    total = scores["loss"] * windows.n_tokens
    assert scores["bits_per_character"] == pytest.approx(total / math.log(2) / 200)


class Leaving(NullReporter):
    """Somebody who says at a certain step that it is time to go."""

    def __init__(self, step):
        self.at = step

    def step(self, metrics):
        if metrics["step"] == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


def trace(folder):
    """Everything that a run leaves behind, but for the time it took."""
    times = ("seconds", "tokens_per_second")
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    metrics = [{k: v for k, v in entry.items() if k not in times} for entry in entries]
    sums = {
        name: hashlib.sha256((folder / "last" / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "training.safetensors", "config.json")
    }
    return metrics, sums


def test_a_run_that_is_interrupted_ends_the_same_to_the_last_bit(tmp_path):
    run = tiny_gpt(tmp_path)
    train(run, tmp_path / "whole")
    for step in (1, 5, 6, 11):  # also across the end of an epoch
        assert train(run, tmp_path / "cut", reporter=Leaving(step)).signal == signal.SIGTERM
    train(run, tmp_path / "cut")
    assert trace(tmp_path / "cut") == trace(tmp_path / "whole")
    metrics, _ = trace(tmp_path / "whole")
    valid = [entry for entry in metrics if entry["kind"] == "valid"]
    assert [sorted(entry) for entry in valid] == [
        ["bits_per_character", "kind", "loss", "perplexity", "step"]
    ] * 2


def test_a_finished_model_scores_what_its_last_validation_said(tmp_path):
    run = tiny_gpt(tmp_path)
    result = train(run, tmp_path / "run")
    held_out = LanguageModelingTask().read_data(run).corpus.valid
    found = load(tmp_path / "run" / "last", device="cpu").score(held_out)
    for name in ("loss", "perplexity", "bits_per_character"):
        assert getattr(found, name) == pytest.approx(result.metrics[name], rel=1e-5)
    card = (tmp_path / "run" / "last" / "README.md").read_text(encoding="utf-8")
    assert "polyhead generate DIRECTORY" in card
    assert "train.ko" in card


def test_training_from_python_takes_a_text(tmp_path):
    run = tiny_gpt(tmp_path)
    text = run.data.text[0]
    small = [f"model.stack.{name}={value}" for name, value in
             (("n_layers", 1), ("d_model", 8), ("n_heads", 2), ("d_ff", 8))]  # fmt: skip
    small += ["data.max_length=16", "text.vocab=900", "train.steps=1", "train.max_tokens=64"]
    polyhead.train("gpt-tiny", text=text, run=tmp_path / "run", overrides=small)
    assert polyhead.load(tmp_path / "run").generate("오늘은")


def test_without_a_text_it_says_how_to_give_one(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.text: give at least one file of plain text"):
        train(read_run("gpt2"), tmp_path / "run")


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("gpt")])
def test_every_recipe_has_its_context_in_the_model_and_no_smoothing(name):
    run = read_run(name)
    assert run.family == "gpt"
    assert run.model.max_length == run.data.max_length
    assert run.train.smoothing == 0
    assert run.decode.sample


def test_the_published_recipe_has_the_published_size():
    run = read_run("gpt2")
    with torch.device("meta"):
        model = FAMILIES["gpt"].model(replace(run.model, vocab=50_257))
    assert sum(p.numel() for p in model.parameters()) == 124_439_808
    assert run.train.max_tokens * run.train.accumulate == 512 * 1024
