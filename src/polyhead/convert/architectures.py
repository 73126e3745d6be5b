"""Architectures that can be imported, recognized by their config.json.

    GPT2LMHeadModel, GPT2Model                      → gpt
    BertForMaskedLM, BertForPreTraining             → bert (without the guess about next sentences)
    BertForSequenceClassification, BertModel        → classifier (BertModel: with a new last layer)
    ElectraForMaskedLM                              → bert with a narrow embedding
    ElectraForPreTraining + ElectraForMaskedLM      → electra
    ElectraForSequenceClassification                → classifier
    ElectraForPreTraining alone, ElectraModel       → classifier with a new head
    ViTForImageClassification, timm's vit_…         → vit
    MarianMTModel                                   → transformer

A conversion is tried on shapes first (`check_fits`), so that no memory is taken for a model that
cannot be what its configuration says.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.convert import gpt2 as gpt
from polyhead.convert import hf_bert as bert
from polyhead.convert import hf_electra as electra
from polyhead.convert import hf_vit as vit
from polyhead.convert import marian
from polyhead.convert import special_ids as ids
from polyhead.convert.reader import ForeignCheckpoint
from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.timm_vit import TIMM, config_from_timm, is_timm
from polyhead.convert.weight_names import Weights, n_classes, require_fit
from polyhead.errors import CheckpointError
from polyhead.models.registry import FAMILIES
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import TransformerConfig

MAX_LAYERS = 1000
Convert = Callable[[Mapping[str, Tensor]], Weights]


@dataclass(frozen=True)
class Conversion:
    """Conversion of a foreign model: `convert` turns its tensors into our weights."""

    family: str
    config: Any
    architecture: str
    convert: Convert
    notes: tuple[str, ...] = ()  # parts that were left out or are new
    specials: SpecialIds | None = None

    def weights(self, state: Mapping[str, Tensor]) -> Weights:
        """Return our weights, with our ids."""
        converted = self.convert(state)
        if self.specials is None:
            return converted
        return ids.renumbered(self.family, converted, self.specials)

    def renumbered(self, specials: SpecialIds | None) -> "Conversion":
        """Return this conversion with our special ids."""
        config = ids.with_our_ids(self.family, self.config, specials)
        return replace(self, config=config, specials=specials)


def find_conversion(theirs: ForeignCheckpoint) -> Conversion:
    """Return the conversion for a checkpoint; raises CheckpointError if it is not supported."""
    values = theirs.values
    if is_timm(values):
        return timm_conversion(theirs)
    architecture = _architecture(theirs)
    with _sizes_that_fit():
        return KINDS[architecture](values, architecture)


def timm_conversion(theirs: ForeignCheckpoint) -> Conversion:
    """Return the conversion of a ViT of timm, with or without a config.json."""
    with _sizes_that_fit():
        config = config_from_timm(theirs.values, theirs.shapes)
    heads = config.stack.n_heads
    note = f"nothing says how many heads it has: {heads}, as timm's plain ViT of this width"
    is_named = is_timm(theirs.values) or theirs.values.get("model_args")
    return Conversion("vit", config, TIMM, vit.from_timm, () if is_named else (note,))


def pair(
    discriminator: ForeignCheckpoint, generator: ForeignCheckpoint, *, shared: bool
) -> Conversion:
    """Both halves of ELECTRA; `convert` wants the names of the second with `PREFIX` before them."""
    first, second = _architecture(generator), _architecture(discriminator)
    if (first, second) != ("ElectraForMaskedLM", "ElectraForPreTraining"):
        raise CheckpointError(
            f"{discriminator.path} is a {second} and {generator.path} a {first}; expected "
            "ElectraForPreTraining and, with --generator, ElectraForMaskedLM",
            "unsupported_architecture",
        )
    with _sizes_that_fit():
        config = electra.config_from_hf(generator.values, discriminator.values, shared=shared)

    def convert(state: Mapping[str, Tensor]) -> Weights:
        own, other = split(state)
        return electra.from_hf(other, own, config)

    return Conversion("electra", config, "ElectraForPreTraining", convert)


PREFIX = "generator:"


def joined(discriminator: Weights, generator: Weights) -> Weights:
    """Join the tensors of ELECTRA's two models."""
    return discriminator | {f"{PREFIX}{name}": tensor for name, tensor in generator.items()}


