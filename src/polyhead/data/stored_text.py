"""Texts of a run: read once, encoded once, and trained on from token stores.

The stores of a large corpus are kept in the cache. The key of its facts is that of the files, the
task that reads them and its options; the key of a store that of the training text, the tokenizers
and the form of its examples. So a second start reads neither. Those of other corpora are temporary.
"""

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from polyhead.atomic_file import os_errors_as_polyhead_errors
from polyhead.checkpoint.atomic_dir import MANIFEST
from polyhead.data import corpus_store
from polyhead.data.config import LISTS, DataConfig
from polyhead.data.corpus_cache import Reporting, folder, make_store
from polyhead.data.corpus_store import StoreCounts, all_too_long, write_store
from polyhead.data.file_sums import digest, file_sums, fingerprint, read_facts, write_facts
from polyhead.data.holdout import Corpus, Numbers, drawn_for_training
from polyhead.data.line_encoder import StoreForm
from polyhead.data.line_spool import Examples, Lines, LineSpool
from polyhead.data.locate import find
from polyhead.data.schedules.generator import make_missing
from polyhead.data.token_store import TokenSequences
from polyhead.errors import DataError

FORMAT = 2  # also of facts
ORDER = "order of the training"  # data of more examples than a block
LARGE = 32_000_000  # bytes of files
PACKED = {".gz": 4, ".xz": 5, ".zst": 4}  # times as much text
OTHER = {  # options
    "store", "max_length", "blanks", "augment", "adapt", "images", "valid_images", "words",
    "stride", "max_answer", "max_examples",
}  # fmt: skip


@dataclass(frozen=True)
class CorpusFacts:
    """Facts about a corpus that a run needs beside the text that it trains on."""

    n_train: int
    fingerprints: dict[str, str]
    notices: list[str]
    classes: list[str]
    languages: list[str]
    valid: list[list[str]]  # columns
    files: list[str]
    problem: str


@runtime_checkable
class Log(Protocol):
    """The log of a run."""

    @property
    def callback(self) -> Reporting: ...

    def notice(self, text: str, /) -> None: ...


TextCorpus = Corpus["StoredText", Examples]


class CorpusReader(NamedTuple):
    """The reader of the corpus of a task.

    load: reads all texts into a spool, and returns it, of which the held-out part is left out.
    by_side: fingerprints are those of source and target.
    is_scattered: the order of many training examples is that of blocks.
    """

    load: Callable[[LineSpool], Corpus[LineSpool, Examples]]
    n_columns: int = 2
    by_side: bool = False
    is_scattered: bool = False

    def fingerprints(self, corpus: Corpus[LineSpool, Examples]) -> dict[str, str]:
        """Return the sha256 of both parts by name."""
        sums = {}
        parts: dict[str, tuple[Iterable[str], ...]] = {
            "training": corpus.train.columns, "validation": corpus.valid.columns,
        }  # fmt: skip
        for name, columns in parts.items():
            if self.by_side:
                for side, lines in zip(("source", "target"), columns, strict=True):
                    sums[f"{name} {side}"] = fingerprint(lines)
            else:
                sums[name] = fingerprint(chain.from_iterable(columns))
        return sums


