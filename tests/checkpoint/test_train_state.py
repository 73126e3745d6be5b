"""The state of a run: put back, the next update is the same to the last bit."""

import json
import math

import pytest
import torch

from polyhead.checkpoint import tensors
from polyhead.checkpoint import train_state as training
from polyhead.data.batches.translation import collate
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.training.losses import TranslationLoss
from polyhead.training.optim import OptimizerConfig, build_optimizer

BATCH = collate([([4, 5, 2], [5, 4, 2]), ([6, 2], [6, 2])])
PROGRESS = {"step": 3, "window_total": 0.1 + 0.2, "best": 1e-17}


def build(seed, kind="adam"):
    torch.manual_seed(seed)
    stack = StackConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16, dropout=0.3)
    model = Transformer(TransformerConfig(8, 8, stack=stack))
    return model, build_optimizer(model, OptimizerConfig(kind, weight_decay=0.1))


def update(model, rule):
    for group in rule.param_groups:
        group["lr"] = 0.01
    loss = TranslationLoss(0)(model, BATCH)
    loss.total.backward()
    rule.step()
    rule.zero_grad()
    return loss.total.item()


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_what_is_restored_goes_on_bit_by_bit(tmp_path, kind):
    model, rule = build(0, kind)
    for _ in range(3):
        update(model, rule)
    training.write_state(tmp_path, model, rule, {"progress": PROGRESS})
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    expected = [update(model, rule) for _ in range(3)]

    again, other_rule = build(7, kind)
    update(again, other_rule)
    assert training.restore_state(tmp_path, again, other_rule) == {"progress": PROGRESS}
    with torch.no_grad():
        for name, p in again.named_parameters():
            p.copy_(weights[name])
    assert [update(again, other_rule) for _ in range(3)] == expected
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_moments_and_counts_come_back_exactly(tmp_path):
    model, rule = build(0)
    for _ in range(3):
        update(model, rule)
    training.write_state(tmp_path, model, rule, {"progress": {}})
    again, other = build(1)
    training.restore_state(tmp_path, again, other)
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert rule.state[p].keys() == other.state[q].keys() == {"step", "exp_avg", "exp_avg_sq"}
        for key, value in rule.state[p].items():
            assert torch.equal(value, other.state[q][key])
            assert value.dtype == other.state[q][key].dtype


def test_before_the_first_update_there_are_no_moments(tmp_path):
    model, rule = build(0)
    training.write_state(tmp_path, model, rule, {"progress": {}})
    again, other = build(1)
    update(again, other)
    training.restore_state(tmp_path, again, other)
    assert not other.state


def test_the_generators_come_back(tmp_path):
    model, rule = build(0)
    training.write_state(tmp_path, model, rule, {"progress": {}})
    expected = torch.rand(9)
    torch.manual_seed(5)
    training.restore_state(tmp_path, model, rule)
    assert torch.equal(torch.rand(9), expected)


def test_the_state_holds_nothing_of_the_file(tmp_path):
    """Or a checkpoint that is removed would keep its place on the disk until the run ends."""
    model, rule = build(0)
    update(model, rule)
    training.write_state(tmp_path, model, rule, {"progress": {}})
    training.restore_state(tmp_path, model, rule)
    with open("/proc/self/maps") as file:
        assert str(tmp_path) not in file.read()


def test_a_number_that_is_not_one_is_our_mistake(tmp_path):
    model, rule = build(0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        training.write_state(tmp_path, model, rule, {"progress": {"best": math.nan}})


def spoil_tensors(edit):
    def spoil(folder):
        found = tensors.load_tensors(folder / training.TENSORS)
        edit(found)
        tensors.save_tensors(found, folder / training.TENSORS)

    return spoil


def write_numbers(content):
    return lambda folder: (folder / training.NUMBERS).write_bytes(content)


def another_shape(found):
    name = next(n for n in found if n.endswith("exp_avg"))
    found[name] = torch.zeros(3, 3, 3)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / training.TENSORS).unlink(), "training.safetensors is not a safe"),
        (lambda folder: (folder / training.NUMBERS).unlink(), "training.json: it cannot be read"),
        (write_numbers(b"{"), "training.json: it cannot be read"),
        (write_numbers(b"[" * 10**6), "training.json: it cannot be read"),
        (write_numbers(b" " * 2**21), "training.json: it cannot be read"),
        (write_numbers(b"[]"), "training.json: it does not say where the run stood"),
        (write_numbers(b'{"progress": 3}'), "training.json: it does not say where the run stood"),
        (spoil_tensors(lambda t: t.pop("random.cpu")), "no state of the random generators"),
        (spoil_tensors(lambda t: t.update({"random.cpu": torch.zeros(3)})), "no state of the"),
        (spoil_tensors(another_shape), "is (3, 3, 3), but the parameter"),
    ],
)
def test_a_state_that_is_not_one_is_refused_in_one_line(tmp_path, spoil, message):
    model, rule = build(0)
    update(model, rule)
    training.write_state(tmp_path, model, rule, {"progress": json.loads("{}")})
    spoil(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        training.restore_state(tmp_path, model, rule)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
