"""Cost of a model part by part: parameters, FLOPs and memory of one training batch.

Parameters are counted on the model itself, built without memory. FLOPs and memory follow from
formulas, one function for each model class of `FORMULAS`; any other class is measured
(`cost.counter`). Positions that are not predicted cost nothing in a head, nor in the last
feed-forward network before it: BERT and ELECTRA's generator predict the masked tokens, a classifier
one label for each text or image.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from polyhead.cost.formulas import (
    FLOAT,
    INTEGER,
    Cost,
    Shape,
    activation,
    cache_bytes,
    dropout,
    embedding,
    layer_norm,
    linear,
    memory_projection,
    output_layer,
    product,
    reversible_cost,
    stack_cost,
)
from polyhead.errors import ConfigError
from polyhead.layers.cross_entropy import CHUNK
from polyhead.models.bert import BERT, BERTConfig
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.reformer import Reformer
from polyhead.models.registry import FAMILIES, TaskName, plugin_parts
from polyhead.models.sentence_encoder import SentenceEncoder, SentenceEncoderConfig
from polyhead.models.span_extractor import SpanModel
from polyhead.models.tagging_model import TaggerConfig, TaggingModel
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig

MASKED_SHARE = 0.15  # of the tokens, in BERT's paper and ELECTRA's
ONE_LAYER = {"encoder.stack": "encoder", "encoder": "embeddings", "to_logits": "head"}
PARTS: dict[TaskName, dict[str, str]] = {  # module paths, and the part that they belong to
    "translation": {
        "embed_source": "embeddings", "embed_target": "embeddings", "to_logits": "output",
    },
    "language_modeling": {"embed": "embeddings", "to_logits": "output"},
    "masked_lm": {
        "encoder.stack": "encoder", "encoder": "embeddings", "transform": "head",
        "to_logits": "output",
    },
    "replaced_token": {
        "generator.encoder.embed": "embeddings", "generator.to_logits": "output",
        "spot": "spotting",
    },
    "text_classification": {
        "encoder.stack": "encoder", "encoder": "embeddings", "pool": "head", "to_logits": "head",
    },
    "token_classification": ONE_LAYER,
    "question_answering": ONE_LAYER,
    "sentence_embedding": {"encoder.stack": "encoder", "encoder": "embeddings"},
    "image_classification": {
        "embed": "patches", "class_token": "patches", "positions": "patches",
        "to_logits": "output",
    },
}  # fmt: skip


@dataclass(frozen=True)
class CostBreakdown:
    """FLOPs and memory of each part, in the order of the model's figure."""

    shape: Shape
    parts: dict[str, Cost]
    vocab: int = 0  # size of an output layer that is fused with its loss
    predictions: int | None = None  # number of positions that are predicted, all unless given
    source_flops: int = 0  # of training: the encoder, and the decoder's keys and values of it

    @property
    def total(self) -> Cost:
        """All parts together."""
        return sum(self.parts.values(), start=Cost())

    @property
    def per_token(self) -> tuple[float, float]:
        """Training FLOPs caused by one source token and by one target token."""
        source = self.source_flops / max(1, self.shape.source_positions)
        return source, (self.total.training - self.source_flops) / self.shape.positions


@dataclass(frozen=True)
class StepMemory:
    """Bytes of one training step with Adam in float32; None where unknown."""

    parameters: int
    gradients: int
    moments: int  # Adam's two averages
    activations: int | None  # saved for backward
    logits: int  # the chunk of them that exists at any time

    @property
    def total(self) -> int | None:
        """Sum of all; short-lived tensors are not included."""
        if self.activations is None:
            return None
        return self.parameters + self.gradients + self.moments + self.activations + self.logits


