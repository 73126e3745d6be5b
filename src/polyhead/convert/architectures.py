"""The table of foreign architectures: how each becomes one of our models, and the inverse.

A row has the names of an architecture and of our family, and functions for its configuration,
weights and special ids. Import finds its row by config.json, or by a name of a tensor (`mark`);
export takes the first row of the model's family that can be written and `suits` its configuration
(`exporter.py`).
ELECTRA is two models there: the halves of one row (`PAIR`).

A conversion is tried on shapes first (`check_fits`), so that no memory is taken for a model that
cannot be what its configuration says.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from polyhead.config import from_dict, plain
from polyhead.convert import esm, gpt2, gpt_neox, hf_bert, hf_electra, hf_vit, marian, timm_vit
from polyhead.convert import special_ids as ids
from polyhead.convert.architecture_row import Architecture, State, token_heads
from polyhead.convert.hf_bert import classifier_from_hf, classifier_to_hf, with_new_head
from polyhead.convert.hf_electra import half_from_hf, half_to_hf
from polyhead.convert.reader import GENERATOR, ForeignCheckpoint
from polyhead.convert.sentence_files import SENTENCES, is_sentence_folder, read_pooling
from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.timm_vit import TIMM, config_from_timm, is_timm
from polyhead.convert.weight_names import (
    Weights,
    flag,
    lost_dropouts,
    require_fit,
    shown,
    whole,
    with_new_output,
)
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.registry import FAMILIES, encoder_config
from polyhead.models.sentence_encoder import SentenceEncoderConfig
from polyhead.models.transformer import TransformerConfig

MAX_LAYERS = 1000
NEW_LAYER = ("its last layer is new (zeros): fine-tune it",)
LABELLED = ("classifier", "tagger", "vit")  # families with names of classes

GPT2 = Architecture(
    "GPT2LMHeadModel", "gpt2", "gpt", "transformer.h.",
    gpt2.config_from_hf, lambda state, config: gpt2.WEIGHTS.to_ours(state, tie=config.tie),
    gpt2.config_to_hf, lambda weights, _: gpt2.WEIGHTS.to_theirs(weights),
    suits=lambda config: config.positions != "rotary",
    special_ids=ids.gpt2_ids, generation=gpt2.generation,
)  # fmt: skip
GPT_NEOX = Architecture(
    "GPTNeoXForCausalLM", "gpt_neox", "gpt", "gpt_neox.",
    gpt_neox.config_from_hf, gpt_neox.from_hf, gpt_neox.config_to_hf, gpt_neox.to_hf,
    special_ids=ids.gpt2_ids, generation=gpt2.generation,
    prepare=gpt_neox.with_biases, variants={"attention_bias": flag},
)  # fmt: skip
BERT = Architecture(
    "BertForMaskedLM", "bert", "bert", "cls.predictions.",
    hf_bert.config_from_hf, hf_bert.from_hf, hf_bert.config_to_hf, hf_bert.to_hf,
    suits=lambda config: (
        config.stack.norm == "post" and config.embedding_width == config.stack.d_model
    ),
)  # fmt: skip
ESM = Architecture(
    "EsmForMaskedLM", "esm", "bert", "lm_head.",
    esm.config_from_hf, esm.from_hf, esm.config_to_hf, esm.to_hf,
    suits=lambda config: config.stack.norm == "pre",
)  # fmt: skip
ESM_CLASSIFIER = Architecture(
    "EsmForSequenceClassification", "esm", "classifier", "classifier.",
    esm.classifier_from_hf,
    lambda state, config: esm.from_hf(state, config.encoder, esm.CLASSIFIER),
    esm.classifier_to_hf,
    lambda weights, config: esm.to_hf(weights, config.encoder, esm.CLASSIFIER),
    suits=lambda config: config.encoder.stack.norm == "pre",
)  # fmt: skip
BERT_CLASSIFIER = Architecture(
    "BertForSequenceClassification", "bert", "classifier", "classifier.",
    lambda values: classifier_from_hf(values, "bert", hf_bert.config_from_hf(values)),
    lambda state, _: hf_bert.CLASSIFIER.to_ours(state),
    lambda config: classifier_to_hf(config, hf_bert.config_to_hf(config.encoder)),
    lambda weights, _: hf_bert.CLASSIFIER.to_theirs(weights),
    suits=lambda config: config.head == "bert" and config.encoder.stack.norm == "post",
)  # fmt: skip
BERT_ENCODER = Architecture(
    "BertModel", "bert", "classifier", "encoder.",
    lambda values: classifier_from_hf(
        values, "bert", hf_bert.config_from_hf(values), has_labels=False
    ),
    lambda state, config: with_new_head(hf_bert.CLASSIFIER.to_ours(state), config),
    BERT_CLASSIFIER.config_to,
    notes=NEW_LAYER,
)  # fmt: skip
ELECTRA_GENERATOR = Architecture(
    "ElectraForMaskedLM", "electra", "bert", "generator_predictions.",
    hf_electra.generator_from_hf,
    lambda state, config: hf_electra.MASKED_LM.to_ours(state, tie=config.tie),
    hf_electra.generator_to_hf, lambda weights, _: hf_electra.MASKED_LM.to_theirs(weights),
)  # fmt: skip
ELECTRA_CLASSIFIER = Architecture(
    "ElectraForSequenceClassification", "electra", "classifier", "classifier.out_proj.",
    lambda values: classifier_from_hf(values, "electra", half_from_hf(values)),
    lambda state, _: hf_electra.CLASSIFIER.to_ours(state),
    lambda config: classifier_to_hf(config, half_to_hf(config.encoder)),
    lambda weights, _: hf_electra.CLASSIFIER.to_theirs(weights),
)  # fmt: skip
ELECTRA_ENCODER = Architecture(
    "ElectraForPreTraining", "electra", "classifier", "discriminator_predictions.",
    lambda values: classifier_from_hf(values, "electra", half_from_hf(values), has_labels=False),
    lambda state, config: with_new_head(hf_electra.CLASSIFIER.to_ours(state), config),
    ELECTRA_CLASSIFIER.config_to,
    notes=(
        "the discriminator's encoder alone: its head is new, fine-tune it (to keep both halves, "
        "add --generator)",
    ),
)  # fmt: skip
BERT_SENTENCES = Architecture(
    "BertModel", "bert", "sentence_encoder", "encoder.",
    lambda values: SentenceEncoderConfig(encoder=hf_bert.config_from_hf(values)),
    lambda state, _: hf_bert.ENCODER.to_ours(state),
    lambda config: hf_bert.config_to_hf(config.encoder),
    lambda weights, _: hf_bert.ENCODER.to_theirs(weights),
    suits=lambda config: config.encoder.embedding_width == config.encoder.stack.d_model,
)  # fmt: skip
ELECTRA_SENTENCES = Architecture(
    "ElectraModel", "electra", "sentence_encoder", "encoder.",
    lambda values: SentenceEncoderConfig(encoder=half_from_hf(values)),
    lambda state, _: hf_electra.ENCODER.to_ours(state),
    lambda config: half_to_hf(config.encoder),
    lambda weights, _: hf_electra.ENCODER.to_theirs(weights),
)  # fmt: skip
ESM_TAGGER = Architecture(
    "EsmForTokenClassification", "esm", "tagger", "classifier.weight",
    esm.tagger_from_hf,
    lambda state, config: esm.from_hf(state, config.encoder, esm.TAGGER),
    lambda config: esm.config_to_hf(config.encoder),
    lambda weights, config: esm.to_hf(weights, config.encoder, esm.TAGGER),
    suits=lambda config: config.encoder.stack.norm == "pre",
)  # fmt: skip
PAIR = Architecture(
    "ElectraForPreTraining", "electra", "electra", GENERATOR,
    hf_electra.config_from_hf, hf_electra.from_hf, hf_electra.config_to_hf, hf_electra.to_hf,
)  # fmt: skip
VIT = Architecture(
    "ViTForImageClassification", "vit", "vit", "vit.",
    hf_vit.config_from_hf, lambda state, _: hf_vit.to_ours(state, hf_vit.HF),
    hf_vit.config_to_hf, lambda weights, config: hf_vit.to_theirs(weights, config, hf_vit.HF),
    suits=lambda config: config.n_extra == 1,
    special_ids=lambda *_: None, tokenizer=None, pixels=hf_vit.pixels_to_hf,
    prepare=hf_vit.with_biases, variants={"qkv_bias": flag},
)  # fmt: skip
VIT_ENCODER = replace(
    VIT, name="ViTModel", mark="embeddings.", weights_to=None, notes=NEW_LAYER,
    config_from=lambda values: hf_vit.config_from_hf(values, has_labels=False),
    weights_from=lambda state, config: with_new_output(
        hf_vit.to_ours(state, hf_vit.HF), config.classes, config.stack.d_model
    ),
)  # fmt: skip
IJEPA = replace(
    VIT, name="IJepaForImageClassification", model_type="ijepa", mark="ijepa.",
    config_from=lambda values: hf_vit.config_from_hf(values, pooling="mean"),
    weights_from=lambda state, _: hf_vit.to_ours(state, hf_vit.IJEPA),
    weights_to=lambda weights, config: hf_vit.to_theirs(weights, config, hf_vit.IJEPA),
    suits=lambda config: config.pooling == "mean",
)  # fmt: skip
DEIT = replace(
    VIT, name="DeiTForImageClassificationWithTeacher", model_type="deit", mark="cls_classifier.",
    config_from=lambda values: hf_vit.config_from_hf(values, class_tokens=2),
    weights_from=hf_vit.deit_from_hf, weights_to=hf_vit.deit_to_hf,
    suits=lambda config: config.n_extra > 1,
)  # fmt: skip
TIMM_VIT = Architecture(
    TIMM, TIMM, "vit", "patch_embed.",
    config_from_timm, lambda state, _: hf_vit.to_ours(state, hf_vit.TIMM),
    timm_vit.config_to_timm, lambda weights, config: hf_vit.to_theirs(weights, config, hf_vit.TIMM),
    special_ids=lambda *_: None, tokenizer=None, library=TIMM, prepare=timm_vit.with_biases,
)  # fmt: skip
MARIAN = Architecture(
    "MarianMTModel", "marian", "transformer", "model.",
    marian.config_from_hf, marian.from_hf, marian.config_to_hf, marian.to_hf,
    suits=lambda config: config.stack.norm == "post",
    special_ids=ids.marian_ids, tokenizer="marian", generation=marian.generation,
    prepare=lambda state, values: marian.prepare(state, values, "marian"),
    variants={"scale_embedding": flag, **dict.fromkeys(marian.INNER, whole)},
)  # fmt: skip
PEGASUS = replace(
    MARIAN, name="PegasusForConditionalGeneration", model_type="pegasus", tokenizer="fast",
    config_from=lambda values: marian.config_from_hf(values, "pegasus"),
    suits=lambda config: config.stack.norm == "pre",
    prepare=lambda state, values: marian.prepare(state, values, "pegasus"),
)  # fmt: skip
ARCHITECTURES = (  # of one model_type: the one with the most specific mark first
    GPT2,
    GPT_NEOX,
    replace(GPT2, name="GPT2Model", mark="h.", weights_to=None),
    replace(
        BERT,
        name="BertForPreTraining",
        mark="cls.seq_relationship.",
        weights_to=None,
        notes=("the next-sentence prediction head is left out",),
    ),
    BERT,
    BERT_CLASSIFIER,
    BERT_ENCODER,
    ESM,
    ESM_CLASSIFIER,
    ESM_TAGGER,
    *token_heads(
        "Bert",
        hf_bert.config_from_hf,
        hf_bert.config_to_hf,
        lambda config: config.encoder.embedding_width == config.encoder.stack.d_model,
    ),
    ELECTRA_GENERATOR,
    ELECTRA_ENCODER,
    ELECTRA_CLASSIFIER,
    *token_heads("Electra", half_from_hf, half_to_hf),
    replace(ELECTRA_ENCODER, name="ElectraModel", mark="encoder."),
    BERT_SENTENCES,
    ELECTRA_SENTENCES,
    PAIR,
    VIT,
    VIT_ENCODER,
    IJEPA,
    DEIT,
    replace(DEIT, name="DeiTForImageClassification", mark="classifier.", weights_to=None),
    TIMM_VIT,
    MARIAN,
    PEGASUS,
)


@dataclass(frozen=True)
class Conversion:
    """The architecture of a foreign model, our configuration with its ids, and its special ids."""

    architecture: Architecture
    config: Any
    values: Mapping[str, Any]
    specials: SpecialIds | None = None
    notes: tuple[str, ...] = ()

    @property
    def our_config(self) -> Any:
        """The configuration with our ids."""
        return ids.with_our_ids(self.config, self.specials)

    def weights(self, state: State) -> Weights:
        """Return our weights, with our ids."""
        prepared = self.architecture.prepare(state, self.values)
        converted = self.architecture.weights_from(prepared, self.config)
        if self.specials is None:
            return converted
        return ids.renumbered(self.architecture.family, converted, self.specials)


def find_conversion(
    theirs: ForeignCheckpoint, *, timm: bool = False, pair: bool = False
) -> Conversion:
    """Return the conversion for a checkpoint; raises CheckpointError if it is not supported.

    timm: the weights are those of timm's ViT, even without a config.json.
    pair: both halves of an ELECTRA are in the checkpoint.
    """
    values = theirs.values
    if not timm and not is_timm(values):
        row = PAIR if pair else find_architecture(theirs)
        with _sizes_that_fit():
            config = _bounded(row.config_from(values))
            if row.family == SENTENCES:
                config = replace(config, pooling=read_pooling(theirs.path))
            notes = lost_dropouts(values, row.model_type, config)
        return Conversion(row, config, values, notes=row.notes + notes)
    with _sizes_that_fit():
        shapes = {name: tuple(tensor.shape) for name, tensor in theirs.outline.items()}
        config = _bounded(config_from_timm(values, shapes))
    heads = (
        f"nothing says how many heads it has: {config.stack.n_heads}, as timm's plain ViT of this "
        "width"
    )
    is_named = is_timm(values) or values.get("model_args")
    notes = timm_vit.lost_rates(values) if is_named else (heads,)
    return Conversion(TIMM_VIT, config, values, notes=notes)


def _bounded(config: Any) -> Any:
    """Return the configuration after the checks of its fields, as of one that is read."""
    return from_dict(type(config), plain(config))


def find_architecture(theirs: ForeignCheckpoint) -> Architecture:
    """Return the row that config.json names; without a name it is found by the weights."""
    kind, given = theirs.values.get("model_type"), theirs.values.get("architectures")
    kinds = list(dict.fromkeys(row.model_type for row in ARCHITECTURES if row.library == "hf"))
    if kind not in kinds:
        raise CheckpointError(
            f"{theirs.path}: model_type = {shown(kind)} is not supported; there are "
            f"{', '.join(kinds)} and timm's vit_…",
            "unsupported_architecture",
        )
    rows = [row for row in ARCHITECTURES if row.model_type == kind and row is not PAIR]
    if is_sentence_folder(theirs.path):
        rows = [row for row in rows if row.family == SENTENCES]
    named = given[0] if isinstance(given, list) and given else given
    for row in rows:
        if row.name == named:
            return row
        if named is None and any(tensor.startswith(row.mark) for tensor in theirs.files):
            return row
    known = ", ".join(sorted(row.name for row in rows))
    if named is None:
        raise CheckpointError(
            f"{theirs.path}: config.json does not name its architecture; of {kind} there are "
            f"{known}",
            "unnamed_architecture",
        )
    raise CheckpointError(
        f"{theirs.path}: architectures = {shown(named)} is not supported; of {kind} there are "
        f"{known}",
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


def check_fits(chosen: Conversion, theirs: ForeignCheckpoint) -> nn.Module:
    """Return our model on the meta device after checking that all shapes and types fit."""
    family, config = chosen.architecture.family, chosen.our_config
    n_layers = encoder_config(config).stack.n_layers
    if isinstance(config, TransformerConfig) and config.decoder_layers is not None:
        n_layers = max(n_layers, config.decoder_layers)
    if n_layers > min(MAX_LAYERS, len(theirs.files)):
        raise CheckpointError(
            f"config.json: {n_layers} layers, more than the file holds", "too_many_layers"
        )
    with _sizes_that_fit():
        with torch.device("meta"):
            model: nn.Module = FAMILIES[family].model(config)
        require_fit(chosen.weights(theirs.outline), model)
    return model


@contextmanager
def _sizes_that_fit() -> Iterator[None]:
    """Turn errors about the sizes of a configuration into CheckpointErrors."""
    try:
        yield
    except (ConfigError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise CheckpointError(f"config.json: {line}", "invalid_sizes") from None


def reference_values(row: Architecture, config: Any, variants: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json for the original: our checked configuration, and nothing of theirs.

    variants: the contents of config.json, of which the values of `row.variants` are read.
    """
    values = row.config_to(config)
    if row.family in LABELLED and row.library == "hf":
        values["num_labels"] = config.classes
    given = {name: read for name, read in row.variants.items() if name in variants}
    return values | {name: read(variants, name) for name, read in given.items()}
