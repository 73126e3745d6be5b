"""Tags of words and answers in contexts: fine-tuning a pre-trained encoder, or from scratch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from polyhead.data.batches.labelled import PositionBatches
from polyhead.data.holdout import Corpus
from polyhead.data.labelled_text import ExampleForm, LabelledExamples, load_labelled
from polyhead.data.line_encoder import Kind, StoreForm, encode_columns
from polyhead.data.question_files import NO_ANSWER, QUESTIONS, answers_of
from polyhead.data.tagged_text import TAGGED, are_chunks, find_rule
from polyhead.data.word_pieces import WordEncoder, windows_of
from polyhead.metrics.classification import report
from polyhead.metrics.question_answering import (
    SpanSearch,
    rank_answers,
    read_windows,
    score_answer,
)
from polyhead.metrics.tagging import entity_report, predict_tags
from polyhead.tokenizers.base import Tokenizer
from polyhead.training.config import RunConfig
from polyhead.training.losses import Objective, SpanLoss, TagLoss
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.stored_text import CorpusReader, StoredText, open_store, read_corpus
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers

ExampleCorpus = Corpus[LabelledExamples | StoredText, LabelledExamples]
Validate = Callable[[Any, int, Processes], dict[str, float]]


@dataclass(frozen=True)
class TokenTask:
    """A task with labels of tokens; `kind` is the form of its encoded examples."""

    kind: Kind
    form: ExampleForm

    def read_data(self, config: RunConfig) -> tuple[ExampleCorpus, dict[str, str]]:
        seed = config.train.seed
        reader = CorpusReader(
            lambda spool: load_labelled(config.data, seed, spool, self.form),
            lambda corpus: {
                name: fingerprint(chain(part.texts, part.labels))
                for name, part in (("training", corpus.train), ("validation", corpus.valid))
            },
            lambda part: (part.texts, part.labels),
            LabelledExamples,
        )
        return read_corpus(config.data, seed, reader)

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: ExampleCorpus, log: RunLog
    ) -> TaskSetup:
        tokenizers = load_or_train_tokenizers(
            run_dir.tokenizer, corpus.train.texts, (), config.text, log
        )
        model, data = config.model, config.data
        if self.kind == "tags":
            model = replace(model, classes=len(corpus.classes))
        if config.train.init is None:  # [MASK] is the id after the tokenizer's last, as in BERT
            encoder = replace(model.encoder, vocab=len(tokenizers.source) + 1)
            model = replace(model, encoder=encoder)
        config = replace(config, model=model)
        log.stage("encoding the text")
        form = StoreForm(self.kind, data.max_length, False, corpus.classes, data.stride)
        if isinstance(corpus.train, StoredText):
            stores, counts = open_store(corpus.train, run_dir.tokenizer, form, log)
            texts, labels, n_too_long = stores["text"], stores["label"], counts["n_too_long"]
        else:
            columns = (corpus.train.texts, corpus.train.labels)
            (texts, labels), n_too_long = encode_columns(tokenizers, columns, form)
        if n_too_long:
            what = "sentences" if self.kind == "tags" else "questions with their contexts"
            log.notice(
                f"{n_too_long:,} of {len(corpus.train):,} training {what} are longer than "
                f"{data.max_length} tokens and were cut into parts"
            )
        about, validate, objective = self.parts(config, tokenizers.source, corpus)
        return TaskSetup(
            config,
            tokenizers,
            PositionBatches(texts, labels, config.train.max_tokens, config.train.seed),
            objective,
            validate,
            f"{len(corpus.train):,} training examples, {len(corpus.valid):,} for validation; "
            f"vocabulary {len(tokenizers.source):,}",
            about,
        )

    def parts(
        self, config: RunConfig, tokenizer: Tokenizer, corpus: ExampleCorpus
    ) -> tuple[dict[str, Any], Validate, Objective]:
        """Return what is saved with models, the validation and the loss."""
        encoder = WordEncoder(tokenizer)
        if self.kind == "tags":
            rule = config.data.words or find_rule(corpus.train.texts)
            return (
                {"classes": list(corpus.classes), "words": rule},
                lambda model, _, processes: validate_tags(
                    model, encoder, corpus, config.data.max_length, processes
                ),
                TagLoss(config.train.smoothing),
            )
        has_impossible = NO_ANSWER in corpus.classes
        return (
            {"no_answer": has_impossible},
            lambda model, _, processes: validate_answers(model, encoder, corpus, config, processes),
            SpanLoss(),
        )


TAGGING = TokenTask("tags", TAGGED)
QUESTION_ANSWERING = TokenTask("spans", QUESTIONS)


def validate_tags(
    model: Any, encoder: WordEncoder, corpus: ExampleCorpus, max_length: int, processes: Processes
) -> dict[str, float]:
    """Return loss and accuracy by word, and F1: of entities, or the mean over the tags."""
    classes, valid = corpus.classes, corpus.valid
    numbers = {name: number for number, name in enumerate(classes)}
    sentences = [text.split("\t") for text in valid.texts]
    rows = predict_tags(model, encoder, sentences, max_length, map_batches=processes.map)
    flat = np.array([row for sentence in rows for row in sentence])
    labels = [numbers[tag] for label in valid.labels for tag in label.split("\t")]
    scores = report(labels, flat.argmax(1).tolist(), classes)
    f1 = scores.macro_f1
    if are_chunks(classes):
        guessed = [[classes[int(np.argmax(row))] for row in sentence] for sentence in rows]
        f1 = entity_report([label.split("\t") for label in valid.labels], guessed).f1
    loss = -float(flat[np.arange(len(labels)), labels].mean())
    return {"loss": loss, "accuracy": scores.accuracy, "f1": f1}


def validate_answers(
    model: Any,
    encoder: WordEncoder,
    corpus: ExampleCorpus,
    config: RunConfig,
    processes: Processes,
) -> dict[str, float]:
    """Return the loss by window, exact match, and F1 of words and characters."""
    data = config.data
    search = SpanSearch(data.max_answer, 1, 0.0 if NO_ANSWER in corpus.classes else None)
    groups, answers = [], []
    for text, label in zip(corpus.valid.texts, corpus.valid.labels, strict=True):
        question, context = text.split("\t")
        answers.append(answers_of(label))
        spans = [(start, start + len(answer)) for start, answer in answers[-1]]
        groups.append(windows_of(
            encoder, question, context, next(iter(spans), None),
            max_length=data.max_length, stride=data.stride,
        ))  # fmt: skip
    scored = read_windows(
        model, list(chain.from_iterable(groups)), search, map_batches=processes.map
    )
    rest, scores = iter(scored), []
    for text, group, right in zip(corpus.valid.texts, groups, answers, strict=True):
        context = text.partition("\t")[2]
        best = rank_answers(context, [next(rest) for _ in group], search)[0]
        scores.append(score_answer(best.text, [answer for _, answer in right]))
    exact, f1, character_f1 = np.array(scores).mean(0).tolist()
    loss = sum(window.loss for window in scored) / len(scored)
    return {"loss": loss, "exact_match": exact, "f1": f1, "character_f1": character_f1}
