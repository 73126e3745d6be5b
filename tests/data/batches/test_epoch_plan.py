"""Plans of an epoch: the batches of a loop over all examples, in blocks, the same every time."""

import itertools
from collections import Counter
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.data.batches.base import KEPT_PLANS, mix
from polyhead.data.batches.epoch_plan import count_batches, plan_by_length
from polyhead.data.batches.labelled import TextBatches
from polyhead.data.batches.masked import BERT_MASKING, MaskedBatches, Masker
from polyhead.data.batches.translation import TranslationBatches
from polyhead.data.token_store import TokenSequences, TokenWriter, id_type
from polyhead.special_tokens import EOS

LENGTHS = st.integers(1, 30) | st.integers(1, 4)
EXAMPLES = st.integers(1, 2).flatmap(
    lambda sides: st.lists(st.tuples(*[LENGTHS] * sides), min_size=1, max_size=80)
)
BUDGETS = st.integers(1, 200)
SIZES = (50, 1, 70, 0, 40)  # of blocks


def fill(order, lengths, max_tokens):
    """Fill one batch after another, example by example."""
    batch, widths = [], []
    for number in order:
        wider = list(map(max, widths, lengths[number])) if batch else list(lengths[number])
        if batch and sum(wider) * (len(batch) + 1) > max_tokens:
            yield batch
            batch, wider = [], list(lengths[number])
        batch.append(number)
        widths = wider
    if batch:
        yield batch


def plan_with_lists(lengths, max_tokens, seed, blur):
    """Plan as version 0.1.0 did."""
    rng = np.random.default_rng(seed)
    draws = rng.random(len(lengths))
    source = np.array(lengths)[:, 0]
    if len(lengths[0]) == 1:
        order = np.lexsort((draws, source * (1 + blur * draws)))
    else:
        target = np.array(lengths)[:, 1]
        order = np.lexsort((draws, np.where(source % 2 == 0, target, -target), source))
    batches = list(fill(order.tolist(), lengths, max_tokens))
    rng.shuffle(batches)
    return batches


@settings(max_examples=300, deadline=None)
@given(EXAMPLES, BUDGETS, st.integers(0, 2**32), st.sampled_from([0.0, 0.5]))
def test_plans_are_those_of_a_loop_over_all_examples(examples, max_tokens, seed, blur):
    blur = 0.0 if len(examples[0]) == 2 else blur
    sides = list(np.array(examples, dtype=np.int32).T)
    plan = plan_by_length(sides, max_tokens, seed, blur=blur)
    expected = plan_with_lists(examples, max_tokens, seed, blur)
    assert [numbers.tolist() for numbers in plan] == expected
    if not blur:
        assert count_batches(sides, max_tokens) == len(expected)


@settings(max_examples=100, deadline=None)
@given(EXAMPLES, BUDGETS, st.sampled_from([0.0, 0.5]))
def test_every_example_is_in_one_batch_within_the_budget(examples, max_tokens, blur):
    plan = plan_by_length(list(np.array(examples).T), max_tokens, 0, blur=blur)
    assert sorted(itertools.chain(*plan)) == list(range(len(examples)))
    for numbers in plan:
        padded = sum(np.array(examples)[numbers].max(0)) * len(numbers)
        assert padded <= max_tokens or len(numbers) == 1


def random_sides(n):
    """Return sources with distinct first ids, and targets."""
    rng = np.random.default_rng(0)
    sources = [[10 + i, *[5] * int(rng.integers(8)), EOS] for i in range(n)]
    return sources, [[*[6] * int(rng.integers(8)), EOS] for _ in range(n)]


def stored(folder, sequences, name):
    """Write sequences to a store with one document for each block."""
    writer = TokenWriter(folder / name, id_type(1000))
    rest = iter(sequences)
    for size in SIZES:
        for ids in itertools.islice(rest, size):
            writer.add(np.array(ids), np.array([len(ids)]))
        writer.end_document()
    writer.close()
    return TokenSequences.open(folder / name)


@pytest.fixture
def mapped(tmp_path):
    sides = zip(random_sides(sum(SIZES)), "st", strict=True)
    return [stored(tmp_path, side, name) for side, name in sides]


