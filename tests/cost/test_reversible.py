"""The bill of a Reformer is held to what torch counts when one learns."""

from dataclasses import replace

import pytest
import torch

from polyhead.cost import reversible
from polyhead.cost.families import gpt_bill, gpt_cache
from polyhead.cost.measured import kept_bytes, products
from polyhead.cost.stack import Shape
from polyhead.data.batches.language_model import LanguageBatch
from polyhead.errors import ConfigError
from polyhead.layers import local_attention as local
from polyhead.layers.attention_factory import LSHConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.reformer import PATTERN, Reformer, ReformerConfig
from polyhead.training.losses import NextTokenLoss

STACK = StackConfig(
    4, 32, 4, 48, dropout=0.1, norm="pre", activation="gelu_tanh", attention=PATTERN,
    window=24, lsh=LSHConfig(chunk=16, rounds=2), reversible=True,
)  # fmt: skip
SMALL = ReformerConfig(vocab=61, max_length=256, stack=STACK)
CONFIGS = {
    "as published": SMALL,
    "tied and rotary": replace(SMALL, tie=True, positions="rotary"),
    "full": replace(SMALL, stack=replace(STACK, attention="full")),
    "hashing only": replace(SMALL, stack=replace(STACK, attention="lsh", n_layers=1)),
    "many buckets": replace(SMALL, stack=replace(STACK, lsh=LSHConfig(16, 3, buckets=256))),
    "wide window": replace(SMALL, stack=replace(STACK, window=100, attention_dropout=0.1)),
    "chunked network": replace(SMALL, stack=replace(STACK, feed_chunk=50)),
}
configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def batch_of(shape):
    torch.manual_seed(0)
    ids = torch.randint(4, 61, (shape.batch, shape.length))
    return LanguageBatch(ids, ids.roll(-1, 1))


@configs
@pytest.mark.parametrize("shape", [Shape(2, 75), Shape(1, 20)], ids=str)
def test_a_reformer_costs_what_torch_counts(config, shape):
    model, batch = Reformer(config).train(), batch_of(shape)
    total = gpt_bill(config, shape).total
    assert total.parameters == sum(p.numel() for p in model.parameters())
    assert products(lambda: model(batch.ids)) == total.forward
    assert products(lambda: NextTokenLoss()(model, batch).total.backward()) == total.training


def test_a_very_long_text_costs_its_spans(monkeypatch):
    monkeypatch.setattr(local, "SPAN", 64)
    monkeypatch.setattr(reversible, "SPAN", 64)
    model, batch = Reformer(SMALL).train(), batch_of(Shape(1, 200))
    total = gpt_bill(SMALL, Shape(1, 200)).total
    assert products(lambda: model(batch.ids)) == total.forward
    assert products(lambda: NextTokenLoss()(model, batch).total.backward()) == total.training


@configs
def test_a_reformer_keeps_what_autograd_keeps(config):
    shape = Shape(2, 128)
    model, batch = Reformer(config).train(), batch_of(shape)
    kept = kept_bytes(lambda: model.hidden(batch.ids), model.parameters())
    parts = gpt_bill(config, shape).parts
    assert parts["embeddings"].kept + parts["stack"].kept == pytest.approx(kept, rel=0.03)


def test_the_cache_is_as_large_as_that_of_writing():
    model, beam, length = Reformer(SMALL).eval(), 3, 20
    with torch.inference_mode():
        state = model.begin(torch.empty(1, 0, dtype=torch.int64), width=beam, max_length=length)
        model.step(torch.ones(1, beam, dtype=torch.int64), state)
    held = [state.seen, *(t for block in state.cache for t in block.past)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    assert gpt_cache(SMALL, Shape(1, length), beam) == sum(storages.values())


def test_other_scores_have_no_formula():
    stack = replace(STACK, attention="full", score="additive")
    with pytest.raises(ConfigError, match="no formulas for other scores"):
        gpt_bill(replace(SMALL, stack=stack), Shape(1, 8))
