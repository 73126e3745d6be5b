"""Language modeling: windows of text, bits per character, bit-exact resuming."""

import math

import pytest
import torch
from expected_errors import raises
from torch import nn

from polyhead.errors import ConfigError
from polyhead.metrics.perplexity import text_windows
from polyhead.special_tokens import EOS
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.training.config import read_run
from polyhead.training.trainer import train


class FixedModel(nn.Module):
    """A model that gives EOS the probability p and every other token (1 - p) / (vocab - 1)."""

    def __init__(self, vocab, p):
        super().__init__()
        self.to_logits = nn.Linear(1, vocab, bias=False)
        with torch.no_grad():
            self.to_logits.weight[:, 0] = math.log((1 - p) / (vocab - 1))
            self.to_logits.weight[EOS, 0] = math.log(p)

    def hidden(self, ids):
        return torch.ones(*ids.shape, 1)


def character_tokenizer(lines):
    return train_tokenizers(lines, [], TextConfig(kind="characters")).source


@pytest.mark.parametrize("length", [1, 3, 4, 100])
def test_validation_predicts_every_token_once(length):
    lines = ["abc", "", "a b"]
    tokenizer = character_tokenizer(lines)
    windows = text_windows(tokenizer, lines, length, max_tokens=8)
    labels = [label for batch in windows.batches for label in batch.labels.flatten().tolist()]
    assert labels == [id for line in lines for id in tokenizer.encode(line)]
    assert windows.n_tokens == len(labels) == windows.n_characters == len("abc\n\na b\n")
    assert windows.batches[0].ids[0, 0] == EOS
    assert all(batch.ids.size(1) <= length for batch in windows.batches)


def test_bits_per_character_by_hand():
    """Three line ends of probability ½, seven letters of ½ / 7."""
    lines = ["abc", "", "a  bc "]  # spaces are normalized
    tokenizer = character_tokenizer(lines)
    assert len(tokenizer) == 4 + 4
    windows = text_windows(tokenizer, lines, 4, max_tokens=8)
    scores = windows.validate(FixedModel(len(tokenizer), 0.5))
    bits = 3 * 1 + 7 * math.log2(2 * 7)
    assert windows.n_characters == 10
    assert scores["bits_per_character"] == pytest.approx(bits / 10)
    assert scores["loss"] == pytest.approx(bits * math.log(2) / 10)
    assert scores["perplexity"] == pytest.approx(2 ** (bits / 10))


def test_bits_per_character_count_characters_and_the_loss_counts_tokens():
    lines = ["abab", "abba"] * 20
    pieces = train_tokenizers(lines, [], TextConfig(vocab=270)).source
    windows = text_windows(pieces, lines, 8, max_tokens=64)
    assert windows.n_tokens < windows.n_characters == 40 * 5
    scores = windows.validate(FixedModel(len(pieces), 0.1))
    total = scores["loss"] * windows.n_tokens
    assert scores["bits_per_character"] == pytest.approx(total / math.log(2) / 200)


def test_training_without_text_is_refused(tmp_path):
    with raises(ConfigError, "no_data", "data.text"):
        train(read_run("gpt2"), tmp_path / "run")
