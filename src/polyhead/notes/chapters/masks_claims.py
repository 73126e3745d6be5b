"""Masks (rows D1 to D11): visible pairs, and why a score of zero does not hide a key."""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.layers.attention import (
    CAUSAL,
    FullAttention,
    Mask,
    MultiHeadAttention,
    attention_weights,
    not_padding,
)
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import ClaimResult, claim, close, gap, refusal, same


@claim("D1", Mask.dense, FullAttention)
def future_is_hidden() -> ClaimResult:
    """Measure how far the first four outputs move when the fifth token changes."""
    layer, x = MultiHeadAttention(8, 2, FullAttention()), torch.randn(1, 5, 8)
    other = torch.cat([x[:, :4], torch.randn(1, 1, 8)], dim=1)
    queries_deleted = torch.ones(1, 5, 5, dtype=torch.bool)
    queries_deleted[:, 4:] = False  # a row is a query

    def moved(mask: Mask) -> float:
        before, after = layer(x, layer.project(x), mask), layer(other, layer.project(other), mask)
        return gap(before[:, :4], after[:, :4])

    result = same(expected=0.0, got=moved(CAUSAL))
    noted = moved(Mask(pairs=queries_deleted))
    return result.with_note(noted, differs=noted > 1e-3)


@claim("D2", attention_weights)
def renormalised_weights() -> ClaimResult:
    """Compare -∞ before the softmax with zeroing and renormalising after it."""
    q, k = torch.randn(2, 1, 1, 4, 8)
    kept = (q @ k.mT / 8**0.5).softmax(-1).tril()
    weights = attention_weights(q, k, CAUSAL)
    result = close(expected=kept / kept.sum(-1, keepdim=True), got=weights, within=1e-6)
    return same(expected=[1.0, 0.0, 0.0, 0.0], got=weights[0, 0, 0].tolist()).if_also(result)


@claim("D3", Mask.dense)
def causal_triangle() -> ClaimResult:
    """List the keys that each of four queries may attend to."""
    theirs = nn.Transformer.generate_square_subsequent_mask(4) == 0
    ours = CAUSAL.dense(4, 4, torch.device("cpu"))
    assert ours is not None, "four queries must be kept from the future"
    expected, got = ([row.nonzero()[:, 0].tolist() for row in m] for m in (theirs, ours[0, 0]))
    return same(expected=expected, got=got)


@claim("D4", attention_weights)
def zero_does_not_hide() -> ClaimResult:
    """Compute weights with one visible key of score 2 and two hidden ones."""
    q, k = torch.tensor([[[[1.0]]]]), torch.tensor([[[[2.0], [5.0], [7.0]]]])
    visible = torch.tensor([[True, False, False]])
    weights = attention_weights(q, k, Mask(keys=visible))[0, 0, 0]
    leaked = (q @ k.mT * visible).softmax(-1)[0, 0, 0]
    leaks = torch.allclose(leaked, torch.tensor([0.787, 0.107, 0.107]), atol=1e-3)
    result = same(expected=torch.tensor([1.0, 0.0, 0.0]), got=weights)
    return result.with_note(leaked, differs=leaks)


@claim("D5", attention_weights)
def minus_infinity() -> ClaimResult:
    """Compute causal weights in half precision, with -∞ and with the note's fill value."""
    q, k = torch.randn(2, 1, 1, 4, 8)
    half = attention_weights(q.half(), k.half(), CAUSAL)
    result = close(expected=attention_weights(q, k, CAUSAL), got=half.float(), within=2e-3)
    scores, future = q.half() @ k.half().mT, torch.ones(4, 4).triu(1).bool()
    noted = refusal(lambda: scores.masked_fill(future, -1e10))
    return result.with_note(noted, differs="overflow" in noted)