class StoredText:
    """The training text of a run: read into files when it is needed, at most once."""

    def __init__(
        self,
        facts: CorpusFacts,
        reader: CorpusReader,
        used: Numbers | None = None,
        path: Path | None = None,
    ) -> None:
        """used: numbers of the examples to train on; all if None.

        path: file of the facts of a cached corpus, which is removed if the text is another.
        """
        self.facts, self.reader, self.used, self.path = facts, reader, used, path
        self._spool: LineSpool | None = None
        self.columns = tuple(map(self.column, range(reader.n_columns)))
        self.texts, self.labels = self.columns[0], self.columns[-1]

    def __len__(self) -> int:
        return self.facts.n_train if self.used is None else len(self.used)

    def column(self, number: int) -> Lines:
        """Return the lines of a column, which are read when they are iterated over."""
        return Lines(self.__len__, lambda: self.spool().column(number))

    def take(self, spool: LineSpool) -> None:
        """Use this text, from which training examples that are not used are left out."""
        if self.used is not None:
            left = np.delete(np.arange(spool.n_lines), np.array(spool.left_out, np.int64))
            spool.left_out = np.delete(np.arange(spool.n_lines), left[self.used])
        self._spool = spool

    def spool(self) -> LineSpool:
        """Read the text, unless it has been; DataError if it is not that of the facts."""
        if self._spool is None:
            spool = LineSpool(self.reader.n_columns, self.path and self.path.parent)
            if self.reader.fingerprints(self.reader.load(spool)) != self.facts.fingerprints:
                if self.path is not None:
                    self.path.unlink(missing_ok=True)
                files = ", ".join(self.facts.files)
                raise DataError(f"{files}: changed meanwhile. Start again.", "data_changed")
            self.take(spool)
        assert self._spool is not None
        return self._spool

    def close(self) -> None:
        """Remove the files."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None


def is_stored(data: DataConfig) -> bool:
    """Return whether encoded data is kept in the cache, by the size of its files or as configured.

    Nothing else may depend on it.
    """
    names = [name for option in LISTS for name in getattr(data, option)]
    if data.store == "never" or "-" in names:
        return False
    if data.store == "always":
        return True
    n_bytes = 0
    with suppress(DataError, OSError):  # which reading reports
        for place in map(find, names):
            n_bytes += place.stat().st_size * PACKED.get(place.suffix, 1)
    return n_bytes > LARGE


def read_corpus(
    data: DataConfig, task: str, seed: int, reader: CorpusReader
) -> tuple[TextCorpus, dict[str, str]]:
    """Return a corpus and its fingerprints, which are those of all examples (`max_examples`)."""
    make_missing(data)
    path = spool = known = None
    if is_stored(data):
        path = folder() / f"{corpus_key(data, task, seed)}.json"
        with os_errors_as_polyhead_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        known = read_facts(path)
    if known is None:
        spool = LineSpool(reader.n_columns, path and path.parent)
        corpus = reader.load(spool)
        facts = CorpusFacts(
            len(spool),
            reader.fingerprints(corpus),
            list(corpus.notices),
            list(corpus.classes),
            list(corpus.languages),
            list(corpus.valid.columns),
            [name for option in LISTS for name in getattr(data, option)],
            corpus.problem,
        )
        if path is not None:
            write_facts(path, asdict(facts))
    else:
        facts = CorpusFacts(**known)
    in_order = reader.n_columns == 1
    used = drawn_for_training(facts.n_train, data.max_examples, seed, in_order=in_order)
    train = StoredText(facts, reader, used, path)
    if spool is not None:
        train.take(spool)
    is_large = reader.is_scattered and len(train) > corpus_store.BLOCK
    return TextCorpus(
        train,
        Examples(*facts.valid),
        tuple(facts.notices),
        tuple(facts.classes),
        (facts.languages[0], facts.languages[1]),
        facts.problem,
    ), facts.fingerprints | ({ORDER: "in blocks"} if is_large else {})


def corpus_key(data: DataConfig, task: str, seed: int) -> str:
    """Return the key of a corpus: contents of its files, its task, and all options of reading."""
    options = {k: v for k, v in asdict(data).items() if k not in OTHER}
    paths = [find(name) for option in LISTS for name in getattr(data, option)]
    return digest([FORMAT, task, options, seed, file_sums(paths)])


def open_store(
    train: StoredText, tokenizer: Path, form: StoreForm, log: Log
) -> tuple[dict[str, TokenSequences], dict[str, Any]]:
    """Return the token stores of a text by name, and their counts; write them if necessary.

    tokenizer: directory of the tokenizers, with its manifest.
    """
    try:
        if train.path is None:
            counts, stores = _encode(None, train, tokenizer, form, log)
            return dict(zip(form.names, stores, strict=True)), counts._asdict()
        sums = {k: v for k, v in train.facts.fingerprints.items() if k.startswith("training")}
        if train.used is not None:
            sums["used"] = hashlib.sha256(train.used.tobytes()).hexdigest()
        tokenizers = hashlib.sha256((tokenizer / MANIFEST).read_bytes()).hexdigest()
        place = folder() / digest([FORMAT, sums, tokenizers, form._replace(task="")])

        def write(draft: Path) -> dict[str, Any]:
            started = time.monotonic()
            counts, _ = _encode(draft, train, tokenizer, form, log)
            seconds = time.monotonic() - started
            log.notice(
                f"encoded {counts.n_lines:,} lines in {seconds:,.0f} s; the ids are kept in "
                f"{place} for other runs (polyhead data cache)"
            )
            return {"files": train.facts.files, **counts._asdict()}

        info = make_store(place, write, log.notice)
        return {name: TokenSequences.open(place / name) for name in form.names}, info
    finally:
        train.close()


def _encode(
    draft: Path | None, train: StoredText, tokenizer: Path, form: StoreForm, log: Log
) -> tuple[StoreCounts, list[TokenSequences]]:
    started = time.monotonic()

    def progress(n_lines: int) -> None:
        speed = n_lines / (time.monotonic() - started)
        share = f"{n_lines:,} of {len(train):,} lines, {speed:,.0f} lines per second"
        log.callback.on_stage(f"encoding the text: {share}")

    spool = train.spool()
    with os_errors_as_polyhead_errors(draft or spool.folder):
        counts, stores = write_store(draft, spool, tokenizer, form, progress=progress)
    if not counts.n_examples and form.kind == "pairs":
        raise all_too_long(counts.n_lines, "training", form.max_length)
    if not counts.n_examples:
        raise DataError("all lines are empty; give at least one line of text", "no_text")
    return counts, stores
