"""What all systems of a comparison have in common: training, validation and test text.

    test files given             those
    a recipe's validation file   called val, valid or dev: the test file beside it, if there is one
    neither                      pairs that are held out of the training text, once for everybody

Held-out text is written into the comparison's folder, so that no seed gets another share of it;
with it, in UTF-8, whatever validation text was given in another encoding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.checkpoint import atomic_dir as store
from polyhead.config import from_dict
from polyhead.data import config as corpus
from polyhead.data import locate as corpora
from polyhead.data.config import HELD_OUT_SHARE, DataConfig
from polyhead.data.corpus_tools import read_sides
from polyhead.data.parallel import Pairs, hold_out
from polyhead.errors import ConfigError, DataError
from polyhead.training.config import LISTS

BESIDE = {"val": "test_2016_flickr", "valid": "test", "dev": "test"}  # by the name's first part
TESTS = {"source": "test_source", "target": "test_target", "pairs": "test_pairs"}
TOLD = {"test": "the test", "valid": "validation"}
UTF_8 = "utf-8"
SEED = 1  # of what is held out


@dataclass(frozen=True)
class CompareData:
    """The table [data] that everybody trains on, and the test set that everybody is judged by."""

    data: dict[str, Any]
    sources: list[str]
    references: list[str]
    where: str
    notices: tuple[str, ...] = ()


def prepare(
    data: Mapping[str, Any], tests: Mapping[str, Sequence[str]], folder: Path, *, own: bool
) -> CompareData:
    """Find or make the three sets. `own` files have no neighbours that we could know of."""
    listed = {n: [v] if n in LISTS and isinstance(v, str) else v for n, v in data.items()}
    config = from_dict(DataConfig, listed, "data.")
    corpus.make_missing(config)
    given = {name: tuple(tests.get(key) or ()) for name, key in TESTS.items()}
    if not any(given.values()) and not own:
        given = beside(config)
    if any(given.values()):
        sources, references = read_test(config, given)
        where = ", ".join(Path(file).name for file in given["source"] or given["pairs"])
    else:
        sources, references, where = [], [], ""
    has_valid = bool(config.valid_source or config.valid_target or config.valid_pairs)
    if sources and has_valid:
        return CompareData(listed, sources, references, where)
    split = part(config, folder, test=not sources, valid=not has_valid)
    new = {n: v for n, v in listed.items() if n not in _replaced(split.files)} | split.files
    if split.test is not None:
        sources, references, where = split.test.sources, split.test.targets, "held out"
    return CompareData(new, sources, references, where, split.notices)


def beside(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """The test files that lie beside a recipe's validation files; none if there are none."""
    valid = {
        "source": config.valid_source, "target": config.valid_target, "pairs": config.valid_pairs,
    }  # fmt: skip
    found = {name: tuple(map(_test_name, files)) for name, files in valid.items()}
    try:
        corpus.found([file for files in found.values() for file in files])
    except DataError:
        return dict.fromkeys(valid, ())
    return found


def _test_name(valid: str) -> str:
    path = Path(valid)
    first, dot, rest = path.name.partition(".")
    return str(path.with_name(f"{BESIDE.get(first, 'test')}{dot}{rest}"))


def read_test(
    config: DataConfig, given: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[str]]:
    """Sentences and references; of parallel files every line counts, even an empty one."""
    if given["pairs"]:
        found = corpus.read(config, given["source"], given["target"], given["pairs"], "test")
        return found.sources, found.targets
    if not given["source"] or not given["target"]:
        raise ConfigError("give both --test-source FILE and --test-target FILE, or --test-pairs")
    source, target = ([corpora.find(Path(f)) for f in given[side]] for side in ("source", "target"))
    return read_sides(source, target, encoding=config.encoding)


@dataclass(frozen=True)
class Split:
    """What was held out, and the files that say so."""

    files: dict[str, list[str]]
    test: Pairs | None
    notices: tuple[str, ...]


def part(config: DataConfig, folder: Path, *, test: bool, valid: bool) -> Split:
    """Hold out what is missing, and write it down with what is left."""
    train = corpus.read(config, config.source, config.target, config.pairs, "data")
    count = max(1, min(config.hold_out, int(len(train) * HELD_OUT_SHARE)))
    if len(train) <= count * (test + valid):
        missing = [name for name, lacks in (("test", test), ("valid", valid)) if lacks]
        told = " and ".join(TOLD[name] for name in missing)
        pairs_are = "pair is" if len(train) == 1 else "pairs are"
        raise DataError(
            f"{len(train)} training {pairs_are} too few to hold out some for {told}; give more, "
            "or files of their own: --test-source, --test-target, --valid-source, --valid-target"
        )
    sets: dict[str, Pairs] = {}
    for name, wanted, seed in (("test", test, SEED), ("valid", valid, SEED + 1)):
        if wanted:
            train, sets[name] = hold_out(train, count, seed)
    notice = " and ".join(f"{len(sets[name]):,} pairs for {TOLD[name]}" for name in sets)
    if not valid and config.encoding != UTF_8:
        given = config.valid_source, config.valid_target, config.valid_pairs
        sets["valid"] = corpus.read(config, *given, "data.valid")
    files: dict[str, list[str]] = {}
    for name, pairs in {"train": train, **sets}.items():
        for side, lines in (("source", pairs.sources), ("target", pairs.targets)):
            path = folder / f"{name}.{side}"
            if not path.exists():
                with store.os_errors_as_polyhead_errors(path):
                    folder.mkdir(parents=True, exist_ok=True)
                store.write_text(path, "".join(f"{line}\n" for line in lines))
            key = {"train": side, "valid": f"valid_{side}"}.get(name)
            if key is not None:
                files[key] = [str(path)]
    notices = (f"held out of the training text: {notice}; the same for everybody",)
    return Split(files, sets.get("test"), notices)


def _replaced(files: Mapping[str, Any]) -> set[str]:
    """The entries of [data] that the written files, which are in UTF-8, stand for."""
    gone = {"corpus", "encoding", "source", "target", "pairs"}
    if "valid_source" in files:
        gone |= {"valid_source", "valid_target", "valid_pairs"}
    return gone
