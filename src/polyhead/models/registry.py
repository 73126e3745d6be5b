"""The registry of model families: their classes, tasks and presets.

Everything above `models` switches on the task of a family, never on its name. Adding a family is
one entry of `FAMILIES` (or one call of `register`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from polyhead.models import bert, electra, gpt, reformer, vit
from polyhead.models.baselines import (
    bahdanau,
    bytenet,
    convs2s,
    deep_att,
    gnmt,
    luong,
    moe_lstm,
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
from polyhead.models.baselines.seq2seq import Seq2Seq, Seq2SeqConfig
from polyhead.models.bert import BERT, BERTConfig
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.reformer import Reformer, ReformerConfig
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig

Task = Literal[
    "translation", "language_modeling", "masked_lm", "replaced_token", "text_classification",
    "image_classification",
]  # fmt: skip
TASK_COMMANDS: dict[Task, str] = {  # the command that uses a trained model
    "translation": "polyhead translate",
    "language_modeling": "polyhead generate",
    "masked_lm": "polyhead fill",
    "replaced_token": "polyhead train classify-small --data FILE --init",
    "text_classification": "polyhead classify",
    "image_classification": "polyhead classify",
}


@dataclass(frozen=True)
class Family:
    """A model family.

    model: the class, built from a configuration.
    config: its frozen dataclass.
    task: what it is trained for.
    presets: published sizes by name.
    """

    model: Any
    config: Any
    task: Task
    presets: Mapping[str, Any] = field(default_factory=dict)


def command_of(family: str) -> str:
    """Return the command that uses a trained model of this family."""
    return TASK_COMMANDS[FAMILIES[family].task]


FAMILIES: dict[str, Family] = {
    "transformer": Family(Transformer, TransformerConfig, "translation"),
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
    "vit": Family(ViT, ViTConfig, "image_classification", vit.PUBLISHED),
}
