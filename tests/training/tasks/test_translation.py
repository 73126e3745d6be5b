"""Encoded sentence pairs: within the length limit, constant or sampled again in every epoch."""

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.data.batches.translation import TranslationBatches
from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus
from polyhead.data.line_spool import Examples
from polyhead.data.stored_text import CorpusReader, read_corpus
from polyhead.data.token_store import TokenSequences
from polyhead.special_tokens import PAD
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import save_tokenizers, train_tokenizers
from polyhead.training.callbacks import Callback
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.translation import encode_training, make_sampler

LINES = [f"a sentence about {word} and nothing else" for word in ("lakes", "mountains", "the sea")]
LONG = "x" * 400  # is left out


def load(spool):
    spool.write((line, line) for line in [LONG, *LINES])
    return Corpus(spool, Examples([], []), ())


def texts_of(store):
    return [bytes(text.tolist()).decode() for text in store]


@pytest.fixture
def make(tmp_path):
    """Return a function that makes batches of three pairs."""

    def batches(sampling, *, seed=1, max_length=256):
        config = TextConfig("unigram", vocab=320, sampling=sampling)
        tokenizers = train_tokenizers(LINES * 9, LINES * 9, config)
        with atomic_dir(tmp_path / "tokenizer") as folder:
            save_tokenizers(tokenizers, folder)
        reader = CorpusReader(load)
        train = read_corpus(DataConfig(), "translation", 1, reader)[0].train
        log = RunLog(tmp_path, Callback())
        encoded = encode_training(tokenizers, tmp_path / "tokenizer", train, max_length, log)
        assert [*map(texts_of, encoded.texts)] == ([LINES, LINES] if sampling else [])
        sampler = make_sampler(tokenizers, encoded, seed, max_length)
        return TranslationBatches(encoded.source, encoded.target, 1000, seed, sampler)

    return batches


def pairs_of(batches, epoch, numbers=(0, 1, 2)):
    """Return the ids of these pairs."""
    batch = batches.make(np.array(numbers), epoch, 0)
    rows = zip(batch.source.tolist(), batch.labels.tolist(), strict=True)
    return [tuple([i for i in side if i != PAD] for side in row) for row in rows]


def test_without_sampling_all_epochs_are_equal(make):
    batches = make(0.0)
    assert batches.sampler is None
    encoded = make(0.3).sampler.tokenizers[0].encode_batch(LINES)  # the same vocabulary
    assert pairs_of(batches, 0) == pairs_of(batches, 7) == [(ids, ids) for ids in encoded]


def test_samples_depend_only_on_seed_epoch_and_number(make):
    batches = make(0.3)
    first, second = pairs_of(batches, 0), pairs_of(batches, 1)
    assert first != second
    assert pairs_of(batches, 0, [2, 0]) == [first[2], first[0]]  # in other batches
    assert pairs_of(make(0.3), 1) == second  # in another process
    assert pairs_of(make(0.3, seed=2), 0) != first


def test_equal_texts_are_sampled_differently(make):
    batches = make(0.3)
    batches.sampler.texts[:] = [TokenSequences.of([LINES[0].encode()] * 20, 256)] * 2
    sampled = [batches.sampler.draw(number, 0) for number in range(20)]
    assert len({tuple(source) for source, _ in sampled}) > 3
    assert any(source != target for source, target in sampled)


def test_samples_decode_to_the_same_text(make):
    batches = make(0.3)
    decoders = batches.sampler.tokenizers
    for epoch in range(3):
        for pair, line in zip(pairs_of(batches, epoch), LINES, strict=True):
            texts = [decoder.decode(ids) for decoder, ids in zip(decoders, pair, strict=True)]
            assert texts == [line, line]


@pytest.mark.parametrize("epoch", range(3))
def test_samples_above_the_length_limit_are_not_used(make, epoch):
    unsampled = pairs_of(make(0.0), epoch)
    limit = max(len(source) for source, _ in unsampled)
    pairs = pairs_of(make(0.01, max_length=limit), epoch)
    assert any(pair == whole for pair, whole in zip(pairs, unsampled, strict=True))
    assert all(len(side) <= limit for pair in pairs for side in pair)
    assert any(len(side) > limit for pair in pairs_of(make(0.01), epoch) for side in pair)


def test_batches_can_be_copied_to_workers_after_sampling(make):
    batches = make(0.3)
    sampled = pairs_of(batches, 0)
    assert pairs_of(ForkingPickler.loads(ForkingPickler.dumps(batches)), 0) == sampled
