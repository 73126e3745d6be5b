"""The corpus of a run: which files, read and checked, with something held out for validation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from polyhead.data import locate as corpora
from polyhead.data.images.augment import AugmentConfig
from polyhead.data.parallel import Pairs, hold_out, read_pair_file, read_parallel
from polyhead.data.plain_text import Lines, read_plain
from polyhead.data.schedules import generator as schedules
from polyhead.data.schedules import labels as schedules_kinds
from polyhead.errors import ConfigError, DataError

HELD_OUT_SHARE = 0.05  # a small corpus gives at most this much of itself


@dataclass(frozen=True)
class DataConfig:
    """The table [data]. Files are looked for as given, then below $POLYHEAD_DATA and the cache.

    Either `source` and `target` (line i of one translates line i of the other), or `pairs` (TSV or
    JSON lines); several files are joined. Without validation files, `hold_out` pairs are kept back.
    Models of one language read `text`, whose last tenth (or `hold_out` lines) is kept back. Text
    classifiers read `labelled`: texts and their classes, TSV or JSON lines. Image classifiers read
    `images`.
    """

    corpus: str | None = None  # a corpus that polyhead makes itself if the files are not there
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    valid_source: tuple[str, ...] = ()
    valid_target: tuple[str, ...] = ()
    valid_pairs: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    valid_text: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()
    valid_labelled: tuple[str, ...] = ()
    images: tuple[str, ...] = ()  # a folder for each class, a tar archive of them, or idx files
    valid_images: tuple[str, ...] = ()
    source_key: str | None = None  # in pairs: a column's heading or number, or a JSON field
    target_key: str | None = None
    text_key: str | None = None  # in labelled: the same for the text and its class
    label_key: str | None = None
    source_language: str = ""
    target_language: str = ""
    encoding: str = "utf-8"
    on_bad_line: Literal["skip", "fail"] = "skip"
    hold_out: int = 500
    max_length: int = 256  # tokens on either side; of plain text, those that are read at once
    blanks: float = 0.15  # BERT, ELECTRA: of the tokens, those that are asked for
    augment: AugmentConfig = field(default_factory=AugmentConfig)  # of images

    def __post_init__(self) -> None:
        for name in ("hold_out", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: expected at least 1")
        if not 0 < self.blanks <= 1:
            raise ValueError(f"blanks = {self.blanks}: expected a share above 0 and up to 1")


@dataclass(frozen=True)
class Corpus:
    """What to train on, what to validate on, and what there is to say about them."""

    train: Pairs
    valid: Pairs
    notices: tuple[str, ...]


def load(config: DataConfig, seed: int) -> Corpus:
    """Read everything that a configuration names."""
    make_missing(config)
    train = read(config, config.source, config.target, config.pairs, "data")
    notices = [*train.notices, *_skipped(train)]
    if config.valid_source or config.valid_target or config.valid_pairs:
        valid = read(
            config, config.valid_source, config.valid_target, config.valid_pairs, "data.valid"
        )
        notices += [*valid.notices, *_skipped(valid)]
    else:
        count = max(1, min(config.hold_out, int(len(train) * HELD_OUT_SHARE)))
        if len(train) < 2:
            raise DataError(f"{len(train)} usable sentence pair is not enough to train on")
        train, valid = hold_out(train, count, seed)
        notices.append(
            f"no validation files given: {len(valid):,} of {len(train) + len(valid):,} pairs are "
            "held out for validation and not trained on"
        )
    return Corpus(train, valid, tuple(notices))


def read(
    config: DataConfig,
    sources: Sequence[str],
    targets: Sequence[str],
    pairs: Sequence[str],
    where: str,
) -> Pairs:
    """The pairs of one set of files."""
    if bool(pairs) == bool(sources or targets):
        raise ConfigError(
            f"{where}: give either source and target files, or pairs (TSV or JSON lines)"
        )
    if pairs:
        return read_pair_file(
            found(pairs),
            source_key=config.source_key,
            target_key=config.target_key,
            on_bad_line=config.on_bad_line,
            encoding=config.encoding,
        )
    if len(sources) != len(targets):
        raise ConfigError(
            f"{where}: files of the source: {len(sources)}, of the target: {len(targets)}; give as "
            "many, file i of one must translate file i of the other"
        )
    return read_parallel(
        found(sources),
        found(targets),
        on_bad_line=config.on_bad_line,
        encoding=config.encoding,
    )


def load_plain(config: DataConfig, most: int | None = None) -> Lines:
    """The plain text that a configuration names; `most` limits how much is held out."""
    if not config.text:
        raise ConfigError("data.text: give at least one file of plain text, as in --text FILE")
    make_missing(config)
    return read_plain(
        found(config.text),
        found(config.valid_text),
        encoding=config.encoding,
        on_bad_line=config.on_bad_line,
        most=most,
    )


def make_missing(config: DataConfig) -> None:
    """Write the embedded corpus if a configuration wants it and it is not there yet."""
    if config.corpus is None:
        return
    if config.corpus != "schedules":
        raise ConfigError(f"data.corpus = {config.corpus!r}: polyhead can make only 'schedules'")
    wanted = (
        *config.source, *config.target, *config.pairs,
        *config.valid_source, *config.valid_target, *config.valid_pairs,
        *config.text, *config.valid_text, *config.labelled, *config.valid_labelled,
    )  # fmt: skip
    try:
        found(wanted)
    except DataError:
        schedules.write(corpora.home() / "schedules")
        if config.labelled:
            schedules_kinds.write(corpora.home() / "schedules")


def found(names: Sequence[str]) -> list[Path]:
    """Files as given, or below the folders where data are kept."""
    return [corpora.find(Path(name)) for name in names]


def _skipped(pairs: Pairs) -> list[str]:
    if not pairs.skipped:
        return []
    first = "; ".join(str(bad) for bad in pairs.skipped[:3])
    more = f"; and {len(pairs.skipped) - 3} more" if len(pairs.skipped) > 3 else ""
    lines = "1 bad line" if len(pairs.skipped) == 1 else f"{len(pairs.skipped):,} bad lines"
    return [f"{lines} skipped: {first}{more}"]
