"""Text classifier: a BERT encoder, pre-trained or not, with a small head.

    z = W φ(V h + b) + c
    single_label    p(class | text) = softmax(z)
    multi_label     p(class | text) = σ(z), each class by itself
    regression      number = mean + scale · z

h is the vector of the first token, as in the papers, or the mean of all tokens, useful if
pre-training did not train the first token. φ is tanh in BERT, whose "pooler" is the first
layer, and GELU in ELECTRA. Dropout is before W, and in ELECTRA before V too.
"""

import math
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.transformer_stack import first_positions
from polyhead.models.bert import PUBLISHED, BERTConfig, BERTEncoder, Ids, truncated_normal

Problem = Literal["single_label", "multi_label", "regression"]
Pooling = Literal["first", "mean"]  # token, or of all tokens


@dataclass(frozen=True)
class ClassifierConfig:
    """Sizes of a text classifier; `mean` and `scale` are the units of a number."""

    classes: int = 2
    head: Literal["bert", "electra"] = "bert"
    pooling: Pooling = "first"
    dropout: Share = 0.1  # of the head
    encoder: BERTConfig = PUBLISHED["bert-base"]
    problem: Problem = "single_label"
    mean: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.problem == "regression":
            if self.classes != 1 or not (math.isfinite(self.mean) and 0 < self.scale < math.inf):
                raise ValueError("regression: expected classes = 1, a finite mean and scale > 0")
        elif self.classes < 2:
            raise ValueError(f"classes = {self.classes}: a classifier needs at least 2 classes")
        elif (self.mean, self.scale) != (0.0, 1.0):
            raise ValueError("mean and scale are for regression only")


class Classifier(nn.Module):
    """Encoder with a classification head; pre-trained weights are loaded into its encoder."""

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        d_model = config.encoder.stack.d_model
        bert = config.head == "bert"
        self.pooling, self.problem = config.pooling, config.problem
        self.mean, self.scale = config.mean, config.scale
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
        summary = summarize(self.encoder, self.pooling, ids, segments)
        logits = self.to_logits(self.pool(summary))
        return self.mean + self.scale * logits if self.problem == "regression" else logits


def summarize(
    encoder: BERTEncoder, pooling: Pooling, ids: Ids, segments: Ids | None = None
) -> Float[Tensor, "batch d_model"]:
    """Return one vector per text: its first token's, or the mean without padding."""
    if pooling == "first":
        return encoder(ids, segments, first_positions(ids))
    states, real = encoder(ids, segments), ids != encoder.pad
    shares = real / real.sum(dim=1, keepdim=True)
    return (shares.to(states.dtype).unsqueeze(1) @ states).squeeze(1)
