"""Encoder and decoder (rows H1, H2, H5 to H7, H10, H11, H13, H14): the model as a whole."""

import copy
from dataclasses import replace
from itertools import combinations

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import greedy_search
from polyhead.layers.embeddings import LearnedPositions, SinusoidalPositions, TokenEmbedding
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.models.transformer import Transformer, TransformerConfig, xavier
from polyhead.notes.claims import ClaimResult, claim, close, gap, near, same


@claim("H1", TransformerStack.forward)
def sequential_blocks() -> ClaimResult:
    """Compare the stack with six blocks in sequence, and with the note's parallel blocks."""
    stack = TransformerStack(StackConfig(d_model=16, n_heads=2, d_ff=32)).eval()
    x = torch.randn(1, 4, 16)
    expected = nn.Sequential(*stack.blocks)(x)
    noted = torch.stack([block(x) for block in stack.blocks]).mean(0)
    result = close(expected=expected, got=stack(x), within=1e-6)
    off = gap(noted, expected)
    return result.with_note(f"off by {off:.2g}", differs=off > 0.1)


@claim("H2", TransformerStack, StackConfig)
def shape_preserving() -> ClaimResult:
    """Compute the shape after six blocks, and the change of a second application."""
    config = StackConfig()
    small = StackConfig(config.n_layers, d_model=16, n_heads=2, d_ff=32)
    stack, x = TransformerStack(small).eval(), torch.randn(2, 5, 16)
    once = stack(x)
    off = gap(stack(once), once)
    result = same(expected=[6, 2, 5, 16], got=[len(stack.blocks), *once.shape])
    return result.with_note(f"f(f(x)) is off by {off:.2g}", differs=off > 0.1)


@claim("H5", TransformerStack, xavier)
def no_two_layers_are_equal() -> ClaimResult:
    """Count pairs of equal matrices in a model of three layers and in three deep copies."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(3, 16, 2, 32)))
    copies = nn.ModuleList(copy.deepcopy(model.encoder.blocks[0]) for _ in range(3))
    equal = [
        sum(torch.equal(a, b) for a, b in combinations(module.parameters(), 2) if a.dim() > 1)
        for module in (model, copies)
    ]
    return same(expected=0, got=equal[0]).with_note(equal[1], differs=equal[1] > 0)


@claim("H6", Transformer, SinusoidalPositions, LearnedPositions)
def registered_parameters() -> ClaimResult:
    """Count tensors reached by autograd but not registered, and parameters of positions."""
    config = TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))
    fixed = Transformer(config).eval()
    learned = Transformer(replace(config, positions="learned", max_length=100))
    saved = {tensor.data_ptr() for tensor in fixed.state_dict().values()}
    listed = {tensor.data_ptr() for tensor in fixed.parameters()}
    reached, seen = set(), set()
    ahead = [fixed(torch.tensor([[3, 2]]), torch.tensor([[1, 4]])).sum().grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            ahead += [following for following, _ in node.next_functions]
            reached |= {node.variable.data_ptr()} if hasattr(node, "variable") else set()
    sizes = [sum(p.numel() for p in model.parameters()) for model in (fixed, learned)]
    got = [len(reached - listed), len(listed - reached), len(listed - saved), sizes[1] - sizes[0]]
    return same(expected=[0, 0, 0, 2 * 100 * 16], got=got)


@claim("H7", TokenEmbedding)
def embedding_lookup() -> ClaimResult:
    """Compare the embedding of four tokens with a product of one-hot rows."""
    embed = TokenEmbedding(9, 16, SinusoidalPositions(16), dropout=0.0, scale=True)
    ids = torch.tensor([[3, 8, 3, 0]])
    picked = F.one_hot(ids, 9).float() @ embed.tokens.weight
    return close(expected=4 * picked, got=embed(ids) - embed.positions(4), within=1e-6)  # √16 = 4


@claim("H10", Transformer.encode)
def shape_of_the_memory() -> ClaimResult:
    """Compare the memory's shape with the embedding's, for one, two and six layers."""
    source, shapes = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]]), []
    for n_layers in (1, 2, 6):
        model = Transformer(TransformerConfig(9, 9, stack=StackConfig(n_layers, 16, 2, 32)))
        shapes.append(list(model.encode(source).states.shape))
    return same(expected=[list(model.embed_source(source).shape)] * 3, got=shapes)


@claim("H11", Transformer, TransformerConfig)
def size_of_the_notebook_model() -> ClaimResult:
    """Count the weights of the library's model plus one bias per target word."""
    config = TransformerConfig(7855, 5893, tie="none", positions="learned", max_length=100)
    config = replace(config, stack=StackConfig(n_layers=3, d_model=256, n_heads=8, d_ff=512))
    weights = sum(parameter.numel() for parameter in Transformer(config).parameters())
    return same(expected=9_038_853, got=weights + config.target_vocab)


@claim("H13", TransformerConfig, TransformerStack)
def base_and_big() -> ClaimResult:
    """Count millions of parameters of both stacks and one shared embedding (tie = "all")."""
    big = StackConfig(d_model=1024, n_heads=16, d_ff=4096)
    millions = []
    for config in (TransformerConfig(), TransformerConfig(stack=big)):
        with torch.device("meta"):  # counted without memory for the weights
            stacks = [TransformerStack(config.stack), TransformerStack(config.stack, cross=True)]
        weights = sum(p.numel() for stack in stacks for p in stack.parameters())
        words = config.target_vocab * config.stack.d_model
        millions.append(round((weights + words) / 1e6, 1))
    return near(expected=[65.0, 213.0], got=millions, within=0.03)


@claim("H14", greedy_search, Transformer.begin, Transformer.step)
def greedy_translation() -> ClaimResult:
    """Compare greedy output with the first choices when the model reads it in one pass."""
    config = TransformerConfig(100, 100, tie="none", stack=StackConfig(1, 16, 2, 32))
    model = Transformer(config).eval()
    source = torch.tensor([[3, 4, 5, 2]])
    written = greedy_search(model, source, DecodeConfig(max_length=6)).tokens[0]  # (1, length)
    written = written[:, : int((written != 0).sum())]  # without what stands after the end
    logits = model(source, torch.cat([torch.tensor([[1]]), written[:, :-1]], dim=1))
    choices = 2 + logits[..., 2:].argmax(-1)  # padding and BOS are never said
    return same(expected=choices[0].tolist(), got=written[0].tolist())
