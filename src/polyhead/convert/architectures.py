"""The table of foreign architectures: how each becomes one of our models, and the inverse.

A row has the names of an architecture and of our family, and functions for its configuration,
weights and special ids. Import finds its row by config.json, or by a name of a tensor (`mark`);
export takes the first row of the model's family that can be written and `suits` its configuration.
ELECTRA is two models there: the halves of one row (`PAIR`).

A conversion is tried on shapes first (`check_fits`), so that no memory is taken for a model that
cannot be what its configuration says.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.convert import gpt2, hf_bert, hf_electra, hf_vit, marian
from polyhead.convert import special_ids as ids
from polyhead.convert.hf_bert import classifier_from_hf, classifier_to_hf, with_new_head
from polyhead.convert.hf_electra import half_from_hf, half_to_hf
from polyhead.convert.pixels import PIXELS
from polyhead.convert.reader import CONFIG, GENERATOR, ForeignCheckpoint
from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.timm_vit import TIMM, config_from_timm, config_to_timm, is_timm
from polyhead.convert.weight_names import Weights, require_fit
from polyhead.errors import CheckpointError
from polyhead.models.registry import FAMILIES
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.tokenizers.huggingface import EngineKind

GENERATION = "generation_config.json"
OURS = SpecialIds(pad=0, bos=1, eos=2, unk=3)  # ids of a model that was not imported
MAX_LAYERS = 1000
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Architecture:
    """A foreign architecture and our family; functions that write are None if it is only read.

    mark: start of a tensor's name that, of this model_type, only this architecture's files have.
    config_from: our configuration from the contents of config.json (timm: and the shapes).
    weights_from: our weights from theirs and our configuration.
    config_to, weights_to: the inverse; what theirs cannot express is refused.
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
    config_to: Callable[[Any], dict[str, Any]] | None = None
    weights_to: Callable[[State, Any], Weights] | None = None
    suits: Callable[[Any], bool] = lambda _: True
    special_ids: Callable[[Mapping[str, Any], ids.Files], SpecialIds | None] = ids.bert_ids
    tokenizer: EngineKind | None = "fast"
    generation: Callable[[SpecialIds], dict[str, Any]] | None = None
    pixels: Callable[[Any], dict[str, Any]] | None = None
    library: str = "hf"
    notes: tuple[str, ...] = ()


