"""The optimization loop of all families: gradients, clipping, updates, options and counters."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyhead.data.batches.base import DataPosition
from polyhead.errors import PolyheadError
from polyhead.metrics.named_metrics import MetricName
from polyhead.tasks.losses import Objective, ObjectiveName
from polyhead.tasks.reward import RewardConfig
from polyhead.training.optim import OptimizerConfig, ScheduleConfig
from polyhead.training.processes import Processes, Summed, left_size

N_SEEDS = 2**63
Gradients = list[Tensor | None]
MAX_SKIPS = 3  # updates in a row without a finite gradient before the run is rolled back


@dataclass(frozen=True)
class TrainConfig:
    """The table [train]. Steps are updates; `accumulate` batches make one update."""

    steps: int = 100_000
    epochs: float | None = None  # if set, replaces `steps`
    max_tokens: int = 4096  # in one batch: source plus target, padding included
    accumulate: int = 1
    clip_norm: float = 1.0  # 0 for no clipping
    smoothing: float = 0.1
    seed: int = 1
    init: str | None = None  # directory of a model to initialize from
    workers: int = 0  # processes that prepare batches; the result does not depend on them
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    exact: bool = True  # sums in a fixed order: equal bits on 1, 2, 4, … processes
    shard: bool = False  # several processes share weights, gradients and moments (FSDP2)
    timeout: int = 1800  # seconds that a process waits for the others in an update
    bf16: bool = False
    compile: bool = False
    log_every: int = 50
    validate_every: int = 1000
    save_every: int = 1000
    keep: int = 3  # checkpoints, beside the best
    patience: int = 0  # validations without improvement before stopping; 0 disables it
    judge_by: MetricName = "loss"  # one that validation reports, or a registered one
    objective: ObjectiveName = "task"  # loss that is trained; "task": the one of the task
    bleu_sentences: int = 200  # of the validation set, translated at each validation
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)

    def __post_init__(self) -> None:
        least = {
            "steps": 1, "max_tokens": 1, "accumulate": 1, "log_every": 1, "validate_every": 1,
            "save_every": 1, "keep": 1, "clip_norm": 0, "seed": 0, "workers": 0, "patience": 0,
            "bleu_sentences": 0, "timeout": 1,
        }  # fmt: skip
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise ValueError(f"{name} = {getattr(self, name)}: expected at least {limit}")
        if self.seed >= N_SEEDS:
            raise ValueError(f"seed = {self.seed}: expected less than 2^63")
        if self.epochs is not None and self.epochs <= 0:
            raise ValueError(f"epochs = {self.epochs}: expected more than 0")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing = {self.smoothing}: expected 0 or more, and less than 1")
        if self.judge_by == "bleu" and not self.bleu_sentences:
            raise ValueError('judge_by = "bleu" needs bleu_sentences of at least 1')


@dataclass
class Progress:
    """The state of a run beside its weights, saved with every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that were used
    best: float = math.inf  # score, lower is better: the loss, or minus BLEU
    best_step: int = 0
    since_best: int = 0
    tokens: int = 0  # without padding
    seconds: float = 0.0  # of training, over all sessions
    window_total: float = 0.0  # loss since the last log line
    window_count: int = 0  # number of its predictions
    skipped: int = 0  # updates without a finite gradient
    skipped_in_a_row: int = 0
    rolled_back: int = 0
    rate_factor: float = 1.0  # halved by a roll-back

    def judge(self, score: float) -> bool:
        """Record a validation score (lower is better); return True if it is the best."""
        improved = score < self.best
        if improved:
            self.best, self.best_step = score, self.step
        self.since_best = 0 if improved else self.since_best + 1
        return improved


@dataclass(frozen=True)
class Update:
    """Measurements of one update."""

    loss: float  # mean per prediction
    norm: float  # of the gradient, before clipping
    rate: float
    tokens: int
    pieces: int  # batches; more than `accumulate` if memory ran out


class NotFinite(Exception):
    """Several updates in a row had no finite gradient, or a weight is not finite."""


def train_loop(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[tuple[DataPosition, Any]],
    optimizer: Optimizer,
    learning_rate: Callable[[int], float],
    config: TrainConfig,
    progress: Progress,
    processes: Processes | None = None,
) -> Iterator[Update]:
    """Train a model and yield after every update; NotFinite after MAX_SKIPS skipped in a row.

    model: as built, or as returned by `polyhead.training.sharding.shard`.
    batches: those that this process computes, each with the position after its update.
    """
    processes = Processes() if processes is None else processes
    device = next(model.parameters()).device
    parameters = [p for p in model.parameters() if p.requires_grad]
    stream = iter(batches)
    numbers = processes.share_of(config.accumulate)  # of this process's batches in an update
    while not finished(config, progress) and (group := list(islice(stream, len(numbers)))):
        rate = learning_rate(progress.step + 1) * progress.rate_factor
        for layer in optimizer.param_groups:
            layer["lr"] = rate * layer.get("share", 1.0)  # smaller for lower ones, if configured

        # 1. The gradient of the summed loss, one batch at a time.
        if not model.training:  # as after a validation
            model.train()
        moved = [batch.to(device) for _, batch in group]
        # Seeds follow from step and number alone: a resumed run, or one of other processes, drops
        # out the same values.
        mixed = [np.random.SeedSequence([config.seed, progress.step, number]) for number in numbers]
        seeds = [int(seed.generate_state(1, np.uint64)[0] >> 1) for seed in mixed]
        add_gradients = accumulate_sharded if processes.in_step else accumulate
        summed = add_gradients(model, objective, moved, config, seeds)
        total, count, pieces, tokens = processes.add_up(parameters, summed, exact=config.exact)

        # 2. One step along the gradient of the mean.
        norm = average_and_clip(parameters, count, config.clip_norm, processes)
        finite = math.isfinite(norm) and math.isfinite(total)
        if finite:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        # 3. The counters, saved with every checkpoint.
        position = group[-1][0]
        progress.step += 1
        progress.epoch, progress.batch = position.epoch, position.step
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
        yield Update(total / count, norm, rate, tokens, pieces)


