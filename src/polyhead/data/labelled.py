"""Texts and their classes, in one record each: tab-separated columns, or JSON.

    지루하지는 않다<TAB>0                          .tsv: text, then label; or named by its heading
    {"text": "지루하지는 않다", "label": 0}         .jsonl; a label may be text or a whole number

The names of the classes are those that occur in the training data, in order.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyhead.data.config import DataConfig, found, make_missing
from polyhead.data.parallel import drawn, plain
from polyhead.data.records import Keys, records_of
from polyhead.data.text_files import BadLine, Text, read_text
from polyhead.errors import ConfigError, DataError

HELD_OUT_SHARE = 0.1
MAX_CLASSES = 1000
TEXT, LABEL = "text", "label"  # what the two are called unless told otherwise


@dataclass(frozen=True)
class Examples:
    """Text n belongs to class `labels[n]`."""

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class LabelledCorpus:
    """What to train on, what to validate on, and the names of the classes."""

    train: Examples
    valid: Examples
    classes: tuple[str, ...]
    notices: tuple[str, ...]


def load(config: DataConfig, seed: int) -> LabelledCorpus:
    """Read everything that a configuration names."""
    if not config.labelled:
        raise ConfigError(
            "data.labelled: give at least one file of texts and labels (TSV or JSON lines), as in "
            "--data FILE"
        )
    make_missing(config)
    notices: list[str] = []
    train = read(found(config.labelled), config, notices)
    if config.valid_labelled:
        valid = read(found(config.valid_labelled), config, notices)
    else:
        train, valid = _hold_out(train, config.hold_out, seed)
        notices.append(
            f"no validation file given: {len(valid):,} of {len(train) + len(valid):,} examples are "
            "held out for validation and not trained on"
        )
    classes = classes_of(train)
    numbers(valid.labels, classes, "the validation data")
    return LabelledCorpus(train, valid, classes, tuple(notices))


def read(paths: Sequence[Path], config: DataConfig, notices: list[str]) -> Examples:
    """The examples of some files; what cannot be used is skipped or an error, as configured."""
    texts, labels, bad = [], [], []
    for path in paths:
        text = read_text(path, encoding=config.encoding)
        notices += text.notices
        keys = keys_of(text, config.text_key, config.label_key)
        for record in records_of(_with_words(text, keys.target), keys):
            wrong = record.bad or _missing(record.source, record.target, text.name, record.line)
            if wrong is None:
                texts.append(record.source)
                labels.append(record.target.strip())
            elif record.bad or record.source.strip() or record.target.strip():
                bad.append(wrong)  # an empty line is no example and no mistake
    if bad and config.on_bad_line == "fail":
        raise DataError(f"{bad[0]}; correct or remove the line")
    if not texts:
        why = f" ({bad[0]})" if bad else ""
        raise DataError(f"{paths[0]} holds no text with a label{why}")
    if bad:
        lines = "1 bad line" if len(bad) == 1 else f"{len(bad):,} bad lines"
        notices.append(f"{lines} skipped: {'; '.join(str(line) for line in bad[:3])}")
    return Examples(texts, labels)


def keys_of(text: Text, text_key: str | None, label_key: str | None) -> Keys:
    """What text and label are called. Columns without names are the first and the second."""
    if not text.name.lower().removesuffix(".gz").endswith(".tsv"):
        return Keys(text_key or TEXT, label_key or LABEL)
    heading = text.lines[0].split("\t") if text.lines else []
    if text_key is None and TEXT in heading:
        text_key = TEXT
    if label_key is None and LABEL in heading and (text_key is None or not text_key.isdecimal()):
        label_key = LABEL
    return Keys(text_key, label_key)


def classes_of(examples: Examples) -> tuple[str, ...]:
    """All labels that occur: numbers by value, words by their letters."""
    names = set(examples.labels)
    if len(names) < 2:
        raise DataError(
            f"all {len(examples):,} examples have the label {examples.labels[0]!r}; a classifier "
            "needs at least 2 classes"
        )
    if len(names) > MAX_CLASSES:
        raise DataError(
            f"{len(names):,} different labels, at most {MAX_CLASSES:,} are possible; is it the "
            "right column? name it with data.label_key"
        )
    whole = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if whole else 0, name)))


def numbers(labels: Sequence[str], classes: Sequence[str], where: str) -> list[int]:
    """The numbers of the classes that labels name."""
    places = {name: place for place, name in enumerate(classes)}
    for label in labels:
        if label not in places:
            known = ", ".join(map(repr, classes[:8])) + (" …" if len(classes) > 8 else "")
            raise DataError(f"{where}: no class {label!r}; the training data had {known}")
    return [places[label] for label in labels]


def _missing(text: str, label: str, name: str, line: int) -> BadLine | None:
    for value, what in ((text, "text"), (label, "label")):
        if not value.strip():
            return BadLine(name, line, f"no {what}")
    return None


def _with_words(text: Text, key: str | None) -> Text:
    """JSON lines with labels that are numbers written as words: {"label": 0} means "0"."""
    if key is None or not text.name.lower().removesuffix(".gz").endswith(".jsonl"):
        return text
    return Text(text.name, [_in_words(line, key) for line in text.lines], text.bad, text.notices)


def _in_words(line: str, key: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line  # to be told by whoever reads the records
    if isinstance(value, dict) and isinstance(value.get(key), int):
        return json.dumps(value | {key: str(value[key])}, ensure_ascii=False)
    return line


def _hold_out(examples: Examples, count: int, seed: int) -> tuple[Examples, Examples]:
    """Some examples drawn by a seed, and the others in their order.

    Equal texts stay together, and of every class one is trained on.
    """
    count = max(1, min(count, int(len(examples) * HELD_OUT_SHARE)))
    first = dict(zip(reversed(examples.labels), reversed(examples.texts), strict=True))
    chosen = set(drawn(examples.texts, count, seed, never={plain(one) for one in first.values()}))
    if not chosen:
        raise DataError(
            f"{len(examples):,} example{'s are' if len(examples) > 1 else ' is'} not enough to "
            "train on and to hold some out, of which no equal text is trained on; give more, or a "
            "file for validation: --valid-data FILE"
        )
    parts = [
        Examples(
            [text for n, text in enumerate(examples.texts) if (n in chosen) == held],
            [label for n, label in enumerate(examples.labels) if (n in chosen) == held],
        )
        for held in (False, True)
    ]
    return parts[0], parts[1]
