"""Restricted attention against dense attention with a band drawn by hand, and its cost."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from polyhead.layers import local_attention as local
from polyhead.layers.attention import CAUSAL, KV, NO_MASK, Mask, MultiHeadAttention
from polyhead.layers.kv_cache import BlockCache, DecoderState
from polyhead.layers.local_attention import LocalAttention


def band(length, window, causal):
    """Pair by pair, as the definition says it."""
    rows = [
        [(0 <= i - j <= window) if causal else abs(i - j) <= window for j in range(length)]
        for i in range(length)
    ]
    return torch.tensor(rows)


def qkv(length, *, batch=2, heads=2, d_head=8, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(batch, heads, length, d_head, requires_grad=True) for _ in range(3)]


def dense(q, k, v, allowed):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def gradients(output, inputs, direction):
    return torch.autograd.grad((output * direction).sum(), inputs)


def assert_dense(length, window, causal, padded, seed=0):
    """Compare outputs and gradients with dense attention in which a band is allowed."""
    q, k, v = qkv(length, seed=seed)
    keys = torch.rand(2, length) > 0.3 if padded else None  # some rows may see nothing at all
    allowed = band(length, window, causal)
    if keys is not None:
        allowed = allowed & keys[:, None, None]
    ours = LocalAttention(window)(q, k, v, Mask(keys=keys, causal=causal))
    theirs = dense(q, k, v, allowed)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    direction = torch.randn_like(theirs)
    for mine, right in zip(
        gradients(ours, (q, k, v), direction),
        gradients(theirs, (q, k, v), direction),
        strict=True,
    ):
        torch.testing.assert_close(mine, right, atol=2e-6, rtol=1e-5)


@given(st.integers(1, 200), st.integers(1, 90), st.booleans(), st.booleans(), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_blocks_equal_dense_attention_with_a_band(length, window, causal, padded, seed):
    assert_dense(length, window, causal, padded, seed)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [129, 193, 250])
def test_very_long_inputs_are_computed_span_by_span_with_the_same_result(
    monkeypatch, length, causal
):
    monkeypatch.setattr(local, "SPAN", 64)
    assert_dense(length, 40, causal, padded=True)


def test_dropout_is_drawn_the_same_when_a_span_is_computed_again(monkeypatch):
    monkeypatch.setattr(local, "SPAN", 64)
    q, k, v = qkv(200)
    kernel = LocalAttention(8, dropout=0.5).train()
    torch.manual_seed(1)
    output = kernel(q, k, v, CAUSAL)
    (by_v,) = torch.autograd.grad(output.sum(), v)  # linear in v: the sum must come back
    torch.testing.assert_close((by_v * v).sum(), output.sum(), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("length", [3, 40, 129])
@pytest.mark.parametrize("mask", [NO_MASK, CAUSAL])
def test_the_picture_shows_what_the_blocks_compute(length, mask):
    q, k, v = qkv(length)
    kernel = LocalAttention(5)
    weights = kernel.weights(q, k, mask)
    torch.testing.assert_close(weights @ v, kernel(q, k, v, mask))
    hidden = ~band(length, 5, mask.causal)
    assert (weights[:, :, hidden] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, length))


def test_rows_that_see_nothing_are_zero_and_have_finite_gradients():
    q, k, v = qkv(100)
    keys = torch.ones(2, 100, dtype=torch.bool)
    keys[1, 40:80] = False  # positions 50 to 69 have no visible neighbour within 10
    output = LocalAttention(10)(q, k, v, Mask(keys=keys))
    assert (output[1, :, 50:70] == 0).all()
    assert (output[0] != 0).all()
    assert (output[1, :, :50] != 0).all()
    for gradient in gradients(output, (q, k, v), torch.ones_like(output)):
        assert torch.isfinite(gradient).all()


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements any operation gave back."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return result


def test_memory_grows_with_the_length_and_not_with_its_square():
    largest = []
    for length in (512, 1024):
        q, k, v = qkv(length, batch=1, heads=1)
        with LargestTensor() as seen:
            LocalAttention(16)(q, k, v, CAUSAL).sum().backward()
        largest.append(seen.largest)
    assert largest[1] == 2 * largest[0]
    assert largest[1] < 1024 * 1024 / 10


@pytest.mark.parametrize(("window", "size"), [(2, 1), (30, 1), (3, 6)])
def test_a_few_positions_at_a_time_equal_all_at_once(window, size):
    layer, x = MultiHeadAttention(8, 2, LocalAttention(window)), torch.randn(2, 48, 8)
    cache = BlockCache(capacity=48)
    parts = [layer(p, cache.extend(layer.project(p)), CAUSAL) for p in x.split(size, dim=1)]
    at_once = layer(x, layer.project(x), CAUSAL)
    torch.testing.assert_close(torch.cat(parts, dim=1), at_once)


def test_beams_that_change_their_parents_see_the_last_positions_of_their_own_past():
    """Three hypotheses that swap pasts at every step, against each one's past attended alone."""
    width, steps, window = 3, 9, 2
    kernel, cache = LocalAttention(window), BlockCache(capacity=width * steps)
    state = DecoderState([cache], None, torch.zeros(1, width, width * steps, dtype=torch.bool))
    pasts = [[] for _ in range(width)]
    for _ in range(steps):
        mask, _ = state.advance(width)
        q, k, v = (torch.randn(1, 2, width, 4) for _ in range(3))
        kv = cache.extend(KV(k, v))
        output, weights = kernel(q, *kv, mask), kernel.weights(q, kv.keys, mask)
        torch.testing.assert_close(weights @ kv.values, output)
        for beam in range(width):
            pasts[beam] = [*pasts[beam], (k[:, :, beam], v[:, :, beam])]
            keys, values = (
                torch.stack(side, dim=2) for side in zip(*pasts[beam][-window - 1 :], strict=True)
            )
            alone = dense(q[:, :, [beam]], keys, values, None)
            torch.testing.assert_close(output[:, :, [beam]], alone)
        parents = torch.randint(0, width, (1, width))
        state.select(parents)
        pasts = [pasts[parent] for parent in parents[0].tolist()]


def test_double_precision_stays_double():
    q, k, v = (t.detach().double() for t in qkv(70))
    output = LocalAttention(9)(q, k, v, CAUSAL)
    assert output.dtype == torch.float64
    torch.testing.assert_close(output, dense(q, k, v, band(70, 9, True)))


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ValueError, match="a window must reach at least 1 position, got 0"):
        LocalAttention(0)
