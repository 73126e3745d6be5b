"""Train a model: the one place where text, data, model, loop and checkpoints are put together."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from polyhead import devices
from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint import tensors
from polyhead.checkpoint import train_state as training_state
from polyhead.checkpoint.model_card import model_card
from polyhead.config import from_dict
from polyhead.data.batches.base import DataPosition
from polyhead.errors import CheckpointError, ConfigError, Diverged, PolyheadError
from polyhead.training import loop
from polyhead.training import run_dir as runs
from polyhead.training import run_log as reports
from polyhead.training import signals as interrupts
from polyhead.training.config import RunConfig
from polyhead.training.loop import Callbacks, NotFinite, Progress, Update
from polyhead.training.losses import with_balancing
from polyhead.training.optim import learning_rate
from polyhead.training.run_log import NullReporter, ProgressReporter, RunLog
from polyhead.training.session import Session, open_session
from polyhead.training.tasks import task_of
from polyhead.training.validation import validate

OF_BLOCKS = ("transformer", "gpt", "reformer", "bert", "electra", "classifier", "vit")


@dataclass(frozen=True)
class TrainResult:
    """How a run ended. `best` is the model to use."""

    folder: Path
    best: Path
    step: int
    signal: int | None  # what interrupted it, if anything
    metrics: dict[str, Any]


def train(
    run: RunConfig,
    folder: Path,
    *,
    fresh: bool = False,
    accept_changes: bool = False,
    reporter: ProgressReporter | None = None,
    tensorboard: bool = False,
) -> TrainResult:
    """Train a run in a folder, or go on with it: the result is the same to the last bit.

    Nothing in the folder is touched before the configuration and the text are known to be usable.
    """
    watcher = NullReporter() if reporter is None else reporter
    task = task_of(run.family)
    _check_layers(run)
    device = devices.choose(run.train.device)
    if run.train.bf16:
        devices.check_bf16(device)
    if tensorboard:
        reports.summary_writer()
    devices.keep_freed_memory()
    with runs.alone(folder), interrupts.listening() as stop, _memory_told():
        changed = runs.check(folder, run, fresh=fresh, accept_changes=accept_changes)
        watcher.stage("reading the data")
        material = task.read(run)
        runs.begin(folder, run, fresh=fresh)
        runs.check_data(folder, task.fingerprints(material))
        journal = RunLog(folder, watcher, tensorboard=tensorboard)
        if changed:
            journal.notice(f"going on with a changed configuration: {'; '.join(changed)}")
        for notice in material.notices:
            journal.notice(notice)
        prepared = task.prepare(run, folder, material, journal)
        session = open_session(prepared, folder, device, journal, stop)
        _resume(session)
        _train(session)
        return _result(session)


def _check_layers(run: RunConfig) -> None:
    """Rates that fall from layer to layer are for models of blocks."""
    decay = run.train.optimizer.layer_decay
    if decay != 1 and run.family not in OF_BLOCKS:
        raise ConfigError(
            f"train.optimizer.layer_decay = {decay}: a model of family {run.family} has no blocks "
            f"above each other, as {', '.join(OF_BLOCKS)} have; leave it out"
        )


@contextmanager
def _memory_told() -> Iterator[None]:
    """Memory that runs out where nothing can be made smaller is the machine's fault, not a bug."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not loop.out_of_memory(error):
            raise
        raise PolyheadError(
            "memory is exhausted; lower train.max_tokens or data.max_length, make the model "
            "smaller, or close other programs; what was saved before is intact"
        ) from error


def _resume(session: Session) -> None:
    """Take up the newest sound checkpoint; without one, save the beginning.

    A beginning that is a trained model is judged as all later ones are: it may stay the best.
    """
    newest, complaints = store.newest_checkpoint(session.folder / runs.CHECKPOINTS)
    for complaint in complaints:
        session.journal.notice(complaint)
    if newest is None:
        if complaints:
            session.journal.notice("no checkpoint is left that can be used; starting over")
        session.journal.forget_after(0)
        if session.prepared.trained:
            session.progress.judge(validate(session, session.progress))
        _save(session, session.progress)
        return
    _take_up(session, newest)
    session.journal.forget_after(session.progress.step)
    _point(session, newest)  # a crash may have come between a checkpoint and its links
    step = f"step {session.progress.step:,}"
    if loop.over(session.run.train, session.progress):
        session.journal.notice(f"going on from {step}: nothing is left to do")
    elif session.progress.step:
        session.journal.notice(f"going on from {step}")


def _take_up(session: Session, checkpoint: Path) -> None:
    """Put model, optimiser, random state and progress back to where a checkpoint has them."""
    shapes = {name: tuple(w.shape) for name, w in model_folder.weights_of(session.model).items()}
    weights = tensors.load_floats(checkpoint / model_folder.WEIGHTS, shapes)
    numbers = training_state.restore_state(checkpoint, session.model, session.optimizer)
    model_folder.set_weights(session.model, weights)
    try:
        session.progress = from_dict(Progress, numbers["progress"])
    except ConfigError as error:
        raise CheckpointError(f"{checkpoint / training_state.NUMBERS}: {error}") from None
    session.metrics = reports.with_nan(numbers.get("metrics"))


def _train(session: Session) -> None:
    """Run the loop; if it loses its way, roll back once and go slower, then give up."""
    reporter = session.journal.reporter
    reporter.begin(session.progress.step, session.run.train.steps)
    try:
        while True:
            try:
                _loop(session)
                break
            except NotFinite as error:
                _roll_back(session, str(error))
    finally:
        reporter.end()


