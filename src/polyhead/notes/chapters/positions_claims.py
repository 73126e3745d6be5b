"""Positions (rows F1 to F13): codes added to embeddings, and the rotation behind the sinusoids."""

import math
from dataclasses import replace

import torch
from torch.nn import functional as F

from polyhead.layers.embeddings import (
    BinaryPositions,
    CountingPositions,
    LearnedPositions,
    NormalisedPositions,
    SinusoidalPositions,
    TokenEmbedding,
    frequencies,
    rotation,
    swap_pairs,
)
from polyhead.layers.transformer_stack import StackConfig, TransformerBlock
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig
from polyhead.notes.claims import ClaimResult, claim, close, gap, near, refusal, same, shown


@claim("F1", TransformerBlock, SinusoidalPositions)
def permutation_equivariance() -> ClaimResult:
    """Measure the effect of a shuffle on the outputs, without and with positions."""
    block = TransformerBlock(StackConfig(d_model=16, n_heads=2, d_ff=32, dropout=0.0), cross=False)
    x, shuffled, where = torch.randn(1, 5, 16), torch.randperm(5), SinusoidalPositions(16)(5)
    without = gap(block(x[:, shuffled]), block(x)[:, shuffled])
    added = gap(block(x[:, shuffled] + where), block(x + where)[:, shuffled])
    got = ["blind" if change < 1e-5 else "sees" for change in (without, added)]
    return same(expected=["blind", "sees"], got=got)


@claim("F2", CountingPositions, SinusoidalPositions)
def counting_grows() -> ClaimResult:
    """Compute the length of the vector of position 100, by counting and by sinusoids."""
    kinds = CountingPositions, SinusoidalPositions
    lengths = [codes(512)(101)[100].norm().item() for codes in kinds]
    return near([100 * math.sqrt(512), 16.0], lengths, within=1e-5)


@claim("F3", NormalisedPositions)
def normalised_counts() -> ClaimResult:
    """Compute the code of the second word of four and of five."""
    second = [NormalisedPositions(1)(n)[1].item() for n in (4, 5)]
    return near([1 / 3, 1 / 4], second, within=1e-6)


@claim("F4", BinaryPositions)
def binary_distances() -> ClaimResult:
    """Compute the binary codes of four positions and their distances."""
    codes = BinaryPositions(3)(4)
    digits = ["".join(f"{digit:.0f}" for digit in row) for row in codes.tolist()]
    steps = [f"{step:.5f}" for step in codes.diff(dim=0).norm(dim=1).tolist()]
    expected = ["000", "001", "010", "011", "1.00000", f"{math.sqrt(2):.5f}", "1.00000"]
    return same(expected, got=digits + steps)


@claim("F5", SinusoidalPositions)
def sinusoidal_formula() -> ClaimResult:
    """Compare the table with Python's sin and cos."""
    table = SinusoidalPositions(4)(10)
    formula = [
        [wave(t * 10000 ** (-2 * k / 4)) for k in range(2) for wave in (math.sin, math.cos)]
        for t in range(10)
    ]
    result = near([0, 1, 0, 1, math.sin(1)], [*table[0].tolist(), table[1, 0].item()], within=1e-6)
    return result.if_also(close(formula, table, within=1e-6))


