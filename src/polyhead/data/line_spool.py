"""Texts of a corpus in temporary files, between reading and encoding.

A column is a file of lines, each closed by 0x0A; line n of every column belongs to example n. So
several passes over a corpus of any format need neither its memory nor its parser. The files have
no names: they end with their spool, or with the process.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from polyhead.atomic_file import os_errors_as_polyhead_errors

CHUNK, MAX_CHUNK = 4_096, 1 << 16  # lines
CHUNK_CHARACTERS = 1 << 20


Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, init=False)
class Examples:
    """Examples in memory, by columns: source and target, text and label, or text alone."""

    columns: tuple[list[str], ...]

    def __init__(self, *columns: list[str]) -> None:
        object.__setattr__(self, "columns", columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return zip(*self.columns, strict=True)

    @property
    def texts(self) -> list[str]:
        """The first column."""
        return self.columns[0]

    @property
    def labels(self) -> list[str]:
        """The last column."""
        return self.columns[-1]


@runtime_checkable
class CountedLines(Protocol):
    """Lines whose number is known: a list, or lines in files, which are read to iterate."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[str]: ...


class Lines:
    """Lines that are read anew in every iteration."""

    def __init__(self, count: Callable[[], int], read: Callable[[], Iterable[str]]) -> None:
        self.count, self.read = count, read

    def __len__(self) -> int:
        return self.count()

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())


class LineChunk(NamedTuple):
    """Consecutive lines: the number of the first, how many, and in each file their first byte."""

    first: int
    n_lines: int
    starts: tuple[int, ...]


class LineSpool:
    """The columns of a corpus in files; lines that are left out are left out of all passes."""

    def __init__(self, n_columns: int, folder: Path | None = None) -> None:
        """folder: of the files; that of the system for temporary files if None."""
        self.folder = Path(gettempdir()) if folder is None else folder
        self._files: list[IO[bytes]] = []
        with os_errors_as_polyhead_errors(self.folder):
            self._files += [
                TemporaryFile(dir=folder)  # noqa: SIM115 (closed with the spool)
                for _ in range(n_columns)
            ]
        self.n_lines = 0
        self.left_out: Sequence[int] | Numbers = ()  # ascending
        self._chunks: list[LineChunk] = []
        self._ends = (0,) * n_columns

    def __len__(self) -> int:
        return self.n_lines - len(self.left_out)

    def close(self) -> None:
        """Remove the files."""
        for file in self._files:
            file.close()

    def __del__(self) -> None:
        self.close()

    def write(self, records: Iterable[tuple[str, ...]]) -> None:
        """Write all examples; a chunk ends where two lines would be split in any tokenizer."""
        batch: list[tuple[str, ...]] = []
        n_characters = 0
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
        with os_errors_as_polyhead_errors(self.folder):
            for file, lines, end in zip(
                self._files, zip(*batch, strict=True), self._ends, strict=True
            ):
                content = ("\n".join(lines) + "\n").encode()
                file.seek(end)
                file.write(content)
                file.flush()
                ends.append(end + len(content))
        self._ends = tuple(ends)

    def column(self, number: int) -> Lines:
        """Return the lines of a column that are not left out."""
        return Lines(self.__len__, lambda: self._lines(number))

    @property
    def columns(self) -> tuple[Lines, ...]:
        return tuple(map(self.column, range(len(self._files))))

    def _lines(self, column: int) -> Iterator[str]:
        for chunk in range(len(self._chunks)):
            yield from self._content(chunk, column).decode().split("\n")[:-1]

    def chunks(self) -> Iterator[list[bytes]]:
        """Yield the lines that are not left out, chunk by chunk, for each column."""
        for number in range(len(self._chunks)):
            contents = [self._content(number, column) for column in range(len(self._files))]
            if contents[0]:
                yield contents

    def select(self, numbers: Sequence[int]) -> Examples:
        """Return the examples with these ascending numbers, left out or not."""
        columns: list[list[str]] = [[] for _ in self._files]
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
        return Examples(*columns)

    def backwards(self, column: int) -> Iterator[str]:
        """Yield all lines of a column, the last one first."""
        for number in reversed(range(len(self._chunks))):
            yield from reversed(self._bytes(number, column).decode().split("\n")[:-1])

    def _content(self, chunk: int, column: int) -> bytes:
        first, n_lines, _ = self._chunks[chunk]
        start, end = (bisect_left(self.left_out, n) for n in (first, first + n_lines))
        content = self._bytes(chunk, column)
        if start == end:
            return content
        if end - start == n_lines:
            return b""
        left_out = {number - first for number in self.left_out[start:end]}
        lines = content.split(b"\n")
        return b"\n".join(line for number, line in enumerate(lines) if number not in left_out)

    def _bytes(self, chunk: int, column: int) -> bytes:
        start = self._chunks[chunk].starts[column]
        is_last = chunk + 1 == len(self._chunks)
        end = self._ends[column] if is_last else self._chunks[chunk + 1].starts[column]
        self._files[column].seek(start)
        return self._files[column].read(end - start)
