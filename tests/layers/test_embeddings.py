"""Where words stand: the position code and how it is added."""

import math

import pytest
import torch

from polyhead.layers.embeddings import LearnedPositions, SinusoidalPositions, TokenEmbedding


def test_the_sinusoids_are_the_formula():
    table = SinusoidalPositions(8)(20)
    for position in range(20):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_an_offset_continues_where_the_last_call_ended():
    for positions in (SinusoidalPositions(8), LearnedPositions(20, 8)):
        torch.testing.assert_close(positions(12)[5:], positions(7, offset=5))


def test_embeddings_are_scaled_then_positions_added():
    embed = TokenEmbedding(5, 8, SinusoidalPositions(8), dropout=0.0, scale=True)
    ids = torch.tensor([[3, 1]])
    expected = math.sqrt(8) * embed.tokens.weight[ids] + SinusoidalPositions(8)(2)
    torch.testing.assert_close(embed(ids), expected)


def test_dropout_falls_on_the_sum():
    torch.manual_seed(0)
    embed = TokenEmbedding(5, 64, SinusoidalPositions(64), dropout=0.5).train()
    assert 0.3 < (embed(torch.ones(4, 10, dtype=torch.long)) == 0).float().mean() < 0.7


def test_an_odd_width_has_no_pairs_of_waves():
    with pytest.raises(ValueError, match="need an even d_model, got 7"):
        SinusoidalPositions(7)
