"""Sequences of ids in one flat array: in memory, or mapped from two files.

    NAME.bin    the ids of all sequences, one after another
    NAME.idx    MMIDIDX and two zeros, version (u64, 1), code of the type (u8), number of
                sequences (u64), number of documents (u64), lengths (i32), offsets in
                bytes (i64), documents (i64)

This is the layout of Megatron's indexed datasets, so that other tools can read the files. A
document is a range of sequences: `documents[n]` is where document n starts, the last number is the
end of the last one. Ids below 65,500 are two bytes each, others four; texts are bytes of UTF-8.

    NAME.crc    CRC-32 (u32) of every 2²⁰ bytes of NAME.bin; some are checked at every start, all
                others when they are first read
"""

import os
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from polyhead.errors import DataError

MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
HEAD = struct.Struct("<9sQBQQ")
CODES: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 4: np.dtype("<i4"), 8: np.dtype("<u2")}
MAX_TWO_BYTES = 65_500  # ids; the limit of Megatron
BLOCK, MAX_CHECKED = 2**20, 64  # bytes, and blocks of a file that are checked at once
Ids = npt.NDArray[Any]


def id_type(n_ids: int) -> np.dtype[Any]:
    """Return the smallest type for ids below `n_ids`."""
    return CODES[8] if n_ids < MAX_TWO_BYTES else CODES[4]


def offsets_of(lengths: npt.NDArray[np.int32], dtype: np.dtype[Any]) -> npt.NDArray[np.int64]:
    """Return where consecutive sequences start, in bytes."""
    offsets = np.zeros(len(lengths), dtype="<i8")
    np.cumsum(lengths[:-1], dtype=np.int64, out=offsets[1:])
    return offsets * dtype.itemsize


class TokenSequences:
    """Sequences of ids. Those of files are mapped, not read, and copied to other processes by name.

    Indexing returns a copy as int64: torch must not write to the files.
    """

    def __init__(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int32],
        offsets: npt.NDArray[np.int64] | None = None,
        documents: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """ids: all ids; offsets: of the sequences, in bytes."""
        self.ids, self.lengths = ids, lengths
        self.offsets = offsets_of(lengths, ids.dtype) if offsets is None else offsets
        ends = np.array([0, len(lengths)], dtype=np.int64)
        self.documents = ends if documents is None else documents
        self.name: Path | None = None
        self.unread: dict[int, int] = {}  # checksums of the blocks that have not been read

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]], n_ids: int) -> "TokenSequences":
        """Collect sequences of ids below `n_ids` in memory."""
        lengths = array("i")

        def measured() -> Iterator[Sequence[int]]:
            for sequence in sequences:
                lengths.append(len(sequence))
                yield sequence

        ids = np.fromiter(chain.from_iterable(measured()), id_type(n_ids))
        return cls(ids, np.array(lengths, dtype=np.int32))

    @classmethod
    def open(cls, name: Path) -> "TokenSequences":
        """Map NAME.bin and NAME.idx; DataError if they are damaged."""
        index, content = name.with_name(name.name + ".idx"), name.with_name(name.name + ".bin")
        try:
            with index.open("rb") as file:
                magic, version, code, n_sequences, n_documents = HEAD.unpack(file.read(HEAD.size))
                if magic != MAGIC or version != VERSION or code not in CODES:
                    raise ValueError("unknown format")
            n_bytes = HEAD.size + 12 * n_sequences + 8 * n_documents
            if index.stat().st_size != n_bytes:
                raise ValueError(f"{index.stat().st_size:,} bytes, expected {n_bytes:,}")
            kind, at = CODES[code], HEAD.size
            arrays = []
            for dtype, count in (("<i4", n_sequences), ("<i8", n_sequences), ("<i8", n_documents)):
                arrays.append(_map(index, np.dtype(dtype), count, at))
                at += count * np.dtype(dtype).itemsize
            lengths, offsets, documents = arrays
            n_ids = content.stat().st_size // kind.itemsize
            if n_sequences and offsets[-1] // kind.itemsize + lengths[-1] != n_ids:
                raise ValueError(f"{content.name} has another size")
            store = cls(_map(content, kind, n_ids, 0), lengths, offsets, documents)
            store.name, sums = name, name.with_name(name.name + ".crc")
            if sums.exists():
                store.unread = dict(enumerate(np.fromfile(sums, dtype="<u4").tolist()))
        except (OSError, ValueError, struct.error) as error:
            raise DataError(f"{index}: not a token store ({error})", "damaged_store") from None
        return store

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> npt.NDArray[np.int64]:
        start = int(self.offsets[number]) // self.ids.itemsize
        end = start + int(self.lengths[number])
        self.check(np.array([start]), np.array([end]))
        return self.ids[start:end].astype(np.int64)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return (self[number] for number in range(len(self)))

    def check(self, starts: Ids, ends: Ids) -> None:
        """Check the blocks with ids from `starts` to `ends` that are read for the first time.

        Raises DataError if one is damaged; the store is then made again at the next start.
        """
        if not self.unread or self.name is None:
            return
        size, content = self.ids.itemsize, self.ids.view(np.uint8)
        first, last = starts * size // BLOCK, (ends * size - 1) // BLOCK
        for start, end in set(zip(first.tolist(), last.tolist(), strict=True)):
            for block in range(start, end + 1):
                expected = self.unread.pop(block, None)
                read = content[block * BLOCK : (block + 1) * BLOCK]
                if expected is not None and zlib.crc32(read.data) != expected:
                    self.name.with_name(self.name.name + ".crc").unlink(missing_ok=True)
                    message = f"{self.name}.bin: block {block} is damaged; start again to repair it"
                    raise DataError(message, "damaged_store")

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name} if self.name is not None else dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        name = state["name"]
        vars(self).update(state if name is None else vars(TokenSequences.open(name)))


