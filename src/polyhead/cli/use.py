"""Commands of tasks, `polyhead VERB MODEL [FILE|TEXT]...`, whose words and options a verb has."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from inspect import Parameter, signature
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypedDict, Unpack

from typer import Argument, Exit, Option

from polyhead.cli.options import (
    Device,
    Encoding,
    JsonLines,
    Model,
    check_text,
    read_inputs,
    split_inputs,
)
from polyhead.cli.streams import counting, read_blocks, say, utf8_stdout
from polyhead.errors import ConfigError, DataError
from polyhead.plugin_registry import resolve
from polyhead.tasks.verbs import VERBS, Verb, build_options, option_fields


class VerbOptions(TypedDict, total=False):
    """Options of a verb, by name."""


def command_of(name: str) -> Callable[..., None]:
    """Return the command of a verb whose inputs are lines of text."""
    verb = VERBS[name]

    def use(
        model: Model,
        files: list[str] | None = Argument(
            None,
            help="A text in quotes, or text files, one text per line (default: stdin).",
            metavar="[FILE|TEXT]...",
        ),
        jsonl: JsonLines = False,
        encoding: Encoding = "utf-8",
        device: Device = "auto",
        **given: Unpack[VerbOptions],
    ) -> None:
        options: Any = build_options(verb.options, given)
        pipeline = _loaded(verb, model, device)
        _, inputs = split_inputs([str(model), *(files or ())])
        with utf8_stdout() as out:
            for lines in read_inputs(inputs, encoding):
                write_results(out, pipeline, [(line,) for line in lines], options, jsonl=jsonl)

    return with_options(use, verb)


def command_by_line(name: str, inputs: str, example: str, gap: str = "") -> Callable[..., None]:
    """Return the command of a verb that reads arguments, or lines that are not empty.

    An input that is refused does not end it, but makes the exit code that of the error.
    inputs, example: help of the arguments.
    gap: between two results that are not JSON.
    """
    verb = VERBS[name]

    def use(
        model: Model,
        texts: list[str] | None = Argument(None, help=inputs),
        jsonl: JsonLines = False,
        device: Device = "auto",
        **given: Unpack[VerbOptions],
    ) -> None:
        options: Any = build_options(verb.options, given)
        if not texts and sys.stdin.isatty():
            raise ConfigError(f"no text given, e.g. polyhead {name} MODEL {example}", "no_input")
        lines = (line for block in read_blocks() for line in block if line.strip())
        rows = (check_text(text, "TEXT") for text in texts) if texts else lines
        pipeline = _loaded(verb, model, device).for_verb(name)
        between, code = "", 0
        with utf8_stdout() as out:
            for text in rows:
                try:
                    write_results(out, pipeline, [(text,)], options, jsonl=jsonl, before=between)
                except DataError as error:
                    code = error.exit_code
                    say(f"polyhead: {error}")
                else:
                    between = "" if jsonl else gap
        raise Exit(code)

    return with_options(use, verb)


def with_options(command: Callable[..., None], verb: Verb) -> Callable[..., None]:
    """Give a command the options and the help of a verb; they precede --jsonl."""
    own = [
        Parameter(
            option.name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Option(
                verb.defaults.get(option.name, option.default), help=option.help,
                min=None if option.bounds is None else option.bounds.low,
                max=None if option.bounds is None else option.bounds.high,
            ),
            annotation=option.kind,
        )
        for option in option_fields(verb.options)
    ]  # fmt: skip
    parameters = list(signature(command).parameters.values())[:-1]
    place = [parameter.name for parameter in parameters].index("jsonl")
    parameters[place:place] = own
    command.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__doc__ = verb.help
    return command


def _loaded(verb: Verb, model: Path, device: str) -> Any:
    """Return the pipeline of a model; an error that names the right command for other tasks."""
    from polyhead.pipelines.task_pipeline import pipeline_of

    return pipeline_of(resolve(verb.task)()).from_dir(model, device=device)


def write_results(
    out: TextIOWrapper, pipeline: Any, rows: Sequence[tuple[str, ...] | None], options: Any,
    *, jsonl: bool, before: str = "",
) -> None:  # fmt: skip
    """Write the results of inputs as the rows of their task, or as JSON; a blank line for None.

    before: is written before the first.
    """
    task, given = pipeline.task, [row for row in rows if row is not None]
    with counting(task.words.activity, len(given)) as progress:
        results = iter(pipeline.apply(given, options, progress))
    out.write(before)
    for row in rows:
        if row is None:
            out.write("\n")
            continue
        result = next(results)
        text = row[0] if len(task.fields) > 1 else "\t".join(row)
        content = {task.fields[0]: text} | asdict(result)
        as_json = json.dumps(content, ensure_ascii=False) + "\n"
        out.write(as_json if jsonl else task.row(result, options))
    out.flush()


def _answer(
    model: Model,
    question: str | None = Argument(
        None, help="Question; without it, JSON lines with question and context from stdin."
    ),
    context: Path | None = Option(None, help="File with the text that holds the answer."),
    jsonl: JsonLines = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
    **given: Unpack[VerbOptions],
) -> None:
    from polyhead.data.text_files import read_lines

    verb = VERBS["answer"]
    options: Any = build_options(verb.options, given)
    pipeline = _loaded(verb, model, device)
    if question is not None:
        text = "\n".join(read_lines(context or Path("-"), encoding))
        row = check_text(question, "QUESTION"), text
        with utf8_stdout() as out:
            write_results(out, pipeline, [row], options, jsonl=jsonl)
        return
    shared = None if context is None else "\n".join(read_lines(context, encoding))
    with utf8_stdout() as out:
        for lines in read_inputs((), encoding, hint="One JSON object per line"):
            rows = [_pair(line, shared) if line.strip() else None for line in lines]
            write_results(out, pipeline, rows, options, jsonl=jsonl)


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


fill = command_by_line(
    "fill", "Texts that contain [MASK] (default: the lines of stdin).", '"오늘은 [MASK]이다"', "\n"
)
detect = command_by_line(
    "detect", "Texts (default: the lines of stdin).", '"오늘은 회의가 있어요."'
)
tag = command_of("tag")
answer = with_options(_answer, VERBS["answer"])
