"""Objectives: sums over what there is to predict, and over nothing else."""

import pytest
import torch
from torch.nn import functional as F

from polyhead.data.batch import collate
from polyhead.layers.stack import StackConfig
from polyhead.models import Transformer, TransformerConfig
from polyhead.train.objectives import Objective, Translation

PAIRS = [([4, 5, 2], [5, 4, 2]), ([6, 2], [6, 2]), ([4, 4, 5, 2], [5, 4, 4, 7, 2])]


@pytest.fixture
def model():
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16)
    return Transformer(TransformerConfig(9, 9, stack=stack)).double().eval()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_of_all_real_labels(model, smoothing):
    batch = collate(PAIRS)
    loss = Translation(0, smoothing)(model, batch)
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


def test_company_does_not_change_a_sentence_s_loss(model):
    objective = Translation(0, 0.1)
    alone = sum(objective(model, collate([pair])).total.item() for pair in PAIRS)
    assert objective(model, collate(PAIRS)).total.item() == pytest.approx(alone, rel=1e-12)


def test_it_is_an_objective():
    assert isinstance(Translation(0), Objective)
