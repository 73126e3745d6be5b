"""Files of a model directory that are read without torch: its configuration and its tokenizers."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyhead.checkpoint.atomic_dir import CHECKPOINTS, follow, newest_checkpoint
from polyhead.errors import CheckpointError
from polyhead.tokenizers.storage import TokenizerPair, load_tokenizers

FORMAT = 1
CONFIG, WEIGHTS, CARD, TOKENIZER = "config.json", "model.safetensors", "README.md", "tokenizer"
TRAINING_TENSORS = "training.safetensors"  # of the optimizer, for resuming
MAX_CONFIG_BYTES, MAX_HEADER_BYTES = 2**20, 2**23  # a header of some 80,000 tensors
MAX_LANGUAGE = 35  # characters of a language's code, as RFC 5646 recommends
SHOWN = 200  # characters of a name in a message


def resolve(path: Path) -> Path:
    """Return the model directory of a path: itself, or the best or last checkpoint of a run."""
    if not os.path.exists(path):  # False also for names that are too long
        name = str(path)
        is_text = " " in name  # `polyhead translate MODEL "a sentence"`
        hint = "text is read from standard input" if is_text else "train one with `polyhead train`"
        shown = name if len(name) <= SHOWN else name[:SHOWN] + "…"
        raise CheckpointError(f"there is no model {shown}; {hint}", "no_model")
    for directory in map(follow, (path, path / "best", path / "last")):
        if (directory / CONFIG).is_file():
            return directory.resolve()
    newest, problems = newest_checkpoint(path / CHECKPOINTS)
    if newest is not None:
        return newest
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file; a model is a directory with {CONFIG} and {WEIGHTS}. Pickled files "
            "(.pt, .bin) are never read.",
            "not_a_model",
        )
    reason = f": {problems[0]}" if problems else f": it has no {CONFIG}"
    if not problems and (runs := sorted((path / "runs").glob("*/best"))):
        reason = f" but a comparison of several, such as {runs[0].parent}"
    raise CheckpointError(f"{path} is not a model{reason}", "not_a_model")


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json and check all but the family and its sizes."""
    path = directory / CONFIG
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise CheckpointError(f"{path} is too large to be a configuration", "bad_config")
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{path} cannot be read as JSON", "bad_config") from None
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise CheckpointError(f"{path} does not describe a model", "bad_config")
    if values.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {str(values.get('format'))[:80]!r}; this version reads {FORMAT}",
            "unknown_format",
        )
    values["about"] = _check_about(values.get("about", {}), path)
    return values


def tensor_header(path: Path) -> bytes:
    """Return the header of a safetensors file, as JSON; ValueError if it is too large."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:  # reading it could exhaust memory
            raise ValueError(f"header of {length} bytes")
        return file.read(length)


def _check_about(about: Any, path: Path) -> dict[str, Any]:
    if not isinstance(about, dict):
        raise CheckpointError(f"{path}: about is not a table", "bad_config")
    run, valid, step = about.get("run") or {}, about.get("valid") or {}, about.get("step", 0)
    tables = [run, valid]
    if isinstance(run, dict):
        tables += [run.get(name, {}) for name in ("data", "text", "model", "train", "decode")]
    languages = about.get("languages", ["", ""])
    are_names = isinstance(languages, list) and all(isinstance(name, str) for name in languages)
    if (
        not all(isinstance(table, dict) for table in tables)
        or not isinstance(step, int)
        or not (are_names and len(languages) == 2 and max(map(len, languages)) <= MAX_LANGUAGE)
    ):
        raise CheckpointError(f"{path}: about has an unexpected form", "bad_config")
    return about


def saved_languages(about: dict[str, Any]) -> tuple[str, str]:
    """Return the languages in the table `about` of a model, "" where they are unknown."""
    source, target = about.get("languages") or ("", "")
    return source, target


def load_model_tokenizers(
    directory: Path, sums: Mapping[str, str], values: Mapping[str, Any], *, has_mask: bool = False
) -> TokenizerPair | None:
    """Load the tokenizers, if there are any, from verified files of the model's vocabulary size.

    has_mask: the model has one id more than its tokenizer, for [MASK].
    """
    path = directory / TOKENIZER
    if not path.is_dir():
        return None
    for file in path.iterdir():
        if f"{TOKENIZER}/{file.name}" not in sums:
            raise CheckpointError(
                f"{file} does not belong to this model. Remove it.", "unknown_file"
            )
    tokenizers = load_tokenizers(path)
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        expected = values["model"].get(f"{side}_vocab", len(tokenizer))
        if expected != len(tokenizer):
            raise CheckpointError(
                f"{path}: the {side} tokenizer has {len(tokenizer)} ids, but {CONFIG} says "
                f"{expected}",
                "vocabulary_size",
            )
    model = values["model"].get("encoder", values["model"])
    if isinstance(model, Mapping) and "vocab" in model:
        n_ids = len(tokenizers.source)
        expected = n_ids + has_mask
        # an imported model may lack [MASK], or have ids that its tokenizer never produces
        imported = "imported" in values["about"] and model["vocab"] >= n_ids
        if model["vocab"] != expected and not imported:
            raise CheckpointError(
                f"{path}: expected a vocabulary of {expected} ids, but {CONFIG} says "
                f"{model['vocab']}",
                "vocabulary_size",
            )
    return tokenizers
