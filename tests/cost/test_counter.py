"""Counts of running code, and the measured cost of models without a formula."""

from dataclasses import dataclass, replace

import pytest
import torch
from expected_errors import raises
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

from polyhead.cost.breakdown import FORMULAS, cost_of, count_parameters
from polyhead.cost.counter import (
    MAX_PARAMETERS,
    count_flops,
    graph_depth,
    is_measurable,
    measure,
    saved_bytes,
)
from polyhead.cost.formulas import FLOAT, Shape
from polyhead.cost.report import cost_report
from polyhead.data.batches.translation import TranslationBatch
from polyhead.errors import ConfigError
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.attention_ladder import LadderConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.electra import ElectraConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.models.vit import ViTConfig
from polyhead.plugins import register_family
from polyhead.tasks.losses import TranslationLoss
from polyhead.training.config import read_run

MEASURED = [
    name
    for name, family in FAMILIES.items()
    if family.model not in FORMULAS and family.task == "translation"
]
SHAPE = Shape(5, 8, 8)
STACK = StackConfig(2, 32, 4, 48, norm="pre")
BATCH, LENGTH, D_IN, D = 3, 5, 8, 6


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_counted_without_building_anything(family):
    config = FAMILIES[family].config()
    with torch.device("meta"):
        model = FAMILIES[family].model(config)
    found = count_parameters(family, config)
    assert sum(found.values()) == sum(p.numel() for p in model.parameters())
    assert all(part in dict(model.named_children()) or part == "class_token" for part in found)


@pytest.mark.parametrize("family", MEASURED)
def test_measured_cost_is_that_of_a_training_batch(family):
    config = FAMILIES[family].config(30, 30)
    found = measure(family, config, SHAPE, masked_share=0.15)
    model = FAMILIES[family].model(config).train()
    words = torch.randint(4, 30, (SHAPE.batch, SHAPE.length))
    batch = TranslationBatch(words.flip(1), words, words)
    assert count_flops(lambda: model(batch.source, batch.target)) == found.forward
    work = count_flops(lambda: TranslationLoss(0)(model, batch).total.backward())
    assert 2.8 * found.forward < work == found.forward + found.backward <= 3 * found.forward
    kept = saved_bytes(lambda: model.hidden(batch.source, batch.target), model.parameters())
    d_out = model.to_logits.weight.shape[1]
    fused = FLOAT * d_out * (SHAPE.positions + 30)  # gradients that the loss has ready
    assert found.saved == pytest.approx(kept + fused, rel=0.05)


