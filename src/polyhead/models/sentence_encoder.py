"""Sentence encoder: one vector of length 1 per text, near to those of texts of equal meaning.

    e = h / |h|          h: the mean of all tokens of a BERT encoder, or the first token

It is trained on pairs of texts, whose other partners in the batch are the wrong ones (van den Oord
et al. 2018; Reimers and Gurevych 2019):

    L = -½ Σ_i (log softmax(S / τ)_ii + log softmax(Sᵀ / τ)_ii),   S_ij = e_i · e'_j
"""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.models.bert import PUBLISHED, BERTConfig, BERTEncoder, Ids
from polyhead.models.text_classifier import Pooling, summarize


@dataclass(frozen=True)
class SentenceEncoderConfig:
    """Sizes of a sentence encoder; `temperature` is τ, used in training."""

    pooling: Pooling = "mean"
    temperature: float = 0.05
    encoder: BERTConfig = PUBLISHED["bert-base"]

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature = {self.temperature}: expected a number above 0")


class SentenceEncoder(nn.Module):
    """Encoder whose output is one vector of length 1 per text."""

    def __init__(self, config: SentenceEncoderConfig) -> None:
        super().__init__()
        self.pooling, self.temperature = config.pooling, config.temperature
        self.encoder = BERTEncoder(config.encoder)

    def forward(self, ids: Ids) -> Float[Tensor, "batch d_model"]:
        return F.normalize(summarize(self.encoder, self.pooling, ids).float(), dim=-1)
