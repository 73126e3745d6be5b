"""The registries of model families (classes, tasks, presets) and of tasks.

Everything above `models` switches on the task of a family, never on its name.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from threading import get_ident
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from polyhead.config import chosen_names, suggest
from polyhead.errors import ConfigError
from polyhead.layers.embeddings import POSITIONS
from polyhead.models import bert, electra, gpt, reformer, transformer, vit
from polyhead.models.baselines import (
    bahdanau,
    bytenet,
    convs2s,
    deep_att,
    gnmt,
    luong,
    moe_lstm,
    resnet,
    seq2seq,
)
from polyhead.models.baselines.attention_ladder import Ladder, LadderConfig
from polyhead.models.baselines.bahdanau import Bahdanau, BahdanauConfig
from polyhead.models.baselines.bytenet import ByteNet, ByteNetConfig
from polyhead.models.baselines.convs2s import ConvS2S, ConvS2SConfig
from polyhead.models.baselines.deep_att import DeepAtt, DeepAttConfig
from polyhead.models.baselines.gnmt import GNMT, GNMTConfig
from polyhead.models.baselines.luong import Luong, LuongConfig
from polyhead.models.baselines.moe_lstm import MoE, MoEConfig
from polyhead.models.baselines.resnet import ResNet, ResNetConfig
from polyhead.models.baselines.seq2seq import Seq2Seq, Seq2SeqConfig
from polyhead.models.bert import BERT, BERTConfig
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.reformer import Reformer, ReformerConfig
from polyhead.models.sentence_encoder import SentenceEncoder, SentenceEncoderConfig
from polyhead.models.span_extractor import SpanExtractorConfig, SpanModel
from polyhead.models.tagging_model import TaggerConfig, TaggingModel
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig
from polyhead.plugin_registry import Registry, resolve

CONFIGS: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # of models by `create_model`
MAX_TENSORS = 10_000  # of weights; 600 layers of a Transformer have 9,600


@dataclass(frozen=True)
class TaskKind:
    """A task: how its models are trained and used.

    training: class that implements `polyhead.training.tasks.base.TrainingTask`.
    pipeline: subclass of `polyhead.pipelines.base.Pipeline`.
    command: the command that uses a trained model.
    tag: of model cards; see the tasks of the Hugging Face Hub.
    metrics: names that validation reports, for train.judge_by.
    outputs: validation computes registered metrics from outputs and references too.
    encoder, logits: names of the module that reads texts, and of the method that uses it.

    Classes of the package are written as "module:Class", because they are in packages above.
    """

    training: Any
    pipeline: Any
    command: str
    tag: str
    metrics: tuple[str, ...] = ("loss",)
    outputs: bool = False
    encoder: str = "encoder"
    logits: str = "__call__"


TRAINING, PIPELINES = "polyhead.training.tasks", "polyhead.pipelines"
TASKS: Registry[TaskKind | str] = Registry(  # a place is that of a class of `tasks`
    "task",
    {
        "translation": TaskKind(
            f"{TRAINING}.translation:TranslationTask", f"{PIPELINES}.translator:Translator",
            "polyhead translate", "translation", ("loss", "perplexity", "bleu"), outputs=True,
        ),
        "language_modeling": TaskKind(
            f"{TRAINING}.language_modeling:LanguageModelingTask",
            f"{PIPELINES}.text_generator:TextGenerator", "polyhead generate", "text-generation",
            ("loss", "perplexity", "bits_per_character"),
        ),
        "masked_lm": "polyhead.tasks.masked_tokens:MaskedLM",
        "replaced_token": "polyhead.tasks.masked_tokens:ReplacedToken",
        "text_classification": "polyhead.tasks.text_classification:TextClassification",
        "sentence_embedding": "polyhead.tasks.sentence_embedding:SentenceEmbedding",
        "token_classification": "polyhead.tasks.tagging:Tagging",
        "question_answering": "polyhead.tasks.question_answering:QuestionAnswering",
        "image_classification": "polyhead.tasks.image_classification:ImageClassification",
    },
)  # fmt: skip
TaskName = Annotated[str, TASKS]


def find_task(name: str) -> Any:
    """Return a task by its name: a `polyhead.tasks.base.Task`, or a `TaskKind` of others."""
    entry = TASKS[name]
    return entry if isinstance(entry, TaskKind) else resolve(entry)()


FINE_TUNED: tuple[TaskName, ...] = (  # models with a BERT encoder and a head of their own
    "text_classification", "token_classification", "question_answering", "sentence_embedding",
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A model family: its class, frozen configuration, task, and published sizes by name."""

    model: Any
    config: Any
    task: TaskName
    presets: Mapping[str, Any] = field(default_factory=dict)


