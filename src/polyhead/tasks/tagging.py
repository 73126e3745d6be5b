"""Tags of words: readers, scores, and the task `token_classification`.

    CoNLL      a word and its tag on each line, an empty line after each sentence
    CoNLL-U    treebanks of Universal Dependencies: columns 2 (FORM) and 4 (UPOS) unless others are
               named; comments, ranges (1-2) and empty nodes (8.1) are left out
    others     one sentence per record: `words` (or `tokens`) and `tags`, names or numbers

An example is kept as two lines, its words and its tags, each joined by tabs. For use, a text is
split into words by the rule that fits the training data:

    characters     every character is a word, as for the spacing of Korean
    punctuation    white space divides words; punctuation before and after a word is cut off
    spaces         white space divides words: in Korean, eojeol

An entity is right if its first word, last word and type are right, as conlleval counts. It starts
at B-X or S-X, or at any X that does not continue an entity of that type; it ends before another
one, before O, and after E-X or S-X (Tjong Kim Sang and De Meulder 2003). L- is E-, and U- is S-.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from polyhead.data.columns import Record, TwoColumns, show_pairs
from polyhead.data.config import DataConfig, WordRule
from polyhead.data.labelled_text import ExampleForm
from polyhead.data.labels import PAIR, encode_labels
from polyhead.data.line_encoder import StoreForm
from polyhead.data.line_spool import Examples
from polyhead.data.locate import find
from polyhead.data.tables import Cell, NotText, Row, decoded_kind, open_table, shorten
from polyhead.data.text_files import BadLine, open_text
from polyhead.data.token_store import TokenSequences
from polyhead.errors import DataError
from polyhead.metrics.bleu import SAMPLES
from polyhead.metrics.classification import ClassificationReport, Interval, class_scores, report
from polyhead.metrics.predictions import ScoreReport, Scores, score_report
from polyhead.render import notebook
from polyhead.special_tokens import BOS, EOS
from polyhead.tasks.base import (
    Facts,
    Measured,
    Stage,
    Task,
    TrainingCorpus,
    Used,
    map_parts,
    with_mask_token,
)
from polyhead.tasks.words import (
    MARKS,
    RULES,
    WordEncoder,
    position_batches,
    split_words,
    word_encoder,
)
from polyhead.tokenizers.storage import TokenizerPair

if TYPE_CHECKING:
    from polyhead.metrics.perplexity import MapBatches

NAMES = {  # of columns, in lower case
    "words": "words|tokens|word|text|sentence|단어|어절",
    "tags": "tags|.*_tags|labels?|tag|태그|레이블",
}
RULE_SAMPLE = 2_000  # sentences
UD_COLUMNS = 10
UD_ID, UD_EXTRA = re.compile(r"\d+([-.]\d+)?"), re.compile(r"\d+[-.]\d+")
HEAD = 200  # lines that decide on the form of CoNLL
CHUNK_TAG = re.compile(r"O|[BIESLU](-.+)?")
BEGIN, END = "BSU", "ESLU"  # tags that start an entity, and that end one
Rows = list[list[float]]  # of each word, the log-probabilities of all tags
Counts = Shaped[np.ndarray, "sentence"]


# Examples


def find_rule(sentences: Iterable[str]) -> WordRule:
    """Return the rule that would split texts into words such as these (joined by tabs)."""
    words = [word for line in islice(sentences, RULE_SAMPLE) for word in line.split("\t")]
    if all(len(word) == 1 for word in words):
        return "characters"
    end = re.compile(f"[{MARKS}]")
    n_alone = sum(len(word) == 1 for word in words if end.match(word[-1]))
    n_attached = sum(len(word) > 1 for word in words if end.match(word[-1]))
    return "punctuation" if n_alone > n_attached else "spaces"


def are_chunks(tags: Iterable[str]) -> bool:
    """Return whether tags mark the parts of chunks: B- and I-, perhaps with E- and S-, or O."""
    names = set(tags)
    return all(map(CHUNK_TAG.fullmatch, names)) and any(name.startswith("B") for name in names)


def read_tagged(path: str | Path, config: DataConfig) -> TwoColumns:
    """Read sentences of words and tags; the notices show the first."""
    text = open_text(path, encoding=config.encoding) if _is_conll(path, config) else None
    if text is not None:
        name, notices, records = text.name, text.notices, _conll(text.name, iter(text), config)
    else:
        table = open_table(path, encoding=config.encoding).with_header()
        columns = table.columns or ()
        keys = (config.text_key, config.label_key)
        places = [_column(columns, *pair, table.name) for pair in zip(NAMES, keys, strict=True)]
        rows = chain(table.sample, table.rest)
        name, notices = table.name, table.notices
        records = (_record(row, places, table.name, config) for row in rows)
    head = list(islice(records, 2))
    shown = [(r.first.replace("\t", " "), r.second.replace("\t", " ")) for r in head if not r.bad]
    if shown:
        notices = (*notices, f"{name}: {show_pairs(shown)}")
    return TwoColumns(name, chain(head, records), notices, None)


def _is_conll(path: str | Path, config: DataConfig) -> bool:
    """Return whether a file is text whose first line that is not empty is not JSON."""
    if str(path) == "-":
        return True
    if decoded_kind(find(path)) or ".csv" in Path(path).suffixes:
        return False
    lines = (line for line in open_text(path, encoding=config.encoding) if line)
    first = next(lines, "")
    return not (isinstance(first, str) and first.lstrip().startswith(("{", "[{")))


def _conll(name: str, lines: Iterator[str | BadLine], config: DataConfig) -> Iterator[Record]:
    """Yield sentences; the columns are divided by tabs, or by spaces if there is no tab."""
    head = list(islice(lines, HEAD))
    words_of_head = (n for n in head if isinstance(n, str) and n.strip() and n[0] != "#")
    first = next(words_of_head, "")
    width = len(_cells(first))
    is_treebank = width == UD_COLUMNS and UD_ID.fullmatch(_cells(first)[0]) is not None
    defaults = ("2", "4") if is_treebank else ("1", "0")  # 0: the last
    places = [config.text_key or defaults[0], config.label_key or defaults[1]]
    if not all(key.isdecimal() for key in places):
        raise DataError(
            f"{name}: columns of a CoNLL file have no names; give their numbers with --text-column "
            "and --label-column",
            "unknown_column",
        )
    word_at, tag_at = map(int, places)
    words: list[str] = []
    tags: list[str] = []
    problem: BadLine | None = None
    start = 1
    for number, line in enumerate(chain(head, lines, [""]), start=1):
        if isinstance(line, BadLine):
            problem = problem or line
        elif line.strip():
            cells = _cells(line)
            is_like_first = len(cells) == width and ("\t" in line) == ("\t" in first)
            if line[0] == "#" and (is_treebank or not is_like_first):
                continue
            if is_treebank and UD_EXTRA.fullmatch(cells[0]):
                continue
            if len(cells) < max(2, word_at, tag_at) or not all(
                cells[n - 1] for n in (word_at, tag_at)
            ):
                why = f"{len(cells)} columns, expected a word and its tag"
                problem = problem or BadLine(name, number, why)
                continue
            words.append(" ".join(cells[word_at - 1].split()))
            tags.append(cells[tag_at - 1].strip())
        elif words or problem:
            if problem or words[0] != "-DOCSTART-":
                yield Record(start, "\t".join(words), "\t".join(tags), problem)
            words, tags, problem, start = [], [], None, number + 1


def _cells(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split()


def _column(columns: Sequence[str], role: str, key: str | None, name: str) -> int:
    """Return the position of a column."""
    named = [n for n, column in enumerate(columns) if re.fullmatch(NAMES[role], column.lower())]
    if key is not None:
        named = [columns.index(key)] if key in columns else []
    if len(named) != 1:
        raise DataError(
            f"{name}: cannot tell which of the columns {shorten(columns)} holds the {role}. Name "
            f"it with --{'text' if role == 'words' else 'label'}-column.",
            "unclear_columns",
        )
    return named[0]


def _record(row: Row, places: Sequence[int], name: str, config: DataConfig) -> Record:
    """Return the words and tags of a record, or why it cannot be used."""
    if row.bad is not None or not row.cells:
        return Record(row.line, "", "", row.bad)
    words, tags = (_items(row.cells[n] if n < len(row.cells) else "") for n in places)
    problem = None
    if words is None or tags is None:
        problem = "expected two lists: words, and their tags"
    elif len(words) != len(tags):
        problem = f"{len(words)} words, but {len(tags)} tags"
    elif not all(words) or not all(tags):
        problem = "an empty word or tag"
    elif config.tag_names:
        names = {str(number): tag for number, tag in enumerate(config.tag_names)}
        if names.keys() >= set(tags):
            tags = [names[tag] for tag in tags]
        else:
            problem = f"expected tags from 0 to {len(config.tag_names) - 1}, as in data.tag_names"
    if problem is not None:
        return Record(row.line, "", "", BadLine(name, row.line, problem))
    return Record(row.line, "\t".join(words or ()), "\t".join(tags or ()))


def _items(cell: Cell) -> list[str] | None:
    """Return the items of a list, or those of a text that spaces divide."""
    if isinstance(cell, str):
        return cell.split()
    if isinstance(cell, NotText) and isinstance(cell.value, list):
        return [" ".join(str(item).split()) for item in cell.value]
    return None


TAGGED = ExampleForm(read_tagged, problem="tags")


# Scores


class Entity(NamedTuple):
    """An entity: its first word, the end, and its type."""

    first: int
    end: int
    type: str


@dataclass(frozen=True)
class TaggingReport:
    """Scores of the tags of words, and of entities if the tags mark any; loss by word."""

    report: ClassificationReport
    accuracy: Interval
    entities: ScoreReport | None
    loss: float
    n_examples: int
    notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} sentences"
        interval = f"{samples}: accuracy [{self.accuracy.low:.4f}, {self.accuracy.high:.4f}]"
        by_entity = "" if self.entities is None else f"\n\nentities:\n{self.entities}"
        return f"{self.report}\n\n{interval}{by_entity}"

    @property
    def f1(self) -> float:
        """F1 of the entities; without any, the mean over the tags."""
        return self.report.macro_f1 if self.entities is None else self.entities.scores["f1"]


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, in order."""
    chunks: list[Entity] = []
    first, kind, before = None, "", "O"
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        continues = prefix not in (*BEGIN, "O") and name == kind and before not in END
        if first is not None and not continues:
            chunks.append(Entity(first, place, kind))
            first = None
        if first is None and prefix != "O":
            first = place
        kind, before = name, prefix
    return chunks


