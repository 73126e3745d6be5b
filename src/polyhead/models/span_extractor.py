"""Span extractor: question answering by two scores of each token (Devlin et al. 2019, section 4.2).

    text       <s> question </s> context </s>      segment 0 up to the first </s>, 1 after it
    p(i)       = softmax over t of S · h_t          the answer starts at token i
    p(j)       = softmax over t of E · h_t          and ends at token j ≥ i
    no answer  i = j = 0, the first token

S and E are the rows of one linear layer; the head of BERT and ELECTRA is the same.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from polyhead.models.bert import PUBLISHED, BERTConfig, BERTEncoder, Ids, truncated_normal


@dataclass(frozen=True)
class SpanExtractorConfig:
    """Sizes of a span extractor."""

    encoder: BERTConfig = PUBLISHED["bert-base"]

    def __post_init__(self) -> None:
        if self.encoder.segments < 2:
            raise ValueError(f"segments = {self.encoder.segments}: question and context are two")


class SpanModel(nn.Module):
    """Encoder with a linear layer; pre-trained weights are loaded into its encoder."""

    def __init__(self, config: SpanExtractorConfig) -> None:
        super().__init__()
        self.encoder = BERTEncoder(config.encoder)
        self.to_logits = nn.Linear(config.encoder.stack.d_model, 2)
        truncated_normal(self.to_logits)

    def forward(self, ids: Ids, segments: Ids | None = None) -> Float[Tensor, "batch length 2"]:
        """Return the logits of start and end of the answer, for each token."""
        return self.to_logits(self.encoder(ids, segments))
