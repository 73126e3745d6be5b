"""Buckets are the formula's, near vectors meet, and a tape gives back what it heard."""

import math

import pytest
import torch
from torch.nn import functional as F

from polyhead.layers.lsh.hashing import (
    Tape,
    draw_rotations,
    factors,
    hash_vectors,
    recorded_buckets,
    recording,
    replaying,
    sort_by_bucket,
)


def test_a_bucket_is_the_axis_that_a_rotated_vector_points_along():
    x = torch.randn(2, 3, 7, 8)
    rotations = draw_rotations(8, 10, 4, like=x)
    turned = torch.einsum("bhnd,rde->rbhne", x, rotations[0])
    expected = torch.cat([turned, -turned], dim=-1).argmax(dim=-1)
    assert torch.equal(hash_vectors(x, rotations).long(), expected)


def test_factorised_buckets_are_pairs_of_small_ones(monkeypatch):
    monkeypatch.setattr("polyhead.layers.lsh.hashing.ROWS", 5)
    x = torch.randn(2, 3, 7, 8)
    first, second = draw_rotations(8, 256, 2, like=x)
    together = hash_vectors(x, [first, second]).long()
    assert torch.equal(together % 16, hash_vectors(x, [first]).long())
    assert torch.equal(together // 16, hash_vectors(x, [second]).long())


@pytest.mark.parametrize("n_buckets", [2, 6, 128, 130, 256, 1000, 8192])
def test_factors_are_even_and_make_enough_buckets(n_buckets):
    sizes = factors(n_buckets)
    assert all(size % 2 == 0 for size in sizes)
    assert n_buckets <= math.prod(sizes) <= 1.2 * n_buckets


@pytest.mark.parametrize("n_buckets", [0, 7])
def test_odd_buckets_are_refused_with_what_to_write(n_buckets):
    with pytest.raises(ValueError, match=rf"got {n_buckets}; write {max(2, n_buckets + 1)}"):
        factors(n_buckets)


def test_zeros_have_a_bucket_too():
    rotations = draw_rotations(8, 10, 3, like=torch.zeros(()))
    buckets = hash_vectors(torch.zeros(1, 1, 4, 8), rotations)
    assert (0 <= buckets).all()
    assert (buckets < 10).all()


@pytest.mark.parametrize("n_buckets", [16, 256])
def test_the_nearer_two_vectors_the_more_often_they_meet(n_buckets):
    pairs, d = 4000, 16
    x = F.normalize(torch.randn(pairs, d), dim=-1)
    away = torch.randn(pairs, d)
    away = F.normalize(away - (away * x).sum(-1, keepdim=True) * x, dim=-1)
    rates = []
    for cosine in (0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 1.0):
        y = cosine * x + math.sqrt(1 - cosine**2) * away
        rotations = draw_rotations(d, n_buckets, 4, like=x)
        mine, other = hash_vectors(torch.stack([x, y])[:, None], rotations).unbind(1)
        rates.append((mine == other).float().mean().item())
    assert rates == sorted(rates)
    assert rates[0] < 2 / n_buckets  # strangers meet by chance
    assert rates[-1] == 1.0


def test_the_length_of_a_vector_does_not_matter():
    x = torch.randn(1, 2, 9, 8)
    rotations = draw_rotations(8, 12, 3, like=x)
    assert torch.equal(hash_vectors(x, rotations), hash_vectors(100 * x, rotations))


def test_sorting_is_by_bucket_and_then_by_position():
    buckets = torch.randint(0, 5, (3, 2, 4, 33), dtype=torch.int16)
    order = sort_by_bucket(buckets)
    for row, sequence in zip(buckets.flatten(0, 2), order.flatten(0, 2), strict=True):
        expected = sorted(range(33), key=lambda i: (int(row[i]), i))
        assert sequence.tolist() == expected


def test_a_tape_plays_what_it_recorded_and_nothing_is_left_behind():
    found = [torch.tensor([1]), torch.tensor([2])]
    tape = Tape()
    with recording(tape):
        for buckets in found:
            assert recorded_buckets(lambda b=buckets: b) is buckets
    with replaying(tape):
        assert [int(recorded_buckets(lambda: torch.tensor([9]))) for _ in found] == [1, 2]
    assert int(recorded_buckets(lambda: torch.tensor([9]))) == 9
    assert len(tape.buckets) == 2
