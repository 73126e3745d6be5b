"""Masked sequences: shares of masks, protected tokens, reproducible batches within a budget."""

from collections import Counter

import pytest
import torch

from polyhead.data.batches.masked import (
    BERT_MASKING,
    ELECTRA_MASKING,
    MaskedBatches,
    Masker,
    MaskingConfig,
    mask_tokens,
)
from polyhead.data.token_store import TokenSequences
from polyhead.special_tokens import BOS, EOS, PAD, SPECIALS

VOCAB, MASK = 1000, 999
MASKER = Masker(BERT_MASKING, MASK, VOCAB)


def random_sequences(n=40, seed=0):
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (n,), generator=rng).tolist()
    lines = [[*torch.randint(4, MASK, (k,), generator=rng).tolist(), EOS] for k in lengths]
    return TokenSequences.of([[BOS, *line] for line in lines], VOCAB)


def random_texts(batch=400, length=64):
    """Texts between BOS and EOS, half of them padded to half their length."""
    ids = torch.randint(4, MASK, (batch, length), generator=torch.Generator().manual_seed(1))
    ids[:, 0], ids[:, -1] = BOS, EOS
    ids[batch // 2 :, length // 2 :] = PAD
    return ids


def masked(config, ids=None):
    generator = torch.Generator().manual_seed(0)
    ids = random_texts() if ids is None else ids
    return mask_tokens(ids, config, generator, mask=MASK, vocab=VOCAB)


@pytest.mark.parametrize(
    ("config", "n_masked", "n_random"),
    [(BERT_MASKING, 0.8, 0.1), (ELECTRA_MASKING, 0.85, 0.0)],
    ids=["bert", "electra"],
)
def test_shares_are_those_of_the_papers(config, n_masked, n_random):
    ids, blanked, chosen = masked(config)
    assert (chosen.sum() / (ids > 3).sum()).item() == pytest.approx(0.15, abs=0.01)
    inputs = blanked[chosen]
    is_mask = (inputs == MASK).float().mean().item()
    stays = (inputs == ids[chosen]).float().mean().item()
    assert (is_mask, 1 - stays - is_mask) == pytest.approx((n_masked, n_random), abs=0.02)
    if not n_random:
        assert set(inputs[inputs != ids[chosen]].tolist()) == {MASK}


def test_only_selected_ordinary_tokens_change():
    ids = random_texts()
    ids[:, 5] = MASK
    _, blanked, chosen = masked(MaskingConfig(share=0.9), ids)
    assert torch.equal(blanked[~chosen], ids[~chosen])
    assert not chosen[(ids <= 3) | (ids == MASK)].any()
    assert (blanked[chosen] > 3).all()


def test_random_tokens_cover_the_ordinary_vocabulary():
    _, blanked, chosen = masked(MaskingConfig(share=1.0, masked=0.0, random=1.0))
    drawn = blanked[chosen]
    assert (drawn.min().item(), drawn.max().item()) == (4, MASK - 1)
    assert drawn.unique().numel() == MASK - 4


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_every_text_with_an_ordinary_token_has_a_mask(length):
    ids = torch.full((500, length), 7)
    ids[:, 0], ids[:, -1] = BOS, EOS
    _, _, chosen = masked(BERT_MASKING, ids)
    assert (chosen.sum(1) >= min(1, length - 2)).all()


def test_masking_does_not_use_the_global_generator():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    masked(BERT_MASKING)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("shares", [(0.0, 0.8, 0.1), (0.15, 0.9, 0.2), (0.15, -0.1, 0.1)])
def test_invalid_shares_are_errors(shares):
    with pytest.raises(ValueError, match=r"share = 0\.0|masked = 0\.9 and|masked = -0\.1"):
        MaskingConfig(*shares)


def test_a_batch_depends_on_seed_epoch_and_step_alone():
    first, second = (MaskedBatches(random_sequences(), MASKER, 64, seed=3) for _ in range(2))
    second[1, 2]  # earlier requests have no influence
    for step in range(first.n_batches(1)):
        assert torch.equal(first[1, step].blanked, second[1, step].blanked)
        assert torch.equal(first[1, step].chosen, second[1, step].chosen)


def test_masks_vary_between_epochs():
    alone = [[BOS, *range(4, 16), EOS]]  # in its batch: only the masks can differ
    sequence = TokenSequences.of(alone, VOCAB)
    source = MaskedBatches(sequence, MASKER, 64, seed=3)
    assert len({tuple(source[epoch, 0].chosen[0].tolist()) for epoch in range(6)}) > 1


@pytest.mark.parametrize("config", [BERT_MASKING, ELECTRA_MASKING])
def test_an_epoch_has_every_sequence_with_its_masks(config):
    sequences = random_sequences(200)
    batches = MaskedBatches(sequences, Masker(config, MASK, VOCAB), 64, seed=1).of_epoch(0)
    seen, n_tokens, n_masks = Counter(), 0, 0
    for batch in batches:
        seen.update(tuple(i for i in row if i != PAD) for row in batch.ids.tolist())
        assert (batch.ids[batch.chosen] >= len(SPECIALS)).all()
        assert torch.equal(batch.blanked[~batch.chosen], batch.ids[~batch.chosen])
        assert batch.n_tokens == int((batch.ids != PAD).sum())
        assert batch.tokens_per_blank == pytest.approx(batch.n_tokens / int(batch.chosen.sum()))
        n_tokens += batch.n_tokens - 2 * len(batch)
        n_masks += batch.chosen.sum()
    assert seen == Counter(tuple(ids.tolist()) for ids in sequences)
    assert 0.13 < n_masks / n_tokens < 0.26  # 15 %, and at least one in the shortest


def test_halves_keep_the_weight_of_the_whole():
    batch = MaskedBatches(random_sequences(), MASKER, 10_000, seed=1)[0, 0]
    first, second = (half.to(torch.device("cpu")) for half in batch.halves())
    for name in ("ids", "blanked", "chosen"):
        rows = [getattr(half, name) for half in (first, second)]
        assert torch.equal(getattr(batch, name), torch.cat(rows))
    assert first.tokens_per_blank == second.tokens_per_blank == batch.tokens_per_blank
    assert first.n_tokens + second.n_tokens == batch.n_tokens
