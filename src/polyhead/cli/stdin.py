"""Standard input as blocks of lines."""

import sys
from collections.abc import Iterator
from pathlib import Path

from polyhead.cli.console import say
from polyhead.errors import DataError

BLOCK = 2048  # lines; a block may be sorted by length before its first line is answered
UTF8 = "utf-8"
BOM = "\ufeff"


def read_blocks(encoding: str = UTF8, *, replace_bad_bytes: bool = False) -> Iterator[list[str]]:
    """Yield the lines of standard input in blocks, split at the newline byte only.

    replace_bad_bytes: replace bytes that are not UTF-8 (with a warning), so that every input line
    gets an output line. Without it, or if more than half of the lines beyond ASCII have such bytes,
    an error is raised after the lines before the first bad one.

    Any other encoding than UTF-8 is read to the end of the input first.
    """
    if encoding != UTF8:
        from polyhead.data.locate import find_lines

        yield find_lines(Path("-"), encoding)
        return
    for start, raw in _raw_blocks():
        bad = [number for number, line in enumerate(raw) if not _is_utf8(line)]
        if bad and not replace_bad_bytes:
            if bad[0]:
                yield _decode(raw[: bad[0]], start)
            raise _not_utf8(start + bad[0])
        if 2 * len(bad) > sum(not line.isascii() for line in raw):
            raise _not_utf8(start + bad[0])
        if bad:
            say(
                f"polyhead: stdin:{start + bad[0]}: bytes that are not UTF-8 were replaced by "
                f"\ufffd in {len(bad)} of {len(raw):,} lines"
            )
        yield _decode(raw, start)


def typed_blocks(hint: str) -> Iterator[list[str]]:
    """Yield each line typed at a terminal as a block of its own, until Ctrl-D."""
    say(f"{hint}; Ctrl-D ends.")
    while True:
        try:
            yield [input("> ")]
        except EOFError:
            return


def _raw_blocks() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number of a block's first line, and its lines without their line ends."""
    start, raw = 1, list[bytes]()
    for line in sys.stdin.buffer:
        raw.append(line.removesuffix(b"\n").removesuffix(b"\r"))
        if len(raw) == BLOCK:
            yield start, raw
            start, raw = start + BLOCK, []
    if raw:
        yield start, raw


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode(raw: list[bytes], start: int) -> list[str]:
    """Return lines as text, without a byte order mark before the first line."""
    lines = [line.decode(errors="replace") for line in raw]
    return [lines[0].removeprefix(BOM), *lines[1:]] if start == 1 else lines


def _not_utf8(number: int) -> DataError:
    return DataError(
        f"stdin:{number}: not UTF-8 text. Name its encoding with --encoding, e.g. cp949", "not_utf8"
    )
