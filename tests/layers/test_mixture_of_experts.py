"""Sparsely gated experts against sums written out, redrawn noise and finite differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from polyhead.layers.mixture_of_experts import (
    LEAST_NOISE,
    Experts,
    ExpertsConfig,
    Gate,
    chance_of_choice,
    has_experts,
    record_usage,
    unevenness,
)
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERT, BERTConfig
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig

D, N = 8, 5


def build(k=2, n=N, noise=True, **weights):
    """Experts whose gate has an opinion, in double precision."""
    load = weights.pop("load", 0.01 if noise else 0.0)
    config = ExpertsConfig(n, k, noise=noise, load=load, **weights)
    layer = Experts(D, 12, "relu", 0.0, config).double()
    with torch.no_grad():
        for parameter in layer.gate.parameters():
            parameter.normal_()
    return layer


def dense(layer, x, h):
    """Equation 1 with every expert computed everywhere, given H(x): the gates, and the sum."""
    kth = h.sort(-1, descending=True).values[..., layer.gate.config.k - 1, None]
    gates = h.masked_fill(h < kth, -torch.inf).softmax(-1)
    answers = torch.stack([expert(x) for expert in layer.experts], -1)
    return gates, (answers * gates[:, :, None]).sum(-1)


def routed(layer, x):
    """Return the gate's weights as a matrix of positions and experts."""
    routing, n = layer.gate(x.flatten(0, 1)), len(layer.experts)
    gates = torch.zeros(x.size(0) * x.size(1), n, dtype=x.dtype)
    gates[routing.rows, routing.chosen] = routing.weights
    return routing, gates.view(*x.shape[:2], n)


@pytest.mark.parametrize("k", [1, 2, 4, N])
def test_the_output_is_the_sum_over_all_experts_weighted_by_their_gates(k):
    layer, x = build(k).eval(), torch.randn(3, 7, D, dtype=torch.float64)
    gates, expected = dense(layer, x, x @ layer.gate.w_g)
    torch.testing.assert_close(layer(x), expected)
    routing, ours = routed(layer, x)
    torch.testing.assert_close(ours, gates)
    torch.testing.assert_close(routing.importance, gates.sum((0, 1)))
    torch.testing.assert_close(routing.load, (gates > 0).double().sum((0, 1)))


@pytest.mark.parametrize("k", [1, 3, N])
def test_in_training_the_gates_add_noise_of_the_learned_size(k):
    layer, x = build(k).train(), torch.randn(3, 7, D, dtype=torch.float64)
    torch.manual_seed(5)
    found = layer(x)
    torch.manual_seed(5)
    epsilon = torch.randn(21, N, dtype=torch.float64).view(3, 7, N)
    scale = F.softplus(x @ layer.gate.w_noise) + LEAST_NOISE
    _, expected = dense(layer, x, x @ layer.gate.w_g + epsilon * scale)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_chance_of_a_choice_is_its_frequency_when_its_noise_is_drawn_again(k):
    """Equation 9 for one position: the noise of all other experts stays as it was."""
    draws = 20_000
    clean, scale = torch.randn(1, N), torch.rand(1, N) + 0.3
    noisy = clean + torch.randn(1, N) * scale
    chances = chance_of_choice(clean, noisy, scale, noisy.topk(k + 1).values)
    for i in range(N):
        again = noisy.repeat(draws, 1)
        again[:, i] = clean[0, i] + torch.randn(draws) * scale[0, i]
        often = (again.topk(k).indices == i).any(1).float().mean()
        torch.testing.assert_close(chances[0, i], often, rtol=0, atol=0.015)


def test_the_load_is_the_expected_number_of_questions():
    """Over many draws of all noise, the smooth load and the count agree."""
    gate, rows = build(k=2).gate.train(), torch.randn(3, D, dtype=torch.float64)
    many = rows.repeat(20_000, 1)
    routing = gate(many)
    counted = routing.chosen.bincount(minlength=N).double()
    torch.testing.assert_close(routing.load / len(many), counted / len(many), rtol=0, atol=0.01)
    assert counted.min() / counted.max() < 0.8  # there is something to estimate