GPT2 = Architecture(
    "GPT2LMHeadModel", "gpt2", "gpt", "transformer.h.",
    gpt2.config_from_hf, lambda state, config: gpt2.WEIGHTS.to_ours(state, tie=config.tie),
    gpt2.config_to_hf, lambda weights, _: gpt2.WEIGHTS.to_theirs(weights),
    special_ids=ids.gpt2_ids, generation=gpt2.generation,
)  # fmt: skip
BERT = Architecture(
    "BertForMaskedLM", "bert", "bert", "cls.predictions.",
    hf_bert.config_from_hf, hf_bert.from_hf, hf_bert.config_to_hf, hf_bert.to_hf,
    suits=lambda config: config.embedding_width == config.stack.d_model,
)  # fmt: skip
BERT_CLASSIFIER = Architecture(
    "BertForSequenceClassification", "bert", "classifier", "classifier.",
    lambda values: classifier_from_hf(values, "bert", hf_bert.config_from_hf(values)),
    lambda state, _: hf_bert.CLASSIFIER.to_ours(state),
    lambda config: classifier_to_hf(config, hf_bert.config_to_hf(config.encoder)),
    lambda weights, _: hf_bert.CLASSIFIER.to_theirs(weights),
    suits=lambda config: config.head == "bert",
)  # fmt: skip
BERT_ENCODER = Architecture(
    "BertModel", "bert", "classifier", "encoder.",
    lambda values: classifier_from_hf(
        values, "bert", hf_bert.config_from_hf(values), has_labels=False
    ),
    lambda state, config: with_new_head(hf_bert.CLASSIFIER.to_ours(state), config),
    notes=("its last layer is new (zeros): fine-tune it",),
)  # fmt: skip
ELECTRA_GENERATOR = Architecture(
    "ElectraForMaskedLM", "electra", "bert", "generator_predictions.",
    half_from_hf, lambda state, config: hf_electra.MASKED_LM.to_ours(state, tie=config.tie),
    half_to_hf, lambda weights, _: hf_electra.MASKED_LM.to_theirs(weights),
)  # fmt: skip
ELECTRA_ENCODER = Architecture(
    "ElectraForPreTraining", "electra", "classifier", "discriminator_predictions.",
    lambda values: classifier_from_hf(values, "electra", half_from_hf(values), has_labels=False),
    lambda state, config: with_new_head(hf_electra.CLASSIFIER.to_ours(state), config),
    notes=(
        "the discriminator's encoder alone: its head is new, fine-tune it (to keep both halves, "
        "add --generator)",
    ),
)  # fmt: skip
ELECTRA_CLASSIFIER = Architecture(
    "ElectraForSequenceClassification", "electra", "classifier", "classifier.out_proj.",
    lambda values: classifier_from_hf(values, "electra", half_from_hf(values)),
    lambda state, _: hf_electra.CLASSIFIER.to_ours(state),
    lambda config: classifier_to_hf(config, half_to_hf(config.encoder)),
    lambda weights, _: hf_electra.CLASSIFIER.to_theirs(weights),
)  # fmt: skip
PAIR = Architecture(
    "ElectraForPreTraining", "electra", "electra", GENERATOR,
    hf_electra.config_from_hf, hf_electra.from_hf, hf_electra.config_to_hf, hf_electra.to_hf,
)  # fmt: skip
VIT = Architecture(
    "ViTForImageClassification", "vit", "vit", "vit.",
    hf_vit.config_from_hf, lambda state, _: hf_vit.to_ours(state, hf_vit.HF),
    hf_vit.config_to_hf, lambda weights, _: hf_vit.to_theirs(weights, hf_vit.HF),
    special_ids=lambda *_: None, tokenizer=None, pixels=hf_vit.pixels_to_hf,
)  # fmt: skip
TIMM_VIT = Architecture(
    TIMM, TIMM, "vit", "patch_embed.",
    config_from_timm, lambda state, _: hf_vit.to_ours(state, hf_vit.TIMM),
    config_to_timm, lambda weights, _: hf_vit.to_theirs(weights, hf_vit.TIMM),
    special_ids=lambda *_: None, tokenizer=None, library=TIMM,
)  # fmt: skip
MARIAN = Architecture(
    "MarianMTModel", "marian", "transformer", "model.",
    marian.config_from_hf, marian.from_hf, marian.config_to_hf, marian.to_hf,
    special_ids=ids.marian_ids, tokenizer="marian", generation=marian.generation,
)  # fmt: skip
ARCHITECTURES = (  # of one model_type: the one with the most specific mark first
    GPT2,
    replace(GPT2, name="GPT2Model", mark="h.", config_to=None),
    replace(
        BERT,
        name="BertForPreTraining",
        mark="cls.seq_relationship.",
        config_to=None,
        notes=("the next-sentence prediction head is left out",),
    ),
    BERT,
    BERT_CLASSIFIER,
    BERT_ENCODER,
    ELECTRA_GENERATOR,
    ELECTRA_ENCODER,
    ELECTRA_CLASSIFIER,
    replace(ELECTRA_ENCODER, name="ElectraModel", mark="encoder."),
    PAIR,
    VIT,
    TIMM_VIT,
    MARIAN,
)


@dataclass(frozen=True)
class Conversion:
    """The architecture of a foreign model, our configuration with its ids, and its special ids."""

    architecture: Architecture
    config: Any
    specials: SpecialIds | None = None
    notes: tuple[str, ...] = ()

    @property
    def our_config(self) -> Any:
        """The configuration with our ids."""
        return ids.with_our_ids(self.config, self.specials)

    def weights(self, state: State) -> Weights:
        """Return our weights, with our ids."""
        converted = self.architecture.weights_from(state, self.config)
        if self.specials is None:
            return converted
        return ids.renumbered(self.architecture.family, converted, self.specials)


def find_conversion(theirs: ForeignCheckpoint, *, timm: bool = False) -> Conversion:
    """Return the conversion for a checkpoint; raises CheckpointError if it is not supported.

    timm: the weights are those of timm's ViT, even without a config.json.
    """
    if not timm and not is_timm(theirs.values):
        row = PAIR if "generator" in theirs.values else find_architecture(theirs)
        with _sizes_that_fit():
            return Conversion(row, row.config_from(theirs.values), notes=row.notes)
    with _sizes_that_fit():
        config = config_from_timm(theirs.values, theirs.shapes)
    note = (
        f"nothing says how many heads it has: {config.stack.n_heads}, as timm's plain ViT of this "
        "width"
    )
    is_named = is_timm(theirs.values) or theirs.values.get("model_args")
    return Conversion(TIMM_VIT, config, notes=() if is_named else (note,))


