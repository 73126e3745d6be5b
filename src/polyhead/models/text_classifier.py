"""Text classifier: a BERT encoder, pre-trained or not, with a small head.

    p(class | text) = softmax(W φ(V h + b) + c)

h is the vector of the first token, as in the papers, or the mean of all tokens, useful if
pre-training did not train the first token. φ is tanh in BERT, whose "pooler" is the first
layer, and GELU in ELECTRA. Dropout is before W, and in ELECTRA before V too.
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.transformer_stack import first_positions
from polyhead.models.bert import PUBLISHED, BERTConfig, BERTEncoder, Ids, truncated_normal


@dataclass(frozen=True)
class ClassifierConfig:
    """Sizes of a text classifier."""

    classes: int = 2
    head: Literal["bert", "electra"] = "bert"
    pooling: Literal["first", "mean"] = "first"  # token, or of all tokens
    dropout: Share = 0.1  # of the head
    encoder: BERTConfig = PUBLISHED["bert-base"]

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classes = {self.classes}: a classifier needs at least 2 classes")


class Classifier(nn.Module):
    """Encoder with a classification head; pre-trained weights are loaded into its encoder."""

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        d_model = config.encoder.stack.d_model
        bert = config.head == "bert"
        self.pooling = config.pooling
        self.encoder = BERTEncoder(config.encoder)
        self.pool = nn.Sequential(
            nn.Identity() if bert else Dropout(config.dropout),
            nn.Linear(d_model, d_model),
            nn.Tanh() if bert else nn.GELU(),
            Dropout(config.dropout),
        )
        self.to_logits = nn.Linear(d_model, config.classes)
        truncated_normal(self.pool)
        truncated_normal(self.to_logits)

    def forward(self, ids: Ids, segments: Ids | None = None) -> Float[Tensor, "batch classes"]:
        return self.to_logits(self.pool(self.summary(ids, segments)))

    def summary(self, ids: Ids, segments: Ids | None) -> Float[Tensor, "batch d_model"]:
        """Return one vector per text: its first token's, or the mean without padding."""
        if self.pooling == "first":
            return self.encoder(ids, segments, first_positions(ids))
        states, real = self.encoder(ids, segments), ids != self.encoder.pad
        shares = real / real.sum(dim=1, keepdim=True)
        return (shares.to(states.dtype).unsqueeze(1) @ states).squeeze(1)
