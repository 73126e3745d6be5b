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

from polyhead.config import from_dict
from polyhead.data.config import LISTS, DataConfig
from polyhead.data.holdout import MAX_SHARE_OF_PAIRS, held_out_count
from polyhead.data.locate import find
from polyhead.data.parallel import Pairs, hold_out, read_pairs, read_references
from polyhead.data.schedules.generator import make_missing
from polyhead.errors import ConfigError, DataError
from polyhead.experiments.results import write_file, write_json

PLAN = "contest.json"  # empty until the data is written
BESIDE = {"val": "test_2016_flickr", "valid": "test", "dev": "test"}  # by the name's first part
TITLES = {"test": "the test", "valid": "validation"}
SEEDS = {"test": 1, "valid": 2}  # of what is held out


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
    valid = config.valid_source, config.valid_target, config.valid_pairs
    given = [tuple(tests.get(f"test_{kind}") or ()) for kind in ("source", "target", "pairs")]
    if not any(given) and not own:
        given = beside(valid)
    sources, references = read_test(config, *given) if any(given) else ([], [])
    where = ", ".join(Path(file).name for file in given[0] or given[2])
    missing = [name for name, has in (("test", sources), ("valid", any(valid))) if not has]
    if not missing:
        return CompareData(listed, sources, references, where)
    sets = hold_out_missing(config, missing)
    notice = " and ".join(f"{len(sets[name]):,} pairs for {TITLES[name]}" for name in missing)
    if "valid" not in missing and config.encoding != "utf-8":
        sets["valid"] = read_pairs(config, *valid, "data.valid")
    replaced = {"corpus", "encoding", "pairs", *(["valid_pairs"] if "valid" in sets else [])}
    new = {name: value for name, value in listed.items() if name not in replaced}
    if not (plan := folder.parent / PLAN).exists():
        write_json(plan, {})  # marks the directory as ours before anything else is written
    for name, pairs in sets.items():
        for side, lines in (("source", pairs.sources), ("target", pairs.targets)):
            path = folder / f"{name}.{side}"
            if not path.exists():
                write_file(path, "".join(f"{line}\n" for line in lines))
            if name != "test":
                new[side if name == "train" else f"valid_{side}"] = [str(path)]
    if "test" in sets:
        sources, references, where = sets["test"].sources, sets["test"].targets, "held out"
    notices = (f"held out of the training text: {notice}",)
    return CompareData(new, sources, references, where, notices)


def beside(valid: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the test files beside a recipe's validation files, or none."""

    def test_of(file: str) -> str:
        first, dot, rest = Path(file).name.partition(".")
        return str(Path(file).with_name(f"{BESIDE.get(first, 'test')}{dot}{rest}"))

    tests = [tuple(map(test_of, files)) for files in valid]
    try:
        for file in (file for files in tests for file in files):
            find(file)
    except DataError:
        return [(), (), ()]
    return tests


def read_test(
    config: DataConfig, source: Sequence[str], target: Sequence[str], pairs: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return sentences and references; empty lines of parallel files are kept."""
    if pairs:
        both = read_pairs(config, source, target, pairs, "test")
        return both.sources, both.targets
    if not source or not target:
        raise ConfigError(
            "give both --test-source FILE and --test-target FILE, or --test-pairs",
            "incomplete_test",
        )
    sources, targets = ([Path(file) for file in files] for files in (source, target))
    return read_references(sources, targets, encoding=config.encoding)


def hold_out_missing(config: DataConfig, missing: Sequence[str]) -> dict[str, Pairs]:
    """Split the training text: the missing sets, and the rest as `train`."""
    train = read_pairs(config, config.source, config.target, config.pairs, "data")
    count = held_out_count(len(train), config.hold_out, MAX_SHARE_OF_PAIRS)
    if len(train) <= count * len(missing):
        sets_missing = " and ".join(TITLES[name] for name in missing)
        pairs_are = "pair is" if len(train) == 1 else "pairs are"
        raise DataError(
            f"{len(train)} training {pairs_are} too few to hold out some for {sets_missing}. Give "
            "more, or --test-source, --test-target, --valid-source, --valid-target.",
            "too_few_pairs",
        )
    sets: dict[str, Pairs] = {}
    for name in missing:
        train, sets[name] = hold_out(train, count, SEEDS[name], config.hold_out_by)
    return {"train": train, **sets}
