"""What one process needs to train one run: the text as batches, the model, the optimiser."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from polyhead.api import runs
from polyhead.api.interrupts import Stop
from polyhead.api.reports import Journal
from polyhead.api.run import Run
from polyhead.checkpoint import store
from polyhead.data.batch import Epochs, Pair, TranslationBatch
from polyhead.data.corpus import Corpus
from polyhead.data.pairs import Pairs
from polyhead.errors import DataError
from polyhead.models import FAMILIES
from polyhead.text import tokenizer
from polyhead.text.tokenizer import Tokenizers
from polyhead.train import optimizer
from polyhead.train.loop import Progress


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
    started: float = 0.0  # when training would have begun, had it never been interrupted
    metrics: dict[str, Any] | None = None  # of the last validation


def open_session(
    run: Run, folder: Path, text: Corpus, device: torch.device, journal: Journal, stop: Stop
) -> Session:
    """Learn or load the tokenizers, cut the text into batches, build the model."""
    tokenizers = _tokenizers(run, folder, text.train, journal)
    run = run.with_vocab(len(tokenizers.source), len(tokenizers.target))
    journal.stage("encoding the text")
    pairs = _encode(tokenizers, text.train, run.data.max_length, "training", journal)
    encoder = Encoder(tokenizers, pairs, run.train.seed, run.data.max_length)
    epochs = Epochs(encoder, run.train.max_tokens, run.train.seed)
    if run.train.epochs is not None:
        steps = math.ceil(run.train.epochs * epochs.n_batches(0) / run.train.accumulate)
        run = replace(run, train=replace(run.train, steps=max(1, steps)))

    torch.manual_seed(run.train.seed)
    model: Any = FAMILIES[run.family][0](run.model).to(device)
    if run.train.compile:
        model.hidden = torch.compile(model.hidden, dynamic=True)
    n_parameters = sum(p.numel() for p in model.parameters())
    journal.notice(
        f"{len(pairs.ids):,} training pairs, {len(text.valid):,} for validation; vocabulary "
        f"{len(tokenizers.target):,}; {n_parameters / 1e6:.1f} million parameters; "
        f"{run.train.steps:,} steps on {device}"
    )
    n_samples = run.train.bleu_sentences
    return Session(
        run, folder, journal, tokenizers, model, optimizer.build(model, run.train.optimizer),
        epochs, _validation(run, tokenizers, text.valid, journal),
        (text.valid.sources[:n_samples], text.valid.targets[:n_samples]), stop, Progress(),
    )  # fmt: skip


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
class Encoded:
    """The pairs that are short enough, as text and as ids."""

    sources: list[str]
    targets: list[str]
    ids: list[Pair]


def _encode(
    tokenizers: Tokenizers, pairs: Pairs, max_length: int, what: str, journal: Journal
) -> Encoded:
    source = tokenizers.source.encode_batch(pairs.sources)
    target = tokenizers.target.encode_batch(pairs.targets)
    fits = [i for i in range(len(source)) if max(len(source[i]), len(target[i])) <= max_length]
    left_out = len(source) - len(fits)
    if not fits:
        raise DataError(
            f"all {len(source):,} {what} pairs are longer than {max_length} tokens; "
            "raise data.max_length"
        )
    if left_out:
        journal.notice(f"{left_out:,} {what} pairs longer than {max_length} tokens are left out")
    return Encoded(
        [pairs.sources[i] for i in fits],
        [pairs.targets[i] for i in fits],
        [(source[i], target[i]) for i in fits],
    )


@dataclass(frozen=True)
class Encoder:
    """The ids of an epoch: always the same, or cut anew each time if subwords are sampled."""

    tokenizers: Tokenizers
    pairs: Encoded
    seed: int
    max_length: int

    def __call__(self, epoch: int) -> Sequence[Pair]:
        if not self.tokenizers.config.sampling:
            return self.pairs.ids
        draw = random.Random(f"{self.seed} {epoch}")
        source, target = self.tokenizers.source, self.tokenizers.target
        cut = [
            (source.encode(s, sample=draw), target.encode(t, sample=draw))
            for s, t in zip(self.pairs.sources, self.pairs.targets, strict=True)
        ]
        return [  # a pair that was cut too finely is taken uncut
            pair if max(map(len, pair)) <= self.max_length else uncut
            for pair, uncut in zip(cut, self.pairs.ids, strict=True)
        ]


def _validation(
    run: Run, tokenizers: Tokenizers, pairs: Pairs, journal: Journal
) -> list[TranslationBatch]:
    encoded = _encode(tokenizers, pairs, run.data.max_length, "validation", journal)
    epochs = Epochs(lambda _: encoded.ids, run.train.max_tokens, seed=0)
    return [epochs[(0, i)] for i in range(epochs.n_batches(0))]
