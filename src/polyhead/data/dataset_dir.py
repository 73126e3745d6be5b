"""Directories of data sets with splits, as the Hugging Face Hub and its `datasets` library have.

    DIR/train.csv DIR/validation.csv DIR/test.csv        or .tsv, .jsonl, .parquet, .xlsx
    DIR/data/train-00000-of-00002.parquet …              shards of a split are joined
    DIR/train/data-00000-of-00001.arrow …                `DatasetDict.save_to_disk`
    DIR/data-00000-of-00001.arrow …                      `Dataset.save_to_disk`: training data
    DIR/train/CLASS/1.jpg DIR/validation/CLASS/2.jpg     images

A split is found by a word in the name of a file or directory. Training reads the training split,
validation the validation split; the test split is for evaluation only.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyhead.data.locate import find
from polyhead.errors import DataError

WORDS = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation",
    "val": "validation", "dev": "validation", "test": "test", "testing": "test", "eval": "test",
}  # fmt: skip
OPTIONS = ("pairs", "labelled", "text", "images")  # of [data], each with a `valid_` beside it
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".xlsx")
PACKED = (".gz", ".xz", ".zst")
SHARD = re.compile(r"[-_.]?\d+([-_]of[-_]\d+)?$")


def with_splits(data: dict[str, Any]) -> dict[str, Any]:
    """Return the table [data] with the files of splits in place of directories.

    A validation split is used unless validation data is given.
    """
    result = dict(data)
    for option in OPTIONS:
        given, held_out = _names(data.get(option)), _names(data.get(f"valid_{option}"))
        if given:
            result[option] = _files_of(given, option, ("train",))
        if held_out:
            held_out = _files_of(held_out, option, ("validation", "test", "train"))
        else:
            splits = [splits_of(name, option).get("validation", []) for name in given]
            held_out = [file for files in splits for file in files]
        if held_out:
            result[f"valid_{option}"] = held_out
    return result


def _names(value: object) -> list[str]:
    """Return a list of files; nothing for values that the configuration refuses later."""
    names = value if isinstance(value, list | tuple) else []
    return [*names] if all(isinstance(name, str) for name in names) else []


def evaluation_files(names: Sequence[str | Path], option: str) -> list[str]:
    """Return the files to evaluate on: of a directory its test split, or else its validation."""
    return _files_of(names, option, ("test", "validation", "train"))


def _files_of(names: Sequence[str | Path], option: str, wanted: Sequence[str]) -> list[str]:
    """Return files, and of each directory those of the first of some splits that it has."""
    files: list[str] = []
    for name in names:
        splits = splits_of(name, option)
        split = next((split for split in wanted if split in splits), None)
        if splits and split is None:
            raise DataError(
                f"{name}: no {wanted[0]} split, but {', '.join(splits)}. Name a file.", "no_split"
            )
        files += splits[split] if split else [str(name)]
    return files


def splits_of(name: str | Path, option: str) -> dict[str, list[str]]:
    """Return the files of a directory by split; nothing for files and for a directory of classes.

    Raises DataError if it is not certain which files belong together.
    """
    try:
        folder = find(name)
    except DataError:  # a missing file is reported when it is read
        return {}
    if not folder.is_dir():
        return {}
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    named: dict[str, list[Path]] = {}
    for path in inner:
        if split := WORDS.get(path.name.lower()):
            named.setdefault(split, []).append(path)
    if option == "images":
        n_named = sum(map(len, named.values()))
        is_split = n_named == len(inner) and "train" in named
        return {split: _joined(folder, paths) for split, paths in named.items()} if is_split else {}
    if named:
        for split, paths in named.items():
            _joined(folder, paths)
            named[split] = _files(paths[0], option)
    else:
        for path in _files(folder, option) or _files(folder / "data", option):
            named.setdefault(_split(path.name), []).append(path)
        unnamed = named.pop("", [])
        named = named or {"train": unnamed}
    candidates = [path for paths in named.values() for path in paths] or inner
    return {split: _joined(folder, paths, candidates) for split, paths in named.items()}


def _files(folder: Path, option: str) -> list[Path]:
    """Return the files of data in a directory, in the order of their names."""
    endings = {*TABLES, ".txt"} if option == "text" else {*TABLES}
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = [path for path in paths if path.is_file() and not path.name.startswith("cache-")]
    return [path for path in paths if _ending(path) in endings]


def _ending(path: Path) -> str:
    """Return the ending of a file that may be packed."""
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def _joined(folder: Path, paths: Sequence[Path], candidates: Sequence[Path] = ()) -> list[str]:
    """Return files that are shards of one: of the same name but for their number."""
    bases = {(SHARD.sub("", path.name.split(".")[0]), _ending(path)) for path in paths}
    if len(bases) == 1:
        return [str(path) for path in paths]
    problem = "several files for a split" if bases else "no files for a split"
    names = ", ".join(str(path.relative_to(folder)) for path in (paths or candidates)[:8])
    raise DataError(
        f"{folder}: {problem}{f' ({names})' if names else ''}. Name the file to read.",
        "ambiguous_directory",
    )


def _split(name: str) -> str:
    """Return the split that a word of a file's name says; "" if none does."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((WORDS[word] for word in words if word in WORDS), "")
