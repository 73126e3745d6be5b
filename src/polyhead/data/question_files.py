"""Questions about contexts, with answers that are parts of the context.

    SQuAD's JSON    versions 1.1 and 2 (with questions that have no answer); KorQuAD's is the same
    tables          columns question, context, and answer with its first character (answer_start),
                    or `answers` as Hugging Face's datasets write it

An example is kept as two lines: question, tab, context; and the answers as JSON,
[[start, text], …], which is empty if the context holds no answer. White space of the context
becomes spaces, one for one, so that offsets stay as they are.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from polyhead.data.columns import Record, TwoColumns, show_pairs
from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import ExampleForm
from polyhead.data.labels import PAIR, join_pair
from polyhead.data.locate import find
from polyhead.data.tables import NotText, decoded_kind, open_table, shorten, text_problem
from polyhead.data.text_files import BadLine, excerpt, unpacked
from polyhead.errors import DataError

NAMES = {  # of columns, in lower case
    "question": "question|query|질문",
    "context": "context|passage|paragraph|본문|지문",
    "answer": "answers?|answer_text|정답|답",
    "start": "answer_start|start|시작",
}
SPACE = re.compile(r"\s")
PLACE = re.compile(r"\d{1,9}")


def read_questions(path: str | Path, config: DataConfig) -> TwoColumns:
    """Read questions with contexts and answers; the notices show the first."""
    articles = _squad(path, config.encoding)
    if articles is not None:
        name, notices, records = str(path), tuple[str, ...](), _from_squad(str(path), articles)
    else:
        table = open_table(path, encoding=config.encoding).with_header()
        name, notices = table.name, table.notices
        records = _from_rows(name, table.columns or (), chain(table.sample, table.rest))
    head = list(islice(records, 2))
    shown = [(r.first.split(PAIR)[0], r.second) for r in head if not r.bad]
    if shown:
        notices = (*notices, f"{name}: {show_pairs(shown)}")
    return TwoColumns(name, chain(head, records), notices, None)


def answers_of(label: str) -> list[tuple[int, str]]:
    """Return the answers of an example: first character and text."""
    return [(int(start), str(text)) for start, text in json.loads(label)]


def _squad(path: str | Path, encoding: str) -> list[Any] | None:
    """Return the articles of a file in SQuAD's form, which may be one line; None for others."""
    place = find(path)
    if not place.is_file() or decoded_kind(place):
        return None
    with place.open("rb") as stream:
        content = b"".join(unpacked(stream, str(path)))
    try:
        whole = json.loads(
            content.decode(encoding).removeprefix("\ufeff")
        )  # JSON lines end it at the second
    except (ValueError, RecursionError):
        return None
    articles = whole.get("data") if isinstance(whole, dict) else None
    return articles if isinstance(articles, list) else None


def _from_squad(name: str, articles: Sequence[Any]) -> Iterator[Record]:
    """Yield the questions; their `line` is their number in the file, from 1."""
    number = 0
    for article in articles:
        for paragraph in _objects(article, "paragraphs"):
            for item in _objects(paragraph, "qas"):
                number += 1
                answers = [] if item.get("is_impossible") else _answers(item.get("answers", []))
                yield _record(name, number, item.get("question"), paragraph.get("context"), answers)


def _objects(parent: object, key: str) -> list[dict[str, Any]]:
    """Return a list of objects; of anything else an empty object, which is a bad example."""
    values = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(values, list):
        return [{}]
    return [value if isinstance(value, dict) else {} for value in values]


def _answers(value: object) -> list[tuple[Any, Any]]:
    """Return texts and starts of a list of objects, or of an object of lists; else a bad answer."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return [(item.get("text"), item.get("answer_start")) for item in value]
    table = value if isinstance(value, dict) else {}
    texts, starts = table.get("text"), table.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        return [(None, None)]
    return list(zip(texts, starts, strict=True))


def _from_rows(name: str, header: Sequence[str], rows: Iterator[Any]) -> Iterator[Record]:
    """Yield the questions of a table."""
    places: dict[str, int] = {}
    for role, pattern in NAMES.items():
        named = [n for n, title in enumerate(header) if re.fullmatch(pattern, title.lower())]
        places |= {role: named[0]} if len(named) == 1 else {}
    if missing := [role for role in ("question", "context", "answer") if role not in places]:
        raise DataError(
            f"{name}: no column {missing[0]!r}; it has {shorten(header)}. Expected question, "
            "context, answer and answer_start, or a file in SQuAD's form.",
            "unclear_columns",
        )
    for row in rows:
        if row.bad is not None or not any(row.cells):
            yield Record(row.line, "", "", row.bad)
            continue
        cells = {role: row.cells[n] for role, n in places.items() if n < len(row.cells)}
        answer, start = cells.get("answer"), cells.get("start", "")
        place = int(start) if isinstance(start, str) and PLACE.fullmatch(start) else None
        answers = [(answer, place)] if answer else []
        if isinstance(answer, NotText):
            answers = _answers(answer.value)
        yield _record(name, row.line, cells.get("question"), cells.get("context"), answers)


def _record(
    name: str, line: int, question: object, context: object, answers: Sequence[tuple[Any, Any]]
) -> Record:
    """Return an example, or why it cannot be used."""
    problem = ""
    if not isinstance(question, str) or not isinstance(context, str) or not context.strip():
        question = context = ""
        problem = "no question or no context"
    problem = problem or text_problem(question) or text_problem(context)
    checked: list[tuple[int, str]] = []
    for text, start in answers:
        if start is None and isinstance(text, str) and context.count(text) == 1:
            start = context.index(text)
        if not isinstance(text, str) or type(start) is not int:
            problem = problem or f"the answer {excerpt(str(text))} has no place in the context"
        elif not text.strip() or context[start : start + len(text)] != text or start < 0:
            problem = problem or f"the answer {excerpt(text)} does not stand at character {start}"
        else:
            checked.append((start, SPACE.sub(" ", text)))
    if problem:
        return Record(line, "", "", BadLine(name, line, problem))
    first = join_pair(" ".join(question.split()), SPACE.sub(" ", context))
    return Record(line, first, json.dumps(checked, ensure_ascii=False))


QUESTIONS = ExampleForm(read_questions, group=lambda text: text.partition(PAIR)[2], problem="spans")