def test_only_chosen_experts_compute_and_only_their_rows():
    layer, x = build(k=2).eval(), torch.randn(3, 7, D, dtype=torch.float64).abs()
    with torch.no_grad():
        layer.gate.w_g[:, 3] = -9.0  # never chosen
    rows = {}
    for i, expert in enumerate(layer.experts):
        expert.register_forward_hook(lambda _, inputs, __, i=i: rows.update({i: inputs[0].shape}))
    layer(x)
    load = layer.gate(x.flatten(0, 1)).load
    assert 3 not in rows
    assert {i: shape[1] for i, shape in rows.items()} == {
        i: int(load[i]) for i in range(N) if load[i]
    }
    assert sum(shape[1] for shape in rows.values()) == 2 * 21


@pytest.mark.parametrize(("k", "training"), [(1, True), (2, True), (2, False), (N, True)])
def test_gradients_are_those_of_finite_differences(k, training):
    layer = build(k).train(training)
    x = torch.randn(2, 3, D, dtype=torch.float64, requires_grad=True)
    w_g, w_noise = layer.gate.w_g, layer.gate.w_noise

    def everything(x, w_g, w_noise):
        torch.manual_seed(7)
        with record_usage(layer) as uses:
            names = {"gate.w_g": w_g, "gate.w_noise": w_noise}
            y = functional_call(layer, names, (x,))
        return y, uses["gate"].importance, uses["gate"].load, uses["gate"].loss

    assert torch.autograd.gradcheck(everything, (x, w_g, w_noise))


def test_padding_is_never_routed_and_changes_nothing():
    layer, x = build(k=2).eval(), torch.randn(2, 6, D, dtype=torch.float64)
    real = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]).bool()
    with record_usage(layer) as uses:
        found = layer(x, real)
    assert uses["gate"].load.sum() == 2 * 10
    torch.testing.assert_close(found[real], layer(x)[real])
    assert (found[~real] == 0).all()
    torch.testing.assert_close(layer(x.masked_fill(~real[..., None], 99.0), real), found)


def test_unevenness_is_the_squared_ratio_of_deviation_and_mean():
    amounts = torch.tensor([1.0, 3.0, 8.0])
    assert unevenness(amounts) == pytest.approx((9 + 1 + 16) / 3 / 16)
    assert unevenness(torch.full((4,), 2.5)) == 0


def test_recording_covers_all_calls_and_removes_its_hooks():
    layer = build(k=2, importance=0.3, load=0.7).train()
    one, other = torch.randn(2, 2, 5, D, dtype=torch.float64)
    torch.manual_seed(3)
    with record_usage(layer, learning=True) as uses:
        layer(one)
        with torch.no_grad():
            layer(other)  # does not count
        layer(other)
    torch.manual_seed(3)
    first, _, last = (layer.gate(x.flatten(0, 1)) for x in (one, other, other))
    torch.testing.assert_close(uses["gate"].importance, first.importance + last.importance)
    torch.testing.assert_close(uses["gate"].load, first.load + last.load)
    expected = 0.3 * unevenness(uses["gate"].importance) + 0.7 * unevenness(uses["gate"].load)
    torch.testing.assert_close(uses["gate"].loss, expected)
    assert not layer.gate._forward_hooks
    with record_usage(layer) as uses, torch.no_grad():
        layer(one)
    assert uses["gate"].importance.sum() == pytest.approx(10)


# Two levels, and balanced gating


def softmax_of_best(h, k):
    """Return softmax(KeepTopK(h, k)) of one row in NumPy."""
    best = np.argsort(h)[-k:]
    gates = np.zeros_like(h)
    gates[best] = np.exp(h[best] - h.max())
    return gates / gates.sum()


