"""Text classification: fine-tuning a pre-trained encoder, or training one from scratch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from polyhead.data.batches.labelled import TextBatch, TextBatches, framed
from polyhead.data.batches.resampling import SubwordSampler
from polyhead.data.labelled_text import (
    LabelledCorpus,
    LabelledExamples,
    class_numbers,
    load_labelled,
)
from polyhead.data.token_store import TokenSequences
from polyhead.metrics.classification import report
from polyhead.tokenizers.base import Tokenizer, encode_lines
from polyhead.training.config import RunConfig
from polyhead.training.losses import ClassificationLoss
from polyhead.training.run_dir import RunDir, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers


class TextClassificationTask:
    """Assign one of several classes to each text."""

    def read_data(self, config: RunConfig) -> tuple[LabelledCorpus, dict[str, str]]:
        corpus = load_labelled(config.data, config.train.seed)
        parts = {"training": corpus.train, "validation": corpus.valid}
        return corpus, {name: fingerprint([*p.texts, *p.labels]) for name, p in parts.items()}

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
        train = _encode(tokenizers.source, corpus.train, max_length, "training", log)
        valid = _encode(tokenizers.source, corpus.valid, max_length, "validation", log)
        labels, valid_labels = (
            np.array(class_numbers(part.labels, corpus.classes, "the data"))
            for part in (corpus.train, corpus.valid)
        )
        seed = config.train.seed
        sampler = SubwordSampler([tokenizers.source], [corpus.train.texts], seed, max_length)
        valid_batches = TextBatches(valid, valid_labels, max_tokens, seed=0).of_epoch(0)
        return TaskSetup(
            config,
            tokenizers,
            TextBatches(
                train, labels, max_tokens, seed, sampler if tokenizers.config.sampling else None
            ),
            ClassificationLoss(config.train.smoothing),
            lambda model, _step: validate(valid_batches, corpus.classes, model),
            f"{len(train):,} training examples of {len(corpus.classes)} classes, {len(valid):,} "
            f"for validation; vocabulary {len(tokenizers.source):,}",
            {"classes": list(corpus.classes)},
        )


def _encode(
    tokenizer: Tokenizer, examples: LabelledExamples, max_length: int, part: str, log: RunLog
) -> TokenSequences:
    encoded = TokenSequences.of(encode_lines(tokenizer, examples.texts), len(tokenizer))
    too_long = int((encoded.lengths + 1 > max_length).sum())
    if too_long:
        log.notice(
            f"{too_long:,} of {len(encoded):,} {part} texts are longer than {max_length} tokens "
            "and were truncated"
        )
    lines = (ids.tolist() for ids in encoded)
    return TokenSequences.of(framed(lines, max_length), len(tokenizer))


@torch.inference_mode()
def validate(batches: Sequence[TextBatch], classes: Sequence[str], model: Any) -> dict[str, float]:
    """Return loss, accuracy and macro F1."""
    device = next(model.parameters()).device
    total, labels, predictions = 0.0, [], []
    for batch in (batch.to(device) for batch in batches):
        logits = model(batch.ids).float()
        total += F.cross_entropy(logits, batch.labels, reduction="sum").item()
        labels += batch.labels.tolist()
        predictions += logits.argmax(-1).tolist()
    scores = report(labels, predictions, classes)
    return {"loss": total / len(labels), "accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
