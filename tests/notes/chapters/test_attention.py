"""The claims about attention hold, and stop to hold when a part of it is broken."""

import math
from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing
from torch.nn import functional as F

from polyhead.layers.attention import KV, FullAttention, MultiHeadAttention
from polyhead.layers.attention_scores import Dot, General, ScaledDot
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.masks import NO_MASK
from polyhead.layers.recurrent import LookBack
from polyhead.layers.transformer_stack import TransformerBlock
from polyhead.notes.chapters import attention

MINE = claims_of("attention")
broken = partial(failing, MINE)
WORDS = {"B5", "B12", "B14"}  # about names only: the glossary has them


def test_every_row_that_can_be_computed_has_one_check():
    rows = [f"B{i}" for i in range(1, 19)]
    assert [check.id for check in MINE] == [id for id in rows if id not in WORDS]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_a_kernel_without_the_scale_is_noticed(monkeypatch):
    def unscaled(_self, q, k, v, mask=NO_MASK):
        allowed = mask.dense(q.size(-2), k.size(-2), q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=1.0)

    monkeypatch.setattr(FullAttention, "forward", unscaled)
    assert broken() == {"B1", "B4", "B15"}


def test_the_scale_of_the_whole_model_is_noticed(monkeypatch):
    def too_small(_self, q, k, v, mask=NO_MASK):
        allowed = mask.dense(q.size(-2), k.size(-2), q.device)
        scale = 1 / math.sqrt(q.size(1) * q.size(-1))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale)

    monkeypatch.setattr(FullAttention, "forward", too_small)
    assert {"B1", "B4"} <= broken()


def test_a_score_without_the_scale_is_noticed(monkeypatch):
    monkeypatch.setattr(ScaledDot, "prepare", Dot.prepare)
    assert broken() == {"B3", "B8", "B16"}


def test_a_softmax_over_queries_is_noticed(monkeypatch):
    def over_queries(q, k):
        return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-2)

    monkeypatch.setattr(attention, "attention_weights", over_queries)
    assert broken() == {"B2", "B8"}


def test_a_formula_without_a_softmax_is_noticed(monkeypatch):
    monkeypatch.setattr(attention, "attention", lambda q, k, v, *_: (q @ k.mT) @ v)
    assert {"B1", "B9"} <= broken()


def test_a_mask_that_is_not_applied_is_noticed(monkeypatch):
    def open_to_all(_self, q, k, v, *_):
        return F.scaled_dot_product_attention(q, k, v)

    monkeypatch.setattr(FullAttention, "forward", open_to_all)
    assert broken() == {"B1"}


def test_keys_that_are_values_are_noticed(monkeypatch):
    project = MultiHeadAttention.project
    monkeypatch.setattr(
        MultiHeadAttention, "project", lambda self, y: KV(*reversed(project(self, y)))
    )
    assert "B10" in broken()


def test_a_matrix_on_the_wrong_side_is_noticed(monkeypatch):
    def transposed(self, q, _d_key):
        return torch.einsum("bhqi,hji->bhqj", q, self.w)

    monkeypatch.setattr(General, "prepare", transposed)
    assert broken() == {"B6"}


def test_a_self_attention_that_looks_at_the_memory_is_noticed(monkeypatch):
    def swapped(self, x, memory):
        x = x + self.self_attention(x, self.self_attention.project(memory.states))
        return self.recall(x, memory, BlockCache())

    monkeypatch.setattr(TransformerBlock, "forward", swapped)
    assert broken() == {"B7"}


def test_values_that_are_not_h_are_noticed(monkeypatch):
    def doubled(self, states, memory):
        h = memory.states[:, None]
        return self.kernel(states[:, None], h, 2 * h, memory.mask)[:, 0]

    monkeypatch.setattr(LookBack, "forward", doubled)
    assert broken() == {"B11"}


def test_frozen_queries_are_noticed(monkeypatch):
    forward = MultiHeadAttention.forward
    monkeypatch.setattr(
        MultiHeadAttention,
        "forward",
        lambda self, x, kv, mask=NO_MASK: forward(self, x.detach(), kv, mask),
    )
    kernel = FullAttention.forward
    monkeypatch.setattr(
        FullAttention,
        "forward",
        lambda self, q, k, v, mask=NO_MASK: kernel(self, q.detach(), k, v, mask),
    )
    assert "B17" in broken()


def test_a_window_is_noticed_where_everybody_should_meet(monkeypatch):
    def narrow(_self, q, k, v, *_):
        band = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril(2)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=band)

    monkeypatch.setattr(FullAttention, "forward", narrow)
    assert {"B1", "B18"} <= broken()
