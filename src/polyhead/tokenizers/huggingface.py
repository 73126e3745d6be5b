"""Tokenizers of other libraries: the original files of BERT, GPT-2 and Marian.

    tokenizer.json                    our index: {"format", "foreign": {kind, ids of both sides}}
    hf_vocab.txt, hf_source.spm, …    the original files, with the prefix hf_

The original ids differ; `ids` maps each of ours to the original one, PAD, BOS, EOS and UNK first.
Marian's SentencePiece files are read with the installed sentencepiece. The others require the
package `tokenizers` (extra: hf), imported when text is encoded for the first time.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

import sentencepiece

from polyhead.errors import CheckpointError, MissingError
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
PORTION = 2**16  # characters of a long text encoded at once
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
            line = " ".join(str(error).split())[:200]
            message = f"the tokenizer files of this model are damaged: {line}"
            raise CheckpointError(message, "broken_tokenizer") from None

    @cached_property
    def our_ids(self) -> dict[int, int]:
        """Our id of each original one; PAD and BOS stand for no text."""
        return {original: id for id, original in enumerate(self.ids) if id not in (PAD, BOS)}

    def __len__(self) -> int:
        return len(self.ids)

    def normalise(self, line: str) -> str:
        return self.engine.normalise(line)

    def reads_line_ends(self) -> bool:
        """Return whether line ends are kept: as GPT-2's bytes they are, otherwise not."""
        return "\n" in self.decode(self.encode("\n"))

    def encode(self, line: str, *, sample: Random | None = None) -> list[int]:  # noqa: ARG002
        return [*(self.our_ids.get(id, UNK) for id in self.engine.read(line)), EOS]

    def decode(self, ids: Iterable[int]) -> str:
        written = before_end(ids, len(self))
        return self.engine.join([self.ids[id] for id in written if id > BOS])

    def pieces(self, line: str) -> list[Piece]:
        """Return one piece for each id; spaces belong to the piece after them."""
        text, cut = self.engine.normalise(line), self.engine.cut(line)
        ends = [min(end, after) for (_, _, end), (_, after, _) in pairwise(cut)]
        known = [self.our_ids.get(id, UNK) for id, _, _ in cut]
        return self._tiled(known, [*ends, len(text)][: len(cut)], text)

    def pieces_of_ids(self, ids: Iterable[int]) -> list[Piece]:
        written = before_end(ids, len(self))
        text = self.decode(written)
        ends = [len(self.decode(written[: i + 1])) for i in range(len(written))]
        return self._tiled(written, ends, text)

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
    """Tokenizer of the package `tokenizers`: tokenizer.json, vocab.txt, or vocab.json + merges."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        try:
            import tokenizers
        except ImportError:
            raise MissingError(
                "this model's tokenizer requires a package: pip install 'polyhead[hf]'",
                "missing_package",
            ) from None
        self.unknown = "[UNK]"
        self.program: Any = _program(tokenizers, files)
        self.program.no_truncation()
        self.program.no_padding()
        self.program.encode_special_tokens = True  # "[MASK]" in a text is plain text
        words = self.program.pre_tokenizer
        cuts_as_gpt2 = (
            isinstance(words, tokenizers.pre_tokenizers.ByteLevel)
            and words.use_regex
            and not words.add_prefix_space
            and self.program.normalizer is None
            and all(t.special for t in self.program.get_added_tokens_decoder().values())
        )
        self.portion = PORTION if cuts_as_gpt2 else None

    def normalise(self, line: str) -> str:
        """Return the text that offsets refer to: the line itself."""
        return line

    def cut(self, line: str) -> IdSpans:
        encoding = self.program.encode(line, add_special_tokens=False)
        return [(id, *span) for id, span in zip(encoding.ids, encoding.offsets, strict=True)]

    def read(self, text: str) -> Iterator[int]:
        """Yield the ids; a long text in portions, since each token takes hundreds of bytes."""
        for part in [text] if self.portion is None else portions(text, self.portion):
            yield from self.program.encode(part, add_special_tokens=False).ids

    def join(self, ids: Sequence[int]) -> str:
        text: str = self.program.decode(list(ids), skip_special_tokens=False)
        return text.replace(self.unknown, UNKNOWN)

    def name(self, id: int) -> str:
        return str(self.program.id_to_token(id) or f"<{id}>")


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


def _program(library: Any, files: Mapping[str, bytes]) -> Any:
    if "tokenizer.json" in files:
        try:
            return library.Tokenizer.from_str(files["tokenizer.json"].decode())
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"tokenizer.json: {error}") from None
    if "vocab.txt" in files:
        return _word_pieces(library, files)
    merges = files["merges.txt"].decode().splitlines()
    rules = [tuple(line.split(" ", 1)) for line in merges if line and not line.startswith("#")]
    program = library.Tokenizer(library.models.BPE(json.loads(files["vocab.json"]), rules))
    program.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    program.decoder = library.decoders.ByteLevel()
    return program


def _word_pieces(library: Any, files: Mapping[str, bytes]) -> Any:
    """Build BERT's tokenizer from a list of words and its configuration."""
    settings = json.loads(files.get("tokenizer_config.json", b"{}"))
    words = {word: id for id, word in enumerate(files["vocab.txt"].decode().splitlines())}
    program = library.Tokenizer(library.models.WordPiece(words, unk_token="[UNK]"))
    program.normalizer = library.normalizers.BertNormalizer(
        lowercase=bool(settings.get("do_lower_case", True)),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
    )
    program.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    program.decoder = library.decoders.WordPiece()
    return program


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

    def read(self, text: str) -> Iterator[int]:
        return (self.numbers.get(piece, self.unknown) for piece in self._pieces(text))

    def join(self, ids: Sequence[int]) -> str:
        pieces = [f"{SPACE}{UNKNOWN}" if i == self.unknown else self.name(i) for i in ids]
        return "".join(pieces).replace(SPACE, " ").strip()

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
    if kind == "fast":
        return first, first
    return first, HuggingFaceTokenizer(kind, files, tuple(target), "target")


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
    return TextConfig("bpe", max(len(source), len(target)), joint=source is target)
