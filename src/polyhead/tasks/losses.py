"""Training losses of all tasks. An `Objective` computes a `Loss` from a model and a batch.

Losses are sums over predictions, with their count. The training loop divides the sum of all
accumulated batches once, so that every token has the same weight however the batches were cut.

    MaskedTokenLoss      L = Σ over masked positions of -log p(true token)      count: masked tokens
    ReplacedTokenLoss    L = (tokens / masked) · L_fill + λ · L_spot            count: all tokens
    ClassificationLoss   L = Σ over texts of -log p(class), of Σ over classes of BCE / C, or of
                             ((number - z) / scale)²                             count: texts
    ContrastiveLoss      see `models.sentence_encoder`                           count: pairs
    TagLoss              L = Σ over first tokens of words of -log p(tag)        count: words
    SpanLoss             L = ½ Σ over windows of -log p(start) - log p(end)     count: windows
    SoftLabelLoss        L = -Σ_i Σ_c t_ic · log softmax(z_i)_c,  t_ic = (1 - ε) y_ic + ε / C
    BalancedLoss         L = L_objective + Σ over gates (L_importance + L_load)   (Shazeer 2017)

ELECTRA adds two losses with different normalizers: the generator's by the masked tokens, the
discriminator's by all tokens that are not padding. The sum above divided by its count is

    L / tokens = L_fill / masked + λ · L_spot / tokens

as in the authors' code. Accumulated batches are weighted by their tokens; both halves of a batch
keep its ratio of tokens to masked tokens, so that splitting a batch does not change the loss.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.data.batches.images import ImageBatch
from polyhead.data.batches.labelled import PositionBatch, TextBatch, segments_of, split_pairs
from polyhead.data.batches.language_model import LanguageBatch
from polyhead.data.batches.masked import MaskedBatch
from polyhead.data.batches.translation import TranslationBatch
from polyhead.layers.cross_entropy import linear_cross_entropy
from polyhead.layers.mixture_of_experts import record_usage
from polyhead.metrics.perplexity import next_token_nll
from polyhead.plugin_registry import Registry
from polyhead.special_tokens import PAD


@dataclass(frozen=True)
class Loss:
    """A sum over `count` predictions."""

    total: Float[Tensor, ""]
    count: int


@runtime_checkable
class Objective(Protocol):
    """A loss function, called by the training loop and by validation."""

    def __call__(self, model: nn.Module, batch: Any) -> Loss:
        """Return the loss of a model on a batch."""
        ...


@runtime_checkable
class MakeObjective(Protocol):
    """A function that makes an objective for a run."""

    def __call__(self, setup: Any) -> Objective:
        """Return the objective, given the `polyhead.training.tasks.base.TaskSetup` of the run.

        It has the configuration, the tokenizers, and the task's own `objective`.
        """
        ...


OBJECTIVES = Registry[MakeObjective]("objective", {"task": lambda setup: setup.objective})
ObjectiveName = Annotated[str, OBJECTIVES]


@dataclass(frozen=True)
class TranslationLoss:
    """Cross-entropy of the next target token, with label smoothing (Vaswani et al. 2017, 5.4)."""

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
    """Cross-entropy of the next token of running text, for language models."""

    smoothing: float = 0.0

    def __call__(self, model: Any, batch: LanguageBatch) -> Loss:
        return Loss(next_token_nll(model, batch, self.smoothing), batch.labels.numel())


@dataclass(frozen=True)
class MaskedTokenLoss:
    """Cross-entropy of the masked tokens (Devlin et al. 2019, section 3.1)."""

    def __call__(self, model: Any, batch: MaskedBatch) -> Loss:
        (positions,) = batch.chosen.flatten().nonzero(as_tuple=True)
        labels = batch.ids.flatten()[positions]
        h, layer = model.transform(model.hidden(batch.blanked, only=positions)), model.to_logits
        total = linear_cross_entropy(h, layer.weight, layer.bias, labels)
        return Loss(total, max(1, len(labels)))  # a batch of unknown words has no masked tokens


@dataclass(frozen=True)
class ReplacedTokenLoss:
    """ELECTRA's generator and discriminator losses (Clark et al. 2020)."""

    pad: int

    def __call__(self, model: Any, batch: MaskedBatch) -> Loss:
        output, real = model(batch.ids, batch.blanked, batch.chosen), batch.ids != self.pad
        labels = batch.ids[batch.chosen]
        fill = F.cross_entropy(output.generated.float(), labels, reduction="sum")
        spot = F.binary_cross_entropy_with_logits(
            output.suspicion.float()[real], output.replaced[real].float(), reduction="sum"
        )
        return Loss(batch.tokens_per_blank * fill + model.spotting * spot, batch.n_tokens)