def split(state: Mapping[str, Tensor]) -> tuple[Weights, Weights]:
    """Split tensors that `joined` has joined."""
    own = {name: tensor for name, tensor in state.items() if not name.startswith(PREFIX)}
    other = {n.removeprefix(PREFIX): t for n, t in state.items() if n.startswith(PREFIX)}
    return own, other


def check_fits(chosen: Conversion, shapes: Weights) -> nn.Module:
    """Return our model on the meta device after checking that all shapes fit."""
    layers = [number for name, number in _layers(chosen.config) if "layers" in name]
    if max(layers, default=0) > min(MAX_LAYERS, len(shapes)):
        raise CheckpointError(
            f"config.json: {max(layers)} layers, more than the file holds",
            "unsupported_architecture",
        )
    with _sizes_that_fit(), torch.device("meta"):
        model: nn.Module = FAMILIES[chosen.family].model(chosen.config)
    require_fit(chosen.weights(shapes), model)
    return model


@contextmanager
def _sizes_that_fit() -> Iterator[None]:
    """Turn errors about the sizes of a configuration into CheckpointErrors."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise CheckpointError(f"config.json: {line}", "unsupported_architecture") from None


def _layers(config: Any) -> list[tuple[str, int]]:
    encoder = config.encoder if isinstance(config, ClassifierConfig) else config
    converted = [("n_layers", encoder.stack.n_layers)]
    if isinstance(config, TransformerConfig) and config.decoder_layers is not None:
        converted.append(("decoder_layers", config.decoder_layers))
    return converted


def _architecture(theirs: ForeignCheckpoint) -> str:
    """Return the architecture's name; files without one are recognized by their weights."""
    kind, given = theirs.values.get("model_type"), theirs.values.get("architectures")
    if kind not in GUESSES:
        raise CheckpointError(
            f"{theirs.path}: model_type = {str(kind)[:80]!r} is not supported; there are "
            f"{', '.join(GUESSES)} and timm's vit_…",
            "unsupported_architecture",
        )
    if isinstance(given, list) and given:
        name = str(given[0])
        if name not in KINDS or name not in GUESSES[kind].values():
            known = ", ".join(sorted(set(GUESSES[kind].values())))
            raise CheckpointError(
                f"{theirs.path}: {name[:80]!r} is not supported; of {kind} there are {known}",
                "unsupported_architecture",
            )
        return name
    for mark, name in GUESSES[kind].items():
        if any(tensor.startswith(mark) for tensor in theirs.shapes):
            return name
    raise CheckpointError(
        f"{theirs.path}: config.json does not name its architecture", "unsupported_architecture"
    )


def _gpt(values: Mapping[str, Any], architecture: str) -> Conversion:
    config = gpt.config_from_hf(values)
    return Conversion("gpt", config, architecture, partial(gpt.from_hf, config=config))


def _bert(values: Mapping[str, Any], architecture: str) -> Conversion:
    config = bert.config_from_hf(values)
    notes = ("the next-sentence prediction head is left out",)
    return Conversion(
        "bert", config, architecture, partial(bert.from_hf, config=config),
        notes if architecture == "BertForPreTraining" else (),
    )  # fmt: skip


def _bert_classifier(values: Mapping[str, Any], architecture: str) -> Conversion:
    config = ClassifierConfig(
        n_classes(values), "bert", dropout=_dropout(values), encoder=bert.config_from_hf(values)
    )
    return Conversion("classifier", config, architecture, bert.classifier_from_hf)


def _bert_encoder(values: Mapping[str, Any], architecture: str) -> Conversion:
    config = ClassifierConfig(
        2, "bert", dropout=_dropout(values), encoder=bert.config_from_hf(values)
    )

    def convert(state: Mapping[str, Tensor]) -> Weights:
        converted = {f"encoder.{n}": t for n, t in bert.encoder_from_hf(state).items()}
        converted |= {
            f"pool.1.{n.split('.')[-1]}": t for n, t in bert.pooler_from_hf(state).items()
        }
        return converted | _new_layers(converted, ("to_logits",), config)

    notes = ("its last layer is new (zeros): fine-tune it",)
    return Conversion("classifier", config, architecture, convert, notes)


