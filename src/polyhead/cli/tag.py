"""`polyhead tag` and `polyhead answer`: tags of words, and answers found in a context."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from polyhead.cli.options import (
    Device,
    Encoding,
    JsonLines,
    Model,
    check_text,
    read_inputs,
    split_inputs,
)
from polyhead.cli.streams import counting, utf8_stdout
from polyhead.errors import DataError

if TYPE_CHECKING:
    from polyhead.pipelines.question_answerer import AnsweredQuestion


def tag(
    model: Model,
    files: list[str] | None = Argument(
        None,
        help="A text in quotes, or text files, one text per line (default: stdin).",
        metavar="[FILE|TEXT]...",
    ),
    jsonl: JsonLines = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Tag every word of a text.

    Prints a line of word and tag for every word, and an empty line after each text.

    polyhead tag runs/names "세종대왕은 서울에서 태어났다."
    polyhead tag runs/names --jsonl < texts.txt
    """
    from polyhead.pipelines.tagger import Tagger

    tagger = Tagger.from_dir(model, device=device)
    _, inputs = split_inputs([str(model), *(files or ())])
    with utf8_stdout() as out:
        for lines in read_inputs(inputs, encoding):
            with counting("tagging", len(lines)) as progress:
                results = tagger.tag(lines, progress=progress)
            for result in results:
                rows = [f"{word.text}\t{word.tag}\n" for word in result.words]
                as_json = json.dumps(asdict(result), ensure_ascii=False)
                out.write(f"{as_json}\n" if jsonl else "".join([*rows, "\n"]))
            out.flush()


def answer(
    model: Model,
    question: str | None = Argument(
        None, help="Question; without it, JSON lines with question and context from stdin."
    ),
    context: Path | None = Option(None, help="File with the text that holds the answer."),
    top: int = Option(1, min=1, help="Number of answers to show."),
    threshold: float | None = Option(
        None, help="Margin by which no answer must win (default: 0, if the model was trained so)."
    ),
    jsonl: JsonLines = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Find the answers to questions in a text.

    polyhead answer runs/qa --context article.txt "세종은 어디에서 태어났나?"
    polyhead answer runs/qa --jsonl < questions.jsonl
    """
    from polyhead.data.text_files import read_lines
    from polyhead.pipelines.question_answerer import QuestionAnswerer

    answerer = QuestionAnswerer.from_dir(model, device=device)
    if question is not None:
        text = "\n".join(read_lines(context or Path("-"), encoding))
        check_text(question, "QUESTION")
        result = answerer.answer(question, text, top=top, threshold=threshold)
        with utf8_stdout() as out:
            out.write(_shown(result, jsonl=jsonl))
        return
    shared = None if context is None else "\n".join(read_lines(context, encoding))
    with utf8_stdout() as out:
        for lines in read_inputs((), encoding, hint="One JSON object per line"):
            pairs = [_pair(line, shared) if line.strip() else None for line in lines]
            questions = [pair for pair in pairs if pair is not None]
            with counting("answering", len(questions)) as progress:
                search = answerer.search(top, threshold)
                results = iter(answerer.answer_all(questions, search, progress=progress))
            for pair in pairs:  # a blank line for a blank line
                out.write("\n" if pair is None else _shown(next(results), jsonl=jsonl))
            out.flush()


def _pair(line: str, shared: str | None) -> tuple[str, str]:
    """Return question and context of a line of JSON; a context of its own is optional."""
    try:
        values = json.loads(line)
        question, context = values["question"], values.get("context", shared)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        question = context = None
    if not all(isinstance(text, str) and text.strip() for text in (question, context)):
        raise DataError(
            f'{line[:60]!r}: expected {{"question": "…", "context": "…"}} on every line',
            "bad_line",
        )
    return str(question), str(context)


def _shown(result: "AnsweredQuestion", *, jsonl: bool) -> str:
    if jsonl:
        return json.dumps(asdict(result), ensure_ascii=False) + "\n"
    answers = (result.answer, *result.alternatives)
    return "".join(f"{a.text or '(no answer)'}\t{a.probability:.4f}\n" for a in answers)
