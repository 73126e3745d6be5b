"""Buckets are the formula's, near vectors meet, and a tape gives back what it heard."""

import math

import pytest
import torch

from polyhead.layers.lsh.hashing import (
    Tape,
    draw_rotations,
    factors,
    hash_vectors,
    recorded_buckets,
    recording,
    replaying,
)


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