def _map(file: Path | IO[bytes], dtype: np.dtype[Any], count: int, offset: int) -> Ids:
    """Map a part of a file; an empty part cannot be mapped."""
    if not count:
        return np.empty(0, dtype)
    return np.memmap(file, dtype, "r", offset, (count,))


class TokenWriter:
    """Writes sequences to NAME.bin; `close` writes NAME.idx, without which the store is invalid.

    Without a name the file is a temporary one, which ends with its last use.
    """

    def __init__(self, name: Path | None, dtype: np.dtype[Any]) -> None:
        self.name, self.dtype = name, dtype
        self._file: IO[bytes] = (
            TemporaryFile()  # noqa: SIM115 (until `close`)
            if name is None
            else name.with_name(name.name + ".bin").open("wb")
        )
        self._lengths: list[npt.NDArray[np.int32]] = []
        self._documents = [0]
        self.n_sequences = 0

    def add(self, ids: Ids, lengths: npt.NDArray[Any]) -> None:
        """Append sequences, given by all their ids and by their lengths."""
        self._file.write(np.ascontiguousarray(ids, dtype=self.dtype).data)
        self._lengths.append(np.asarray(lengths, dtype=np.int32))
        self.n_sequences += len(lengths)

    def end_document(self) -> None:
        """End a document at the last sequence."""
        self._documents.append(self.n_sequences)

    def close(self) -> TokenSequences | None:
        """Write the index, and flush both files to disk; return a store without name."""
        if self._documents[-1] != self.n_sequences:
            self.end_document()
        if self.name is None:
            with self._file as file:
                n_ids = file.tell() // self.dtype.itemsize
                file.flush()
                lengths = np.concatenate([np.empty(0, np.int32), *self._lengths])
                ids = np.asarray(_map(file, self.dtype, n_ids, 0))
                return TokenSequences(ids, lengths, None, np.array(self._documents))
        _sync(self._file)
        [code] = [code for code, dtype in CODES.items() if dtype == self.dtype]
        with self.name.with_name(self.name.name + ".idx").open("wb") as file:
            n_documents = len(self._documents)
            file.write(HEAD.pack(MAGIC, VERSION, code, self.n_sequences, n_documents))
            for lengths in self._lengths:
                file.write(lengths.astype("<i4").data)
            start = 0
            for lengths in self._lengths:  # part by part: there may be many millions
                file.write((start + offsets_of(lengths, self.dtype)).astype("<i8").data)
                start += int(lengths.sum(dtype=np.int64)) * self.dtype.itemsize
            file.write(np.array(self._documents, dtype="<i8").data)
            _sync(file)
        self._file.close()
        return None


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def write_block_sums(path: Path) -> None:
    """Write NAME.crc for a file NAME.bin."""
    with path.open("rb") as file:
        sums = [zlib.crc32(block) for block in iter(lambda: file.read(BLOCK), b"")]
    np.array(sums, dtype="<u4").tofile(path.with_suffix(".crc"))


def check_blocks(path: Path) -> None:
    """Check a file NAME.bin by NAME.crc; of a large one, blocks drawn at random each time.

    Raises DataError if a block has another checksum, or the file another size.
    """
    sums = np.fromfile(path.with_suffix(".crc"), dtype="<u4")
    numbers = np.arange(len(sums))
    if len(sums) > MAX_CHECKED:
        drawn = np.random.default_rng().choice(len(sums) - 1, MAX_CHECKED - 1, replace=False)
        numbers = np.sort(np.append(drawn, len(sums) - 1))  # the last one tells the size
    with path.open("rb") as file:
        for number in numbers.tolist():
            file.seek(number * BLOCK)
            if zlib.crc32(file.read(BLOCK)) != sums[number]:
                raise DataError(f"{path}: wrong checksum of block {number}", "damaged_store")
        if file.seek(0, os.SEEK_END) > len(sums) * BLOCK:
            raise DataError(f"{path}: larger than expected", "damaged_store")
