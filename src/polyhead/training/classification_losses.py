"""What a text classifier is trained for: the cross-entropy of the right class."""

from dataclasses import dataclass
from typing import Any

from torch.nn import functional as F

from polyhead.data.batches.labelled import TextBatch
from polyhead.training.losses import Loss


@dataclass(frozen=True)
class ClassificationLoss:
    """-log p(class | text), summed over the texts of a batch; with label smoothing if asked for."""

    smoothing: float = 0.0

    def __call__(self, model: Any, batch: TextBatch) -> Loss:
        logits = model(batch.ids).float()
        total = F.cross_entropy(
            logits, batch.labels, reduction="sum", label_smoothing=self.smoothing
        )
        return Loss(total, len(batch.labels))
