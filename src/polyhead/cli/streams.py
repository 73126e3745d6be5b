"""Standard input, output and error as text."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from polyhead.errors import DataError

BLOCK = 2048  # lines; a block may be sorted by length before its first line is answered
UTF8 = "utf-8"
BOM = "\ufeff"
FEW_ITEMS = 20  # need no progress bar


def say(text: str) -> None:
    """Print a message on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def utf8_stdout() -> Iterator[io.TextIOWrapper]:
    r"""Give standard output as UTF-8 text with \n line ends, whatever the locale is."""
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n", write_through=True)
    try:
        yield out
    finally:
        with suppress(BrokenPipeError):
            out.detach()


@contextmanager
def counting(activity: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar for a known number of items; nothing without a terminal or for a few items."""
    if not sys.stderr.isatty() or total < FEW_ITEMS:
        yield lambda _: None
        return
    from polyhead.cli.console import progress_bar  # starts slowly

    with progress_bar(activity, total) as advance:
        yield advance


def read_blocks(
    encoding: str = UTF8, *, hint: str = "One text per line", replace_bad_bytes: bool = False
) -> Iterator[list[str]]:
    """Yield the lines of standard input in blocks, split at the newline byte only.

    At a terminal, `hint` is printed and each line is a block. Any other encoding than UTF-8 is read
    to the end of the input first.

    replace_bad_bytes: replace bytes that are not UTF-8 (with a warning), so that every input line
    gets an output line. An error is raised without it, or if more than half of the lines beyond
    ASCII have such bytes.
    """
    if sys.stdin.isatty():
        say(f"{hint}; {'Ctrl-Z and Enter' if os.name == 'nt' else 'Ctrl-D'} ends.")
        with suppress(EOFError):
            while True:
                yield [input("> ")]
        return
    if encoding != UTF8:
        from polyhead.data.text_files import read_lines

        yield read_lines(Path("-"), encoding)
        return
    first = 1  # number of the block's first line
    while block := list(islice(sys.stdin.buffer, BLOCK)):
        raw = [line.removesuffix(b"\n").removesuffix(b"\r") for line in block]
        lines = [line.decode(errors="replace") for line in raw]
        bad = [place for place, line in enumerate(lines) if line.encode() != raw[place]]
        if first == 1:
            lines[0] = lines[0].removeprefix(BOM)
        if bad and bad[0] and not replace_bad_bytes:
            yield lines[: bad[0]]
        if bad and (not replace_bad_bytes or 2 * len(bad) > sum(not x.isascii() for x in raw)):
            raise DataError(
                f"stdin:{first + bad[0]}: not UTF-8 text. Name its encoding with --encoding, e.g. "
                "cp949",
                "not_utf8",
            )
        if bad:
            say(
                f"polyhead: stdin:{first + bad[0]}: bytes that are not UTF-8 were replaced by "
                f"\ufffd in {len(bad)} of {len(raw):,} lines"
            )
        yield lines
        first += BLOCK
