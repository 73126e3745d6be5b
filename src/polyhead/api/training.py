"""Train a model: the one place where text, data, model, loop and checkpoints are put together."""

import math
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from polyhead.api import devices, runs
from polyhead.api.cards import model_card
from polyhead.api.reports import Journal, Reporter, Silent
from polyhead.api.run import Run
from polyhead.checkpoint import folder as model_folder
from polyhead.checkpoint import store
from polyhead.checkpoint import training as training_state
from polyhead.data import corpus
from polyhead.data.batch import Epochs, Pair, Place, TranslationBatch
from polyhead.data.pairs import Pairs
from polyhead.decode.many import decode_all
from polyhead.decode.options import DecodeConfig
from polyhead.errors import DataError, Diverged
from polyhead.evaluate.score import quick_bleu
from polyhead.models import FAMILIES
from polyhead.text import tokenizer
from polyhead.text.tokenizer import PAD, Tokenizers
from polyhead.train import loop, optimizer
from polyhead.train.loop import Callbacks, NotFinite, Progress, Update
from polyhead.train.objectives import Translation
from polyhead.train.schedule import learning_rate


@dataclass(frozen=True)
class Result:
    """How a run ended. `best` is the model to use."""

    folder: Path
    best: Path
    step: int
    signal: int | None  # what interrupted it, if anything
    metrics: dict[str, Any]


@dataclass
class Stop:
    """Somebody asked to leave: by which signal, if any."""

    signal: int | None = None


@dataclass
class Session:
    """Everything that one process needs to train one run."""

    run: Run
    folder: Path
    journal: Journal
    tokenizers: Tokenizers
    model: Any
    optimizer: Optimizer
    epochs: Epochs
    valid: list[TranslationBatch]
    samples: tuple[list[str], list[str]]  # the first sentences of the validation set
    stop: Stop
    progress: Progress
    started: float = 0.0
    metrics: dict[str, Any] | None = None


def train(
    run: Run,
    folder: Path,
    *,
    fresh: bool = False,
    accept_changes: bool = False,
    reporter: Reporter | None = None,
    tensorboard: bool = False,
) -> Result:
    """Train a run in a folder, or go on with it: the result is the same to the last bit."""
    devices.keep_freed_memory()
    with runs.alone(folder), _signals() as stop:
        changed = runs.prepare(folder, run, fresh=fresh, accept_changes=accept_changes)
        journal = Journal(folder, reporter or Silent(), tensorboard=tensorboard)
        if changed:
            journal.notice(f"going on with a changed configuration: {'; '.join(changed)}")
        session = _open(run, folder, journal, stop)
        _resume(session)
        _train(session)
        return _result(session)


def _open(run: Run, folder: Path, journal: Journal, stop: Stop) -> Session:
    """Read the text, learn or load the tokenizers, build the model."""
    device = devices.choose(run.train.device)
    if run.train.bf16:
        devices.check_bf16(device)
    journal.stage("reading the text")
    text = corpus.load(run.data, run.train.seed)
    for notice in text.notices:
        journal.notice(notice)
    _check_unchanged(folder, text)

    tokenizers = _tokenizers(run, folder, text.train, journal)
    run = run.with_vocab(len(tokenizers.source), len(tokenizers.target))
    pairs = _encode(tokenizers, text.train, run.data.max_length, journal)
    epochs = Epochs(_Encoder(tokenizers, pairs, run.train.seed), run.train.max_tokens, run.train.seed)
    if run.train.epochs is not None:
        per_epoch = epochs.n_batches(0) / run.train.accumulate
        steps = max(1, math.ceil(run.train.epochs * per_epoch))
        run = replace(run, train=replace(run.train, steps=steps))

    torch.manual_seed(run.train.seed)
    model = FAMILIES[run.family][0](run.model).to(device)
    if run.train.compile:
        model.hidden = torch.compile(model.hidden, dynamic=True)
    n_parameters = sum(p.numel() for p in model.parameters())
    journal.notice(
        f"{len(pairs.ids):,} training pairs, {len(text.valid):,} for validation; vocabulary "
        f"{len(tokenizers.target):,}; {n_parameters / 1e6:.1f} million parameters; "
        f"{run.train.steps:,} steps on {device}"
    )
    return Session(
        run, folder, journal, tokenizers, model, optimizer.build(model, run.train.optimizer),
        epochs, _validation(run, tokenizers, text.valid, journal),
        (text.valid.sources[: run.train.bleu_sentences], text.valid.targets[: run.train.bleu_sentences]),
        stop, Progress(),
    )  # fmt: skip


def _check_unchanged(folder: Path, text: corpus.Corpus) -> None:
    sides = {
        "source_text": [*text.train.sources, *text.valid.sources],
        "target_text": [*text.train.targets, *text.valid.targets],
    }
    runs.check_data(folder, sides)


