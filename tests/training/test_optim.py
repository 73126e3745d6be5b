"""The optimiser: what torch's own computes, on the right parameters."""

from dataclasses import replace

import pytest
import torch

from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig
from polyhead.training.optim import OptimizerConfig, build, set_rate


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


def rates(model, **options):
    """The rate of each parameter, if the schedule says 1."""
    optimizer = build(model, OptimizerConfig(**options))
    set_rate(optimizer, 1.0)
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)]: g["lr"] for g in optimizer.param_groups for p in g["params"]}


def test_all_move_alike_unless_one_asks():
    assert set(rates(tiny("learned"), weight_decay=0.1).values()) == {1.0}


def test_rates_of_an_encoder_fall_from_layer_to_layer():
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
    for name, rate in rates(model, layer_decay=0.8, weight_decay=0.1).items():
        part = next(part for part in expected if name.startswith(f"{part}."))
        assert rate == pytest.approx(expected[part]), name
        seen.add(part)
    assert seen == set(expected)


def test_rates_of_an_image_model_and_of_two_stacks_do_so_too():
    stack = replace(ViTConfig().stack, n_layers=2, d_model=8, n_heads=2)
    found = rates(ViT(ViTConfig(2, 8, 8, 1, 4, stack=stack)), layer_decay=0.5)
    for name in ("class_token", "positions.table.weight", "embed.project.bias"):
        assert found[name] == 0.125
    assert found["stack.norm.weight"] == found["to_logits.weight"] == 1.0
    found = rates(tiny(), layer_decay=0.5)
    for name, rate in found.items():
        assert rate == (0.5 if ".blocks.0." in name else 0.25 if "embed" in name else 1.0), name


def test_a_lower_block_moves_less_by_its_share():
    """Adam's first step is the rate itself, wherever there is a gradient."""
    torch.manual_seed(0)
    stack = bert_stack(2, 8, 2)
    model = Classifier(ClassifierConfig(2, encoder=BERTConfig(vocab=9, max_length=5, stack=stack)))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build(model, OptimizerConfig(layer_decay=0.5))
    set_rate(optimizer, 0.01)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        share = 0.125 if "embed" in name else 0.25 if "blocks.0" in name else 1.0
        share = 0.5 if "blocks.1" in name else share
        moved = before[name] - parameter.detach()
        torch.testing.assert_close(moved, torch.full_like(moved, 0.01 * share), rtol=1e-3, atol=0)


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
        ({"layer_decay": 0.0}, "layer_decay = 0.0: expected more than 0, and at most 1"),
        ({"layer_decay": 1.1}, "layer_decay = 1.1: expected more than 0, and at most 1"),
    ],
)
def test_impossible_optimisers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**options)
