"""Data of a comparison: training, validation and test text, the same for every system.

    test files given             those
    a recipe's validation file   called val, valid or dev: the test file beside it, if there is one
    neither                      pairs that are held out of the training text

Held-out text is written into the comparison's directory, so that every seed gets the same; with it,
in UTF-8, validation text that was given in another encoding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.compare.results import write_file
from polyhead.config import from_dict
from polyhead.data.config import DataConfig, make_missing
from polyhead.data.holdout import MAX_SHARE_OF_PAIRS, held_out_count
from polyhead.data.locate import find_all
from polyhead.data.parallel import Pairs, hold_out, read_pairs, read_references
from polyhead.errors import ConfigError, DataError
from polyhead.training.config import LISTS

BESIDE = {"val": "test_2016_flickr", "valid": "test", "dev": "test"}  # by the name's first part
TESTS = {"source": "test_source", "target": "test_target", "pairs": "test_pairs"}
TITLES = {"test": "the test", "valid": "validation"}
UTF_8 = "utf-8"
SEED = 1  # of what is held out


@dataclass(frozen=True)
class CompareData:
    """The table [data] of every training, and the test set."""

    data: dict[str, Any]
    sources: list[str]
    references: list[str]
    where: str
    notices: tuple[str, ...] = ()


def prepare(
    data: Mapping[str, Any], tests: Mapping[str, Sequence[str]], folder: Path, *, own: bool
) -> CompareData:
    """Find or hold out the three sets; test files beside `own` files are not looked for."""
    listed = {n: [v] if n in LISTS and isinstance(v, str) else v for n, v in data.items()}
    config = from_dict(DataConfig, listed, "data.")
    make_missing(config)
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
    split = hold_out_missing(config, folder, test=not sources, valid=not has_valid)
    new = {n: v for n, v in listed.items() if n not in _replaced(split.files)} | split.files
    if split.test is not None:
        sources, references, where = split.test.sources, split.test.targets, "held out"
    return CompareData(new, sources, references, where, split.notices)


def beside(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """Return the test files beside a recipe's validation files, or none."""
    valid = {
        "source": config.valid_source, "target": config.valid_target, "pairs": config.valid_pairs,
    }  # fmt: skip
    tests = {name: tuple(map(_test_name, files)) for name, files in valid.items()}
    try:
        find_all([file for files in tests.values() for file in files])
    except DataError:
        return dict.fromkeys(valid, ())
    return tests


def _test_name(valid: str) -> str:
    path = Path(valid)
    first, dot, rest = path.name.partition(".")
    return str(path.with_name(f"{BESIDE.get(first, 'test')}{dot}{rest}"))


def read_test(
    config: DataConfig, given: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[str]]:
    """Return sentences and references; empty lines of parallel files are kept."""
    if given["pairs"]:
        pairs = read_pairs(config, given["source"], given["target"], given["pairs"], "test")
        return pairs.sources, pairs.targets
    if not given["source"] or not given["target"]:
        raise ConfigError(
            "give both --test-source FILE and --test-target FILE, or --test-pairs",
            "incomplete_test",
        )
    source, target = (find_all(given[side]) for side in ("source", "target"))
    return read_references(source, target, encoding=config.encoding)


@dataclass(frozen=True)
class Split:
    """Held-out pairs, and the files they were written to."""

    files: dict[str, list[str]]
    test: Pairs | None
    notices: tuple[str, ...]


def hold_out_missing(config: DataConfig, folder: Path, *, test: bool, valid: bool) -> Split:
    """Hold out a test or validation set; write it and the remaining training text."""
    train = read_pairs(config, config.source, config.target, config.pairs, "data")
    count = held_out_count(len(train), config.hold_out, MAX_SHARE_OF_PAIRS)
    if len(train) <= count * (test + valid):
        missing = [name for name, lacks in (("test", test), ("valid", valid)) if lacks]
        sets_missing = " and ".join(TITLES[name] for name in missing)
        pairs_are = "pair is" if len(train) == 1 else "pairs are"
        raise DataError(
            f"{len(train)} training {pairs_are} too few to hold out some for {sets_missing}. Give "
            "more, or --test-source, --test-target, --valid-source, --valid-target.",
            "too_few_pairs",
        )
    sets: dict[str, Pairs] = {}
    for name, wanted, seed in (("test", test, SEED), ("valid", valid, SEED + 1)):
        if wanted:
            train, sets[name] = hold_out(train, count, seed)
    notice = " and ".join(f"{len(sets[name]):,} pairs for {TITLES[name]}" for name in sets)
    if not valid and config.encoding != UTF_8:
        given = config.valid_source, config.valid_target, config.valid_pairs
        sets["valid"] = read_pairs(config, *given, "data.valid")
    files: dict[str, list[str]] = {}
    for name, pairs in {"train": train, **sets}.items():
        for side, lines in (("source", pairs.sources), ("target", pairs.targets)):
            path = folder / f"{name}.{side}"
            if not path.exists():
                write_file(path, "".join(f"{line}\n" for line in lines))
            key = {"train": side, "valid": f"valid_{side}"}.get(name)
            if key is not None:
                files[key] = [str(path)]
    notices = (f"held out of the training text: {notice}",)
    return Split(files, sets.get("test"), notices)


def _replaced(files: Mapping[str, Any]) -> set[str]:
    """Return the keys of [data] that the written files (in UTF-8) replace."""
    replaced = {"corpus", "encoding", "source", "target", "pairs"}
    if "valid_source" in files:
        replaced |= {"valid_source", "valid_target", "valid_pairs"}
    return replaced
