"""The claims about blocks and norms hold, and stop to hold when a part is broken."""

from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing
from torch import nn

from polyhead.layers import norms
from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, NotesLayerNorm
from polyhead.layers.transformer_stack import Residual
from polyhead.notes.chapters import block

MINE = claims_of("block")
broken = partial(failing, MINE)
WORDS = {"G10"}  # about names


def test_every_row_that_can_be_computed_has_one_check():
    assert block.__doc__
    rows = [f"G{i}" for i in range(1, 16)]
    assert [check.id for check in MINE] == [id for id in rows if id not in WORDS]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_a_block_without_its_skip_is_noticed(monkeypatch):
    monkeypatch.setattr(Residual, "forward", lambda self, x, sublayer: sublayer(self.norm(x)))
    assert broken() == {"G1", "G2", "G3", "G4", "G11", "G15"}


def test_norms_before_the_sum_where_the_paper_has_them_after_are_noticed(monkeypatch):
    build = Residual.__init__

    def always_before(self, config):
        build(self, config)
        self.pre = True

    monkeypatch.setattr(Residual, "__init__", always_before)
    assert broken() == {"G4", "G11", "G15"}


def test_an_unbiased_variance_is_noticed(monkeypatch):
    monkeypatch.setattr(LayerNorm, "forward", NotesLayerNorm.forward)
    assert broken() == {"G5", "G6", "G7", "G8", "G11", "G14"}


def test_a_layer_norm_over_samples_is_noticed(monkeypatch):
    def over_samples(self, x):
        axis = 0 if x.dim() > 1 else -1
        return norms.standardise(x, (axis,), self.eps) * self.weight + self.bias

    monkeypatch.setattr(LayerNorm, "forward", over_samples)
    assert broken() == {"G5", "G8", "G9"}


def test_a_bias_in_place_of_a_weight_is_noticed(monkeypatch):
    def swapped(self, x):
        return norms.standardise(x, (-1,), self.eps) * (1 + self.bias) + self.weight - 1

    monkeypatch.setattr(LayerNorm, "forward", swapped)
    assert broken() == {"G6"}


@pytest.mark.parametrize("kind", [BatchNorm, InstanceNorm, GroupNorm])
def test_any_norm_that_is_not_torchs_is_noticed(monkeypatch, kind):
    forward = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, x: 1.001 * forward(self, x))
    assert broken() == {"G8"}


def test_a_batch_norm_that_ignores_the_batch_is_noticed(monkeypatch):
    monkeypatch.setattr(BatchNorm, "forward", lambda _self, x: x)
    assert broken() == {"G8", "G9"}


def test_a_feed_forward_network_that_mixes_positions_is_noticed(monkeypatch):
    forward = FeedForward.forward
    monkeypatch.setattr(
        FeedForward, "forward", lambda self, x: forward(self, x + x.mean(1, keepdim=True))
    )
    assert broken() == {"G4", "G12"}


def test_another_activation_is_noticed(monkeypatch):
    build = FeedForward.__init__

    def with_tanh(self, d_model, d_ff, activation, dropout, *, chunk=0):
        build(self, d_model, d_ff, activation, dropout, chunk=chunk)
        self.activation = nn.Tanh()

    monkeypatch.setattr(FeedForward, "__init__", with_tanh)
    assert broken() == {"G4", "G12"}


def test_attention_that_does_not_give_back_the_width_is_noticed(monkeypatch):
    forward = MultiHeadAttention.forward

    def narrow(self, x, kv, mask, places=None):
        return forward(self, x, kv, mask, places)[..., :-1]

    monkeypatch.setattr(MultiHeadAttention, "forward", narrow)
    assert {"G2", "G3", "G4", "G13"} <= broken()


def test_the_exhibit_must_stay_wrong(monkeypatch):
    monkeypatch.setattr(
        NotesLayerNorm, "forward", lambda _self, x: torch.layer_norm(x, (x.size(-1),))
    )
    assert broken() == {"G7"}
