"""What is measured on one sentence is what a whole batch of real training takes."""

from dataclasses import replace

import pytest
import torch

from polyhead.cost.bills import Bill
from polyhead.cost.counter import MOST_PARAMETERS, can_be_tried, count_parameters, measure
from polyhead.cost.families import BILLS, BLANKED, TWO_SIDED, bill
from polyhead.cost.measured import kept_bytes, products
from polyhead.cost.parts import FLOAT
from polyhead.cost.stack import Shape
from polyhead.data.batches.translation import TranslationBatch
from polyhead.errors import ConfigError
from polyhead.layers.attention_factory import LSHConfig
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.layers.lsh.hashing import factors
from polyhead.layers.masks import CAUSAL
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.attention_ladder import LadderConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.electra import ElectraConfig
from polyhead.models.gpt import GPTConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.models.vit import ViTConfig
from polyhead.training.losses import TranslationLoss

TRANSLATORS = [name for name in TWO_SIDED if name not in BILLS]
SHAPE = Shape(5, 8, 8)
STACK = StackConfig(2, 32, 4, 48, norm="pre")


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_counted_without_building_anything(family):
    config = FAMILIES[family].config()
    with torch.device("meta"):
        model = FAMILIES[family].model(config)
    found = count_parameters(family, config)
    assert sum(found.values()) == sum(p.numel() for p in model.parameters())
    assert all(part in dict(model.named_children()) or part == "class_token" for part in found)


@pytest.mark.parametrize("family", TRANSLATORS)
def test_a_batch_costs_its_sentences(family):
    model_of, config_of = FAMILIES[family].model, FAMILIES[family].config
    config = config_of(30, 30)
    found = measure(family, config, SHAPE, blanks=0.15)
    torch.manual_seed(0)
    model = model_of(config).train()
    words = torch.randint(4, 30, (SHAPE.batch, SHAPE.length))
    batch = TranslationBatch(words.flip(1), words, words)
    assert products(lambda: model(batch.source, batch.target)) == found.forward
    work = products(lambda: TranslationLoss(0)(model, batch).total.backward())
    assert work == found.forward + found.backward
    kept = kept_bytes(lambda: model.hidden(batch.source, batch.target), model.parameters())
    d_out = model.to_logits.weight.shape[1]
    fused = FLOAT * d_out * (SHAPE.positions + 30)  # gradients that the loss has ready
    assert found.kept == pytest.approx(kept + fused, rel=0.05)


@pytest.mark.parametrize(
    ("family", "config", "shape"),
    [
        ("transformer", TransformerConfig(61, 61, stack=STACK), Shape(3, 9, 9)),
        ("gpt", GPTConfig(vocab=61, max_length=40, stack=STACK), Shape(3, 9)),
        ("bert", BERTConfig(vocab=61, max_length=40, stack=STACK), Shape(3, 22)),
        ("electra", ElectraConfig(vocab=61, generator_size=0.5, stack=STACK), Shape(3, 22)),
        ("classifier", ClassifierConfig(encoder=BERTConfig(vocab=61, stack=STACK)), Shape(3, 22)),
        ("vit", ViTConfig(5, 8, 8, 3, 2, stack=STACK), Shape(3, 17)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_measuring_what_can_be_computed_gives_the_same(family, config, shape):
    share = 0.2  # of 20 tokens between two ends: four blanks in every text, whatever the batch
    computed = bill(family, config, shape, blanks=share).total
    found = measure(family, config, shape, blanks=share)
    assert (found.forward, found.backward) == (computed.forward, computed.backward)
    assert found.kept == pytest.approx(computed.kept, rel=0.03)


def test_hashing_attention_costs_its_chunks():
    chunk, rounds, heads, length, d_head = 4, 2, 3, 16, 8
    kernel = LSHAttention(chunk, rounds).train()
    q, v = torch.randn(2, 1, heads, length, d_head)
    pairs = heads * length * 2 * chunk * rounds  # own chunk and the one before
    rotated = heads * length * d_head * rounds * sum(factors(2 * length // chunk)) // 2
    assert products(lambda: kernel(q, q, v, CAUSAL)) == 2 * rotated + 2 * 2 * pairs * d_head


def test_what_a_stack_has_no_formula_for_is_measured():
    hashing = replace(STACK, attention="lsh", lsh=LSHConfig(chunk=8, rounds=2))
    config = GPTConfig(vocab=61, max_length=64, stack=hashing)
    with pytest.raises(ConfigError, match="can be counted"):
        bill("gpt", config, Shape(1, 64))
    found = measure("gpt", config, Shape(2, 64), blanks=0.15)
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
    measure("ladder", LadderConfig(30, 30), Shape(1, 4, 4), blanks=0.15)
    assert torch.equal(torch.rand(3), expected)


def test_a_model_too_large_is_not_built():
    assert can_be_tried(10_000_000, Shape(1, 30, 30))
    assert not can_be_tried(MOST_PARAMETERS + 1, Shape(1, 1))
    assert not can_be_tried(10_000_000, Shape(1, 65_536))


def test_a_sentence_that_is_too_long_is_one_line():
    config = LadderConfig(30, 30, context="positional", max_length=4)
    with pytest.raises(ConfigError, match="length 6: this model weighs 4 positions"):
        measure("ladder", config, Shape(1, 6, 6), blanks=0.15)


def test_every_family_is_computed_or_measured():
    assert {*BILLS, *BLANKED} | {*TRANSLATORS} == {*FAMILIES}
    assert isinstance(bill("bert", BERTConfig(), Shape(1, 8)), Bill)