def _tokenizers(run: Run, folder: Path, pairs: Pairs, journal: Journal) -> Tokenizers:
    """Those of the run, learned from its training text at its first start."""
    place = folder / runs.TOKENIZER
    if not place.exists():
        journal.stage("learning the vocabulary")
        learned = tokenizer.train_tokenizers(pairs.sources, pairs.targets, run.text)
        with store.writing(place) as draft:
            tokenizer.save(learned, draft)
    return tokenizer.load(place)


@dataclass(frozen=True)
class _Encoded:
    """The training pairs that are short enough, as text and as ids."""

    sources: list[str]
    targets: list[str]
    ids: list[Pair]


def _encode(tokenizers: Tokenizers, pairs: Pairs, max_length: int, journal: Journal) -> _Encoded:
    journal.stage("encoding the text")
    source = tokenizers.source.encode_batch(pairs.sources)
    target = tokenizers.target.encode_batch(pairs.targets)
    fits = [
        i for i in range(len(source)) if max(len(source[i]), len(target[i])) <= max_length
    ]
    left_out = len(source) - len(fits)
    if left_out:
        journal.notice(f"{left_out:,} pairs longer than {max_length} tokens are not trained on")
    if not fits:
        raise DataError(
            f"all {len(source)} pairs are longer than {max_length} tokens; raise data.max_length"
        )
    return _Encoded(
        [pairs.sources[i] for i in fits],
        [pairs.targets[i] for i in fits],
        [(source[i], target[i]) for i in fits],
    )


@dataclass(frozen=True)
class _Encoder:
    """The ids of an epoch: always the same, or cut anew each time if subwords are sampled."""

    tokenizers: Tokenizers
    pairs: _Encoded
    seed: int

    def __call__(self, epoch: int) -> Sequence[Pair]:
        if not self.tokenizers.config.sampling:
            return self.pairs.ids
        draw = random.Random(f"{self.seed} {epoch}")
        source, target = self.tokenizers.source, self.tokenizers.target
        return [
            (source.encode(s, sample=draw), target.encode(t, sample=draw))
            for s, t in zip(self.pairs.sources, self.pairs.targets, strict=True)
        ]


def _validation(
    run: Run, tokenizers: Tokenizers, pairs: Pairs, journal: Journal
) -> list[TranslationBatch]:
    encoded = _encode(tokenizers, pairs, run.data.max_length, journal)
    epochs = Epochs(lambda _: encoded.ids, run.train.max_tokens, seed=0)
    return [epochs[(0, i)] for i in range(epochs.n_batches(0))]


def _resume(session: Session) -> None:
    """Take up the newest sound checkpoint; without one, save the beginning."""
    place = session.folder / runs.CHECKPOINTS
    newest, complaints = store.newest(place)
    for complaint in complaints:
        session.journal.notice(complaint)
    if newest is None:
        session.journal.forget_after(0)
        _save(session, session.progress)
        return
    _take_up(session, newest)
    session.journal.forget_after(session.progress.step)
    _point(session, newest)  # a crash may have come between a checkpoint and its links
    if session.progress.step:
        session.journal.notice(f"going on from step {session.progress.step:,}")


def _take_up(session: Session, checkpoint: Path) -> None:
    """Put model, optimiser, random state and progress back to where a checkpoint has them."""
    tensors = model_folder.load_tensors(checkpoint / model_folder.WEIGHTS)
    model_folder.set_weights(session.model, tensors)
    numbers = training_state.restore(checkpoint, session.model, session.optimizer)
    session.progress = Progress(**numbers["progress"])
    session.metrics = numbers["metrics"]


def _train(session: Session) -> None:
    """Run the loop; if it loses its way, roll back once and go slower, then give up."""
    config = session.run.train
    session.journal.reporter.begin(session.progress.step, config.steps)
    try:
        while session.progress.step < config.steps:
            try:
                _loop(session)
                break
            except NotFinite as error:
                _roll_back(session, str(error))
    finally:
        session.journal.reporter.end()


def _loop(session: Session) -> None:
    config, progress = session.run.train, session.progress
    session.started = time.perf_counter() - progress.seconds
    rate = partial(
        learning_rate,
        config.schedule,
        steps=config.steps,
        d_model=session.run.model.stack.d_model,
    )
    loop.train(
        session.model,
        Translation(PAD, config.smoothing),
        session.epochs.batches(Place(progress.epoch, progress.batch), config.workers),
        session.optimizer,
        lambda step: rate(step),
        config,
        Callbacks(
            updated=partial(_updated, session),
            validate=partial(_validate, session),
            save=partial(_save, session),
            stop=lambda: session.stop.signal is not None,
        ),
        progress,
    )


