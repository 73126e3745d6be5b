"""The trainer: reads the data, builds the model, resumes, trains, validates and saves."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from polyhead import devices
from polyhead.checkpoint import train_state
from polyhead.checkpoint.atomic_dir import (
    atomic_dir,
    checkpoint_path,
    link,
    list_checkpoints,
    newest_checkpoint,
    remove,
    remove_old_checkpoints,
    verify,
)
from polyhead.checkpoint.model_dir import SavedModel, first_not_finite, load_weights, write_model
from polyhead.config import from_dict
from polyhead.data.batches.base import DataPosition
from polyhead.errors import CheckpointError, ConfigError, Diverged, PolyheadError
from polyhead.layers.mixture_of_experts import (
    describe_usage,
    has_experts,
    record_usage,
    usage_metrics,
    usage_shares,
)
from polyhead.models.registry import FAMILIES
from polyhead.training import finetune
from polyhead.training.config import RunConfig, stack_of
from polyhead.training.loop import NotFinite, Progress, Update, finished, out_of_memory, train_loop
from polyhead.training.losses import BalancedLoss, Objective
from polyhead.training.optim import build_optimizer, learning_rate
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import ProgressReporter, RunLog, with_nan, without_nan
from polyhead.training.tasks import TASKS

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # save and stop


@dataclass(frozen=True)
class TrainResult:
    """The outcome of a run: `best` is the model to use, `signal` the one that interrupted it."""

    folder: Path
    best: Path
    step: int
    signal: int | None
    metrics: dict[str, Any]


def train(
    config: RunConfig,
    run_dir: Path,
    *,
    fresh: bool = False,
    accept_changes: bool = False,
    reporter: ProgressReporter | None = None,
    tensorboard: bool = False,
) -> TrainResult:
    """Train a run, or resume it: the result is bit-identical to that of an uninterrupted run.

    Nothing is written before configuration and data have been checked. See `polyhead.train`.
    """
    reporter = ProgressReporter() if reporter is None else reporter
    trainer = Trainer(config, RunDir(run_dir), reporter, tensorboard=tensorboard)
    return trainer.fit(fresh=fresh, accept_changes=accept_changes)


class Trainer:
    """Training of one run: `fit` calls the other methods in the order in which they stand here."""

    def __init__(
        self,
        config: RunConfig,
        run_dir: RunDir,
        reporter: ProgressReporter,
        *,
        tensorboard: bool = False,
    ) -> None:
        self.config, self.run_dir = config, run_dir
        self.device = devices.choose(config.train.device)
        if config.train.bf16:
            devices.check_bf16(self.device)
        devices.keep_freed_memory()
        self.log = RunLog(run_dir.path, reporter, tensorboard=tensorboard)
        self.task = TASKS[config.task]
        self.progress = Progress()
        self.metrics: dict[str, Any] | None = None  # of the last validation
        self.signal: int | None = None  # the first one that arrived

    def fit(self, *, fresh: bool = False, accept_changes: bool = False) -> TrainResult:
        """Train until all steps are done, patience is, or a signal arrives."""
        try:
            with self.run_dir.exclusive_lock(), self.handle_signals():
                self.read_data(fresh=fresh, accept_changes=accept_changes)
                self.build_model()
                self.resume()
                self.log.reporter.begin(self.progress.step, self.config.train.steps)
                try:
                    while not self.run_loop():
                        pass
                finally:
                    self.log.reporter.end()
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise PolyheadError(
                "out of memory; saved checkpoints are intact. Lower train.max_tokens or "
                "data.max_length, make the model smaller, or close other programs.",
                "out_of_memory",
            ) from error
        folder, done = self.run_dir.path, finished(self.config.train, self.progress)
        best = folder / "best" if (folder / "best").exists() else folder / "last"
        signal_number = None if done else self.signal  # after the last step it interrupted nothing
        return TrainResult(folder, best, self.progress.step, signal_number, self.metrics or {})

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Record the first signal instead of being killed; a second Ctrl-C stops at once."""

        def record(number: int, _: FrameType | None) -> None:
            if self.signal is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.signal = number

        before: dict[int, Callable[..., Any] | int | None] = {}
        try:
            with suppress(ValueError):  # signals can be handled in the main thread only
                for number in HANDLED:
                    before[number] = signal.signal(number, record)
            yield
        finally:
            for known, handler in before.items():
                signal.signal(known, signal.SIG_DFL if handler is None else handler)

    def read_data(self, *, fresh: bool, accept_changes: bool) -> None:
        """Check the directory, read the data, and set the task up."""
        changes = self.run_dir.check_config(self.config, fresh=fresh, accept_changes=accept_changes)
        self.log.reporter.stage("reading the data")
        config, init = self.config, self.config.train.init
        self.pretrained = None if init is None else finetune.read_pretrained(config, init)
        if self.pretrained is not None:
            config = finetune.with_pretrained_sizes(config, self.pretrained)
        corpus, fingerprints = self.task.read_data(config)
        if self.pretrained is not None and config.task != "translation":
            fingerprints["pre-trained model or its"] = self.pretrained.fingerprint
        self.run_dir.start(self.config, fresh=fresh)
        self.run_dir.check_data(fingerprints)
        if changes:
            self.log.notice(f"resuming with a changed configuration: {'; '.join(changes)}")
        for notice in corpus.notices:
            self.log.notice(notice)
        if self.pretrained is not None:
            config = finetune.adopt_tokenizers(config, self.pretrained, self.run_dir)
        self.setup = self.task.setup(config, self.run_dir, corpus, self.log)
        self.config = self.setup.config
        if self.config.train.epochs is not None:
            n_batches = self.setup.batches.n_batches(0)
            steps = math.ceil(self.config.train.epochs * n_batches / self.config.train.accumulate)
            options = replace(self.config.train, steps=max(1, steps))
            self.config = replace(self.config, train=options)

    def build_model(self) -> None:
        options = self.config.train
        torch.manual_seed(options.seed)
        model: Any = FAMILIES[self.config.family].model(self.config.model)
        classes = self.setup.about.get("classes", ())
        self.all_pretrained = self.pretrained is not None and finetune.load_weights(
            self.pretrained, model, self.log, classes
        )
        self.model = model.to(self.device)
        self.objective: Objective = self.setup.objective
        if has_experts(self.model):
            self.objective = BalancedLoss(self.objective)
            if options.compile:
                raise ConfigError(
                    "train.compile does not support mixture-of-experts models", "no_compile"
                )
        if options.compile:
            self.model.hidden = torch.compile(self.model.hidden, dynamic=True)
        n_parameters = sum(p.numel() for p in self.model.parameters())
        self.log.notice(
            f"{self.setup.summary}; {n_parameters / 1e6:.1f} million parameters; "
            f"{options.steps:,} steps on {self.device}"
        )
        self.optimizer = build_optimizer(self.model, options.optimizer)

    def resume(self) -> None:
        """Restore the newest valid checkpoint; without one, save the initial state."""
        # An initial model that is trained already is validated: it may stay the best.
        newest, damaged = newest_checkpoint(self.run_dir.checkpoints)
        for problem in damaged:
            self.log.notice(problem)
        if newest is None:
            if damaged:
                self.log.notice("no usable checkpoint found; starting from scratch")
            self.log.forget_after(0)
            if self.all_pretrained:
                self.progress.judge(self.validate())
            self.save()
            return
        self.restore(newest)
        self.update_links(newest)  # the process may have been killed before it did so
        step = f"step {self.progress.step:,}"
        if finished(self.config.train, self.progress):
            self.log.notice(f"{step}: training already complete")
        elif self.progress.step:
            self.log.notice(f"resuming from {step}")

    def restore(self, checkpoint: Path) -> None:
        """Set model, optimizer, random state, progress and metrics to those of a checkpoint."""
        load_weights(checkpoint, self.model)
        state = train_state.restore_state(checkpoint, self.model, self.optimizer)
        try:
            self.progress = from_dict(Progress, state["progress"])
        except ConfigError as error:
            path = checkpoint / train_state.NUMBERS
            raise CheckpointError(f"{path}: {error}", "damaged_state") from None
        self.metrics = with_nan(state.get("metrics"))
        self.log.forget_after(self.progress.step)

    def run_loop(self) -> bool:
        """Train, validate and save; return False if training diverged and was rolled back."""
        options, progress = self.config.train, self.progress
        self.started = time.perf_counter() - progress.seconds
        position = DataPosition(progress.epoch, progress.batch)
        stack, sizes = stack_of(self.config.model), vars(self.config.model)
        width = stack.d_model if stack else sizes.get("d_model", sizes.get("d_embed"))
        rate = partial(learning_rate, options.schedule, steps=options.steps, d_model=width)
        updates = train_loop(
            self.model,
            self.objective,
            self.setup.batches.batches(position, options.workers),
            self.optimizer,
            rate,
            options,
            progress,
        )
        try:
            for update in updates:
                self.report(update)
                improved = False
                if progress.step >= options.steps or progress.step % options.validate_every == 0:
                    improved = progress.judge(self.validate())
                stopping = finished(options, progress) or self.signal is not None
                if stopping or improved or progress.step % options.save_every == 0:
                    self.save()
                if stopping:
                    break
        except NotFinite as error:
            self.roll_back(str(error))
            return False
        return True

    def report(self, update: Update) -> None:
        """Report an update; write a line of metrics every `log_every` steps."""
        progress = self.progress
        progress.seconds = time.perf_counter() - self.started  # with validation and saving
        speed = progress.tokens / max(progress.seconds, 1e-9)
        self.log.reporter.step(
            {
                **asdict(update),
                "step": progress.step,
                "tokens_per_second": speed,
                "valid": self.metrics or {},
            }
        )
        if progress.skipped_in_a_row:
            self.log.notice(
                f"step {progress.step:,} skipped: loss {update.loss} or its gradient is not finite"
            )
        if update.pieces > self.config.train.accumulate:
            self.log.notice(
                f"step {progress.step:,}: out of memory; the batch was split into {update.pieces} "
                "pieces. A smaller train.max_tokens would be faster."
            )
        if progress.step % self.config.train.log_every == 0 and progress.window_count:
            loss = progress.window_total / progress.window_count
            progress.window_total, progress.window_count = 0.0, 0
            values = {
                "loss": loss,
                "norm": update.norm,
                "rate": update.rate,
                "epoch": progress.epoch,
                "tokens": progress.tokens,
                "tokens_per_second": round(speed, 1),
                "seconds": round(progress.seconds, 2),
            }
            self.log.record("train", progress.step, values)

    def validate(self) -> float:
        """Measure and log the validation metrics; return the score, lower is better."""
        step, judge_by = self.progress.step, self.config.train.judge_by
        with record_usage(self.model) as usages:
            metrics = self.setup.validate(self.model.eval(), step)
        words = [f"step {step:,}", *(f"{name} {value:.3f}" for name, value in metrics.items())]
        if usages:
            metrics |= usage_metrics(usages)
            words.append(describe_usage(usages))
            self.log.record("experts", step, usage_shares(usages))
        self.log.record("valid", step, metrics)
        self.log.reporter.notice("  ".join(words))
        self.metrics = metrics
        return metrics["loss"] if judge_by == "loss" else -float(metrics[judge_by])

    def save(self) -> None:
        """Write a checkpoint, update the links, and remove old checkpoints."""
        progress = self.progress
        broken = first_not_finite(self.model)
        if broken is not None:
            raise NotFinite(f"step {progress.step}: {broken} is no longer finite")
        if progress.step:
            progress.seconds = time.perf_counter() - self.started
        self.log.sync()
        metrics = without_nan(self.metrics)
        about = {"run": self.config.plain(), "step": progress.step, "valid": metrics}
        saved = SavedModel(
            self.config.family,
            self.config.model,
            self.model,
            self.setup.tokenizers,
            about | self.setup.about,
        )
        checkpoint = checkpoint_path(self.run_dir.checkpoints, progress.step)
        with atomic_dir(checkpoint) as draft:
            write_model(draft, saved)
            counters = {name: n for name, n in asdict(progress).items() if n != math.inf}
            state = {"progress": counters, "metrics": metrics}
            train_state.write_state(draft, self.model, self.optimizer, state)
        self.update_links(checkpoint)
        best = checkpoint_path(checkpoint.parent, progress.best_step)
        spare = best if progress.best < math.inf else None
        remove_old_checkpoints(
            checkpoint.parent, checkpoint, keep=self.config.train.keep, spare=spare
        )

    def update_links(self, last: Path) -> None:
        """Let `last` and `best` point to their checkpoints; remove `best` if there is none."""
        link(self.run_dir.path / "last", last)
        best = checkpoint_path(last.parent, self.progress.best_step)
        if self.progress.best < math.inf and best.exists():
            link(self.run_dir.path / "best", best)
        elif (self.run_dir.path / "best").is_symlink():
            remove(self.run_dir.path / "best")

    def roll_back(self, reason: str) -> None:
        """Restore the last checkpoint before the divergence and halve the learning rate, once."""
        good = None  # the newest valid checkpoint that was not saved between skipped steps
        for _, path in reversed(list_checkpoints(self.run_dir.checkpoints)):
            with suppress(CheckpointError):
                verify(path)
                state = train_state.read_progress(path)
                if not state["progress"].get("skipped_in_a_row"):
                    good = path
                    break
        if self.progress.rolled_back or good is None:
            raise Diverged(
                f"training diverged again after one roll-back ({reason}). Lower "
                "train.schedule.rate, lengthen its warm-up, or check the data with "
                "`polyhead data check`.",
                "diverged",
            )
        seconds = self.progress.seconds
        self.restore(good)
        self.progress.seconds = seconds
        self.progress.rolled_back += 1
        self.progress.rate_factor /= 2
        self.log.notice(
            f"{reason}: rolled back to step {self.progress.step:,} and halved the learning rate"
        )
