"""The model families. A configuration names one; this table is all the registry there is."""

from typing import Any

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

FAMILIES: dict[str, tuple[Any, Any]] = {
    "transformer": (Transformer, TransformerConfig),
    "ladder": (Ladder, LadderConfig),
    "seq2seq": (Seq2Seq, Seq2SeqConfig),
    "bahdanau": (Bahdanau, BahdanauConfig),
    "luong": (Luong, LuongConfig),
    "deep_att": (DeepAtt, DeepAttConfig),
    "gnmt": (GNMT, GNMTConfig),
    "convs2s": (ConvS2S, ConvS2SConfig),
    "bytenet": (ByteNet, ByteNetConfig),
    "moe": (MoE, MoEConfig),
    "gpt": (GPT, GPTConfig),
    "reformer": (Reformer, ReformerConfig),
    "bert": (BERT, BERTConfig),
    "electra": (Electra, ElectraConfig),
    "classifier": (Classifier, ClassifierConfig),
    "vit": (ViT, ViTConfig),
}

__all__ = [
    "BERT",
    "FAMILIES",
    "GNMT",
    "GPT",
    "BERTConfig",
    "Bahdanau",
    "BahdanauConfig",
    "ByteNet",
    "ByteNetConfig",
    "Classifier",
    "ClassifierConfig",
    "ConvS2S",
    "ConvS2SConfig",
    "DeepAtt",
    "DeepAttConfig",
    "Electra",
    "ElectraConfig",
    "GNMTConfig",
    "GPTConfig",
    "Ladder",
    "LadderConfig",
    "Luong",
    "LuongConfig",
    "MoE",
    "MoEConfig",
    "Reformer",
    "ReformerConfig",
    "Seq2Seq",
    "Seq2SeqConfig",
    "Transformer",
    "TransformerConfig",
    "ViT",
    "ViTConfig",
]
