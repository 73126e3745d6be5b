"""Writing of encoded corpora: chunks of lines to worker processes, ids to token stores, in order.

Up to 2²⁰ examples stay in their order. Of more, each goes to a block drawn at random, a document of
the store: first to one file for each block, then these are joined. An epoch, which is planned block
by block, is then as good as shuffled, and memory is that of a block.
"""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np

from polyhead import errors
from polyhead.atomic_file import remove
from polyhead.data.line_encoder import StoreForm, encode_columns, lines_of
from polyhead.data.line_spool import LineSpool
from polyhead.data.token_store import CODES, Ids, TokenSequences, TokenWriter, id_type
from polyhead.errors import DataError, PolyheadError
from polyhead.sandbox import Limits, Request, Sandbox
from polyhead.tokenizers.base import TextConfig, Tokenizer
from polyhead.tokenizers.char_word import CharWordTokenizer
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer
from polyhead.tokenizers.storage import TokenizerPair, load_tokenizers

BLOCK, MAX_BLOCKS = 1 << 20, 512  # examples of a block
MIN_LINES = 20_000  # for each process
PROGRESS_SECONDS = 10.0
BUFFER = 1 << 18  # bytes of a block before they are written
ENOUGH = Limits(megabytes=2**20, seconds=10**7)  # our own code on our own files
SCATTERED = ("pairs", "parts")  # kinds whose batches are planned in blocks
Sequences = tuple[Ids, Ids]  # ids and lengths


Item = TypeVar("Item")
Result = TypeVar("Result")


class StoreCounts(NamedTuple):
    """Numbers of a store: lines read, examples written, their tokens, and lines too long."""

    n_lines: int
    n_examples: int
    n_tokens: int
    n_too_long: int


def all_too_long(n_pairs: int, part: str, max_length: int) -> DataError:
    """Return the error about pairs of which none is short enough."""
    return DataError(
        f"all {n_pairs:,} {part} pairs are longer than {max_length} tokens. Raise data.max_length.",
        "all_too_long",
    )


