"""Training, saving and loading of the tokenizers of both sides of a corpus.

    tokenizer.json                    format, configuration, and either sha256 of the model files
                                      or the units themselves
    joint.model                       SentencePiece's file, when both sides share a vocabulary …
    source.model, target.model        … and when they do not
    hf_…                              original files of another library (`huggingface.py`)

Files are not trusted: their names are fixed, sizes are limited, everything is checked, and every
problem is a CheckpointError. Nothing in these files is executed.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from polyhead.config import from_dict
from polyhead.errors import CheckpointError, ConfigError
from polyhead.special_tokens import SPECIALS
from polyhead.tokenizers.base import TextConfig, Tokenizer
from polyhead.tokenizers.char_word import CharWordTokenizer, build_vocab
from polyhead.tokenizers.huggingface import (
    HuggingFaceTokenizer,
    read_tokenizers,
    text_config,
    write_files,
)
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece

FORMAT = 1
LATER = {"jamo"}  # options that files of earlier versions lack
INDEX = "tokenizer.json"
MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of source and target; the same object if the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer
    config: TextConfig


def train_tokenizers(
    sources: Sequence[str], targets: Sequence[str], config: TextConfig
) -> TokenizerPair:
    """Train a joint vocabulary, or one per side; the same lines give the same ids."""
    learn = train_sentencepiece if config.kind in ("bpe", "unigram") else build_vocab
    if config.joint:
        joint = learn([*sources, *targets], config)
        return TokenizerPair(joint, joint, config)
    return TokenizerPair(learn(sources, config), learn(targets, config), config)


def with_sampling(tokenizers: TokenizerPair, sampling: float) -> TokenizerPair:
    """Return the same vocabularies with another degree of subword sampling."""
    if sampling == tokenizers.config.sampling:
        return tokenizers
    source, target = tokenizers.source, tokenizers.target
    if not (
        isinstance(source, SentencePieceTokenizer) and isinstance(target, SentencePieceTokenizer)
    ):
        raise ConfigError(
            f"text.sampling = {sampling}: the model's tokenizer does not support sampling; "
            "set it to 0",
            "unsupported_sampling",
        )
    config = replace(tokenizers.config, sampling=sampling)
    first = SentencePieceTokenizer(source.model, config)
    second = first if config.joint else SentencePieceTokenizer(target.model, config)
    return TokenizerPair(first, second, config)


def save_tokenizers(tokenizers: TokenizerPair, folder: Path) -> None:
    """Write both tokenizers into a directory, which is created if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = tokenizers.source, tokenizers.target
    if isinstance(source, HuggingFaceTokenizer) and isinstance(target, HuggingFaceTokenizer):
        write_files(source, folder)
        foreign = {"kind": source.kind, "source": list(source.ids), "target": list(target.ids)}
        text = json.dumps({"format": FORMAT, "foreign": foreign})
        (folder / INDEX).write_text(text + "\n", encoding="utf-8", newline="\n")
        return
    to_write = (
        {"joint": source} if tokenizers.config.joint else {"source": source, "target": target}
    )
    sides: dict[str, str | list[str]] = {}
    for side, tokenizer in to_write.items():
        if isinstance(tokenizer, SentencePieceTokenizer):
            (folder / f"{side}.model").write_bytes(tokenizer.model)
            sides[side] = hashlib.sha256(tokenizer.model).hexdigest()
        elif isinstance(tokenizer, CharWordTokenizer):
            sides[side] = list(tokenizer.units)
        else:
            raise TypeError(
                f"{type(tokenizer).__name__}: only tokenizers of this package can be saved"
            )
    index = {"format": FORMAT, "config": asdict(tokenizers.config), "sides": sides}
    text = json.dumps(index, ensure_ascii=False, indent=1) + "\n"
    (folder / INDEX).write_text(text, encoding="utf-8", newline="\n")


def load_tokenizers(folder: Path) -> TokenizerPair:
    """Read tokenizers written by `save_tokenizers`."""
    path = folder / INDEX
    content = _read(path)
    try:
        index = json.loads(content)
        if isinstance(index, dict) and index.keys() == {"format", "foreign"}:
            first, second = read_tokenizers(folder, index["foreign"])
            return TokenizerPair(first, second, text_config(first, second))
        config, contents = check_index(index)
    except (ValueError, OverflowError, RecursionError, ConfigError) as error:
        raise _damaged(path, error) from None
    sides = [read_side(folder, side, contents[side], config) for side in sorted(contents)]
    return TokenizerPair(sides[0], sides[-1], config)  # source before target, or joint


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            message = f"{path} not found; give the directory of a trained model"
            raise CheckpointError(message, "missing_file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise CheckpointError(message, "cannot_read") from None
    if len(content) > MAX_BYTES:
        raise _damaged(path, f"more than {MAX_BYTES} bytes")
    return content


def _damaged(path: Path, why: object) -> CheckpointError:
    """Return the error for a file that was not written by `save_tokenizers`, or has changed."""
    reason = " ".join(str(why).split())
    message = f"{path} is damaged ({reason}); copy the model again or train it again"
    return CheckpointError(message, "broken_tokenizer")


def check_index(index: Any) -> tuple[TextConfig, dict[str, Any]]:
    """Return the configuration and the contents of each side; ValueError if invalid."""
    if not isinstance(index, dict) or index.keys() != {"format", "config", "sides"}:
        raise ValueError("expected the entries format, config and sides")
    if index["format"] != FORMAT:
        raise ValueError(f"format {index['format']!r}, but this version reads format {FORMAT}")
    known = [field.name for field in fields(TextConfig)]
    values, sides = index["config"], index["sides"]
    if not isinstance(values, dict) or values.keys() | LATER != set(known):
        raise ValueError(f"config: expected the options {', '.join(known)}")
    config = from_dict(TextConfig, values, "config.")
    expected = {"joint"} if config.joint else {"source", "target"}
    if not isinstance(sides, dict) or sides.keys() != expected:
        raise ValueError(f"sides: expected {' and '.join(sorted(expected))}")
    return config, sides


def read_side(folder: Path, side: str, content: Any, config: TextConfig) -> Tokenizer:
    """Read one tokenizer: from the units in the index, or from its model file."""
    if config.kind in ("characters", "words"):
        try:
            if not isinstance(content, list) or not all(isinstance(unit, str) for unit in content):
                raise ValueError(f"sides: expected lists of {config.kind}")
            if not 0 < len(content) <= config.vocab - len(SPECIALS):
                raise ValueError(f"{len(content)} {config.kind} in a vocabulary of {config.vocab}")
            return CharWordTokenizer(tuple(content), config)
        except ValueError as error:
            raise _damaged(folder / INDEX, error) from None
    path = folder / f"{side}.model"
    model = _read(path)
    if hashlib.sha256(model).hexdigest() != content:
        raise _damaged(path, f"its sha256 is not the one in {INDEX}")
    try:
        tokenizer = SentencePieceTokenizer(model, config)
        tokenizer.check()
    except ValueError as error:
        raise _damaged(path, error) from None
    return tokenizer
