"""The trainer: reads the data, builds the model, resumes, trains, validates and saves.

    train          joins the processes, locks the directory of the run
      prepare        configuration and files -> `Prepared`: data, tokenizers, plan of the batches
      Trainer        `Prepared` -> model, objective, optimizer
        fit            resume, then update, validate and save until the end -> `TrainResult`

Every process does all of it, and only the first writes: see `Processes.first`.
"""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from polyhead import devices
from polyhead.checkpoint import train_state
from polyhead.checkpoint.atomic_dir import follow
from polyhead.checkpoint.languages import set_run_languages
from polyhead.checkpoint.model_dir import SavedModel, first_not_finite, load_weights
from polyhead.config import differences, from_dict
from polyhead.data.batches.base import DataPosition
from polyhead.data.memory import MemoryData
from polyhead.errors import CheckpointError, ConfigError, PolyheadError
from polyhead.layers.mixture_of_experts import has_experts, record_usage
from polyhead.metrics import expert_usage
from polyhead.metrics.named_metrics import judge_score
from polyhead.models.registry import FAMILIES
from polyhead.tasks.losses import OBJECTIVES, BalancedLoss, Objective
from polyhead.training import finetune
from polyhead.training.callbacks import (
    Callbacks,
    EndReason,
    SavedCheckpoint,
    TrainingEnd,
    TrainingStart,
    TrainingStep,
    Validation,
)
from polyhead.training.config import RunConfig, stack_of
from polyhead.training.finetune import PretrainedModel
from polyhead.training.loop import NotFinite, Progress, Update, finished, out_of_memory, train_loop
from polyhead.training.optim import build_optimizer, learning_rate
from polyhead.training.processes import (
    Processes,
    handle_signals,
    is_lost_connection,
    join_processes,
)
from polyhead.training.result import TrainResult
from polyhead.training.run_dir import RunCheckpoints, RunDir
from polyhead.training.run_log import READING, RunLog, with_nan, without_nan
from polyhead.training.sharding import call_collected, place, share_of
from polyhead.training.tasks.base import TaskSetup
from polyhead.training.tasks.from_object import training_of

ENVIRONMENT = "environment"  # in training.json
STOPPED = 1000  # stands for the signal if a callback stops training


@dataclass(frozen=True)
class Prepared:
    """A run whose data has been read: the configuration of its setup is complete."""

    setup: TaskSetup
    pretrained: PretrainedModel | None
    files: dict[str, list[str]]  # with the data in memory, by option of [data]


def train(
    config: RunConfig,
    run_dir: Path,
    *,
    fresh: bool = False,
    accept_changes: bool = False,
    callbacks: Iterable[object] = (),
    memory: MemoryData | None = None,
) -> TrainResult:
    """Train a run, or resume it: the result is bit-identical to that of an uninterrupted run.

    Nothing is written before configuration and data have been checked. See `polyhead.train`.
    memory: data that is not in files; the files that the configuration names for it do not exist.
    """
    options, processes = config.train, Processes()
    device = devices.choose(options.device)
    if options.bf16:
        devices.check_bf16(device)
    devices.keep_freed_memory()
    run = RunDir(run_dir, fresh=fresh, accept_changes=accept_changes)
    log = RunLog(run_dir, Callbacks(callbacks))
    try:
        with (
            join_processes(options.timeout) as processes,
            ExitStack() as stack,
            handle_signals(processes),
        ):
            processes.check(options.accumulate, exact=options.exact and not options.shard)
            processes.first(lambda: stack.enter_context(run.exclusive_lock()))
            prepared = prepare(config, run, log, processes, memory)
            return Trainer(prepared, device, run, log, processes).fit()
    except (RuntimeError, MemoryError) as error:
        if is_lost_connection(error):
            raise processes.lost() from error
        if not out_of_memory(error):
            raise
        raise PolyheadError(
            "out of memory; saved checkpoints are intact. Lower train.max_tokens or "
            "data.max_length, make the model smaller, or close other programs.",
            "out_of_memory",
        ) from error


