"""Claims about positions fail when a position code is broken."""

import torch
from claims import ClaimBreaks
from torch import nn

from polyhead.layers.embeddings import (
    BinaryPositions,
    LearnedPositions,
    NormalisedPositions,
    SinusoidalPositions,
    TokenEmbedding,
    swap_pairs,
)
from polyhead.layers.transformer_stack import TransformerBlock
from polyhead.models.vit import ViT
from polyhead.notes.chapters import positions_claims as positions

breaks = ClaimBreaks("positions")
build, forward = SinusoidalPositions.__init__, SinusoidalPositions.forward
binary, embed, block = BinaryPositions.forward, TokenEmbedding.__init__, TransformerBlock.forward
rotation = positions.rotation


@breaks(SinusoidalPositions, "forward", exactly="F5 F6 F8 F12")
def sine_and_cosine_swapped(self, length, offset=0):
    return swap_pairs(forward(self, length, offset))


@breaks(SinusoidalPositions, "__init__", at_least="F5 F6 F7 F8 F9")
def wrong_frequencies(self, d_model):
    build(self, d_model)
    self.rate = 1000.0 ** (-torch.arange(0, d_model, 2) / d_model)


@breaks(SinusoidalPositions, "forward", exactly="F8")
def offset_ignored(self, length, _offset=0):
    return forward(self, length)


@breaks(positions, "rotation", exactly="F8")
def rotation_in_the_other_direction(phi, d):
    return rotation(phi, d).transpose(1, 2)


@breaks(BinaryPositions, "forward", exactly="F4")
def digits_reversed(self, length, offset=0):
    return binary(self, length, offset).flip(1)


@breaks(NormalisedPositions, "forward", exactly="F3")
def counts_that_ignore_the_length(_self, length):
    return torch.arange(length)[:, None] / 10


@breaks(TokenEmbedding, "__init__", exactly="F12")
def embedding_without_scale(self, vocab, d_model, positions, dropout, *, scale=False):
    embed(self, vocab, d_model, positions, dropout, scale=not scale)


@breaks(TransformerBlock, "forward", at_least="F1")
def block_that_knows_the_order(self, x):
    return block(self, x + torch.arange(x.size(1))[:, None])


@breaks(LearnedPositions, "forward", exactly="F10")
def table_that_wraps_around(self, length, offset=0):
    return self.table(torch.arange(offset, offset + length) % self.table.num_embeddings)


@breaks(ViT, "places", exactly="F13")
def image_without_positions(_self, _grid):
    return torch.zeros(197, 8)


@breaks(SinusoidalPositions, "__init__", exactly="F11")
def learned_sinusoids(self, d_model):
    build(self, d_model)
    self.extra = nn.Parameter(torch.zeros(d_model))


test_breaks_are_detected = breaks.test()
