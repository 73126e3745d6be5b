"""Optimizers and learning-rate schedules: formulas, parameter groups, published rates."""

import math
from dataclasses import replace

import pytest
import torch

from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig
from polyhead.training.optim import (
    OptimizerConfig,
    ScheduleConfig,
    build_optimizer,
    learning_rate,
)

FALLS = {  # from the peak at step 100 to zero after step 1,000
    "noam": lambda step: math.sqrt(100 / step),
    "inverse_sqrt": lambda step: math.sqrt(100 / step),
    "linear": lambda step: (1001 - step) / 900,
    "cosine": lambda step: (1 + math.cos(math.pi * (step - 101) / 900)) / 2,
    "constant": lambda _: 1.0,
}


def tiny(positions="sinusoidal"):
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16)
    return Transformer(TransformerConfig(9, 9, stack=stack, positions=positions, max_length=5))


def test_all_parameters_are_trained_but_norms_biases_and_positions_not_decayed():
    model = tiny("learned")
    optimizer = build_optimizer(model, OptimizerConfig("adamw", weight_decay=0.5))
    names = {id(p): name for name, p in model.named_parameters()}
    trained = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(trained) == sorted(names)  # every one of them once
    assert {group["share"] for group in optimizer.param_groups} == {1.0}
    decayed = {
        names[id(p)] for g in optimizer.param_groups if g["weight_decay"] for p in g["params"]
    }
    assert decayed
    for name in names.values():
        kept = name.endswith("bias") or ".norm." in name or "positions" in name
        assert (name in decayed) == (not kept), name


def group_rates(model, **options):
    """Return the rate of each parameter when the schedule gives 1."""
    optimizer = build_optimizer(model, OptimizerConfig(**options))
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)]: g["share"] for g in optimizer.param_groups for p in g["params"]}


def test_layer_decay_lowers_the_rates_of_an_encoder_layer_by_layer():
    """By hand: 0.8 from the head to the third block, and so on to the embeddings."""
    stack = replace(bert_stack(3, 8, 2), norm="pre")
    encoder = BERTConfig(vocab=9, max_length=5, d_embed=6, stack=stack)
    model = Classifier(ClassifierConfig(2, "electra", encoder=encoder))
    expected = {
        "to_logits": 1.0, "pool": 1.0, "encoder.stack.norm": 1.0,
        "encoder.stack.blocks.2": 0.8, "encoder.stack.blocks.1": 0.64,
        "encoder.stack.blocks.0": 0.512,
        "encoder.embed": 0.4096, "encoder.widen": 0.4096,
    }  # fmt: skip
    seen = set()
    for name, rate in group_rates(model, layer_decay=0.8, weight_decay=0.1).items():
        part = next(part for part in expected if name.startswith(f"{part}."))
        assert rate == pytest.approx(expected[part]), name
        seen.add(part)
    assert seen == set(expected)


def test_layer_decay_of_an_image_model_and_of_two_stacks():
    stack = replace(ViTConfig().stack, n_layers=2, d_model=8, n_heads=2)
    rates = group_rates(ViT(ViTConfig(2, 8, 8, 1, 4, stack=stack)), layer_decay=0.5)
    for name in ("class_token", "positions.table.weight", "embed.project.bias"):
        assert rates[name] == 0.125
    assert rates["stack.norm.weight"] == rates["to_logits.weight"] == 1.0
    rates = group_rates(tiny(), layer_decay=0.5)
    for name, rate in rates.items():
        assert rate == (0.5 if ".blocks.0." in name else 0.25 if "embed" in name else 1.0), name


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_updates_follow_the_published_formulas(kind):
    """Three steps by hand: Kingma & Ba 2015, and Loshchilov & Hutter 2019, algorithm 2."""
    model = torch.nn.Linear(2, 1, bias=False).double()
    weight = model.weight.detach().clone()
    optimizer = build_optimizer(model, OptimizerConfig(kind, weight_decay=0.1))
    m = v = torch.zeros(1, 2, dtype=torch.float64)
    rate = 0.05
    for step in (1, 2, 3):
        gradient = torch.tensor([[0.3 * step, -2.0]], dtype=torch.float64)
        model.weight.grad = gradient.clone()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        if kind == "adam":
            gradient = gradient + 0.1 * weight
        else:
            weight = weight * (1 - rate * 0.1)
        m = 0.9 * m + 0.1 * gradient
        v = 0.98 * v + 0.02 * gradient**2
        weight = weight - rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.98**step)).sqrt() + 1e-9)
    torch.testing.assert_close(model.weight.detach(), weight, rtol=1e-10, atol=1e-12)


def schedule(kind, *, steps=1000, warmup=100, d_model=512, rate=3e-3):
    config = ScheduleConfig(kind, rate=rate, warmup=warmup)
    return [
        learning_rate(config, step, steps=steps, d_model=d_model) for step in range(1, steps + 1)
    ]


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1.74693e-7), (4000, 6.98771e-4), (100_000, 1.39754e-4)]
)
def test_the_base_model_has_the_rates_of_the_paper(step, rate):
    """Equation 3 of Vaswani et al. 2017 with d_model = 512 and 4,000 steps of warm-up."""
    config = ScheduleConfig()
    assert learning_rate(config, step, steps=10**6, d_model=512) == pytest.approx(rate, rel=5e-6)


@pytest.mark.parametrize("kind", FALLS)
def test_schedules_rise_linearly_to_their_peak_and_fall_by_their_formula(kind):
    rates = schedule(kind)
    peak = rates[99]
    if kind != "noam":
        assert peak == pytest.approx(3e-3)
    shape = [step / 100 for step in range(1, 101)] + [*map(FALLS[kind], range(101, 1001))]
    assert rates == pytest.approx([peak * share for share in shape])


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_the_rate_is_zero_after_the_last_step(kind):
    config = ScheduleConfig(kind, rate=3e-3, warmup=100)
    for step in (1001, 5000):
        assert learning_rate(config, step, steps=1000, d_model=1) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", FALLS)
def test_a_run_shorter_than_its_warm_up_still_has_schedule(kind):
    rates = schedule(kind, steps=10, warmup=100)
    assert all(0 < rate < 3e-3 for rate in rates)
    assert rates == sorted(rates)
