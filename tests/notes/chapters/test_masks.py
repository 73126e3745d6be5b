"""The claims about masks hold, and stop to hold when something leaks."""

import math
from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing

from polyhead.layers.attention import FullAttention, attention
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.masks import NO_MASK, Mask
from polyhead.models import gpt, transformer
from polyhead.notes.chapters import masks

MINE = claims_of("masks")
broken = partial(failing, MINE)


def test_every_row_has_one_check():
    assert [check.id for check in MINE] == [f"D{i}" for i in range(1, 12)]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_a_mask_of_zeros_is_noticed(monkeypatch):
    def leaking(q, k, mask=NO_MASK):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        allowed = mask.dense(q.size(-2), k.size(-2), q.device)
        return (scores if allowed is None else scores * allowed).softmax(-1)

    monkeypatch.setattr(masks, "attention_weights", leaking)
    monkeypatch.setattr(FullAttention, "weights", staticmethod(leaking))
    assert {"D2", "D4", "D6", "D10"} <= broken()


def test_a_fill_that_does_not_fit_into_16_bits_is_noticed(monkeypatch):
    def filled(q, k, mask):
        allowed = mask.dense(q.size(-2), k.size(-2), q.device)
        return (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~allowed, -1e10).softmax(-1)

    monkeypatch.setattr(masks, "attention_weights", filled)
    assert broken() == {"D5"}


@pytest.mark.parametrize(
    ("diagonal", "others"),
    [
        (-1, set()),  # a token that does not see itself is still told by its residual connection
        (1, {"D1", "D9", "D10"}),
    ],
)
def test_a_triangle_that_is_one_off_is_noticed(monkeypatch, diagonal, others):
    def dense(self, n_queries, n_keys, _):
        triangle = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(diagonal)[None, None]
        return triangle if self.causal else None

    def forward(_, q, k, v, mask):
        return attention(q, k, v, mask)

    monkeypatch.setattr(Mask, "dense", dense)
    monkeypatch.setattr(FullAttention, "forward", forward)
    assert {"D2", "D3", "D6", "D8", "D11"} | others <= broken()


def test_deleted_queries_are_noticed(monkeypatch):
    def forward(_, q, k, v, *__):
        return attention(q, k, v)

    monkeypatch.setattr(FullAttention, "forward", forward)
    assert {"D1", "D7", "D9", "D11"} <= broken()


def test_a_gpt_that_sees_the_future_is_noticed(monkeypatch):
    monkeypatch.setattr(gpt, "CAUSAL", NO_MASK)
    assert broken() == {"D10"}


def test_padding_that_is_seen_is_noticed(monkeypatch):
    monkeypatch.setattr(transformer, "not_padding", lambda *_: NO_MASK)
    assert broken() == {"D7"}


def test_a_cache_that_forgets_is_noticed(monkeypatch):
    monkeypatch.setattr(BlockCache, "extend", lambda _, new: new)
    assert broken() == {"D11"}
