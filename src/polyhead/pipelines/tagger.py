"""Tags of words: `Tagger.from_dir("runs/names").tag("세종대왕은 서울에서 태어났다.")`."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, overload

from polyhead.data.config import WordRule
from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.labelled_text import ExampleForm, LabelledExamples, read_labelled
from polyhead.data.labels import PAIR
from polyhead.data.tagged_text import RULES, TAGGED, are_chunks, split_words
from polyhead.data.word_pieces import WordEncoder
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.metrics.tagging import TaggingReport, entities, predict_tags, score_tags
from polyhead.models.registry import TaskName
from polyhead.pipelines.base import ClassifierPipeline, Pipeline
from polyhead.pipelines.result_list import ResultList, as_texts
from polyhead.render import notebook


@dataclass(frozen=True)
class TaggedSpan:
    """A word, `text[start:end]`, with its likeliest tag; or words that are tagged as one.

    probability: of the tag; of several words, the product of theirs.
    """

    text: str
    start: int
    end: int
    tag: str
    probability: float


@dataclass(frozen=True)
class TaggedText:
    """The words of a text, and the entities if the tags mark any (B-X, I-X)."""

    text: str
    words: tuple[TaggedSpan, ...]
    entities: tuple[TaggedSpan, ...]

    def _repr_html_(self) -> str:
        spans = self.entities or self.words
        rows = [
            [notebook.escape(span.text), notebook.escape(span.tag), notebook.bar(span.probability)]
            for span in spans
        ]
        return notebook.table(["text", "tag", "probability"], rows)


class WordPipeline(Pipeline):
    """A pipeline that encodes words one by one, and reads examples from files."""

    form: ClassVar[ExampleForm]

    @cached_property
    def encoder(self) -> WordEncoder:
        """The encoder of single words."""
        return WordEncoder(self.tokenizer)

    def read(
        self, files: str | Path | Sequence[str | Path], encoding: str = "utf-8"
    ) -> tuple[LabelledExamples, list[str]]:
        """Return examples from files as in training, and notices about them."""
        notices: list[str] = []
        config = replace(self.data, encoding=encoding)
        names = evaluation_files([files] if isinstance(files, str | Path) else files, "labelled")
        return read_labelled(names, config, notices, self.form), notices


@dataclass(frozen=True, repr=False)
class Tagger(ClassifierPipeline, WordPipeline):
    """A model that gives every word of a text a tag."""

    tasks: ClassVar[tuple[TaskName, ...]] = ("token_classification",)
    use: ClassVar[str] = "tag"
    form: ClassVar[ExampleForm] = TAGGED

    @property
    def rule(self) -> WordRule:
        """The rule that splits texts into words, as in the training data."""
        rule = self.data.words or self.saved.about.get("words")
        return rule if rule in RULES else "punctuation"

    @overload
    def tag(self, texts: str) -> TaggedText: ...  # type: ignore[overload-overlap]
    @overload
    def tag(
        self, texts: Iterable[str], *, progress: Callable[[int], None] = ...
    ) -> ResultList[TaggedText]: ...
    def tag(
        self, texts: str | Iterable[str], *, progress: Callable[[int], None] = lambda _: None
    ) -> TaggedText | ResultList[TaggedText]:
        """Return the words of a text, or of several, with their tags.

        texts: one, or a list; long ones are read in parts.
        progress: called with the number of parts of each batch.

        Example: `[(word.text, word.tag) for word in tagger.tag("세종대왕은 서울에서").words]`
        """
        lines = as_texts(texts, "tag")
        places = [split_words(text, self.rule) for text in lines]
        sentences = [
            [text[slice(*place)] for place in row] for text, row in zip(lines, places, strict=True)
        ]
        rows = predict_tags(self.model, self.encoder, sentences, self.max_length, progress=progress)
        results = ResultList(map(self._tagged, lines, places, rows))
        return results[0] if isinstance(texts, str) else results

    def _tagged(
        self, text: str, places: list[tuple[int, int]], rows: list[list[float]]
    ) -> TaggedText:
        words = []
        for place, row in zip(places, rows, strict=True):
            log_p = max(row)
            tag = self.classes[row.index(log_p)]
            words.append(TaggedSpan(text[slice(*place)], *place, tag, math.exp(log_p)))
        marked = []
        for first, end, kind in entities([word.tag for word in words]):
            place = words[first].start, words[end - 1].end
            share = math.prod(word.probability for word in words[first:end])
            marked.append(TaggedSpan(text[slice(*place)], *place, kind, share))
        return TaggedText(text, tuple(words), tuple(marked if are_chunks(self.classes) else ()))

    def evaluate(self, files: str | Path | Sequence[str | Path]) -> TaggingReport:
        """Return the scores on files of words and tags, with the same columns as in training.

        Example: `tagger.evaluate("test.conll").f1`
        """
        return self.evaluate_examples(*self.read(files))

    def evaluate_examples(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> TaggingReport:
        """Return the scores on examples that were read before."""
        log_p = predict_tags(
            self.model, self.encoder, [text.split(PAIR) for text in examples.texts],
            self.max_length, map_batches=map_batches, progress=progress,
        )  # fmt: skip
        return score_tags(log_p, examples.labels, self.classes, self.name, notices)
