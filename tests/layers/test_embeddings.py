"""From tokens to vectors: the scale, the positions that are added, the dropout."""

import math

import torch

from polyhead.layers.embeddings import TokenEmbedding
from polyhead.layers.positions import SinusoidalPositions


def test_embeddings_are_scaled_then_positions_added():
    embed = TokenEmbedding(5, 8, SinusoidalPositions(8), dropout=0.0, scale=True)
    ids = torch.tensor([[3, 1]])
    expected = math.sqrt(8) * embed.tokens.weight[ids] + SinusoidalPositions(8)(2)
    torch.testing.assert_close(embed(ids), expected)


def test_dropout_falls_on_the_sum():
    torch.manual_seed(0)
    embed = TokenEmbedding(5, 64, SinusoidalPositions(64), dropout=0.5).train()
    assert 0.3 < (embed(torch.ones(4, 10, dtype=torch.long)) == 0).float().mean() < 0.7
