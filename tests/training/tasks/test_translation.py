"""Encoded sentence pairs: constant, or sampled again in every epoch."""

import pytest

from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.training.tasks.translation import EncodedPairs, PairSampler

LINES = [f"a sentence about {word} and nothing else" for word in ("lakes", "mountains", "the sea")]


def make_sampler(sampling, *, seed=1, max_length=256):
    config = TextConfig("unigram", vocab=320, sampling=sampling)
    tokenizers = train_tokenizers(LINES * 9, LINES * 9, config)
    ids = tokenizers.source.encode_batch(LINES)
    pairs = EncodedPairs(LINES, LINES, list(zip(ids, ids, strict=True)))
    return PairSampler(tokenizers, pairs, seed, max_length)


def test_without_sampling_all_epochs_are_equal():
    sampler = make_sampler(0.0)
    assert sampler(0) == sampler(7) == sampler.pairs.ids


def test_samples_depend_only_on_seed_and_epoch():
    sampler = make_sampler(0.3)
    first, second = sampler(0), sampler(1)
    assert first != second
    assert sampler(0) == first  # after other samples
    assert make_sampler(0.3)(1) == second  # in another process
    assert make_sampler(0.3, seed=2)(0) != first


def test_samples_decode_to_the_same_text():
    sampler = make_sampler(0.3)
    for epoch in range(3):
        for (source, target), line in zip(sampler(epoch), LINES, strict=True):
            assert sampler.tokenizers.source.decode(source) == line
            assert sampler.tokenizers.target.decode(target) == line


@pytest.mark.parametrize("epoch", range(3))
def test_samples_above_the_length_limit_are_not_used(epoch):
    unsampled = make_sampler(0.01).pairs.ids
    limit = max(len(source) for source, _ in unsampled)
    pairs = make_sampler(0.01, max_length=limit)(epoch)
    assert any(pair == whole for pair, whole in zip(pairs, unsampled, strict=True))
    assert all(len(side) <= limit for pair in pairs for side in pair)
    assert any(len(side) > limit for pair in make_sampler(0.01)(epoch) for side in pair)
