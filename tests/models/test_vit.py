"""The Vision Transformer against its published sizes, unfold, and another resolution."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from polyhead.models.vit import PatchEmbed, ViT, ViTConfig, interpolate

STACK = replace(ViTConfig().stack, n_layers=2, d_model=16, n_heads=4, d_ff=32)


def test_a_stem_is_unfold_linear_layers_and_norms():
    embed, images = PatchEmbed(4, 3, 16, stem=(5, 7)), torch.randn(2, 3, 8, 12)
    x = images
    for step in embed.stem:
        torch.nn.init.normal_(step.norm.weight)
        rows, columns = x.size(-2) // 2, x.size(-1) // 2
        pieces = F.unfold(x, kernel_size=3, stride=2, padding=1).mT
        layer = step.convolution
        found = F.linear(pieces, layer.weight.flatten(1), layer.bias)
        found = F.layer_norm(found, (layer.out_channels,), step.norm.weight, step.norm.bias)
        x = found.relu().mT.unflatten(2, (rows, columns))
    expected = F.linear(x.flatten(2).mT, embed.project.weight.flatten(1), embed.project.bias)
    torch.testing.assert_close(embed(images), expected, rtol=0, atol=1e-5)
    assert [step.convolution.out_channels for step in embed.stem] == [5, 7]


def test_a_patch_behind_a_stem_sees_beyond_its_edge():
    """Two convolutions of 3, the second two pixels apart: 3 pixels on one side, none beyond."""
    embed, images = PatchEmbed(4, 1, 8, stem=(6, 6)).double(), torch.randn(1, 1, 16, 16).double()
    images.requires_grad_()
    embed(images)[0, 5].square().sum().backward()  # the patch of rows and columns 4 to 7
    seen = (images.grad[0, 0] != 0).nonzero()
    assert seen.min(0).values.tolist() == [1, 1]
    assert seen.max(0).values.tolist() == [7, 7]


@pytest.mark.parametrize(("height", "width"), [(225, 224), (224, 230), (8, 224)])
def test_an_image_that_cannot_be_cut_is_refused(height, width):
    with pytest.raises(ValueError, match=f"an image of {height} x {width} pixels cannot be cut"):
        ViTConfig(height=height, width=width)
    with pytest.raises(ValueError, match="both sides must be multiples of 16"):
        PatchEmbed(16, 1, 2)(torch.randn(1, 1, height, width))


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_the_first_loss_is_that_of_knowing_nothing(pooling):
    model = ViT(ViTConfig(10, 8, 12, 3, 4, pooling, STACK))
    loss = F.cross_entropy(model(torch.randn(5, 3, 8, 12)), torch.arange(5))
    assert loss.item() == pytest.approx(math.log(10), abs=1e-6)


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_the_result_is_read_from_the_class_token_or_from_the_average(pooling):
    model = ViT(ViTConfig(10, 8, 12, 3, 4, pooling, STACK)).eval()
    torch.nn.init.normal_(model.to_logits.weight)
    images = torch.randn(2, 3, 8, 12)
    states = model.hidden(images)
    assert states.shape == (2, 6 + (pooling == "class"), 16)
    read = states[:, 0] if pooling == "class" else states.mean(1)
    torch.testing.assert_close(model(images), model.to_logits(read))


def test_the_class_token_begins_at_zero_and_has_a_position_of_its_own():
    model = ViT(ViTConfig(10, 8, 12, 3, 4, stack=STACK))
    assert not model.class_token.any()
    assert model.positions.table.weight.shape == (1 + 2 * 3, 16)


def test_positions_of_another_grid_are_those_of_torch_channel_by_channel():
    table = torch.randn(6, 5)
    found = interpolate(table, (2, 3), (4, 9))
    for channel in range(5):
        picture = table[:, channel].reshape(1, 1, 2, 3)
        expected = F.interpolate(picture, size=(4, 9), mode="bicubic", antialias=True)
        torch.testing.assert_close(found[:, channel].reshape(4, 9), expected[0, 0])


def test_rows_and_columns_of_an_oblong_grid_are_not_mixed_up():
    """Positions that only know their row still do after stretching."""
    rows = torch.arange(2.0)[:, None].expand(2, 6).reshape(12, 1)
    stretched = interpolate(rows, (2, 6), (4, 3)).reshape(4, 3)
    assert torch.allclose(stretched, stretched[:, :1].expand(4, 3), atol=1e-6)
    assert (stretched[:, 0].diff() > 0).all()


def test_constant_positions_stay_constant_and_halves_keep_their_type():
    table = torch.full((6, 4), 0.5, dtype=torch.bfloat16)
    found = interpolate(table, (2, 3), (5, 7))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, torch.full((35, 4), 0.5, dtype=torch.bfloat16))


@pytest.mark.parametrize("stem", [(), (5,), (5, 6)])
def test_other_resolutions_are_read_with_stretched_positions(stem):
    model = ViT(ViTConfig(10, 8, 12, 3, 4, stack=STACK, stem=stem)).eval()
    assert model.hidden(torch.randn(1, 3, 16, 12)).shape == (1, 1 + 4 * 3, 16)
    places = model.places((4, 3))
    assert torch.equal(places[0], model.positions.table.weight[0])  # the class token's stays
    assert torch.equal(model.places((2, 3)), model.positions.table.weight)


@pytest.mark.parametrize("pooling", ["mean", "class"])
def test_rotary_positions_of_another_grid_lie_in_the_one_that_was_learned(pooling):
    config = ViTConfig(
        classes=3, height=8, width=12, patch=4, stack=STACK, positions="rotary", pooling=pooling
    )
    model = ViT(config)  # 2 x 3 patches
    first = int(pooling == "class")
    assert model.turns((2, 3)) is None
    finer = model.turns((4, 6))
    assert finer[:first].tolist() == [0.0] * first
    found = finer[first:].view(4, 6) - first
    assert (found[:, 1:] - found[:, :-1]).unique().tolist() == [0.5]  # half a column
    assert (found[1:] - found[:-1]).unique().tolist() == [1.5]  # half a row of three
    for row, column in ((0, 0), (1, 2)):  # four small patches have the old one's middle
        middle = found[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].mean()
        assert middle == 3 * row + column


def test_a_rotary_model_turns_by_these_places():
    config = ViTConfig(
        classes=3, height=8, width=8, patch=4, stack=STACK, positions="rotary", pooling="mean"
    )
    model, images = ViT(config).eval(), torch.randn(2, 3, 12, 16)
    patches = model.embed(images)
    torch.testing.assert_close(
        model.hidden(images), model.stack(patches, places=model.turns((3, 4)))
    )
    assert (model.hidden(images) - model.stack(patches)).abs().max() > 0.01


@pytest.mark.parametrize("grid", [(4, 6), (5, 3)])
def test_positions_of_another_grid_keep_their_order_behind_the_class_token(grid):
    torch.manual_seed(2)
    model = ViT(ViTConfig(3, 12, 12, patch=4, positions="learned", stack=STACK))
    table = model.positions.table.weight
    with torch.no_grad():
        table.normal_()
    places = model.places(grid).detach()
    assert places.shape == (1 + grid[0] * grid[1], table.size(1))
    assert torch.equal(places[0], table[0])
    corners = places[1:].unflatten(0, grid)[[0, 0, -1, -1], [0, -1, 0, -1]]
    assert torch.cdist(corners, table.detach()).argmin(1).tolist() == [1, 3, 7, 9]
