"""ELECTRA in Hugging Face's names and back: two models there, the halves of one here.

    ElectraForMaskedLM       the generator, which is a `BERT` with a narrow embedding
    ElectraForPreTraining    the discriminator with the head that spots forgeries

The discriminator alone is the encoder of a `Classifier`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from polyhead.convert import hf_bert as bert
from polyhead.convert.hf_bert import ENCODER, NOT_OURS
from polyhead.convert.weight_names import Weights, renamed, swapped, whole
from polyhead.errors import CheckpointError
from polyhead.models.bert import BERTConfig
from polyhead.models.electra import ElectraConfig

GENERATOR = {f"encoder.{ours}": f"electra.{theirs}" for ours, theirs in ENCODER.items()} | {
    "transform.0": "generator_predictions.dense",
    "transform.2": "generator_predictions.LayerNorm",
    "to_logits": "generator_lm_head",
}
DISCRIMINATOR = {f"discriminator.{ours}": f"electra.{theirs}" for ours, theirs in ENCODER.items()}
SPOT = {
    "spot.0": "discriminator_predictions.dense",
    "spot.2": "discriminator_predictions.dense_prediction",
}
CLASSIFIER = {f"encoder.{ours}": f"electra.{theirs}" for ours, theirs in ENCODER.items()} | {
    "pool.1": "classifier.dense",
    "to_logits": "classifier.out_proj",
}
DEFAULTS = bert.DEFAULTS | {
    "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024,
}  # fmt: skip
EMBEDDINGS = "electra.embeddings."


def generator_from_hf(state: Mapping[str, Tensor], config: BERTConfig) -> Weights:
    """Return the weights of ElectraForMaskedLM as those of a `BERT`."""
    ignored = [*NOT_OURS, "generator_lm_head.weight"] if config.tie else NOT_OURS
    return renamed(state, swapped(GENERATOR), ignored)


def generator_to_hf(weights: Mapping[str, Tensor]) -> Weights:
    """Return the weights of a `BERT` as ElectraForMaskedLM's."""
    return renamed(weights, GENERATOR)


def from_hf(
    generator: Mapping[str, Tensor], discriminator: Mapping[str, Tensor], config: ElectraConfig
) -> Weights:
    """Return the weights of both halves as those of `Electra`; shared ones are the generator's."""
    first = generator_from_hf(generator, config.generator)
    second = renamed(discriminator, swapped(DISCRIMINATOR | SPOT), NOT_OURS)
    shared = {"none": (), "embeddings": ("discriminator.embed.",), "all": ("discriminator.",)}
    own = {n: t for n, t in second.items() if not n.startswith(shared[config.sharing])}
    return {f"generator.{name}": tensor for name, tensor in first.items()} | own


def to_hf(weights: Mapping[str, Tensor], config: ElectraConfig) -> tuple[Weights, Weights]:
    """Return the weights of `Electra` as those of ElectraForMaskedLM and ElectraForPreTraining."""
    mark = "generator."
    first = {n.removeprefix(mark): t for n, t in weights.items() if n.startswith(mark)}
    second = {n: t for n, t in weights.items() if not n.startswith(mark)}
    shared = {"none": (), "embeddings": ("encoder.embed.",), "all": ("encoder.",)}
    for name, tensor in first.items():
        if name.startswith(shared[config.sharing]):
            second["discriminator." + name.removeprefix("encoder.")] = tensor
    return generator_to_hf(first), renamed(second, DISCRIMINATOR | SPOT)


def classifier_from_hf(state: Mapping[str, Tensor]) -> Weights:
    """Return the weights of ElectraForSequenceClassification as those of our classifier."""
    return renamed(state, swapped(CLASSIFIER), NOT_OURS)


def classifier_to_hf(weights: Mapping[str, Tensor]) -> Weights:
    """Return the weights of `Classifier(head="electra")` as ElectraForSequenceClassification's."""
    return renamed(weights, CLASSIFIER)


def half_from_hf(values: Mapping[str, Any]) -> BERTConfig:
    """Return the configuration of one half from the contents of its config.json."""
    values = {**DEFAULTS, **values}
    return replace(bert.config_from_hf(values), d_embed=whole(values, "embedding_size"))


def half_to_hf(config: BERTConfig, architecture: str) -> dict[str, Any]:
    """Return the contents of a config.json for one half."""
    return {
        "model_type": "electra",
        "architectures": [architecture],
        "embedding_size": config.embedding_width,
        **bert.described(config),
    }


def config_from_hf(
    generator: Mapping[str, Any], discriminator: Mapping[str, Any], *, shared: bool
) -> ElectraConfig:
    """Return the configuration of both halves; `shared`: their embeddings are the same."""
    first, second = half_from_hf(generator), half_from_hf(discriminator)
    config = ElectraConfig(
        vocab=second.vocab,
        max_length=second.max_length,
        segments=second.segments,
        pad=second.pad,
        d_embed=second.d_embed,
        sharing="embeddings" if shared else "none",
        generator_size=first.stack.d_model / second.stack.d_model,
        stack=second.stack,
    )
    if config.generator != first:
        raise CheckpointError(
            f"this generator ({first.stack}) is not the discriminator made narrower "
            f"({config.generator.stack}); import the two halves as separate models",
            "unsupported_config",
        )
    return config


def config_to_hf(config: ElectraConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of two files config.json: the generator's and the discriminator's."""
    return (
        half_to_hf(config.generator, "ElectraForMaskedLM"),
        half_to_hf(config.discriminator, "ElectraForPreTraining"),
    )


def embeddings_are_shared(
    generator: Mapping[str, Tensor], discriminator: Mapping[str, Tensor]
) -> bool:
    """Return True if both halves have the same embeddings."""
    names = [name for name in generator if name.startswith(EMBEDDINGS)]
    return all(
        name in discriminator and torch.equal(generator[name], discriminator[name])
        for name in names
        if not name.endswith(NOT_OURS)
    )