def write_store(
    folder: Path | None,
    spool: LineSpool,
    tokenizer: Path,
    form: StoreForm,
    *,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[StoreCounts, list[TokenSequences]]:
    """Encode all lines into token stores in a folder, or into temporary ones, which it returns.

    tokenizer: directory of the tokenizers. processes: as many as processors if None.
    progress: is called with the number of lines done, from time to time.
    """
    tokenizers = load_tokenizers(tokenizer)
    types = [id_type(size) for size in form.sizes(tokenizers)]
    types += [CODES[1]] * (len(form.names) - len(types))
    writers = [
        TokenWriter(None if folder is None else folder / name, kind)
        for name, kind in zip(form.names, types, strict=True)
    ]
    blocks: _Blocks | None = None
    if form.kind in SCATTERED and len(spool) > BLOCK:
        blocks = _Blocks(folder or spool.folder, types, min(MAX_BLOCKS, -(-len(spool) // BLOCK)))
    n_done = n_too_long = n_tokens = 0
    reported = time.monotonic()
    wanted = n_processors() if processes is None else processes
    workers = max(1, min(wanted, len(spool) // MIN_LINES)) if processes is None else wanted
    source = tokenizer if workers > 1 else tokenizers
    for n_lines, too_long, stores in _encoded(spool, source, form, types, workers):
        n_done, n_too_long = n_done + n_lines, n_too_long + too_long
        n_tokens += sum(len(ids) for ids, _ in stores[: 2 if form.kind == "pairs" else 1])
        if blocks is None:
            for writer, (ids, lengths) in zip(writers, stores, strict=True):
                writer.add(ids, lengths)
        else:
            blocks.add(stores)
        if time.monotonic() > reported + PROGRESS_SECONDS:
            reported = time.monotonic()
            progress(n_done)
    if blocks is not None:
        blocks.join(writers)
    opened = [store for writer in writers if (store := writer.close()) is not None]
    return StoreCounts(n_done, writers[0].n_sequences, n_tokens, n_too_long), opened


def _encoded(
    spool: LineSpool,
    tokenizer: Path | TokenizerPair,
    form: StoreForm,
    types: Sequence[Any],
    processes: int,
) -> Iterator[tuple[int, int, list[Sequences]]]:
    """Yield of each chunk, in order, its number of lines, those too long, and its sequences."""
    if isinstance(tokenizer, TokenizerPair):
        for contents in spool.chunks():
            columns = [lines_of(content) for content in contents]
            stores, n_too_long = encode_columns(tokenizer, columns, form)
            yield len(columns[0]), n_too_long, [(store.ids, store.lengths) for store in stores]
        return
    setup = Request("load", (str(tokenizer.absolute()),))
    module = "polyhead.data.line_encoder"
    children = [Sandbox(module, _failed, ENOUGH, setup) for _ in range(processes)]
    free: SimpleQueue[Sandbox] = SimpleQueue()
    for child in children:
        free.put(child)

    def work(contents: list[bytes]) -> tuple[int, int, list[Sequences]]:
        child = free.get()
        try:
            n_too_long, arrays = child.call("encode", *form, contents=contents)
        finally:
            free.put(child)
        ids = (np.frombuffer(a, kind) for a, kind in zip(arrays[::2], types, strict=True))
        lengths = (np.frombuffer(array, np.int32) for array in arrays[1::2])
        return contents[0].count(b"\n"), n_too_long, list(zip(ids, lengths, strict=True))

    try:
        yield from map_in_order(work, spool.chunks(), processes)
    finally:
        for child in children:
            child.close()


def n_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], n_threads: int
) -> Iterator[Result]:
    """Yield the results of a function in the order of the items, of which few are read ahead.

    If reading the items fails, the results of those before the failure are yielded first.
    """
    pending: deque[Future[Result]] = deque()
    stream, end = iter(items), None
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            while end is None:
                try:
                    pending.append(pool.submit(function, next(stream)))
                except Exception as error:  # StopIteration, or that of reading
                    end = error
                while len(pending) > (2 * n_threads if end is None else 0):
                    yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
    if not isinstance(end, StopIteration):
        raise end


def train_in_child(
    sources: Iterable[str], targets: Iterable[str], config: TextConfig, folder: Path
) -> TokenizerPair:
    """Train tokenizers in a child process, since that needs several times the memory of its text.

    folder: for temporary files.
    """
    paths = [folder / "sources", folder / "targets"]
    for path, lines in zip(paths, (sources, targets), strict=True):
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
    child = Sandbox("polyhead.data.line_encoder", _failed, ENOUGH)
    try:
        problem, sides = child.call("train", [str(path) for path in paths], asdict(config))
    finally:
        child.close()
        for path in paths:
            remove(path)
    if problem:
        raise vars(errors)[problem[0]](*problem[1:])
    tokenizers: list[Tokenizer] = []
    for side in sides:
        if config.kind in ("bpe", "unigram"):
            tokenizers.append(SentencePieceTokenizer(side, config))
        else:
            tokenizers.append(CharWordTokenizer(tuple(json.loads(side)), config))
    return TokenizerPair(tokenizers[0], tokenizers[-1], config)


def _failed(reason: str) -> PolyheadError:
    return PolyheadError(
        f"a process that reads the text failed: {reason}. Run the command again.",
        "encoder_failed",
    )


class _Blocks:
    """Files of the blocks to which examples are scattered."""

    def __init__(self, folder: Path, types: Sequence[Any], n_blocks: int) -> None:
        self.types, self.n_blocks = types, n_blocks
        self._temporary = TemporaryDirectory(dir=folder, ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.rng = np.random.default_rng(0)  # a store depends on its text only
        self.buffers: dict[str, list[bytes]] = {}
        self.sizes: dict[str, int] = {}

    def add(self, stores: Sequence[Sequences]) -> None:
        """Scatter the examples of a chunk."""
        blocks = self.rng.integers(self.n_blocks, size=len(stores[0][1]))
        order = np.argsort(blocks, kind="stable")
        edges = np.searchsorted(blocks[order], np.arange(self.n_blocks + 1))
        for number, (ids, lengths) in enumerate(stores):
            starts = np.cumsum(lengths, dtype=np.int64) - lengths
            moved = lengths[order]
            ends = np.cumsum(moved, dtype=np.int64)
            places = np.repeat(starts[order] - ends + moved, moved) + np.arange(len(ids))
            ids, ends = ids[places], np.concatenate([[0], ends])
            for block in range(self.n_blocks):
                first, last = edges[block], edges[block + 1]
                self._append(f"{block}-{number}", ids[ends[first] : ends[last]])
                self._append(f"{block}-{number}-lengths", moved[first:last])

    def _append(self, name: str, numbers: Ids) -> None:
        buffer = self.buffers.setdefault(name, [])
        buffer.append(numbers.tobytes())
        self.sizes[name] = self.sizes.get(name, 0) + len(buffer[-1])
        if self.sizes[name] > BUFFER:
            self._flush(name)

    def _flush(self, name: str) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(b"".join(self.buffers[name]))
        self.buffers[name], self.sizes[name] = [], 0

    def join(self, writers: Sequence[TokenWriter]) -> None:
        """Append all blocks to the stores, each as a document, and remove their files."""
        for name in self.buffers:
            self._flush(name)
        for block in range(self.n_blocks):
            for number, writer in enumerate(writers):
                path = self.folder / f"{block}-{number}"
                ids = np.fromfile(path, self.types[number])
                lengths = np.fromfile(path.with_name(f"{path.name}-lengths"), np.int32)
                writer.add(ids, lengths)
                writer.end_document()
                remove(path)
                remove(path.with_name(f"{path.name}-lengths"))
        self._temporary.cleanup()
