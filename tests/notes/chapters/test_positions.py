"""The claims about positions hold, and stop to hold when a wave is out of step."""

from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing
from torch import nn

from polyhead.layers.embeddings import TokenEmbedding
from polyhead.layers.positions import (
    BinaryPositions,
    LearnedPositions,
    NormalisedPositions,
    SinusoidalPositions,
    swap_pairs,
)
from polyhead.layers.transformer_stack import TransformerBlock
from polyhead.models.vit import ViT
from polyhead.notes.chapters import positions

MINE = claims_of("positions")
broken = partial(failing, MINE)


def test_every_row_but_the_typing_error_has_one_check():
    assert [check.id for check in MINE] == [f"F{i}" for i in range(1, 14)]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_cosines_in_place_of_sines_are_noticed(monkeypatch):
    forward = SinusoidalPositions.forward
    monkeypatch.setattr(
        SinusoidalPositions,
        "forward",
        lambda self, length, offset=0: swap_pairs(forward(self, length, offset)),
    )
    assert broken() == {"F5", "F6", "F8", "F12"}


def test_waves_of_the_wrong_speed_are_noticed(monkeypatch):
    build = SinusoidalPositions.__init__

    def ten_times_slower(self, d_model):
        build(self, d_model)
        self.rate = 1000.0 ** (-torch.arange(0, d_model, 2) / d_model)

    monkeypatch.setattr(SinusoidalPositions, "__init__", ten_times_slower)
    assert {"F5", "F6", "F7", "F8", "F9"} <= broken()


def test_an_offset_that_is_forgotten_is_noticed(monkeypatch):
    forward = SinusoidalPositions.forward
    monkeypatch.setattr(
        SinusoidalPositions, "forward", lambda self, length, _offset=0: forward(self, length)
    )
    assert broken() == {"F8"}


def test_a_rotation_the_other_way_is_noticed(monkeypatch):
    rotation = positions.rotation
    monkeypatch.setattr(positions, "rotation", lambda phi, d: rotation(phi, d).transpose(1, 2))
    assert broken() == {"F8"}


def test_digits_in_reverse_and_counts_that_ignore_the_length_are_noticed(monkeypatch):
    digits = BinaryPositions.forward
    monkeypatch.setattr(
        BinaryPositions,
        "forward",
        lambda self, length, offset=0: digits(self, length, offset).flip(1),
    )
    monkeypatch.setattr(
        NormalisedPositions,
        "forward",
        lambda _self, length: torch.arange(length)[:, None] / 10,
    )
    assert broken() == {"F3", "F4"}


def test_an_embedding_without_its_scale_is_noticed(monkeypatch):
    build = TokenEmbedding.__init__

    def unscaled(self, vocab, d_model, positions, dropout, *, scale=False):
        build(self, vocab, d_model, positions, dropout, scale=not scale)

    monkeypatch.setattr(TokenEmbedding, "__init__", unscaled)
    assert broken() == {"F12"}


def test_a_block_that_knows_an_order_is_noticed(monkeypatch):
    forward = TransformerBlock.forward
    monkeypatch.setattr(
        TransformerBlock,
        "forward",
        lambda self, x: forward(self, x + torch.arange(x.size(1))[:, None]),
    )
    assert "F1" in broken()


def test_a_table_that_wraps_around_is_noticed(monkeypatch):
    def around(self, length, offset=0):
        return self.table(torch.arange(offset, offset + length) % self.table.num_embeddings)

    monkeypatch.setattr(LearnedPositions, "forward", around)
    assert broken() == {"F10"}


def test_an_image_without_positions_is_noticed(monkeypatch):
    monkeypatch.setattr(ViT, "places", lambda _self, _grid: torch.zeros(197, 8))
    assert broken() == {"F13"}


def test_waves_that_are_learned_are_noticed(monkeypatch):
    build = SinusoidalPositions.__init__

    def learned(self, d_model):
        build(self, d_model)
        self.extra = nn.Parameter(torch.zeros(d_model))

    monkeypatch.setattr(SinusoidalPositions, "__init__", learned)
    assert broken() == {"F11"}
