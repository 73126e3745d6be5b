"""The optimiser: what torch's own computes, on the right parameters."""

import pytest
import torch

from polyhead.layers.stack import StackConfig
from polyhead.models import Transformer, TransformerConfig
from polyhead.train.optimizer import OptimizerConfig, build


def tiny(positions="sinusoidal"):
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16)
    return Transformer(TransformerConfig(9, 9, stack=stack, positions=positions, max_length=5))


def test_the_defaults_are_those_of_the_paper():
    optimizer = build(tiny(), OptimizerConfig())
    assert isinstance(optimizer, torch.optim.Adam)
    assert not isinstance(optimizer, torch.optim.AdamW)
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0.0)


def test_every_parameter_is_trained_once():
    model = tiny()
    optimizer = build(model, OptimizerConfig())
    found = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(found) == sorted(id(p) for p in model.parameters())


def test_norms_biases_and_positions_are_not_decayed():
    model = tiny("learned")
    optimizer = build(model, OptimizerConfig("adamw", weight_decay=0.5))
    names = {id(p): name for name, p in model.named_parameters()}
    decayed = {
        names[id(p)] for g in optimizer.param_groups if g["weight_decay"] for p in g["params"]
    }
    assert decayed
    for name in names.values():
        kept = name.endswith("bias") or ".norm." in name or "positions" in name
        assert (name in decayed) == (not kept), name


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_it_moves_as_the_formula_says(kind):
    """Three steps by hand: Kingma & Ba 2015, and Loshchilov & Hutter 2019, algorithm 2."""
    model = torch.nn.Linear(2, 1, bias=False).double()
    weight = model.weight.detach().clone()
    optimizer = build(model, OptimizerConfig(kind, weight_decay=0.1))
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta_1": 1.0}, "beta_1 = 1.0: expected 0 or more, and less than 1"),
        ({"beta_2": -0.1}, "beta_2 = -0.1: expected 0 or more, and less than 1"),
        ({"epsilon": 0.0}, "epsilon = 0.0: expected at least 1e-30"),
        ({"weight_decay": -1.0}, "weight_decay = -1.0: expected 0 or more"),
    ],
)
def test_impossible_optimisers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**options)