def prepare(
    config: RunConfig,
    run_dir: RunDir,
    log: RunLog,
    processes: Processes,
    memory: MemoryData | None = None,
) -> Prepared:
    """Set the task up: in the first process, and then in the others, which write nothing."""
    prepared = processes.first(
        lambda: read_data(config, run_dir, log, memory, is_first=True), patient=True
    )
    files = processes.from_first(None if prepared is None else prepared.files)
    if prepared is None:
        log.silence()
        prepared = read_data(config.with_files(files), run_dir, log, None, is_first=False)
    return prepared


def read_data(
    config: RunConfig, run_dir: RunDir, log: RunLog, memory: MemoryData | None, *, is_first: bool
) -> Prepared:
    """Check the directory, read the data, train or load the tokenizers, and plan the batches."""
    init = config.train.init
    pretrained = None if init is None else finetune.read_pretrained(config, init)
    sized = config if pretrained is None else finetune.with_pretrained_sizes(config, pretrained)
    changes = run_dir.check_config(sized) if is_first else []
    READING.set(log.callback)
    log.callback.on_stage("reading the data")
    files = (
        memory.write(run_dir.inputs, sized.data, sized.task, sized.model)
        if memory is not None
        else {}
    )
    located = sized.with_files(files)
    task = training_of(config.task)
    corpus, fingerprints = task.read_data(located)
    if pretrained is not None and config.task != "translation":
        fingerprints["pre-trained model or its"] = pretrained.fingerprint
    if is_first:  # from here on the directory is that of this run
        run_dir.check_data(fingerprints)
        run_dir.start(located)
        run_dir.record_data(fingerprints, corpus.valid)
    if changes:
        log.notice(f"resuming with a changed configuration: {'; '.join(changes)}")
    for notice in corpus.notices:
        log.notice(notice)
    if pretrained is not None:
        finetune.adopt_tokenizers(located, pretrained, run_dir)
    setup = task.setup(located, run_dir, corpus, log)
    if config.train.epochs is not None:  # counted in batches, which depend on the tokenizers
        complete = setup.config.with_steps(setup.batches.n_batches(0))
        setup = replace(setup, config=complete)
    return Prepared(setup, pretrained, files)


