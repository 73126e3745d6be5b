"""The five rungs: only the context differs, and each context is what its formula says."""

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
from polyhead.training.losses import TranslationLoss

SMALL = LadderConfig(VOCAB, VOCAB, cell="gru", d_model=D, dropout=0.0)

rungs = pytest.mark.parametrize("context", RUNGS)


def build(**changes):
    model = Ladder(replace(SMALL, **changes)).eval()
    if changes.get("context") == "positional":
        torch.nn.init.normal_(model.cross_attention.kernel.score.b)  # it begins as the mean
    return model


def weights_of(model, source, target):
    """The weights as a hook sees them, from outside."""
    seen = []

    def record(kernel, inputs):
        q, k, _v, mask = inputs
        seen.append(kernel.weights(q, k, mask)[:, 0])

    handle = model.cross_attention.kernel.register_forward_pre_hook(record)
    model(source, target)
    handle.remove()
    (weights,) = seen  # all steps in one call
    return weights


# --- the context ---


def test_without_attention_the_context_is_the_last_state():
    c, h, _ = build(context="none").vectors(SOURCE, TARGET)
    for row, n in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(c[row], h[row, n - 1].expand(4, D))


def test_the_mean_is_that_of_the_words_and_not_of_padding():
    c, h, _ = build(context="mean").vectors(SOURCE, TARGET)
    for row, n in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(c[row], h[row, :n].mean(0).expand(4, D))


def test_positions_weigh_the_same_in_every_sentence_of_a_length():
    model = build(context="positional")
    one, other = torch.randint(3, VOCAB, (2, 3, 5))
    expected = model.cross_attention.kernel.score.b[:5].softmax(0).expand(3, 4, 5)
    torch.testing.assert_close(weights_of(model, one, TARGET), expected)
    torch.testing.assert_close(weights_of(model, other, TARGET), expected)


def test_content_weighs_other_words_otherwise_but_all_steps_alike():
    model = build(context="content")
    one, other = torch.randint(3, VOCAB, (2, 3, 5))
    weights = weights_of(model, one, TARGET)
    assert not torch.allclose(weights, weights_of(model, other, TARGET), atol=1e-3)
    assert torch.equal(weights, weights[:, :1].expand_as(weights))
    score = model.cross_attention.kernel.score
    h = model.encode(one).memory.states.detach()
    by_hand = [
        [float((score.v.weight[0] @ score.w(word).tanh()).detach()) for word in row] for row in h
    ]
    torch.testing.assert_close(weights[:, 0], torch.tensor(by_hand).softmax(-1))


def test_every_step_has_its_own_weights():
    weights = weights_of(build(context="query"), SOURCE, TARGET)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))
    assert (weights[1, :, 3:] == 0).all()
    assert (weights[2, :, 2:] == 0).all()
    for one, other in [(0, 1), (1, 2), (2, 3)]:
        assert (weights[0, one] - weights[0, other]).abs().max() > 1e-4


def test_attention_is_what_two_loops_compute():
    """softmax over i of s_t · h_i / √d, word by word."""
    model = build(context="query", score="scaled_dot")
    c, h, s = (vectors.detach() for vectors in model.vectors(SOURCE, TARGET))
    for row, t in product(range(3), range(4)):
        exps = [float((s[row, t] @ h[row, i] / D**0.5).exp()) for i in range(LENGTHS[row])]
        expected = sum(e / sum(exps) * h[row, i] for i, e in enumerate(exps))
        torch.testing.assert_close(c[row, t], expected, rtol=0, atol=1e-6)


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


def test_the_last_word_is_remembered_best_without_attention():
    """Sutskever et al. 2014 turned the source for this reason: then it is the first."""
    source = torch.randint(3, VOCAB, (16, 9))
    for reverse, fresh in ((False, 8), (True, 0)):
        model = build(context="none", cell="rnn", d_model=32, reverse_source=reverse)
        words = {}

        def keep(_module, _inputs, output, words=words):
            words["x"] = output.detach().requires_grad_()
            return words["x"]

        model.embed_source.register_forward_hook(keep)
        summary = model.encode(source).summary
        (gradient,) = torch.autograd.grad((summary * torch.randn(32)).sum(), words["x"])
        assert gradient.norm(dim=-1).mean(0).argmax() == fresh


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
