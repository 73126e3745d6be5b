"""The Reformer (rows N1 to N10): similar vectors found by hashing, and reversible layers."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.cost.counter import count_flops, saved_bytes
from polyhead.layers.attention import CAUSAL, NO_MASK, attention
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.lsh.attention import (
    Arrangement,
    LSHAttention,
    dense_shared_qk,
    shared_qk_weights,
)
from polyhead.layers.lsh.hashing import draw_rotations, hash_vectors, sort_by_bucket
from polyhead.layers.reversible import mean_of_streams
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.notes.claims import ClaimResult, claim, close, same


@claim("N1", attention)
def quadratic_attention() -> ClaimResult:
    """Measure how three doublings of the length multiply the matrix products."""
    work = []
    for n in (32, 64, 128, 256):
        q, k, v = torch.randn(3, 1, 1, n, 16)
        work.append(count_flops(lambda q=q, k=k, v=v: attention(q, k, v)))  # type: ignore[misc]
    grown = [after / before for before, after in pairwise(work)]
    exponentially = [grown[0] ** (2**i) for i in range(3)]  # with the same first step
    result = same(expected=[4.0, 4.0, 4.0], got=grown)
    return result.with_note(exponentially, differs=exponentially != grown)


@claim("N2", mean_of_streams, TransformerStack)
def memory_not_work() -> ClaimResult:
    """Measure the bytes saved at two depths, and the products of one training step."""
    config, x = StackConfig(2, 16, 2, 32, norm="pre"), torch.randn(2, 8, 16, requires_grad=True)
    kinds = config, replace(config, reversible=True)
    stacks = [TransformerStack(kind, n_layers=n) for kind in kinds for n in (2, 12)]
    kept = [saved_bytes(lambda s=s: s(x), without=s.parameters()) for s in stacks]  # type: ignore[misc]
    work = [count_flops(lambda s=s: s(x).sum().backward()) for s in stacks[1::2]]  # type: ignore[misc]
    deeper, harder = kept[3] / kept[2], work[1] / work[0]
    ordinary = kept[1] / kept[0]
    holds = deeper == 1.0 and abs(harder - 4 / 3) < 0.01 and ordinary > 4
    expected, got = "memory x1.00, work x1.33", f"memory x{deeper:.2f}, work x{harder:.2f}"
    return ClaimResult(expected, got, holds).with_note("work below x1.00", differs=harder > 1)


@claim("N3", hash_vectors, draw_rotations)
def collisions() -> ClaimResult:
    """Measure how often pairs at a given cosine share one of 16 buckets."""
    x, away = torch.linalg.qr(torch.randn(4000, 16, 2)).Q.unbind(-1)  # at right angles
    rates = []
    for cosine in (0.0, 0.5, 0.8, 0.95, 1.0):
        y = cosine * x + (1 - cosine**2) ** 0.5 * away
        buckets = hash_vectors(torch.stack([x, y])[:, None], draw_rotations(16, 16, 1, like=x))
        rates.append(round((buckets[:, 0] == buckets[:, 1]).float().mean().item(), 3))
    rising = rates == sorted(rates) and rates[-1] == 1.0 and rates[0] < 1 / 16 + 0.02
    return ClaimResult("rising to 1", " < ".join(f"{rate:g}" for rate in rates), rising)


@claim("N4", hash_vectors, draw_rotations)
def buckets_by_argmax() -> ClaimResult:
    """Compare the buckets with the formula by torch.argmax."""
    x = torch.randn(1, 1, 2000, 16)
    (rotation,) = rotations = draw_rotations(16, 8, 1, like=x)
    turned = x[0, 0] @ rotation[0]
    formula = torch.cat([turned, -turned], dim=-1).argmax(-1)
    ours, longer = hash_vectors(x, rotations)[0, 0, 0], hash_vectors(7 * x, rotations)[0, 0, 0]
    agree = torch.equal(ours.long(), formula) and torch.equal(ours, longer)
    quadrants = 2 ** x.size(-1)
    result = ClaimResult("8 buckets, all as argmax", f"{len(ours.unique())} buckets", agree)
    return result.with_note(f"{quadrants} quadrants", differs=len(ours.unique()) == 8)


@claim("N5", LSHAttention, hash_vectors, dense_shared_qk)
def rounds() -> ClaimResult:
    """Count pairs that share all hashes, near and far; compare rounds with dense attention."""
    x, away = torch.linalg.qr(torch.randn(4000, 16, 2)).Q.unbind(-1)
    pairs = [torch.stack([x, c * x + (1 - c**2) ** 0.5 * away])[:, None] for c in (0.95, 0.5)]
    hashes = [hash_vectors(pair, draw_rotations(16, 4, 3, like=x)) for pair in pairs]
    near, far = ((h[:, 0] == h[:, 1]).all(0).float().mean().item() for h in hashes)

    q = 3 * torch.randn(16, 16).repeat(16, 1) + torch.randn(1, 4, 256, 16)
    v, kernel = torch.randn(1, 4, 256, 16), LSHAttention(16, 8)
    exact = dense_shared_qk(q, v)
    errors = [(LSHAttention(16, n)(q, q, v) - exact).norm() / exact.norm() for n in (1, 2, 4, 8)]
    falling = errors == sorted(errors, reverse=True) and errors[3] < errors[0] / 2
    arranged = kernel.arrange(q)
    each = zip(*arranged[:2], strict=True)
    by_round = torch.stack([Arrangement(b[None], o[None], 16).sees() for b, o in each])
    union = by_round.any(0) & ~torch.eye(256, dtype=torch.bool)
    scores = (q @ F.normalize(q, dim=-1).mT).masked_fill(~union, -torch.inf)
    output = kernel(q, q, v, NO_MASK, arranged.buckets)
    once = torch.allclose(output, scores.softmax(-1) @ v, atol=1e-5)
    shown = " > ".join(f"{error:.2f}" for error in errors)
    got = f"all 3 hashes: near {near:.0%}, far {far:.0%}; {shown}"
    expected = "near above far; falling with the rounds"
    return ClaimResult(expected, got, near > 2 * far and falling and once)


@claim("N6", shared_qk_weights, LSHAttention)
def shared_queries_and_keys() -> ClaimResult:
    """Compare the weights of the kernel (one chunk) with the formula."""
    q = torch.randn(1, 2, 12, 16)
    scores = torch.einsum("bhid,bhjd->bhij", q, q / q.norm(dim=-1, keepdim=True))
    hidden = torch.ones(12, 12, dtype=torch.bool).triu()
    hidden[0, 0] = False  # the first has no other
    formula = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    values = torch.eye(12).expand(1, 2, 12, 12)  # so that the output is the weights
    kernel = LSHAttention(chunk=12, n_rounds=3)(q, q, values, CAUSAL)
    dense = close(formula, shared_qk_weights(q, q, CAUSAL), within=1e-5)
    return close(formula, kernel, within=1e-5).if_also(dense)


@claim("N7", sort_by_bucket, Arrangement.chunks)
def sorting() -> ClaimResult:
    """Compare with Python's sort and undo it; count pairs of a bucket that chunks compare."""
    buckets = torch.tensor([2, 0, 1, 2, 0, 2, 2, 1])
    order = sort_by_bucket(buckets[None, None, None])
    expected = sorted(range(8), key=lambda i: (int(buckets[i]), i))
    slots = order.argsort(dim=-1)
    back = order.take_along_dim(slots, dim=-1).flatten().tolist() == list(range(8))
    chunks = Arrangement(buckets[None, None, None], order, 4).chunks().flatten().tolist()
    right = order.flatten().tolist() == expected and back
    right = right and chunks == [expected.index(i) // 4 for i in range(8)]

    many = torch.randint(16, (1, 1, 1, 512))
    alike = many[..., :, None] == many[..., None, :]
    orders = sort_by_bucket(many), torch.arange(512).expand_as(many)
    compared = [Arrangement(many, o, 32).sees()[alike[0]].float().mean().item() for o in orders]
    holds = right and compared[0] > 0.7
    result = ClaimResult("above 70% of pairs in a bucket", f"{compared[0]:.0%} of them", holds)
    return result.with_note(f"not sorted: {compared[1]:.0%} of them", differs=compared[1] < 0.2)


@claim("N8", Arrangement.sees, LSHAttention, dense_shared_qk)
def visible_pairs() -> ClaimResult:
    """Compare the visible pairs with both conditions and with the note's."""
    q, v = torch.randn(2, 1, 1, 60, 8)
    kernel = LSHAttention(chunk=6, n_rounds=1, n_buckets=4, same_bucket=True)
    arranged = kernel.arrange(q)
    bucket = arranged.buckets.flatten().tolist()
    order = sorted(range(60), key=lambda i: (bucket[i], i))
    near = [[order.index(i) // 6 - order.index(j) // 6 in (0, 1) for j in range(60)]
            for i in range(60)]  # fmt: skip
    both = [[near[i][j] and bucket[i] == bucket[j] for j in range(60)] for i in range(60)]
    either = [[near[i][j] or bucket[i] == bucket[j] for j in range(60)] for i in range(60)]
    seen = arranged.sees(same_bucket=True)[0, 0]
    pairs, output = torch.tensor(both), kernel(q, q, v, NO_MASK, arranged.buckets)[0, 0]
    scores = q[0, 0] @ F.normalize(q[0, 0], dim=-1).T
    others = pairs & ~torch.eye(60, dtype=torch.bool)
    formula = scores.masked_fill(~others, -torch.inf).softmax(-1).nan_to_num() @ v[0, 0]
    matched = others.any(-1)
    dense = LSHAttention(60, 2)(q, q, v, CAUSAL, torch.zeros(2, 1, 1, 60, dtype=torch.int64))
    changed = torch.cat([q[:, :, :30], torch.randn(1, 1, 30, 8)], dim=2)
    fixed = LSHAttention(chunk=6, n_rounds=2).eval()  # the same rotations for both texts
    first, other = (fixed(x, x, v, CAUSAL)[:, :, :30] for x in (q, changed))
    values = torch.eye(60)[None, None]  # so that the output is the weights
    unseen = not fixed(q, q, values, CAUSAL).triu(1).any()
    expected, noted = int(pairs.sum()), sum(map(sum, either))
    result = same(f"{expected} pairs", f"{int(seen.sum())} pairs").if_also(torch.equal(seen, pairs))
    result = result.if_also(torch.allclose(output[matched], formula[matched], atol=1e-5))
    result = result.if_also(torch.allclose(dense, dense_shared_qk(q, v, CAUSAL), atol=1e-5))
    result = result.if_also(unseen and not torch.allclose(first, other, atol=1e-3))
    return result.with_note(f"{noted} pairs", differs=noted > expected)


@claim("N9", mean_of_streams)
def reversible_gradient() -> ClaimResult:
    """Compare the input's gradient with autograd through both formulas, with dropout."""
    config = StackConfig(4, 16, 2, 32, dropout=0.1, norm="pre", reversible=True)
    stack = TransformerStack(config).double()
    x = torch.randn(2, 6, 16, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    y_1 = y_2 = x
    blocks: list[Any] = list(stack.blocks)
    for b in blocks:
        y_1 = y_1 + b.self_residual.branch(y_2, lambda h: b.attend(h, CAUSAL, BlockCache()))  # noqa: B023
        y_2 = y_2 + b.feed_residual.branch(y_1, b.feed_forward)
    weight = blocks[0].self_attention.w_v.weight
    out = stack.norm((y_1 + y_2) / 2)
    direction = torch.randn_like(out)
    expected = torch.autograd.grad(out, [x, weight], direction)
    torch.manual_seed(1)
    got = torch.autograd.grad(stack(x, CAUSAL), [x, weight], direction)
    first = close(expected[0], got[0], within=1e-9)
    return close(expected[1], got[1], within=1e-9).if_also(first)


@claim("N10", FeedForward)
def feed_forward_in_chunks() -> ClaimResult:
    """Compare torch's two layers at once with ours in chunks of 7 positions."""
    ours, x = FeedForward(16, 64, "gelu", 0.0, chunk=7), torch.randn(2, 50, 16)
    at_once = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    at_once[0].load_state_dict(ours.w_1.state_dict())
    at_once[2].load_state_dict(ours.w_2.state_dict())
    widest: list[int] = []
    ours.w_1.register_forward_hook(lambda _, __, inner: widest.append(inner.numel() // 64))
    return close(expected=at_once(x), got=ours(x), within=1e-6).if_also(max(widest) == 7)