def entity_report(
    expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> ScoreReport:
    """Compare the entities of sentences, given by the tags of their words."""
    counts = [Counter[str](), Counter[str](), Counter[str]()]  # by type
    columns = np.zeros((3, len(expected)))
    for number, sides in enumerate(zip(expected, predicted, strict=True)):
        both = [set(entities(tags)) for tags in sides]
        for place, group in enumerate((both[0] & both[1], *both)):
            columns[place, number] = len(group)
            counts[place].update(entity.type for entity in group)
    types = sorted(counts[1] | counts[2])
    hits, right, given = (np.array([count[name] for name in types]) for count in counts)
    classes = class_scores(hits, right, given, types)
    return score_report(entity_scores, *columns, classes=classes)


def entity_scores(hits: Counts, expected: Counts, predicted: Counts) -> Scores:
    """Return precision, recall and F1 by the counts of each sentence."""
    columns = (hits, expected, predicted)
    n_hits, n_expected, n_predicted = (float(column.sum()) for column in columns)
    return {
        "precision": n_hits / max(1.0, n_predicted),
        "recall": n_hits / max(1.0, n_expected),
        "f1": 2 * n_hits / max(1.0, n_expected + n_predicted),
    }


def score_tags(
    log_p: Sequence[Rows],
    labels: Sequence[str],
    classes: Sequence[str],
    where: str,
) -> TaggingReport:
    """Compare the predicted tags of sentences with the right ones, which tabs join."""
    expected = [label.split(PAIR) for label in labels]
    rights = [numbers.tolist() for numbers in encode_labels(labels, "tags", classes, where)]
    numbers = [np.argmax(rows, axis=1).tolist() for rows in log_p]
    n_right = [sum(map(int.__eq__, *pair)) for pair in zip(rights, numbers, strict=True)]
    n_words = [len(tags) for tags in expected]

    def word_scores(right: Counts, words: Counts) -> Scores:
        return {"accuracy": float(right.sum() / max(1.0, words.sum()))}

    predicted = [[classes[number] for number in sentence] for sentence in numbers]
    flat = list(chain(*rights))
    chosen = [row[n] for row, n in zip(chain(*log_p), flat, strict=True)]
    return TaggingReport(
        report(flat, list(chain(*numbers)), classes),
        score_report(word_scores, np.array(n_right), np.array(n_words)).intervals["accuracy"],
        entity_report(expected, predicted) if are_chunks(classes) else None,
        -sum(chosen) / len(chosen),
        len(labels),
    )


# The task


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

    def __str__(self) -> str:
        return " ".join(word.tag for word in self.words)

    def _repr_html_(self) -> str:
        spans = self.entities or self.words
        rows = [
            [notebook.escape(span.text), notebook.escape(span.tag), notebook.bar(span.probability)]
            for span in spans
        ]
        return notebook.table(["text", "tag", "probability"], rows)


class WordPart(NamedTuple):
    """Words that fit into a text: BOS ids EOS, and the position of the first token of each word."""

    ids: list[int]
    firsts: list[int]


def parts_of_words(encoder: WordEncoder, words: Sequence[str], max_length: int) -> list[WordPart]:
    """Cut a sentence between words into parts of at most `max_length` ids."""
    parts, ids, firsts = list[WordPart](), [BOS], list[int]()
    for word in words:
        pieces = [piece.id for piece in encoder(word)[: max_length - 2]]
        if len(ids) + len(pieces) + 1 > max_length:
            parts.append(WordPart([*ids, EOS], firsts))
            ids, firsts = [BOS], []
        firsts.append(len(ids))
        ids += pieces
    return [*parts, WordPart([*ids, EOS], firsts)]


@dataclass(frozen=True)
class TaggingInput:
    """A sentence in words, as parts that a model reads; of a user's text with their places."""

    text: str
    places: list[tuple[int, int]]
    parts: list[WordPart]


class Tagging(Task[TaggingInput, Rows, TaggedText]):
    """Give every word a tag."""

    name, verb, tag = "token_classification", "tag", "token-classification"
    metrics = ("loss", "accuracy", "f1")
    result_class = TaggedText
    pipeline = "polyhead.pipelines.task_pipeline:Tagger"
    form, examples = TAGGED, "sentences"

    def facts(self, data: TrainingCorpus) -> Facts:
        config, classes = data.config, data.corpus.classes
        model = replace(with_mask_token(config, data.tokenizers), classes=len(classes))
        rule = config.data.words or find_rule(data.corpus.valid.texts)  # in memory in any case
        return Facts(replace(config, model=model), {"classes": list(classes), "words": rule})

    def encode(
        self, tokenizers: TokenizerPair, columns: Sequence[Sequence[str]], form: StoreForm
    ) -> tuple[list[TokenSequences], int]:
        """Labels are the numbers of the tags from 1 on; 0 at all but the first token of a word."""
        encoder, n_cut = WordEncoder(tokenizers.source), 0
        texts: list[list[int]] = []
        labels: list[list[int]] = []
        tags = encode_labels(columns[1], "tags", form.classes)
        for words, numbers in zip(columns[0], tags, strict=True):
            parts = parts_of_words(encoder, words.split(PAIR), form.max_length)
            n_cut += len(parts) > 1
            rest = iter(numbers.tolist())
            for part in parts:
                label = [0] * len(part.ids)
                for position in part.firsts:
                    label[position] = next(rest) + 1
                texts.append(part.ids)
                labels.append(label)
        sides = zip((texts, labels), form.sizes(tokenizers), strict=True)
        return [TokenSequences.of(*side) for side in sides], n_cut

    def batches(self, data: TrainingCorpus) -> Any:
        return position_batches(data)

    def loss(self, config: Any, _about: Mapping[str, Any]) -> Any:
        from polyhead.tasks.losses import TagLoss

        return TagLoss(config.train.smoothing)

    def read(self, used: Used, rows: Sequence[tuple[str, ...]]) -> list[TaggingInput]:
        rule: Any = used.data.words or used.about.get("words")
        rule, inputs = rule if rule in RULES else "punctuation", []
        for (text,) in rows:
            places = split_words(text, rule)
            words = [text[slice(*place)] for place in places]
            parts = parts_of_words(word_encoder(used), words, used.max_length)
            inputs.append(TaggingInput(text, places, parts))
        return inputs

    def example(self, used: Used, examples: Examples) -> list[TaggingInput]:
        return [
            TaggingInput(
                text, [], parts_of_words(word_encoder(used), text.split(PAIR), used.max_length)
            )
            for text in examples.texts
        ]

    def run(
        self, used: Used, inputs: Sequence[TaggingInput], _options: Any,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> list[Rows]:  # fmt: skip
        """Return of every word the log-probabilities of all tags."""

        def compute(ids: Any, parts: list[WordPart]) -> list[Rows]:
            log_p = used.model(ids).float().log_softmax(-1).cpu()
            return [log_p[row, part.firsts].tolist() for row, part in enumerate(parts)]

        parts = map_parts(compute, used, inputs, map_batches, progress)
        return [list(chain(*rows)) for rows in parts]

    def result(self, used: Used, given: TaggingInput, output: Rows, _options: Any) -> TaggedText:
        classes, text = used.about["classes"], given.text
        words = []
        for place, row in zip(given.places, output, strict=True):
            log_p = max(row)
            tag = classes[row.index(log_p)]
            words.append(TaggedSpan(text[slice(*place)], *place, tag, math.exp(log_p)))
        marked = []
        for first, end, kind in entities([word.tag for word in words]):
            place = words[first].start, words[end - 1].end
            share = math.prod(word.probability for word in words[first:end])
            marked.append(TaggedSpan(text[slice(*place)], *place, kind, share))
        return TaggedText(text, tuple(words), tuple(marked if are_chunks(classes) else ()))

    def measure(
        self, used: Used, inputs: Sequence[TaggingInput], labels: Sequence[str], _stage: Stage,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> Measured:  # fmt: skip
        """Return loss and accuracy by word, and F1: of entities, or the mean over the tags."""
        log_p = self.run(used, inputs, None, map_batches, progress)
        scores = score_tags(log_p, labels, used.about["classes"], used.name)
        figures = {"loss": scores.loss, "accuracy": scores.report.accuracy, "f1": scores.f1}
        return Measured(figures, scores)

    def row(self, result: TaggedText, _options: Any) -> str:
        return "".join([*(f"{word.text}\t{word.tag}\n" for word in result.words), "\n"])
