"""The training loop: the only one, for every family.

It knows nothing of text, files or screens. These come in as an objective, an iterator of batches
and callbacks; `polyhead.training.trainer` is where they are put together.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyhead.data.batches.base import DataPosition
from polyhead.errors import PolyheadError
from polyhead.training.losses import Objective
from polyhead.training.optim import OptimizerConfig, ScheduleConfig, set_rate
from polyhead.training.reward import RewardConfig

T = TypeVar("T")
SEEDS = 2**63  # how many there are
MAX_SKIPS = 3  # updates in a row without a finite gradient before the run is rolled back


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Everything is counted in updates; `accumulate` batches make one update."""

    steps: int = 100_000
    epochs: float | None = None  # if given, steps follow from it
    max_tokens: int = 4096  # in one batch: source plus target, padding included
    accumulate: int = 1
    clip_norm: float = 1.0  # 0 for no clipping
    smoothing: float = 0.1
    seed: int = 1
    init: str | None = None  # a pre-trained model to begin from, if the family can
    workers: int = 0  # processes that prepare batches; the result does not depend on it
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    bf16: bool = False
    compile: bool = False
    log_every: int = 50
    validate_every: int = 1000
    save_every: int = 1000
    keep: int = 3  # checkpoints beside the best
    patience: int = 0  # validations without a new best before stopping; 0 never stops early
    judge_by: Literal["loss", "bleu", "accuracy"] = "loss"
    bleu_sentences: int = 200  # of the validation set, translated at each validation; 0 for none
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)

    def __post_init__(self) -> None:
        least = {
            "steps": 1, "max_tokens": 1, "accumulate": 1, "log_every": 1, "validate_every": 1,
            "save_every": 1, "keep": 1, "clip_norm": 0, "seed": 0, "workers": 0, "patience": 0,
            "bleu_sentences": 0,
        }  # fmt: skip
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise ValueError(f"{name} = {getattr(self, name)}: expected at least {limit}")
        if self.seed >= SEEDS:
            raise ValueError(f"seed = {self.seed}: expected less than 2^63")
        if self.epochs is not None and self.epochs <= 0:
            raise ValueError(f"epochs = {self.epochs}: expected more than 0")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing = {self.smoothing}: expected 0 or more, and less than 1")
        if self.judge_by == "bleu" and not self.bleu_sentences:
            raise ValueError('judge_by = "bleu" needs bleu_sentences of at least 1')


