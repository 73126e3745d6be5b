"""Tokenizers for both sides of a corpus: learn them, write them to a folder, read them back.

    tokenizer.json                    format, configuration, and either sha256 of the model files
                                      or the units themselves
    joint.model                       SentencePiece's file, when both sides share a vocabulary …
    source.model, target.model        … and when they do not
    hf_…                              the files of a tokenizer that others made (`foreign.py`)

Reading trusts nothing: names of files are fixed, sizes are bounded, everything is checked, and
whatever is wrong is a CheckpointError. Nothing in these files is ever run.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from polyhead.errors import CheckpointError, ConfigError
from polyhead.special_tokens import BOS, EOS, PAD, SPECIALS, UNK
from polyhead.tokenizers import huggingface as foreign
from polyhead.tokenizers.base import UNKNOWN, Kind, Piece, TextConfig, Tokenizer
from polyhead.tokenizers.char_word import UnitTokenizer, collect_units
from polyhead.tokenizers.huggingface import ForeignTokenizer
from polyhead.tokenizers.normalize import normalise, words_of
from polyhead.tokenizers.sentencepiece import PieceTokenizer, learn_pieces

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "UNKNOWN",
    "Kind",
    "Piece",
    "TextConfig",
    "Tokenizer",
    "Tokenizers",
    "load",
    "normalise",
    "sampled",
    "save",
    "train_tokenizers",
    "words_of",
]

FORMAT = 1
LATER = {"jamo"}  # options that files of earlier versions lack; they meant False
INDEX = "tokenizer.json"
MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Tokenizers:
    """One tokenizer for each side; the same object twice when the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer
    config: TextConfig


def train_tokenizers(
    sources: Sequence[str], targets: Sequence[str], config: TextConfig
) -> Tokenizers:
    """Learn the vocabulary of a corpus, or one for each side: the same lines, the same ids."""
    if config.joint:
        joint = learn([*sources, *targets], config)
        return Tokenizers(joint, joint, config)
    return Tokenizers(learn(sources, config), learn(targets, config), config)


def learn(lines: Sequence[str], config: TextConfig) -> PieceTokenizer | UnitTokenizer:
    """Learn one vocabulary of the configured kind."""
    if config.kind in ("bpe", "unigram"):
        return learn_pieces(lines, config)
    return collect_units(lines, config)


def sampled(tokenizers: Tokenizers, sampling: float) -> Tokenizers:
    """The same vocabularies, cut at random to another degree: that belongs to a training."""
    if sampling == tokenizers.config.sampling:
        return tokenizers
    source, target = tokenizers.source, tokenizers.target
    if not (isinstance(source, PieceTokenizer) and isinstance(target, PieceTokenizer)):
        raise ConfigError(
            f"text.sampling = {sampling}: the model's tokenizer cuts text in one way only; leave "
            "text.sampling out"
        )
    config = replace(tokenizers.config, sampling=sampling)
    one = PieceTokenizer(source.model, config)
    return Tokenizers(one, one if config.joint else PieceTokenizer(target.model, config), config)


