"""Texts of a corpus in temporary files, while it is checked and encoded.

A column is a file of lines, each closed by 0x0A; line n of every column belongs to example n. So
several passes over a corpus of any format need neither its memory nor its parser.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from polyhead.atomic_file import os_errors_as_polyhead_errors

CHUNK, MAX_CHUNK = 4_096, 1 << 16  # lines
CHUNK_CHARACTERS = 1 << 20
Selected = TypeVar("Selected")


class LineChunk(NamedTuple):
    """Consecutive lines: the number of the first, how many, and in each file their first byte."""

    first: int
    n_lines: int
    starts: tuple[int, ...]


class LineSpool:
    """The columns of a corpus in files; lines that are held out are left out of all passes."""

    def __init__(self, folder: Path, n_columns: int) -> None:
        self.folder = folder
        self.paths = [folder / f"column-{number}" for number in range(n_columns)]
        self.n_lines = 0
        self.held_out: Sequence[int] = ()  # ascending
        self._chunks: list[LineChunk] = []
        self._ends = (0,) * n_columns

    def __len__(self) -> int:
        return self.n_lines - len(self.held_out)

    def write(self, records: Iterable[tuple[str, ...]]) -> None:
        """Write all examples; a chunk ends where two lines would be split in any tokenizer."""
        batch: list[tuple[str, ...]] = []
        n_characters = 0
        with os_errors_as_polyhead_errors(self.folder):
            for path in self.paths:
                path.touch()
            for record in records:
                is_full = len(batch) >= CHUNK or n_characters > CHUNK_CHARACTERS
                # white space on both sides of a line end may be one token
                is_clean = is_full and batch[-1][0][-1:].strip() and record[0][:1].strip()
                if is_clean or len(batch) >= MAX_CHUNK:
                    self._append(batch)
                    batch, n_characters = [], 0
                batch.append(record)
                n_characters += len(record[0])
            if batch:
                self._append(batch)

    def _append(self, batch: Sequence[tuple[str, ...]]) -> None:
        self._chunks.append(LineChunk(self.n_lines, len(batch), self._ends))
        self.n_lines += len(batch)
        ends = []
        for path, lines, end in zip(self.paths, zip(*batch, strict=True), self._ends, strict=True):
            content = ("\n".join(lines) + "\n").encode()
            with path.open("ab") as file:
                file.write(content)
            ends.append(end + len(content))
        self._ends = tuple(ends)

    def column(self, number: int) -> "SpooledLines":
        """Return the lines of a column that are not held out."""
        return SpooledLines(self, number)

    def chunks(self) -> Iterator[list[bytes]]:
        """Yield the lines that are not held out, chunk by chunk, for each column."""
        for number in range(len(self._chunks)):
            contents = [self._content(number, column) for column in range(len(self.paths))]
            if contents[0]:
                yield contents

    def select(self, numbers: Sequence[int]) -> list[list[str]]:
        """Return the lines with these ascending numbers, held out or not, for each column."""
        columns: list[list[str]] = [[] for _ in self.paths]
        firsts = [chunk.first for chunk in self._chunks]
        at = 0
        while at < len(numbers):
            chunk = bisect_left(firsts, numbers[at] + 1) - 1
            first, n_lines, _ = self._chunks[chunk]
            end = bisect_left(numbers, first + n_lines)
            for column, lines in enumerate(columns):
                content = self._bytes(chunk, column).split(b"\n")
                lines += [content[number - first].decode() for number in numbers[at:end]]
            at = end
        return columns

    def backwards(self, column: int) -> Iterator[str]:
        """Yield all lines of a column from the last to the first."""
        for number in reversed(range(len(self._chunks))):
            yield from reversed(self._bytes(number, column).decode().split("\n")[:-1])

    def _content(self, chunk: int, column: int) -> bytes:
        first, n_lines, _ = self._chunks[chunk]
        start, end = (bisect_left(self.held_out, n) for n in (first, first + n_lines))
        content = self._bytes(chunk, column)
        if start == end:
            return content
        if end - start == n_lines:
            return b""
        lines = content.split(b"\n")
        for number in reversed(self.held_out[start:end]):
            del lines[number - first]
        return b"\n".join(lines)

    def _bytes(self, chunk: int, column: int) -> bytes:
        start = self._chunks[chunk].starts[column]
        is_last = chunk + 1 == len(self._chunks)
        end = self._ends[column] if is_last else self._chunks[chunk + 1].starts[column]
        with self.paths[column].open("rb") as file:
            file.seek(start)
            return file.read(end - start)


@runtime_checkable
class CountedLines(Protocol):
    """Lines whose number is known: a list, or lines in files, which are read to iterate."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[str]: ...


class SpooledLines:
    """The lines of one column of a spool, which are read anew in every iteration."""

    def __init__(self, spool: LineSpool, number: int) -> None:
        self.spool, self.number = spool, number

    def __len__(self) -> int:
        return len(self.spool)

    def __iter__(self) -> Iterator[str]:
        for chunk in range(len(self.spool._chunks)):
            yield from self.spool._content(chunk, self.number).decode().split("\n")[:-1]


class SpooledExamples(Generic[Selected]):
    """Examples of two columns in a spool: pairs, or texts with their labels."""

    def __init__(
        self,
        spool: LineSpool,
        records: Iterable[tuple[str, str]],
        make: Callable[[list[str], list[str]], Selected],
    ) -> None:
        """make: returns the examples of two columns in memory."""
        spool.write(records)
        self.spool, self.make = spool, make
        self.sources = self.texts = spool.column(0)
        self.targets = self.labels = spool.column(1)

    def __len__(self) -> int:
        return len(self.spool)

    def select(self, numbers: Sequence[int]) -> Selected:
        """Return the examples with these ascending numbers."""
        first, second = self.spool.select(numbers)
        return self.make(first, second)

    def without(self, numbers: Sequence[int]) -> "SpooledExamples[Selected]":
        """Leave out the examples with these ascending numbers."""
        self.spool.held_out = numbers
        return self
