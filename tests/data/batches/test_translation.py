"""Batches of sentence pairs: complete, within the budget, little padding, reproducible."""

import itertools
import multiprocessing
import os
import signal
from collections import Counter
from multiprocessing.reduction import ForkingPickler
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.data.batches.base import DataPosition
from polyhead.data.batches.epoch_plan import plan_by_length
from polyhead.data.batches.resampling import SubwordSampler
from polyhead.data.batches.translation import TranslationBatches, collate
from polyhead.data.parallel import read_parallel
from polyhead.data.token_store import TokenSequences
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.tokenizers.base import TextConfig, Tokenizer
from polyhead.tokenizers.storage import train_tokenizers

SENTENCES = st.lists(st.integers(4, 9), max_size=12).map(lambda ids: [*ids, EOS])
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=60)


def random_pairs(n, seed=0):
    """Return distinguishable pairs: the first source id of pair i is 10 + i."""
    random = Random(seed)
    return [
        ([10 + i, *[5] * random.randrange(8), EOS], [*[6] * random.randrange(8), EOS])
        for i in range(n)
    ]


def batches_of(pairs, max_tokens=60, seed=3, sampler=None):
    source, target = (TokenSequences.of(side, 100_000) for side in zip(*pairs, strict=True))
    return TranslationBatches(source, target, max_tokens, seed, sampler)


class NumberTokenizer(Tokenizer):
    """Encoder of a number: its id and as many more as the generator says."""

    def encode(self, line, *, sample):
        return [10 + int(line), *[5] * sample.randrange(4), EOS]


def sampled_batches(n=40):
    """Return pairs that are encoded differently in every epoch."""
    lines = TokenSequences.of([str(i).encode() for i in range(n)], 256)
    encoder = NumberTokenizer()
    sampler = SubwordSampler([encoder, encoder], [lines, lines], seed=3, max_length=100)
    return batches_of(random_pairs(n), sampler=sampler)


def group(pairs, max_tokens, seed):
    """Return the numbers of the pairs of each batch."""
    lengths = np.array([(len(source), len(target)) for source, target in pairs])
    return [numbers.tolist() for numbers in plan_by_length(list(lengths.T), max_tokens, seed)]


BEGINNING = DataPosition()


def take(epochs, count, start=BEGINNING, workers=0):
    stream = epochs.batches(start, workers)
    batches = list(itertools.islice(stream, count))
    stream.close()
    return batches


def equal(first, second):
    names = ("source", "target", "labels")
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in names)


def same(first, second):
    return all(p == q and equal(x, y) for (p, x), (q, y) in zip(first, second, strict=True))


@settings(deadline=None)
@given(PAIRS, st.integers(1, 200), st.integers(0, 2**32))
def test_an_epoch_has_every_pair_once_within_the_budget(pairs, max_tokens, seed):
    batches = group(pairs, max_tokens, seed)
    assert sorted(itertools.chain(*batches)) == list(range(len(pairs)))
    for numbers in batches:
        batch = collate([pairs[n] for n in numbers])
        cost = batch.source.numel() + batch.labels.numel()
        assert len(numbers) == 1 or cost <= max_tokens


