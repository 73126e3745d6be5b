"""Tagger: a BERT encoder with one linear layer for each token (Devlin et al. 2019, section 5.3).

    p(tag | token t) = softmax(W dropout(h_t) + b)

The head of BERT and ELECTRA is the same. A word has the tag of its first token.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from polyhead.layers.dropout import Dropout, Share
from polyhead.models.bert import PUBLISHED, BERTConfig, BERTEncoder, Ids, truncated_normal


@dataclass(frozen=True)
class TaggerConfig:
    """Sizes of a tagger; `classes` are the tags."""

    classes: int = 2
    dropout: Share = 0.1  # of the head
    encoder: BERTConfig = PUBLISHED["bert-base"]

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classes = {self.classes}: a tagger needs at least 2 tags")


class TaggingModel(nn.Module):
    """Encoder with a linear layer; pre-trained weights are loaded into its encoder."""

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        self.encoder = BERTEncoder(config.encoder)
        self.dropout = Dropout(config.dropout)
        self.to_logits = nn.Linear(config.encoder.stack.d_model, config.classes)
        truncated_normal(self.to_logits)

    def forward(
        self, ids: Ids, segments: Ids | None = None
    ) -> Float[Tensor, "batch length classes"]:
        return self.to_logits(self.dropout(self.encoder(ids, segments)))