@claim("F6", SinusoidalPositions, swap_pairs)
def sine_first() -> ClaimResult:
    """Compare position 0 of the formula with the note's listing, and swap the pairs."""
    freqs = 1e-4 ** (2 * (torch.arange(4) // 2) / 4)
    listing = torch.arange(6)[:, None] * freqs
    listing[:, ::2], listing[:, 1::2] = listing[:, ::2].cos(), listing[:, 1::2].sin()
    table = SinusoidalPositions(4)(6)
    result = same(expected=[0.0, 1.0, 0.0, 1.0], got=table[0].tolist())
    differs = torch.allclose(swap_pairs(table), listing) and not torch.allclose(table, listing)
    return result.with_note(listing[0], differs=differs)


@claim("F7", frequencies, SinusoidalPositions)
def falling_frequencies() -> ClaimResult:
    """Check the shortest and longest of 256 wavelengths, and that they increase."""
    waves = 2 * math.pi / SinusoidalPositions(512).rate
    expected = [2 * math.pi, 2 * math.pi * 10000 ** (510 / 512), 255]
    got = [waves[0].item(), waves[-1].item(), int((waves.diff() > 0).sum())]
    return near(expected, got, within=1e-4)


@claim("F8", rotation, SinusoidalPositions)
def rotation_by_distance() -> ClaimResult:
    """Check that M(7) maps PE(t) to PE(t+7), MMᵀ = I and det M = 1, for 64 features."""
    matrix, waves = rotation(7, 64), SinusoidalPositions(64)
    turned = torch.einsum("kij,tkj->tki", matrix, waves(50).unflatten(-1, (32, 2))).flatten(1)
    pairs = (
        (turned, waves(50, 7)),
        (matrix @ matrix.mT, torch.eye(2)),
        (matrix.det(), torch.ones(1)),
    )
    gaps, name = [round(gap(*pair), 4) for pair in pairs], "M PE(t) - PE(t+φ), MMᵀ - I, det M - 1"
    return same(expected=f"{name}: [0, 0, 0]", got=f"{name}: {shown(gaps)}")


@claim("F9", SinusoidalPositions)
def product_falls_on_average() -> ClaimResult:
    """Compute the products of position 200 with its neighbours, and where they rise."""
    table = SinusoidalPositions(512).double()(401)
    after, before = table[200:] @ table[200], table[:201].flip(0) @ table[200]
    rises = (after.diff() > 0).nonzero().flatten() + 1
    got = [round(after[phi].item(), 1) for phi in (0, 1, 10, 50, 100)] + [int(rises[0]), len(rises)]
    result = same(expected=[256.0, 249.1, 173.8, 131.1, 112.0, 44, 55], got=got)
    result = result.if_also(torch.allclose(after, before, atol=1e-2))
    return result.with_note("0 rises", differs=len(rises) > 0)


@claim("F10", LearnedPositions)
def learned_table() -> ClaimResult:
    """Compare the table with a one-hot product; check that position 11 of 10 is rejected."""
    positions = LearnedPositions(10, 4)
    picked = F.one_hot(torch.arange(5), 10).float() @ positions.table.weight
    message = refusal(lambda: positions(11))
    refused = "has 10 positions" in message and "position 11" in message
    got = [torch.equal(picked, positions(5)), "refuses 11" if refused else message]
    return same(expected=[True, "refuses 11"], got=got)


@claim("F11", TransformerConfig, SinusoidalPositions, LearnedPositions)
def fixed_in_the_paper() -> ClaimResult:
    """Check the default of the base model, and the parameters of each kind of position."""
    small = TransformerConfig(9, 9, stack=StackConfig(n_layers=1, d_model=8, n_heads=1, d_ff=8))
    kinds: list[int | str] = [TransformerConfig().positions]
    for config in (small, replace(small, positions="learned")):
        embed = Transformer(config).embed_source
        kinds.append(sum(p.numel() for p in embed.parameters()) - embed.tokens.weight.numel())
    result = same(expected=["sinusoidal", 0, 1024 * 8], got=kinds)
    return result.with_note("learned", differs=kinds[0] != "learned")


@claim("F12", TokenEmbedding, Transformer)
def scaled_embedding() -> ClaimResult:
    """Compute a Transformer's input for tokens 3, 1, 4 by hand; measure dropout and variance."""
    stack = StackConfig(n_layers=1, d_model=2, n_heads=1, d_ff=2, dropout=0.5)
    embed = Transformer(TransformerConfig(4000, 4000, stack=stack)).embed_source
    words = embed.tokens.weight[[3, 1, 4]] * math.sqrt(2)
    places = torch.tensor([[math.sin(t), math.cos(t)] for t in range(3)])
    dropped = (embed(torch.ones(1, 2000, dtype=torch.int64)) == 0).float().mean()
    result = close(words + places, embed.eval()(torch.tensor([[3, 1, 4]]))[0], within=1e-6)
    as_large = 0.9 < 2 * embed.tokens.weight.var().item() < 1.1  # as PE, whose features reach 1
    return result.if_also(0.45 < dropped.item() < 0.55 and as_large)


@claim("F13", ViT)
def positions_of_patches() -> ClaimResult:
    """Check the table's shape, and that the stack receives patches plus positions."""
    model = ViT(replace(ViTConfig(), stack=StackConfig(1, 8, 1, 8, dropout=0.0, norm="pre")))
    heard: list[torch.Tensor] = []
    model.stack.register_forward_pre_hook(lambda _stack, inputs: heard.append(inputs[0]))
    images = torch.randn(1, 3, 224, 224)
    model(images)
    moved, table = heard[0][0, 1:] - model.embed(images)[0], model.positions(197)
    added = torch.allclose(moved, table[1:], atol=1e-6) and len(heard[0][0]) == len(table)
    got = [*model.positions(197).shape, "added" if added else "not added"]
    return same(expected=[14 * 14 + 1, 8, "added"], got=got)
