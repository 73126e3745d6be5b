"""Reformer (Kitaev et al. 2020): a language model for long texts.

It is GPT with other parts where cost grows with the length:

    attention     local, and in one layer of four by hashing                  local, lsh
    activations   recomputed in the backward pass                             reversible
    positions     a row and a column of a grid instead of a vector for each   axial

Both streams of the reversible stack start as the embedded text. At the end,

    h = LayerNorm((y_1 + y_2) / 2),    p(x_{t+1} | …) = softmax(W h_t)

The authors concatenate the streams and give W twice the width; the mean is that with two equal
halves. It keeps the width, so that W may be the embedding (`tie`) and any stack can be reversible.
"""

from dataclasses import dataclass

from polyhead.bounds import Length
from polyhead.layers.axial_positions import AxialConfig
from polyhead.layers.embeddings import PositionKind
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.transformer_stack import AttentionKind, StackConfig
from polyhead.models.gpt import GPT, GPTConfig

PATTERN: tuple[AttentionKind, ...] = ("local", "local", "lsh", "local")  # the authors', enwik8


@dataclass(frozen=True)
class ReformerConfig(GPTConfig):
    """The defaults are the sizes published for enwik8 (bytes)."""

    vocab: int = 258
    max_length: Length = 65_536
    positions: PositionKind = "axial"
    tie: bool = False
    stack: StackConfig = StackConfig(
        12, 1024, 8, 4096,
        dropout=0.2, attention_dropout=0.2, norm="pre", attention=PATTERN, window=128,
        lsh=LSHConfig(chunk=256, rounds=2, buckets=512), reversible=True,
    )  # fmt: skip


PUBLISHED = {"reformer-enwik8": ReformerConfig(axial=AxialConfig((128, 512), (256, 768)))}


class Reformer(GPT):
    """GPT with the parts above.

    Only the prompt is hashed. A decoding step of an LSH layer attends to all earlier positions, the
    limit of infinitely many rounds, and costs as much as dense attention. In a text read at once,
    which earlier positions are found may depend on later ones (`layers/lsh/attention.py`).
    """
