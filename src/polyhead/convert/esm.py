"""Pre-norm BERTs with rotary positions as ESM, in Hugging Face's names, and back.

ESM-2 is such an encoder. It has no segments: the row of our only segment is added to the
embeddings, which an output layer that was tied to them then keeps without it. Rotations are those
of GPT-NeoX.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyhead.convert.gpt_neox import ROTATED, paired
from polyhead.convert.hf_bert import problem_to_hf
from polyhead.convert.weight_names import (
    TABLES,
    Weights,
    WeightTable,
    known_values,
    n_classes,
    problem_and_classes,
    read_fields,
    reordered,
    require_exportable,
    write_fields,
)
from polyhead.layers.embeddings import frequencies
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.tagging_model import TaggerConfig
from polyhead.models.text_classifier import ClassifierConfig

NAMES = TABLES["esm"]
STACK = {ours: theirs for ours, theirs in TABLES["bert"]["stack"].items() if ours != "activation"}
ENCODER = {
    f"encoder.{ours}": f"esm.{theirs}"
    for ours, theirs in (TABLES["bert"]["encoder"] | NAMES["encoder"]).items()
}
IGNORED = ("position_embeddings", "position_ids", "inv_freq", "contact_head.", "esm.pooler.")
MASKED_LM = WeightTable(
    ENCODER | NAMES["masked_lm"], ignored=IGNORED, tied="lm_head.decoder.weight"
)
CLASSIFIER = WeightTable(ENCODER | NAMES["classifier"], ignored=IGNORED)
TAGGER = WeightTable(ENCODER | {"to_logits": "classifier"}, ignored=IGNORED)
TOKENS, SEGMENTS = "encoder.embed.embed.tokens.weight", "encoder.embed.segments.weight"
OUTPUT = "to_logits.weight"
DECODER = "lm_head.decoder.weight"
FREQUENCIES = "esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq"


def from_hf(
    state: Mapping[str, Tensor], config: BERTConfig, table: WeightTable = MASKED_LM
) -> Weights:
    """Return the weights of EsmForMaskedLM, or of a class with another table, as those of ours."""
    weights = reordered(table.to_ours(state, tie=config.tie), ROTATED, paired(config.stack))
    like = next(iter(weights.values()), torch.empty(0))
    return weights | {SEGMENTS: like.new_zeros(1, config.stack.d_model)}


def to_hf(
    weights: Mapping[str, Tensor], config: BERTConfig, table: WeightTable = MASKED_LM
) -> Weights:
    """Return the weights of our `BERT`, or of a fine-tuned model, as those of ESM's class."""
    ours, stack = dict(weights), config.stack
    segment = ours.pop(SEGMENTS)[0]
    if segment.any():
        if table is MASKED_LM:
            ours.setdefault(OUTPUT, ours[TOKENS])
        ours[TOKENS] = ours[TOKENS] + segment
    ours = reordered(ours, ROTATED, paired(stack).argsort())
    theirs = table.to_theirs(ours)
    theirs["esm.contact_head.regression.weight"] = torch.zeros(1, stack.n_layers * stack.n_heads)
    theirs["esm.contact_head.regression.bias"] = torch.zeros(1)  # nothing uses them here
    for layer in range(stack.n_layers):
        theirs[FREQUENCIES.format(layer)] = frequencies(stack.d_key)
    return theirs


def config_from_hf(values: Mapping[str, Any]) -> BERTConfig:
    """Return our configuration from the contents of their config.json."""
    values = known_values({**NAMES["defaults"], **values}, "esm")
    stack = StackConfig(norm="pre", activation="gelu", **read_fields(values, STACK))
    fields = read_fields(values, NAMES["fields"])
    return BERTConfig(**fields, segments=1, positions="rotary", stack=stack)


def config_to_hf(config: BERTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for an ESM."""
    others: dict[str, tuple[object, object]] = {
        "positions": (config.positions, "rotary"), "segments": (config.segments, 1),
        "activation": (config.stack.activation, "gelu"),
        "d_embed": (config.embedding_width, config.stack.d_model),
    }  # fmt: skip
    require_exportable(config.stack, "pre", others)
    sizes = write_fields(config, NAMES["fields"]) | write_fields(config.stack, STACK)
    return sizes | {name: value for name, (value, _) in NAMES["only"].items()}


def classifier_from_hf(values: Mapping[str, Any]) -> ClassifierConfig:
    """Return our configuration of a classifier, whose head has the dropout of the encoder."""
    encoder = config_from_hf(values)
    problem, n = problem_and_classes(values)
    dropout = encoder.stack.dropout
    return ClassifierConfig(n, dropout=dropout, encoder=encoder, problem=problem)


def classifier_to_hf(config: ClassifierConfig) -> dict[str, Any]:
    """Return the contents of a config.json for EsmForSequenceClassification."""
    head = {"head": (config.head, "bert"), "pooling": (config.pooling, "first")}
    require_exportable(config.encoder.stack, "pre", head)
    return config_to_hf(config.encoder) | problem_to_hf(config)


def tagger_from_hf(values: Mapping[str, Any]) -> TaggerConfig:
    """Return our configuration of a tagger, whose head has the dropout of the encoder."""
    encoder = config_from_hf(values)
    return TaggerConfig(n_classes(values), encoder.stack.dropout, encoder)
