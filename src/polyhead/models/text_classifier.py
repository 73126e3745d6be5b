"""A text classifier: any BERT encoder, pre-trained or not, and a small head on one vector of it.

    p(class | text) = softmax(W φ(V h + b) + c)

h is that of the first token, as in the papers, or the mean of all tokens, which asks nothing of a
first token that pre-training has taught nothing. φ is tanh in BERT, whose "pooler" is the first of
the two layers, and GELU in ELECTRA. Dropout stands before W, and in ELECTRA before V too.
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.init import truncated_normal
from polyhead.layers.transformer_stack import first_positions
from polyhead.models.bert import PUBLISHED, BERTConfig, BERTEncoder


@dataclass(frozen=True)
class ClassifierConfig:
    """head: the tradition of the encoder, "bert" or "electra".
    pooling: whether the "first" token speaks for the text, or the "mean" of all.
    """

    classes: int = 2
    head: Literal["bert", "electra"] = "bert"
    pooling: Literal["first", "mean"] = "first"
    dropout: Share = 0.1  # of the head; the encoder has its own
    encoder: BERTConfig = PUBLISHED["bert-base"]

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classes = {self.classes}: a classifier needs at least 2 classes")


class Classifier(nn.Module):
    """What is fine-tuned. To begin from a pre-trained model, load its encoder's weights here:

    classifier.encoder.load_state_dict(electra.discriminator.state_dict())

    BERT's is `bert.encoder`. Both are the same class as `classifier.encoder`.
    """

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

    def forward(
        self, ids: Int[Tensor, "batch length"], segments: Int[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch classes"]:
        return self.to_logits(self.pool(self.summary(ids, segments)))

    def summary(
        self, ids: Int[Tensor, "batch length"], segments: Int[Tensor, "batch length"] | None
    ) -> Float[Tensor, "batch d_model"]:
        """One vector for each text."""
        if self.pooling == "first":
            return self.encoder(ids, segments, first_positions(ids))
        return mean_of_tokens(self.encoder(ids, segments), ids != self.encoder.pad)


def mean_of_tokens(
    states: Float[Tensor, "batch length d_model"], real: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch d_model"]:
    """The mean over all tokens that are not padding."""
    shares = real / real.sum(dim=1, keepdim=True)
    return (shares.to(states.dtype).unsqueeze(1) @ states).squeeze(1)
