"""A bill: what each part of a model costs, and what a training step makes of it in memory."""

from dataclasses import dataclass
from typing import NamedTuple

from polyhead.cost.parts import FLOAT, NOTHING, Cost, table
from polyhead.cost.stack import Shape
from polyhead.layers.axial_positions import AxialConfig, grid_of
from polyhead.layers.cross_entropy import CHUNK
from polyhead.layers.positions import PositionKind


class PerToken(NamedTuple):
    """Training FLOPs that one token causes."""

    source: float
    target: float


@dataclass(frozen=True)
class Bill:
    """What each part costs, in the order of the picture.

    `vocab` is that of the output layer, `predictions` at how many positions it is asked (all of
    them unless given); `for_source` are the training FLOPs, of all, that positions of the source
    cause: the encoder, and its keys and values in the decoder.
    """

    shape: Shape
    parts: dict[str, Cost]
    vocab: int = 0
    for_source: int = 0
    predictions: int | None = None

    @property
    def total(self) -> Cost:
        """All parts together."""
        return sum(self.parts.values(), start=NOTHING)

    @property
    def per_token(self) -> PerToken:
        """Training FLOPs that one source token and one target token cause."""
        of_source = self.for_source / max(1, self.shape.source_positions)
        return PerToken(of_source, (self.total.training - self.for_source) / self.shape.positions)


@dataclass(frozen=True)
class Memory:
    """Bytes of one training step with Adam, in float32; None where nobody knows."""

    parameters: int
    gradients: int
    moments: int  # Adam's two averages
    activations: int | None  # what autograd keeps until the way back
    logits: int  # the chunk of them that exists at any time

    @property
    def total(self) -> int | None:
        """All of it; short-lived tensors come on top."""
        if self.activations is None:
            return None
        return self.parameters + self.gradients + self.moments + self.activations + self.logits


def step_memory(bill: Bill) -> Memory:
    """Memory of one training step."""
    asked = bill.shape.positions if bill.predictions is None else bill.predictions
    return memory_of(bill.total.parameters, bill.total.kept, bill.vocab, asked)


def memory_of(numbers: int, kept: int | None, vocab: int, predictions: int) -> Memory:
    """The same of so many parameters, and of a loss that takes its logits a chunk at a time.

    A vocabulary of 0 means a loss of another kind: what it needs is among what is kept.
    """
    rows = min(predictions, max(1, CHUNK // vocab)) if vocab else 0
    return Memory(FLOAT * numbers, FLOAT * numbers, 2 * FLOAT * numbers, kept, FLOAT * rows * vocab)


def position_tables(
    kind: PositionKind, d_model: int, max_length: int, axial: AxialConfig | None = None
) -> Cost:
    """The parameters of a position code; waves and rotations have none."""
    if kind == "learned":
        return table(max_length, d_model)
    if kind != "axial":
        return NOTHING
    shape, widths = grid_of(axial or AxialConfig(), d_model, max_length)
    return sum((table(side, d) for side, d in zip(shape, widths, strict=True)), start=NOTHING)
