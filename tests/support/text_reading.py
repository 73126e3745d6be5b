"""All lines of a text file, good and bad."""

from typing import NamedTuple

from polyhead.data.text_files import BadLine, TextLines, open_text


class TextFile(NamedTuple):
    """Lines of a file; a bad line is an empty string."""

    name: str
    lines: list[str]
    bad: tuple[BadLine, ...]
    notices: tuple[str, ...]


def read_all(text: TextLines) -> TextFile:
    """Read all lines."""
    lines = [*text]
    bad = tuple(line for line in lines if isinstance(line, BadLine))
    texts = ["" if isinstance(line, BadLine) else line for line in lines]
    return TextFile(text.name, texts, bad, text.notices)


def read_text(path, *, encoding="utf-8"):
    """Read a file."""
    return read_all(open_text(path, encoding=encoding))
