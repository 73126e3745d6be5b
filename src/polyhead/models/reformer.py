"""The Reformer (Kitaev et al. 2020): a language model for texts too long for GPT.

It reads and writes as GPT does, and chooses other parts for what grows with the length:

    attention     to neighbours and, in one layer of four, to those that hashing finds   local, lsh
    activations   computed anew on the way back instead of being kept                    reversible
    positions     a row and a column of a grid instead of a free vector for each         axial

The two streams of the reversible stack both begin as the embedded text. At the end,

    h = LayerNorm((y_1 + y_2) / 2),    p(x_{t+1} | …) = softmax(W h_t)

The authors concatenate the streams and give W twice the width, one half for each stream; the mean
is that with two equal halves. It keeps the width, so that W may be the embedding (`tie`), and every
other stack of this package may be made reversible without changing what is built on it.
"""

from dataclasses import dataclass

from polyhead.layers.attention_factory import AttentionKind, LSHConfig
from polyhead.layers.axial_positions import AxialConfig
from polyhead.layers.positions import PositionKind
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig

PATTERN: tuple[AttentionKind, ...] = ("local", "local", "lsh", "local")  # the authors', enwik8


@dataclass(frozen=True)
class ReformerConfig(GPTConfig):
    """The defaults are the sizes that the authors published for enwik8, read byte by byte."""

    vocab: int = 258
    max_length: int = 65_536
    positions: PositionKind = "axial"
    tie: bool = False
    stack: StackConfig = StackConfig(
        12, 1024, 8, 4096,
        dropout=0.2, attention_dropout=0.2, norm="pre", attention=PATTERN, window=128,
        lsh=LSHConfig(chunk=256, rounds=2, buckets=512), reversible=True,
    )  # fmt: skip


PUBLISHED = {"reformer-enwik8": ReformerConfig(axial=AxialConfig((128, 512), (256, 768)))}


class Reformer(GPT):
    """GPT with the parts above. While writing, a step looks at all that was written before.

    Only the prompt is hashed: one query has nothing to sort. A step of an LSH layer therefore sees
    whom infinitely many rounds would find, and costs as much as one of dense attention.
    """

    def __init__(self, config: ReformerConfig) -> None:
        super().__init__(config)
