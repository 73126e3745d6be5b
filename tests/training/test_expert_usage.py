"""Training with experts: what is reported of them, and what cannot be combined with them."""

import json

import pytest
import torch
from tiny import SMALL, write_corpus

import polyhead
from polyhead.convert.weight_names import require_classic
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.mixture_of_experts import ExpertsConfig, ExpertUsage, Gate
from polyhead.layers.transformer_stack import StackConfig
from polyhead.training.config import read_run
from polyhead.training.expert_usage import describe, shares, table
from polyhead.training.run_log import NullReporter
from polyhead.training.trainer import train

TINY = (
    "model.d_model=16", "model.d_ff=16", "text.vocab=900", "train.steps=8", "train.max_tokens=400",
    "train.validate_every=4", "train.save_every=4", "train.log_every=2", "train.bleu_sentences=4",
    "train.schedule.warmup=4", "data.hold_out=20",
)  # fmt: skip


class Listener(NullReporter):
    def __init__(self):
        self.said = []

    def notice(self, what):
        self.said.append(what)


def uses():
    gate = Gate(4, ExpertsConfig(n=4))
    return {
        "encoder.gate": ExpertUsage(
            gate, torch.tensor([2.0, 1.0, 1.0, 0.0]), torch.tensor([3.0, 3, 2, 0])
        ),
        "decoder.gate": ExpertUsage(
            gate, torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([5.0, 1, 1, 1])
        ),
    }


def test_the_use_of_experts_is_told_in_shares_of_each_layer():
    assert describe(uses()) == "experts used 7/8, most 62 %"
    assert shares(uses()) == {"experts_used": 7 / 8, "experts_most": 5 / 8}
    assert table(uses())["encoder"] == {
        "importance": [0.5, 0.25, 0.25, 0.0], "load": [0.375, 0.375, 0.25, 0.0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("recipe", "overrides", "layers"),
    [("multi30k-de-en-moe", TINY, 2), ("small-moe", SMALL, 4)],
)
def test_a_run_reports_its_experts_at_each_validation_and_can_be_used(
    recipe, overrides, layers, tmp_path
):
    files, listener = write_corpus(tmp_path), Listener()
    result = train(read_run(recipe, overrides, files), tmp_path / "run", reporter=listener)
    assert 0 < result.metrics["experts_used"] <= 1
    assert 1 / 8 <= result.metrics["experts_most"] <= 1
    assert any("  experts used " in what and f"/{8 * layers}, most " in what for what in
               listener.said)  # fmt: skip
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [entry for entry in map(json.loads, lines) if entry["kind"] == "experts"]
    assert len(entries) == 2
    reported = [value for value in entries[-1].values() if isinstance(value, dict)]
    assert len(reported) == layers
    for layer in reported:
        for of_all in (layer["importance"], layer["load"]):
            assert len(of_all) == 8
            assert sum(of_all) == pytest.approx(1, abs=0.01)
    assert isinstance(polyhead.load(tmp_path / "run").translate(["내일 만나요."])[0], str)


def test_what_is_decided_anew_for_every_token_cannot_be_compiled(tmp_path):
    run = read_run("small-moe", (*SMALL, "train.compile=true"), write_corpus(tmp_path))
    with pytest.raises(ConfigError, match=r"train\.compile = true: which experts are computed"):
        train(run, tmp_path / "run")


def test_a_model_with_experts_is_not_written_as_one_without():
    stack = StackConfig(experts=ExpertsConfig(n=4))
    with pytest.raises(CheckpointError, match="experts = 4: their model of this family has only 0"):
        require_classic(stack, norm="post", positions="learned", own="learned")
