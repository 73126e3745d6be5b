"""Blanks: how many, what stands there, and what is never touched."""

import pytest
import torch

from polyhead.data.batches.masking import BERT, ELECTRA, MaskingConfig, blank, fixed

VOCAB, MASK = 1000, 999


def texts(batch=400, length=64):
    """Texts between <s> and </s>, the last ones half padding."""
    ids = torch.randint(4, MASK, (batch, length), generator=torch.Generator().manual_seed(1))
    ids[:, 0], ids[:, -1] = 1, 2
    ids[batch // 2 :, length // 2 :] = 0
    return ids


def blanks(config, ids=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = texts() if ids is None else ids
    return blank(ids, config, generator, mask=MASK, vocab=VOCAB)


@pytest.mark.parametrize(
    ("config", "masked", "random"),
    [(BERT, 0.8, 0.1), (ELECTRA, 0.85, 0.0)],
    ids=["bert", "electra"],
)
def test_the_shares_are_those_of_the_papers(config, masked, random):
    ids, blanked, chosen = blanks(config)
    ordinary = ids > 3
    assert (chosen.sum() / ordinary.sum()).item() == pytest.approx(0.15, abs=0.01)
    there = blanked[chosen]
    stays = (there == ids[chosen]).float().mean().item()
    shares = (
        (there == MASK).float().mean().item(),
        1 - stays - (there == MASK).float().mean().item(),
    )
    assert shares == pytest.approx((masked, random), abs=0.02)
    if not random:
        assert set(there[there != ids[chosen]].tolist()) == {MASK}


def test_what_is_not_chosen_is_not_changed_and_specials_are_never_chosen():
    ids, blanked, chosen = blanks(MaskingConfig(share=0.9))
    assert torch.equal(blanked[~chosen], ids[~chosen])
    assert not chosen[ids <= 3].any()
    assert (blanked[chosen] > 3).all()


def test_a_mask_that_stands_in_the_text_is_no_blank():
    ids = texts()
    ids[:, 5] = MASK
    assert not blanks(MaskingConfig(share=1.0), ids).chosen[:, 5].any()


def test_random_tokens_are_ordinary_ones_and_cover_the_vocabulary():
    _, blanked, chosen = blanks(MaskingConfig(share=1.0, masked=0.0, random=1.0))
    drawn = blanked[chosen]
    assert (drawn.min().item(), drawn.max().item()) == (4, MASK - 1)
    assert drawn.unique().numel() == MASK - 4


@pytest.mark.parametrize("length", [3, 4, 5])
def test_every_text_with_a_token_to_spare_gets_a_blank(length):
    ids = torch.full((500, length), 7)
    ids[:, 0], ids[:, -1] = 1, 2
    assert (blanks(BERT, ids).chosen.sum(1) >= 1).all()


def test_a_text_without_tokens_gets_none():
    assert not blanks(BERT, torch.tensor([[1, 2, 0]])).chosen.any()


def test_each_draw_is_another_and_a_fixed_one_is_not():
    generator = torch.Generator().manual_seed(0)
    first = blank(texts(), BERT, generator, mask=MASK, vocab=VOCAB)
    second = blank(texts(), BERT, generator, mask=MASK, vocab=VOCAB)
    assert not torch.equal(first.chosen, second.chosen)
    once, again = (fixed(texts(), BERT, 5, mask=MASK, vocab=VOCAB) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


def test_dropout_does_not_notice_that_blanks_were_drawn():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    blanks(BERT)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"share": 0.0}, "share = 0.0: expected a share above 0"),
        ({"masked": 0.9, "random": 0.2}, "masked = 0.9 and random = 0.2: expected two shares"),
        ({"masked": -0.1}, "expected two shares that add up to 1 at most"),
    ],
)
def test_impossible_shares_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        MaskingConfig(**wrong)