@dataclass(frozen=True)
class ClassificationLoss:
    """Loss of the label of each text: one class, several or a number, as the model's problem is."""

    smoothing: float = 0.0

    def __call__(self, model: Any, batch: TextBatch) -> Loss:
        logits = model(batch.ids, segments_of(batch.ids)).float()
        total = label_loss(logits, batch.labels, model, self.smoothing)
        return Loss(total, len(batch.labels))


def label_loss(
    logits: Float[Tensor, "batch classes"],
    labels: Shaped[Tensor, "batch *classes"],
    model: Any,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the loss of a text classifier, summed over the batch."""
    if model.problem == "regression":
        return F.mse_loss(logits[:, 0], labels, reduction="sum") / model.scale**2
    if model.problem == "multi_label":
        targets = labels * (1 - smoothing) + smoothing / 2
        total = F.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        return total / logits.size(1)
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)


@dataclass(frozen=True)
class ContrastiveLoss:
    """Cross-entropy of the partner of each text among those of the batch, in both directions."""

    def __call__(self, model: Any, batch: TextBatch) -> Loss:
        sides = split_pairs(batch.ids)
        first, second = map(model, sides)
        similarity = first @ second.T / model.temperature
        places = torch.arange(len(similarity), device=similarity.device)
        # a text that occurs twice has two right partners: neither is a wrong one for the other
        twice = [(side[:, None] == side[None]).all(-1) for side in sides]
        others = (twice[0] | twice[1]) & (places[:, None] != places)
        similarity = similarity.masked_fill(others, -torch.inf)
        both = (similarity, similarity.T)
        total = sum(F.cross_entropy(rows, places, reduction="sum") for rows in both)
        return Loss(torch.as_tensor(total) / 2, len(places))


@dataclass(frozen=True)
class SimilarityLoss:
    """Squared error of the cosine of each pair; its score from `low` to `high` is 0 to 1 there."""

    low: float
    high: float

    def __call__(self, model: Any, batch: TextBatch) -> Loss:
        first, second = map(model, split_pairs(batch.ids))
        wanted = (batch.labels - self.low) / (self.high - self.low)
        return Loss(((first * second).sum(-1) - wanted).square().sum(), len(wanted))


@dataclass(frozen=True)
class TagLoss:
    """Cross-entropy of the tag of each word, at its first token, with label smoothing."""

    smoothing: float = 0.0

    def __call__(self, model: Any, batch: PositionBatch) -> Loss:
        (words,) = (batch.labels >= 0).flatten().nonzero(as_tuple=True)
        labels = batch.labels.flatten()[words]
        logits = model(batch.ids).flatten(0, 1).index_select(0, words).float()
        total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=self.smoothing)
        return Loss(total, len(labels))


@dataclass(frozen=True)
class SpanLoss:
    """Mean cross-entropy of the first and the last token of each answer; padding is no choice."""

    def __call__(self, model: Any, batch: PositionBatch) -> Loss:
        logits = span_logits(model, batch.ids).transpose(1, 2).flatten(0, 1)
        total = F.cross_entropy(logits, batch.labels.flatten(), reduction="sum") / 2
        return Loss(total, len(batch.labels))


def span_logits(model: Any, ids: Tensor) -> Float[Tensor, "batch length 2"]:
    """Return the logits of start and end, -∞ at padding."""
    logits: Tensor = model(ids, segments_of(ids)).float()
    return logits.masked_fill((ids == PAD).unsqueeze(-1), -torch.inf)


@dataclass(frozen=True)
class SoftLabelLoss:
    """Cross-entropy of images whose labels are class probabilities, as after mixup or CutMix."""

    smoothing: float = 0.0

    def __call__(self, model: Any, batch: ImageBatch) -> Loss:
        logits = model(batch.images)
        with torch.autocast(logits.device.type, enabled=False):
            total = soft_cross_entropy(logits.float(), batch.targets, self.smoothing)
        return Loss(total, len(batch.images))


def soft_cross_entropy(
    logits: Float[Tensor, "batch classes"],
    targets: Float[Tensor, "batch classes"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the cross-entropy of class probabilities, summed over the batch."""
    smooth = targets * (1 - smoothing) + smoothing / targets.size(-1)
    return -(smooth * logits.log_softmax(-1)).sum()


@dataclass(frozen=True)
class BalancedLoss:
    """An objective plus the balancing losses of a mixture of experts (Shazeer et al. 2017, 4).

    The balancing loss of a batch counts once per prediction, so that the mean over them is L.
    """

    objective: Objective

    def __call__(self, model: nn.Module, batch: Any) -> Loss:
        with record_usage(model, learning=True) as usages:
            loss = self.objective(model, batch)
        total = loss.total
        for usage in usages.values():
            total = total + loss.count * usage.loss
        return Loss(total, loss.count)
