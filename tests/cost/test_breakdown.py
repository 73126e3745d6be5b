"""Costs by formula equal what torch counts when the models are trained."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from expected_errors import raises

from polyhead.cost import formulas
from polyhead.cost.breakdown import (
    FORMULAS,
    MASKED_SHARE,
    cache_size,
    cost_of,
    count_parameters,
    n_masked,
    step_memory,
)
from polyhead.cost.counter import count_flops, saved_bytes
from polyhead.cost.formulas import Shape
from polyhead.data.batches.images import ImageBatch
from polyhead.data.batches.labelled import TextBatch
from polyhead.data.batches.language_model import LanguageBatch
from polyhead.data.batches.masked import MaskedBatch, MaskingConfig, mask_tokens
from polyhead.data.batches.translation import TranslationBatch
from polyhead.errors import ConfigError
from polyhead.layers import local_attention
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import PUBLISHED as BERTS
from polyhead.models.bert import BERTConfig
from polyhead.models.electra import ElectraConfig
from polyhead.models.gpt import GPTConfig
from polyhead.models.reformer import PATTERN, ReformerConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import PUBLISHED as VITS
from polyhead.models.vit import ViTConfig
from polyhead.tasks.losses import (
    BalancedLoss,
    ClassificationLoss,
    MaskedTokenLoss,
    NextTokenLoss,
    ReplacedTokenLoss,
    SoftLabelLoss,
    TranslationLoss,
)

STACK = StackConfig(n_layers=2, d_model=32, n_heads=4, d_ff=48)
GELU = replace(STACK, activation="gelu")
PRE = replace(GELU, norm="pre", dropout=0.0)
DROPOUTS = replace(STACK, attention_dropout=0.1, activation_dropout=0.1)
SMALL = TransformerConfig(61, 61, max_length=64, stack=STACK)
LM = GPTConfig(vocab=61, max_length=64, stack=replace(STACK, norm="pre"))
MASKED = BERTConfig(vocab=61, max_length=64, stack=GELU)
ELECTRA = ElectraConfig(
    vocab=61, max_length=64, d_embed=16, sharing="none", generator_size=0.5, stack=GELU
)
TEXTS = ClassifierConfig(classes=3, encoder=MASKED)
IMAGES = ViTConfig(classes=5, height=12, width=8, channels=3, patch=2, stack=PRE)
REFORMER_STACK = StackConfig(
    4, 32, 4, 48, dropout=0.1, norm="pre", activation="gelu_tanh", attention=PATTERN,
    window=24, lsh=LSHConfig(chunk=16, rounds=2), reversible=True,
)  # fmt: skip
LONG = ReformerConfig(vocab=61, max_length=256, stack=REFORMER_STACK)


def experts(n, k, **options):
    return replace(SMALL, stack=replace(STACK, experts=ExpertsConfig(n=n, k=k, **options)))


def long(**options):
    return replace(LONG, stack=replace(REFORMER_STACK, **options))


CONFIGS = {
    "transformer": {
        "post": SMALL,
        "pre": replace(SMALL, stack=replace(STACK, norm="pre")),
        "untied": replace(SMALL, tie="none", source_vocab=47),
        "tied target": replace(SMALL, tie="target", source_vocab=47),
        "shallow decoder": replace(SMALL, decoder_layers=1),
        "deep decoder": replace(SMALL, decoder_layers=3, positions="learned"),
        "axial": replace(SMALL, positions="axial"),
        "gelu": replace(SMALL, stack=PRE),
        "d_k and d_v": replace(SMALL, stack=replace(STACK, n_heads=3, d_k=6, d_v=14)),
        "all dropouts": replace(SMALL, stack=DROPOUTS),
        "gelu and dropouts": replace(SMALL, stack=replace(DROPOUTS, activation="gelu")),
        "4 of 8 experts": experts(8, 4),
        "1 of 3 experts": experts(3, 1),
        "all experts": experts(3, 3),
        "experts without noise": experts(4, 2, noise=False, load=0.0),
    },
    "gpt": {"tied": LM, "untied": replace(LM, tie=False)},
    "reformer": {
        "as published": LONG,
        "tied and rotary": replace(LONG, tie=True, positions="rotary"),
        "full": long(attention="full"),
        "d_k and d_v": long(d_k=6, d_v=14),
        "hashing only": long(attention="lsh", n_layers=1),
        "many buckets": long(lsh=LSHConfig(16, 3, buckets=256)),
        "wide window": long(window=100, attention_dropout=0.1),
        "chunked network": long(feed_chunk=50),
    },
    "bert": {
        "usual": MASKED,
        "narrow embedding": replace(MASKED, d_embed=16, segments=1),
        "untied": replace(MASKED, tie=False),
        "rotary, pre-norm": replace(MASKED, positions="rotary", stack=PRE),
        "attention dropout": replace(MASKED, stack=replace(GELU, attention_dropout=0.1)),
        "relu": replace(MASKED, stack=STACK),
        "axial": replace(MASKED, positions="axial"),
    },
    "electra": {
        "nothing shared": ELECTRA,
        "embeddings shared": replace(ELECTRA, sharing="embeddings"),
        "as wide as the generator": replace(ELECTRA, sharing="embeddings", d_embed=None),
        "all shared": replace(ELECTRA, sharing="all", generator_size=1.0, d_embed=None),
        "all shared and widened": replace(ELECTRA, sharing="all", generator_size=1.0),
        "relu, pre-norm": replace(ELECTRA, stack=replace(PRE, activation="relu")),
    },
    "classifier": {
        "bert": TEXTS,
        "electra": replace(TEXTS, head="electra"),
        "mean": replace(TEXTS, head="electra", pooling="mean", encoder=replace(MASKED, d_embed=16)),
    },
    "vit": {
        "class token": IMAGES,
        "two class tokens": replace(IMAGES, class_tokens=2),
        "mean": replace(IMAGES, pooling="mean", positions="sinusoidal"),
        "dropout": replace(IMAGES, stack=replace(PRE, dropout=0.1)),
        "stem": replace(IMAGES, patch=4, stem=(6,)),
        "two convolutions": replace(IMAGES, patch=4, stem=(6, 10)),
    },
}
cases = pytest.mark.parametrize(
    ("family", "config"),
    [
        pytest.param(family, config, id=f"{family}, {name}")
        for family, configs in CONFIGS.items()
        for name, config in configs.items()
    ],
)


def ids_of(batch, length):
    torch.manual_seed(0)
    ids = torch.randint(4, 47, (batch, length))
    ids[:, 0], ids[:, -1] = 1, 2
    return ids


def training(family, config, shape):
    """Return a model, its forward pass, its loss, and the parts before a fused loss."""
    model, ids = FAMILIES[family].model(config).train(), ids_of(shape.batch, shape.length)
    forward, before, names = partial(model, ids), None, None
    if family == "transformer":
        batch = TranslationBatch(ids_of(shape.batch, shape.source), ids, ids.roll(-1, 1))
        loss = BalancedLoss(TranslationLoss(pad=0, smoothing=0.1))
        forward, before = (partial(f, batch.source, batch.target) for f in (model, model.hidden))
        names = ("embeddings", "encoder", "decoder")
    elif family in ("gpt", "reformer"):
        batch, loss = LanguageBatch(ids, ids.roll(-1, 1)), NextTokenLoss()
        before, names = partial(model.hidden, ids), ("embeddings", "stack")
    elif family in ("bert", "electra"):
        chosen = torch.zeros(ids.numel(), dtype=torch.bool)
        chosen[torch.randperm(ids.numel())[: n_masked(shape, MASKED_SHARE)]] = True
        batch, loss = MaskedBatch(ids, ids, chosen.view(ids.shape), 1.0), MaskedTokenLoss()
        if family == "electra":
            loss = ReplacedTokenLoss(0)
            forward = partial(loss, model, batch)
        else:
            forward, places = partial(model.fill, ids, batch.chosen), chosen.nonzero()[:, 0]
            before = lambda: model.transform(model.hidden(ids, only=places))  # noqa: E731
            names = ("embeddings", "encoder", "head")
    elif family == "classifier":
        batch, loss = TextBatch(ids, torch.arange(shape.batch) % 3), ClassificationLoss()
    else:
        images = torch.randn(shape.batch, config.channels, config.height, config.width)
        batch, loss = ImageBatch(images, torch.eye(5)[: shape.batch], shape.length), SoftLabelLoss()
        forward = partial(model, images)

    def total():
        return loss(model, batch).total

    return model, forward, total, (before or total, names)


def shape_of(family, config, batch, length, source):
    if family == "vit":
        length = math.prod(config.grid) + (config.pooling == "class") * config.class_tokens
    return Shape(batch, length, source if family == "transformer" else 0)


@cases
@pytest.mark.parametrize("size", [(3, 25, 11), (1, 63, 30)], ids=str)
def test_flops_are_those_that_torch_counts(family, config, size):
    shape = shape_of(family, config, *size)
    _, forward, loss, _ = training(family, config, shape)
    total = cost_of(family, config, shape).total
    assert count_flops(lambda: loss().backward()) == total.training
    assert count_flops(forward) == total.forward


@cases
def test_saved_memory_is_what_autograd_saves(family, config):
    shape = shape_of(family, config, 4, 40, 30)
    model, _, _, (work, names) = training(family, config, shape)
    parts = cost_of(family, config, shape).parts
    saved = sum(part.saved for name, part in parts.items() if names is None or name in names)
    assert saved == pytest.approx(saved_bytes(work, model.parameters()), rel=0.03)


@cases
def test_parameters_are_those_of_the_parts(family, config):
    counts = count_parameters(family, config, by_part=True)
    with torch.device("meta"):
        model = FAMILIES[family].model(config)
    assert sum(counts.values()) == sum(p.numel() for p in model.parameters())
    shape = shape_of(family, config, 1, 8, 8)
    assert set(counts) <= set(cost_of(family, config, shape).parts)


@pytest.mark.parametrize("config", CONFIGS["transformer"].values(), ids=CONFIGS["transformer"])
def test_parameters_of_a_transformer_are_counted_in_their_own_part(config):
    with torch.device("meta"):
        model = Transformer(config)
    counts, seen = count_parameters("transformer", config, by_part=True), set()
    owners = {"embeddings": [model.embed_source, model.embed_target], "encoder": [model.encoder],
              "decoder": [model.decoder], "output": [model.to_logits]}  # fmt: skip
    for name, modules in owners.items():
        own = {p for module in modules for p in module.parameters()} - seen
        seen |= own
        assert counts.get(name, 0) == sum(p.numel() for p in own), name


def test_a_very_long_text_costs_its_spans(monkeypatch):
    monkeypatch.setattr(local_attention, "SPAN", 64)
    monkeypatch.setattr(formulas, "SPAN", 64)
    _, forward, loss, _ = training("reformer", LONG, Shape(1, 200))
    total = cost_of("reformer", LONG, Shape(1, 200)).total
    assert count_flops(forward) == total.forward
    assert count_flops(lambda: loss().backward()) == total.training


@pytest.mark.parametrize(
    ("family", "name", "expected"),
    [
        ("gpt", "gpt2", 124_439_808),  # its checkpoint
        # its checkpoint, without the pooler and with the head for masked tokens
        ("bert", "bert-base", 109_482_240 + 2 * 768 + 30_522),
        ("vit", "vit-b-16", 86_567_656),  # torchvision's table
    ],
)
def test_parameters_of_published_models_are_those_published(family, name, expected):
    config = {**BERTS, **VITS, "gpt2": GPTConfig()}[name]
    assert sum(count_parameters(family, config).values()) == expected


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("config", [SMALL, replace(SMALL, decoder_layers=1), LONG], ids=str)
def test_the_cache_is_as_large_as_that_of_decoding(config, beam):
    family, shape = (
        ("transformer", Shape(2, 9, 6)) if config != LONG else ("reformer", Shape(1, 20))
    )
    model = FAMILIES[family].model(config).eval()
    with torch.inference_mode():
        source = torch.ones(shape.batch, shape.source, dtype=torch.int64)
        state = model.begin(source, width=beam, max_length=shape.length)
        model.step(torch.ones(shape.batch, beam, dtype=torch.int64), state)
    held = [state.seen, *(t for block in state.cache for t in block.past)]
    if state.memory is not None:
        held += [state.memory.states, *(t for block in state.cache for t in block.memory)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    assert cache_size(family, config, shape, beam) == sum(storages.values())


def test_source_and_target_tokens_share_the_whole_training():
    shape = Shape(3, 7, 11)
    cost = cost_of("transformer", SMALL, shape)
    source, target = cost.per_token
    together = source * shape.source_positions + target * shape.positions
    assert together == pytest.approx(cost.total.training)
    longer, _ = cost_of("transformer", SMALL, Shape(3, 7, 12)).per_token
    alone, _ = cost_of("transformer", replace(SMALL, decoder_layers=0), shape).per_token
    assert longer > source > alone


def test_a_step_holds_weights_gradients_and_two_moments():
    memory = step_memory(1000, 50, vocab=37_000, predictions=3000)
    assert (memory.parameters, memory.gradients, memory.moments) == (4000, 4000, 8000)
    assert 15e6 < memory.logits <= 2**24  # a chunk of layers.cross_entropy
    assert memory.total == 16_000 + 50 + memory.logits
    assert step_memory(1000, None, vocab=0, predictions=3).total is None


def test_logits_exist_at_the_masked_positions_only():
    shape = Shape(4, 24)
    assert cost_of("bert", MASKED, shape).predictions == n_masked(shape, MASKED_SHARE)
    assert step_memory(0, 0, MASKED.vocab, 9).logits == 4 * 9 * MASKED.vocab
    assert cost_of("electra", ELECTRA, shape).vocab == 0  # its loss saves them all


def test_as_many_tokens_are_predicted_as_masking_chooses():
    shape = Shape(4000, 30)
    ids = torch.full((shape.batch, shape.length), 7)
    ids[:, 0], ids[:, -1] = 1, 2
    for share in (0.15, 0.3):
        _, _, chosen = mask_tokens(
            ids, MaskingConfig(share), torch.Generator().manual_seed(0), mask=8, vocab=9
        )
        assert n_masked(shape, share) == pytest.approx(int(chosen.sum()), rel=0.03)
    assert n_masked(Shape(5, 3), 0.15) == 5  # one in every text at least


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_impossible_shapes_are_refused(numbers):
    with raises(ConfigError, "out_of_range"):
        Shape(*numbers)


@pytest.mark.parametrize(
    "options",
    [{"attention": "lsh"}, {"score": "additive"}, {"feed_chunk": 64},
     {"reversible": True, "score": "additive"}],
    ids=str,
)  # fmt: skip
def test_a_stack_without_formula_is_refused(options):
    stack = replace(LM.stack, **options)
    with raises(ConfigError, "no_formula"):
        cost_of("gpt", replace(LM, stack=stack), Shape(2, 8))


def test_a_family_without_formula_is_refused():
    config = FAMILIES["gnmt"].config()
    assert FAMILIES["gnmt"].model not in FORMULAS
    with raises(ConfigError, "no_formula", "gnmt"):
        cost_of("gnmt", config, Shape(1, 1, 1))
    assert cache_size("gnmt", config, Shape(1, 8, 8), 1) is None
    assert cache_size("bert", MASKED, Shape(1, 8), 1) is None
