"""What BERT and ELECTRA are pre-trained for: filling blanks, and spotting what was filled in.

    BERT       L = Σ over the blanks of -log p(true token)                      count: the blanks
    ELECTRA    L = (tokens / blanks) · L_fill + λ · L_spot,   λ mostly 50       count: all tokens

Losses are sums with a count (see `objectives`), and ELECTRA joins two that are normalised
differently: the generator's by the blanks, the discriminator's by all tokens that are not padding.
The sum above, divided by its count, is

    L / tokens = L_fill / blanks + λ · L_spot / tokens

which is what its authors' code minimises. Several batches that are added up weigh by their tokens;
the halves of one batch keep its ratio of tokens to blanks, so that cutting it changes nothing.
"""

from dataclasses import dataclass
from typing import Any

from torch.nn import functional as F

from polyhead.data.batches.masked import MaskedBatch
from polyhead.layers.cross_entropy import linear_cross_entropy
from polyhead.training.losses import Loss


@dataclass(frozen=True)
class MaskedTokenLoss:
    """Cross-entropy of the tokens behind the blanks (Devlin et al. 2019, section 3.1).

    Head and output layer are applied only there: six positions of seven need neither.
    """

    def __call__(self, model: Any, batch: MaskedBatch) -> Loss:
        (only,) = batch.chosen.flatten().nonzero(as_tuple=True)
        labels = batch.ids.flatten()[only]
        h, layer = model.transform(model.hidden(batch.blanked, only=only)), model.to_logits
        total = linear_cross_entropy(h, layer.weight, layer.bias, labels)
        return Loss(total, max(1, len(labels)))  # a batch of unknown words only has no blanks


@dataclass(frozen=True)
class ReplacedTokenLoss:
    """ELECTRA's two losses in one round: the generator fills, the discriminator spots."""

    pad: int

    def __call__(self, model: Any, batch: MaskedBatch) -> Loss:
        return self.of(model(batch.ids, batch.blanked, batch.chosen), batch, model.spotting)

    def of(self, said: Any, batch: MaskedBatch, weight: float) -> Loss:
        """The loss of what the two players said; the weight is λ."""
        fill = F.cross_entropy(said.generated.float(), batch.ids[batch.chosen], reduction="sum")
        real = batch.ids != self.pad
        spot = F.binary_cross_entropy_with_logits(
            said.suspicion.float()[real], said.replaced[real].float(), reduction="sum"
        )
        total = batch.tokens_per_blank * fill + weight * spot
        return Loss(total, batch.n_tokens)
