"""Corpora for the borders: read them, list them, make them, fetch them, check them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyhead.config import from_dict
from polyhead.data import locate as corpora
from polyhead.data.config import DataConfig, read
from polyhead.data.doctor.checks import check as check_pairs
from polyhead.data.doctor.report import CorpusReport
from polyhead.data.download import fetch
from polyhead.data.locate import KNOWN, KnownCorpus
from polyhead.data.schedules import generator as schedules
from polyhead.data.text_files import read_lines
from polyhead.errors import ConfigError, DataError


@dataclass(frozen=True)
class Listed:
    """A corpus that polyhead knows, and where it lies if it is here."""

    corpus: KnownCorpus
    place: Path | None


def listed() -> list[Listed]:
    """All corpora that polyhead knows."""
    found = []
    for corpus in KNOWN.values():
        places = [folder / corpus.name for folder in corpora.folders()]
        found.append(Listed(corpus, next((p for p in places if p.is_dir()), None)))
    return found


def make(name: str, output: Path | None, size: int, seed: int) -> list[Path]:
    """Write the embedded corpus."""
    if corpora.lookup(name).kind != "made":
        raise ConfigError(f"{name} is not made but fetched: polyhead data get {name}")
    return schedules.write(output or corpora.home() / name, n_train=size, seed=seed)


def get(name: str, output: Path | None, progress: Callable[[str, int, int], None]) -> list[Path]:
    """Download a corpus and verify it."""
    corpus = corpora.lookup(name)
    if corpus.kind == "made":
        raise ConfigError(f"{name} is not fetched but made: polyhead data make {name}")
    return fetch(corpus, output or corpora.home() / name, progress=progress)


def check(files: dict[str, list[str]], tests: dict[str, list[str]], encoding: str) -> CorpusReport:
    """Look for what would spoil training on these files; keys are source, target and pairs."""
    config = from_dict(DataConfig, {**files, "encoding": encoding}, "data.")
    train = read(config, config.source, config.target, config.pairs, "data")
    held_out = {}
    if any(tests.values()):
        test = from_dict(DataConfig, {**tests, "encoding": encoding}, "test.")
        held_out["test"] = read(test, test.source, test.target, test.pairs, "test")
    return check_pairs(train, held_out)


def read_sides(
    source: Sequence[Path], target: Sequence[Path], encoding: str = "utf-8"
) -> tuple[list[str], list[str]]:
    """Sentences and their references, one for each, empty ones included."""
    sources = [line for path in source for line in find_file(path, encoding=encoding)]
    targets = [line for path in target for line in find_file(path, encoding=encoding)]
    if len(sources) != len(targets):
        raise DataError(
            f"{', '.join(map(str, source))} has {len(sources)} lines but "
            f"{', '.join(map(str, target))} has {len(targets)}; line i of one must translate "
            "line i of the other"
        )
    if not sources:
        raise DataError(f"{', '.join(map(str, source))}: there is no line to translate")
    return sources, targets


def find_file(path: Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a file, wherever data may lie."""
    return read_lines(corpora.find(path), encoding=encoding)