def _generator(values: Mapping[str, Any], architecture: str) -> Conversion:
    config = electra.half_from_hf(values)
    convert = partial(electra.generator_from_hf, config=config)
    return Conversion("bert", config, architecture, convert)


def _electra_classifier(values: Mapping[str, Any], architecture: str) -> Conversion:
    config = ClassifierConfig(
        n_classes(values), "electra", dropout=_dropout(values), encoder=electra.half_from_hf(values)
    )
    return Conversion("classifier", config, architecture, electra.classifier_from_hf)


def _electra_encoder(values: Mapping[str, Any], architecture: str) -> Conversion:
    config = ClassifierConfig(
        2, "electra", dropout=_dropout(values), encoder=electra.half_from_hf(values)
    )

    def convert(state: Mapping[str, Tensor]) -> Weights:
        theirs = {n: t for n, t in state.items() if not n.startswith("discriminator_predictions.")}
        converted = {f"encoder.{n}": t for n, t in bert.encoder_from_hf(theirs, "electra.").items()}
        return converted | _new_layers(converted, ("pool.1", "to_logits"), config)

    notes = (
        "the discriminator's encoder alone: its head is new, fine-tune it (to keep both halves, "
        "add --generator)",
    )
    return Conversion("classifier", config, architecture, convert, notes)


def _vit(values: Mapping[str, Any], architecture: str) -> Conversion:
    return Conversion("vit", vit.config_from_hf(values), architecture, vit.from_hf)


def _marian(values: Mapping[str, Any], architecture: str) -> Conversion:
    config = marian.config_from_hf(values)
    return Conversion("transformer", config, architecture, partial(marian.from_hf, config=config))


def _new_layers(converted: Weights, names: tuple[str, ...], config: ClassifierConfig) -> Weights:
    """Return layers that a file lacks; the last one is zero, so that all classes are equal."""
    d_model, like = config.encoder.stack.d_model, next(iter(converted.values()))
    new: Weights = {}
    for name in names:
        width = config.classes if name == "to_logits" else d_model
        weight = like.new_zeros(width, d_model)
        if name != "to_logits":
            weight = torch.eye(d_model, device=like.device)
        new |= {f"{name}.weight": weight, f"{name}.bias": like.new_zeros(width)}
    return new


def _dropout(values: Mapping[str, Any]) -> float:
    given = values.get("classifier_dropout")
    given = values.get("hidden_dropout_prob", 0.1) if given is None else given
    return float(given) if isinstance(given, int | float) else 0.1


KINDS: dict[str, Callable[[Mapping[str, Any], str], Conversion]] = {
    "GPT2LMHeadModel": _gpt,
    "GPT2Model": _gpt,
    "BertForMaskedLM": _bert,
    "BertForPreTraining": _bert,
    "BertForSequenceClassification": _bert_classifier,
    "BertModel": _bert_encoder,
    "ElectraForMaskedLM": _generator,
    "ElectraForPreTraining": _electra_encoder,
    "ElectraForSequenceClassification": _electra_classifier,
    "ElectraModel": _electra_encoder,
    "ViTForImageClassification": _vit,
    "MarianMTModel": _marian,
}
GUESSES = {  # by kind: a beginning of a name that only this architecture's files have
    "gpt2": {"transformer.h.": "GPT2LMHeadModel", "h.": "GPT2Model"},
    "bert": {
        "cls.seq_relationship.": "BertForPreTraining",
        "cls.predictions.": "BertForMaskedLM",
        "classifier.": "BertForSequenceClassification",
        "encoder.": "BertModel",
    },
    "electra": {
        "generator_predictions.": "ElectraForMaskedLM",
        "discriminator_predictions.": "ElectraForPreTraining",
        "classifier.out_proj.": "ElectraForSequenceClassification",
        "encoder.": "ElectraModel",
    },
    "vit": {"vit.": "ViTForImageClassification"},
    "marian": {"model.": "MarianMTModel"},
}