def test_two_levels_are_the_products_of_both_gates():
    """Equations 12 to 14 row by row in NumPy: 2 of 4 groups, 2 of 3 experts in each."""
    layer = build(k=2, n=12, groups=4).eval()
    x = torch.randn(3, 7, D, dtype=torch.float64)
    expected = np.zeros((21, 12))
    for row, vector in enumerate(x.flatten(0, 1).numpy()):
        primary = softmax_of_best(vector @ layer.gate.primary.w_g.detach().numpy(), 2)
        for i, gate in enumerate(layer.gate.secondary):
            inner = softmax_of_best(vector @ gate.w_g.detach().numpy(), 2)
            expected[row, 3 * i : 3 * i + 3] = primary[i] * inner
    routing, gates = routed(layer, x)
    np.testing.assert_allclose(gates.detach().view(21, 12), expected, atol=1e-12)
    np.testing.assert_allclose(routing.importance.detach(), expected.sum(0))
    np.testing.assert_allclose(routing.load, (expected > 0).sum(0))
    answers = torch.stack([expert(x) for expert in layer.experts], -1)
    torch.testing.assert_close(layer(x), (answers * gates[:, :, None]).sum(-1))


def test_the_load_of_two_levels_has_a_gradient_to_both():
    gate, calls = build(k=2, n=12, groups=4).gate.train(), []
    for module in (gate.primary, *gate.secondary):
        module.register_forward_hook(lambda _, inputs, routing: calls.append((inputs[0], routing)))
    load = gate(torch.randn(50, D, dtype=torch.float64)).load.view(4, 3)
    (_, primary), *inner = calls
    for i, (rows, routing) in enumerate(inner):
        assert len(rows) == (primary.chosen == i).sum()
        torch.testing.assert_close(load[i], primary.load[i] * routing.load / len(rows))
    unevenness(load.flatten()).backward()
    assert gate.primary.w_g.grad.any()
    assert all(one.w_g.grad.any() for one in gate.secondary)


def test_balanced_gating_gives_every_expert_equally_many_rows():
    """Equations 15 to 20 in NumPy; in training the m largest of each column, else thresholds."""
    layer = build(k=2, gating="balanced")
    gate, x = layer.gate, torch.randn(4, 10, D, dtype=torch.float64)
    with torch.no_grad():
        gate.threshold.uniform_(0.1, 0.3)
    h = np.exp(x.flatten(0, 1).numpy() @ gate.w_g.detach().numpy())
    p, t = h / h.sum(1, keepdims=True), gate.threshold.detach().numpy()
    m = 2 * 40 // N
    batchwise = p >= np.sort(p, axis=0)[-m]
    best = np.eye(N, dtype=bool)[p.argmax(1)]
    for training, mask in ((True, batchwise), (False, (p > t) | best)):
        layer.train(training)
        expected = p * mask / np.maximum(1e-30, (p * mask).sum(1, keepdims=True))
        routing, gates = routed(layer, x)
        np.testing.assert_allclose(gates.detach().view(40, N), expected, atol=1e-12)
        np.testing.assert_array_equal(routing.load, mask.sum(0))
        loss = (((p > t).astype(float) - mask) * (p - t)).sum() / 40
        np.testing.assert_allclose(routing.threshold_loss.detach(), loss)
    assert (layer.train().gate(x.flatten(0, 1)).load == m).all()


@pytest.mark.parametrize("groups", [0, 3])
def test_thresholds_learn_to_choose_as_the_batch_does(groups):
    """After training T alone, single rows are spread nearly as evenly as rows of a batch."""
    layer = build(k=1 if groups else 2, n=6, groups=groups, gating="balanced").train()
    thresholds = [p for name, p in layer.named_parameters() if name.endswith("threshold")]
    optimizer = torch.optim.SGD(thresholds, lr=0.3)
    for _ in range(60):
        with record_usage(layer) as uses:
            layer(torch.randn(1, 240, D, dtype=torch.float64))
        optimizer.zero_grad()
        uses["gate"].loss.backward()
        optimizer.step()
    rows = torch.randn(3000, D, dtype=torch.float64)
    before = layer.gate(rows).load
    assert unevenness(before) < 1e-4
    after = layer.eval().gate(rows).load
    assert unevenness(after) < 0.05
    torch.testing.assert_close(after.sum(), before.sum(), rtol=0.25, atol=0)


