"""BERT (Devlin et al. 2019): an encoder trained by masked language modeling.

    h            = Stack(LayerNorm(E[token] + P[position] + S[segment]))
    masked token = softmax(E · LayerNorm(GELU(h W + b)) + c)

E is the embedding matrix, used for input and output. The head is applied at masked positions only:
the product with E costs more than several layers.

`BERTEncoder` is also used by ELECTRA and text classifiers. Its embedding may be narrower than its
stack (ELECTRA-Small: 128 and 256), with a projection in between.
"""

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyhead.bounds import Length
from polyhead.layers.attention import not_padding
from polyhead.layers.dropout import Dropout
from polyhead.layers.embeddings import POSITIONS, PositionKind, TokenEmbedding, make_positions
from polyhead.layers.feed_forward import ACTIVATIONS
from polyhead.layers.transformer_stack import StackConfig, TransformerStack

Ids = Int[Tensor, "batch length"]
Chosen = Int[Tensor, "chosen"]  # positions of the flattened batch


def bert_stack(n_layers: int, d_model: int, n_heads: int) -> StackConfig:
    """Return the post-norm stack of BERT and ELECTRA."""
    return StackConfig(
        n_layers, d_model, n_heads, 4 * d_model,
        attention_dropout=0.1, norm="post", norm_eps=1e-12, activation="gelu",
    )  # fmt: skip


@dataclass(frozen=True)
class BERTConfig:
    """The defaults are BERT-base. `tie` shares embedding and output layer."""

    vocab: int = 30_522
    max_length: Length = 512  # number of learned positions
    segments: int = 2
    pad: int = 0
    d_embed: int | None = None  # default: as wide as the stack
    tie: bool = True
    positions: PositionKind = "learned"
    stack: StackConfig = bert_stack(12, 768, 12)

    @property
    def embedding_width(self) -> int:
        return self.stack.d_model if self.d_embed is None else self.d_embed


PUBLISHED = {
    "bert-tiny": BERTConfig(stack=bert_stack(2, 128, 2)),
    "bert-mini": BERTConfig(stack=bert_stack(4, 256, 4)),
    "bert-small": BERTConfig(stack=bert_stack(4, 512, 8)),
    "bert-medium": BERTConfig(stack=bert_stack(8, 512, 8)),
    "bert-base": BERTConfig(),
    "bert-large": BERTConfig(stack=bert_stack(24, 1024, 16)),
}


def with_two_segments(config: BERTConfig) -> BERTConfig:
    """Return a configuration for pairs of texts, with at least two segments."""
    return replace(config, segments=max(2, config.segments))


def truncated_normal(model: nn.Module, std: float = 0.02) -> None:
    """Initialize by N(0, std²) truncated at 2 std, biases with zero: BERT and ELECTRA."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class SegmentEmbedding(nn.Module):
    """dropout(LayerNorm(E[token] + P[position] + S[segment])) (Devlin et al. 2019, figure 2)."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        d_embed = config.embedding_width
        positions = make_positions(config.positions, d_embed, config.max_length)
        self.embed = TokenEmbedding(config.vocab, d_embed, positions, dropout=0.0)
        self.segments = nn.Embedding(config.segments, d_embed)
        self.norm = nn.LayerNorm(d_embed, eps=config.stack.norm_eps)
        self.dropout = Dropout(config.stack.dropout)

    @property
    def tokens(self) -> nn.Embedding:
        """The table E, which the output layer may use too."""
        return self.embed.tokens

    def forward(
        self, ids: Ids, segments: Ids | None = None
    ) -> Float[Tensor, "batch length d_embed"]:
        segment = self.segments.weight[0] if segments is None else self.segments(segments)
        return self.dropout(self.norm(self.embed(ids) + segment))


class BERTEncoder(nn.Module):
    """Bidirectional encoder: one vector per token."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        d_embed, d_model = config.embedding_width, config.stack.d_model
        self.pad = config.pad
        self.embed = SegmentEmbedding(config)
        self.widen = nn.Identity() if d_embed == d_model else nn.Linear(d_embed, d_model)
        self.stack = TransformerStack(config.stack, rotation=POSITIONS[config.positions].rotation)
        truncated_normal(self)

    def forward(
        self, ids: Ids, segments: Ids | None = None, only: Chosen | None = None
    ) -> Float[Tensor, "*positions d_model"]:
        x = self.widen(self.embed(ids, segments))
        return self.stack(x, not_padding(ids, self.pad), only=only)


class BERT(nn.Module):
    """Encoder with a masked language modeling head in two parts, `transform` and `to_logits`."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        d_embed = config.embedding_width
        self.encoder = BERTEncoder(config)
        self.transform = nn.Sequential(
            nn.Linear(config.stack.d_model, d_embed),
            ACTIVATIONS[config.stack.activation](),
            nn.LayerNorm(d_embed, eps=config.stack.norm_eps),
        )
        self.to_logits = nn.Linear(d_embed, config.vocab)
        truncated_normal(self.transform)
        truncated_normal(self.to_logits)
        if config.tie:
            self.to_logits.weight = self.encoder.embed.tokens.weight

    def hidden(
        self, ids: Ids, segments: Ids | None = None, only: Chosen | None = None
    ) -> Float[Tensor, "*positions d_model"]:
        return self.encoder(ids, segments, only)

    def forward(self, ids: Ids, segments: Ids | None = None) -> Float[Tensor, "batch length vocab"]:
        return self.to_logits(self.transform(self.hidden(ids, segments)))

    def fill(
        self, ids: Ids, chosen: Bool[Tensor, "batch length"], segments: Ids | None = None
    ) -> Float[Tensor, "chosen vocab"]:
        """Return the logits at the chosen positions only."""
        (only,) = chosen.flatten().nonzero(as_tuple=True)
        return self.to_logits(self.transform(self.hidden(ids, segments, only)))
