"""`polyhead generate`: a prompt in, the same text and how it goes on out, as it is written."""

import io
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.cli.console import say
from polyhead.cli.options import as_text
from polyhead.data.locate import find_lines
from polyhead.errors import ConfigError
from polyhead.pipelines.text_generator import TextGenerator


@dataclass(frozen=True)
class GenerateWords:
    """What was said on the command line."""

    model: Path
    prompt: str | None
    changes: dict[str, Any]
    greedy: bool
    seed: int
    stop: tuple[str, ...]
    n: int
    jsonl: bool
    device: str
    encoding: str = "utf-8"


def run_generation(words: GenerateWords) -> None:
    """Write to standard output, one continuation after the other."""
    check(words)
    writer = TextGenerator.from_dir(words.model, device=words.device)
    prompt = (
        read_prompt(words.encoding) if words.prompt is None else as_text(words.prompt, "--prompt")
    )
    n_read, context = len(writer.encode(prompt)), writer.max_length
    if n_read > context:
        say(
            f"polyhead: the prompt has {n_read:,} tokens, but the model reads {context:,} at once; "
            "it goes on from the last of them"
        )
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n", write_through=True)
    try:
        for number in range(words.n):
            if number and not words.jsonl:
                out.write("\n")
            _write(writer, prompt, words, words.seed + number, out)
    finally:
        with suppress(BrokenPipeError):
            out.detach()


def check(words: GenerateWords) -> None:
    """Refuse what contradicts itself before anything is loaded."""
    drawn = [name for name in ("temperature", "top_k", "top_p") if words.changes.get(name)]
    if words.greedy and drawn:
        name = drawn[0].replace("_", "-")
        raise ConfigError(f"--{name} is for drawing at random; leave it out, or --greedy")
    if words.greedy and words.n > 1:
        raise ConfigError(f"--n {words.n}: --greedy finds one text only; leave one of them out")
    for name, value in (("n", words.n), ("max-tokens", words.changes["max_length"])):
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value}: expected at least 1")
    if (words.changes["top_k"] or 0) < 0:
        raise ConfigError(f"--top-k {words.changes['top_k']}: expected 0 (all tokens) or more")
    if not all(as_text(text, "--stop") for text in words.stop):
        raise ConfigError("--stop: expected at least one character")


def read_prompt(encoding: str) -> str:
    """What is piped in, without the newline at its end; nothing where there is a terminal."""
    if sys.stdin.isatty():
        return ""
    return "\n".join(find_lines(Path("-"), encoding))


def _write(
    writer: TextGenerator, prompt: str, words: GenerateWords, seed: int, out: io.TextIOWrapper
) -> None:
    options = writer.defaults.with_options(chosen(words))
    stop = [text.replace("\\n", "\n") for text in words.stop]
    pieces = writer.stream(prompt, options=options, seed=seed, stop=stop)
    if words.jsonl:
        found = {"prompt": prompt, "text": "".join(pieces), "seed": seed}
        out.write(json.dumps(found, ensure_ascii=False) + "\n")
        return
    out.write(prompt)
    for piece in pieces:
        out.write(piece)
        out.flush()
    out.write("\n")


def chosen(words: GenerateWords) -> dict[str, Any]:
    """The changes to how the model's maker would write; who says how to draw wants to draw."""
    drawn = any(words.changes[name] is not None for name in ("temperature", "top_k", "top_p"))
    sample = False if words.greedy else (True if drawn or words.n > 1 else None)
    one = {"n_best": 1, "beam": 1}
    return {**words.changes, **one, "sample": sample}
