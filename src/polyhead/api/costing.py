"""What a recipe costs, from its configuration alone: nothing is built, no data is read."""

from dataclasses import asdict, dataclass
from typing import Any

from polyhead.api.run import Run
from polyhead.cost.families import BILLS, CACHES, TWO_SIDED, Bill, Memory, bill, step_memory
from polyhead.cost.parts import Cost
from polyhead.cost.published import TABLE_2, TRAININGS
from polyhead.cost.stack import Shape
from polyhead.errors import ConfigError
from polyhead.layers.stack import StackConfig
from polyhead.models.transformer import TransformerConfig

LENGTH = 30  # tokens of a sentence, about as many as WMT's have
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
class CostReport:
    """Everything that `polyhead cost` shows."""

    family: str
    shape: Shape  # one training batch
    parts: dict[str, Cost]
    total: Cost
    per_token: dict[str, float]  # training FLOPs: source, target, and the mean of both
    tokens: int | None  # source and target together, in the whole training
    flops: float | None
    memory: Memory
    beam: int
    cache: int | None  # bytes for one sentence; None if the family does not decode
    references: list[Reference]

    def plain(self) -> dict[str, Any]:
        """All of it as JSON knows it."""
        values = asdict(self)
        values["memory"]["total"] = self.memory.total
        for name, part in [*self.parts.items(), ("", self.total)]:
            place = values["parts"][name] if name else values["total"]
            place["training"] = part.training
        return values


def cost(run: Run, *, tokens: int | None = None, length: int = LENGTH) -> CostReport:
    """Count what this run will cost if its sentences have `length` tokens on both sides.

    `tokens` are those of the whole training, source and target together; unless given they are
    steps x accumulate x max_tokens, which is unknown if the recipe counts in epochs.
    """
    if length < 1:
        raise ConfigError(f"length {length}: expected at least 1 token")
    if tokens is not None and tokens < 1:
        raise ConfigError(f"tokens {tokens}: expected at least 1")
    if run.family not in BILLS:
        known = ", ".join(BILLS)
        raise ConfigError(f"cost: no formulas for the family {run.family!r}; there are {known}")
    shape = _batch(run, length)
    counted = bill(run.family, run.model, shape)
    seen = _tokens(run) if tokens is None else tokens
    per_token = _per_token(counted)
    caching = CACHES.get(run.family)
    one = Shape(1, run.decode.limit(length), shape.source and length)
    return CostReport(
        family=run.family,
        shape=shape,
        parts=counted.parts,
        total=counted.total,
        per_token=per_token,
        tokens=seen,
        flops=None if seen is None else per_token["mean"] * seen,
        memory=step_memory(counted),
        beam=run.decode.beam,
        cache=caching(run.model, one, run.decode.beam) if caching else None,
        references=[reference(name, length) for name in TRAININGS],
    )


def reference(name: str, length: int = LENGTH) -> Reference:
    """The paper's base or big model: what it says, and what the products come to."""
    training = TRAININGS[name]
    config = TransformerConfig(stack=STACKS[name])
    mean = _per_token(bill("transformer", config, Shape(1, length, length)))["mean"]
    counted = mean * training.steps * training.tokens
    return Reference(TABLE_2[name].name, training.parameters, training.flops, counted)


def _batch(run: Run, length: int) -> Shape:
    """The largest batch: `max_tokens` count both sides, if there are two."""
    two_sided = run.family in TWO_SIDED
    sentences = max(1, run.train.max_tokens // (2 * length if two_sided else length))
    return Shape(sentences, length, length if two_sided else 0)


def _tokens(run: Run) -> int | None:
    if run.train.epochs is not None:
        return None
    return run.train.steps * run.train.accumulate * run.train.max_tokens


def _per_token(counted: Bill) -> dict[str, float]:
    source, target = counted.per_token
    n_all = counted.shape.positions + counted.shape.source_positions
    return {"source": source, "target": target, "mean": counted.total.training / n_all}
