"""Text classification: fine-tuning a pre-trained encoder, or training one from scratch."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from polyhead.checkpoint import atomic_dir as store
from polyhead.data import labelled
from polyhead.data.batches.labelled import TextBatch, TextBatches, framed
from polyhead.data.labelled import Examples, LabelledCorpus
from polyhead.errors import ConfigError
from polyhead.metrics.classification import report
from polyhead.models.bert import BERTConfig
from polyhead.tokenizers import storage as tokenizer
from polyhead.tokenizers.storage import Tokenizers, sampled
from polyhead.training import run_dir as runs
from polyhead.training.config import RunConfig
from polyhead.training.finetune import with_dropout
from polyhead.training.losses import ClassificationLoss
from polyhead.training.pretrained_encoder import (
    PretrainedEncoder,
    copy_encoder,
    read_initial,
    require_tokenizers,
)
from polyhead.training.run_dir import fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup
from polyhead.training.tasks.sequences import check_lengths
from polyhead.training.tasks.vocabulary import tokenizers_of


@dataclass(frozen=True)
class LabelledData:
    """The examples, and the model to begin from if there is one."""

    corpus: LabelledCorpus
    initial: PretrainedEncoder | None

    @property
    def notices(self) -> tuple[str, ...]:
        """What there is to say about them."""
        if self.initial is None:
            return self.corpus.notices
        return (*self.corpus.notices, f"beginning from the encoder of {self.initial.path}")


@dataclass(frozen=True)
class TextClassificationTask:
    """For models that put a text into one of several classes."""

    def read(self, run: RunConfig) -> LabelledData:
        """Texts with labels; the pre-trained model, once it is clear that it can read them."""
        if run.train.compile:
            raise ConfigError("train.compile: not for classifiers; leave it out")
        initial = read_initial(run.train.init)
        if initial is not None:
            require_tokenizers(initial)
        check_lengths(run, run.model.encoder if initial is None else initial.config)
        return LabelledData(labelled.load(run.data, run.train.seed), initial)

    def fingerprints(self, material: LabelledData) -> dict[str, str]:
        """All texts with their labels, and the pre-trained weights."""
        corpus = material.corpus
        found = {"training": _fingerprint(corpus.train), "validation": _fingerprint(corpus.valid)}
        if material.initial is not None:
            found["pre-trained model or its"] = material.initial.fingerprint
        return found

    def prepare(
        self, run: RunConfig, folder: Path, material: LabelledData, journal: RunLog
    ) -> TaskSetup:
        """A tokenizer, texts as ids, batches of equal length."""
        corpus, initial = material.corpus, material.initial
        tokenizers = _tokenizers(run, folder, material, journal)
        model = replace(run.model, classes=len(corpus.classes))
        if initial is None:  # one id more than the tokenizer's, as in pre-training: [MASK]
            encoder = replace(model.encoder, vocab=len(tokenizers.source) + 1)
            model = replace(model, encoder=encoder)
        else:
            model = replace(model, encoder=_as_given(initial, run), head=initial.head)
        run = replace(run, model=model)
        journal.stage("encoding the text")
        train = _encode(tokenizers, corpus.train, run.data.max_length, "training", journal)
        valid = _encode(tokenizers, corpus.valid, run.data.max_length, "validation", journal)
        labels = [
            labelled.numbers(part.labels, corpus.classes, "the data")
            for part in (corpus.train, corpus.valid)
        ]
        validation = TextBatches(lambda _: valid, labels[1], run.train.max_tokens, seed=0)
        return TaskSetup(
            run,
            tokenizers,
            TextBatches(
                Cutter(tokenizers, corpus.train.texts, train, run),
                labels[0],
                run.train.max_tokens,
                run.train.seed,
            ),
            ClassificationLoss(run.train.smoothing),
            partial(examine, validation.of_epoch(0), corpus.classes),
            f"{len(train):,} training examples of {len(corpus.classes)} classes, {len(valid):,} "
            f"for validation; vocabulary {len(tokenizers.source):,}",
            about={"classes": list(corpus.classes)},
            begin=None if initial is None else partial(copy_encoder, initial),
        )


@dataclass(frozen=True)
class Cutter:
    """The ids of an epoch: always the same, or cut anew each time if subwords are sampled."""

    tokenizers: Tokenizers
    texts: Sequence[str]
    uncut: Sequence[list[int]]
    run: RunConfig

    def __call__(self, epoch: int) -> Sequence[list[int]]:
        if not self.tokenizers.config.sampling:
            return self.uncut
        draw = random.Random(f"{self.run.train.seed} {epoch}")
        encode = self.tokenizers.source.encode
        return framed((encode(t, sample=draw) for t in self.texts), self.run.data.max_length)


def _as_given(initial: PretrainedEncoder, run: RunConfig) -> BERTConfig:
    """The pre-trained encoder as it is, but with this run's dropout: that belongs to training."""
    stack = with_dropout(initial.config.stack, run.model.encoder.stack)
    return replace(initial.config, stack=stack)


def _fingerprint(examples: Examples) -> str:
    return fingerprint([*examples.texts, *examples.labels])


def _tokenizers(
    run: RunConfig, folder: Path, material: LabelledData, journal: RunLog
) -> Tokenizers:
    """Those of the pre-trained model, or some learned from the training texts."""
    if material.initial is None:
        return tokenizers_of(folder, material.corpus.train.texts, (), run.text, journal)
    place = folder / runs.TOKENIZER
    found = sampled(require_tokenizers(material.initial), run.text.sampling)
    if not place.exists():
        with store.atomic_dir(place) as draft:
            tokenizer.save(found, draft)
    return found


def _encode(
    tokenizers: Tokenizers, examples: Examples, max_length: int, what: str, journal: RunLog
) -> list[list[int]]:
    ids = tokenizers.source.encode_batch(examples.texts)
    too_long = sum(len(line) + 1 > max_length for line in ids)
    if too_long:
        journal.notice(
            f"{too_long:,} of {len(ids):,} {what} texts are longer than {max_length} tokens and "
            "lose their end"
        )
    return framed(ids, max_length)


@torch.inference_mode()
def examine(
    batches: Sequence[TextBatch], classes: Sequence[str], model: Any, _step: int
) -> dict[str, float]:
    """Loss, accuracy and macro F1 on all validation texts."""
    device = next(model.parameters()).device
    total, right, said = 0.0, [], []
    for batch in (batch.to(device) for batch in batches):
        logits = model(batch.ids).float()
        total += F.cross_entropy(logits, batch.labels, reduction="sum").item()
        right += batch.labels.tolist()
        said += logits.argmax(-1).tolist()
    found = report(right, said, classes)
    return {"loss": total / len(right), "accuracy": found.accuracy, "macro_f1": found.macro_f1}
