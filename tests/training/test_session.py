"""The text of a run as ids: always the same, or cut anew in every epoch if that is asked for."""

import pytest

from polyhead.tokenizers.storage import TextConfig, train_tokenizers
from polyhead.training.tasks.translation import Encoded, Encoder

LINES = [f"a sentence about {word} and nothing else" for word in ("rivers", "mountains", "the sea")]


def encoder(sampling, *, seed=1, max_length=256):
    config = TextConfig("unigram", vocab=320, sampling=sampling)
    tokenizers = train_tokenizers(LINES * 9, LINES * 9, config)
    ids = tokenizers.source.encode_batch(LINES)
    pairs = Encoded(LINES, LINES, list(zip(ids, ids, strict=True)))
    return Encoder(tokenizers, pairs, seed, max_length)


def test_without_sampling_every_epoch_is_the_same():
    encode = encoder(0.0)
    assert encode(0) == encode(7) == encode.pairs.ids


def test_samples_of_subwords_depend_on_seed_and_epoch_and_nothing_else():
    encode = encoder(0.3)
    first, second = encode(0), encode(1)
    assert first != second
    assert encode(0) == first  # whatever was drawn in between
    assert encoder(0.3)(1) == second  # in another process
    assert encoder(0.3, seed=2)(0) != first


def test_every_sample_is_the_same_text():
    encode = encoder(0.3)
    for epoch in range(3):
        for (source, target), line in zip(encode(epoch), LINES, strict=True):
            assert encode.tokenizers.source.decode(source) == line
            assert encode.tokenizers.target.decode(target) == line


@pytest.mark.parametrize("epoch", range(3))
def test_a_pair_that_was_cut_too_finely_is_taken_uncut(epoch):
    uncut = encoder(0.01).pairs.ids
    limit = max(len(source) for source, _ in uncut)
    pairs = encoder(0.01, max_length=limit)(epoch)
    assert any(pair == whole for pair, whole in zip(pairs, uncut, strict=True))
    assert all(len(side) <= limit for pair in pairs for side in pair)
    assert any(len(side) > limit for pair in encoder(0.01)(epoch) for side in pair)
