"""What each family is trained for. An objective turns a model and a batch into a `Loss`.

Losses are *sums* over predictions, with their count beside them. Whoever adds several batches up
divides once, at the end, and so weighs every token alike however the batches were cut.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from polyhead.data.batches.language_model import LanguageBatch
from polyhead.data.batches.translation import TranslationBatch
from polyhead.layers.cross_entropy import linear_cross_entropy


@dataclass(frozen=True)
class Loss:
    """A sum over `count` predictions."""

    total: Float[Tensor, ""]
    count: int


@runtime_checkable
class Objective(Protocol):
    """Called by the training loop, and by validation without gradients."""

    def __call__(self, model: nn.Module, batch: Any) -> Loss:
        """The loss of this model on this batch."""
        ...


@dataclass(frozen=True)
class TranslationLoss:
    """Cross-entropy of the next target token, with label smoothing (section 5.4).

    The output layer is applied only where there is something to predict, and never as a whole.
    """

    pad: int
    smoothing: float = 0.0

    def __call__(self, model: Any, batch: TranslationBatch) -> Loss:
        (real,) = (batch.labels != self.pad).flatten().nonzero(as_tuple=True)
        labels = batch.labels.flatten()[real]
        states = model.hidden(batch.source, batch.target).flatten(0, 1).index_select(0, real)
        layer = model.to_logits
        total = linear_cross_entropy(states, layer.weight, layer.bias, labels, self.smoothing)
        return Loss(total, len(labels))


@dataclass(frozen=True)
class NextTokenLoss:
    """Cross-entropy of the next token of running text: what a language model learns by."""

    smoothing: float = 0.0

    def __call__(self, model: Any, batch: LanguageBatch) -> Loss:
        labels = batch.labels.flatten()
        states = model.hidden(batch.ids).flatten(0, 1)
        layer = model.to_logits
        total = linear_cross_entropy(states, layer.weight, layer.bias, labels, self.smoothing)
        return Loss(total, len(labels))
