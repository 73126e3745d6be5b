"""Cost of a recipe before it is trained: parameters, FLOPs and memory; no data is read.

What depends on the data, such as the size of a vocabulary, is assumed, and the report says so.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from polyhead.cost.breakdown import (
    CostBreakdown,
    StepMemory,
    cache_size,
    cost_of,
    count_parameters,
    n_masked,
    step_memory,
)
from polyhead.cost.counter import FUSED, is_measurable, measure
from polyhead.cost.formulas import Cost, Shape
from polyhead.cost.published import TABLE_2, TRAININGS
from polyhead.errors import ConfigError
from polyhead.models.registry import (
    FAMILIES,
    FINE_TUNED,
    has_mask_token,
    max_positions,
    vocab_fields,
)
from polyhead.models.transformer import PUBLISHED
from polyhead.training.config import RunConfig

LENGTH = 30  # tokens of a sentence, about as many as in WMT


@dataclass(frozen=True)
class Reference:
    """A model of the paper: its figures as published, and our count of the products alone."""

    name: str
    parameters: float
    flops: float  # time x devices x sustained throughput
    counted: float


@dataclass(frozen=True)
class PartCost:
    """Parameters of a part, and its cost in one batch; None where unknown."""

    parameters: int
    forward: int | None = None
    backward: int | None = None
    kept: int | None = None  # bytes saved for backward
    training: int | None = None  # forward and backward

    @staticmethod
    def of(parameters: int, cost: Cost) -> "PartCost":
        """Combine the parameters of a part with its FLOPs and memory."""
        return PartCost(parameters, cost.forward, cost.backward, cost.saved, cost.training)


@dataclass(frozen=True)
class CostReport:
    """Figures shown by `polyhead cost`; None where unknown."""

    family: str
    shape: Shape  # one training batch
    measured: bool  # on a model that was built, not computed by formulas
    assumed: list[str]
    parts: dict[str, PartCost]  # if measured, their parameters only
    total: PartCost
    per_token: dict[str, float | None]
    tokens: int | None  # source and target together, in the whole training
    flops: float | None
    memory: StepMemory
    beam: int
    cache: int | None  # bytes for one sentence; None if the model does not decode, or no formula
    references: list[Reference]

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON values."""
        values = asdict(self)
        values["memory"]["total"] = self.memory.total
        return values


