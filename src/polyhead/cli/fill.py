"""`polyhead fill`: candidates for the masked tokens of a text."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from typer import Argument, Exit, Option

from polyhead.cli.options import Device, JsonLines, Model, check_text
from polyhead.cli.streams import read_blocks, say, utf8_stdout
from polyhead.errors import ConfigError, DataError

if TYPE_CHECKING:
    from polyhead.pipelines.mask_filler import Filled

MAX_TOP = 200  # every hypothesis for several masks is extended by as many candidates


def fill(
    model: Model,
    texts: list[str] | None = Argument(
        None, help="Texts that contain [MASK] (default: the lines of stdin)."
    ),
    top: int = Option(5, help=f"Number of candidates, 1 to {MAX_TOP}."),
    jsonl: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Predict the masked tokens of a text.

    Each [MASK] of several is predicted alone, then all together from left to right; the number
    before such a line is the sum of the log probabilities.

    polyhead fill runs/bert "서울은 대한민국의 [MASK]이다"
    polyhead fill runs/bert --top 3 --jsonl < texts.txt
    """
    from polyhead.pipelines.mask_filler import MaskFiller

    if not 1 <= top <= MAX_TOP:
        raise ConfigError(f"--top {top}: expected 1 to {MAX_TOP}", "out_of_range")
    if not texts and sys.stdin.isatty():
        raise ConfigError('no text given, e.g. polyhead fill MODEL "오늘은 [MASK]이다"', "no_input")
    given = (check_text(text, "TEXT") for text in texts or ())
    lines = (line for block in read_blocks() for line in block if line.strip())
    filler = MaskFiller.from_dir(model, device=device)
    n_filled = n_failed = 0
    with utf8_stdout() as out:
        for text in given if texts else lines:
            try:
                filled = filler.fill(text, top)
            except DataError as error:
                n_failed += 1
                say(f"polyhead: {error}")
                continue
            if jsonl:
                out.write(json.dumps(asdict(filled), ensure_ascii=False) + "\n")
            else:
                out.write("\n" * bool(n_filled) + as_lines(filled) + "\n")
            n_filled += 1
    raise Exit(DataError.exit_code if n_failed else 0)


def as_lines(filled: "Filled") -> str:
    """Return a probability and the filled text per line; for several masks each one alone first."""
    if len(filled.blanks) == 1:
        rows = zip(filled.blanks[0], filled.together, strict=True)
        return "\n".join(f"{guess.probability:.4f}\t{filling.text}" for guess, filling in rows)
    lines = []
    for number, guesses in enumerate(filled.blanks, start=1):
        candidates = "  ".join(f"{guess.text} {guess.probability:.4f}" for guess in guesses)
        lines.append(f"[MASK] {number}: {candidates}")
    lines += [f"{filling.log_p:.4f}\t{filling.text}" for filling in filled.together]
    return "\n".join(lines)
