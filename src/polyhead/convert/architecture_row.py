"""A row of the table of foreign architectures, and the rows of heads for single tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from polyhead.convert import special_ids as ids
from polyhead.convert.hf_bert import BUFFERS, encoder_names, tagger_from_hf
from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.weight_names import Weights, WeightTable
from polyhead.decoding.options import DecodeConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.span_extractor import SpanExtractorConfig
from polyhead.tokenizers.huggingface import EngineKind

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Architecture:
    """A foreign architecture and our family; `weights_to` is None if it is only read.

    mark: start of a tensor's name that, of this model_type, only this architecture's files have.
    config_from: our configuration from the contents of config.json (timm: and the shapes).
    prepare: their weights as those of the plain model, from a variant that config.json names.
    weights_from: our weights from these and our configuration.
    config_to, weights_to: the inverse; what theirs cannot express is refused.
    variants: names of values in config.json that `prepare` reads, and functions that check them.
    suits: True for configurations of our family that this row should write.
    special_ids: of the contents of config.json and the tokenizer's files.
    tokenizer: the kind of tokenizer, None if there is none.
    generation, pixels: the contents of further files.
    notes: parts that were left out or are new.
    """

    name: str
    model_type: str
    family: str
    mark: str
    config_from: Callable[..., Any]
    weights_from: Callable[[State, Any], Weights]
    config_to: Callable[[Any], dict[str, Any]]
    weights_to: Callable[[State, Any], Weights] | None = None
    suits: Callable[[Any], bool] = lambda _: True
    special_ids: Callable[[Mapping[str, Any], ids.Files], SpecialIds | None] = ids.bert_ids
    tokenizer: EngineKind | None = "fast"
    generation: Callable[[SpecialIds, Any, DecodeConfig], dict[str, Any]] | None = None
    pixels: Callable[[Any], dict[str, Any]] | None = None
    library: str = "hf"
    notes: tuple[str, ...] = ()
    prepare: Callable[[State, Mapping[str, Any]], Weights] = lambda state, _: dict(state)
    variants: Mapping[str, Callable[[Mapping[str, Any], str], Any]] = field(default_factory=dict)


def token_heads(
    name: str, read: Callable[[Mapping[str, Any]], BERTConfig], write: Callable[[BERTConfig], Any],
    suits: Callable[[Any], bool] = lambda _: True,
) -> tuple[Architecture, Architecture]:  # fmt: skip
    """Return the rows of tags and of spans; read, write: the configuration of the encoder."""
    encoder, ignored = encoder_names("encoder", name.lower()), (*BUFFERS, "pooler.dense")
    tags = WeightTable(encoder | {"to_logits": "classifier"}, ignored=ignored)
    spans = WeightTable(encoder | {"to_logits": "qa_outputs"}, ignored=ignored)
    return Architecture(
        f"{name}ForTokenClassification", name.lower(), "tagger", "classifier.weight",
        lambda values: tagger_from_hf(values, read(values)),
        lambda state, _: tags.to_ours(state),
        lambda config: write(config.encoder) | {"classifier_dropout": config.dropout},
        lambda weights, _: tags.to_theirs(weights),
        suits,
    ), Architecture(
        f"{name}ForQuestionAnswering", name.lower(), "span_extractor", "qa_outputs.",
        lambda values: SpanExtractorConfig(read(values)),
        lambda state, _: spans.to_ours(state),
        lambda config: write(config.encoder),
        lambda weights, _: spans.to_theirs(weights),
        suits,
    )  # fmt: skip