class Trainer:
    """Training of a prepared run: `fit` calls the other methods in the order they stand here."""

    def __init__(
        self,
        prepared: Prepared,
        device: torch.device,
        run_dir: RunDir,
        log: RunLog,
        processes: Processes,
    ) -> None:
        self.setup, self.config = prepared.setup, prepared.setup.config
        self.device, self.run_dir, self.log, self.processes = device, run_dir, log, processes
        options = self.config.train
        self.checkpoints = RunCheckpoints(run_dir, log, options.keep)
        self.progress, self.started = Progress(), 0.0
        self.metrics: dict[str, Any] | None = None  # of the last validation

        torch.manual_seed(options.seed)  # only the initial weights depend on it
        self.model: Any = FAMILIES[self.config.family].model(self.config.model)
        classes = self.setup.about.get("classes", ())
        self.all_pretrained = prepared.pretrained is not None and finetune.load_weights(
            prepared.pretrained, self.model, log, classes
        )
        self.trained = place(self.model, device, options, processes, log)
        self.objective: Objective = OBJECTIVES[options.objective](self.setup)
        if has_experts(self.model):
            self.objective = BalancedLoss(self.objective)
            if options.compile:
                raise ConfigError(
                    "train.compile does not support mixture-of-experts models", "no_compile"
                )
        if options.compile:
            self.model.hidden = torch.compile(self.model.hidden, dynamic=True)
        n_parameters = sum(p.numel() for p in self.model.parameters())
        log.notice(
            f"{self.setup.summary}; {n_parameters / 1e6:.1f} million parameters; "
            f"{options.steps:,} step{'s' * (options.steps != 1)} on {device}"
        )
        self.optimizer = build_optimizer(self.model, options.optimizer)

    def fit(self) -> TrainResult:
        """Train until all steps are done, patience is, or a signal arrives."""
        options = self.config.train
        reason: EndReason = "failed"
        try:
            self.resume()
            while not self.run_loop():
                pass
            if finished(options, self.progress):  # also if a signal came after the last step
                reason = "finished" if self.progress.step >= options.steps else "patience"
            else:
                is_stopped = self.processes.agreed_signal == STOPPED
                reason = "stopped" if is_stopped else "interrupted"
        finally:
            end = TrainingEnd(self.progress.step, reason, self.metrics or {})
            self.log.callback.on_end(end)
        folder = self.run_dir.path
        best = folder / "best" if follow(folder / "best").is_dir() else folder / "last"
        received = self.processes.agreed_signal if reason == "interrupted" else None
        return TrainResult(
            folder, best, end.step, received, self.metrics or {}, reason, self.processes.rank
        )

    def resume(self) -> None:
        """Restore the newest valid checkpoint; without one, save the initial state."""
        newest = self.choose_checkpoint(self.checkpoints.newest)
        if newest is None:
            self.log.forget_after(0)
        else:
            saved_in = self.restore(newest)
            languages = self.setup.about.get("languages", ("", ""))
            self.processes.first(lambda: set_run_languages(self.run_dir.checkpoints, languages))
            # a process that was killed may not have done this
            self.processes.first(lambda: self.checkpoints.tidy(newest, self.progress))
        step, steps = self.progress.step, self.config.train.steps
        metrics, values = self.metrics or {}, self.config.plain()
        start = TrainingStart(self.run_dir.path, step, steps, metrics, values, self.model)
        self.log.callback.on_start(start)
        if newest is None:
            if self.all_pretrained:  # it is trained already, and may stay the best
                self.progress.judge(self.validate())
            self.save()
        elif finished(self.config.train, self.progress):
            self.log.notice(f"step {step:,}: training already complete")
        elif step:
            self.log.notice(f"resuming from step {step:,}")
            if changes := differences(saved_in, devices.environment(self.device)):
                self.log.notice(
                    f"resuming in another environment ({'; '.join(changes)}): the last bits of "
                    "the weights will differ from those of an uninterrupted run"
                )

    def choose_checkpoint(self, choose: Callable[[], Path | None]) -> Path | None:
        """Return the checkpoint that the first process chooses."""
        path = self.processes.first(choose)
        name = self.processes.from_first(None if path is None else path.name)
        return None if name is None else self.run_dir.checkpoints / name

    def restore(self, checkpoint: Path) -> dict[str, Any]:
        """Set model, optimizer, random state, progress and metrics to those of a checkpoint.

        Returns the environment in which it was saved.
        """
        load_weights(checkpoint, self.model, share_of)
        state = train_state.restore_state(checkpoint, self.model, self.optimizer, share_of)
        try:
            self.progress = from_dict(Progress, state["progress"])
        except ConfigError as error:
            path = checkpoint / train_state.NUMBERS
            raise CheckpointError(f"{path}: {error}", "damaged_state") from None
        is_old = "version" not in state and self.progress.step
        if is_old and not finished(self.config.train, self.progress):
            raise CheckpointError(
                f"{self.run_dir.path} was started by polyhead 0.1, which seeds dropout otherwise. "
                "Finish it there, use --fresh, or start another run with --init and its weights.",
                "old_run",
            )
        self.metrics = with_nan(state.get("metrics"))
        self.log.forget_after(self.progress.step)
        environment = state.get(ENVIRONMENT)  # earlier versions did not save it
        return environment if isinstance(environment, dict) else devices.environment(self.device)

    def run_loop(self) -> bool:
        """Train, validate and save; return False if training diverged and was rolled back."""
        options, progress = self.config.train, self.progress
        self.started = time.perf_counter() - progress.seconds
        # Position and step are all that a bit-exact resume needs beside weights and moments: the
        # order of an epoch follows from its seed, random numbers from step and batch.
        position = DataPosition(progress.epoch, progress.batch)
        stack, sizes = stack_of(self.config.model), vars(self.config.model)
        width = stack.d_model if stack else sizes.get("d_model", sizes.get("d_embed"))
        rate = partial(learning_rate, options.schedule, steps=options.steps, d_model=width)
        own_batches = self.processes.share_of(options.accumulate)
        updates = train_loop(
            self.trained,
            self.objective,
            self.setup.batches.batches(position, options.workers, options.accumulate, own_batches),
            self.optimizer,
            rate,
            options,
            progress,
            self.processes,
        )
        try:
            for update in updates:
                self.report(update)
                improved = False  # judged before the checkpoint is saved, which may be the best
                if progress.step >= options.steps or progress.step % options.validate_every == 0:
                    improved = progress.judge(self.validate())
                stopping = finished(options, progress) or self.processes.agreed_signal > 0
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
        event = TrainingStep(
            progress.step, update.loss, update.norm, update.rate, progress.epoch, progress.tokens,
            round(speed, 1), round(progress.seconds, 2),
        )  # fmt: skip
        if self.log.callback.on_step(event):
            self.processes.signal = self.processes.signal or STOPPED
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
            values = {n: v for n, v in asdict(event).items() if n != "step"}
            self.log.record("train", progress.step, values | {"loss": loss})

    def validate(self) -> float:
        """Measure and log the validation metrics; return the score, lower is better."""
        step, judge_by = self.progress.step, self.config.train.judge_by
        with record_usage(self.model) as usages:
            metrics = call_collected(
                self.trained.eval(),
                self.model,
                lambda model: self.setup.validate(model, step, self.processes),
            )
        amounts = expert_usage.add_amounts(
            self.processes.gather(expert_usage.usage_amounts(usages))
        )
        words = [f"step {step:,}  validation:"]
        words += [f"{name} {value:.3f}" for name, value in metrics.items()]
        if amounts:
            metrics |= expert_usage.usage_metrics(amounts)
            words.append(expert_usage.describe_usage(amounts))
            self.log.record("experts", step, expert_usage.usage_shares(amounts))
        self.log.record("valid", step, metrics)
        self.log.callback.on_notice("  ".join(words))
        self.metrics = metrics
        if self.log.callback.on_validation(Validation(step, metrics)):
            self.processes.signal = self.processes.signal or STOPPED
        return judge_score(judge_by, float(metrics[judge_by]))

    def save(self) -> None:
        """Write a checkpoint, if all weights are finite."""
        # Each process looks at its share of the weights, and all learn of a broken one.
        for broken in self.processes.gather(first_not_finite(self.model)):
            if broken is not None:
                raise NotFinite(f"step {self.progress.step}: {broken} is no longer finite")
        if self.progress.step:
            self.progress.seconds = time.perf_counter() - self.started
        metrics = without_nan(self.metrics)
        task, step = self.config.task, self.progress.step
        about = {"run": self.config.portable(), "task": task, "step": step, "valid": metrics}
        saved = SavedModel(
            self.config.family, self.config.model, self.model, self.setup.tokenizers,
            about | self.setup.about,
        )  # fmt: skip
        counters = {name: n for name, n in asdict(self.progress).items() if n != math.inf}
        environment = devices.environment(self.device)
        state = {"progress": counters, "metrics": metrics, ENVIRONMENT: environment}
        path = self.checkpoints.save(saved, self.optimizer, state, self.progress, self.processes)
        is_best = self.progress.best_step == self.progress.step and self.progress.best < math.inf
        self.log.callback.on_save(SavedCheckpoint(self.progress.step, path, is_best))

    def roll_back(self, reason: str) -> None:
        """Restore the last checkpoint before the divergence and halve the learning rate, once."""
        schedule = self.config.train.schedule
        good = self.choose_checkpoint(
            lambda: self.checkpoints.before_divergence(self.progress, schedule, reason)
        )
        assert good is not None
        seconds = self.progress.seconds
        self.restore(good)
        self.processes.first(lambda: self.checkpoints.tidy(good, self.progress))  # none newer
        self.progress.seconds, self.progress.skipped_in_a_row = seconds, 0
        self.progress.rolled_back += 1
        self.progress.rate_factor /= 2
        self.log.callback.on_rewind(self.progress.step)
        self.log.notice(
            f"{reason}: rolled back to step {self.progress.step:,} and halved the learning rate"
        )