def _roll_back(session: Session, why: str) -> None:
    newest, _ = store.newest(session.folder / runs.CHECKPOINTS)
    if session.progress.rolled_back or newest is None:
        raise Diverged(
            f"{why}: not finite again after going back once with half the rate; lower "
            "train.schedule.rate, lengthen its warm-up, or look for broken data with "
            "`polyhead data check`"
        )
    _take_up(session, newest)
    session.progress.rolled_back += 1
    session.progress.rate_factor /= 2
    session.journal.forget_after(session.progress.step)
    session.journal.notice(
        f"{why}: went back to step {session.progress.step:,} and halved the learning rate"
    )


def _updated(session: Session, progress: Progress, update: Update) -> None:
    """Tell whoever watches; every `log_every` steps write a line of metrics."""
    progress.seconds = time.perf_counter() - session.started
    speed = progress.tokens / max(progress.seconds, 1e-9)
    valid = session.metrics or {}
    session.journal.reporter.step(
        {**asdict(update), "step": progress.step, "tokens_per_second": speed, "valid": valid}
    )
    if not math.isfinite(update.norm):
        session.journal.notice(
            f"step {progress.step:,}: loss {update.loss} or its gradient is not finite; step skipped"
        )
    if progress.step % session.run.train.log_every == 0 and progress.window_count:
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


@torch.inference_mode()
def _validate(session: Session, progress: Progress) -> float:
    """Loss on the whole validation set, BLEU on its first sentences; lower is better."""
    model, config = session.model.eval(), session.run.train
    device = next(model.parameters()).device
    objective, total, count = Translation(PAD), 0.0, 0
    for batch in session.valid:
        loss = objective(model, batch.to(device))
        total, count = total + loss.total.item(), count + loss.count
    metrics: dict[str, Any] = {"loss": total / count, "perplexity": math.exp(min(700.0, total / count))}
    if config.bleu_sentences:
        outputs = translate_quickly(session)
        metrics["bleu"] = quick_bleu(outputs, session.samples[1])
        _write_samples(session, progress.step, outputs)
    session.journal.record("valid", progress.step, metrics)
    session.journal.reporter.notice(
        "  ".join([f"step {progress.step:,}", *(f"{k} {v:.3f}" for k, v in metrics.items())])
    )
    session.metrics = metrics
    return -float(metrics["bleu"]) if config.judge_by == "bleu" else float(metrics["loss"])


def translate_quickly(session: Session) -> list[str]:
    """Greedy translations of the first validation sentences."""
    ids = session.tokenizers.source.encode_batch(session.samples[0])
    device = next(session.model.parameters()).device
    outputs = decode_all(session.model, ids, DecodeConfig(beam=1), device=device)
    return [session.tokenizers.target.decode(best[0].ids) for best in outputs]


def _write_samples(session: Session, step: int, outputs: Sequence[str]) -> None:
    """What the model says by now, beside what it should say."""
    place = session.folder / "samples"
    place.mkdir(exist_ok=True)
    triples = zip(*session.samples, outputs, strict=True)
    text = "\n".join(f"{source}\n  = {right}\n  > {said}" for source, right, said in triples)
    store.write_text(place / f"step-{step:08d}.txt", text + "\n")


def _save(session: Session, progress: Progress) -> None:
    """A checkpoint of everything; then the links, then what is too old goes."""
    place = session.folder / runs.CHECKPOINTS
    checkpoint = store.step_folder(place, progress.step)
    model: nn.Module = session.model
    if not checkpoint.exists():
        saved = model_folder.SavedModel(
            session.run.family,
            session.run.model,
            model,
            session.tokenizers,
            {"run": session.run.plain(), "step": progress.step, "valid": session.metrics},
        )
        with store.writing(checkpoint) as draft:
            model_folder.fill(draft, saved, model_card(saved))
            numbers = {"progress": asdict(progress), "metrics": session.metrics}
            training_state.fill(draft, model, session.optimizer, numbers)
    _point(session, checkpoint)
    best = store.step_folder(place, progress.best_step) if progress.best_step else None
    store.tidy(place, session.run.train.keep, best)


def _point(session: Session, last: Path) -> None:
    """Let `last` and `best` lead to the checkpoints that they should."""
    store.point(session.folder / "last", last)
    best = store.step_folder(last.parent, session.progress.best_step)
    if session.progress.best_step and best.exists():
        store.point(session.folder / "best", best)


def _result(session: Session) -> Result:
    link = session.folder / "best"
    best = link if link.exists() else session.folder / "last"
    signal_seen = session.stop.signal
    return Result(session.folder, best, session.progress.step, signal_seen, session.metrics or {})


@contextmanager
def _signals() -> Iterator[Stop]:
    """The first SIGINT, SIGTERM or SIGUSR1 asks to save and leave; a second Ctrl-C leaves at once."""
    stop = Stop()

    def ask(number: int, _: FrameType | None) -> None:
        if stop.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before: dict[int, Callable[..., Any] | int | None] = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, ask)
    except ValueError:
        pass  # not in the main thread: signals are somebody else's business
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
