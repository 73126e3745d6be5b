"""Every formula is held to the model that torch has built: its parameters, its FLOPs, its graph."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from polyhead.cost.bills import Bill, step_memory
from polyhead.cost.families import BILLS, bill, gpt_bill, transformer_bill, transformer_cache
from polyhead.cost.measured import kept_bytes, products
from polyhead.cost.stack import Shape, stack_cost
from polyhead.data.batches.translation import TranslationBatch
from polyhead.errors import ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.training.losses import TranslationLoss

STACK = StackConfig(n_layers=2, d_model=32, n_heads=4, d_ff=48)
SMALL = TransformerConfig(61, 61, max_length=40, stack=STACK)
CONFIGS = {
    "post": SMALL,
    "pre": replace(SMALL, stack=replace(STACK, norm="pre")),
    "untied": replace(SMALL, tie="none", source_vocab=47),
    "tied target": replace(SMALL, tie="target", source_vocab=47),
    "shallow decoder": replace(SMALL, decoder_layers=1),
    "deep decoder": replace(SMALL, decoder_layers=3, positions="learned"),
    "gelu": replace(SMALL, stack=replace(STACK, activation="gelu", norm="pre", dropout=0.0)),
    "all dropouts": replace(
        SMALL, stack=replace(STACK, attention_dropout=0.1, activation_dropout=0.1)
    ),
    "gelu and dropouts": replace(
        SMALL,
        stack=replace(STACK, activation="gelu", attention_dropout=0.1, activation_dropout=0.1),
    ),
}
SHAPES = [Shape(3, 7, 11), Shape(1, 20, 5)]

configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def tokens(config, shape):
    torch.manual_seed(0)
    source = torch.randint(4, config.source_vocab, (shape.batch, shape.source))
    target = torch.randint(4, config.target_vocab, (shape.batch, shape.length))
    return TranslationBatch(source, target, target.roll(-1, 1))


@pytest.mark.parametrize(
    "config",
    [*CONFIGS.values(), replace(SMALL, positions="axial"), TransformerConfig()],
    ids=[*CONFIGS, "axial", "the paper's base"],
)
def test_parameters_are_those_of_the_built_model_part_by_part(config):
    with torch.device("meta"):
        model = Transformer(config)
    parts = transformer_bill(config, Shape(1, 1, 1)).parts
    owned = {"embeddings": [model.embed_source, model.embed_target], "encoder": [model.encoder],
             "decoder": [model.decoder], "output": [model.to_logits]}  # fmt: skip
    seen = set()
    for name, modules in owned.items():
        found = {p for module in modules for p in module.parameters()} - seen
        seen |= found
        assert parts[name].parameters == sum(p.numel() for p in found), name
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in seen)


@configs
@shapes
def test_flops_are_those_that_torch_counts(config, shape):
    model, batch = Transformer(config).eval(), tokens(config, shape)

    def learn():
        logits = model(batch.source, batch.target)
        F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten()).backward()

    total = transformer_bill(config, shape).total
    assert products(lambda: model(batch.source, batch.target)) == pytest.approx(total.forward)
    assert products(learn) == pytest.approx(total.training)


@configs
def test_our_own_loss_costs_as_many_flops(config):
    shape = SHAPES[0]
    model, batch = Transformer(config).train(), tokens(config, shape)
    work = products(lambda: TranslationLoss(pad=0, smoothing=0.1)(model, batch).total.backward())
    assert work == pytest.approx(transformer_bill(config, shape).total.training)


def test_flops_of_the_papers_base_model_are_those_that_torch_counts():
    config, shape = TransformerConfig(), Shape(2, 30, 25)
    with torch.device("meta"):
        model, batch = Transformer(config), tokens(config, shape)
        work = products(lambda: model(batch.source, batch.target).sum().backward())
    assert work == pytest.approx(transformer_bill(config, shape).total.training)


@configs
@pytest.mark.parametrize("shape", [Shape(4, 24, 30), Shape(2, 60, 10)], ids=str)
def test_kept_memory_is_what_autograd_keeps(config, shape):
    config = replace(config, max_length=64)
    model, batch = Transformer(config).train(), tokens(config, shape)
    parts = transformer_bill(config, shape).parts
    measured = kept_bytes(lambda: model.hidden(batch.source, batch.target), model.parameters())
    counted = sum(parts[name].kept for name in ("embeddings", "encoder", "decoder"))
    assert counted == pytest.approx(measured, rel=0.01)


@configs
@pytest.mark.parametrize("beam", [1, 3])
def test_the_cache_is_as_large_as_that_of_a_decoding(config, beam):
    shape = Shape(2, 9, 6)
    model = Transformer(config).eval()
    with torch.inference_mode():
        state = model.begin(tokens(config, shape).source, width=beam, max_length=shape.length)
        model.step(torch.ones(shape.batch, beam, dtype=torch.int64), state)
    held = [state.memory.states, state.seen]
    held += [t for block in state.cache for kv in (block.past, block.memory) for t in kv]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    assert transformer_cache(config, shape, beam) == sum(storages.values())


@pytest.mark.parametrize("tie", [True, False])
def test_a_language_model_costs_its_one_stack(tie):
    config = GPTConfig(vocab=61, max_length=40, tie=tie, stack=replace(STACK, norm="pre"))
    model, shape = GPT(config).train(), Shape(3, 30)
    ids = torch.randint(0, 61, (shape.batch, shape.length))
    parts, total = gpt_bill(config, shape).parts, gpt_bill(config, shape).total
    assert total.parameters == sum(p.numel() for p in model.parameters())
    assert products(lambda: model(ids)) == total.forward
    assert products(lambda: model(ids).sum().backward()) == total.training
    kept = kept_bytes(lambda: model.hidden(ids), model.parameters())
    assert parts["embeddings"].kept + parts["stack"].kept == pytest.approx(kept, rel=0.01)


def test_parameters_of_gpt_2_are_those_published():
    assert gpt_bill(GPTConfig(), Shape(1, 1)).total.parameters == 124_439_808  # its checkpoint's


def test_tokens_share_the_whole_training_among_them():
    shape = Shape(3, 7, 11)
    counted = transformer_bill(SMALL, shape)
    source, target = counted.per_token
    together = source * shape.source_positions + target * shape.positions
    assert together == pytest.approx(counted.total.training)
    longer = transformer_bill(SMALL, Shape(3, 7, 12)).per_token
    alone = replace(SMALL, decoder_layers=0)
    assert longer.source > source > transformer_bill(alone, shape).per_token.source


def test_a_step_holds_weights_gradients_and_two_moments():
    counted = transformer_bill(TransformerConfig(), Shape(100, 30, 30))
    memory = step_memory(counted)
    with torch.device("meta"):
        model = Transformer(TransformerConfig())
    weights = sum(p.numel() for p in model.parameters()) * 4
    assert (memory.parameters, memory.gradients, memory.moments) == (weights, weights, 2 * weights)
    assert memory.activations == counted.total.kept
    assert 15e6 < memory.logits <= 2**24  # a chunk of layers.cross_entropy
    assert memory.total == 4 * weights + memory.activations + memory.logits


def test_bill_of_an_unknown_family_says_which_there_are(monkeypatch):
    with pytest.raises(ConfigError, match="no formulas for the family 'lstm'; there are transform"):
        bill("lstm", None, Shape(1, 1))
    monkeypatch.setitem(BILLS, "lstm", lambda _, shape: Bill(shape, {}))
    assert bill("lstm", None, Shape(1, 1)).total.training == 0


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_impossible_shapes_are_refused(numbers):
    with pytest.raises(ConfigError, match="expected positive numbers"):
        Shape(*numbers)


@pytest.mark.parametrize(
    "changes",
    [{"attention": "lsh"}, {"score": "additive"}, {"reversible": True}, {"feed_chunk": 64}],
    ids=str,
)
def test_what_has_no_formula_is_refused(changes):
    stack = replace(StackConfig(), norm="pre", **changes)
    with pytest.raises(ConfigError, match=rf"model\.stack\.{next(iter(changes))} = .*counted"):
        stack_cost(stack, Shape(2, 8))