def learn(weight):
    """Six kinds of points, a gate that begins with two favourites; how its experts end up."""
    torch.manual_seed(0)
    layer = Experts(D, 8, "relu", 0.0, ExpertsConfig(6, 2, importance=weight, load=weight))
    kinds, maps = 2 * torch.randn(6, D - 1), torch.randn(6, D, D)
    with torch.no_grad():
        layer.gate.w_g[-1, :2] = 4.0
    adam = torch.optim.Adam(layer.parameters(), lr=0.01)
    for step in range(101):
        kind = torch.arange(96) % 6
        x = torch.cat([kinds[kind] + 0.3 * torch.randn(96, D - 1), torch.ones(96, 1)], 1)
        right = torch.einsum("bi,bij->bj", x, maps[kind])
        layer.train(step < 100)
        with record_usage(layer) as uses:
            error = (layer(x[None])[0] - right).square().mean()
        (error + uses["gate"].loss).backward()
        adam.step()
        adam.zero_grad()
    return uses["gate"].load


def test_the_two_losses_make_a_gate_use_all_experts_that_else_keeps_its_favourites():
    alone, balanced = learn(0.0), learn(1.0)
    assert (alone > 0).sum() <= 3
    assert (balanced > 0).all()
    assert balanced.max() / balanced.sum() < 0.4 < alone.max() / alone.sum()


# --- in the blocks of every family ---

STACK = StackConfig(
    n_layers=2, d_model=16, n_heads=2, d_ff=24, dropout=0.0, attention_dropout=0.0,
    experts=ExpertsConfig(n=4, k=2),
)  # fmt: skip
PRE = replace(STACK, norm="pre")


def opinionated(model):
    """Return the model with gates that prefer some experts."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Gate):
                module.w_g.normal_()
    return model.eval()


def ids(batch, length):
    return torch.randint(1, 11, (batch, length))


FAMILIES = {
    "transformer": (lambda: Transformer(TransformerConfig(11, 11, stack=STACK)), (ids, ids), 4),
    "gpt": (lambda: GPT(GPTConfig(11, 12, stack=PRE)), (ids,), 2),
    "bert": (lambda: BERT(BERTConfig(11, 12, stack=STACK)), (ids,), 2),
    "vit": (
        lambda: ViT(ViTConfig(3, 8, 12, 1, 4, stack=PRE)),
        (lambda batch, _: torch.randn(batch, 1, 8, 12),),
        2,
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_have_experts_and_its_gates_begin_without_preference(family):
    make, inputs, n_gates = FAMILIES[family]
    model = make().train()
    assert has_experts(model)
    gates = [module for module in model.modules() if isinstance(module, Gate)]
    assert len(gates) == n_gates
    assert not any(parameter.any() for gate in gates for parameter in gate.parameters())
    with record_usage(model, learning=True) as uses:
        loss = model(*(draw(3, 9) for draw in inputs)).square().sum()
    (loss + sum(use.loss for use in uses.values())).backward()
    assert len(uses) == n_gates
    for gate in gates:
        assert gate.w_g.grad.any()
        assert gate.w_noise.grad.any() or family == "vit"  # whose output layer begins at zero


def test_electras_two_players_have_experts_too():
    config = ElectraConfig(11, 12, d_embed=8, generator_size=0.5, stack=STACK)
    gates = [m for m in Electra(config).modules() if isinstance(m, Gate)]
    assert [len(gate.w_g) for gate in gates] == [8, 8, 16, 16]


@pytest.mark.parametrize("stack", [STACK, PRE], ids=["post", "pre"])
def test_both_sides_of_a_translator_route_real_tokens_only(stack):
    model = opinionated(Transformer(TransformerConfig(11, 11, stack=stack)))
    source, target = ids(2, 5), ids(2, 7)
    source[0, 3:] = 0
    target[1, 4:] = 0
    with record_usage(model) as uses:
        found = model(source, target)
    heard = {name: int(use.load.sum()) / 2 for name, use in uses.items()}
    assert set(heard.values()) == {8, 11}
    assert all(heard[name] == (8 if name.startswith("encoder") else 11) for name in heard)
    alone = model(source[:1, :3], target[:1])
    torch.testing.assert_close(found[:1], alone, rtol=1e-4, atol=1e-5)


def test_without_experts_a_block_has_one_network():
    plain = Transformer(TransformerConfig(11, 11, stack=replace(STACK, experts=ExpertsConfig())))
    assert not has_experts(plain)
    assert all(isinstance(block.feed_forward.w_1, nn.Linear) for block in plain.encoder.blocks)
