"""`polyhead fill`: a text with [MASK] in, what may stand there out."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from polyhead.api.filler import Filled, load
from polyhead.cli.translating import chunks
from polyhead.errors import ConfigError


@dataclass(frozen=True)
class FillWords:
    """What was said on the command line."""

    model: Path
    texts: tuple[str, ...]
    top: int
    jsonl: bool
    device: str


def run_filling(words: FillWords) -> None:
    """Fill in the blanks of each text; without one, of the lines of standard input."""
    if words.top < 1:
        raise ConfigError(f"--top {words.top}: expected at least 1")
    if not words.texts and sys.stdin.isatty():
        raise ConfigError(
            'give a text with a blank, as in: polyhead fill MODEL "오늘은 [MASK]이다"'
        )
    filler = load(words.model, device=words.device)
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n", write_through=True)
    try:
        for number, text in enumerate(_given(words)):
            found = filler.fill(text, words.top)
            if words.jsonl:
                out.write(json.dumps(asdict(found), ensure_ascii=False) + "\n")
            else:
                out.write("\n" * bool(number) + as_text(found) + "\n")
    finally:
        with suppress(BrokenPipeError):
            out.detach()


def _given(words: FillWords) -> Iterator[str]:
    if words.texts:
        yield from words.texts
        return
    for lines in chunks(sys.stdin.buffer):
        yield from (line for line in lines if line.strip())


def as_text(found: Filled) -> str:
    """One blank: the filled text after its probability. Several: each by itself, then together."""
    if len(found.blanks) == 1:
        pairs = zip(found.blanks[0], found.together, strict=True)
        return "\n".join(f"{guess.probability:.4f}\t{one.text}" for guess, one in pairs)
    lines = []
    for number, guesses in enumerate(found.blanks, start=1):
        words = "  ".join(f"{guess.text} {guess.probability:.4f}" for guess in guesses)
        lines.append(f"[MASK] {number}: {words}")
    lines += [f"{one.log_p:.4f}\t{one.text}" for one in found.together]
    return "\n".join(lines)
