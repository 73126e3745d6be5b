"""What a recipe costs before it is trained: no data is read.

Parameters, FLOPs and memory follow from formulas (`cost.families`) where somebody has written them
down; else the model is built and tried on one sentence (`cost.built`), and the report says so. What
only the data can tell, the size of a vocabulary or the number of classes, is assumed and said too.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from polyhead.cost.bills import Bill, Memory, memory_of, step_memory
from polyhead.cost.counter import can_be_tried, count_parameters, measure
from polyhead.cost.encoders import n_blanks, tokens_of_image
from polyhead.cost.families import BLANKED, CACHES, TWO_SIDED, bill
from polyhead.cost.parts import Cost
from polyhead.cost.published import TABLE_2, TRAININGS
from polyhead.cost.stack import Shape
from polyhead.errors import ConfigError
from polyhead.layers.positions import BOUNDED_POSITIONS
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.training.config import CONTINUED, SIZES, RunConfig

LENGTH = 30  # tokens of a sentence, about as many as WMT's have
WINDOWED = ("gpt", "reformer")  # read running text in windows of data.max_length
STACKS = {  # Table 3 of the paper
    "base": StackConfig(),
    "big": StackConfig(d_model=1024, n_heads=16, d_ff=4096, dropout=0.3),
}


@dataclass(frozen=True)
class Reference:
    """A model of the paper: its figures as published, and our count of the products alone."""

    name: str
    parameters: float
    flops: float  # time x devices x sustained throughput
    counted: float


@dataclass(frozen=True)
class Figures:
    """A `Cost` of which some may be unknown."""

    parameters: int
    forward: int | None = None
    backward: int | None = None
    kept: int | None = None

    @property
    def training(self) -> int | None:
        """FLOPs of the way forward and the way back."""
        if self.forward is None or self.backward is None:
            return None
        return self.forward + self.backward

    @staticmethod
    def of(cost: Cost) -> "Figures":
        """All of them are known."""
        return Figures(cost.parameters, cost.forward, cost.backward, cost.kept)


@dataclass(frozen=True)
class Counted:
    """What one batch costs, however it was found out."""

    measured: bool
    parts: dict[str, Figures]
    total: Figures
    per_token: dict[str, float | None]  # training FLOPs: source, target, and the mean of both
    memory: Memory


@dataclass(frozen=True)
class CostReport:
    """Everything that `polyhead cost` shows; None is what nobody knows."""

    family: str
    shape: Shape  # one training batch
    measured: bool  # on a model that was built, not computed by formulas
    assumed: list[str]  # what only the data can tell
    parts: dict[str, Figures]  # if measured, their parameters only
    total: Figures
    per_token: dict[str, float | None]
    tokens: int | None  # source and target together, in the whole training
    flops: float | None
    memory: Memory
    beam: int
    cache: int | None  # bytes for one sentence; None if it does not decode, or nobody has counted
    references: list[Reference]

    def plain(self) -> dict[str, Any]:
        """All of it as JSON knows it."""
        values = asdict(self)
        values["memory"]["total"] = self.memory.total
        for name, part in [*self.parts.items(), ("", self.total)]:
            place = values["parts"][name] if name else values["total"]
            place["training"] = part.training
        return values


def cost(run: RunConfig, *, tokens: int | None = None, length: int | None = None) -> CostReport:
    """Count what this run will cost if its sentences have `length` tokens on both sides.

    Unless given, that is 30, the whole window of a language model, all patches of an image.
    `tokens` are those of the whole training, source and target together; unless given they are
    steps x accumulate x max_tokens, which is unknown if the recipe counts in epochs.
    """
    if tokens is not None and tokens < 1:
        raise ConfigError(f"tokens {tokens}: expected at least 1")
    run, assumed = _sized(run)
    if run.train.init is not None and run.family in CONTINUED:
        assumed.append("sizes as in the recipe: those of train.init are not looked at")
    length = _length(run, length)
    shape = _batch(run, length)
    counted = _count(run, shape)
    seen = _tokens(run) if tokens is None else tokens
    mean = counted.per_token["mean"]
    caching = CACHES.get(run.family)
    one = Shape(1, run.decode.limit(length), shape.source and length)
    return CostReport(
        family=run.family,
        shape=shape,
        measured=counted.measured,
        assumed=assumed,
        parts=counted.parts,
        total=counted.total,
        per_token=counted.per_token,
        tokens=seen,
        flops=None if seen is None or mean is None else mean * seen,
        memory=counted.memory,
        beam=run.decode.beam,
        cache=caching(run.model, one, run.decode.beam) if caching else None,
        references=[reference(name, length if shape.source else LENGTH) for name in TRAININGS],
    )


def reference(name: str, length: int = LENGTH) -> Reference:
    """The paper's base or big model: what it says, and what the products come to."""
    training = TRAININGS[name]
    config = TransformerConfig(stack=STACKS[name])
    counted = bill("transformer", config, Shape(1, length, length))
    mean = counted.total.training / (2 * length)
    in_all = mean * training.steps * training.tokens
    return Reference(TABLE_2[name].name, training.parameters, training.flops, in_all)