@dataclass
class Progress:
    """Where a run stands. It is saved with every checkpoint; to resume is to pass it back in."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # used batches of this epoch
    best: float = math.inf  # lower is better: the loss, or minus BLEU
    best_step: int = 0
    since_best: int = 0
    tokens: int = 0  # real tokens trained on
    seconds: float = 0.0  # time spent training, over all sessions
    window_total: float = 0.0  # loss since the last log line …
    window_count: int = 0  # … and its predictions
    skipped: int = 0  # updates left out because the gradient was not finite
    skipped_in_a_row: int = 0
    rolled_back: int = 0
    rate_factor: float = 1.0  # halved by a roll-back

    @property
    def judged(self) -> bool:
        """Whether there is a best one yet."""
        return self.best < math.inf

    def judge(self, score: float) -> bool:
        """Take note of a validation score (lower is better); True if it is the best so far."""
        improved = score < self.best
        if improved:
            self.best, self.best_step = score, self.step
        self.since_best = 0 if improved else self.since_best + 1
        return improved

    def plain(self) -> dict[str, Any]:
        """All of it as JSON knows it: a best score that was not reached yet is left out."""
        return {name: value for name, value in asdict(self).items() if value != math.inf}


@dataclass(frozen=True)
class Update:
    """What one update was like."""

    loss: float  # per prediction
    norm: float  # of the gradient, before clipping
    rate: float
    tokens: int
    pieces: int  # batches it was made of: more than `accumulate` if memory ran out


@dataclass(frozen=True)
class Callbacks:
    """What happens beside the arithmetic."""

    updated: Callable[[Progress, Update], None]  # after every update
    validate: Callable[[Progress], float]  # a score; lower is better
    save: Callable[[Progress], None]
    stop: Callable[[], bool]  # True if somebody asked to leave


class NotFinite(Exception):
    """Several updates in a row had no finite gradient; whoever trains may roll back."""


def train(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[tuple[DataPosition, Any]],
    optimizer: Optimizer,
    learning_rate: Callable[[int], float],
    config: TrainConfig,
    callbacks: Callbacks,
    progress: Progress,
) -> None:
    """Train until the steps are done, patience is, or somebody asks to stop."""
    if over(config, progress):
        return
    device = next(model.parameters()).device
    parameters = [p for p in model.parameters() if p.requires_grad]

    for group in groups_of(config.accumulate, batches):
        rate = learning_rate(progress.step + 1) * progress.rate_factor
        set_rate(optimizer, rate)

        # 1. The gradient of the summed loss, one batch at a time.
        if not model.training:  # as after a validation
            model.train()
        moved = [batch.to(device) for _, batch in group]
        total, count, pieces = accumulate(model, objective, moved, config)

        # 2. One step along the gradient of the mean.
        norm = average_and_clip(parameters, count, config.clip_norm)
        finite = math.isfinite(norm) and math.isfinite(total)
        if finite:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        # 3. Take note: this is all that a resumed run needs to know.
        place = group[-1][0]
        progress.step += 1
        progress.epoch, progress.batch = place.epoch, place.step
        tokens = sum(batch.n_tokens for _, batch in group)
        progress.tokens += tokens
        if finite:
            progress.window_total += total
            progress.window_count += count
            progress.skipped_in_a_row = 0
        else:
            progress.skipped += 1
            progress.skipped_in_a_row += 1
            if progress.skipped_in_a_row >= MAX_SKIPS:
                raise NotFinite(f"step {progress.step}: loss {total / count}, gradient {norm}")

        # 4. Tell, test, save, leave.
        callbacks.updated(progress, Update(total / count, norm, rate, tokens, pieces))
        if _pause(config, callbacks, progress):
            break


def over(config: TrainConfig, progress: Progress) -> bool:
    """Whether a run has come to its end: all steps are done, or patience is."""
    return progress.step >= config.steps or 0 < config.patience <= progress.since_best


def _pause(config: TrainConfig, callbacks: Callbacks, progress: Progress) -> bool:
    """Validate and save when it is time to; True if the run ends here."""
    last = progress.step >= config.steps
    improved = False
    if last or progress.step % config.validate_every == 0:
        improved = progress.judge(callbacks.validate(progress))
    leaving = over(config, progress) or callbacks.stop()
    if leaving or improved or progress.step % config.save_every == 0:
        callbacks.save(progress)
    return leaving


class Summed(NamedTuple):
    """A loss summed over predictions, whose gradient was added up in `pieces`."""

    total: float
    predictions: int
    pieces: int


def accumulate(
    model: nn.Module, objective: Objective, batches: list[Any], config: TrainConfig
) -> Summed:
    """Add up the gradients of all batches.

    If memory runs out, everything is done again with every batch cut in two: the sum is the same.
    """
    before = torch.get_rng_state()
    while (found := _attempt(model, objective, batches, config)) is None:
        # Here nothing holds the failed attempt's tensors any more.
        model.zero_grad(set_to_none=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        torch.set_rng_state(before)
        batches = _smaller(batches)
    return found


def _attempt(
    model: nn.Module, objective: Objective, batches: list[Any], config: TrainConfig
) -> Summed | None:
    """The gradients of all batches, or None if they do not fit into memory."""
    device = next(model.parameters()).device.type
    totals, count = [], 0
    try:
        for batch in batches:
            with torch.autocast(device, torch.bfloat16, enabled=config.bf16):
                loss = objective(model, batch)
            loss.total.backward()
            totals.append(loss.total.detach())
            count += loss.count
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return None
    return Summed(sum(total.item() for total in totals), count, len(batches))


def _smaller(batches: list[Any]) -> list[Any]:
    halves = [half for batch in batches for half in batch.halves() if len(half)]
    if len(halves) == len(batches):
        raise PolyheadError(
            "memory is exhausted even by one sentence at a time; make the model smaller, lower "
            "data.max_length, or close other programs"
        )
    return halves


def out_of_memory(error: BaseException) -> bool:
    """Whether this is the machine saying that there is no more room."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = str(error).lower()
    return "can't allocate memory" in words or "out of memory" in words


def average_and_clip(parameters: list[nn.Parameter], count: int, clip_norm: float) -> float:
    """Turn the gradient of a sum into that of a mean, at most `clip_norm` long; its length before.

    One pass over the numbers does both.
    """
    gradients: list[Tensor] = [p.grad for p in parameters if p.grad is not None]
    norms = torch._foreach_norm(gradients)
    norm = (torch.linalg.vector_norm(torch.stack(norms)) / count).item()
    shrink = min(1.0, clip_norm / (norm + 1e-6)) if clip_norm else 1.0  # as torch's clip_grad_norm_
    if math.isfinite(norm):
        factor = norms[0].new_tensor(shrink / count)  # a number would be copied
        torch._foreach_mul_(gradients, factor)  # … for each of them
    return norm


def groups_of(size: int, items: Iterable[T]) -> Iterator[list[T]]:
    """Cut a stream into lists of `size`; the last may be shorter."""
    stream = iter(items)
    while group := list(islice(stream, size)):
        yield group