def save(tokenizers: Tokenizers, folder: Path) -> None:
    """Write both tokenizers into a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = tokenizers.source, tokenizers.target
    if isinstance(source, ForeignTokenizer) and isinstance(target, ForeignTokenizer):
        foreign.write_files(source, folder)
        text = json.dumps({"format": FORMAT, "foreign": foreign.described(source, target)})
        (folder / INDEX).write_text(text + "\n", encoding="utf-8", newline="\n")
        return
    sides: dict[str, str | list[str]] = {}
    for side, tokenizer in sides_of(tokenizers).items():
        if isinstance(tokenizer, PieceTokenizer):
            (folder / f"{side}.model").write_bytes(tokenizer.model)
            sides[side] = hashlib.sha256(tokenizer.model).hexdigest()
        elif isinstance(tokenizer, UnitTokenizer):
            sides[side] = list(tokenizer.units)
        else:
            raise TypeError(f"{type(tokenizer).__name__}: only tokenizers made here can be saved")
    index = {"format": FORMAT, "config": asdict(tokenizers.config), "sides": sides}
    text = json.dumps(index, ensure_ascii=False, indent=1) + "\n"
    (folder / INDEX).write_text(text, encoding="utf-8", newline="\n")


def sides_of(tokenizers: Tokenizers) -> dict[str, Tokenizer]:
    """The tokenizers to write, by the name that their files have."""
    if tokenizers.config.joint:
        return {"joint": tokenizers.source}
    return {"source": tokenizers.source, "target": tokenizers.target}


def load(folder: Path) -> Tokenizers:
    """Read what `save` wrote; CheckpointError says which file is missing or broken, and how."""
    path = folder / INDEX
    content = read(path)
    try:
        index = json.loads(content)
        if isinstance(index, dict) and index.keys() == {"format", "foreign"}:
            two = foreign.read_back(folder, index["foreign"])
            return Tokenizers(*two, foreign.text_config(*two))
        config, sides = check_index(index)
    except (ValueError, OverflowError, RecursionError) as error:
        raise broken(path, error) from None
    if config.joint:
        joint = read_side(folder, "joint", sides["joint"], config)
        return Tokenizers(joint, joint, config)
    source = read_side(folder, "source", sides["source"], config)
    target = read_side(folder, "target", sides["target"], config)
    return Tokenizers(source, target, config)


def read(path: Path) -> bytes:
    """A regular file's bytes, if there is one and it is not suspiciously large."""
    try:
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; give the folder of a trained model")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise broken(path, f"more than {MAX_BYTES} bytes")
    return content


def broken(path: Path, why: object) -> CheckpointError:
    """The error for a file that `save` did not write, or that changed since."""
    line = " ".join(str(why).split())
    return CheckpointError(f"{path} is broken ({line}); copy the model again or train it anew")


def check_index(index: Any) -> tuple[TextConfig, dict[str, Any]]:
    """The configuration and what each side holds; ValueError if it is not what `save` writes."""
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
    """The configuration that a tokenizer was learned with, every name and type checked."""
    known = {field.name: type(field.default) for field in fields(TextConfig)}
    if not isinstance(given, dict) or given.keys() | LATER != known.keys():
        raise ValueError(f"config: expected the options {', '.join(known)}")
    values = dict(given)
    for name, kind in known.items():
        if name in LATER:
            values.setdefault(name, False)
        if kind is float and type(values[name]) is int:
            values[name] = float(values[name])  # JSON knows no difference
        if type(values[name]) is not kind:
            raise ValueError(f"config.{name} = {values[name]!r}: expected {kind.__name__}")
    if values["kind"] not in get_args(Kind):
        raise ValueError(f"config.kind = {values['kind']!r}: expected {', '.join(get_args(Kind))}")
    return TextConfig(**values)


def read_side(folder: Path, side: str, content: Any, config: TextConfig) -> Tokenizer:
    """One tokenizer: from the units that stand in the index, or from its model file."""
    if config.kind in ("characters", "words"):
        try:
            return UnitTokenizer(check_units(content, config), config)
        except ValueError as error:
            raise broken(folder / INDEX, error) from None
    path = folder / f"{side}.model"
    model = read(path)
    if hashlib.sha256(model).hexdigest() != content:
        raise broken(path, f"its sha256 is not the one in {INDEX}")
    try:
        tokenizer = PieceTokenizer(model, config)
        tokenizer.check()
    except ValueError as error:
        raise broken(path, error) from None
    return tokenizer


def check_units(units: Any, config: TextConfig) -> tuple[str, ...]:
    """The units of a vocabulary, if that is what they are."""
    if not isinstance(units, list) or not all(isinstance(unit, str) for unit in units):
        raise ValueError(f"sides: expected lists of {config.kind}")
    if not 0 < len(units) <= config.vocab - len(SPECIALS):
        raise ValueError(f"{len(units)} {config.kind} in a vocabulary of {config.vocab}")
    return tuple(units)
