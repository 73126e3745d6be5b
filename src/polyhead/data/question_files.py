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
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from polyhead.data.columns import Record, TwoColumns, show_pairs
from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import ExampleForm
from polyhead.data.labels import PAIR, join_pair
from polyhead.data.locate import find
from polyhead.data.tables import NotText, open_table
from polyhead.data.text_files import BadLine, unpacked
from polyhead.errors import DataError

NAMES = {  # of columns, in lower case
    "question": "question|query|질문",
    "context": "context|passage|paragraph|본문|지문",
    "answer": "answers?|answer_text|정답|답",
    "start": "answer_start|start|시작",
}
SPACE = re.compile(r"\s")


def read_questions(path: str | Path, config: DataConfig) -> TwoColumns:
    """Read questions with contexts and answers; the notices show the first."""
    articles = _squad(path, config.encoding)
    if articles is not None:
        name, notices, records = str(path), tuple[str, ...](), _from_squad(str(path), articles)
    else:
        table = open_table(path, encoding=config.encoding)
        rows = chain(table.sample, table.rest)
        header = table.columns
        if header is None:
            header = tuple(str(cell).strip() for cell in next(rows).cells)
        name, notices = table.name, table.notices
        records = _from_rows(name, header, rows)
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
    if not place.is_file() or place.suffix in (".parquet", ".xlsx"):
        return None
    with place.open("rb") as stream:
        content = b"".join(unpacked(stream, str(path)))
    try:
        whole = json.loads(content.decode(encoding))  # JSON lines end it at the second
    except (ValueError, RecursionError):
        return None
    articles = whole.get("data") if isinstance(whole, dict) else None
    return articles if isinstance(articles, list) else None


def _from_squad(name: str, articles: Sequence[Any]) -> Iterator[Record]:
    """Yield the questions; their `line` is their number in the file, from 1."""
    number = 0
    for article in articles:
        for paragraph in article.get("paragraphs", ()):
            for item in paragraph.get("qas", ()):
                number += 1
                given = [(a.get("text"), a.get("answer_start")) for a in item.get("answers", ())]
                answers = [] if item.get("is_impossible") else given
                question, context = item.get("question"), paragraph.get("context")
                yield _record(name, number, question, context, answers)


def _from_rows(name: str, header: Sequence[str], rows: Iterator[Any]) -> Iterator[Record]:
    """Yield the questions of a table."""
    places: dict[str, int] = {}
    for role, pattern in NAMES.items():
        named = [n for n, title in enumerate(header) if re.fullmatch(pattern, title.lower())]
        places |= {role: named[0]} if len(named) == 1 else {}
    if missing := [role for role in ("question", "context", "answer") if role not in places]:
        raise DataError(
            f"{name}: no column {missing[0]!r}; it has {', '.join(header)}. Expected question, "
            "context, answer and answer_start, or a file in SQuAD's form.",
            "unclear_columns",
        )
    for row in rows:
        if row.bad is not None or not any(row.cells):
            yield Record(row.line, "", "", row.bad)
            continue
        cells = {role: row.cells[n] for role, n in places.items() if n < len(row.cells)}
        answer, start = cells.get("answer"), cells.get("start", "")
        answers = [(answer, int(start) if str(start).isdecimal() else None)] if answer else []
        if isinstance(answer, NotText):
            table = answer.value if isinstance(answer.value, Mapping) else {}
            columns = (table.get("text") or (), table.get("answer_start") or ())
            answers = list(zip(*columns, strict=False))
        yield _record(name, row.line, cells.get("question"), cells.get("context"), answers)


def _record(
    name: str, line: int, question: object, context: object, answers: Sequence[tuple[Any, Any]]
) -> Record:
    """Return an example, or why it cannot be used."""
    problem = ""
    if not isinstance(question, str) or not isinstance(context, str) or not context.strip():
        question = context = ""
        problem = "no question or no context"
    checked: list[tuple[int, str]] = []
    for text, start in answers:
        if start is None and isinstance(text, str) and context.count(text) == 1:
            start = context.index(text)
        if not isinstance(text, str) or not isinstance(start, int):
            problem = problem or f"the answer {text!r} has no place in the context"
        elif not text.strip() or context[start : start + len(text)] != text or start < 0:
            problem = problem or f"the answer {text[:40]!r} does not stand at character {start}"
        else:
            checked.append((start, SPACE.sub(" ", text)))
    if problem:
        return Record(line, "", "", BadLine(name, line, problem))
    first = join_pair(" ".join(question.split()), SPACE.sub(" ", context))
    return Record(line, first, json.dumps(checked, ensure_ascii=False))


QUESTIONS = ExampleForm(read_questions, group=lambda text: text.partition(PAIR)[2], problem="spans")
