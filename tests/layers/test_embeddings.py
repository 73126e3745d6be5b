"""Token embeddings; position codes against their formulas, and properties of the rotation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.layers.embeddings import (
    BinaryPositions,
    CountingPositions,
    LearnedPositions,
    NormalisedPositions,
    Rotary,
    SinusoidalPositions,
    rotation,
)

places = st.integers(0, 500)


def test_an_offset_continues_where_the_last_call_ended():
    for positions in (
        SinusoidalPositions(8),
        LearnedPositions(20, 8),
        CountingPositions(8),
        NormalisedPositions(8),
        BinaryPositions(8),
    ):
        torch.testing.assert_close(positions(12)[5:], positions(7, offset=5))
        assert positions(12).dtype == torch.float32


def test_the_normalised_place_of_the_second_word_depends_on_the_length():
    for length in (2, 4, 5, 100):
        code = NormalisedPositions(1)(length).flatten()
        assert code[1].item() == pytest.approx(1 / (length - 1))
        assert (code[0], code[-1]) == (0.0, 1.0)
    assert NormalisedPositions(3)(1).tolist() == [[0, 0, 0]]


def test_binary_positions_end_where_the_digits_end():
    assert BinaryPositions(2)(4).shape == (4, 2)
    with pytest.raises(ValueError, match="2 binary digits count to 4 positions, but the input"):
        BinaryPositions(2)(5)
    assert BinaryPositions(100)(3)[:, -2:].tolist() == [[0, 0], [0, 1], [1, 0]]


def test_an_odd_width_has_no_pairs_of_waves():
    with pytest.raises(ValueError, match="need an even d_model, got 7"):
        SinusoidalPositions(7)
    with pytest.raises(ValueError, match="need an even d_head, got 7"):
        Rotary(7)


def test_rotary_is_the_rotation_matrix_of_every_place():
    x, where = torch.randn(2, 3, 5, 8), torch.tensor([0, 1, 7, 3, 300])
    matrices = torch.stack([rotation(place, 8) for place in where.tolist()])
    expected = torch.einsum("lkij,bhlkj->bhlki", matrices, x.unflatten(-1, (4, 2))).flatten(-2)
    torch.testing.assert_close(Rotary(8)(x, where), expected, atol=1e-5, rtol=1e-5)


@given(places, places, st.integers(-300, 300))
@settings(max_examples=30)
def test_rotated_dot_products_know_the_distance_and_nothing_else(query, key, shift):
    torch.manual_seed(query)
    rotary, (q, k) = Rotary(8).double(), torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    at = lambda place: torch.tensor([place + 300])  # noqa: E731
    here = (rotary(q, at(query)) * rotary(k, at(key))).sum()
    there = (rotary(q, at(query + shift)) * rotary(k, at(key + shift))).sum()
    torch.testing.assert_close(here, there, atol=2e-4, rtol=1e-4)


def test_rotary_is_gpt_js_turned_the_other_way():
    """GPT-J rotates interleaved pairs too, by the transposed matrix: the place -t."""
    module = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    torch.manual_seed(0)
    x, where = torch.randn(2, 3, 40, 16), torch.arange(40)
    sin, cos = module.create_sinusoidal_positions(40, 16).split(8, dim=-1)
    theirs = module.apply_rotary_pos_emb(x.transpose(1, 2), -sin[None], cos[None]).transpose(1, 2)
    torch.testing.assert_close(Rotary(16)(x, where), theirs, atol=1e-5, rtol=1e-5)


def test_rotary_changes_no_length_has_no_parameters_and_keeps_the_precision():
    x, where = torch.randn(1, 2, 9, 4), torch.arange(9)
    turned = Rotary(4)(x, where)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(turned[:, :, 0], x[:, :, 0])
    assert not Rotary(4).state_dict()
    half = Rotary(4).half()(x.half(), where + 4000)
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), Rotary(4)(x, where + 4000), atol=2e-3, rtol=2e-3)


def test_rotary_takes_heads_as_they_come_out_of_a_projection():
    projected = torch.randn(2, 5, 12, requires_grad=True)
    heads = projected.unflatten(-1, (3, 4)).transpose(1, 2)  # not contiguous
    turned = Rotary(4)(heads, torch.arange(5))
    torch.testing.assert_close(turned, Rotary(4)(heads.contiguous(), torch.arange(5)))
    turned.square().sum().backward()
    torch.testing.assert_close(projected.grad, 2 * projected.detach())  # lengths do not change
