"""ELECTRA in Hugging Face's names and back: two models there, the halves of one here.

    ElectraForMaskedLM       the generator, which is a `BERT` with a narrow embedding
    ElectraForPreTraining    the discriminator with its head for replaced tokens

Where both are one checkpoint, the generator's names have a prefix (`reader.GENERATOR`). The
discriminator alone is the encoder of a `Classifier`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from polyhead.convert import hf_bert as bert
from polyhead.convert.hf_bert import BUFFERS, Requirements, encoder_names
from polyhead.convert.reader import GENERATOR
from polyhead.convert.weight_names import (
    TABLES,
    Weights,
    WeightTable,
    require,
    whole,
)
from polyhead.errors import CheckpointError
from polyhead.models.bert import BERTConfig
from polyhead.models.electra import ElectraConfig

NAMES = TABLES["electra"]
MASKED_LM = WeightTable(
    encoder_names("encoder", "electra") | NAMES["masked_lm"],
    ignored=BUFFERS,
    tied="generator_lm_head.weight",
)
DISCRIMINATOR = WeightTable(
    encoder_names("discriminator", "electra") | NAMES["discriminator"], ignored=BUFFERS
)
CLASSIFIER = WeightTable(
    encoder_names("encoder", "electra") | NAMES["classifier"],
    prefix="electra.",
    ignored=(*BUFFERS, "discriminator_predictions."),
)
ENCODER = WeightTable(
    encoder_names("encoder", "electra"), prefix="electra.",
    ignored=(*BUFFERS, "discriminator_predictions."),
)  # fmt: skip
HEAD = "the generator's head has a GELU there, and the activation of its layers here"
SHARED = {"none": (), "embeddings": ("embed.",), "all": ("",)}  # by both encoders


def from_hf(state: Mapping[str, Tensor], config: ElectraConfig) -> Weights:
    """Return the weights of both halves as those of `Electra`; shared ones are the generator's."""
    generator, discriminator = split(state, GENERATOR)
    first = MASKED_LM.to_ours(generator, tie=config.generator.tie)
    second = DISCRIMINATOR.to_ours(discriminator)
    shared = tuple(f"discriminator.{part}" for part in SHARED[config.sharing])
    own = {name: tensor for name, tensor in second.items() if not name.startswith(shared)}
    return {f"generator.{name}": tensor for name, tensor in first.items()} | own


def to_hf(weights: Mapping[str, Tensor], config: ElectraConfig) -> Weights:
    """Return the weights of `Electra` as those of both halves."""
    first, second = split(weights, "generator.")
    shared = tuple(f"encoder.{part}" for part in SHARED[config.sharing])
    for name, tensor in first.items():
        if name.startswith(shared):
            second["discriminator." + name.removeprefix("encoder.")] = tensor
    generator = MASKED_LM.to_theirs(first)
    both = {f"{GENERATOR}{name}": tensor for name, tensor in generator.items()}
    return both | DISCRIMINATOR.to_theirs(second)


def split(state: Mapping[str, Tensor], prefix: str) -> tuple[Weights, Weights]:
    """Return the tensors whose names have a prefix, without it, and the others."""
    marked = {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}
    return marked, {n: t for n, t in state.items() if not n.startswith(prefix)}


def half_from_hf(values: Mapping[str, Any]) -> BERTConfig:
    """Return the configuration of one half from the contents of its config.json."""
    values = {**NAMES["defaults"], **values}
    return replace(bert.config_from_hf(values), d_embed=whole(values, "embedding_size"))


def half_to_hf(config: BERTConfig, others: Requirements | None = None) -> dict[str, Any]:
    """Return the contents of a config.json for one half."""
    return {"embedding_size": config.embedding_width, **bert.encoder_to_hf(config, others or {})}


def generator_from_hf(values: Mapping[str, Any]) -> BERTConfig:
    """Return the configuration of a generator, whose head has a GELU whatever hidden_act is."""
    config = half_from_hf(values)
    require(values, {"hidden_act": ("gelu", HEAD)})
    return config


def generator_to_hf(config: BERTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for a generator."""
    return half_to_hf(config, {"activation": (config.stack.activation, "gelu")})


def config_from_hf(values: Mapping[str, Any]) -> ElectraConfig:
    """Return the configuration of both halves, which share nothing until `with_sharing`."""
    first, second = generator_from_hf(values["generator"]), half_from_hf(values)
    fields = {name: value for name, value in vars(second).items() if name != "tie"}
    size = first.stack.d_model / second.stack.d_model
    config = ElectraConfig(**fields, sharing="none", generator_size=size)
    if config.generator != first:
        raise CheckpointError(
            f"this generator ({first.stack}) is not the discriminator made narrower "
            f"({config.generator.stack}); import the two halves as separate models",
            "mismatched_halves",
        )
    return config


def with_sharing(config: ElectraConfig, state: Mapping[str, Tensor]) -> ElectraConfig:
    """Let the halves share their embeddings if these are equal in both."""
    generator, discriminator = split(state, GENERATOR)
    names = [name for name in generator if name.startswith("electra.embeddings.")]
    equal = all(
        name in discriminator and torch.equal(generator[name], discriminator[name])
        for name in names
        if not name.endswith(BUFFERS)
    )
    return replace(config, sharing="embeddings") if equal else config


def config_to_hf(config: ElectraConfig) -> dict[str, Any]:
    """Return the contents of the discriminator's config.json, and under `generator` the other's."""
    return half_to_hf(config.discriminator) | {"generator": generator_to_hf(config.generator)}
