"""Tags of words and answers in contexts: fine-tuning a pre-trained encoder, or from scratch."""

from dataclasses import replace
from typing import Any, ClassVar

from polyhead.data.batches.labelled import PositionBatches
from polyhead.data.labelled_text import ExampleForm
from polyhead.data.labels import NO_ANSWER, PAIR
from polyhead.data.line_encoder import Kind, StoreForm, encode_columns
from polyhead.data.question_files import QUESTIONS, answers_of
from polyhead.data.tagged_text import TAGGED, find_rule
from polyhead.data.word_pieces import WordEncoder, windows_of
from polyhead.metrics.question_answering import SpanSearch, find_answers, score_answers
from polyhead.metrics.tagging import predict_tags, score_tags
from polyhead.tasks.losses import SpanLoss, TagLoss
from polyhead.training.config import RunConfig
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.stored_text import StoredText, open_store
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers
from polyhead.training.tasks.text_classification import LabelledCorpus, read_labelled_corpus


class TokenTask:
    """A task with labels of tokens; `kind` is the form of its encoded examples."""

    kind: ClassVar[Kind]
    form: ClassVar[ExampleForm]

    def read_data(self, config: RunConfig) -> tuple[LabelledCorpus, dict[str, str]]:
        return read_labelled_corpus(config, self.form)

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: LabelledCorpus, log: RunLog
    ) -> TaskSetup:
        tokenizers = load_or_train_tokenizers(
            run_dir.tokenizer, corpus.train.texts, (), config.text, log
        )
        tags, data, model = self.kind == "tags", config.data, config.model
        if tags:
            model = replace(model, classes=len(corpus.classes))
        if config.train.init is None:  # [MASK] is the id after the tokenizer's last, as in BERT
            encoder = replace(model.encoder, vocab=len(tokenizers.source) + 1)
            model = replace(model, encoder=encoder)
        log.stage("encoding the text")
        form = StoreForm(self.kind, data.max_length, classes=corpus.classes, stride=data.stride)
        if isinstance(corpus.train, StoredText):
            stores, counts = open_store(corpus.train, run_dir.tokenizer, form, log)
            texts, labels, n_too_long = stores["text"], stores["label"], counts["n_too_long"]
        else:
            columns = (corpus.train.texts, corpus.train.labels)
            (texts, labels), n_too_long = encode_columns(tokenizers, columns, form)
        if n_too_long:
            log.notice(
                f"{n_too_long:,} of {len(corpus.train):,} training "
                f"{'sentences' if tags else 'questions with their contexts'} are longer than "
                f"{data.max_length} tokens and were cut into parts"
            )
        words = WordEncoder(tokenizers.source)
        config = replace(config, model=model)
        about: dict[str, Any] = {"no_answer": NO_ANSWER in corpus.classes, "pairs": True}
        if tags:
            rule = data.words or find_rule(corpus.valid.texts)  # also of a stored corpus in memory
            about = {"classes": list(corpus.classes), "words": rule}
        validate = validate_tags if tags else validate_answers
        return TaskSetup(
            config,
            tokenizers,
            PositionBatches(texts, labels, config.train.max_tokens, config.train.seed),
            TagLoss(config.train.smoothing) if tags else SpanLoss(),
            lambda model, _, processes: validate(model, words, corpus, config, processes),
            f"{len(corpus.train):,} training examples, {len(corpus.valid):,} for validation; "
            f"vocabulary {len(tokenizers.source):,}",
            about,
        )


class TaggingTask(TokenTask):
    """Give every word a tag."""

    kind, form = "tags", TAGGED


class QuestionAnsweringTask(TokenTask):
    """Find the answers to questions in contexts."""

    kind, form = "spans", QUESTIONS


def validate_tags(
    model: Any, words: WordEncoder, corpus: LabelledCorpus, config: RunConfig, processes: Processes
) -> dict[str, float]:
    """Return loss and accuracy by word, and F1: of entities, or the mean over the tags."""
    sentences = [text.split(PAIR) for text in corpus.valid.texts]
    longest = config.data.max_length
    log_p = predict_tags(model, words, sentences, longest, map_batches=processes.map)
    scores = score_tags(log_p, corpus.valid.labels, corpus.classes, "the validation data")
    return {"loss": scores.loss, "accuracy": scores.report.accuracy, "f1": scores.f1}


def validate_answers(
    model: Any, words: WordEncoder, corpus: LabelledCorpus, config: RunConfig, processes: Processes
) -> dict[str, float]:
    """Return the loss by window, exact match, and F1 of words and characters."""
    data, rights = config.data, [answers_of(label) for label in corpus.valid.labels]
    pairs = []
    for text, right in zip(corpus.valid.texts, rights, strict=True):
        question, context = text.split(PAIR)
        limits = {"max_length": data.max_length, "stride": data.stride}
        pairs.append((context, windows_of(words, question, context, right, **limits)))
    search = SpanSearch(data.max_answer, 1, 0.0 if NO_ANSWER in corpus.classes else None)
    answers, loss = find_answers(model, pairs, search, map_batches=processes.map)
    scores = score_answers(answers, [[text for _, text in right] for right in rights])
    return {"loss": loss, **scores.scores}
