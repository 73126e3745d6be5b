"""What torch counts of a model that is built for it: where no formula has been written down.

    parameters   of every part, by its name in the model          nothing is computed for this
    FLOPs        of learning from one sentence, times the batch    `cost.measured.products`
    kept         k(b) = k(1) + (b - 1) · (k(2) - k(1))             `cost.measured.kept_bytes`

All work grows with the number of sentences and nothing else does, so that one is enough; of what
autograd keeps, something may be there once for all of them, so that it takes two. Which tokens are
read changes no count: they are all the same.

A model that would take long to build or to run is not tried; its FLOPs stay unknown (None).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from polyhead.cost.encoders import n_blanks
from polyhead.cost.measured import kept_bytes, products
from polyhead.cost.parts import FLOAT
from polyhead.cost.stack import Shape
from polyhead.errors import ConfigError
from polyhead.layers.cross_entropy import linear_cross_entropy
from polyhead.models.registry import FAMILIES

WORD = 1  # any token that is not padding
MOST_PARAMETERS = 200_000_000  # that are built to be measured
MOST_FLOPS = 2e11  # that are computed, by the rule of 6 for each parameter and position


@dataclass(frozen=True)
class Work:
    """What one batch takes: FLOPs, and bytes that autograd keeps."""

    forward: int
    backward: int
    kept: int


def count_parameters(family: str, config: Any) -> dict[str, int]:
    """Of every part that the model consists of; what is shared counts where it stands first."""
    with torch.device("meta"):
        model: nn.Module = FAMILIES[family].model(config)
    found: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        found[part] = found.get(part, 0) + parameter.numel()
    return found


def can_be_tried(n_parameters: int, shape: Shape) -> bool:
    """Whether measuring takes a few seconds at most."""
    work = 6.0 * n_parameters * (shape.length + shape.source)
    return n_parameters <= MOST_PARAMETERS and work <= MOST_FLOPS


def measure(family: str, config: Any, shape: Shape, *, blanks: float) -> Work:
    """Build the model and let it learn from one sentence. Nothing random is left changed."""
    with torch.random.fork_rng(devices=[]):
        model = FAMILIES[family].model(config).train()
        one, two = (_lesson(family, model, config, _some(shape, n), blanks) for n in (1, 2))
        try:
            forward = products(one.say)
            training = products(lambda: one.learn().backward())
            kept = [kept_bytes(lesson.learn, model.parameters()) for lesson in (one, two)]
        except ValueError as refusal:  # such as a sentence beyond the last position
            raise ConfigError(f"length {shape.length}: {refusal}") from None
    every = kept[1] - kept[0]
    fused = _kept_by_fused_loss(family, model, shape, blanks)
    return Work(
        forward * shape.batch,
        (training - forward) * shape.batch,
        kept[0] + every * (shape.batch - 1) + fused,
    )


class Lesson(NamedTuple):
    """The way forward, and the same up to a loss."""

    say: Callable[[], Any]
    learn: Callable[[], Tensor]


def _some(shape: Shape, batch: int) -> Shape:
    """So many of these sentences."""
    return Shape(batch, shape.length, shape.source)


def _lesson(family: str, model: Any, config: Any, shape: Shape, blanks: float) -> Lesson:
    """What this family does in training."""
    words = torch.full((shape.batch, shape.length), WORD)
    asked = n_blanks(shape, blanks)
    if family == "vit":
        images = torch.zeros(shape.batch, config.channels, config.height, config.width)
        return Lesson(lambda: model(images), lambda: model(images).log_softmax(-1).sum())
    if family == "classifier":
        return Lesson(lambda: model(words), lambda: model(words).log_softmax(-1).sum())
    if family == "electra":
        chosen = (torch.arange(words.numel()) < asked).view(words.shape)
        return Lesson(lambda: model(words, words, chosen), lambda: _round(model, words, chosen))
    if family == "bert":
        places = torch.arange(asked)
        return _fused(model, lambda: model.transform(model.hidden(words, only=places)))
    if shape.source:
        source = torch.full((shape.batch, shape.source), WORD)
        return _fused(model, lambda: model.hidden(source, words).flatten(0, 1))
    return _fused(model, lambda: model.hidden(words).flatten(0, 1))


def _fused(model: Any, states: Callable[[], Tensor]) -> Lesson:
    """An output layer that is one with its loss, as translators and language models have it."""
    layer = model.to_logits

    def learn() -> Tensor:
        h = states()
        labels = torch.full((len(h),), WORD)
        return linear_cross_entropy(h, layer.weight, layer.bias, labels)

    return Lesson(lambda: layer(states()[None]), learn)


def _round(model: Any, words: Tensor, chosen: Tensor) -> Tensor:
    """One round of ELECTRA's game."""
    said = model(words, words, chosen)
    return said.generated.log_softmax(-1).sum() + said.suspicion.sigmoid().sum()


def _kept_by_fused_loss(family: str, model: Any, shape: Shape, blanks: float) -> int:
    """Gradients of its input and of its weight, which autograd does not know of."""
    if family in ("vit", "classifier", "electra"):
        return 0
    vocab, d_model = model.to_logits.weight.shape
    n = n_blanks(shape, blanks) if family == "bert" else shape.positions
    return FLOAT * d_model * (n + vocab)
