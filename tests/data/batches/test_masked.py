"""Sequences with blanks: nothing is lost, nothing is too long, and everything comes back."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.data.batches.masked import Blanking, Sequences, by_length, fixed_batches, pieces_of
from polyhead.data.batches.masking import BERT, ELECTRA
from polyhead.data.batches.translation import DataPosition
from polyhead.errors import DataError
from polyhead.special_tokens import BOS, EOS, PAD, SPECIALS, UNK

MASK, VOCAB = 60, 61
BLANKING = Blanking(BERT, MASK, VOCAB)


def some(n=40, seed=0):
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (n,), generator=dice).tolist()
    lines = [[*torch.randint(4, MASK, (k,), generator=dice).tolist(), EOS] for k in lengths]
    return pieces_of(lines, 16)


def test_a_line_is_framed_a_long_one_is_cut_and_an_empty_one_is_left_out():
    found = pieces_of([[7, EOS], [EOS], [4, 5, 6, 7, 8, EOS]], max_length=4)
    assert found == [[BOS, 7, EOS], [BOS, 4, 5, EOS], [BOS, 6, 7, EOS], [BOS, 8, EOS]]


def test_empty_lines_alone_are_an_error():
    with pytest.raises(DataError, match="all lines are empty"):
        pieces_of([[EOS], [EOS]], 8)


def test_text_of_unknown_words_alone_is_nothing_to_be_judged_by():
    """A loss over no blanks at all would be 0, and no model could ever be better."""
    unknown = pieces_of([[UNK, EOS], [UNK, UNK, EOS]], 8)
    with pytest.raises(DataError, match="nothing in this text can be made a blank: none of it is"):
        fixed_batches(unknown, BLANKING, 50)
    assert fixed_batches([*unknown, [BOS, 9, EOS]], BLANKING, 50)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(3, 30), min_size=1, max_size=60),
    st.integers(1, 90),
    st.integers(0, 9),
    st.sampled_from([0.0, 0.5]),
)
def test_every_sequence_stands_in_one_batch_and_no_batch_is_over_budget(
    lengths, budget, seed, blur
):
    batches = by_length(lengths, budget, seed, blur)
    assert sorted(n for batch in batches for n in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[n] for n in batch) * len(batch)
        assert padded <= budget or len(batch) == 1


def test_a_batch_is_a_function_of_seed_epoch_and_step_alone():
    one, two = (Sequences(some(), BLANKING, 64, seed=3) for _ in range(2))
    two[(1, 2)]  # whatever was asked before
    for step in range(one.n_batches(1)):
        for a, b in zip(one[(1, step)], two[(1, step)], strict=True):
            assert a == b if isinstance(a, float) else torch.equal(a, b)


def test_going_on_in_the_middle_of_an_epoch_gives_the_same_blanks():
    source = Sequences(some(), BLANKING, 64, seed=3)
    whole = source.batches(DataPosition())
    first = [next(whole) for _ in range(source.n_batches(0) + 4)]
    place = first[2][0]
    for _, batch in first[3:]:
        place, again = next(source.batches(place))
        assert torch.equal(batch.blanked, again.blanked)
        assert torch.equal(batch.chosen, again.chosen)


def test_every_epoch_has_new_blanks_and_validation_always_the_same():
    one = [[BOS, *range(4, 16), EOS]]  # alone in its batch: only the blanks can differ
    source = Sequences(one, BLANKING, 64, seed=3)
    assert len({tuple(source[(epoch, 0)].chosen[0].tolist()) for epoch in range(6)}) > 1
    for a, b in zip(*(fixed_batches(some(), BLANKING, 64) for _ in range(2)), strict=True):
        assert torch.equal(a.blanked, b.blanked)


@pytest.mark.parametrize("config", [BERT, ELECTRA])
def test_only_ordinary_tokens_are_asked_for_and_the_text_itself_stays(config):
    sequences = some(200)
    source = Sequences(sequences, Blanking(config, MASK, VOCAB), 64, seed=1)
    seen, tokens, blanks = Counter(), 0, 0
    for step in range(source.n_batches(0)):
        batch = source[(0, step)]
        seen.update(tuple(i for i in row if i != PAD) for row in batch.ids.tolist())
        assert (batch.ids[batch.chosen] >= len(SPECIALS)).all()
        assert torch.equal(batch.blanked[~batch.chosen], batch.ids[~batch.chosen])
        assert batch.n_tokens == int((batch.ids != PAD).sum())
        assert batch.tokens_per_blank == pytest.approx(batch.n_tokens / int(batch.chosen.sum()))
        tokens, blanks = tokens + batch.n_tokens - 2 * len(batch.ids), blanks + batch.chosen.sum()
    assert seen == Counter(map(tuple, sequences))
    assert 0.13 < blanks / tokens < 0.26  # 15 %, and at least one in the shortest


def test_halves_are_the_same_texts_and_keep_the_weight_of_the_whole():
    batch = fixed_batches(some(), BLANKING, 10_000)[0]
    one, two = (half.to(torch.device("cpu")) for half in batch.halves())
    for whole, a, b in zip(batch[:3], one[:3], two[:3], strict=True):
        assert torch.equal(whole, torch.cat([a, b]))
    assert one.tokens_per_blank == two.tokens_per_blank == batch.tokens_per_blank
    assert one.n_tokens + two.n_tokens == batch.n_tokens
