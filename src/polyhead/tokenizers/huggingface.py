"""Tokenizers that others made, as ours: BERT's, GPT-2's and Marian's own files.

    tokenizer.json                    our index: {"format", "foreign": {kind, ids of both sides}}
    hf_vocab.txt, hf_source.spm, …    their files as they were, with hf_ before the name

Their numbers are not ours; `ids` says which of theirs each of ours is, PAD, BOS, EOS and UNK first.
Marian's SentencePiece files are read with what is installed anyway. For the others the package
`tokenizers` is needed (extra: hf), but only once text is really cut.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import sentencepiece

from polyhead.errors import CheckpointError, MissingError
from polyhead.special_tokens import BOS, EOS, PAD, SPECIALS, UNK
from polyhead.tokenizers.base import MAX_VOCAB, UNKNOWN, Piece, TextConfig

ForeignKind = Literal["fast", "marian"]  # what `tokenizers` reads, and Marian's pairs of files
PREFIX = "hf_"
FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "source.spm", "target.spm", "target_vocab.json",
)  # fmt: skip
SPACE = "▁"
MAX_BYTES = 64 * 2**20
PORTION = 2**16  # characters of a long text that are cut at once
SURE_END = re.compile(r"\S(?=[ \n])")
Cut = list[tuple[int, int, int]]  # their id, and where its text begins and ends


@runtime_checkable
class Engine(Protocol):
    """Their program, with their ids."""

    def normalise(self, line: str) -> str:
        """The text that offsets point into."""
        ...

    def cut(self, line: str) -> Cut:
        """A line's ids and offsets."""
        ...

    def read(self, text: str) -> Iterator[int]:
        """The ids alone, of a text that may be long."""
        ...

    def join(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        ...

    def name(self, id: int) -> str:
        """One id's own text."""
        ...


@dataclass(frozen=True)
class ForeignTokenizer:
    """One side. `ids` holds their id of each of ours; `files` what it is read from."""

    kind: ForeignKind
    files: Mapping[str, bytes]
    ids: tuple[int, ...]
    side: Literal["source", "target"] = "source"

    @cached_property
    def engine(self) -> Engine:
        """Their program; CheckpointError or MissingError if it cannot be started."""
        try:
            if self.kind == "marian":
                return MarianEngine(self.files, self.side)
            return FastEngine(self.files)
        except (ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
            line = " ".join(str(error).split())[:200]
            raise CheckpointError(
                f"the files of this model's tokenizer are broken: {line}"
            ) from None

    @cached_property
    def ours(self) -> dict[int, int]:
        """Our id of each of theirs. PAD and BOS stand for no text, even if they share a number."""
        return {theirs: ours for ours, theirs in enumerate(self.ids) if ours not in (PAD, BOS)}

    def __len__(self) -> int:
        return len(self.ids)

    def normalise(self, line: str) -> str:
        """As their program does."""
        return self.engine.normalise(line)

    def reads_line_ends(self) -> bool:
        """Whether they come back: as GPT-2's bytes they do, in BERT's and Marian's pieces not."""
        return "\n" in self.decode(self.encode("\n"))

    def encode(self, line: str, *, sample: Random | None = None) -> list[int]:  # noqa: ARG002
        """A line's ids, closed by EOS; always cut in the same way."""
        return [*(self.ours.get(id, UNK) for id in self.engine.read(line)), EOS]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines."""
        return [self.encode(line) for line in lines]

    def decode(self, ids: Iterable[int]) -> str:
        """The text up to the first EOS."""
        return self.engine.join([self.ids[id] for id in self._written(ids) if id > BOS])

    def pieces(self, line: str) -> list[Piece]:
        """One piece for each id; spaces belong to the piece after them."""
        text, cut = self.engine.normalise(line), self.engine.cut(line)
        ends = [min(end, after) for (_, _, end), (_, after, _) in pairwise(cut)]
        known = [self.ours.get(id, UNK) for id, _, _ in cut]
        return self._tiled(known, [*ends, len(text)][: len(cut)], text)

    def pieces_of_ids(self, ids: Iterable[int]) -> list[Piece]:
        """One piece for each id: what the text gains by it."""
        written = self._written(ids)
        text = self.decode(written)
        ends = [len(self.decode(written[: i + 1])) for i in range(len(written))]
        return self._tiled(written, ends, text)

    def symbol(self, id: int) -> str:
        """An id's name for people."""
        if not 0 <= id < len(self):
            raise ValueError(f"id {id} is not in a vocabulary of {len(self)}")
        name = SPECIALS[id] if id <= EOS else self.engine.name(self.ids[id])
        return name if name.isprintable() and name else repr(name)

    def _written(self, ids: Iterable[int]) -> list[int]:
        """The ids before the first EOS."""
        known: list[int] = []
        for id in ids:
            if id == EOS:
                break
            if not 0 <= id < len(self):
                raise ValueError(f"id {id} is not in a vocabulary of {len(self)}")
            known.append(int(id))
        return known

    def _tiled(self, ids: Sequence[int], ends: Sequence[int], text: str) -> list[Piece]:
        found, at = [], 0
        for id, end in zip(ids, ends, strict=True):
            end = min(max(at, end), len(text))
            found.append(Piece(text[at:end], id, at, end))
            at = end
        return found


class FastEngine:
    """What the package `tokenizers` makes of tokenizer.json, vocab.txt, or vocab.json + merges."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        try:
            import tokenizers
        except ImportError:
            raise MissingError(
                "this model's tokenizer needs a package that is not installed; add it with: "
                "pip install 'polyhead[hf]'"
            ) from None
        self.unknown = "[UNK]"
        self.program: Any = _program(tokenizers, files)
        self.program.no_truncation()
        self.program.no_padding()
        self.program.encode_special_tokens = True  # "[MASK]" in a text is six characters
        self.portion = PORTION if _cuts_as_gpt2(tokenizers, self.program) else None

    def normalise(self, line: str) -> str:
        """Offsets point into the line itself."""
        return line

    def cut(self, line: str) -> Cut:
        """A line's ids and offsets."""
        found = self.program.encode(line, add_special_tokens=False)
        return [(id, *offsets) for id, offsets in zip(found.ids, found.offsets, strict=True)]

    def read(self, text: str) -> Iterator[int]:
        """The ids alone; a long text in portions, since each token takes hundreds of bytes."""
        for part in [text] if self.portion is None else portions(text, self.portion):
            yield from self.program.encode(part, add_special_tokens=False).ids

    def join(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        text: str = self.program.decode(list(ids), skip_special_tokens=False)
        return text.replace(self.unknown, UNKNOWN)

    def name(self, id: int) -> str:
        """One id's own text."""
        return str(self.program.id_to_token(id) or f"<{id}>")


def _cuts_as_gpt2(library: Any, program: Any) -> bool:
    """Whether words are found by GPT-2's pattern, and nothing else looks at the text before it."""
    words = program.pre_tokenizer
    return (
        isinstance(words, library.pre_tokenizers.ByteLevel)
        and words.use_regex
        and not words.add_prefix_space
        and program.normalizer is None
        and all(token.special for token in program.get_added_tokens_decoder().values())
    )


def portions(text: str, size: int) -> Iterator[str]:
    r"""A text in parts of at least `size` characters, to GPT-2's pattern the same as the whole.

        's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

    White space stands only at the beginning of its words, and only after white space does it look
    ahead. So a word always ends before a space or line end that follows anything else.
    """
    start = 0
    for found in SURE_END.finditer(text):
        end = found.end()
        if end - start >= size:
            yield text[start:end]
            start = end
    yield text[start:]


def _program(library: Any, files: Mapping[str, bytes]) -> Any:
    if "tokenizer.json" in files:
        try:
            return library.Tokenizer.from_str(files["tokenizer.json"].decode())
        except Exception as error:  # the library raises nothing more special
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
    """BERT's, from a list of words and what its configuration says about upper and lower case."""
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
    """A SentencePiece model that cuts, and a table of its own that numbers the pieces.

    A text may begin with the code of the target language, >>fra<<, which is one piece. (The
    normaliser of punctuation that some recommend beside it is not applied.)
    """

    def __init__(self, files: Mapping[str, bytes], side: str) -> None:
        table = "target_vocab.json" if side == "target" and "target_vocab.json" in files else ""
        self.numbers: dict[str, int] = json.loads(files[table or "vocab.json"])
        if not isinstance(self.numbers, dict):
            raise ValueError("vocab.json holds no table")
        self.names = {number: piece for piece, number in self.numbers.items()}
        self.unknown = self.numbers["<unk>"]
        self.pieces = sentencepiece.SentencePieceProcessor()
        self.pieces.LoadFromSerializedProto(files[f"{side}.spm"])

    def normalise(self, line: str) -> str:
        """The pieces, joined."""
        return "".join(self._surfaces(self._pieces(line)))

    def cut(self, line: str) -> Cut:
        """A line's ids and offsets."""
        pieces, at, found = self._pieces(line), 0, []
        for piece, text in zip(pieces, self._surfaces(pieces), strict=True):
            found.append((self.numbers.get(piece, self.unknown), at, at + len(text)))
            at += len(text)
        return found

    def read(self, text: str) -> Iterator[int]:
        """The ids alone."""
        return (self.numbers.get(piece, self.unknown) for piece in self._pieces(text))

    def join(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        pieces = [f"{SPACE}{UNKNOWN}" if i == self.unknown else self.name(i) for i in ids]
        return "".join(pieces).replace(SPACE, " ").strip()

    def name(self, id: int) -> str:
        """One id's own text."""
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
    """The files of a tokenizer that lie in a folder."""
    found = {}
    for name in FILES:
        path = folder / f"{prefix}{name}"
        if path.is_file():
            if path.stat().st_size > MAX_BYTES:
                raise CheckpointError(f"{path} is larger than {MAX_BYTES} bytes; no tokenizer is")
            found[name] = path.read_bytes()
    return found


def described(source: ForeignTokenizer, target: ForeignTokenizer) -> dict[str, Any]:
    """What the index says about both sides."""
    return {"kind": source.kind, "source": list(source.ids), "target": list(target.ids)}


def write_files(tokenizer: ForeignTokenizer, folder: Path, prefix: str = PREFIX) -> None:
    """Their files as they were; without a prefix for those who want them back."""
    for name, content in tokenizer.files.items():
        (folder / f"{prefix}{name}").write_bytes(content)


def both_sides(
    kind: ForeignKind, files: Mapping[str, bytes], source: Sequence[int], target: Sequence[int]
) -> tuple[ForeignTokenizer, ForeignTokenizer]:
    """The tokenizers of both sides; one object if they are the same."""
    first = ForeignTokenizer(kind, files, tuple(source))
    if kind == "fast":
        return first, first
    return first, ForeignTokenizer(kind, files, tuple(target), "target")


def read_back(folder: Path, index: Any) -> tuple[ForeignTokenizer, ForeignTokenizer]:
    """The inverse of `described` and `write_files`; ValueError if the index is none of ours."""
    if not isinstance(index, dict) or index.keys() != {"kind", "source", "target"}:
        raise ValueError("foreign: expected the entries kind, source and target")
    if index["kind"] not in get_args(ForeignKind):
        raise ValueError(f"foreign.kind = {index['kind']!r}")
    for side in ("source", "target"):
        ids = index[side]
        if not isinstance(ids, list) or not UNK < len(ids) <= MAX_VOCAB:
            raise ValueError(f"foreign.{side}: expected a list of ids")
        if any(type(id) is not int or not 0 <= id <= MAX_VOCAB for id in ids):
            raise ValueError(f"foreign.{side}: expected ids from 0 to {MAX_VOCAB}")
    files = original_files(folder, PREFIX)
    return both_sides(index["kind"], files, index["source"], index["target"])


def text_config(source: ForeignTokenizer, target: ForeignTokenizer) -> TextConfig:
    """The nearest that our own options come to it: pieces of words, one vocabulary or two."""
    return TextConfig("bpe", max(len(source), len(target)), joint=source is target)
