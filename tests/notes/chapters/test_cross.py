"""The claims about cross-attention hold, and stop to hold when the wrong side asks."""

from functools import partial

import pytest
from claims import assert_it_holds, claims_of, failing

from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.transformer_stack import Residual, TransformerBlock

MINE = claims_of("cross")
broken = partial(failing, MINE)


def test_every_row_has_one_check():
    assert [check.id for check in MINE] == ["E1", "E2", "E3", "E4"]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_an_encoder_that_asks_is_noticed(monkeypatch):
    def swapped(self, h, memory, _):
        layer = self.cross_attention
        return layer(memory.states, layer.project(h))[:, : h.size(1)]

    monkeypatch.setattr(TransformerBlock, "recall", swapped)
    assert broken() == {"E1", "E2", "E4"}


def test_a_decoder_that_asks_itself_is_noticed(monkeypatch):
    def self_attention(self, h, *_):
        return self.cross_attention(h, self.cross_attention.project(h))

    monkeypatch.setattr(TransformerBlock, "recall", self_attention)
    assert broken() == {"E1", "E2", "E4"}


def test_a_sum_without_the_query_is_noticed(monkeypatch):
    monkeypatch.setattr(Residual, "forward", lambda self, x, sublayer: sublayer(self.norm(x)))
    assert broken() == {"E1"}


def test_a_layer_without_its_last_projection_is_noticed(monkeypatch):
    forward = MultiHeadAttention.forward

    def twice(self, x, kv, *rest):
        return self.w_o(forward(self, x, kv, *rest))

    monkeypatch.setattr(MultiHeadAttention, "forward", twice)
    assert broken() == {"E1", "E3"}
