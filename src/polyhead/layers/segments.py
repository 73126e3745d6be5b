"""The input of BERT and ELECTRA: token, position and segment, added up and normalised.

    x = dropout(LayerNorm(E[token] + P[position] + S[segment]))

This is Figure 2 of Devlin et al. 2019. Segments tell the two sentences of a pair apart; a text
alone is all segment 0.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.layers.dropout import Dropout
from polyhead.layers.embeddings import TokenEmbedding


class SegmentEmbedding(nn.Module):
    """Embedding of tokens, positions and segments with LayerNorm."""

    def __init__(
        self,
        vocab: int,
        d_embed: int,
        *,
        positions: nn.Module,
        segments: int,
        dropout: float,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.embed = TokenEmbedding(vocab, d_embed, positions, dropout=0.0)
        self.segments = nn.Embedding(segments, d_embed)
        self.norm = nn.LayerNorm(d_embed, eps=norm_eps)
        self.dropout = Dropout(dropout)

    @property
    def tokens(self) -> nn.Embedding:
        """The table E, which the output layer may use too."""
        return self.embed.tokens

    def forward(
        self, ids: Int[Tensor, "batch length"], segments: Int[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch length d_embed"]:
        segment = self.segments.weight[0] if segments is None else self.segments(segments)
        return self.dropout(self.norm(self.embed(ids) + segment))
