"""`polyhead translate`: lines in, lines out, in order, always as many."""

import io
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.cli.console import counting, say
from polyhead.cli.stdin import UTF8, mended
from polyhead.pipelines.translator import Translation, Translator
from polyhead.viz.capture import alignment

PROMPT = "> "


@dataclass(frozen=True)
class TranslateWords:
    """What was said on the command line."""

    models: tuple[Path, ...]
    changes: dict[str, Any]
    scores: bool
    prefix: str
    align: bool
    jsonl: bool
    seed: int
    device: str
    dictionary: Path | None = None
    encoding: str = UTF8


def run_translation(words: TranslateWords) -> None:
    """Translate standard input; on a terminal, line by line with a prompt."""
    translator = Translator.from_dir(*words.models, device=words.device)
    if words.dictionary is not None:
        translator = translator.with_dictionary(words.dictionary)
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n", write_through=True)
    try:
        if sys.stdin.isatty():
            _converse(translator, words, out)
        else:
            for lines in mended(words.encoding):
                _translate(translator, words, lines, out)
    finally:
        with suppress(BrokenPipeError):
            out.detach()


def _converse(translator: Translator, words: TranslateWords, out: io.TextIOWrapper) -> None:
    say("One sentence a line; Ctrl-D ends.")
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            return
        _translate(translator, words, [line], out)


def _translate(
    translator: Translator, words: TranslateWords, lines: list[str], out: io.TextIOWrapper
) -> None:
    options = translator.defaults.with_options(words.changes)
    parts = translator.split_lines(lines)
    for number, part in enumerate(parts, 1):
        if len(part) > 1:
            say(
                f"polyhead: line {number} of this block is longer than {translator.max_length} "
                "tokens; it is translated in pieces"
            )
    prefixes = [words.prefix] * len(lines) if words.prefix else None
    with counting("translating", len(lines)) as progress:
        found = translator.translate_parts(
            parts, options=options, seed=words.seed, prefixes=prefixes, progress=progress
        )
    links: list[list[list[tuple[int, int, float]]]] = []
    for line, best in zip(lines, found, strict=True):
        none: list[list[tuple[int, int, float]]] = [[] for _ in best]
        ids = [translation.ids for translation in best]
        links.append(alignment(translator, [line] * len(best), ids) if words.align else none)
    for line, best, linked in zip(lines, found, links, strict=True):
        if words.jsonl:
            out.write(json.dumps(as_json(line, best, linked, words), ensure_ascii=False) + "\n")
        else:
            for translation, link in zip(best, linked, strict=True):
                out.write(as_line(translation, link, words) + "\n")
    out.flush()


def as_line(translation: Translation, links: list[Any], words: TranslateWords) -> str:
    """[score TAB] text [TAB links]."""
    text = " ".join(translation.text.split("\n"))
    parts = [f"{translation.score:.4f}"] if words.scores else []
    parts.append(text)
    if words.align:
        parts.append(" ".join(f"{source}-{target}" for source, target, _ in links))
    return "\t".join(parts)


def as_json(
    line: str, best: list[Translation], links: list[Any], words: TranslateWords
) -> dict[str, Any]:
    """Everything about one line."""
    outputs = []
    for translation, link in zip(best, links, strict=True):
        output: dict[str, Any] = {
            "text": translation.text,
            "score": translation.score,
            "log_p": translation.log_p,
        }
        if words.align:
            output["alignment"] = [
                {"source": source, "target": target, "weight": weight}
                for source, target, weight in link
            ]
        outputs.append(output)
    return {"source": line, "translations": outputs}