def finished(config: TrainConfig, progress: Progress) -> bool:
    """Return True if all steps are done, or validation stopped improving for too long."""
    return progress.step >= config.steps or 0 < config.patience <= progress.since_best


def set_seed(seed: int, device: torch.device) -> None:
    """Seed the generators that the layers of a model on this device use."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def accumulate(
    model: nn.Module,
    objective: Objective,
    batches: list[Any],
    config: TrainConfig,
    seeds: Sequence[int] | None = None,
) -> Summed:
    """Add up the gradients of all batches in a binary tree; see `polyhead.training.processes`.

    seeds: of the random numbers of each batch; without them the generators keep their state.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]

    def subtree(first: int, n_batches: int) -> tuple[Summed, Gradients]:
        if n_batches == 1:
            seed = None if seeds is None else seeds[first]
            summed = add_gradient(model, objective, batches[first], config, seed)
            gradients = [p.grad for p in parameters]
            model.zero_grad(set_to_none=True)
            return summed, gradients
        middle = left_size(n_batches)
        left, gradients = subtree(first, middle)
        right, others = subtree(first + middle, n_batches - middle)
        return left.plus(right), _add(gradients, others)

    summed, gradients = subtree(0, len(batches))
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return summed


def accumulate_sharded(
    model: Any, objective: Objective, batches: list[Any], config: TrainConfig, seeds: Sequence[int]
) -> Summed:
    """Add up the gradients of all batches and, after the last one, of all processes.

    Out of memory ends the run: to compute a batch again, this process would need the others.
    """
    device, summed = next(model.parameters()).device, Summed(0.0, 0, 0)
    for number, (batch, seed) in enumerate(zip(batches, seeds, strict=True), 1):
        model.set_requires_gradient_sync(number == len(batches))
        set_seed(seed, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.bf16):
            total, count = model(partial(_total_and_count, objective, batch))
        total.backward()
        summed = summed.plus(Summed(total.item(), count, 1, batch.n_tokens))
    return summed


def _total_and_count(objective: Objective, batch: Any, model: nn.Module) -> tuple[Tensor, int]:
    """Return a loss as a tuple, in which FSDP finds the tensor."""
    loss = objective(model, batch)
    return loss.total, loss.count


def _add(left: Gradients, right: Gradients) -> Gradients:
    """Add gradients; a missing one is zero, if the other is there."""
    pairs = list(zip(left, right, strict=True))
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    if both:
        torch._foreach_add_([a for a, _ in both], [b for _, b in both])
    for a, b in pairs:
        single = a if b is None else b if a is None else None
        if single is not None:
            single.add_(0.0)  # as if a zero were added: -0 becomes 0
    return [b if a is None else a for a, b in pairs]


def add_gradient(
    model: nn.Module, objective: Objective, batch: Any, config: TrainConfig, seed: int | None
) -> Summed:
    """Compute the gradient of one batch; if memory runs out, repeat with halved batches."""
    device = next(model.parameters()).device
    pieces, state = [batch], torch.get_rng_state() if seed is None else None
    while True:
        if state is not None:
            torch.set_rng_state(state)
        elif seed is not None:
            set_seed(seed, device)
        summed = _attempt(model, objective, pieces, config)
        if summed is not None:
            return summed._replace(tokens=batch.n_tokens)
        # the tensors of the failed attempt are no longer referenced here
        model.zero_grad(set_to_none=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        halves = [half for piece in pieces for half in piece.halves() if len(half)]
        if len(halves) == len(pieces):
            raise PolyheadError(
                "out of memory even with a single example per batch. Make the model smaller, or "
                "lower data.max_length.",
                "out_of_memory",
            )
        pieces = halves


def _attempt(
    model: nn.Module, objective: Objective, batches: list[Any], config: TrainConfig
) -> Summed | None:
    """Compute the gradients of all batches; return None if memory ran out."""
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


def out_of_memory(error: BaseException) -> bool:
    """Return True for an error of memory allocation, of torch or Python."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    message = str(error).lower()
    return "can't allocate memory" in message or "out of memory" in message


def average_and_clip(
    parameters: list[nn.Parameter], count: int, clip_norm: float, processes: Processes | None = None
) -> float:
    """Divide gradients by `count` and clip them, in one pass; return their norm before clipping."""
    gradients: list[Any] = [p.grad for p in parameters if p.grad is not None]
    if processes is not None and processes.in_step:
        gradients = [gradient.to_local() for gradient in gradients]
    norms = torch._foreach_norm(gradients)
    own = torch.linalg.vector_norm(torch.stack(norms))
    norm = ((own if processes is None else processes.norm(own)) / count).item()
    shrink = min(1.0, clip_norm / (norm + 1e-6)) if clip_norm else 1.0  # as torch's clip_grad_norm_
    if math.isfinite(norm):
        factor = norms[0].new_tensor(shrink / count)  # a float would be copied for each gradient
        torch._foreach_mul_(gradients, factor)
    return norm
