"""The five rungs: only the context differs (its formulas: rows A6 to A16 of the notes)."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from small_models import LENGTHS, PAD, RUNGS, SOURCE, TARGET, VOCAB, D
from torch.nn import functional as F

from polyhead.data.batches.translation import TranslationBatch
from polyhead.decoding.beam import beam_search
from polyhead.decoding.options import DecodeConfig
from polyhead.models.baselines.attention_ladder import Ladder, LadderConfig
from polyhead.special_tokens import BOS, EOS
from polyhead.tasks.losses import TranslationLoss

SMALL = LadderConfig(VOCAB, VOCAB, cell="gru", d_model=D, dropout=0.0)

rungs = pytest.mark.parametrize("context", RUNGS)


def build(**changes):
    return Ladder(replace(SMALL, **changes)).eval()


# --- the context ---


def test_without_attention_the_context_is_the_last_state():
    c, h, _ = build(context="none").vectors(SOURCE, TARGET)
    for row, n in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(c[row], h[row, n - 1].expand(4, D))


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "general", "additive"])
def test_every_score_learns(score):
    model = build(context="query", score=score).train()
    model(SOURCE, TARGET).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_the_rungs_differ_only_by_the_parameters_of_their_score():
    sizes = {name: sum(p.numel() for p in build(context=name).parameters()) for name in RUNGS}
    assert sizes["mean"] == sizes["none"]
    assert sizes["positional"] == sizes["none"] + SMALL.max_length
    assert sizes["content"] == sizes["none"] + D * D + D + D
    shared = {n for n, _ in build(context="none").named_parameters()}
    for name in RUNGS:
        own = {n for n, _ in build(context=name).named_parameters()} - shared
        assert all(n.startswith("cross_attention.kernel.score.") for n in own)


# --- reading ---


def test_a_reversed_source_is_the_reversed_sentence():
    """Read backwards and given back in order: the same as turning words and states by hand."""
    backwards, plain = build(reverse_source=True), build()
    backwards.load_state_dict(plain.state_dict())
    source = SOURCE[:1]
    ours, by_hand = backwards.encode(source), plain.encode(source.flip(1))
    torch.testing.assert_close(ours.memory.states, by_hand.memory.states.flip(1))
    torch.testing.assert_close(ours.summary, by_hand.summary)


def test_a_bridge_is_built_where_it_is_needed():
    assert len(build().bridge) == 0
    assert len(build(bidirectional=True).bridge) == 1
    model = build(bidirectional=True, cell="lstm", n_layers=2)
    h, c = model.encode(SOURCE).state
    _, (last_h, last_c) = model.encoder.encode(model.embed_source(SOURCE), LENGTHS)
    over_h, over_c = model.bridge
    torch.testing.assert_close(h, torch.tanh(last_h @ over_h.weight.T + over_h.bias))
    torch.testing.assert_close(c, last_c @ over_c.weight.T + over_c.bias)  # no tanh: it may grow
    assert h.shape == c.shape == (2, 3, D)


# --- teacher forcing ---


@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_outside_training_the_target_is_read_as_given(ratio):
    forced, free = build(), build(teacher_forcing=ratio)
    free.load_state_dict(forced.state_dict())
    torch.testing.assert_close(free(SOURCE, TARGET), forced(SOURCE, TARGET))


def test_a_ratio_reads_so_many_of_the_right_words():
    """Record the words that the embedding read."""
    model, read = build(teacher_forcing=0.3).train(), []
    model.embed_target.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    torch.nn.init.zeros_(model.to_logits.weight)
    torch.nn.init.zeros_(model.to_logits.bias)  # it always says 0
    target = torch.full((400, 6), 5)
    model(torch.randint(3, VOCAB, (400, 3)), target)
    words = torch.cat(read, dim=1)
    assert (words[:, 0] == 5).all()
    assert (words[:, 1:] == 5).float().mean() == pytest.approx(0.3, abs=0.04)


def test_the_objective_of_translation_is_the_cross_entropy_of_its_logits():
    model = build()
    labels = torch.tensor([[5, 6, 7, 2], [9, 10, 2, PAD], [4, 2, PAD, PAD]])
    loss = TranslationLoss(PAD)(model, TranslationBatch(SOURCE, TARGET, labels))
    logits = model(SOURCE, TARGET)
    expected = F.cross_entropy(logits.mT, labels, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(loss.total, expected)


# --- decoding ---


@rungs
def test_a_wide_beam_finds_the_best_of_all_sentences(context):
    """Four words, at most three tokens: every sentence is enumerated and scored at once."""
    config = replace(SMALL, target_vocab=6, context=context)
    model = Ladder(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # opinions
    source = SOURCE[:1]
    found = beam_search(model, source, DecodeConfig(beam=64, length_penalty=0.0, max_length=3))
    words = range(3, 6)
    every = [[*body, EOS] for n in range(3) for body in product(words, repeat=n)]
    every += [list(body) for body in product(words, repeat=3)]  # cut off at the limit
    log_p = []
    for sentence in every:
        logits = model(source, torch.tensor([[BOS, *sentence[:-1]]]))[0]
        steps = logits.log_softmax(-1)[range(len(sentence)), sentence]
        log_p.append(steps.sum().item())
    best = max(range(len(every)), key=log_p.__getitem__)
    tokens = [token for token in found.tokens[0, 0].tolist() if token != PAD]
    assert tokens == every[best]
    assert float(found.log_p[0, 0]) == pytest.approx(log_p[best], abs=1e-4)


# --- messages ---


def test_a_source_longer_than_the_positions_is_an_error_that_says_so():
    model = Ladder(replace(SMALL, context="positional", max_length=4))
    with pytest.raises(ValueError, match="weighs 4 positions, but the source has 5; raise max_le"):
        model(SOURCE, TARGET)