def step_memory(n_parameters: int, saved: int | None, vocab: int, predictions: int) -> StepMemory:
    """Return the memory of a step whose loss computes its logits a chunk at a time.

    A vocab of 0 stands for a loss of another kind, whose memory is part of `saved`.
    """
    rows = min(predictions, max(1, CHUNK // vocab)) if vocab else 0
    weights = FLOAT * n_parameters
    return StepMemory(weights, weights, 2 * weights, saved, FLOAT * rows * vocab)


def cost_of(
    family: str, config: Any, shape: Shape, *, masked_share: float = MASKED_SHARE
) -> CostBreakdown:
    """Return the cost of one training batch by formulas.

    masked_share: share of the tokens that are predicted, for models that predict masked tokens.
    Raises ConfigError (`no_formula`) for a model class, or a kind of attention, without a formula.
    """
    formula = FORMULAS.get(FAMILIES[family].model)
    if formula is None or plugin_parts(family, config):
        raise ConfigError(f"no cost formula for this {family}", "no_formula")
    return formula(config, shape, masked_share)


def count_parameters(family: str, config: Any, *, by_part: bool = False) -> dict[str, int]:
    """Return the parameters of each module of the model, or of each part of the formulas.

    A shared parameter counts where it stands first.
    """
    entry = FAMILIES[family]
    with torch.device("meta"):
        model = entry.model(config)
    parts = PARTS.get(entry.task, {}) if by_part else {}
    counts: dict[str, int] = {}
    for path, parameter in model.named_parameters():
        matching = (part for prefix, part in parts.items() if f"{path}.".startswith(f"{prefix}."))
        part = next(matching, path.partition(".")[0])
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def cache_size(family: str, config: Any, shape: Shape, beam: int) -> int | None:
    """Return the bytes of the decoding cache, or None if there is no formula."""
    formula = FORMULAS.get(FAMILIES[family].model)
    if formula not in (transformer_cost, gpt_cost):
        return None
    n_layers = config.decoder_layers if formula is transformer_cost else None
    return cache_bytes(config.stack, shape, beam=beam, n_layers=n_layers)


def n_masked(shape: Shape, share: float) -> int:
    """Return how many tokens are predicted: a share of all but each text's two ends, at least 1."""
    return max(shape.batch, round(share * shape.batch * max(0, shape.length - 2)))


def transformer_cost(config: TransformerConfig, shape: Shape, _: float = 0) -> CostBreakdown:
    """Cost of Vaswani et al. 2017: two embeddings, two stacks, one output layer."""
    d_model, p = config.stack.d_model, config.stack.dropout
    lookup = embedding(shape.source_positions, d_model, p) + embedding(shape.positions, d_model, p)
    encoder = stack_cost(config.encoder_stack, Shape(shape.batch, shape.source))
    encoder += Cost(saved=FLOAT * shape.source_positions * d_model)  # once for all decoder blocks
    depth = config.stack.n_layers if config.decoder_layers is None else config.decoder_layers
    projections = memory_projection(config.stack, shape.source_positions) * depth
    parts = {
        "embeddings": lookup,
        "encoder": encoder,
        "decoder": stack_cost(config.stack, shape, cross=True, n_layers=depth),
        "output": output_layer(shape.positions, d_model, config.target_vocab),
    }
    source_flops = encoder.training + projections.training
    return CostBreakdown(shape, parts, config.target_vocab, source_flops=source_flops)


def gpt_cost(config: GPTConfig, shape: Shape, _: float = 0) -> CostBreakdown:
    """Cost of GPT-2 and the Reformer: one embedding, one stack, one output layer."""
    d_model = config.stack.d_model
    stack = reversible_cost if config.stack.reversible else stack_cost
    parts = {
        "embeddings": embedding(shape.positions, d_model, config.stack.dropout),
        "stack": stack(config.stack, shape),
        "output": output_layer(shape.positions, d_model, config.vocab),
    }
    return CostBreakdown(shape, parts, config.vocab)


def bert_cost(config: BERTConfig, shape: Shape, share: float = MASKED_SHARE) -> CostBreakdown:
    """Cost of Devlin et al. 2019: head and output layer at the masked positions only."""
    n = n_masked(shape, share)
    parts = {
        "embeddings": _embed(config, shape) + _widen(config, shape),
        "encoder": stack_cost(config.stack, shape, outputs=n),
        "head": _transform(config, n),
        "output": output_layer(n, config.embedding_width, config.vocab),
    }
    return CostBreakdown(shape, parts, config.vocab, n)


def electra_cost(config: ElectraConfig, shape: Shape, share: float = MASKED_SHARE) -> CostBreakdown:
    """Cost of Clark et al. 2020: a small BERT, and an encoder with one logit per position.

    Its loss saves the generator's logits whole.
    """
    small, large = config.generator, config.discriminator
    n, positions, d_model = n_masked(shape, share), shape.positions, config.stack.d_model
    generator = _widen(small, shape) + stack_cost(small.stack, shape, outputs=n)
    generator += Cost(saved=INTEGER * n) + _transform(small, n)  # with the labels
    spotting = linear(positions, d_model, d_model) + linear(positions, d_model, 1)
    parts = {
        "embeddings": _embed(small, shape),
        "generator": generator,
        "output": _classes(n, small.embedding_width, config.vocab),
        "discriminator": _embed(large, shape)
        + _widen(large, shape)
        + stack_cost(large.stack, shape),
        "spotting": spotting + activation(config.stack, positions * d_model),
    }
    return CostBreakdown(shape, parts, predictions=n)


def classifier_cost(config: ClassifierConfig, shape: Shape, _: float = 0) -> CostBreakdown:
    """Cost of an encoder, and two linear layers on one vector of each text."""
    encoder, batch, d_model = config.encoder, shape.batch, config.encoder.stack.d_model
    head = _classes(batch, d_model, config.classes) + linear(batch, d_model, d_model)
    head += Cost(saved=FLOAT * batch * d_model)
    head += dropout(batch * d_model, config.dropout) * (2 if config.head == "electra" else 1)
    if config.pooling == "mean":  # a product with weights that need no gradient
        work = product(batch, shape.length, d_model)
        head += Cost(work, work, FLOAT * shape.positions)
    outputs = batch if config.pooling == "first" else None
    parts = {
        "embeddings": _embed(encoder, shape) + _widen(encoder, shape),
        "encoder": stack_cost(encoder.stack, shape, outputs=outputs),
        "head": head,
    }
    return CostBreakdown(shape, parts, predictions=batch)


def token_head_cost(config: Any, shape: Shape, _: float = 0) -> CostBreakdown:
    """Cost of an encoder, and one linear layer on the vector of each token."""
    encoder, n, d_model = config.encoder, shape.positions, config.encoder.stack.d_model
    tags = isinstance(config, TaggerConfig)
    head = _classes(n, d_model, config.classes if tags else 2)
    parts = {
        "embeddings": _embed(encoder, shape) + _widen(encoder, shape),
        "encoder": stack_cost(encoder.stack, shape),
        "head": head + (dropout(n * d_model, config.dropout) if tags else Cost()),
    }
    return CostBreakdown(shape, parts)


def sentence_cost(config: SentenceEncoderConfig, shape: Shape, _: float = 0) -> CostBreakdown:
    """Cost of an encoder of texts, of which two are a pair; that of their products is left out."""
    encoder = config.encoder
    outputs = shape.batch if config.pooling == "first" else None
    parts = {
        "embeddings": _embed(encoder, shape) + _widen(encoder, shape),
        "encoder": stack_cost(encoder.stack, shape, outputs=outputs),
    }
    return CostBreakdown(shape, parts, predictions=shape.batch)


def vit_cost(config: ViTConfig, shape: Shape, _: float = 0) -> CostBreakdown:
    """Cost of Dosovitskiy et al. 2021: one linear map for all patches, a stack, the classes.

    Pixels need no gradient: backward through the first layer costs as much as forward.
    """
    batch, d_model = shape.batch, config.stack.d_model
    height, width, channels = config.height, config.width, config.channels
    patches = dropout(shape.positions * d_model, config.stack.dropout)
    for number, wider in enumerate(config.stem):
        saved = FLOAT * batch * channels * height * width
        height, width = height // 2, width // 2
        work = product(batch * height * width, 9 * channels, wider)
        patches += Cost(work, 2 * work if number else work, saved)
        patches += layer_norm(batch * height * width, wider)
        channels = wider
    rows, columns = config.grid
    patch_size = (config.patch >> len(config.stem)) ** 2 * channels
    work = product(batch * rows * columns, patch_size, d_model)
    saved = FLOAT * batch * rows * columns * patch_size
    patches += Cost(work, 2 * work if config.stem else work, saved)
    outputs = batch * config.n_extra or None
    parts = {
        "patches": patches,
        "stack": stack_cost(config.stack, shape, outputs=outputs),
        "output": _classes(batch, max(1, config.n_extra) * d_model, config.classes),
    }
    return CostBreakdown(shape, parts, predictions=batch)


def _embed(config: BERTConfig, shape: Shape) -> Cost:
    """Tokens, positions, segments and their norm."""
    d_embed = config.embedding_width
    lookup = embedding(shape.positions, d_embed, config.stack.dropout)
    return lookup + layer_norm(shape.positions, d_embed)


def _widen(config: BERTConfig, shape: Shape) -> Cost:
    """From the width of the embedding to that of the stack, where they differ."""
    d_embed, d_model = config.embedding_width, config.stack.d_model
    return Cost() if d_embed == d_model else linear(shape.positions, d_embed, d_model)


def _transform(config: BERTConfig, n: int) -> Cost:
    """Add up the first half of BERT's head: a linear layer, the activation, a norm."""
    d_embed = config.embedding_width
    first = linear(n, config.stack.d_model, d_embed) + layer_norm(n, d_embed)
    return first + activation(config.stack, n * d_embed)


def _classes(n: int, d_model: int, classes: int) -> Cost:
    """Logits of n inputs, whose loss saves their log-probabilities."""
    return linear(n, d_model, classes) + Cost(saved=FLOAT * n * classes)


FORMULAS: dict[type, Callable[[Any, Shape, float], CostBreakdown]] = {  # a subclass may differ
    Transformer: transformer_cost,
    GPT: gpt_cost,
    Reformer: gpt_cost,
    BERT: bert_cost,
    Electra: electra_cost,
    Classifier: classifier_cost,
    TaggingModel: token_head_cost,
    SpanModel: token_head_cost,
    SentenceEncoder: sentence_cost,
    ViT: vit_cost,
}