@pytest.mark.parametrize(
    ("family", "config", "shape"),
    [
        ("transformer", TransformerConfig(61, 61, stack=STACK), Shape(3, 9, 9)),
        ("gpt", GPTConfig(vocab=61, max_length=40, stack=STACK), Shape(3, 9)),
        ("bert", BERTConfig(vocab=61, max_length=40, stack=STACK), Shape(3, 22)),
        ("electra", ElectraConfig(vocab=61, generator_size=0.5, stack=STACK), Shape(3, 22)),
        ("classifier", ClassifierConfig(encoder=BERTConfig(vocab=61, stack=STACK)), Shape(3, 22)),
        ("vit", ViTConfig(5, 8, 8, 3, 2, stack=STACK), Shape(3, 17)),
        ("vit", ViTConfig(5, 8, 8, 3, 2, stack=STACK, class_tokens=2), Shape(3, 18)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_measuring_and_computing_give_the_same(family, config, shape):
    share = 0.2  # of 20 tokens between two ends: four blanks in every text, whatever the batch
    computed = cost_of(family, config, shape, masked_share=share).total
    found = measure(family, config, shape, masked_share=share)
    assert (found.forward, found.backward) == (computed.forward, computed.backward)
    assert found.saved == pytest.approx(computed.saved, rel=0.03)


def test_a_stack_without_formula_is_measured():
    hashing = replace(STACK, attention="lsh", lsh=LSHConfig(chunk=8, rounds=2))
    config = GPTConfig(vocab=61, max_length=64, stack=hashing)
    with raises(ConfigError, "no_formula", "attention"):
        cost_of("gpt", config, Shape(1, 64))
    found = measure("gpt", config, Shape(2, 64), masked_share=0.15)
    n, d = 2 * 64, 32  # two layers of three d x d matrices and a network, and the output layer
    linear = 2 * n * (2 * (3 * d * d + 2 * d * 48) + 61 * d)
    pairs = 2 * n * 16 * 2 * d  # two layers: both chunks, both rounds, all heads
    hashed = 2 * 2 * n * d * 2 * 8  # 16 buckets: eight directions in either round
    assert found.forward == linear + 4 * pairs + hashed
    assert found.backward == 2 * linear + 10 * pairs  # the weights are computed once more


def test_measuring_changes_no_random_numbers():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    measure("ladder", LadderConfig(30, 30), Shape(1, 4, 4), masked_share=0.15)
    assert torch.equal(torch.rand(3), expected)


def test_a_model_too_large_is_not_built():
    assert is_measurable(10_000_000, Shape(1, 30, 30))
    assert not is_measurable(MAX_PARAMETERS + 1, Shape(1, 1))
    assert not is_measurable(10_000_000, Shape(1, 65_536))


def test_a_sentence_that_is_too_long_is_a_configuration_error():
    config = LadderConfig(30, 30, context="positional", max_length=4)
    with raises(ConfigError, "length_too_long", "length 6"):
        measure("ladder", config, Shape(1, 6, 6), masked_share=0.15)


def cell_flops(n_gates, *, d_in=D_IN, steps=LENGTH):
    """W x and U h at every step: n_gates rows of d_in and of D numbers for each of D gates."""
    return 2 * BATCH * steps * n_gates * D * (d_in + D)


@pytest.mark.parametrize(("kind", "n_gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("two_ways", [False, True])
def test_a_recurrent_layer_costs_its_two_matrices_at_every_step(kind, n_gates, two_ways):
    cells = kind(D_IN, D, batch_first=True, bidirectional=two_ways)
    x = torch.randn(BATCH, LENGTH, D_IN)
    ways = 2 if two_ways else 1
    assert count_flops(lambda: cells(x)) == ways * cell_flops(n_gates)


def test_the_fused_lstm_costs_twice_as_much_backward():
    cells = nn.LSTM(D_IN, D, num_layers=2, batch_first=True)
    x = torch.randn(BATCH, LENGTH, D_IN, requires_grad=True)
    once = cell_flops(4) + cell_flops(4, d_in=D)
    assert count_flops(lambda: cells(x)[0].sum().backward()) == 3 * once


def test_packed_sentences_cost_no_padding():
    cells = nn.LSTM(D_IN, D, batch_first=True)
    packed = pack_padded_sequence(
        torch.randn(BATCH, LENGTH, D_IN), torch.tensor([5, 3, 2]), batch_first=True
    )
    assert count_flops(lambda: cells(packed)) == cell_flops(4) * 10 // (BATCH * LENGTH)


@dataclass(frozen=True)
class ToyConfig(GPTConfig):
    """A configuration of its own."""


class ToyModel(GPT):
    """A GPT with a second linear layer before its output."""

    def __init__(self, config):
        super().__init__(config)
        self.extra = nn.Linear(config.stack.d_model, config.stack.d_model)

    def hidden(self, ids):
        return self.extra(super().hidden(ids))


@pytest.mark.usefixtures("plugins")
def test_a_family_registered_at_run_time_is_measured():
    register_family("toy", config=ToyConfig, task="language_modeling")(ToyModel)
    config = ToyConfig(vocab=61, max_length=40, stack=STACK)
    run = replace(read_run("gpt-tiny"), family="toy", model=config)
    report = cost_report(run, length=9)
    gpt = cost_of("gpt", config, report.shape).total
    work = 2 * report.shape.positions * 32 * 32
    assert report.measured
    assert report.parts["extra"].parameters == 32 * 32 + 32
    assert report.total.forward == gpt.forward + work
    assert report.total.training == gpt.training + 3 * work


def test_the_reported_flops_of_a_run_are_those_of_torchs_counter():
    run = read_run("gpt-tiny", ("train.steps=3", "train.max_tokens=128"))
    report = cost_report(run, length=16)
    model = GPT(run.model).train()
    ids = torch.ones(report.shape.batch, report.shape.length, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids).log_softmax(-1).sum().backward()
    assert not report.measured
    assert report.total.training == counter.get_total_flops()
    assert report.flops == pytest.approx(3 * counter.get_total_flops())


def test_saved_memory_counts_each_tensor_once_and_no_parameter():
    layer, x = nn.Linear(6, 6, bias=False), torch.randn(5, 6)
    assert saved_bytes(lambda: (layer(x) + layer(x)).exp(), layer.parameters()) == 2 * 5 * 6 * 4


def test_depth_of_a_long_chain_is_its_length():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(3000):  # deeper than Python may recurse
        y = y * 2 + x
    assert graph_depth(y) == 2 * 3000 + 1  # and the leaf
