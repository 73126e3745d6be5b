"""Texts of large corpora: read once, encoded once, and trained on from a store in the cache.

The key of a summary is that of the files, the task that reads them and its options; the key of a
store that of the training text, the tokenizers and the form of its examples. So a second start
reads neither.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from polyhead.atomic_file import os_errors_as_polyhead_errors
from polyhead.checkpoint.atomic_dir import MANIFEST
from polyhead.data import corpus_store
from polyhead.data.config import LISTS, DataConfig
from polyhead.data.corpus_cache import Reporting, SpoolFolder, folder, make_store, remove_abandoned
from polyhead.data.corpus_store import all_too_long, write_store
from polyhead.data.file_sums import digest, file_sums, fingerprint, read_facts, write_facts
from polyhead.data.holdout import Corpus
from polyhead.data.line_encoder import StoreForm
from polyhead.data.line_spool import LineSpool
from polyhead.data.locate import find
from polyhead.data.schedules.generator import make_missing
from polyhead.data.token_store import TokenSequences
from polyhead.errors import DataError

FORMAT = 2  # also of a summary
ORDER = "order of the training"  # data of more examples than a block, by data.store
LARGE = 32_000_000  # bytes of files
PACKED = {".gz": 4, ".xz": 5, ".zst": 4}  # times as much text
OTHER = {  # options
    "store", "max_length", "blanks", "augment", "adapt", "images", "valid_images", "words",
    "stride", "max_answer",
}  # fmt: skip


@dataclass(frozen=True)
class CorpusSummary:
    """Facts about a corpus that a run needs beside the text that it trains on."""

    n_train: int
    fingerprints: dict[str, str]
    notices: list[str]
    classes: list[str]
    languages: list[str]
    valid: list[list[str]]  # columns
    files: list[str]
    problem: str


class StoredText:
    """The training text of a large corpus: read into files when it is needed, at most once."""

    def __init__(
        self,
        summary: CorpusSummary,
        reader: "CorpusReader",
        path: Path,
        spool: tuple[LineSpool, SpoolFolder] | None = None,
    ) -> None:
        """path: file of the summary, which is removed if the text is another."""
        self.summary, self.reader, self.path, self._spool = summary, reader, path, spool
        self.sources = self.texts = self.column(0)
        self.targets = self.labels = self.column(1)

    def __len__(self) -> int:
        return self.summary.n_train

    def column(self, number: int) -> "StoredLines":
        """Return the lines of a column."""
        return StoredLines(self, number)

    def spool(self) -> LineSpool:
        """Read the text, unless it has been; DataError if it is not that of the summary."""
        if self._spool is None:
            folder, files = SpoolFolder(), ", ".join(self.summary.files)
            spool = LineSpool(folder.path, len(self.summary.valid))
            self._spool = spool, folder
            if self.reader.fingerprints(self.reader.load(spool)) != self.summary.fingerprints:
                self.close()
                self.path.unlink(missing_ok=True)
                raise DataError(f"{files}: changed meanwhile. Start again.", "data_changed")
        return self._spool[0]

    def close(self) -> None:
        """Remove the files."""
        if self._spool is not None:
            self._spool[1].close()
            self._spool = None


class StoredLines:
    """A column of a stored text, which is read when it is iterated over."""

    def __init__(self, text: StoredText, number: int) -> None:
        self.text, self.number = text, number

    def __len__(self) -> int:
        return len(self.text)

    def __iter__(self) -> Iterator[str]:
        return iter(self.text.spool().column(self.number))


@runtime_checkable
class Log(Protocol):
    """The log of a run."""

    @property
    def callback(self) -> Reporting: ...

    def notice(self, text: str, /) -> None: ...


class CorpusReader(NamedTuple):
    """Reading of the corpus of a task, into memory or (all but the held-out part) into a spool."""

    load: Callable[[LineSpool | None], Corpus[Any, Any]]
    fingerprints: Callable[[Corpus[Any, Any]], dict[str, str]]
    columns: Callable[[Any], Sequence[list[str]]]  # of the held-out part
    examples: Callable[..., Any]  # the inverse of `columns`
    is_scattered: bool = False  # if it is stored and large


PlainCorpus = Corpus[list[str] | StoredText, list[str]]


def plain_reader(load: Callable[[LineSpool | None], Corpus[Any, Any]]) -> CorpusReader:
    """Return the reader of a task on plain text."""
    return CorpusReader(
        load,
        lambda text: {"training": fingerprint(text.train), "validation": fingerprint(text.valid)},
        lambda lines: (lines,),
        lambda lines: lines,
    )


def is_stored(data: DataConfig) -> bool:
    """Return whether a corpus is trained on from a store, by its size or as configured.

    A limited number of examples (data.max_examples) is held in memory.
    """
    names = [name for option in LISTS for name in getattr(data, option)]
    if data.store == "never" or "-" in names or data.max_examples is not None:
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
) -> tuple[Corpus[Any, Any], dict[str, str]]:
    """Return a corpus and its fingerprints; of a large one, `train` is a `StoredText`."""
    if not is_stored(data):
        corpus, order = reader.load(None), "of reading"
        fingerprints = reader.fingerprints(corpus)
    else:
        corpus, order = _read_stored(data, task, seed, reader), "in blocks"
        fingerprints = corpus.train.summary.fingerprints
    is_large = reader.is_scattered and len(corpus.train) > corpus_store.BLOCK
    return corpus, fingerprints | ({ORDER: order} if is_large else {})


def _read_stored(
    data: DataConfig, task: str, seed: int, reader: CorpusReader
) -> Corpus[StoredText, Any]:
    make_missing(data)
    path = folder() / f"{corpus_key(data, task, seed)}.json"
    with os_errors_as_polyhead_errors(folder()):
        folder().mkdir(parents=True, exist_ok=True)
    facts = read_facts(path)
    if facts is not None:
        train = StoredText(CorpusSummary(**facts), reader, path)
    else:
        remove_abandoned()
        place = SpoolFolder()
        spool = LineSpool(place.path, 1 if data.text else 2)
        corpus = reader.load(spool)
        new = CorpusSummary(
            len(spool),
            reader.fingerprints(corpus),
            list(corpus.notices),
            list(corpus.classes),
            list(corpus.languages),
            [list(column) for column in reader.columns(corpus.valid)],
            [name for option in LISTS for name in getattr(data, option)],
            corpus.problem,
        )
        train = StoredText(new, reader, path, (spool, place))
        write_facts(path, asdict(new))
    summary = train.summary
    return Corpus(
        train,
        reader.examples(*summary.valid),
        tuple(summary.notices),
        tuple(summary.classes),
        (summary.languages[0], summary.languages[1]),
        summary.problem,
    )


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
    training = {k: v for k, v in train.summary.fingerprints.items() if k.startswith("training")}
    tokenizers = hashlib.sha256((tokenizer / MANIFEST).read_bytes()).hexdigest()
    place = folder() / digest([FORMAT, training, tokenizers, form._replace(task="")])
    try:
        write = partial(_write, train=train, tokenizer=tokenizer, form=form, log=log, place=place)
        info = make_store(place, write, log.notice)
    finally:
        train.close()
    return {name: TokenSequences.open(place / name) for name in form.names}, info


def _write(
    draft: Path, *, train: StoredText, tokenizer: Path, form: StoreForm, log: Log, place: Path
) -> dict[str, Any]:
    started = time.monotonic()

    def progress(n_lines: int) -> None:
        speed = n_lines / (time.monotonic() - started)
        share = f"{n_lines:,} of {len(train):,} lines, {speed:,.0f} lines per second"
        log.callback.on_stage(f"encoding the text: {share}")

    counts = write_store(draft, train.spool(), tokenizer, form, progress=progress)
    if not counts.n_examples and form.kind == "pairs":
        raise all_too_long(counts.n_lines, "training", form.max_length)
    if not counts.n_examples:
        raise DataError("all lines are empty; give at least one line of text", "no_text")
    seconds = time.monotonic() - started
    log.notice(
        f"encoded {counts.n_lines:,} lines in {seconds:,.0f} s; the ids are kept in {place} for "
        "other runs (polyhead data cache)"
    )
    return {"files": train.summary.files, **counts._asdict()}