BUILT_IN = {
    "transformer": Family(Transformer, TransformerConfig, "translation", transformer.PUBLISHED),
    "ladder": Family(Ladder, LadderConfig, "translation"),
    "seq2seq": Family(Seq2Seq, Seq2SeqConfig, "translation", seq2seq.PUBLISHED),
    "bahdanau": Family(Bahdanau, BahdanauConfig, "translation", bahdanau.PUBLISHED),
    "luong": Family(Luong, LuongConfig, "translation", luong.PUBLISHED),
    "deep_att": Family(DeepAtt, DeepAttConfig, "translation", deep_att.PUBLISHED),
    "gnmt": Family(GNMT, GNMTConfig, "translation", gnmt.PUBLISHED),
    "convs2s": Family(ConvS2S, ConvS2SConfig, "translation", convs2s.PUBLISHED),
    "bytenet": Family(ByteNet, ByteNetConfig, "translation", bytenet.PUBLISHED),
    "moe": Family(MoE, MoEConfig, "translation", moe_lstm.PUBLISHED),
    "gpt": Family(GPT, GPTConfig, "language_modeling", gpt.PUBLISHED),
    "reformer": Family(Reformer, ReformerConfig, "language_modeling", reformer.PUBLISHED),
    "bert": Family(BERT, BERTConfig, "masked_lm", bert.PUBLISHED),
    "electra": Family(Electra, ElectraConfig, "replaced_token", electra.PUBLISHED),
    "classifier": Family(Classifier, ClassifierConfig, "text_classification"),
    "tagger": Family(TaggingModel, TaggerConfig, "token_classification"),
    "span_extractor": Family(SpanModel, SpanExtractorConfig, "question_answering"),
    "sentence_encoder": Family(SentenceEncoder, SentenceEncoderConfig, "sentence_embedding"),
    "vit": Family(ViT, ViTConfig, "image_classification", vit.PUBLISHED),
    "resnet": Family(ResNet, ResNetConfig, "image_classification", resnet.PUBLISHED),
}
FAMILIES = Registry("family", BUILT_IN)


def command_of(family: str) -> str:
    """Return the command that uses a trained model of this family."""
    command: str = find_task(FAMILIES[family].task).command
    return command


def vocab_fields(config: Any) -> tuple[str, ...]:
    """Return the fields of a configuration (or its class) that hold a vocabulary's size."""
    names = {item.name for item in fields(config)}
    return tuple(name for name in ("source_vocab", "target_vocab", "vocab") if name in names)


def has_mask_token(family: str) -> bool:
    """Return True for models with one id more than their tokenizer: [MASK]."""
    return FAMILIES[family].task in ("masked_lm", "replaced_token", *FINE_TUNED)


def encoder_config(config: Any) -> Any:
    """Return the configuration of the encoder in a fine-tuned model's; of others, their own."""
    encoder = vars(config).get("encoder")
    return encoder if is_dataclass(encoder) else config


def max_positions(config: Any) -> int | None:
    """Return the number of learned positions of a model, or of its encoder; None if unlimited."""
    values = vars(encoder_config(config))
    kind = values.get("positions", "none")
    return values.get("max_length") if POSITIONS[kind].bounded else None


def plugin_parts(family: str, config: Any) -> list[dict[str, str]]:
    """Return the parts of a model that plug-ins registered: kind, name and plug-in of each."""
    names = dict.fromkeys([(FAMILIES, family), *chosen_names(config)])
    return [
        {"kind": registry.kind, "name": name, "plugin": plugin}
        for registry, name in names
        if isinstance(registry, Registry) and (plugin := registry.plugin_of(name)) is not None
    ]


def list_models(task: TaskName | None = None) -> list[str]:
    """Return the names that `create_model` accepts: families and their presets.

    task: only models for this task, such as "translation" or "language_modeling".

    Example: `polyhead.list_models("language_modeling")  # ['gpt', 'gpt2', …]`
    """
    names = []
    for name, family in FAMILIES.items():
        if task in (None, family.task):
            names += [name, *(preset for preset in family.presets if preset != name)]
    return names


def find_config(name: str) -> tuple[str, Any]:
    """Return family and configuration of a preset, or of a family with its default sizes."""
    for family, entry in FAMILIES.items():
        if name in entry.presets:
            return family, entry.presets[name]
    if name in FAMILIES:
        return name, FAMILIES[name].config()
    raise ConfigError(f"unknown model {name!r}{suggest(name, list_models())}", "unknown_model")


def outline(family: str, config: Any, max_tensors: int = MAX_TENSORS) -> nn.Module:
    """Build a model on the meta device, without memory for its weights.

    max_tensors: of weights; building ends with a ConfigError as soon as there are more, whatever
        number of layers, experts or convolutions the configuration says.
    """
    n_tensors, thread = 0, get_ident()

    def count(_module: nn.Module, _name: str, _parameter: Any) -> None:
        nonlocal n_tensors
        n_tensors += get_ident() == thread
        if n_tensors > max_tensors:
            raise ConfigError(
                f"a {family} with these sizes has more than {max_tensors:,} tensors of weights; "
                "reduce the number of layers or experts",
                "too_many_tensors",
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about empty tensors
            _check_pad(config)
            model: nn.Module = FAMILIES[family].model(config)
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        line = " ".join(str(error).split())[:200]
        raise ConfigError(f"impossible sizes of a {family}: {line}", "impossible_sizes") from None
    finally:
        hook.remove()
    return model


def _check_pad(config: Any) -> None:
    """Raise ValueError if the id of padding, here or in an encoder, is not in the vocabulary."""
    values = vars(config)
    for encoder in filter(is_dataclass, values.values()):
        _check_pad(encoder)
    sizes = [values[name] for name in vocab_fields(config)]
    if sizes and not 0 <= values.get("pad", 0) < min(sizes):
        raise ValueError(f"pad = {values['pad']}: expected an id below {min(sizes)}")


def create_model(name: str, config: object = None) -> nn.Module:
    """Build a model with new weights.

    name: a family ("gpt") or a preset ("gpt2"), see `list_models`.
    config: the sizes, instead of the preset's: an instance of the family's configuration class.

    Example: `polyhead.create_model("gpt2")`
    """
    name, preset = find_config(name)
    family = FAMILIES[name]
    if config is not None and not isinstance(config, family.config):
        raise ConfigError(
            f"config: expected a {family.config.__name__}, got a {type(config).__name__}",
            "wrong_config_class",
        )
    model: nn.Module = family.model(preset if config is None else config)
    CONFIGS[model] = preset if config is None else config
    return model
