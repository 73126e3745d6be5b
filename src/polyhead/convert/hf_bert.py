"""BERT in Hugging Face's names and back: the encoder, and its heads.

ELECTRA's encoder has the same names and configuration (`hf_electra.py`).
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from polyhead.convert.weight_names import (
    PROBLEMS,
    TABLES,
    Weights,
    WeightTable,
    known_values,
    n_classes,
    problem_and_classes,
    read_fields,
    real,
    require_exportable,
    with_new_output,
    write_fields,
)
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.tagging_model import TaggerConfig
from polyhead.models.text_classifier import ClassifierConfig

NAMES = TABLES["bert"]
Requirements = Mapping[str, tuple[object, object]]


def encoder_names(ours: str, theirs: str) -> dict[str, str]:
    """Return the names of an encoder that is this part of our model, and of theirs."""
    return {f"{ours}.{o}": f"{theirs}.{t}" for o, t in NAMES["encoder"].items()}


BUFFERS = ("position_ids", "token_type_ids")  # of old files
MASKED_LM = WeightTable(
    encoder_names("encoder", "bert") | NAMES["masked_lm"],
    ignored=(*BUFFERS, "pooler.dense", "cls.seq_relationship"),
    tied="cls.predictions.decoder.weight",
)
CLASSIFIER = WeightTable(
    encoder_names("encoder", "bert") | NAMES["classifier"], prefix="bert.", ignored=BUFFERS
)
ENCODER = WeightTable(
    encoder_names("encoder", "bert"), prefix="bert.", ignored=(*BUFFERS, "pooler.dense")
)
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"  # one tensor if tied


def from_hf(state: Mapping[str, Tensor], config: BERTConfig) -> Weights:
    """Return the weights of BertForMaskedLM or BertForPreTraining as those of `BERT`."""
    theirs = dict(state)
    if BIAS in theirs:
        theirs.setdefault(DECODER_BIAS, theirs.pop(BIAS))  # of tied models only the first is stored
    return MASKED_LM.to_ours(theirs, tie=config.tie)


def to_hf(weights: Mapping[str, Tensor], config: BERTConfig) -> Weights:
    """Return the weights of `BERT` as BertForMaskedLM's."""
    theirs = MASKED_LM.to_theirs(weights)
    theirs[BIAS] = theirs[DECODER_BIAS].clone()
    if config.tie:
        del theirs[DECODER_BIAS]
    return theirs


def config_from_hf(values: Mapping[str, Any]) -> BERTConfig:
    """Return our configuration from the contents of their config.json."""
    values = known_values(values, "bert")
    stack = StackConfig(norm="post", **read_fields(values, NAMES["stack"]))
    return BERTConfig(**read_fields(values, NAMES["fields"]), stack=stack)


def encoder_to_hf(config: BERTConfig, others: Requirements) -> dict[str, Any]:
    """Return the values of BERT and ELECTRA; `others` is required too: our value and theirs."""
    learned = {"positions": (config.positions, "learned")}
    require_exportable(config.stack, "post", {**others, **learned})
    return write_fields(config, NAMES["fields"]) | write_fields(config.stack, NAMES["stack"])


def config_to_hf(config: BERTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for BERT, whose embedding is as wide as its stack."""
    return encoder_to_hf(config, {"d_embed": (config.embedding_width, config.stack.d_model)})


def classifier_from_hf(
    values: Mapping[str, Any],
    head: Literal["bert", "electra"],
    encoder: BERTConfig,
    *,
    has_labels: bool = True,
) -> ClassifierConfig:
    """Return our configuration of a classifier; an encoder without labels gets two classes."""
    problem, n = problem_and_classes(values) if has_labels else ("single_label", 2)
    dropout = head_dropout(values, encoder)
    return ClassifierConfig(n, head, problem=problem, dropout=dropout, encoder=encoder)


def head_dropout(values: Mapping[str, Any], encoder: BERTConfig) -> float:
    """Return the dropout of a head: that of the encoder unless it has a value of its own."""
    given = values.get("classifier_dropout") is not None
    return real(values, "classifier_dropout") if given else encoder.stack.dropout


def tagger_from_hf(values: Mapping[str, Any], encoder: BERTConfig) -> TaggerConfig:
    """Return our configuration of a tagger."""
    return TaggerConfig(n_classes(values), head_dropout(values, encoder), encoder)


def classifier_to_hf(config: ClassifierConfig, encoder: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a config.json for a classifier whose encoder has these values."""
    stack = config.encoder.stack
    require_exportable(stack, stack.norm, {"pooling": (config.pooling, "first")})
    return encoder | {"classifier_dropout": config.dropout, **problem_to_hf(config)}


def problem_to_hf(config: ClassifierConfig) -> dict[str, Any]:
    """Return the kind of the labels, in the values of a config.json, if it is not the default."""
    if config.problem == "single_label":
        return {}
    return {"problem_type": PROBLEMS[config.problem]}


def with_new_head(weights: Weights, config: ClassifierConfig) -> Weights:
    """Add the layers that an encoder lacks."""
    d_model = config.encoder.stack.d_model
    weights = with_new_output(weights, config.classes, d_model)
    if config.head == "electra":  # BERT's file has this layer
        like = weights["to_logits.weight"]
        weights["pool.1.weight"] = torch.eye(d_model, device=like.device)
        weights["pool.1.bias"] = like.new_zeros(d_model)
    return weights