def _loop(session: Session) -> None:
    config, progress = session.run.train, session.progress
    session.started = time.perf_counter() - progress.seconds
    rate = partial(
        learning_rate,
        config.schedule,
        steps=config.steps,
        d_model=width_of(session.run.model),
    )
    loop.train(
        session.model,
        with_balancing(session.prepared.objective, session.model),
        session.prepared.batches.batches(
            DataPosition(progress.epoch, progress.batch), config.workers
        ),
        session.optimizer,
        lambda step: rate(step),
        config,
        Callbacks(
            updated=partial(_updated, session),
            validate=partial(validate, session),
            save=partial(_save, session),
            stop=lambda: session.stop.signal is not None,
        ),
        progress,
    )


def width_of(model: Any) -> int:
    """The d_model of a configuration, wherever its family has it; the schedule of 2017 asks."""
    while not hasattr(model, "d_model"):
        if not hasattr(model, "stack") and isinstance(model.encoder, tuple):
            return int(model.d_embed)  # ConvS2S: every layer has a width of its own
        model = model.stack if hasattr(model, "stack") else model.encoder
    return int(model.d_model)


def _roll_back(session: Session, why: str) -> None:
    """Go back to the last checkpoint before the trouble began, and go on at half the rate."""
    good = _last_good(session.folder / runs.CHECKPOINTS)
    if session.progress.rolled_back or good is None:
        raise Diverged(
            f"{why}: not finite again after going back once with half the rate; lower "
            "train.schedule.rate, lengthen its warm-up, or look for broken data with "
            "`polyhead data check`"
        )
    seconds = session.progress.seconds  # the time was spent, though in vain
    _take_up(session, good)
    session.progress.seconds = seconds
    session.progress.rolled_back += 1
    session.progress.rate_factor /= 2
    session.journal.forget_after(session.progress.step)
    session.journal.notice(
        f"{why}: went back to step {session.progress.step:,} and halved the learning rate"
    )


def _last_good(place: Path) -> Path | None:
    """The newest sound checkpoint that was not saved between two steps that were skipped."""
    for _, path in reversed(store.list_checkpoints(place)):
        try:
            store.verify(path)
            numbers = training_state.read_progress(path)
        except CheckpointError:
            continue
        if not numbers["progress"].get("skipped_in_a_row"):
            return path
    return None


def _updated(session: Session, progress: Progress, update: Update) -> None:
    """Tell whoever watches; every `log_every` steps write a line of metrics."""
    _look_at_the_clock(session, progress)
    config = session.run.train
    speed = progress.tokens / max(progress.seconds, 1e-9)
    valid = session.metrics or {}
    session.journal.reporter.step(
        {**asdict(update), "step": progress.step, "tokens_per_second": speed, "valid": valid}
    )
    if progress.skipped_in_a_row:
        session.journal.notice(
            f"step {progress.step:,} skipped: loss {update.loss} or its gradient is not finite"
        )
    if update.pieces > config.accumulate:
        session.journal.notice(
            f"step {progress.step:,}: memory ran out, and the batch was cut into {update.pieces} "
            "pieces; a smaller train.max_tokens would be faster"
        )
    if progress.step % config.log_every == 0 and progress.window_count:
        loss = progress.window_total / progress.window_count
        progress.window_total, progress.window_count = 0.0, 0
        session.journal.record(
            "train",
            progress.step,
            {
                "loss": loss,
                "norm": update.norm,
                "rate": update.rate,
                "epoch": progress.epoch,
                "tokens": progress.tokens,
                "tokens_per_second": round(speed, 1),
                "seconds": round(progress.seconds, 2),
            },
        )


def _look_at_the_clock(session: Session, progress: Progress) -> None:
    """Seconds count everything since the start, over all sessions: updates, validation, saving."""
    if progress.step:
        progress.seconds = time.perf_counter() - session.started


def _save(session: Session, progress: Progress) -> None:
    """A checkpoint of everything; then the links, then what is too old goes."""
    model: nn.Module = session.model
    broken = model_folder.first_not_finite(model)
    if broken is not None:
        raise NotFinite(f"step {progress.step}: {broken} is no longer finite")
    _look_at_the_clock(session, progress)
    session.journal.sync()
    place = session.folder / runs.CHECKPOINTS
    checkpoint = store.checkpoint_path(place, progress.step)
    metrics = reports.without_nan(session.metrics)
    saved = model_folder.SavedModel(
        session.run.family,
        session.run.model,
        model,
        session.prepared.tokenizers,
        {
            "run": session.run.plain(),
            "step": progress.step,
            "valid": metrics,
            **session.prepared.about,
        },
    )
    with store.atomic_dir(checkpoint) as draft:
        model_folder.write_model(draft, saved, model_card(saved))
        numbers = {"progress": progress.plain(), "metrics": metrics}
        training_state.write_state(draft, model, session.optimizer, numbers)
    _point(session, checkpoint)
    best = store.checkpoint_path(place, progress.best_step) if progress.judged else None
    store.remove_old_checkpoints(place, checkpoint, keep=session.run.train.keep, spare=best)


def _point(session: Session, last: Path) -> None:
    """Let `last` and `best` lead to the checkpoints that they should, or `best` nowhere."""
    store.link(session.folder / "last", last)
    best, link = (
        store.checkpoint_path(last.parent, session.progress.best_step),
        session.folder / "best",
    )
    if session.progress.judged and best.exists():
        store.link(link, best)
    elif link.is_symlink():
        store.remove(link)


def _result(session: Session) -> TrainResult:
    """What came out; a signal that came when all was done has interrupted nothing."""
    link, progress = session.folder / "best", session.progress
    best = link if link.exists() else session.folder / "last"
    interrupted_by = None if loop.over(session.run.train, progress) else session.stop.signal
    return TrainResult(session.folder, best, progress.step, interrupted_by, session.metrics or {})
