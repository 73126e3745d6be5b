"""`polyhead classify MODEL image.png …`, and `polyhead evaluate MODEL --images PATH`."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyhead.cli.console import counting, say
from polyhead.errors import ConfigError, DataError
from polyhead.pipelines.image_classifier import ImageClassifier, Label

SIZE = re.compile(r"(\d{1,5})(?:x(\d{1,5}))?")


def run_images(
    labeller: ImageClassifier,
    files: Sequence[Path],
    *,
    top: int = 1,
    size: str | None = None,
    jsonl: bool = False,
) -> int:
    """One line for each image: its path, its class, the probability. 4 if some were no images."""
    if not files:
        raise ConfigError("name at least one image, as in: polyhead classify MODEL image.png")
    if top < 1:
        raise ConfigError(f"--top {top}: expected at least 1")
    shape, n_read = labeller.shape(read_size(size)), 0
    at_once = labeller.batch_size(shape)
    with counting("classifying", len(files)) as progress:
        for start in range(0, len(files), at_once):
            images = read_all(labeller, shape, files[start : start + at_once])
            if images:
                answers = labeller.label(torch.stack([pixels for _, pixels in images]), top)
                for (path, _), found in zip(images, answers, strict=True):
                    print(as_json(path, found) if jsonl else as_line(path, found))
            n_read += len(images)
            progress(at_once)
    return 0 if n_read == len(files) else DataError.exit_code


def read_all(
    labeller: ImageClassifier, shape: Any, files: Sequence[Path]
) -> list[tuple[Path, Tensor]]:
    """Files and their images; those that cannot be read are named and left out."""
    images = []
    for path in files:
        try:
            images.append((path, labeller.read(path, shape)))
        except DataError as error:
            say(f"polyhead: {error}")
    return images


def as_line(path: Path, found: Sequence[Label]) -> str:
    """The path, then each class and its probability, with tabs between them."""
    return "\t".join([str(path), *(f"{one.name}\t{one.probability:.4f}" for one in found)])


def as_json(path: Path, found: Sequence[Label]) -> str:
    """The same for programs."""
    return json.dumps({"image": str(path), "labels": [asdict(one) for one in found]},
                      ensure_ascii=False)  # fmt: skip


def run_image_evaluation(
    models: Sequence[Path], images: Sequence[Path], size: str | None, json_out: bool, device: str
) -> None:
    """Accuracy, F1 and who is confused with whom. `digits` means the embedded ones."""
    if len(models) != 1:
        raise ConfigError(f"{len(models)} models were given; expected one", "one_model")
    labeller = ImageClassifier.from_dir(models[0], device=device)
    embedded = [str(path) for path in images] == ["digits"] and not images[0].exists()
    found, notices = labeller.evaluate(
        () if embedded else images,
        corpus="digits" if embedded else None,
        size=read_size(size),
    )
    for notice in notices:
        say(notice)
    print(json.dumps(asdict(found), indent=1, ensure_ascii=False) if json_out else found)


def read_size(words: str | None) -> tuple[int, int] | None:
    """`56` or `56x48`: height and width in pixels."""
    if words is None:
        return None
    match = SIZE.fullmatch(words.strip().lower())
    if match is None:
        raise ConfigError(f"--size {words}: expected pixels, such as 56 or 56x48 (height x width)")
    return int(match[1]), int(match[2] or match[1])
