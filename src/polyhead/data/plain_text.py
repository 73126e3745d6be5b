"""Plain text for models of one language: files, joined, with the end kept back if need be."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from polyhead.data.text_files import BadLine, read_text
from polyhead.errors import DataError

HELD_OUT_SHARE = 0.1


@dataclass(frozen=True)
class Lines:
    """What to train on, what to validate on, and what there is to say about them."""

    train: list[str]
    valid: list[str]
    notices: tuple[str, ...]


def read_plain(
    paths: Sequence[Path],
    valid: Sequence[Path],
    *,
    encoding: str = "utf-8",
    on_bad_line: Literal["skip", "fail"] = "skip",
    most: int | None = None,
) -> Lines:
    """All lines in their order. Without validation files, the last tenth is held out.

    `most` limits that: who measures often has no time for a tenth of a large corpus.
    """
    notices: list[str] = []
    train = _joined(paths, encoding, on_bad_line, notices)
    if valid:
        return Lines(train, _joined(valid, encoding, on_bad_line, notices), tuple(notices))
    n_held_out = max(1, int(len(train) * HELD_OUT_SHARE))
    n_held_out = n_held_out if most is None else min(most, n_held_out)
    kept, held_out = train[:-n_held_out], train[-n_held_out:]
    if not any(kept) or not any(held_out):
        raise DataError(
            f"{paths[0]}: {len(train)} lines are not enough to train on and to hold some out; "
            "give more text, or a validation file"
        )
    notices.append(
        f"no validation file given: the last {len(held_out):,} of {len(train):,} lines are held "
        "out for validation and not trained on"
    )
    return Lines(kept, held_out, tuple(notices))


def _joined(
    paths: Sequence[Path], encoding: str, on_bad_line: str, notices: list[str]
) -> list[str]:
    lines: list[str] = []
    for path in paths:
        text = read_text(path, encoding=encoding)
        if not any(text.lines):
            why = f" ({text.bad[0]})" if text.bad else ""
            raise DataError(f"{path} holds no text{why}")
        if text.bad and on_bad_line == "fail":
            raise DataError(f"{text.bad[0]}; correct or remove the line")
        bad = {line.line for line in text.bad}
        lines += [line for number, line in enumerate(text.lines, start=1) if number not in bad]
        notices += [*text.notices, *_told(text.bad)]
    return lines


def _told(bad: Sequence[BadLine]) -> list[str]:
    if not bad:
        return []
    lines = "1 bad line" if len(bad) == 1 else f"{len(bad):,} bad lines"
    return [f"{lines} skipped: {'; '.join(str(line) for line in bad[:3])}"]
