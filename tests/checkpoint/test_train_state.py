"""Training state: after restoring it, updates are equal to the last bit."""

import copy
import math

import pytest
import torch
from expected_errors import raises
from safetensors.torch import load_file

from polyhead.checkpoint.model_files import TRAINING_TENSORS
from polyhead.checkpoint.tensors import save_tensors
from polyhead.checkpoint.train_state import NUMBERS, restore_state, write_state
from polyhead.data.batches.translation import collate
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.tasks.losses import TranslationLoss
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
def test_restored_training_continues_with_equal_bits(tmp_path, kind):
    model, rule = build(0, kind)
    for _ in range(3):
        update(model, rule)
    write_state(tmp_path, model, rule, {"progress": PROGRESS})
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    moments = copy.deepcopy([rule.state[p] for p in model.parameters()])
    torch.manual_seed(5)  # the training loop seeds every batch
    expected = [update(model, rule) for _ in range(3)]

    again, other_rule = build(7, kind)
    update(again, other_rule)
    restored = restore_state(tmp_path, again, other_rule)
    assert restored == {"version": 2, "progress": PROGRESS}
    torch.manual_seed(5)
    for parameter, saved in zip(again.parameters(), moments, strict=True):
        restored = other_rule.state[parameter]
        assert restored.keys() == saved.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(restored[name], saved[name]) for name in saved)
    with torch.no_grad():
        for name, p in again.named_parameters():
            p.copy_(weights[name])
    assert [update(again, other_rule) for _ in range(3)] == expected
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_before_the_first_update_there_is_no_optimizer_state(tmp_path):
    model, rule = build(0)
    write_state(tmp_path, model, rule, {"progress": {}})
    again, other = build(1)
    update(again, other)
    restore_state(tmp_path, again, other)
    assert not other.state


def test_the_restored_state_does_not_keep_the_file_open(tmp_path):
    """Otherwise removed checkpoints would occupy the disk until the run ends."""
    model, rule = build(0)
    update(model, rule)
    write_state(tmp_path, model, rule, {"progress": {}})
    restore_state(tmp_path, model, rule)
    with open("/proc/self/maps") as file:
        assert str(tmp_path) not in file.read()


def test_nan_in_the_progress_is_a_value_error(tmp_path):
    model, rule = build(0)
    with pytest.raises(ValueError, match="JSON"):
        write_state(tmp_path, model, rule, {"progress": {"best": math.nan}})


def edit_tensors(edit):
    def apply(folder):
        stored = load_file(folder / TRAINING_TENSORS)
        edit(stored)
        save_tensors(stored, folder / TRAINING_TENSORS)

    return apply


def write_numbers(content):
    return lambda folder: (folder / NUMBERS).write_bytes(content)


def change_shape(tensors):
    name = next(n for n in tensors if n.endswith("exp_avg"))
    tensors[name] = torch.zeros(3, 3, 3)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda folder: (folder / TRAINING_TENSORS).unlink(), "bad_tensor_file"),
        (lambda folder: (folder / NUMBERS).unlink(), "damaged_state"),
        (write_numbers(b"{"), "damaged_state"),
        (write_numbers(b"[" * 10**6), "damaged_state"),
        (write_numbers(b" " * 2**21), "damaged_state"),
        (write_numbers(b"[]"), "damaged_state"),
        (write_numbers(b'{"progress": 3}'), "damaged_state"),
        (edit_tensors(change_shape), "damaged_state"),
    ],
)
def test_a_damaged_state_is_refused(tmp_path, damage, code):
    model, rule = build(0)
    update(model, rule)
    write_state(tmp_path, model, rule, {"progress": {}})
    damage(tmp_path)
    with raises(CheckpointError, code) as caught:
        restore_state(tmp_path, model, rule)
    assert "\n" not in str(caught.value)
