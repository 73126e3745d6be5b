"""Initialization from a trained model: `train.init`.

    translation               a model of the same family; a Transformer also takes the encoder
                              blocks of BERT, ELECTRA or a text classifier that fit
    language modeling, masked_lm, replaced_token
                              a model of the same family
    image classification      likewise; classes and image size may change
    text classification, sentence embedding, tags of words, question answering
                              the encoder of BERT, ELECTRA or another of these

Sizes and tokenizers are those of the model, dropout and subword sampling those of the new run.
Values of the recipe are replaced, overrides that contradict the model are errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from polyhead.checkpoint.atomic_dir import atomic_dir, verify
from polyhead.checkpoint.model_dir import SavedModel, load_model, set_weights, weights_of
from polyhead.checkpoint.model_files import WEIGHTS, resolve
from polyhead.config import plain
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.embeddings import POSITIONS, PositionKind
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERT, BERTConfig, BERTEncoder, with_two_segments
from polyhead.models.electra import Electra
from polyhead.models.registry import FINE_TUNED, has_mask_token
from polyhead.models.sentence_encoder import SentenceEncoder
from polyhead.models.span_extractor import SpanModel
from polyhead.models.tagging_model import TaggingModel
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.models.vit import ViTConfig
from polyhead.tokenizers.storage import save_tokenizers, with_sampling
from polyhead.training.config import RunConfig, check_positions
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog

OF_THE_RUN = ("spotting", "height", "width", "classes")  # not adopted from the model
HEAD, POSITION_TABLE = ("to_logits.weight", "to_logits.bias"), "positions.table.weight"
SEGMENTS = "embed.segments.weight"
FineTuned = Classifier | SentenceEncoder | TaggingModel | SpanModel
EQUAL = (  # options of a block that must be equal
    "d_model", "n_heads", "d_ff", "d_key", "d_value", "norm", "activation", "score", "attention",
    "experts", "reversible",
)  # fmt: skip
EQUAL_IF = {"local": "window", "lsh": "lsh"}  # only if the stack has such attention
EPS_TOLERANCE = 1e-4  # of norm_eps, which is added to a variance of about 1
Head = Literal["bert", "electra"]


@dataclass(frozen=True)
class PretrainedEncoder:
    """A BERT-like encoder; `head` is the kind of classification head that belongs to it."""

    encoder: BERTEncoder
    config: BERTConfig
    head: Head


@dataclass(frozen=True)
class PretrainedModel:
    """The model that `train.init` names; `encoder` is set if only that is used."""

    path: str
    saved: SavedModel
    fingerprint: str
    encoder: PretrainedEncoder | None = None


def read_pretrained(config: RunConfig, path: str) -> PretrainedModel:
    """Load and check the model that `train.init` names."""
    directory = resolve(Path(path))
    saved = load_model(directory)
    takes_encoder = config.task in FINE_TUNED or (
        saved.family != config.family and isinstance(config.model, TransformerConfig)
    )
    encoder = encoder_of(saved) if takes_encoder else None
    if encoder is None and saved.family != config.family:
        kind = CheckpointError if takes_encoder else ConfigError
        raise kind(
            f"train.init: {path} is a {saved.family} model, which cannot initialize "
            f"{config.family}. Use a model of the same family, or for fine-tuning and for "
            "Transformers one with a BERT or ELECTRA encoder.",
            "init_family",
        )
    only_blocks = encoder is not None and config.task == "translation"
    if saved.tokenizers is None and config.task != "image_classification" and not only_blocks:
        raise CheckpointError(
            f"train.init: {path} has no tokenizer, which training requires", "no_tokenizer"
        )
    if config.task in ("language_modeling", "masked_lm", "replaced_token") and (
        saved.tokenizers is not None
    ):
        mask = has_mask_token(saved.family)
        n_ids = len(saved.tokenizers.source) + mask
        if saved.config.vocab != n_ids:  # an imported model without [MASK], or with unused ids
            raise CheckpointError(
                f"train.init: {path} has {saved.config.vocab} ids, but its tokenizer"
                f"{' and [MASK]' if mask else ''} {n_ids}; it cannot be trained further",
                "init_vocabulary",
            )
    if encoder is not None and isinstance(config.model, TransformerConfig):
        check_blocks(path, encoder.config, config.model.encoder_stack, config.model.positions)
    return PretrainedModel(path, saved, verify(directory)[WEIGHTS], encoder)


def encoder_of(saved: SavedModel) -> PretrainedEncoder | None:
    """Return the encoder of a BERT, an ELECTRA (its discriminator) or a fine-tuned model."""
    model, config = saved.model, saved.config
    if isinstance(model, BERT):
        return PretrainedEncoder(model.encoder, config, "bert")
    if isinstance(model, Electra):
        return PretrainedEncoder(model.discriminator, config.discriminator, "electra")
    if isinstance(model, FineTuned):
        head: Head = config.head if isinstance(model, Classifier) else "bert"
        return PretrainedEncoder(model.encoder, config.encoder, head)
    return None


def check_blocks(
    path: str, encoder: BERTConfig, stack: StackConfig, positions: PositionKind
) -> None:
    """Refuse blocks that would compute something else in another stack."""
    kinds = {encoder.stack.kind(layer) for layer in range(encoder.stack.n_layers)}
    names = [*EQUAL, *(name for kind, name in EQUAL_IF.items() if kind in kinds)]
    if abs(stack.norm_eps - encoder.stack.norm_eps) > EPS_TOLERANCE:
        names.append("norm_eps")
    given = {f"stack.{name}": getattr(encoder.stack, name) for name in names}
    wanted = {f"stack.{name}": getattr(stack, name) for name in names}
    if any(POSITIONS[kind].rotation for kind in (encoder.positions, positions)):  # inside blocks
        given["positions"], wanted["positions"] = encoder.positions, positions
    for name, value in given.items():
        if value != wanted[name]:
            raise ConfigError(
                f"train.init: the blocks of {path} have {name} = {value!r}, but model.{name} = "
                f"{wanted[name]!r}. Make them equal, or leave train.init out.",
                "init_conflict",
            )


def with_pretrained_sizes(config: RunConfig, pretrained: PretrainedModel) -> RunConfig:
    """Return the configuration with the sizes and the text options of the pre-trained model."""
    if config.task == "translation" and pretrained.encoder is not None:
        check_positions(config.model, config.data.max_length)
        return config
    wanted, given, text = config.model, pretrained.saved.config, config.text
    try:
        if pretrained.encoder is None:
            model = _with_values_of_run(given, wanted)
        else:
            encoder = _with_values_of_run(pretrained.encoder.config, wanted.encoder)
            if config.task == "question_answering":
                encoder = with_two_segments(encoder)
            is_classifier = isinstance(wanted, ClassifierConfig)
            head = {"head": pretrained.encoder.head} if is_classifier else {}
            model = replace(wanted, encoder=encoder, **head)
    except ValueError as error:
        raise ConfigError(
            f"train.init: {pretrained.path} is incompatible: {error}", "init_conflict"
        ) from None
    if pretrained.saved.tokenizers is not None:
        text = with_sampling(pretrained.saved.tokenizers, text.sampling).config
    actual = {"model": plain(model), "text": plain(text)}
    overridden = {table: config.overridden.get(table, {}) for table in actual}
    for name, value, used in config_conflicts(overridden, actual):
        raise ConfigError(
            f"{name} = {value!r}, but {pretrained.path} (train.init) has {used!r}. Leave it out, "
            "or train from scratch.",
            "init_conflict",
        )
    if isinstance(model, ViTConfig) and model.positions == "axial" and model.grid != given.grid:
        raise ConfigError(
            f"train.init: {pretrained.path} has axial positions for {given.height} x "
            f"{given.width} pixels, which cannot be interpolated to {model.height} x {model.width}",
            "init_conflict",
        )
    check_positions(model, config.data.max_length)
    return replace(config, model=model, text=text)


def _with_values_of_run(given: Any, wanted: Any) -> Any:
    """Return the sizes of a model with the dropout, and what else belongs to training, of a run."""
    own = {}
    for name, value in vars(given).items():
        new = vars(wanted).get(name)
        if is_dataclass(value) and is_dataclass(new):
            own[name] = _with_values_of_run(value, new)
        elif name in OF_THE_RUN or name.endswith("dropout"):
            own[name] = new
    return replace(given, **own)


def config_conflicts(
    overridden: Mapping[str, Any], actual: Mapping[str, Any], table: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, wanted and actual value of each override that contradicts the model."""
    for key, value in overridden.items():
        name = f"{table}{key}"
        if isinstance(value, Mapping):
            yield from config_conflicts(value, actual[key], f"{name}.")
        elif name != "model.family" and value != actual[key]:
            yield name, value, actual[key]


