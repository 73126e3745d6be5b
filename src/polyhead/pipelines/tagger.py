"""Tags of words: `Tagger.from_dir("runs/names").tag("세종대왕은 서울에서 태어났다.")`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import ClassVar, overload

import numpy as np

from polyhead.data.config import DataConfig, WordRule
from polyhead.data.labelled_text import LabelledExamples, class_numbers, read_labelled
from polyhead.data.tagged_text import RULES, TAGGED, are_chunks, split_words
from polyhead.data.word_pieces import WordEncoder
from polyhead.errors import check_list
from polyhead.metrics.bleu import SAMPLES
from polyhead.metrics.classification import ClassificationReport, Interval, report
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.metrics.tagging import (
    EntityReport,
    entities,
    entity_report,
    predict_tags,
    ratio_interval,
)
from polyhead.models.registry import Task
from polyhead.pipelines.base import ClassifierPipeline


@dataclass(frozen=True)
class TaggedWord:
    """A word, `text[start:end]`, with its likeliest tag and the probability of it."""

    text: str
    start: int
    end: int
    tag: str
    probability: float


@dataclass(frozen=True)
class TaggedEntity:
    """Words that are tagged as one; `probability` is the product of theirs."""

    text: str
    start: int
    end: int
    type: str
    probability: float


@dataclass(frozen=True)
class TaggedText:
    """The words of a text, and the entities if the tags mark any (B-X, I-X)."""

    text: str
    words: tuple[TaggedWord, ...]
    entities: tuple[TaggedEntity, ...]


@dataclass(frozen=True)
class TaggingEvaluation:
    """Scores of a tagger: of the tags of words, and of entities if the tags mark any."""

    report: ClassificationReport
    accuracy: Interval
    entities: EntityReport | None
    n_examples: int
    notices: tuple[str, ...]

    def __str__(self) -> str:
        low, high = self.accuracy
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} sentences"
        by_entity = "" if self.entities is None else f"\n\n{self.entities}"
        return f"{self.report}\n\n{samples}: accuracy [{low:.4f}, {high:.4f}]{by_entity}"


@dataclass(frozen=True, repr=False)
class Tagger(ClassifierPipeline):
    """A model that gives every word of a text a tag."""

    tasks: ClassVar[tuple[Task, ...]] = ("token_classification",)
    use: ClassVar[str] = "tag"

    @cached_property
    def encoder(self) -> WordEncoder:
        """The encoder of single words."""
        return WordEncoder(self.tokenizer)

    @property
    def rule(self) -> WordRule:
        """The rule that splits texts into words, as in the training data."""
        rule = self.data.words or self.saved.about.get("words")
        return rule if rule in RULES else "punctuation"

    @overload
    def tag(self, texts: str) -> TaggedText: ...
    @overload
    def tag(
        self, texts: Sequence[str], *, progress: Callable[[int], None] = ...
    ) -> list[TaggedText]: ...
    def tag(
        self, texts: str | Sequence[str], *, progress: Callable[[int], None] = lambda _: None
    ) -> TaggedText | list[TaggedText]:
        """Return the words of a text, or of several, with their tags.

        texts: one, or a list; long ones are read in parts.
        progress: called with the number of parts of each batch.

        Example: `[(word.text, word.tag) for word in tagger.tag("세종대왕은 서울에서").words]`
        """
        if isinstance(texts, str):
            return self.tag([texts])[0]
        places = [split_words(text, self.rule) for text in texts]
        sentences = [
            [text[start:end] for start, end in spans]
            for text, spans in zip(texts, places, strict=True)
        ]
        rows = predict_tags(self.model, self.encoder, sentences, self.max_length, progress=progress)
        results = []
        for text, spans, row in zip(texts, places, rows, strict=True):
            best = [max(enumerate(word), key=lambda item: item[1]) for word in row]
            words = tuple(
                TaggedWord(text[start:end], start, end, self.classes[number], math.exp(log_p))
                for (start, end), (number, log_p) in zip(spans, best, strict=True)
            )
            results.append(TaggedText(text, words, self._entities(text, words)))
        return results

    def _entities(self, text: str, words: Sequence[TaggedWord]) -> tuple[TaggedEntity, ...]:
        found = []
        tags = [word.tag for word in words] if are_chunks(self.classes) else []
        for first, end, kind in entities(tags):
            parts = words[first:end]
            place = parts[0].start, parts[-1].end
            share = math.prod(word.probability for word in parts)
            found.append(TaggedEntity(text[slice(*place)], *place, kind, share))
        return tuple(found)

    def evaluate(self, files: Sequence[str | Path]) -> TaggingEvaluation:
        """Return the scores on files of words and tags, with the same columns as in training."""
        check_list(files, "evaluate", "files")
        return self.evaluate_examples(*self.read(files))

    def evaluate_examples(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> TaggingEvaluation:
        """Return the scores on examples that were read before."""
        sentences = [text.split("\t") for text in examples.texts]
        expected = [label.split("\t") for label in examples.labels]
        numbers = [class_numbers(tags, self.classes, self.name) for tags in expected]
        rows = predict_tags(
            self.model, self.encoder, sentences, self.max_length,
            map_batches=map_batches, progress=progress,
        )  # fmt: skip
        predicted = [np.argmax(sentence, axis=1).tolist() for sentence in rows]
        n_right = [sum(map(int.__eq__, *pair)) for pair in zip(numbers, predicted, strict=True)]
        n_words = [len(words) for words in sentences]
        guessed = [[self.classes[number] for number in sentence] for sentence in predicted]
        return TaggingEvaluation(
            report([*chain(*numbers)], [*chain(*predicted)], self.classes),
            ratio_interval(np.array(n_right), np.array(n_words)),
            entity_report(expected, guessed) if are_chunks(self.classes) else None,
            len(examples),
            tuple(notices),
        )

    def read(
        self, files: Sequence[str | Path], encoding: str = "utf-8"
    ) -> tuple[LabelledExamples, list[str]]:
        """Return words and tags from files, and notices about them."""
        notices: list[str] = []
        data = self.data
        config = replace(
            DataConfig(encoding=encoding),
            text_key=data.text_key, label_key=data.label_key, tag_names=data.tag_names,
        )  # fmt: skip
        return read_labelled(files, config, notices, TAGGED), notices
