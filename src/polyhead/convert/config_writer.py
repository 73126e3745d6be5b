"""Export of our models: config.json and weights in the format of transformers or timm.

A model that the foreign architecture cannot compute is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from polyhead.convert import gpt2 as gpt
from polyhead.convert import hf_bert as bert
from polyhead.convert import hf_electra as electra
from polyhead.convert import hf_vit as vit
from polyhead.convert import marian
from polyhead.convert import special_ids as ids
from polyhead.convert.pixels import MEAN, STD
from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.timm_vit import TIMM, config_to_timm
from polyhead.convert.weight_names import Weights
from polyhead.errors import CheckpointError

OURS = SpecialIds(pad=0, bos=1, eos=2, unk=3)  # ids of a model that was not imported
ELECTRA_PARTS = ("generator", "discriminator")


@dataclass(frozen=True)
class ExportedModel:
    """A directory to write; `name` is its subdirectory, empty if there is only one."""

    name: str
    architecture: str
    values: dict[str, Any]
    weights: Weights
    generation: dict[str, Any] | None = None  # how it decodes, if it does
    pixels: dict[str, Any] | None = None  # how an image becomes its input, if it reads images


def export_folders(
    family: str,
    config: Any,
    weights: Mapping[str, Tensor],
    specials: SpecialIds | None,
    classes: Sequence[str] = (),
) -> list[ExportedModel]:
    """Return the directories to write; `specials` undoes the renumbering of an import."""
    if family not in WRITERS:
        raise CheckpointError(
            f"a model of the family {family} has no counterpart in transformers; there is one for "
            f"{', '.join(WRITERS)}",
            "not_exportable",
        )
    theirs = ids.with_their_ids(family, config, specials)
    if specials is not None:
        weights = ids.restored(family, weights, specials)
    folders = WRITERS[family](theirs, weights, OURS if specials is None else specials)
    if classes:
        folders = [replace(f, values=f.values | labels(classes)) for f in folders]
    return folders


def export_timm_folders(
    family: str, config: Any, weights: Mapping[str, Tensor], classes: Sequence[str] = ()
) -> list[ExportedModel]:
    """Return the directory of a Vision Transformer for timm."""
    if family != "vit":
        raise CheckpointError(
            f"a model of the family {family} has no counterpart in timm; there is one for vit",
            "not_exportable",
        )
    values = config_to_timm(config)
    if classes:
        values["label_names"] = list(classes)
    return [ExportedModel("", TIMM, values, vit.to_timm(weights))]


def with_pixels(folder: ExportedModel, config: Any) -> ExportedModel:
    """Add the scale of pixels: in config.json for timm, in a file of its own for transformers."""
    mean, std = [MEAN] * config.channels, [STD] * config.channels
    if folder.architecture != TIMM:
        return replace(folder, pixels=vit.pixels_to_hf(config, mean, std))
    scaled = folder.values["pretrained_cfg"] | {"mean": mean, "std": std}
    return replace(folder, values=folder.values | {"pretrained_cfg": scaled})


def labels(classes: Sequence[str]) -> dict[str, Any]:
    """Return the names of classes as in a config.json."""
    return {
        "id2label": {str(i): name for i, name in enumerate(classes)},
        "label2id": {name: i for i, name in enumerate(classes)},
    }


def _written(values: dict[str, Any], weights: Weights, name: str = "") -> ExportedModel:
    values = values | {"dtype": "float32"}
    return ExportedModel(name, values["architectures"][0], values, weights)


def _gpt(config: Any, weights: Mapping[str, Tensor], specials: SpecialIds) -> list[ExportedModel]:
    ends = {"bos_token_id": specials.eos, "eos_token_id": specials.eos}
    exported = _written(gpt.config_to_hf(config) | ends, gpt.to_hf(weights))
    return [replace(exported, generation=ends)]


def _bert(config: Any, weights: Mapping[str, Tensor], _: SpecialIds) -> list[ExportedModel]:
    if config.embedding_width != config.stack.d_model:
        values = electra.half_to_hf(config, "ElectraForMaskedLM")
        return [_written(values, electra.generator_to_hf(weights))]
    return [_written(bert.config_to_hf(config), bert.to_hf(weights))]


def _classifier(config: Any, weights: Mapping[str, Tensor], _: SpecialIds) -> list[ExportedModel]:
    if config.pooling != "first":
        raise CheckpointError(
            f'pooling = "{config.pooling}": their classifiers read their result from the first '
            "token, so this one cannot be written as theirs",
            "not_exportable",
        )
    encoder, names = config.encoder, labels([f"LABEL_{i}" for i in range(config.classes)])
    names["classifier_dropout"] = config.dropout
    if config.head == "electra":
        values = electra.half_to_hf(encoder, "ElectraForSequenceClassification")
        return [_written(values | names, electra.classifier_to_hf(weights))]
    values = bert.config_to_hf(encoder, "BertForSequenceClassification")
    return [_written(values | names, bert.classifier_to_hf(weights))]


def _electra(config: Any, weights: Mapping[str, Tensor], _: SpecialIds) -> list[ExportedModel]:
    values, states = electra.config_to_hf(config), electra.to_hf(weights, config)
    return [_written(*folder) for folder in zip(values, states, ELECTRA_PARTS, strict=True)]


def _vit(config: Any, weights: Mapping[str, Tensor], _: SpecialIds) -> list[ExportedModel]:
    return [_written(vit.config_to_hf(config), vit.to_hf(weights))]


def _marian(
    config: Any, weights: Mapping[str, Tensor], specials: SpecialIds
) -> list[ExportedModel]:
    ends = {
        "decoder_start_token_id": specials.bos,
        "eos_token_id": specials.eos,
        "pad_token_id": specials.pad,
        "bos_token_id": None,
        "forced_eos_token_id": None,
    }
    exported = _written(marian.config_to_hf(config) | ends, marian.to_hf(weights, config))
    never = {"bad_words_ids": [[id] for id in sorted({specials.pad, specials.bos})]}
    return [replace(exported, generation=ends | never)]


WRITERS = {
    "transformer": _marian,
    "gpt": _gpt,
    "bert": _bert,
    "classifier": _classifier,
    "electra": _electra,
    "vit": _vit,
}
