"""Tiny untrained models in model directories."""

import torch
from foreign_models import shaken

from polyhead.checkpoint.atomic_dir import atomic_dir, seal
from polyhead.checkpoint.model_dir import SavedModel, write_model
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPTConfig
from polyhead.models.registry import create_model
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViTConfig
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers


def build_model(lines, about, *, seed=0, tie="all", **stack):
    """Return an untrained Transformer with a tokenizer of characters."""
    tokenizers = train_tokenizers(lines, lines, TextConfig("characters", vocab=50))
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 16} | stack
    vocab = len(tokenizers.source)
    config = TransformerConfig(vocab, vocab, tie=tie, stack=StackConfig(**sizes))
    torch.manual_seed(seed)
    return SavedModel("transformer", config, Transformer(config).eval(), tokenizers, about)


def build_electra(lines, sharing="embeddings"):
    """Return an untrained ELECTRA with large weights, so that words differ in probability."""
    tokenizers = train_tokenizers(lines, [], TextConfig(vocab=300))
    config = ElectraConfig(
        len(tokenizers.source) + 1, 24, d_embed=8, sharing=sharing, generator_size=0.5,
        stack=bert_stack(2, 16, 2),
    )  # fmt: skip
    return SavedModel("electra", config, shaken(Electra(config)), tokenizers, {})


def build_all(lines):
    """Return an untrained model for every pipeline, by its use."""
    tokenizers = train_tokenizers(lines, [], TextConfig("characters", vocab=50))
    vocab, stack = len(tokenizers.source), bert_stack(2, 16, 2)
    bert = BERTConfig(vocab + 1, 24, stack=stack)
    configs = {
        "generate": ("gpt", GPTConfig(vocab, 24, stack=stack)),
        "fill": ("bert", bert),
        "classify": ("classifier", ClassifierConfig(2, encoder=bert)),
        "classify-image": ("vit", ViTConfig(2, 8, 8, patch=4, stack=stack)),
    }
    names = {"classes": ["<b>no</b>", "yes"]}
    saved = {
        use: SavedModel(name, config, create_model(name, config).eval(), tokenizers, names)
        for use, (name, config) in configs.items()
    }
    return saved | {"translate": build_model(lines, {}), "detect": build_electra(lines)}


def save_model(saved, path):
    with atomic_dir(path) as draft:
        write_model(draft, saved)
    return path


def seal_again(path):
    """Write a valid manifest, as an attacker would."""
    (path / "manifest.json").unlink()
    seal(path)
