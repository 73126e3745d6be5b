"""BERT in Hugging Face's names and back: the encoder, its head for masked tokens, its classifier.

ELECTRA's encoder has the same names and configuration (`hf_electra.py`).
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from polyhead.convert.weight_names import (
    Weights,
    WeightTable,
    n_classes,
    read_fields,
    require,
    require_classic,
    write_fields,
)
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.text_classifier import ClassifierConfig

FIELDS = {
    "vocab": "vocab_size",
    "max_length": "max_position_embeddings",
    "segments": "type_vocab_size",
    "pad": "pad_token_id",
    "tie": "tie_word_embeddings",
}
STACK = {  # ViT's too
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
}
ENCODER = {
    "embed.embed.tokens": "embeddings.word_embeddings",
    "embed.embed.positions.table": "embeddings.position_embeddings",
    "embed.segments": "embeddings.token_type_embeddings",
    "embed.norm": "embeddings.LayerNorm",
    "widen": "embeddings_project",
    "stack.blocks.{}.self_attention.w_q": "encoder.layer.{}.attention.self.query",
    "stack.blocks.{}.self_attention.w_k": "encoder.layer.{}.attention.self.key",
    "stack.blocks.{}.self_attention.w_v": "encoder.layer.{}.attention.self.value",
    "stack.blocks.{}.self_attention.w_o": "encoder.layer.{}.attention.output.dense",
    "stack.blocks.{}.self_residual.norm": "encoder.layer.{}.attention.output.LayerNorm",
    "stack.blocks.{}.feed_forward.w_1": "encoder.layer.{}.intermediate.dense",
    "stack.blocks.{}.feed_forward.w_2": "encoder.layer.{}.output.dense",
    "stack.blocks.{}.feed_residual.norm": "encoder.layer.{}.output.LayerNorm",
}


def encoder_names(ours: str, theirs: str) -> dict[str, str]:
    """Return the names of an encoder that is this part of our model, and of theirs."""
    return {f"{ours}.{o}": f"{theirs}.{t}" for o, t in ENCODER.items()}


BUFFERS = ("position_ids", "token_type_ids")  # of old files
MASKED_LM = WeightTable(
    encoder_names("encoder", "bert")
    | {
        "transform.0": "cls.predictions.transform.dense",
        "transform.2": "cls.predictions.transform.LayerNorm",
        "to_logits": "cls.predictions.decoder",
    },
    ignored=(*BUFFERS, "pooler.dense", "cls.seq_relationship"),
)
CLASSIFIER = WeightTable(
    encoder_names("encoder", "bert") | {"pool.1": "bert.pooler.dense", "to_logits": "classifier"},
    prefix="bert.",
    ignored=BUFFERS,
)
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"  # one tensor if tied
DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "pad_token_id": 0, "tie_word_embeddings": True,
}  # fmt: skip
ONLY = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def from_hf(state: Mapping[str, Tensor], config: BERTConfig) -> Weights:
    """Return the weights of BertForMaskedLM or BertForPreTraining as those of `BERT`."""
    theirs = dict(state)
    if BIAS in theirs:
        theirs.setdefault(DECODER_BIAS, theirs.pop(BIAS))  # of tied models only the first is stored
    return MASKED_LM.to_ours(theirs, ("cls.predictions.decoder.weight",) if config.tie else ())


def to_hf(weights: Mapping[str, Tensor], config: BERTConfig) -> Weights:
    """Return the weights of `BERT` as BertForMaskedLM's."""
    theirs = MASKED_LM.to_theirs(weights)
    theirs[BIAS] = theirs[DECODER_BIAS].clone()
    if config.tie:
        del theirs[DECODER_BIAS]
    return theirs


def config_from_hf(values: Mapping[str, Any]) -> BERTConfig:
    """Return our configuration from the contents of their config.json."""
    require(values, ONLY)
    values = {**DEFAULTS, **values}
    stack = StackConfig(norm="post", **read_fields(values, STACK))
    return BERTConfig(**read_fields(values, FIELDS), stack=stack)


def encoder_to_hf(config: BERTConfig) -> dict[str, Any]:
    """Return the values that the configurations of BERT and ELECTRA have in common."""
    require_classic(config.stack, norm="post", positions="learned", own=config.positions)
    return write_fields(config, FIELDS) | write_fields(config.stack, STACK)


def config_to_hf(config: BERTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for BERT."""
    if config.embedding_width != config.stack.d_model:
        raise CheckpointError(
            f"d_embed = {config.embedding_width}: BERT's embedding is as wide as its stack, "
            f"{config.stack.d_model}. Only ELECTRA's generator has a narrow one.",
            "not_exportable",
        )
    return encoder_to_hf(config)


def classifier_from_hf(
    values: Mapping[str, Any],
    head: Literal["bert", "electra"],
    encoder: BERTConfig,
    *,
    has_labels: bool = True,
) -> ClassifierConfig:
    """Return our configuration of a classifier; an encoder without labels gets two classes."""
    dropout = values.get("classifier_dropout")
    if dropout is None:
        dropout = values.get("hidden_dropout_prob", 0.1)
    return ClassifierConfig(
        n_classes(values) if has_labels else 2,
        head,
        dropout=float(dropout) if isinstance(dropout, int | float) else 0.1,
        encoder=encoder,
    )


def classifier_to_hf(config: ClassifierConfig, encoder: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a config.json for a classifier whose encoder has these values."""
    if config.pooling != "first":
        raise CheckpointError(
            f'pooling = "{config.pooling}": their classifiers read their result from the first '
            "token, so this one cannot be written as theirs",
            "not_exportable",
        )
    return encoder | {"classifier_dropout": config.dropout}


def with_new_head(weights: Weights, config: ClassifierConfig) -> Weights:
    """Add the layers that an encoder lacks; the last one is zero, so that all classes are equal."""
    d_model, like = config.encoder.stack.d_model, next(iter(weights.values()))
    new = {
        "to_logits.weight": like.new_zeros(config.classes, d_model),
        "to_logits.bias": like.new_zeros(config.classes),
    }
    if config.head == "electra":  # BERT's file has this layer
        new["pool.1.weight"] = torch.eye(d_model, device=like.device)
        new["pool.1.bias"] = like.new_zeros(d_model)
    return weights | new
