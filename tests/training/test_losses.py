"""Losses: sums over all real labels."""

import os
import signal

import pytest
import torch
from torch.nn import functional as F

from polyhead.data.batches.labelled import TextBatch
from polyhead.data.batches.translation import collate
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.tasks.losses import ContrastiveLoss, TranslationLoss

PAIRS = [([4, 5, 2], [5, 4, 2]), ([6, 2], [6, 2]), ([4, 4, 5, 2], [5, 4, 4, 7, 2])]


@pytest.fixture
def model():
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16)
    return Transformer(TransformerConfig(9, 9, stack=stack)).double().eval()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_of_all_real_labels(model, smoothing):
    batch = collate(PAIRS)
    loss = TranslationLoss(0, smoothing)(model, batch)
    logits = model(batch.source, batch.target)
    oracle = F.cross_entropy(
        logits.flatten(0, 1),
        batch.labels.flatten(),
        ignore_index=0,
        label_smoothing=smoothing,
        reduction="sum",
    )
    assert loss.count == sum(len(target) for _, target in PAIRS)
    torch.testing.assert_close(loss.total, oracle)
    parameters = list(model.parameters())
    ours = torch.autograd.grad(loss.total, parameters)
    theirs = torch.autograd.grad(oracle, parameters)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_the_loss_of_a_sentence_does_not_depend_on_its_batch(model):
    objective = TranslationLoss(0, 0.1)
    alone = sum(objective(model, collate([pair])).total.item() for pair in PAIRS)
    assert objective(model, collate(PAIRS)).total.item() == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("side", [0, 1])
def test_a_text_that_occurs_twice_on_one_side_is_no_wrong_partner(side):
    sides = [[5, 5, 6], [7, 8, 9]] if side == 0 else [[7, 8, 9], [5, 5, 6]]
    ids = torch.tensor([[1, first, 2, second, 2] for first, second in zip(*sides, strict=True)])
    vectors = F.normalize(torch.randn(12, 4), dim=-1)
    encoder = Encoder(vectors)
    loss = ContrastiveLoss()(encoder, TextBatch(ids, torch.zeros(3)))
    scores = vectors[sides[0]] @ vectors[sides[1]].T / encoder.temperature
    scores[0, 1] = scores[1, 0] = -torch.inf
    both = [F.cross_entropy(s, torch.arange(3), reduction="sum") for s in (scores, scores.T)]
    assert loss.count == 3
    torch.testing.assert_close(loss.total, sum(both) / 2)


class Encoder:
    """Encoder of texts of one word by a table."""

    temperature = 0.5

    def __init__(self, vectors):
        self.vectors = vectors

    def __call__(self, ids):
        return self.vectors[ids[:, 1]]


def test_half_precision_gives_nearly_equal_gradients():
    """In float16, and in a fork: bfloat16 kills the process on some machines."""
    if not (pid := os.fork()):
        code = 2
        try:
            code = 0 if _half_is_close() else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == -signal.SIGILL:
        pytest.skip("the processor announces instructions that it does not support")
    assert code == 0


def _half_is_close():
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16)
    model = Transformer(TransformerConfig(9, 9, stack=stack)).eval()
    whole = TranslationLoss(0, 0.1)(model, collate(PAIRS))
    with torch.autocast("cpu", torch.float16):
        half = TranslationLoss(0, 0.1)(model, collate(PAIRS))
    ours, theirs = (torch.autograd.grad(x.total, list(model.parameters())) for x in (half, whole))
    largest = max(b.abs().max() for b in theirs)
    close = all((a - b).abs().max() < 0.01 * largest for a, b in zip(ours, theirs, strict=True))
    same = abs(half.total.item() - whole.total.item()) < 0.01 * whole.total.item()
    return close and same and half.total.dtype == torch.float32 and half.total != whole.total
