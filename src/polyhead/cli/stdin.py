"""Standard input as text, block by block: a line that is none is named, and nothing is guessed."""

import sys
from collections.abc import Iterator
from pathlib import Path

from polyhead.cli.console import say
from polyhead.data.locate import find_lines
from polyhead.errors import DataError

BLOCK = 2048  # lines, which may be sorted by length before the first is answered
UTF8 = "utf-8"
BOM = "\ufeff"


def piped(encoding: str = UTF8) -> Iterator[list[str]]:
    """The lines of standard input, cut at the newline byte; those before a bad one are handed out.

    What is not UTF-8 is read to its end first, as a file is.
    """
    if encoding != UTF8:
        yield find_lines(Path("-"), encoding)
        return
    for start, raw in blocks():
        bad = unreadable(raw)
        good = raw if bad is None else raw[:bad]
        if good:
            yield decoded(good, start)
        if bad is not None:
            raise not_text(start + bad)


def mended(encoding: str = UTF8) -> Iterator[list[str]]:
    """The same for who owes an answer to every line: stray bytes are replaced, and it is said.

    If it is not a few of the lines beyond ASCII but most, the text is in another encoding.
    """
    if encoding != UTF8:
        yield find_lines(Path("-"), encoding)
        return
    for start, raw in blocks():
        bad = [n for n, line in enumerate(raw) if unreadable([line]) is not None]
        if 2 * len(bad) > sum(not line.isascii() for line in raw):
            raise not_text(start + bad[0])
        if bad:
            say(
                f"polyhead: stdin:{start + bad[0]}: bytes that are not UTF-8 text are replaced by "
                f"\ufffd, in {len(bad)} of {len(raw):,} lines"
            )
        yield decoded(raw, start)


def blocks() -> Iterator[tuple[int, list[bytes]]]:
    """Lines without their ends, and the number of the first of them."""
    start, raw = 1, list[bytes]()
    for line in sys.stdin.buffer:
        raw.append(line.removesuffix(b"\n").removesuffix(b"\r"))
        if len(raw) == BLOCK:
            yield start, raw
            start, raw = start + BLOCK, []
    if raw:
        yield start, raw


def unreadable(raw: list[bytes]) -> int | None:
    """The first line that is not UTF-8, counted from 0."""
    for n, line in enumerate(raw):
        try:
            line.decode()
        except UnicodeDecodeError:
            return n
    return None


def decoded(raw: list[bytes], start: int) -> list[str]:
    """As text; the mark that some programs write before the first line is none."""
    lines = [line.decode(errors="replace") for line in raw]
    return [lines[0].removeprefix(BOM), *lines[1:]] if start == 1 else lines


def not_text(number: int) -> DataError:
    """What to do about a line that is in another encoding."""
    return DataError(
        f"stdin:{number}: not UTF-8 text; convert it, for instance by iconv -f cp949 -t utf-8"
    )