@claim("D6", attention_weights)
def causal_matrix_of_the_note() -> ClaimResult:
    """Compare the weights of equal scores with the note's rows, to four decimals."""
    nothing = torch.zeros(1, 1, 8, 4)
    weights = attention_weights(nothing, nothing, CAUSAL)[0, 0]
    rows = [[round(1 / (i + 1), 4) if j <= i else 0.0 for j in range(8)] for i in range(8)]
    printed = [[round(w, 4) for w in row] for row in weights.tolist()]
    first_column = same(expected=[row[0] for row in rows], got=[row[0] for row in printed])
    return first_column.if_also(printed == rows)


@claim("D7", not_padding, Transformer.encode)
def padding_is_hidden() -> ClaimResult:
    """Compare a short sentence in a padded batch with the same sentence alone."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(2, 16, 2, 32))).eval()
    source = torch.tensor([[3, 4, 5, 6, 2], [7, 2, 0, 0, 0]])
    target = torch.tensor([[1, 5, 6], [1, 7, 8]])
    drawn = not_padding(source, pad=0).dense(3, 5, source.device)
    together, alone = model(source, target)[1:], model(source[1:, :2], target[1:])
    result = close(expected=alone, got=together, within=1e-5)
    shape = None if drawn is None else list(drawn.shape)
    return same(expected=[2, 1, 1, 5], got=shape).if_also(result)


@claim("D8", Mask.dense, not_padding)
def future_and_padding() -> ClaimResult:
    """Compare the combined mask with both conditions, pair by pair, padding in the middle."""
    ids = [1, 5, 0, 7]
    padding = not_padding(torch.tensor([ids]), pad=0)
    drawn = Mask(keys=padding.keys, causal=True).dense(4, 4, torch.device("cpu"))
    assert drawn is not None, "something is hidden here"
    expected = [[j for j in range(4) if j <= i and ids[j] != 0] for i in range(4)]
    return same(expected=expected, got=[row.nonzero()[:, 0].tolist() for row in drawn[0, 0]])


@claim("D9", Transformer, Mask.dense)
def outputs_that_depend_on_a_token() -> ClaimResult:
    """List the outputs that change when one target token does."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(2, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 2]]), torch.tensor([[1, 5, 6, 7]])
    logits, reached = model(source, target), []
    for j in range(4):
        changed = target.clone()
        changed[0, j] = 8
        moved = (model(source, changed) != logits).any(-1)[0]
        reached.append(moved.nonzero()[:, 0].tolist())
    return same(expected=[[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]], got=reached)


@claim("D10", Transformer.hidden, GPT.hidden, Mask.dense)
def causal_mask_in_decoder_and_gpt() -> ClaimResult:
    """Count the pairs (i, j > i) with any weight in a decoder, a GPT and an encoder."""
    stack, ids = StackConfig(1, 16, 2, 32, dropout=0.0), torch.tensor([[3, 4, 5, 6]])
    translation = Transformer(TransformerConfig(9, 9, stack=stack))
    gpt = GPT(GPTConfig(9, stack=stack))
    with record_attention(translation) as maps, record_attention(gpt) as its_maps:
        translation(ids, ids)
        gpt(ids)
    maps |= its_maps
    ahead = {name: int(weights.sum(1).triu(1).count_nonzero()) for name, weights in maps.items()}
    names = "decoder.blocks.0", "stack.blocks.0", "encoder.blocks.0"
    return same(expected=[0, 0, 6], got=[ahead[f"{name}.self_attention"] for name in names])


@claim("D11", Transformer.step, Transformer.hidden)
def parallel_training() -> ClaimResult:
    """Compare one pass over five target tokens with five cached steps."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(2, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 5, 2]]), torch.tensor([[1, 5, 6, 7, 8]])
    state = model.begin(source, max_length=5)
    steps = [model.step(target[:, [i]], state) for i in range(5)]
    chances = F.softmax(torch.cat(steps, dim=1), dim=-1)
    return close(expected=model(source, target).softmax(-1), got=chances, within=1e-5)