def find_architecture(theirs: ForeignCheckpoint) -> Architecture:
    """Return the row that config.json names; without a name it is found by the weights."""
    kind, given = theirs.values.get("model_type"), theirs.values.get("architectures")
    kinds = {row.model_type: None for row in ARCHITECTURES if row.library == "hf"}
    if kind not in kinds:
        raise CheckpointError(
            f"{theirs.path}: model_type = {str(kind)[:80]!r} is not supported; there are "
            f"{', '.join(kinds)} and timm's vit_…",
            "unsupported_architecture",
        )
    rows = [row for row in ARCHITECTURES if row.model_type == kind and row is not PAIR]
    named = str(given[0]) if isinstance(given, list) and given else None
    for row in rows:
        if row.name == named:
            return row
        if named is None and any(tensor.startswith(row.mark) for tensor in theirs.shapes):
            return row
    known = ", ".join(sorted(row.name for row in rows))
    if named is None:
        raise CheckpointError(
            f"{theirs.path}: config.json does not name its architecture; of {kind} there are "
            f"{known}",
            "unnamed_architecture",
        )
    raise CheckpointError(
        f"{theirs.path}: {named[:80]!r} is not supported; of {kind} there are {known}",
        "unsupported_architecture",
    )


def require_halves(discriminator: ForeignCheckpoint, generator: ForeignCheckpoint) -> None:
    """Refuse two models that are not the halves of an ELECTRA."""
    first, second = find_architecture(generator), find_architecture(discriminator)
    if (first, second) != (ELECTRA_GENERATOR, ELECTRA_ENCODER):
        raise CheckpointError(
            f"{discriminator.path} is a {second.name} and {generator.path} a {first.name}; "
            f"expected {PAIR.name} and, with --generator, {ELECTRA_GENERATOR.name}",
            "mismatched_halves",
        )


def check_fits(chosen: Conversion, outline: Weights) -> nn.Module:
    """Return our model on the meta device after checking that all shapes fit."""
    family, config = chosen.architecture.family, chosen.our_config
    encoder = config.encoder if isinstance(config, ClassifierConfig) else config
    n_layers = encoder.stack.n_layers
    if isinstance(config, TransformerConfig) and config.decoder_layers is not None:
        n_layers = max(n_layers, config.decoder_layers)
    if n_layers > min(MAX_LAYERS, len(outline)):
        raise CheckpointError(
            f"config.json: {n_layers} layers, more than the file holds", "too_many_layers"
        )
    with _sizes_that_fit():
        with torch.device("meta"):
            model: nn.Module = FAMILIES[family].model(config)
        require_fit(chosen.weights(outline), model)
    return model


@contextmanager
def _sizes_that_fit() -> Iterator[None]:
    """Turn errors about the sizes of a configuration into CheckpointErrors."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise CheckpointError(f"config.json: {line}", "invalid_sizes") from None


@dataclass(frozen=True)
class ExportedModel:
    """A directory to write; `name` is its subdirectory, empty if there is only one."""

    name: str
    architecture: str
    files: dict[str, dict[str, Any]]  # contents of JSON files
    weights: Weights


def export_folders(
    family: str,
    config: Any,
    weights: State,
    specials: SpecialIds | None,
    classes: Sequence[str] = (),
    *,
    library: str = "hf",
) -> list[ExportedModel]:
    """Return the directories to write; `specials` undoes the renumbering of an import."""
    rows = [row for row in ARCHITECTURES if row.config_to is not None and row.library == library]
    row = next((row for row in rows if row.family == family and row.suits(config)), None)
    if row is None:
        there = ", ".join(dict.fromkeys(row.family for row in rows))
        name = "transformers" if library == "hf" else library
        raise CheckpointError(
            f"a model of the family {family} has no counterpart in {name}; there is one for "
            f"{there}",
            "not_exportable",
        )
    assert row.config_to is not None
    assert row.weights_to is not None
    theirs = ids.with_their_ids(config, specials)
    if specials is not None:
        weights = ids.restored(family, weights, specials)
    values, tensors = row.config_to(theirs), row.weights_to(weights, theirs)
    if row is PAIR:
        first, second = hf_electra.split(tensors, GENERATOR)
        return [
            _exported("generator", ELECTRA_GENERATOR, values.pop("generator"), first),
            _exported("discriminator", PAIR, values, second),
        ]
    files: dict[str, dict[str, Any]] = {}
    if row.generation is not None:
        files[GENERATION] = row.generation(OURS if specials is None else specials)
        values |= {name: id for name, id in files[GENERATION].items() if name.endswith("_id")}
    if row.pixels is not None:
        files[PIXELS] = row.pixels(theirs)
    if row.library == TIMM and classes:
        values["label_names"] = list(classes)
    elif row.library == "hf" and family in ("classifier", "vit"):
        names = classes or [f"LABEL_{i}" for i in range(theirs.classes)]
        values["id2label"] = {str(i): name for i, name in enumerate(names)}
        values["label2id"] = {name: i for i, name in enumerate(names)}
    exported = _exported("", row, values, tensors)
    return [replace(exported, files=exported.files | files)]


def _exported(
    name: str, row: Architecture, values: dict[str, Any], weights: Weights
) -> ExportedModel:
    header = {"model_type": row.model_type, "architectures": [row.name], "dtype": "float32"}
    values = values if row.library == TIMM else header | values
    return ExportedModel(name, row.name, {CONFIG: values}, weights)
