"""Training data that is given in memory instead of in files."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from polyhead.data.config import DataConfig
from polyhead.data.images.files import PixelShape
from polyhead.data.images.memory import write_images
from polyhead.data.locate import find
from polyhead.data.memory_examples import joined, rows, write_records, write_texts
from polyhead.errors import ConfigError, DataError

OPTIONS = {  # parameter of `polyhead.train`: option of [data]
    "source": "source", "target": "target", "pairs": "pairs", "text": "text",
    "data": "labelled", "images": "images", "valid_source": "valid_source",
    "valid_target": "valid_target", "valid_pairs": "valid_pairs", "valid_text": "valid_text",
    "valid_data": "valid_labelled", "valid_images": "valid_images",
}  # fmt: skip
TEXTS = ("source", "target", "text", "valid_source", "valid_target", "valid_text")
PATH = re.compile(r"[^\s]*(/[^\s]*|\.[A-Za-z][A-Za-z0-9]{0,7})")  # such as a/b, a.txt or a.tsv.gz
LOOKED_AT = 100  # strings of a list


class TwoSides(NamedTuple):
    """Sources and targets in memory, and the names of their parameters."""

    sources: object
    targets: object
    names: tuple[str, str]


@dataclass(frozen=True)
class MemoryData:
    """Examples in memory by the parameters of `polyhead.train`; see `split_data`."""

    examples: Mapping[str, object]

    def write(self, folder: Path, data: DataConfig, task: str, model: Any) -> dict[str, list[str]]:
        """Write all examples into a directory; return the files by option of [data].

        model: with the size of images, if the task is on images.
        """
        files: dict[str, list[str]] = {}
        for name, examples in self.examples.items():
            path = self._write(name, examples, folder, data, task, model)
            files[OPTIONS[name]] = [str(path)]
        return files

    def _write(
        self, name: str, examples: Any, folder: Path, data: DataConfig, task: str, model: Any
    ) -> Path:
        kind = name.removeprefix("valid_")
        if kind == "text":
            return write_texts(rows(examples, name), name, data.text_key, folder)
        if kind == "data":
            pair = () if data.text_pair_key is None else (data.text_pair_key,)
            keys: tuple[str | None, ...] = (data.text_key, data.label_key, *pair)
            return write_records(rows(examples, name), name, ("text", "label"), keys, folder)
        if kind == "images":
            if task != "image_classification":
                raise ConfigError(
                    f"{name}: the recipe is for {task}; give one for images", "wrong_data"
                )
            shape = PixelShape(model.height, model.width, model.channels)
            return write_images(examples, name, data.label_key, shape, folder)
        pairs = joined(*examples) if isinstance(examples, TwoSides) else rows(examples, name)
        keys = (data.source_key, data.target_key)
        return write_records(pairs, name, ("source", "target"), keys, folder)


def split_data(
    given: Mapping[str, object], inputs: Path
) -> tuple[dict[str, list[str]], MemoryData | None]:
    """Return the files by option of [data], and the examples that are given in memory.

    The files of the latter, in the directory `inputs`, are written when training starts.
    """
    files: dict[str, list[str]] = {}
    examples: dict[str, object] = {}
    for name, value in given.items():
        paths = None if value is None else as_paths(name, value)
        if paths is not None:
            files[OPTIONS[name]] = paths
        elif value is not None:
            examples[name] = value
    for prefix in ("", "valid_"):
        sides = (f"{prefix}source", f"{prefix}target")
        in_memory = [name for name in sides if name in examples]
        if len(in_memory) == 1 or (in_memory and given.get(f"{prefix}pairs") is not None):
            raise ConfigError(
                f"{in_memory[0]} is in memory: give {sides[0]} and {sides[1]} both in memory, and "
                f"no {prefix}pairs",
                "mixed_data",
            )
        if in_memory:
            both = TwoSides(examples.pop(sides[0]), examples.pop(sides[1]), sides)
            examples[f"{prefix}pairs"] = both
    files |= {OPTIONS[name]: [str(inputs / name)] for name in examples}
    return files, MemoryData(examples) if examples else None


def as_paths(name: str, value: object) -> list[str] | None:
    """Return the paths that a parameter names, or None if it holds examples.

    A str, a Path, and a list or tuple with a Path name files. A list or tuple of str names files
    if it cannot hold texts, or if each of its first 100 items is an existing file or looks like
    a path: no white space, and a slash or an ending such as .txt.
    """
    if isinstance(value, str | Path):
        return [str(value)]
    if not isinstance(value, list | tuple):
        return None
    if not value:
        raise DataError(f"{name}: no examples", "no_text")
    head = value[:LOOKED_AT]
    if not all(isinstance(item, str | Path) for item in head):
        return None
    names = [str(item) for item in head]
    are_files = [_is_file(item) for item in names]
    looks = [exists or PATH.fullmatch(item) for exists, item in zip(are_files, names, strict=True)]
    if name not in TEXTS or any(isinstance(item, Path) for item in head) or all(looks):
        return [str(item) for item in value]
    if any(are_files):
        file, other = names[are_files.index(True)], names[are_files.index(False)]
        raise ConfigError(
            f"{name}: {file!r} is an existing file and {other[:40]!r} is none. For files give "
            "pathlib.Path objects, for texts iter(texts).",
            "mixed_data",
        )
    return None


def _is_file(name: str) -> bool:
    with suppress(DataError, ValueError, OSError):
        return find(name).is_file()
    return False
