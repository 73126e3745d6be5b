"""Augmentation of images and their labels, against Pillow, SciPy and properties."""

import numpy as np
import pytest
import torch

from polyhead.data.images.augment import (
    AugmentConfig,
    augment,
    bend,
    cutmix,
    erase,
    flip,
    mixup,
    shift,
    warped,
)

N, C, H, W = 64, 3, 8, 12


@pytest.fixture
def images():
    return torch.rand(N, C, H, W, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.fixture
def targets():
    return torch.eye(N)  # every image has its own class


def drawing(*numbers):
    return np.random.default_rng(numbers or [1, 2, 3])


def test_augmentation_depends_on_the_generator_alone(images, targets):
    config = AugmentConfig(flip=True, shift=2, erase=0.5, mixup=0.4, cutmix=1.0)
    first = augment(images, targets, config, drawing(1, 0, 7))
    again = augment(images, targets, config, drawing(1, 0, 7))
    other = augment(images, targets, config, drawing(1, 0, 8))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    assert augment(images, targets, AugmentConfig(), drawing()) == (images, targets)  # the same


@pytest.mark.parametrize(("name", "value"), [("shift", -1), ("mixup", -0.5), ("erase", 1.5)])
def test_invalid_settings_are_errors(name, value):
    with pytest.raises(ValueError, match=f"{name} = {value}"):
        AugmentConfig(**{name: value})


def test_images_are_mirrored_or_unchanged(images):
    changed = flip(images, drawing())
    mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(changed, images, strict=True)]
    same = [torch.equal(a, b) for a, b in zip(changed, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 15 < sum(mirrored) < 49


def test_shifting_equals_padding_and_cropping(images):
    most = 3
    changed = shift(images, most, drawing())
    padded = torch.nn.functional.pad(images, (most,) * 4, mode="replicate")
    seen = set()
    for before, after in zip(padded, changed, strict=True):
        places = [
            (y, x)
            for y in range(2 * most + 1)
            for x in range(2 * most + 1)
            if torch.equal(before[:, y : y + H, x : x + W], after)
        ]
        assert len(places) == 1
        seen.update(places)
    assert {y for y, _ in seen} == {x for _, x in seen} == set(range(2 * most + 1))


class Always(np.random.Generator):
    """A source of chance that always gives the upper end."""

    def uniform(self, _low, high, size):
        return np.full(size, float(high))

    def normal(self, _mean, deviation, size):
        return np.full(size, float(deviation))


ALWAYS = Always(np.random.PCG64())


def test_a_quarter_turn_is_exact(images):
    square = images[..., :8]
    torch.testing.assert_close(
        bend(square, AugmentConfig(turn=90.0), ALWAYS),
        square.rot90(1, (-2, -1)),
        rtol=0,
        atol=1e-5,
    )
    torch.testing.assert_close(
        bend(images, AugmentConfig(turn=180.0), ALWAYS), images.flip(-1, -2), rtol=0, atol=1e-5
    )


def test_rotation_matches_pillow():
    module = pytest.importorskip("PIL.Image")
    smooth = torch.nn.functional.interpolate(torch.rand(1, 1, 4, 6), (24, 40), mode="bicubic")
    ours = bend(smooth, AugmentConfig(turn=20.0), ALWAYS)[0, 0]
    picture = module.fromarray(smooth[0, 0].numpy())
    theirs = torch.from_numpy(np.array(picture.rotate(20, module.Resampling.BILINEAR)))
    middle = (slice(8, 16), slice(12, 28))  # away from the corners, where nothing was
    torch.testing.assert_close(ours[middle], theirs[middle], rtol=0, atol=0.02)


def test_zoom_scales_about_the_centre(images):
    small = bend(images, AugmentConfig(zoom=1.0), ALWAYS)  # looks twice as far from the middle
    torch.testing.assert_close(
        small[:, :, 2:6, 3:9], torch.nn.functional.avg_pool2d(images, 2), rtol=0, atol=1e-5
    )


def test_a_constant_warp_is_a_shift(images):
    moved = bend(images, AugmentConfig(warp=2.0), ALWAYS)
    torch.testing.assert_close(moved[..., :-2, :-2], images[..., 2:, 2:], rtol=0, atol=1e-5)


def test_warping_matches_scipy(images):
    ndimage = pytest.importorskip("scipy.ndimage")
    ours = bend(images, AugmentConfig(warp=0.7), drawing())
    draw = drawing()
    draw.uniform(size=2 * N)  # an angle and a factor for each
    ways = warped(images, 0.7, draw).numpy()
    y, x = np.mgrid[:H, :W]
    for image, after, way in zip(images, ours, ways, strict=True):
        where = [y + way[..., 1] * H / 2, x + way[..., 0] * W / 2]
        theirs = ndimage.map_coordinates(image[0].numpy(), where, order=1, mode="nearest")
        torch.testing.assert_close(after[0], torch.from_numpy(theirs), rtol=0, atol=1e-4)


def test_a_warp_is_smooth_with_the_given_deviation():
    ways = warped(torch.zeros(2000, 1, 9, 9), 0.5, drawing()) * 9 / 2  # in pixels
    corners = ways[:, ::8, ::8]
    assert corners.std() == pytest.approx(0.5, rel=0.05)
    assert corners.mean() == pytest.approx(0, abs=0.02)
    assert ways.diff(dim=1).abs().mean() < 0.2  # from one pixel to the next


def test_erasing_changes_a_rectangle_of_the_right_area(images):
    changed = erase(images, 1.0, drawing())
    assert changed.abs().max() <= 1
    for before, after in zip(images, changed, strict=True):
        touched = (before != after).any(0)
        rows, columns = touched.any(1).sum(), touched.any(0).sum()
        assert touched.sum() == rows * columns > 0
        assert 1 <= touched.sum() <= 0.5 * H * W  # at most 0.33, rounded up on both sides


def test_erasing_keeps_the_other_images(images):
    untouched = (erase(images, 0.25, drawing()) == images).flatten(1).all(1).sum()
    assert 36 < untouched < 60
    assert torch.equal(erase(images, 0.0, drawing()), images)


def test_mixup_mixes_labels_like_images(images, targets):
    changed, labels = mixup(images, targets, 0.8, drawing())
    torch.testing.assert_close(labels.sum(1), torch.ones(N))
    expected = torch.einsum("ij,jchw->ichw", labels, images)
    torch.testing.assert_close(changed, expected, rtol=0, atol=1e-6)
    assert ((labels > 0).sum(1) == 2).sum() > N // 2


@pytest.mark.parametrize("seed", range(8))
def test_cutmix_mixes_labels_by_area(images, targets, seed):
    changed, labels = cutmix(images, targets, 1.0, drawing(seed))
    for i, (picture, shares) in enumerate(zip(changed, labels, strict=True)):
        own = (picture == images[i]).all(0)
        assert shares[i].item() == pytest.approx(own.float().mean().item(), abs=1e-6)
        others = shares.nonzero().flatten().tolist()
        assert len(others) <= 2
        for j in others:
            assert (picture == images[j]).all(0)[~own].all() or j == i
        pasted = ~own
        assert pasted.sum() == pasted.any(1).sum() * pasted.any(0).sum()


def test_one_of_mixup_and_cutmix_is_drawn(images, targets):
    config = AugmentConfig(mixup=0.8, cutmix=1.0)
    cut = [
        (augment(images, targets, config, drawing(step))[0] == images).float().mean() > 0.05
        for step in range(40)
    ]
    assert 8 < sum(cut) < 32