def cost_report(
    run: RunConfig, *, tokens: int | None = None, length: int | None = None
) -> CostReport:
    """Return the cost of a run.

    tokens: of the whole training, source and target together; by default steps x accumulate x
        max_tokens, or unknown if the recipe counts in epochs.
    length: tokens of a sentence on both sides; by default 30, a language model's whole window, or
        all patches of an image.
    """
    if tokens is not None and tokens < 1:
        raise ConfigError(f"tokens {tokens}: expected at least 1", "out_of_range")
    run, assumed = _with_sizes(run)
    length = _length(run, length)
    two_sided = FAMILIES[run.family].task == "translation"
    # max_tokens counts both sides if there are two
    sentences = max(1, run.train.max_tokens // (2 * length if two_sided else length))
    shape = Shape(sentences, length, length if two_sided else 0)
    try:
        cost = cost_of(run.family, run.model, shape, masked_share=run.data.blanks)
    except ConfigError:
        measured, (parts, total, memory) = True, _measured_cost(run, shape)
        source = target = None
    else:
        measured, (parts, total, memory) = False, _formula_cost(run, cost)
        source, target = cost.per_token
    mean = None
    if total.training is not None:
        mean = total.training / (shape.positions + shape.source_positions)
    if tokens is None and run.train.epochs is None:
        tokens = run.train.steps * run.train.accumulate * run.train.max_tokens
    sentence = Shape(1, run.decode.limit(length), shape.source and length)
    return CostReport(
        family=run.family,
        shape=shape,
        measured=measured,
        assumed=assumed,
        parts=parts,
        total=total,
        per_token={"source": source, "target": target, "mean": mean},
        tokens=tokens,
        flops=None if tokens is None or mean is None else mean * tokens,
        memory=memory,
        beam=run.decode.beam,
        cache=cache_size(run.family, run.model, sentence, run.decode.beam),
        references=[reference(name, length if shape.source else LENGTH) for name in TRAININGS],
    )


def reference(name: str, length: int = LENGTH) -> Reference:
    """Return the figures of the paper's base or big model."""
    training = TRAININGS[name]
    config = PUBLISHED[f"transformer-{name}"]
    cost = cost_of("transformer", config, Shape(1, length, length)).total
    flops = cost.training / (2 * length) * training.steps * training.tokens
    return Reference(TABLE_2[name].name, training.parameters, training.flops, flops)


def _with_sizes(run: RunConfig) -> tuple[RunConfig, list[str]]:
    """Return the run with the sizes that training would take from the data, as far as known."""
    model, vocab, task = run.model, run.text.vocab, FAMILIES[run.family].task
    size = "text.vocab; a small text gives fewer"
    if run.text.kind in ("characters", "words"):
        size = f"text.vocab; if the text has fewer {run.text.kind}, as many as it has"
    initialized = "sizes as in the recipe: those of train.init are not looked at"
    assumed = []
    if has_mask_token(run.family):  # as in training, one id more than the tokenizer's
        assumed.append(f"a vocabulary of {vocab:,} and [MASK]: {size}")
    if task == "image_classification":
        assumed.append(f"{model.classes:,} classes: model.classes, until the images say how many")
    elif task in FINE_TUNED:
        model = replace(model, encoder=replace(model.encoder, vocab=vocab + 1))
        if hasattr(model, "classes"):
            assumed.append(
                f"{model.classes:,} classes: model.classes, until the texts say how many"
            )
        initialized = "an encoder as in the recipe: that of train.init is not looked at"
    elif has_mask_token(run.family):
        model = replace(model, vocab=vocab + 1)
        assumed.append(f"blanks at {run.data.blanks:.0%} of the tokens: data.blanks")
    else:
        sizes = {getattr(model, name) for name in vocab_fields(model)}
        given = " and ".join(f"{size:,}" for size in sorted(sizes))
        assumed.append(f"a vocabulary of {given}: {size if sizes == {vocab} else 'as given'}")
    if run.train.init is not None and task != "translation":
        assumed.append(initialized)
    return replace(run, model=model), assumed


def _length(run: RunConfig, length: int | None) -> int:
    """Return the length of a sentence, after checking that the model can read it."""
    task = FAMILIES[run.family].task
    if task == "image_classification":
        tokens: int = run.model.n_tokens
        if length not in (None, tokens):
            raise ConfigError(
                f"length {length}: an image of this model always has {tokens} tokens; leave it out",
                "fixed_length",
            )
        return tokens
    if length is None:
        window = run.data.max_length
        return window if task == "language_modeling" else min(LENGTH, window)
    if length < 1:
        raise ConfigError(f"length {length}: expected at least 1 token", "out_of_range")
    longest = max_positions(run.model)
    if longest is not None and length > longest:
        raise ConfigError(
            f"length {length}: the model learns only {longest} positions; give less, or "
            "raise model.max_length",
            "length_too_long",
        )
    return length


Costs = tuple[dict[str, PartCost], PartCost, StepMemory]  # of the parts, of all, of a step


def _formula_cost(run: RunConfig, cost: CostBreakdown) -> Costs:
    counts = count_parameters(run.family, run.model, by_part=True)
    n_parameters = sum(counts.values())
    predictions = cost.shape.positions if cost.predictions is None else cost.predictions
    parts = {name: PartCost.of(counts.get(name, 0), part) for name, part in cost.parts.items()}
    memory = step_memory(n_parameters, cost.total.saved, cost.vocab, predictions)
    return parts, PartCost.of(n_parameters, cost.total), memory


def _measured_cost(run: RunConfig, shape: Shape) -> Costs:
    """Measure one sentence, unless the model is too large; the parameters are always known."""
    counts = count_parameters(run.family, run.model)
    n_parameters, task = sum(counts.values()), FAMILIES[run.family].task
    total = PartCost(n_parameters)
    if is_measurable(n_parameters, shape):
        cost = measure(run.family, run.model, shape, masked_share=run.data.blanks)
        total = PartCost.of(n_parameters, cost)
    predictions = shape.positions
    if task in ("masked_lm", "replaced_token"):
        predictions = n_masked(shape, run.data.blanks)
    vocab = getattr(run.model, vocab_fields(run.model)[-1]) if task in FUSED else 0
    memory = step_memory(n_parameters, total.kept, vocab, predictions)
    return {name: PartCost(count) for name, count in counts.items()}, total, memory
