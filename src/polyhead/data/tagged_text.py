"""Words with tags: CoNLL files, JSON lines, and tables whose cells are lists.

    CoNLL      a word and its tag on each line, an empty line after each sentence
    CoNLL-U    treebanks of Universal Dependencies: columns 2 (FORM) and 4 (UPOS) unless others are
               named; comments, ranges (1-2) and empty nodes (8.1) are left out
    others     one sentence per record: `words` (or `tokens`) and `tags`, names or numbers

An example is kept as two lines, its words and its tags, each joined by tabs. For use, a text is
split into words by the rule that fits the training data:

    characters     every character is a word, as for the spacing of Korean
    punctuation    white space divides words; punctuation before and after a word is cut off
    spaces         white space divides words: in Korean, eojeol
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from polyhead.data.columns import Record, TwoColumns, show_pairs
from polyhead.data.config import DataConfig, WordRule
from polyhead.data.labelled_text import ExampleForm
from polyhead.data.locate import find
from polyhead.data.tables import Cell, NotText, Row, decoded_kind, open_table, shorten
from polyhead.data.text_files import BadLine, open_text
from polyhead.errors import DataError

MARKS = r"!-/:-@\[-`{-~¡-¿‐-‧‰-⁞、-〃〈-】〔-〟！-／：-＠［-｀｛-･"
RULES: dict[WordRule, re.Pattern[str]] = {
    "spaces": re.compile(r"\S+"),
    "punctuation": re.compile(rf"[^\s{MARKS}](?:\S*[^\s{MARKS}])?|\S"),
    "characters": re.compile(r"\S"),
}
NAMES = {  # of columns, in lower case
    "words": "words|tokens|word|text|sentence|단어|어절",
    "tags": "tags|.*_tags|labels?|tag|태그|레이블",
}
RULE_SAMPLE = 2_000  # sentences
UD_COLUMNS = 10
UD_ID, UD_EXTRA = re.compile(r"\d+([-.]\d+)?"), re.compile(r"\d+[-.]\d+")
HEAD = 200  # lines that decide on the form of CoNLL
CHUNK_TAG = re.compile(r"O|[BIESLU](-.+)?")


def split_words(text: str, rule: WordRule) -> list[tuple[int, int]]:
    """Return the places of the words of a text: their first character and the end."""
    return [match.span() for match in RULES[rule].finditer(text)]


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
