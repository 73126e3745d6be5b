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
from typing import Any, get_args

from polyhead.errors import CheckpointError, ConfigError
from polyhead.special_tokens import SPECIALS
from polyhead.tokenizers.base import Kind, TextConfig, Tokenizer
from polyhead.tokenizers.char_word import CharWordTokenizer, build_vocab
from polyhead.tokenizers.huggingface import (
    HuggingFaceTokenizer,
    index_entry,
    read_tokenizers,
    text_config,
    write_files,
)
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece

FORMAT = 1
LATER = {"jamo"}  # options that files of earlier versions lack; the default is False
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
    if config.joint:
        joint = train_tokenizer([*sources, *targets], config)
        return TokenizerPair(joint, joint, config)
    return TokenizerPair(train_tokenizer(sources, config), train_tokenizer(targets, config), config)


def train_tokenizer(
    lines: Sequence[str], config: TextConfig
) -> SentencePieceTokenizer | CharWordTokenizer:
    """Train one vocabulary of the configured kind."""
    if config.kind in ("bpe", "unigram"):
        return train_sentencepiece(lines, config)
    return build_vocab(lines, config)


def with_sampling(tokenizers: TokenizerPair, sampling: float) -> TokenizerPair:
    """Return the same vocabularies with another degree of subword sampling."""
    if sampling == tokenizers.config.sampling:
        return tokenizers
    source, target = tokenizers.source, tokenizers.target
    if not (
        isinstance(source, SentencePieceTokenizer) and isinstance(target, SentencePieceTokenizer)
    ):
        raise ConfigError(
            f"text.sampling = {sampling}: the model's tokenizer does not support sampling; leave "
            "it out",
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
        text = json.dumps({"format": FORMAT, "foreign": index_entry(source, target)})
        (folder / INDEX).write_text(text + "\n", encoding="utf-8", newline="\n")
        return
    sides: dict[str, str | list[str]] = {}
    for side, tokenizer in sides_of(tokenizers).items():
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


def sides_of(tokenizers: TokenizerPair) -> dict[str, Tokenizer]:
    """Return the tokenizers to write, by the name of their files."""
    if tokenizers.config.joint:
        return {"joint": tokenizers.source}
    return {"source": tokenizers.source, "target": tokenizers.target}


def load_tokenizers(folder: Path) -> TokenizerPair:
    """Read tokenizers written by `save_tokenizers`."""
    path = folder / INDEX
    content = _read(path)
    try:
        index = json.loads(content)
        if isinstance(index, dict) and index.keys() == {"format", "foreign"}:
            sides = read_tokenizers(folder, index["foreign"])
            return TokenizerPair(*sides, text_config(*sides))
        config, contents = check_index(index)
    except (ValueError, OverflowError, RecursionError) as error:
        raise _damaged(path, error) from None
    if config.joint:
        joint = read_side(folder, "joint", contents["joint"], config)
        return TokenizerPair(joint, joint, config)
    source = read_side(folder, "source", contents["source"], config)
    target = read_side(folder, "target", contents["target"], config)
    return TokenizerPair(source, target, config)


def _read(path: Path) -> bytes:
    """Read a regular file of limited size."""
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
    config, sides = check_config(index["config"]), index["sides"]
    expected = {"joint"} if config.joint else {"source", "target"}
    if not isinstance(sides, dict) or sides.keys() != expected:
        raise ValueError(f"sides: expected {' and '.join(sorted(expected))}")
    return config, sides


def check_config(given: Any) -> TextConfig:
    """Return the configuration of a tokenizer, with every name and type checked."""
    known = {field.name: type(field.default) for field in fields(TextConfig)}
    if not isinstance(given, dict) or given.keys() | LATER != known.keys():
        raise ValueError(f"config: expected the options {', '.join(known)}")
    values = dict(given)
    for name, kind in known.items():
        if name in LATER:
            values.setdefault(name, False)
        if kind is float and type(values[name]) is int:
            values[name] = float(values[name])  # equal in JSON
        if type(values[name]) is not kind:
            raise ValueError(f"config.{name} = {values[name]!r}: expected {kind.__name__}")
    if values["kind"] not in get_args(Kind):
        raise ValueError(f"config.kind = {values['kind']!r}: expected {', '.join(get_args(Kind))}")
    return TextConfig(**values)


def read_side(folder: Path, side: str, content: Any, config: TextConfig) -> Tokenizer:
    """Read one tokenizer: from the units in the index, or from its model file."""
    if config.kind in ("characters", "words"):
        try:
            return CharWordTokenizer(check_units(content, config), config)
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


def check_units(units: Any, config: TextConfig) -> tuple[str, ...]:
    """Return the units of a vocabulary; ValueError if invalid."""
    if not isinstance(units, list) or not all(isinstance(unit, str) for unit in units):
        raise ValueError(f"sides: expected lists of {config.kind}")
    if not 0 < len(units) <= config.vocab - len(SPECIALS):
        raise ValueError(f"{len(units)} {config.kind} in a vocabulary of {config.vocab}")
    return tuple(units)