@settings(deadline=None)
@given(PAIRS, st.integers(1, 200))
def test_the_budget_is_used(pairs, max_tokens):
    """There are at most as many batches as if all sentences were as long as the longest."""
    widest = max(len(source) for source, _ in pairs) + max(len(target) for _, target in pairs)
    rows = max(1, max_tokens // widest)
    assert len(group(pairs, max_tokens, seed=0)) <= -(-len(pairs) // rows)


@settings(deadline=None)
@given(PAIRS, st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_batches(pairs, seed):
    assert group(pairs, 50, seed) == group(pairs, 50, seed)
    many = random_pairs(300)
    assert group(many, 50, seed) != group(many, 50, seed + 1)


@settings(deadline=None)
@given(PAIRS)
def test_a_batch_holds_its_sentences_and_padding(pairs):
    batch = collate(pairs)
    for row, (source, target) in enumerate(pairs):
        assert batch.source[row].tolist()[: len(source)] == source
        assert set(batch.source[row].tolist()[len(source) :]) <= {PAD}
        assert batch.labels[row].tolist()[: len(target)] == target
        assert set(batch.labels[row].tolist()[len(target) :]) <= {PAD}
        assert batch.target[row].tolist()[: len(target)] == [BOS, *target[:-1]]
        assert set(batch.target[row].tolist()[len(target) :]) <= {PAD}
    assert batch.n_tokens == sum(len(s) + len(t) for s, t in pairs)


@settings(deadline=None)
@given(PAIRS)
def test_halves_concatenate_to_the_batch(pairs):
    batch = collate(pairs)
    first, second = batch.halves()
    assert abs(len(first) - len(second)) <= 1
    for name in ("source", "target", "labels"):
        rows = [getattr(half, name) for half in (first, second)]
        assert torch.equal(torch.cat(rows), getattr(batch, name))


def test_a_batch_depends_on_seed_epoch_and_step_alone():
    pairs = random_pairs(40)
    stream = take(batches_of(pairs), 30)
    lookup = batches_of(pairs)
    places = [(epoch, s) for epoch in range(9) for s in range(lookup.n_batches(epoch))]
    assert 0 < places[29][0] < 8
    for number in np.random.default_rng(0).permutation(30):
        epoch, step = places[number]
        after, batch = stream[number]
        assert after == DataPosition(epoch, step + 1)
        assert equal(batch, lookup[epoch, step])


def test_epochs_have_every_pair_in_different_batches():
    epochs = batches_of(random_pairs(40))
    seen = []
    for epoch in range(3):
        firsts = [epochs[epoch, s].source[:, 0].tolist() for s in range(epochs.n_batches(epoch))]
        assert Counter(itertools.chain(*firsts)) == Counter(range(10, 50))
        seen.append(firsts)
    assert seen[0] != seen[1] != seen[2]


@pytest.mark.parametrize(
    "make", [lambda: batches_of(random_pairs(40)), sampled_batches], ids=["fixed", "sampling"]
)
def test_a_stream_can_be_resumed_at_any_position(make):
    whole = take(make(), 25)
    for done in range(1, 24):
        after = whole[done - 1][0]
        assert same(take(make(), 25 - done, after), whole[done:])


def test_a_position_after_the_last_batch_is_the_next_epoch():
    epochs = batches_of(random_pairs(40))
    end = DataPosition(0, epochs.n_batches(0))
    assert same(take(epochs, 2, end), take(epochs, 2, DataPosition(1, 0)))
    assert same(take(epochs, 2, DataPosition(0, 10_000)), take(epochs, 2, DataPosition(1, 0)))


def test_the_number_of_workers_does_not_change_the_batches():
    batches = sampled_batches()
    whole = take(batches, 20)
    assert whole[-1][0].epoch > 0  # over the end of an epoch
    assert same(take(batches, 20, workers=2), whole)
    after = whole[4][0]
    assert same(take(batches, 3, after, workers=2), whole[5:8])


@pytest.mark.parametrize("workers", [0, 1])
def test_reading_does_not_use_the_global_generator(workers):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    take(batches_of(random_pairs(40)), 12, workers=workers)
    assert torch.equal(torch.get_rng_state(), before)


def test_workers_ignore_signals_to_the_process_group():
    """Terminals and clusters signal all processes; the training process still needs batches."""
    stream = batches_of(random_pairs(400)).batches(DataPosition(), workers=1)
    next(stream)
    for child in multiprocessing.active_children():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            os.kill(child.pid, number)
    assert len(list(itertools.islice(stream, 60))) == 60
    stream.close()
    assert not multiprocessing.active_children()


def test_batches_can_be_pickled_for_a_spawned_process():
    epochs = sampled_batches()
    again = ForkingPickler.loads(ForkingPickler.dumps(epochs))
    assert same(take(again, 5), take(epochs, 5))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**63), st.integers(0, 1000))
def test_any_seed_is_accepted(seed, epoch):
    assert batches_of(random_pairs(3), seed=seed).n_batches(epoch)


@pytest.fixture(scope="module")
def multi30k(real_data):
    folder = real_data / "multi30k"
    text = read_parallel([folder / "train.de.gz"], [folder / "train.en.gz"])
    config = TextConfig(vocab=6000)
    tokenizers = train_tokenizers(text.sources[::3], text.targets[::3], config)
    return list(
        zip(
            tokenizers.source.encode_batch(text.sources),
            tokenizers.target.encode_batch(text.targets),
            strict=True,
        )
    )


@pytest.mark.parametrize("max_tokens", [1500, 4096])
def test_multi30k_has_little_padding(multi30k, max_tokens):
    epochs = batches_of(multi30k, max_tokens, seed=1)
    batches = [epochs[0, step] for step in range(epochs.n_batches(0))]
    costs = [batch.source.numel() + batch.labels.numel() for batch in batches]
    assert sum(batch.n_tokens for batch in batches) >= 0.95 * sum(costs)
    assert max(costs) <= max_tokens
    assert sum(costs) >= 0.9 * max_tokens * len(costs)  # the batches are not small
