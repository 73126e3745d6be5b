"""`polyhead fill`: a text with [MASK] in, what may stand there out."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from polyhead.cli.console import say
from polyhead.cli.options import as_text
from polyhead.cli.stdin import piped
from polyhead.errors import ConfigError, DataError
from polyhead.pipelines.mask_filler import Filled, MaskFiller

MAX_TOP = 200  # every hypothesis of several blanks grows by as many guesses


@dataclass(frozen=True)
class FillWords:
    """What was said on the command line."""

    model: Path
    texts: tuple[str, ...]
    top: int
    jsonl: bool
    device: str


def run_filling(words: FillWords) -> int:
    """Fill in the blanks of each text; without one, of the lines of standard input.

    What cannot be filled in is named and left out; the exit code is then that of bad data.
    """
    if not 1 <= words.top <= MAX_TOP:
        raise ConfigError(f"--top {words.top}: expected 1 to {MAX_TOP}")
    if not words.texts and sys.stdin.isatty():
        raise ConfigError(
            'give a text with a blank, as in: polyhead fill MODEL "오늘은 [MASK]이다"'
        )
    filler = MaskFiller.from_dir(words.model, device=words.device)
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n", write_through=True)
    n_filled = n_left_out = 0
    try:
        for text in _given(words):
            try:
                found = filler.fill(text, words.top)
            except DataError as error:
                n_left_out += 1
                say(f"polyhead: {error}")
                continue
            if words.jsonl:
                out.write(json.dumps(asdict(found), ensure_ascii=False) + "\n")
            else:
                out.write("\n" * bool(n_filled) + spoken(found) + "\n")
            n_filled += 1
    finally:
        with suppress(BrokenPipeError):
            out.detach()
    return DataError.exit_code if n_left_out else 0


def _given(words: FillWords) -> Iterator[str]:
    if words.texts:
        yield from (as_text(text, "TEXT") for text in words.texts)
        return
    for lines in piped():
        yield from (line for line in lines if line.strip())


def spoken(found: Filled) -> str:
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
