"""Text classification: fine-tuning a pre-trained encoder, or training one from scratch."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from polyhead.data.batches.labelled import TextBatch, TextBatches
from polyhead.data.batches.resampling import SubwordSampler, Texts
from polyhead.data.holdout import Corpus
from polyhead.data.labelled_text import LabelledExamples, class_numbers, load_labelled
from polyhead.data.line_encoder import StoreForm, framed
from polyhead.data.token_store import TokenSequences
from polyhead.metrics.classification import report
from polyhead.metrics.named_metrics import MetricName, registered_metric
from polyhead.tokenizers.base import Tokenizer, encode_lines
from polyhead.training.config import RunConfig
from polyhead.training.losses import ClassificationLoss
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.stored_text import CorpusReader, StoredText, open_store, read_corpus
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers

LabelledCorpus = Corpus[LabelledExamples | StoredText, LabelledExamples]


class TextClassificationTask:
    """Assign one of several classes to each text."""

    def read_data(self, config: RunConfig) -> tuple[LabelledCorpus, dict[str, str]]:
        seed = config.train.seed
        reader = CorpusReader(
            lambda spool: load_labelled(config.data, seed, spool),
            lambda corpus: {
                name: fingerprint(chain(part.texts, part.labels))
                for name, part in (("training", corpus.train), ("validation", corpus.valid))
            },
            lambda part: (part.texts, part.labels),
            LabelledExamples,
        )
        return read_corpus(config.data, seed, reader)

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: LabelledCorpus, log: RunLog
    ) -> TaskSetup:
        tokenizers = load_or_train_tokenizers(
            run_dir.tokenizer, corpus.train.texts, (), config.text, log
        )
        model = replace(config.model, classes=len(corpus.classes))
        if config.train.init is None:  # [MASK] is the id after the tokenizer's last, as in BERT
            encoder = replace(model.encoder, vocab=len(tokenizers.source) + 1)
            model = replace(model, encoder=encoder)
        config = replace(config, model=model)
        log.stage("encoding the text")
        max_length, max_tokens = config.data.max_length, config.train.max_tokens
        valid = _encode(tokenizers.source, corpus.valid, max_length, "validation", log)
        valid_labels = np.array(class_numbers(corpus.valid.labels, corpus.classes, "the data"))
        seed, sampling = config.train.seed, bool(tokenizers.config.sampling)
        texts: Texts
        if isinstance(corpus.train, StoredText):
            form = StoreForm("labelled", max_length, sampling, corpus.classes)
            stores, counts = open_store(corpus.train, run_dir.tokenizer, form, log)
            _warn_if_truncated(counts["n_too_long"], len(corpus.train), max_length, "training", log)
            train, labels, texts = stores["text"], stores["label"].ids, stores.get("text_text", [])
        else:
            train = _encode(tokenizers.source, corpus.train, max_length, "training", log)
            labels = np.array(class_numbers(corpus.train.labels, corpus.classes, "the data"))
            texts = corpus.train.texts
        sampler = SubwordSampler([tokenizers.source], [texts], seed, max_length)
        valid_batches = TextBatches(valid, valid_labels, max_tokens, seed=0).of_epoch(0)
        return TaskSetup(
            config,
            tokenizers,
            TextBatches(train, labels, max_tokens, seed, sampler if sampling else None),
            ClassificationLoss(config.train.smoothing),
            lambda model, _step, processes: validate(
                valid_batches, corpus.classes, model, processes, config.train.judge_by
            ),
            f"{len(train):,} training examples of {len(corpus.classes)} classes, {len(valid):,} "
            f"for validation; vocabulary {len(tokenizers.source):,}",
            {"classes": list(corpus.classes)},
        )


def _encode(
    tokenizer: Tokenizer, examples: LabelledExamples, max_length: int, part: str, log: RunLog
) -> TokenSequences:
    encoded = TokenSequences.of(encode_lines(tokenizer, examples.texts), len(tokenizer))
    too_long = int((encoded.lengths + 1 > max_length).sum())
    _warn_if_truncated(too_long, len(encoded), max_length, part, log)
    lines = (ids.tolist() for ids in encoded)
    return TokenSequences.of(framed(lines, max_length), len(tokenizer))


def _warn_if_truncated(
    n_too_long: int, n_texts: int, max_length: int, part: str, log: RunLog
) -> None:
    if n_too_long:
        log.notice(
            f"{n_too_long:,} of {n_texts:,} {part} texts are longer than {max_length} tokens "
            "and were truncated"
        )


@torch.inference_mode()
def validate(
    batches: Sequence[TextBatch],
    classes: Sequence[str],
    model: Any,
    processes: Processes,
    judge_by: MetricName = "loss",
) -> dict[str, float]:
    """Return loss, accuracy and macro F1, and the metric of a plug-in if it judges."""
    device = next(model.parameters()).device

    def score(batch: TextBatch) -> tuple[float, list[int]]:
        logits, labels = model(batch.ids.to(device)).float(), batch.labels.to(device)
        total = F.cross_entropy(logits, labels, reduction="sum").item()
        return total, logits.argmax(-1).tolist()

    scored = processes.map(score, batches)
    labels = [label for batch in batches for label in batch.labels.tolist()]
    predictions = [number for _, numbers in scored for number in numbers]
    scores = report(labels, predictions, classes)
    loss = sum(total for total, _ in scored) / len(labels)
    names = [[classes[number] for number in numbers] for numbers in (predictions, labels)]
    return {
        "loss": loss,
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro_f1,
        **registered_metric(judge_by, *names),
    }
