"""A text classifier: any BERT encoder, pre-trained or not, and a small head on its first token.

    p(class | text) = softmax(W φ(V h_0 + b) + c)

φ is tanh in BERT, whose "pooler" is the first of the two layers, and GELU in ELECTRA. Dropout
stands before W, and in ELECTRA before V too.
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.layers.dropout import Dropout
from polyhead.layers.init import truncated_normal
from polyhead.models.bert import PUBLISHED, BERTConfig, BERTEncoder


@dataclass(frozen=True)
class ClassifierConfig:
    """`head` is the tradition of the encoder: "bert" or "electra"."""

    classes: int = 2
    head: Literal["bert", "electra"] = "bert"
    dropout: float = 0.1  # of the head; the encoder has its own
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
        return self.to_logits(self.pool(self.encoder(ids, segments)[:, 0]))
