"""`polyhead fill` and `polyhead detect`: masked tokens of a text, and replaced ones."""

import json
import sys
from collections.abc import Callable, Iterable
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
    given = _given(texts, 'polyhead fill MODEL "오늘은 [MASK]이다"')
    filler = MaskFiller.from_dir(model, device=device)

    def result(text: str) -> str:
        filled = filler.fill(text, top)
        return json.dumps(asdict(filled), ensure_ascii=False) if jsonl else as_lines(filled)

    _write_results(given, result, "" if jsonl else "\n")


def detect(
    model: Model,
    texts: list[str] | None = Argument(None, help="Texts (default: the lines of stdin)."),
    threshold: float = Option(0.5, help="Mark words of at least this probability, 0 to 1."),
    jsonl: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Detect replaced words with the discriminator of an ELECTRA.

    Each text is printed with a probability after every word that looks replaced; --jsonl prints
    those of all words and tokens.

    polyhead detect runs/electra "수요일 도서관에 회의가 있어요."
    polyhead detect runs/electra --jsonl < texts.txt
    """
    from polyhead.pipelines.replaced_token_detector import ReplacedTokenDetector

    if not 0 <= threshold <= 1:
        raise ConfigError(f"--threshold {threshold}: expected 0 to 1", "out_of_range")
    given = _given(texts, 'polyhead detect MODEL "오늘은 회의가 있어요."')
    detector = ReplacedTokenDetector.from_dir(model, device=device)

    def result(text: str) -> str:
        detected = detector.detect(text)
        if jsonl:
            return json.dumps(asdict(detected), ensure_ascii=False)
        return " ".join(
            f"{word.text}[{word.probability:.2f}]" if word.probability >= threshold else word.text
            for word in detected.words
        )

    _write_results(given, result, "")


def _given(texts: list[str] | None, example: str) -> Iterable[str]:
    """Return the texts of the command line, or the lines of stdin that are not empty."""
    if texts:
        return (check_text(text, "TEXT") for text in texts)
    if sys.stdin.isatty():
        raise ConfigError(f"no text given, e.g. {example}", "no_input")
    return (line for block in read_blocks() for line in block if line.strip())


def _write_results(texts: Iterable[str], result: Callable[[str], str], gap: str) -> None:
    """Write a line for each text, `gap` between two; report refused ones by the exit code."""
    n_written = n_failed = 0
    with utf8_stdout() as out:
        for text in texts:
            try:
                content = result(text)
            except DataError as error:
                n_failed += 1
                say(f"polyhead: {error}")
                continue
            out.write(f"{gap * bool(n_written)}{content}\n")
            n_written += 1
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
