"""The four scores pair by pair, and attention with them against torch and against each other."""

import math

import pytest
import torch

from polyhead.layers.attention import CAUSAL, NO_MASK, Mask
from polyhead.layers.attention_scores import (
    BUILT_IN,
    Additive,
    General,
    ScoredAttention,
    make_score,
)

kinds = pytest.mark.parametrize("kind", list(BUILT_IN))


def qkv(n_queries=4, n_keys=4, d_query=6, d_key=6, seed=0):
    torch.manual_seed(seed)
    return (
        torch.randn(2, 3, n_queries, d_query, requires_grad=True),
        torch.randn(2, 3, n_keys, d_key, requires_grad=True),
        torch.randn(2, 3, n_keys, 5, requires_grad=True),
    )


def shaken(score):
    """Return the score with random parameters."""
    torch.manual_seed(1)
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter)
    return score


def by_hand(kind, score, head, q, k):
    """One query and one key, in the words of the formula."""
    if kind == "general":
        return q @ score.w[head] @ k
    if kind == "additive":
        return score.v[head] @ torch.tanh(score.w_q[head].T @ q + score.w_k[head].T @ k)
    return q @ k / (math.sqrt(len(q)) if kind == "scaled_dot" else 1.0)


@kinds
def test_every_score_is_its_formula_pair_by_pair(kind):
    q, k, _ = qkv(n_keys=5)
    score = shaken(make_score(kind, 3, 6))
    scores = score(q, k)
    assert scores.shape == (2, 3, 4, 5)
    for batch, head, query, key in ((0, 0, 0, 0), (1, 2, 3, 4), (0, 1, 2, 3), (1, 0, 3, 1)):
        expected = by_hand(kind, score, head, q[batch, head, query], k[batch, head, key])
        torch.testing.assert_close(scores[batch, head, query, key], expected)


def test_general_begins_as_the_scaled_dot_product():
    q, k, _ = qkv()
    torch.testing.assert_close(General(3, 6, 6)(q, k), make_score("scaled_dot", 3, 6)(q, k))


@pytest.mark.parametrize("make", [General, Additive])
def test_new_scores_have_about_unit_variance_in_any_width(make):
    for d_query, d_key in ((64, 64), (16, 48)):
        q, k = torch.randn(8, 4, 32, d_query), torch.randn(8, 4, 32, d_key)
        assert 0.1 < make(4, d_query, d_key)(q, k).var() < 2.0


@kinds
@pytest.mark.parametrize("mask", ["everything", "the past", "padding", "pairs"])
def test_attention_with_any_score_is_softmax_times_values(kind, mask):
    torch.manual_seed(2)
    mask = {
        "everything": NO_MASK,
        "the past": CAUSAL,
        "padding": Mask(keys=torch.tensor([[True, False, True, True], [True, True, False, False]])),
        "pairs": Mask(pairs=torch.rand(2, 4, 4) > 0.5),
    }[mask]
    q, k, v = qkv()
    kernel = ScoredAttention(shaken(make_score(kind, 3, 6)))
    scores, allowed = kernel.score(q, k), mask.dense(4, 4, q.device)
    exponent = scores.exp() if allowed is None else scores.exp() * allowed
    weights = exponent / exponent.sum(-1, keepdim=True).clamp(min=1e-30)
    torch.testing.assert_close(kernel.weights(q, k, mask), weights, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(kernel(q, k, v, mask), weights @ v, atol=1e-5, rtol=1e-4)


@kinds
def test_who_may_look_at_nothing_gets_zero_and_finite_gradients(kind):
    q, k, v = qkv()
    kernel = ScoredAttention(make_score(kind, 3, 6))
    mask = Mask(keys=torch.tensor([[True] * 4, [False] * 4]))
    output = kernel(q, k, v, mask)
    assert (output[1] == 0).all()
    assert (kernel.weights(q, k, mask)[1] == 0).all()
    output.sum().backward()
    for tensor in (q, k, v, *kernel.parameters()):
        assert torch.isfinite(tensor.grad).all()


@pytest.mark.parametrize("kind", ["general", "additive"])
def test_queries_and_keys_may_differ_in_width_if_a_matrix_stands_between(kind):
    q, k, v = qkv(d_query=6, d_key=8)
    kernel = ScoredAttention(make_score(kind, 3, 6, d_key=8))
    torch.testing.assert_close(kernel(q, k, v), kernel.weights(q, k) @ v)
    with pytest.raises(ValueError, match="queries of width 6 and keys of width 8, got 6 and 6"):
        kernel(q, q, v)


@pytest.mark.parametrize("kind", ["dot", "scaled_dot"])
def test_dot_products_need_equal_widths(kind):
    with pytest.raises(ValueError, match="needs queries as wide as keys, got 6 and 8"):
        make_score(kind, 3, 6, d_key=8)
    q, k, v = qkv(d_query=6, d_key=8)
    kernel = ScoredAttention(make_score(kind, 3, 6))
    for call in (lambda: kernel(q, k, v), lambda: kernel.weights(q, k)):
        with pytest.raises(ValueError, match="needs queries as wide as keys, got 6 and 8"):
            call()
