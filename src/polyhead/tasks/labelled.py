"""Texts, or pairs of texts, as one sequence of ids each: what classifiers and embedders share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from polyhead.data.labels import PAIR, encode_labels, label_values
from polyhead.data.line_encoder import StoreForm, encode_texts, text_bytes
from polyhead.data.token_store import TokenSequences
from polyhead.tasks.base import Facts, Output, Result, Task, TrainingCorpus, Used
from polyhead.tokenizers.storage import TokenizerPair

KINDS = {  # of labels, for the log
    "single_label": " of {} classes", "multi_label": " of {} labels, several of each",
    "regression": " of numbers", "contrastive": " of pairs",
}  # fmt: skip


class WholeText(NamedTuple):
    """A text or pair as BOS ids EOS or BOS ids EOS ids EOS, truncated; `length`: of all ids."""

    ids: list[int]
    length: int


@dataclass(frozen=True)
class TextInput:
    """A text, or a pair with a tab between its texts."""

    text: str
    parts: tuple[WholeText, ...]


def encode_whole(used: Used, texts: Sequence[str]) -> list[WholeText]:
    """Return texts or pairs as a model reads them."""
    encoded = encode_texts(used.tokenizers.source, texts, used.max_length)
    return [WholeText(*text) for text in encoded]


class WholeTextTask(Task[TextInput, Output, Result]):
    """A task whose inputs are whole texts or pairs, with labels for each."""

    when_long = "truncated"

    def encode(
        self, tokenizers: TokenizerPair, columns: Sequence[Sequence[str]], form: StoreForm
    ) -> tuple[list[TokenSequences], int]:
        encoded = list(encode_texts(tokenizers.source, columns[0], form.max_length))
        stores = [
            TokenSequences.of((ids for ids, _ in encoded), len(tokenizers.source)),
            encode_labels(columns[1], form.problem, form.classes),
        ]
        stores += [text_bytes(columns[0])] if form.with_texts else []
        return stores, sum(length > form.max_length for _, length in encoded)

    def batches(self, data: TrainingCorpus) -> Any:
        """Return batches of texts with their labels, with subword sampling if configured."""
        from polyhead.data.batches.labelled import TextBatches
        from polyhead.data.batches.resampling import SubwordSampler

        train, stores, sampler = data.config.train, data.stores, None
        problem: Any = data.corpus.problem
        if "text_text" in stores:
            sampler = SubwordSampler(
                [data.tokenizers.source], [stores["text_text"]], train.seed,
                data.config.data.max_length, are_pairs(data),
            )  # fmt: skip
        values, n_classes = label_values(stores["label"], problem), len(data.corpus.classes)
        return TextBatches(stores["text"], values, train.max_tokens, train.seed, sampler, n_classes)


def are_pairs(data: TrainingCorpus) -> bool:
    """Return whether the texts of a corpus are pairs."""
    return PAIR in data.corpus.valid.texts[0]


def without_accuracy(facts: Facts) -> Facts:
    """Return facts of labels that have no accuracy, which therefore cannot judge the best model."""
    if facts.config.train.judge_by != "accuracy":
        return facts
    notice = "these labels have no accuracy: the best model is the one with the smallest loss"
    train = replace(facts.config.train, judge_by="loss")
    return replace(facts, config=replace(facts.config, train=train), notices=(notice,))
