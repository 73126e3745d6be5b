"""Axial positions: a long line folded into a grid."""

import pytest
import torch

from polyhead.layers.axial_positions import AxialConfig, AxialPositions, square_grid


def test_a_position_is_its_row_and_its_column():
    positions = AxialPositions(AxialConfig((3, 5), (2, 6)), 8, 15)
    rows, columns = (axis.weight for axis in positions.axes)
    vectors = positions(15)
    for place in range(15):
        row, column = divmod(place, 5)
        assert torch.equal(vectors[place], torch.cat([rows[row], columns[column]]))


def test_they_are_those_of_transformers():
    reformer = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    config = reformer.ReformerConfig(
        axial_pos_shape=(3, 5), axial_pos_embds_dim=(2, 6), hidden_size=8
    )
    theirs = reformer.AxialPositionEmbeddings(config).eval()
    ours = AxialPositions(AxialConfig((3, 5), (2, 6)), 8, 15)
    with torch.no_grad():
        for axis, weight in zip(ours.axes, theirs.weights, strict=True):
            axis.weight.copy_(weight.reshape(axis.weight.shape))
        expected = theirs(torch.arange(15)[None])[0]
    torch.testing.assert_close(ours(15), expected)


def test_a_later_start_is_a_part_of_the_whole():
    positions = AxialPositions(AxialConfig((4, 2, 3)), 6, 24)
    assert torch.equal(positions(7, offset=9), positions(24)[9:16])


def test_no_two_places_are_equal():
    vectors = AxialPositions(AxialConfig((8, 16)), 10, 128)(128)
    assert len(vectors.unique(dim=0)) == 128


def test_parameters_grow_with_the_sides_and_not_with_the_area():
    positions = AxialPositions(AxialConfig((512, 512)), 256, 262_144)
    assert sum(p.numel() for p in positions.parameters()) == 1024 * 128
    assert positions(1, offset=262_143).shape == (1, 256)


def test_a_longer_input_is_refused():
    with pytest.raises(ValueError, match="3 x 5 = 15 positions, but the input reaches position 16"):
        AxialPositions(AxialConfig((3, 5)), 8, 15)(1, offset=15)


@pytest.mark.parametrize(
    ("n", "grid"), [(1, (1, 1)), (2, (1, 2)), (7, (2, 4)), (512, (16, 32)), (2048, (32, 64))]
)
def test_the_default_grid_is_nearly_square(n, grid):
    assert square_grid(n) == grid


def test_such_a_grid_has_room_for_everyone_and_wastes_less_than_a_row():
    for n in range(1, 600):
        rows, columns = square_grid(n)
        assert n <= rows * columns < n + columns
        assert rows <= columns


def test_an_odd_width_is_divided_as_equally_as_can_be():
    positions = AxialPositions(AxialConfig(), d_model=7, max_length=20)
    assert [axis.weight.shape for axis in positions.axes] == [(3, 3), (8, 4)]
    assert positions(20).shape == (20, 7)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (AxialConfig((3, 5)), r"axial.shape = \[3, 5\] has 15 positions, but max_length is 16; "
                              r"write \[4, 4\], or leave the shape out"),
        (AxialConfig((-4, -4)), r"axial.shape = \[-4, -4\] has 16 positions"),
        (AxialConfig((4, 4), (2, 5)), r"axial.widths = \[2, 5\]: expected 2 numbers that add up to "
                                      r"d_model \(8\); write \[4, 4\]"),
        (AxialConfig((4, 4), (8,)), "expected 2 numbers"),
        (AxialConfig((), (8, 0)), "expected 2 numbers"),
    ],
)  # fmt: skip
def test_a_grid_that_does_not_fit_the_model_is_refused_with_one_that_does(config, message):
    with pytest.raises(ValueError, match=message):
        AxialPositions(config, d_model=8, max_length=16)
