"""Tokenizers of other libraries: the original files of BERT, GPT-2 and Marian.

    tokenizer.json                    our index: {"format", "foreign": {kind, ids of both sides}}
    hf_vocab.txt, hf_source.spm, …    the original files, with the prefix hf_

The original ids differ; `ids` maps each of ours to the original one, PAD, BOS, EOS and UNK first.
Marian's SentencePiece files are read with the installed sentencepiece. The others require the
package `tokenizers` (extra: hf), started in a sandbox when text is encoded for the first time.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

import sentencepiece

from polyhead.errors import CheckpointError, MissingError, install_command
from polyhead.sandbox import Limits, Request, Sandbox
from polyhead.special_tokens import BOS, EOS, PAD, SPECIALS, UNK
from polyhead.tokenizers.base import MAX_VOCAB, UNKNOWN, Piece, TextConfig, Tokenizer
from polyhead.tokenizers.normalize import before_end, checked

EngineKind = Literal["fast", "marian"]  # of the package `tokenizers`, and of Marian
PREFIX = "hf_"
FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "source.spm", "target.spm", "target_vocab.json",
)  # fmt: skip
SPACE = "▁"
MAX_BYTES = 64 * 2**20
PROBE = f"Ａ <s>\u3000한국 {'a' * 40} (1,234.5) ﬁ 👩‍🚀\n"
PORTION = 2**16  # characters encoded at once
LIMITS = Limits(megabytes=200, seconds=3, more_megabytes=160)  # 250,000 pieces need 70 MB per MB
SURE_END = re.compile(r"\S(?=[ \n])")
IdSpans = list[tuple[int, int, int]]  # original id, start and end of its text


@dataclass(frozen=True)
class HuggingFaceTokenizer(Tokenizer):
    """Tokenizer of one side; `ids` holds the original id of each id, `files` its files."""

    kind: EngineKind
    files: Mapping[str, bytes]
    ids: tuple[int, ...]
    side: Literal["source", "target"] = "source"

    @cached_property
    def engine(self) -> "MarianEngine | FastEngine":
        """The original tokenizer; CheckpointError or MissingError if it cannot be loaded."""
        try:
            if self.kind == "marian":
                return MarianEngine(self.files, self.side)
            return FastEngine(self.files)
        except (ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
            raise _damaged(" ".join(str(error).split())[:200]) from None

    @cached_property
    def our_ids(self) -> dict[int, int]:
        """Our id of each original one; PAD and BOS stand for no text."""
        return {original: id for id, original in enumerate(self.ids) if id not in (PAD, BOS)}

    def __len__(self) -> int:
        return len(self.ids)

    def check(self) -> None:
        """Start the tokenizer and try it; CheckpointError or MissingError if it fails."""
        self.decode(self.encode(PROBE))

    def normalise(self, line: str) -> str:
        return self.engine.normalise(line)

    def reads_line_ends(self) -> bool:
        """Return whether line ends are kept: as GPT-2's bytes they are, otherwise not."""
        return "\n" in self.decode(self.encode("\n"))

    def encode(self, line: str, *, sample: Random | None = None) -> list[int]:  # noqa: ARG002
        return self.encode_batch([line])[0]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        return [
            [*(self.our_ids.get(id, UNK) for id in ids), EOS] for ids in self.engine.read(lines)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        return self._joined([before_end(ids, len(self))])[0]

    def _joined(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        return self.engine.join([[self.ids[id] for id in ids if id > BOS] for ids in sequences])

    def pieces(self, line: str) -> list[Piece]:
        """Return one piece for each id; spaces belong to the piece after them."""
        text, cut = self.engine.normalise(line), self.engine.cut(line)
        ends = [min(end, after) for (_, _, end), (_, after, _) in pairwise(cut)]
        known = [self.our_ids.get(id, UNK) for id, _, _ in cut]
        return self._tiled(known, [*ends, len(text)][: len(cut)], text)

    def pieces_of_ids(self, ids: Iterable[int]) -> list[Piece]:
        written = before_end(ids, len(self))
        texts = self._joined([written[:end] for end in range(len(written) + 1)])
        return self._tiled(written, [len(text) for text in texts[1:]], texts[-1])

    def symbol(self, id: int) -> str:
        id = checked(id, len(self))
        name = SPECIALS[id] if id <= EOS else self.engine.name(self.ids[id])
        return name if name.isprintable() and name else repr(name)

    def _tiled(self, ids: Sequence[int], ends: Sequence[int], text: str) -> list[Piece]:
        pieces, at = [], 0
        for id, end in zip(ids, ends, strict=True):
            end = min(max(at, end), len(text))
            pieces.append(Piece(text[at:end], id, at, end))
            at = end
        return pieces


class FastEngine:
    """Tokenizer of the package `tokenizers`, in a sandbox (`fast_engine.py`)."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        if find_spec("tokenizers") is None:
            raise MissingError(
                f"this model's tokenizer requires a package: {install_command('hf')}",
                "missing_package",
            )
        load = Request("load", [list(files)], list(files.values()))
        self.sandbox = Sandbox("polyhead.tokenizers.fast_engine", _damaged, LIMITS, load)
        self.portion = PORTION if self.sandbox.start() else None

    def normalise(self, line: str) -> str:
        """Return the text that offsets refer to: the line itself."""
        return line

    def cut(self, line: str) -> IdSpans:
        spans, _ = self.sandbox.call("cut", contents=[_bytes(line)])
        return [(id, start, end) for id, start, end in spans[0]]

    def read(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line; a long one is read in portions, which saves memory."""
        ids: list[list[int]] = [[] for _ in lines]
        for group in self._groups(lines):
            parts, _ = self.sandbox.call("encode", contents=[_bytes(part) for _, part in group])
            for (row, _), part in zip(group, parts, strict=True):
                ids[row] += part
        return ids

    def _groups(self, lines: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
        """Yield parts of lines, with the numbers of their lines, for one request each."""
        group: list[tuple[int, str]] = []
        size = 0
        for row, line in enumerate(lines):
            for part in [line] if self.portion is None else portions(line, self.portion):
                if size + len(part) > PORTION and group:
                    yield group
                    group, size = [], 0
                group.append((row, part))
                size += len(part)
        if group:
            yield group

    def join(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        texts, _ = self.sandbox.call("join", [list(ids) for ids in sequences])
        return [text.replace("[UNK]", UNKNOWN) for text in texts]

    def name(self, id: int) -> str:
        (name,), _ = self.sandbox.call("names", [id])
        return name or f"<{id}>"


def _damaged(reason: str) -> CheckpointError:
    message = f"the tokenizer files of this model are damaged or unsafe: {reason}"
    return CheckpointError(message, "broken_tokenizer")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # lone surrogates


def portions(text: str, size: int) -> Iterator[str]:
    r"""Split a text into parts of at least `size` characters, without changing its ids.

        's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

    In GPT-2's pattern, white space occurs only at the start of a word, and only after white space
    does it look ahead. So a word always ends before a space or line end that follows other text.
    """
    start = 0
    for match in SURE_END.finditer(text):
        end = match.end()
        if end - start >= size:
            yield text[start:end]
            start = end
    yield text[start:]


class MarianEngine:
    """A SentencePiece model, and a table that numbers its pieces; >>fra<< is one piece."""

    def __init__(self, files: Mapping[str, bytes], side: str) -> None:
        table = "target_vocab.json" if side == "target" and "target_vocab.json" in files else ""
        self.numbers: dict[str, int] = json.loads(files[table or "vocab.json"])
        if not isinstance(self.numbers, dict):
            raise ValueError("vocab.json is not a table")
        self.names = {number: piece for piece, number in self.numbers.items()}
        self.unknown = self.numbers["<unk>"]
        self.pieces = sentencepiece.SentencePieceProcessor()
        self.pieces.LoadFromSerializedProto(files[f"{side}.spm"])

    def normalise(self, line: str) -> str:
        return "".join(self._surfaces(self._pieces(line)))

    def cut(self, line: str) -> IdSpans:
        pieces, at, spans = self._pieces(line), 0, []
        for piece, text in zip(pieces, self._surfaces(pieces), strict=True):
            spans.append((self.numbers.get(piece, self.unknown), at, at + len(text)))
            at += len(text)
        return spans

    def read(self, lines: Sequence[str]) -> list[list[int]]:
        return [
            [self.numbers.get(piece, self.unknown) for piece in self._pieces(line)]
            for line in lines
        ]

    def join(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        return [
            "".join(f"{SPACE}{UNKNOWN}" if i == self.unknown else self.name(i) for i in ids)
            .replace(SPACE, " ")
            .strip()
            for ids in sequences
        ]

    def name(self, id: int) -> str:
        return self.names.get(id, f"<{id}>")

    def _pieces(self, line: str) -> list[str]:
        code, mark, rest = line.partition("<<")
        if not (line.startswith(">>") and mark):
            return list(self.pieces.EncodeAsPieces(line))
        return [code + mark, *self.pieces.EncodeAsPieces(rest)]

    def _surfaces(self, pieces: Sequence[str]) -> list[str]:
        texts = [piece.replace(SPACE, " ") for piece in pieces]
        return [texts[0].removeprefix(" "), *texts[1:]] if texts else []


def original_files(folder: Path, prefix: str = "") -> dict[str, bytes]:
    """Read the tokenizer files of a directory."""
    files = {}
    for name in FILES:
        path = folder / f"{prefix}{name}"
        if path.is_file():
            if path.stat().st_size > MAX_BYTES:
                raise CheckpointError(f"{path}: larger than {MAX_BYTES} bytes", "broken_tokenizer")
            files[name] = path.read_bytes()
    return files


def write_files(tokenizer: HuggingFaceTokenizer, folder: Path, prefix: str = PREFIX) -> None:
    """Write the original files, with a prefix."""
    for name, content in tokenizer.files.items():
        (folder / f"{prefix}{name}").write_bytes(content)


def both_sides(
    kind: EngineKind, files: Mapping[str, bytes], source: Sequence[int], target: Sequence[int]
) -> tuple[HuggingFaceTokenizer, HuggingFaceTokenizer]:
    """Return the tokenizers of both sides; one object if they are the same."""
    first = HuggingFaceTokenizer(kind, files, tuple(source))
    second = HuggingFaceTokenizer(kind, files, tuple(target), "target")
    return first, first if kind == "fast" else second


def read_tokenizers(folder: Path, index: Any) -> tuple[HuggingFaceTokenizer, HuggingFaceTokenizer]:
    """Read what `storage.save_tokenizers` wrote; ValueError if the index is invalid."""
    if not isinstance(index, dict) or index.keys() != {"kind", "source", "target"}:
        raise ValueError("foreign: expected the entries kind, source and target")
    if index["kind"] not in get_args(EngineKind):
        raise ValueError(f"foreign.kind = {index['kind']!r}")
    for side in ("source", "target"):
        ids = index[side]
        if not isinstance(ids, list) or not UNK < len(ids) <= MAX_VOCAB:
            raise ValueError(f"foreign.{side}: expected a list of ids")
        if any(type(id) is not int or not 0 <= id <= MAX_VOCAB for id in ids):
            raise ValueError(f"foreign.{side}: expected ids from 0 to {MAX_VOCAB}")
    files = original_files(folder, PREFIX)
    return both_sides(index["kind"], files, index["source"], index["target"])


def text_config(source: HuggingFaceTokenizer, target: HuggingFaceTokenizer) -> TextConfig:
    """Return the nearest configuration: subwords, one vocabulary or two."""
    joint = source is target or "target_vocab.json" not in source.files
    return TextConfig("bpe", max(len(source), len(target)), joint=joint)
