"""Small variants of families that translate or write: their options, each in some variant."""

from dataclasses import replace
from itertools import product

import torch

from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models import registry as models

PAD, VOCAB, D = 0, 11, 8
SOURCE = torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, PAD, PAD], [9, 2, PAD, PAD, PAD]])
TARGET = torch.tensor([[1, 5, 6, 7], [1, 9, 10, 3], [1, 4, 4, 8]])
LENGTHS = (SOURCE != PAD).sum(1)
CLASSES = {family.config: family.model for family in models.FAMILIES.values()}
SIZES = {"source_vocab": VOCAB, "target_vocab": VOCAB, "d_model": D, "dropout": 0.0}

RECURRENT = {
    "first": models.Seq2SeqConfig(**SIZES),
    "reversed": models.Seq2SeqConfig(**SIZES, reverse_source=True),
    "everywhere": models.Seq2SeqConfig(
        **SIZES, cell="gru", d_embed=6, n_layers=1, context="everywhere", bidirectional=True
    ),
    "bridge": models.Seq2SeqConfig(
        **SIZES, cell="lstm", d_embed=6, context="everywhere", bridge=True, d_output=5
    ),
    "rnn": models.Seq2SeqConfig(**SIZES, cell="rnn"),
    "bahdanau": models.BahdanauConfig(**SIZES, d_encoder=10, d_embed=6, d_output=4),
    "bahdanau lstm": models.BahdanauConfig(**SIZES, cell="lstm", score="general"),
    "luong dot": models.LuongConfig(**SIZES, score="dot"),
    "luong general": models.LuongConfig(**SIZES, d_embed=6),
    "luong unfed": models.LuongConfig(
        **SIZES, cell="gru", score="additive", input_feeding=False, bidirectional=True
    ),
    "luong local_m": models.LuongConfig(
        **SIZES, attention="local_m", window=1, reverse_source=True
    ),
    "luong local_m unfed": models.LuongConfig(
        **SIZES, cell="gru", score="dot", attention="local_m", window=1, input_feeding=False
    ),
    "luong local_p": models.LuongConfig(**SIZES, attention="local_p", window=2),
    "luong local_p unfed": models.LuongConfig(
        **SIZES, score="additive", attention="local_p", window=2, input_feeding=False
    ),
    "deep_att": models.DeepAttConfig(**SIZES, d_embed=6),
    "gnmt past": models.GNMTConfig(**SIZES, n_layers=4),
    "gnmt current": models.GNMTConfig(**SIZES, n_layers=2, query="current"),
}
RUNGS = ("none", "mean", "positional", "content", "query")
CELLS = ("rnn", "gru", "lstm")
READINGS = ("reverse_source", "bidirectional")
LADDER = {
    f"ladder {context} {cell}": models.LadderConfig(**SIZES, context=context, cell=cell, n_layers=2)
    for context, cell in product(RUNGS, CELLS)
}
LADDER |= {
    f"ladder {context} {cell} {reading}": replace(
        LADDER[f"ladder {context} {cell}"], **{reading: True}
    )
    for context, cell, reading in product(("none", "query"), CELLS, READINGS)
}
CONVS2S = models.ConvS2SConfig(
    VOCAB, VOCAB, d_embed=6, encoder=((8, 3), (8, 5), (10, 1)), decoder=((8, 3), (10, 2), (10, 1)),
    d_output=7, dropout=0.0,
)  # fmt: skip
BYTENET = models.ByteNetConfig(
    VOCAB, VOCAB, d_model=16, n_layers=4, decoder_layers=3, max_dilation=4, dropout=0.0
)
CONVOLUTIONAL = {
    "convs2s": CONVS2S,
    "convs2s tied": replace(CONVS2S, d_output=None, positions="sinusoidal", tie=True),
    "bytenet": BYTENET,
    "bytenet tied": replace(BYTENET, kernel=5, decoder_kernel=2, a=1.0, b=1, tie=True),
}
MOE = models.MoEConfig(**SIZES, d_ff=12, experts=ExpertsConfig(n=4, k=2))

STACK = StackConfig(n_layers=2, d_model=16, n_heads=2, d_ff=32, dropout=0.0, attention_dropout=0.0)
PRE = replace(STACK, norm="pre")
REFORMER = replace(  # chunks hold the whole input, so that hashing finds all pairs
    PRE, attention=("local", "lsh"), window=3, lsh=LSHConfig(chunk=32), reversible=True
)
STACKS = {
    "dot": replace(STACK, score="dot"),
    "general": replace(STACK, score="general"),
    "additive": replace(STACK, score="additive"),
    "local": replace(STACK, attention="local", window=2),
    "mixed": replace(PRE, attention=("local", "full"), window=2),
    "experts": replace(STACK, experts=ExpertsConfig(n=3, k=2)),
    "experts groups": replace(STACK, experts=ExpertsConfig(n=6, k=1, groups=3)),
    "experts balanced": replace(PRE, experts=ExpertsConfig(n=3, k=2, gating="balanced")),
    "experts before": replace(PRE, experts=ExpertsConfig(n=4, k=1)),
    "tanh": replace(STACK, activation="gelu_tanh", norm_eps=1e-12),
    "reversible": replace(PRE, reversible=True, feed_chunk=5),
    "d_k d_v": replace(STACK, n_heads=3, d_k=6, d_v=3),
}
POSITIONS = ("sinusoidal", "learned", "axial", "rotary", "none")
CHOICES = [
    *product(STACKS, ["sinusoidal"]),
    *product(["tanh", "local"], POSITIONS[1:]),
    ("reversible", "rotary"),
]
TRANSFORMERS = {
    f"transformer {stack} {positions}": models.TransformerConfig(
        VOCAB, VOCAB, stack=STACKS[stack], positions=positions, max_length=12
    )
    for stack, positions in CHOICES
}
TRANSFORMERS["transformer lsh"] = models.TransformerConfig(
    VOCAB, VOCAB, stack=replace(PRE, window=2, lsh=LSHConfig(2)), encoder_attention=("lsh", "local")
)
HASHED = replace(REFORMER, lsh=LSHConfig(chunk=4))  # not causal in which pairs it finds
WRITERS = {
    f"gpt {stack} {positions}": models.GPTConfig(
        VOCAB, max_length=18, positions=positions, stack=STACKS[stack]
    )
    for stack, positions in CHOICES
}
WRITERS["reformer remembering"] = models.ReformerConfig(
    VOCAB, max_length=32, stack=replace(REFORMER, reversible=False)
)
TWO_LEVELS = ExpertsConfig(n=8, k=2, groups=4, gating="balanced")
EXPERTS = {
    "moe": MOE,
    "moe projected": replace(MOE, d_hidden=20),
    "moe two levels": replace(MOE, experts=TWO_LEVELS),
}
TRANSLATORS = RECURRENT | LADDER | CONVOLUTIONAL | TRANSFORMERS | EXPERTS


def make(config):
    """Build the model of a configuration."""
    return CLASSES[type(config)](config).eval()


def grown(model, scale=0.1):
    """Add noise to all weights: none is zero any more, not even an output or a gate."""
    for parameter in model.parameters():
        parameter.data += scale * torch.randn_like(parameter)
    return model


def opinionated(config, scale=6.0):
    """Build a model whose weights are so large that every part of it matters."""
    model = make(config)
    for parameter in model.parameters():
        parameter.data *= scale
    return model