def adopt_tokenizers(config: RunConfig, pretrained: PretrainedModel, run_dir: RunDir) -> None:
    """Copy a pre-trained model's tokenizers, if they are used, into a run that has none yet."""
    tokenizers = pretrained.saved.tokenizers
    if tokenizers is None or (config.task == "translation" and pretrained.encoder is not None):
        return
    if not run_dir.tokenizer.exists():
        with atomic_dir(run_dir.tokenizer) as draft:
            save_tokenizers(with_sampling(tokenizers, config.text.sampling), draft)


def load_weights(
    pretrained: PretrainedModel, model: Any, log: RunLog, classes: Sequence[str] = ()
) -> bool:
    """Copy the pre-trained weights into a new model; return True if none of its weights is new."""
    path = pretrained.path
    if pretrained.encoder is not None and isinstance(model, FineTuned):
        weights = weights_of(pretrained.encoder.encoder)
        rows, own_rows = weights[SEGMENTS], model.encoder.embed.segments.weight
        about = pretrained.saved.about
        run = (about.get("run") or {}).get("train")
        on_single_texts = run is not None and run.get("init") is None and not about.get("pairs")
        if len(rows) < len(own_rows) or on_single_texts:
            # the second text starts as the first, since no second one was ever read
            weights[SEGMENTS] = rows[:1].expand_as(own_rows)
        set_weights(model.encoder, weights)
        log.notice(f"initialized the encoder from {path}")
        return False
    if pretrained.encoder is not None:
        own = dict(model.encoder.named_parameters())
        given = dict(pretrained.encoder.encoder.stack.named_parameters())
        fitting = [name for name in own if name in given and given[name].shape == own[name].shape]
        with torch.no_grad():
            for name in fitting:
                own[name].copy_(given[name])
        log.notice(
            f"initialized {len(fitting)} tensors of the encoder from {path}; all others are new"
        )
        return False
    if classes:
        return _load_image_weights(pretrained, model, log, classes)
    set_weights(model, weights_of(pretrained.saved.model))
    log.notice(f"initialized architecture and weights from {path}")
    return True


def _load_image_weights(
    pretrained: PretrainedModel, model: Any, log: RunLog, classes: Sequence[str]
) -> bool:
    """Copy all weights; learned positions are interpolated, the head is kept if classes match."""
    old: Any = pretrained.saved.model
    weights, new = weights_of(old), weights_of(model)
    if POSITION_TABLE in weights and old.grid != model.grid:
        weights[POSITION_TABLE] = old.places(model.grid).detach()
        before, after = (f"{height} x {width}" for height, width in (old.grid, model.grid))
        log.notice(f"interpolated positions from {before} to {after} patches")
    known = [str(name) for name in pretrained.saved.about.get("classes") or ()]
    same = sorted(known) == sorted(classes) and len(known) == pretrained.saved.config.classes
    rows = [known.index(name) for name in classes] if same else None
    for name in HEAD:
        weights[name] = new[name] if rows is None else weights[name][rows]
    set_weights(model, weights)
    head = "same classes" if same else "new output layer for other classes"
    log.notice(f"initialized architecture and weights from {pretrained.path}; {head}")
    return same
