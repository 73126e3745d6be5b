"""The model families. A configuration names one; this table is all the registry there is."""

from typing import Any

from polyhead.models.bert import BERT, BERTConfig
from polyhead.models.classifier import Classifier, ClassifierConfig
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.ladder import Ladder, LadderConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig

FAMILIES: dict[str, tuple[Any, Any]] = {
    "transformer": (Transformer, TransformerConfig),
    "ladder": (Ladder, LadderConfig),
    "gpt": (GPT, GPTConfig),
    "bert": (BERT, BERTConfig),
    "electra": (Electra, ElectraConfig),
    "classifier": (Classifier, ClassifierConfig),
    "vit": (ViT, ViTConfig),
}

__all__ = [
    "BERT",
    "FAMILIES",
    "GPT",
    "BERTConfig",
    "Classifier",
    "ClassifierConfig",
    "Electra",
    "ElectraConfig",
    "GPTConfig",
    "Ladder",
    "LadderConfig",
    "Transformer",
    "TransformerConfig",
    "ViT",
    "ViTConfig",
]
