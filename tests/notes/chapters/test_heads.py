"""The claims about heads hold, and stop to hold when the layer is broken."""

import math
from functools import partial

import pytest
from claims import assert_it_holds, claims_of, failing
from torch import nn

from polyhead.layers.attention import KV, FullAttention, MultiHeadAttention
from polyhead.notes.chapters import heads

MINE = claims_of("heads")
broken = partial(failing, MINE)


def test_every_row_has_one_check():
    assert [check.id for check in MINE] == [f"C{i}" for i in range(1, 10)]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_without_the_scale_the_heads_are_not_torchs(monkeypatch):
    def unscaled(_, q, k, v, *__):
        return (q @ k.mT).softmax(-1) @ v

    monkeypatch.setattr(FullAttention, "forward", unscaled)
    assert {"C1", "C3", "C6"} <= broken()


def test_keys_are_not_values(monkeypatch):
    project = MultiHeadAttention.project

    def swapped(self, y):
        keys, values = project(self, y)
        return KV(values, keys)

    monkeypatch.setattr(MultiHeadAttention, "project", swapped)
    assert {"C1", "C2", "C3", "C6"} <= broken()


def test_a_softmax_over_queries_is_noticed(monkeypatch):
    def over_queries(q, k, *_):
        return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-2)

    monkeypatch.setattr(FullAttention, "weights", staticmethod(over_queries))
    assert broken() == {"C8"}


def test_uniform_weights_of_who_may_see_nothing_are_noticed(monkeypatch):
    def filled(q, k, mask):
        allowed = mask.dense(q.size(-2), k.size(-2), q.device)
        return (q @ k.mT).masked_fill(~allowed, -1e10).softmax(-1)

    monkeypatch.setattr(heads, "attention_weights", filled)
    assert broken() == {"C7"}


def test_a_width_that_heads_do_not_divide_must_be_refused(monkeypatch):
    build = MultiHeadAttention.__init__

    def lenient(self, d_model, n_heads, kernel):
        build(self, d_model - d_model % n_heads, n_heads, kernel)

    monkeypatch.setattr(MultiHeadAttention, "__init__", lenient)
    assert broken() == {"C4"}


def test_heads_that_begin_alike_are_noticed(monkeypatch):
    build = MultiHeadAttention.__init__

    def alike(self, d_model, n_heads, kernel):
        build(self, d_model, n_heads, kernel)
        for part in (self.w_q, self.w_k):
            nn.init.constant_(part.weight, 0.1)
            nn.init.zeros_(part.bias)

    monkeypatch.setattr(MultiHeadAttention, "__init__", alike)
    assert "C5" in broken()
