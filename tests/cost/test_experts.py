"""The formulas for experts are held to the model that torch has built."""

from dataclasses import replace

import pytest
import torch

from polyhead.cost.families import transformer_bill
from polyhead.cost.measured import kept_bytes, products
from polyhead.cost.stack import Shape
from polyhead.data.batches.translation import TranslationBatch
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.training.losses import BalancedLoss, TranslationLoss

STACK = StackConfig(n_layers=2, d_model=32, n_heads=4, d_ff=48)
SMALL = TransformerConfig(61, 61, max_length=64, stack=STACK)
EXPERTS = {
    "4 of 8": ExpertsConfig(n=8, k=4),
    "1 of 3": ExpertsConfig(n=3, k=1),
    "all": ExpertsConfig(n=3, k=3),
    "quiet": ExpertsConfig(n=4, k=2, noise=False, load=0.0),
}
experts = pytest.mark.parametrize("chosen", EXPERTS.values(), ids=EXPERTS)


def build(chosen, shape):
    torch.manual_seed(0)
    config = replace(SMALL, stack=replace(STACK, experts=chosen))
    source = torch.randint(4, 61, (shape.batch, shape.source))
    target = torch.randint(4, 61, (shape.batch, shape.length))
    batch = TranslationBatch(source, target, target.roll(-1, 1))
    return Transformer(config).train(), batch, transformer_bill(config, shape)


@experts
def test_weights_and_training_are_those_that_torch_counts(chosen):
    model, batch, bill = build(chosen, Shape(3, 7, 11))
    assert bill.total.parameters == sum(p.numel() for p in model.parameters())
    objective = BalancedLoss(TranslationLoss(pad=0, smoothing=0.1))
    work = products(lambda: objective(model, batch).total.backward())
    assert work == pytest.approx(bill.total.training)


@experts
def test_kept_memory_is_what_autograd_keeps(chosen):
    model, batch, bill = build(chosen, Shape(4, 24, 30))
    measured = kept_bytes(lambda: model.hidden(batch.source, batch.target), model.parameters())
    counted = sum(bill.parts[name].kept for name in ("embeddings", "encoder", "decoder"))
    assert counted == pytest.approx(measured, rel=0.02)
