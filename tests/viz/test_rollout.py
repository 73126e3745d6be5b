"""Attention roll-out against a sum over all paths, and attention by patch."""

import itertools

import pytest
import torch

from polyhead.viz.rollout import by_patch, rollout


def test_rollout_sums_over_all_paths():
    """Brute force: in each layer, half of a token is attention and half the residual."""
    torch.manual_seed(0)
    layers = [torch.rand(2, 4, 4).softmax(-1) for _ in range(3)]
    expected = torch.zeros(4, 4)
    for path in itertools.product(range(4), repeat=4):  # from the last layer down to the first
        share = 1.0
        for weights, (query, key) in zip(reversed(layers), itertools.pairwise(path), strict=True):
            share *= 0.5 * weights[:, query, key].mean().item() + 0.5 * (query == key)
        expected[path[0], path[-1]] += share
    result = rollout(layers)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(result.sum(-1), torch.ones(4))


def test_patches_are_in_rows_and_weighted_by_the_class_token_or_the_mean():
    weights = torch.arange(49.0).view(7, 7)
    assert by_patch(weights, (2, 3)).tolist() == [[1, 2, 3], [4, 5, 6]]
    mean = torch.arange(36.0).view(6, 6)
    assert by_patch(mean, (2, 3)).tolist() == [[15, 16, 17], [18, 19, 20]]
    assert by_patch(torch.zeros(4, 2, 7, 7), (3, 2)).shape == (4, 2, 3, 2)
    two = torch.arange(64.0).view(8, 8)  # class tokens, as in DeiT
    assert by_patch(two, (3, 2)).tolist() == [[6, 7], [8, 9], [10, 11]]
    with pytest.raises(ValueError, match="7 tokens"):
        by_patch(weights, (2, 2))
