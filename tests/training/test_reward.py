"""Expected reward: GLEU by hand, gradients equal to those of the exact expectation."""

from itertools import product

import pytest
import torch
from torch import nn

from polyhead.data.batches.translation import collate
from polyhead.models.baselines.luong import Luong, LuongConfig
from polyhead.tasks.losses import TranslationLoss
from polyhead.tasks.reward import ExpectedReward, RewardConfig, gleu, log_p, rewards
from polyhead.training.tasks.translation import draw

PAD, BOS, EOS, A, B = range(5)


@pytest.mark.parametrize(
    ("output", "target", "expected"),
    [
        # "a b c" has 3 + 2 + 1 n-grams; "a b d" shares a, b and "a b"
        ("abc", "abd", 3 / 6),
        ("abc", "abc", 1.0),
        ("abc", "xyz", 0.0),
        # a repeated word counts once if the target has it once; "aaaa": 4 + 3 + 2 + 1 n-grams
        ("aaaa", "ab", 1 / 10),
        # five words have 5 + 4 + 3 + 2; two of them 2 + 1: recall is the smaller
        ("ab", "abcde", 3 / 14),
        ("abcde", "ab", 3 / 14),
        ("", "ab", 0.0),
    ],
)
def test_gleu_by_hand(output, target, expected):
    assert gleu([ord(c) for c in output], [ord(c) for c in target]) == pytest.approx(expected)


def test_gleu_equals_nltk():
    theirs = pytest.importorskip("nltk.translate.gleu_score").sentence_gleu
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        output, target = (
            torch.randint(0, 4, (int(n),), generator=generator).tolist()
            for n in torch.randint(1, 9, (2,), generator=generator)
        )
        assert gleu(output, target) == pytest.approx(theirs([target], output))


def test_tokens_after_eos_are_ignored():
    drawn = torch.tensor([[[A, B, EOS, PAD], [A, B, A, B]]])
    labels = torch.tensor([[A, B, EOS]])
    assert rewards(drawn, labels).tolist() == [[1.0, pytest.approx(3 / 10)]]


def tiny():
    return Luong(LuongConfig(8, 5, d_model=6, n_layers=1, dropout=0.3))


def test_log_p_equals_that_of_each_sentence_alone():
    model = tiny().eval()
    source = torch.tensor([[5, 6, EOS], [7, EOS, PAD]])
    drawn = torch.tensor([[[A, B, EOS], [EOS, PAD, PAD]], [[B, EOS, PAD], [A, A, A]]])
    actual = log_p(model, source, drawn)
    for row, sample in product(range(2), range(2)):
        tokens = [t for t in drawn[row, sample].tolist() if t != PAD]
        read = torch.tensor([[BOS, *tokens[:-1]]])
        steps = model(source[row : row + 1], read)[0].log_softmax(-1)
        expected = steps[range(len(tokens)), tokens].sum()
        torch.testing.assert_close(actual[row, sample], expected, rtol=0, atol=1e-5)


def test_the_estimated_gradient_is_that_of_the_expected_reward():
    """The exact gradient is computed over all sentences of at most two words.

    The samples of the estimate are drawn from the same list.
    """
    model = tiny().double().eval()
    batch = collate([([5, 6, EOS], [A, B, EOS])])
    every = [[EOS, PAD, PAD]] + [[a, EOS, PAD] for a in (A, B)]
    every += [[a, b, EOS] for a in (A, B) for b in (A, B)]
    listed = torch.tensor([every])
    parameters = list(model.parameters())

    def probabilities():
        return log_p(model, batch.source, listed)[0].softmax(0)

    r = rewards(listed, batch.labels)[0].double()
    exact = torch.autograd.grad((probabilities() * r).sum(), parameters, allow_unused=True)

    chosen = torch.multinomial(probabilities().detach(), 4000, replacement=True)
    reward = RewardConfig(samples=4000, likelihood=0.0)
    loss = ExpectedReward(reward, lambda *_: listed[:, chosen])(model, batch)
    estimate = torch.autograd.grad(-loss.total, parameters, allow_unused=True)
    estimated = torch.cat([g.flatten() for g in estimate if g is not None])
    expected = torch.cat([g.flatten() for g in exact if g is not None])
    assert torch.nn.functional.cosine_similarity(estimated, expected, dim=0) > 0.97
    assert float(estimated.norm() / expected.norm()) == pytest.approx(1.0, abs=0.15)


def test_the_loss_is_alpha_times_likelihood_minus_reward():
    model = tiny().train()
    batch = collate([([5, 6, EOS], [A, B, EOS]), ([7, EOS], [B, EOS])])
    drawn = torch.tensor([[[A, B, EOS], [B, EOS, PAD]], [[B, EOS, PAD], [A, A, EOS]]])
    loss = ExpectedReward(RewardConfig(samples=2, likelihood=0.5), lambda *_: drawn)(model, batch)
    assert model.training
    model.eval()  # dropout is off, although the model was in training
    r = torch.tensor([[1.0, 1 / 3], [1.0, 0.0]])
    advantage = torch.tensor([[(1 - 1 / 3) / 2, -(1 - 1 / 3) / 2], [0.5, -0.5]])
    torch.testing.assert_close(rewards(drawn, batch.labels), r)
    expected = (advantage * log_p(model, batch.source, drawn)).sum() / 2
    likely = TranslationLoss(PAD)(model, batch)
    torch.testing.assert_close(loss.total, 0.5 * likely.total - expected)
    assert loss.count == likely.count == 5


def test_cudnn_is_disabled_because_its_rnns_require_training_mode(monkeypatch):
    model, seen = tiny().train(), []
    inner = model.hidden
    monkeypatch.setattr(model, "hidden", lambda *given: (
        seen.append((torch.backends.cudnn.enabled, model.training)), inner(*given))[1])  # fmt: skip
    before = torch.backends.cudnn.enabled
    drawn = torch.tensor([[[A, EOS], [B, EOS]]])
    batch = collate([([5, EOS], [A, EOS])])
    ExpectedReward(RewardConfig(samples=2), lambda *_: drawn)(model, batch).total.backward()
    assert seen == [(False, False)] * 2
    assert torch.backends.cudnn.enabled == before


def test_training_on_reward_alone_raises_the_reward():
    torch.manual_seed(3)
    model = Luong(LuongConfig(8, 5, d_model=16, n_layers=1, dropout=0.0)).train()
    batch = collate([([5, 6, EOS], [A, B, EOS]), ([7, EOS], [B, A, A, EOS])])
    objective = ExpectedReward(RewardConfig(samples=16, likelihood=0.0), draw)
    adam = torch.optim.Adam(model.parameters(), lr=0.02)

    def mean_reward():
        return float(rewards(draw(model.eval(), batch.source, 64), batch.labels).mean())

    before = mean_reward()
    for _ in range(60):
        loss = objective(model, batch)
        loss.total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
    assert mean_reward() > before + 0.3