def _sized(run: RunConfig) -> tuple[RunConfig, list[str]]:
    """The run with the sizes that training would take from the data, as far as they are known."""
    model, vocab = run.model, run.text.vocab
    if run.family == "vit":
        return run, [f"{model.classes:,} classes: model.classes, until the images say how many"]
    fewer = "text.vocab; a small text gives fewer"
    if run.text.kind in ("characters", "words"):
        fewer = f"text.vocab; if the text has fewer {run.text.kind}, as many as it has"
    if run.family == "classifier":  # as in training, one id more than the tokenizer's: [MASK]
        model = replace(model, encoder=replace(model.encoder, vocab=vocab + 1))
        assumed = [
            f"a vocabulary of {vocab:,} and [MASK]: {fewer}",
            f"{model.classes:,} classes: model.classes, until the texts say how many",
        ]
        if run.train.init is not None:
            assumed.append("an encoder as in the recipe: that of train.init is not looked at")
        return replace(run, model=model), assumed
    if run.family in BLANKED:
        model = replace(model, vocab=vocab + 1)
        share = f"blanks at {run.data.blanks:.0%} of the tokens: data.blanks"
        return replace(run, model=model), [f"a vocabulary of {vocab:,} and [MASK]: {fewer}", share]
    sizes = {getattr(model, name) for name in SIZES[run.family]}
    given = " and ".join(f"{size:,}" for size in sorted(sizes))
    return run, [f"a vocabulary of {given}: {fewer if sizes == {vocab} else 'as given'}"]


def _length(run: RunConfig, asked: int | None) -> int:
    """How long a sentence is, once it is clear that the model can read it."""
    if run.family == "vit":
        tokens = tokens_of_image(run.model)
        if asked not in (None, tokens):
            raise ConfigError(
                f"length {asked}: an image of this model always has {tokens} tokens; leave it out"
            )
        return tokens
    if asked is None:
        window = run.data.max_length
        return window if run.family in WINDOWED else min(LENGTH, window)
    if asked < 1:
        raise ConfigError(f"length {asked}: expected at least 1 token")
    reader = run.model.encoder if run.family == "classifier" else run.model
    if getattr(reader, "positions", None) in BOUNDED_POSITIONS and asked > reader.max_length:
        raise ConfigError(
            f"length {asked}: the model learns only {reader.max_length} positions; give less, or "
            "raise model.max_length"
        )
    return asked


def _batch(run: RunConfig, length: int) -> Shape:
    """The largest batch: `max_tokens` count both sides, if there are two."""
    two_sided = run.family in TWO_SIDED
    sentences = max(1, run.train.max_tokens // (2 * length if two_sided else length))
    return Shape(sentences, length, length if two_sided else 0)


def _tokens(run: RunConfig) -> int | None:
    if run.train.epochs is not None:
        return None
    return run.train.steps * run.train.accumulate * run.train.max_tokens


def _count(run: RunConfig, shape: Shape) -> Counted:
    """By formulas if there are any, else by trying."""
    try:
        counted = bill(run.family, run.model, shape, blanks=run.data.blanks)
    except ConfigError:
        return _try(run, shape)
    parts = {name: Figures.of(part) for name, part in counted.parts.items()}
    total = Figures.of(counted.total)
    return Counted(False, parts, total, _per_token(counted), step_memory(counted))


def _try(run: RunConfig, shape: Shape) -> Counted:
    """On the model itself, unless it is too large for that; its parameters are always known."""
    parts = {
        name: Figures(number) for name, number in count_parameters(run.family, run.model).items()
    }
    numbers = sum(part.parameters for part in parts.values())
    total, mean = Figures(numbers), None
    if can_be_tried(numbers, shape):
        work = measure(run.family, run.model, shape, blanks=run.data.blanks)
        total = Figures(numbers, work.forward, work.backward, work.kept)
        positions = shape.positions + shape.source_positions
        mean = (work.forward + work.backward) / positions
    blanked = run.family in BLANKED
    asked = n_blanks(shape, run.data.blanks) if blanked else shape.positions
    vocab = 0
    if run.family in SIZES and run.family != "electra":
        vocab = getattr(run.model, SIZES[run.family][-1])
    memory = memory_of(numbers, total.kept, vocab, asked)
    return Counted(True, parts, total, {"source": None, "target": None, "mean": mean}, memory)


def _per_token(counted: Bill) -> dict[str, float | None]:
    source, target = counted.per_token
    n_all = counted.shape.positions + counted.shape.source_positions
    return {"source": source, "target": target, "mean": counted.total.training / n_all}