def test_an_epoch_has_every_pair_and_one_block_after_another(mapped):
    epochs = TranslationBatches(*mapped, 60, seed=3)
    edges = np.cumsum([0, *SIZES])
    orders = set()
    for epoch in range(6):
        firsts = [batch.source[:, 0].numpy() - 10 for batch in epochs.of_epoch(epoch)]
        assert Counter(np.concatenate(firsts).tolist()) == Counter(range(sum(SIZES)))
        blocks = [set(np.searchsorted(edges, batch, side="right")) for batch in firsts]
        assert all(len(block) == 1 for block in blocks)
        order = [number for number, _ in itertools.groupby(min(block) for block in blocks)]
        assert len(order) == 4
        orders.add(tuple(order))
        assert len(firsts) == epochs.n_batches(epoch)
    assert len(orders) > 1


def test_each_block_is_planned_by_its_own_seed(mapped):
    epochs = TranslationBatches(*mapped, 60, seed=3)
    lengths = np.stack([side.lengths for side in mapped], axis=1).tolist()
    start = 0
    for block, size in enumerate(SIZES):
        seed = mix(mix(3, 5), block) if block else mix(3, 5)
        plan = [numbers - start for numbers in epochs.plan(5, block)]
        expected = plan_with_lists(lengths[start : start + size], 60, seed, 0) if size else []
        assert [numbers.tolist() for numbers in plan] == expected
        start += size


def test_batches_do_not_depend_on_what_was_read_before(mapped):
    epochs = TranslationBatches(*mapped, 60, seed=3)
    places = [(epoch, step) for epoch in range(2) for step in range(epochs.n_batches(epoch))]
    in_order = [epochs[place].source for place in places]
    for number in np.random.default_rng(0).permutation(len(places)):
        assert torch.equal(epochs[places[number]].source, in_order[number])
        assert len(epochs._plans) <= KEPT_PLANS
    for step in (-1, epochs.n_batches(0)):
        with pytest.raises(IndexError, match="batches"):
            epochs[0, step]


def test_batches_of_mapped_stores_are_small_to_copy(mapped, tmp_path):
    """Workers get names of files, and plan themselves."""
    pairs = TranslationBatches(*mapped, 60, seed=3)
    masked = MaskedBatches(mapped[0], Masker(BERT_MASKING, 998, 999), 60, seed=3)
    texts = TextBatches(mapped[0], np.zeros(sum(SIZES), dtype=np.int64), 60, seed=3)
    for batches in (pairs, masked, texts):
        batches[0, 0]
        content = ForkingPickler.dumps(batches)
        again = ForkingPickler.loads(content)
        assert not again._plans
        for step in (0, 15):
            first, second = next(iter(batches[1, step])), next(iter(again[1, step]))
            assert torch.equal(first, second)
    big = TokenWriter(tmp_path / "big", id_type(1000))
    big.add(np.full(400_000, 5), np.full(20_000, 20))
    big.close()
    side = TokenSequences.open(tmp_path / "big")
    for batches in (
        TranslationBatches(side, side, 4096, seed=1),
        MaskedBatches(side, Masker(BERT_MASKING, 998, 999), 4096, seed=1),
    ):
        batches[0, 3]
        assert len(ForkingPickler.dumps(batches)) < 10_000


def test_stores_and_memory_give_the_same_batches(tmp_path):
    sides = random_sides(100)
    in_memory = [TokenSequences.of(side, 1000) for side in sides]
    on_disk = []
    for name, side in zip("st", in_memory, strict=True):
        writer = TokenWriter(tmp_path / name, id_type(1000))
        writer.add(side.ids, side.lengths)
        writer.close()
        on_disk.append(TokenSequences.open(tmp_path / name))
    batches = [TranslationBatches(*both, 60, seed=3) for both in (in_memory, on_disk)]
    assert batches[0].n_batches(0) == batches[1].n_batches(0)
    for first, second in zip(*(each.of_epoch(2) for each in batches), strict=True):
        assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


def test_sides_of_different_size_are_refused():
    source, target = (TokenSequences.of(side, 1000) for side in random_sides(5))
    short = TokenSequences(target.ids, target.lengths[:4], target.offsets[:4])
    with pytest.raises(ValueError, match=r"\[5, 4\]"):
        TranslationBatches(source, short, 60, seed=1)
