"""Text classification: fine-tuning a pre-trained encoder, or training one from scratch.

The labels say what is learned: one class of each text, several, or a number (`data.labels`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from polyhead.data.batches.base import pad
from polyhead.data.batches.labelled import TextBatch, TextBatches, segments_of
from polyhead.data.batches.resampling import SubwordSampler
from polyhead.data.labelled_text import TEXTS, ExampleForm, load_labelled
from polyhead.data.labels import PAIR, Problem, encode_labels, label_values
from polyhead.data.line_encoder import StoreForm, encode_texts
from polyhead.data.line_spool import Examples
from polyhead.data.stored_text import CorpusReader, TextCorpus, open_store, read_corpus
from polyhead.data.token_store import TokenSequences
from polyhead.metrics.classification import report
from polyhead.metrics.named_metrics import MetricName, registered_metric
from polyhead.metrics.predictions import label_scores, number_scores
from polyhead.models.bert import with_two_segments
from polyhead.tasks.base import Outputs
from polyhead.tasks.losses import ClassificationLoss, label_loss
from polyhead.tokenizers.base import Tokenizer
from polyhead.tokenizers.storage import TokenizerPair
from polyhead.training.config import RunConfig
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers

N_PREDICTED = 64  # texts at a time
LabelledCorpus = TextCorpus
KINDS = {
    "single_label": "{} classes", "multi_label": "{} labels, several of each",
    "regression": "numbers", "contrastive": "pairs",
}  # fmt: skip


class TextClassificationTask:
    """Assign one of several classes to each text, several of them, or a number."""

    def read_data(self, config: RunConfig) -> tuple[LabelledCorpus, dict[str, str]]:
        return read_labelled_corpus(config)

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: LabelledCorpus, log: RunLog
    ) -> TaskSetup:
        texts = encode_corpus(config, run_dir, corpus, log)
        problem, n_classes = corpus.problem, len(corpus.classes)
        about: dict[str, Any] = {"classes": list(corpus.classes), "pairs": texts.of_pairs}
        sizes: dict[str, Any] = {"problem": problem, "classes": n_classes}
        if problem == "regression":
            numbers = texts.batches.labels
            assert isinstance(numbers, np.ndarray)
            about["range"] = [float(numbers.min()), float(numbers.max())]
            scale = float(numbers.std(dtype=np.float64)) or 1.0
            sizes |= {"classes": 1, "mean": float(numbers.mean(dtype=np.float64)), "scale": scale}
            about["classes"] = [NUMBER]
        config = with_sizes(config, texts, sizes)
        if problem != "single_label":
            config = judged_by_loss(config, log)
        return TaskSetup(
            config,
            texts.tokenizers,
            texts.batches,
            ClassificationLoss(config.train.smoothing),
            lambda model, _step, processes: validate(
                texts.valid_batches, corpus.classes, model, processes, config.train.judge_by
            ),
            texts.summary,
            about,
            partial(predict, texts.valid, corpus) if problem == "single_label" else None,
        )


NUMBER = "number"  # the only class of a model of numbers


@dataclass(frozen=True)
class EncodedCorpus:
    """Tokenizers and batches of labelled texts; `of_pairs`: each text is two."""

    tokenizers: TokenizerPair
    batches: TextBatches
    valid: TokenSequences
    valid_batches: Sequence[TextBatch]
    of_pairs: bool
    summary: str


def read_labelled_corpus(
    config: RunConfig, form: ExampleForm = TEXTS, *, of_pairs: bool = False
) -> tuple[LabelledCorpus, dict[str, str]]:
    """Read labelled texts, or pairs without labels too; see `TrainingTask.read_data`."""
    data, seed = config.data, config.train.seed
    reader = CorpusReader(lambda spool: load_labelled(data, seed, spool, form, of_pairs=of_pairs))
    return read_corpus(data, config.task, seed, reader)


def encode_corpus(
    config: RunConfig, run_dir: RunDir, corpus: LabelledCorpus, log: RunLog
) -> EncodedCorpus:
    """Train or load the tokenizer, encode texts and labels, and make batches."""
    tokenizers = load_or_train_tokenizers(
        run_dir.tokenizer, corpus.train.texts, (), config.text, log
    )
    log.stage("encoding the text")
    max_length, max_tokens = config.data.max_length, config.train.max_tokens
    problem, classes = cast("Problem", corpus.problem), corpus.classes
    valid = _encode(tokenizers.source, corpus.valid, max_length, "validation", log)
    valid_labels = encode_labels(corpus.valid.labels, problem, classes)
    seed, sampling = config.train.seed, bool(tokenizers.config.sampling)
    form = StoreForm("labelled", max_length, sampling, classes, problem)
    stores, counts = open_store(corpus.train, run_dir.tokenizer, form, log)
    _warn_if_truncated(counts["n_too_long"], len(corpus.train), max_length, "training", log)
    train, labels = stores["text"], stores["label"]
    of_pairs, n = PAIR in corpus.valid.texts[0], len(classes)
    sampler = None
    if sampling:
        stored = [stores["text_text"]]
        sampler = SubwordSampler([tokenizers.source], stored, seed, max_length, of_pairs)
    values, valid_values = label_values(labels, problem), label_values(valid_labels, problem)
    return EncodedCorpus(
        tokenizers,
        TextBatches(train, values, max_tokens, seed, sampler, n),
        valid,
        TextBatches(valid, valid_values, max_tokens, 0, None, n).of_epoch(0),
        of_pairs,
        f"{len(train):,} training examples of {KINDS[problem].format(n)}, {len(valid):,} "
        f"for validation; vocabulary {len(tokenizers.source):,}",
    )


def with_sizes(
    config: RunConfig, texts: EncodedCorpus, head: Mapping[str, Any] | None = None
) -> RunConfig:
    """Return the configuration with the sizes that follow from the data; `head`: its fields."""
    model = replace(config.model, **(head or {}))
    encoder = model.encoder
    if config.train.init is None:  # [MASK] is the id after the tokenizer's last, as in BERT
        encoder = replace(encoder, vocab=len(texts.tokenizers.source) + 1)
    if texts.of_pairs and head:  # which reads both texts at once
        encoder = with_two_segments(encoder)
    return replace(config, model=replace(model, encoder=encoder))


def judged_by_loss(config: RunConfig, log: RunLog) -> RunConfig:
    """Return the configuration without `judge_by`, if that is the accuracy, which is not known."""
    if config.train.judge_by != "accuracy":
        return config
    log.notice("these labels have no accuracy: the best model is the one with the smallest loss")
    return replace(config, train=replace(config.train, judge_by="loss"))


def _encode(
    tokenizer: Tokenizer, examples: Examples, max_length: int, part: str, log: RunLog
) -> TokenSequences:
    too_long = 0

    def framed() -> Iterator[list[int]]:
        nonlocal too_long
        for ids, length in encode_texts(tokenizer, examples.texts, max_length):
            too_long += length > max_length
            yield ids

    encoded = TokenSequences.of(framed(), len(tokenizer))
    _warn_if_truncated(too_long, len(encoded), max_length, part, log)
    return encoded


def _warn_if_truncated(
    n_too_long: int, n_texts: int, max_length: int, part: str, log: RunLog
) -> None:
    if n_too_long:
        log.notice(
            f"{n_too_long:,} of {n_texts:,} {part} texts are longer than {max_length} tokens "
            "and were truncated"
        )


@torch.inference_mode()
def predict(
    texts: TokenSequences, corpus: LabelledCorpus, model: Any, processes: Processes
) -> Outputs:
    """Return the classes of texts in their order, which does not depend on the tokenizer."""
    device = next(model.parameters()).device

    def score(start: int) -> list[int]:
        part = [texts[n].tolist() for n in range(start, min(start + N_PREDICTED, len(texts)))]
        ids = pad(part).to(device)
        numbers: list[int] = model(ids, segments_of(ids)).argmax(-1).tolist()
        return numbers

    scored = processes.map(score, range(0, len(texts), N_PREDICTED))
    lines = [corpus.classes[number] for numbers in scored for number in numbers]
    return Outputs(lines, corpus.valid.labels, "accuracy")


@torch.inference_mode()
def validate(
    batches: Sequence[TextBatch],
    classes: Sequence[str],
    model: Any,
    processes: Processes,
    judge_by: MetricName = "loss",
) -> dict[str, float]:
    """Return the loss and scores; of classes also the metric of a plug-in if it judges."""
    device = next(model.parameters()).device

    def score(batch: TextBatch) -> tuple[float, list[Any]]:
        ids = batch.ids.to(device)
        logits = model(ids, segments_of(ids)).float()
        total = label_loss(logits, batch.labels.to(device), model).item()
        predicted = {"single_label": logits.argmax(-1), "multi_label": logits > 0}
        return total, predicted.get(model.problem, logits[:, 0]).tolist()

    scored = processes.map(score, batches)
    labels = np.concatenate([batch.labels.numpy() for batch in batches])
    predicted = [row for _, rows in scored for row in rows]
    loss = sum(total for total, _ in scored) / len(labels)
    if model.problem == "regression":
        return {"loss": loss, **number_scores(labels, np.array(predicted))}
    if model.problem == "multi_label":
        return {"loss": loss, **label_scores(labels > 0, np.array(predicted))}
    scores = report(labels.tolist(), predicted, classes)
    names = [[classes[number] for number in numbers] for numbers in (predicted, labels)]
    return {
        "loss": loss,
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro_f1,
        **registered_metric(judge_by, *names),
    }
