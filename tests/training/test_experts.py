"""Training with a mixture of experts: balancing losses, metrics, refused combinations."""

import json

import pytest
import torch
from reporters import Recorder
from tiny import SMALL, write_corpus

import polyhead
from polyhead.data.batches.language_model import LanguageBatch
from polyhead.errors import ConfigError
from polyhead.layers.mixture_of_experts import (
    ExpertsConfig,
    ExpertUsage,
    Gate,
    unevenness,
)
from polyhead.layers.transformer_stack import StackConfig
from polyhead.metrics.expert_usage import (
    add_amounts,
    describe_usage,
    usage_amounts,
    usage_metrics,
    usage_shares,
)
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.tasks.losses import BalancedLoss, NextTokenLoss
from polyhead.training.config import read_run
from polyhead.training.trainer import train

TINY = (
    "model.d_model=16", "model.d_ff=16", "text.vocab=900", "train.steps=8", "train.max_tokens=400",
    "train.validate_every=4", "train.save_every=4", "train.log_every=2", "train.bleu_sentences=4",
    "train.schedule.warmup=4", "data.hold_out=20",
)  # fmt: skip
STACK = StackConfig(
    n_layers=2, d_model=16, n_heads=2, d_ff=24, dropout=0.0, norm="pre",
    experts=ExpertsConfig(n=4, k=2, importance=0.3, load=0.7),
)  # fmt: skip


def make():
    torch.manual_seed(0)
    return GPT(GPTConfig(11, 12, stack=STACK)).train()


def losses(model):
    """Return the loss of one batch without and with balancing, with the same random numbers."""
    ids = torch.randint(1, 11, (3, 8))
    batch, found = LanguageBatch(ids[:, :-1], ids[:, 1:]), []
    for objective in (NextTokenLoss(), BalancedLoss(NextTokenLoss())):
        torch.manual_seed(1)
        found.append(objective(model, batch))
    return found


def test_the_balancing_losses_of_all_layers_are_added_to_the_mean_loss():
    model, routings = make(), []
    for block in model.stack.blocks:
        block.feed_forward.gate.register_forward_hook(lambda _, __, r: routings.append(r))
    alone, both = losses(model)
    extra = sum(0.3 * unevenness(r.importance) + 0.7 * unevenness(r.load) for r in routings[:2])
    assert extra > 0
    assert both.count == alone.count == 21
    torch.testing.assert_close(both.total / both.count, alone.total / alone.count + extra)


def test_passes_without_gradients_are_not_balanced():
    with torch.no_grad():
        alone, both = losses(make())
    assert torch.equal(both.total, alone.total)


def test_expert_usage_is_reported_as_shares_of_each_layer():
    gate = Gate(4, ExpertsConfig(n=4))
    usages = {
        f"{name}.gate": ExpertUsage(gate, torch.tensor(importance), torch.tensor(load))
        for name, importance, load in (
            ("encoder", [2.0, 1, 1, 0], [3.0, 3, 2, 0]), ("decoder", [1.0] * 4, [5.0, 1, 1, 1]),
        )
    }  # fmt: skip
    amounts = usage_amounts(usages)
    assert describe_usage(amounts) == "experts used 7/8, most 62 %"
    assert usage_metrics(amounts) == {"experts_used": 7 / 8, "experts_most": 5 / 8}
    assert usage_shares(amounts)["encoder"] == {
        "importance": [0.5, 0.25, 0.25, 0.0], "load": [0.375, 0.375, 0.25, 0.0],
    }  # fmt: skip
    summed = add_amounts([amounts, {}, amounts])  # of three processes, one without batches
    assert summed["encoder.gate"]["load"] == [6.0, 6.0, 4.0, 0.0]
    assert usage_shares(summed) == usage_shares(amounts)


@pytest.mark.parametrize(
    ("recipe", "overrides", "layers"),
    [("multi30k-de-en-moe", TINY, 2), ("small-moe", SMALL, 4)],
)
def test_a_run_reports_expert_usage_at_each_validation_and_can_be_used(
    recipe, overrides, layers, tmp_path
):
    files, recorder = write_corpus(tmp_path), Recorder()
    result = train(read_run(recipe, overrides, files), tmp_path / "run", callbacks=[recorder])
    assert 0 < result.metrics["experts_used"] <= 1
    assert 1 / 8 <= result.metrics["experts_most"] <= 1
    assert any("  experts used " in n and f"/{8 * layers}, most " in n for n in recorder.notices)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [entry for entry in map(json.loads, lines) if entry["kind"] == "experts"]
    assert len(entries) == 2
    reported = [value for value in entries[-1].values() if isinstance(value, dict)]
    assert len(reported) == layers
    for layer in reported:
        for shares in (layer["importance"], layer["load"]):
            assert len(shares) == 8
            assert sum(shares) == pytest.approx(1, abs=0.01)
    assert isinstance(polyhead.load(tmp_path / "run").translate(["내일 만나요."])[0], str)


def test_models_with_experts_cannot_be_compiled(tmp_path):
    run = read_run("small-moe", (*SMALL, "train.compile=true"), write_corpus(tmp_path))
    with pytest.raises(ConfigError, match="compile"):
        train(run, tmp_path / "run")
