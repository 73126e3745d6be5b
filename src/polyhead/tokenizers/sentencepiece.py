"""Subword tokenizer, trained and applied by SentencePiece (Kudo and Richardson 2018).

SentencePiece gets text that is already normalised (`normalize.py`) and does not change it, so that
offsets are simple and decoding is exact. Three characters are special to it and are therefore
replaced by noncharacters:

    ▁ U+2581   its symbol for a space
    ▅ U+2585   its symbol for an unknown character; training would skip the line
    <          starts its reserved names, <s> and <0x41>; training would cut them out

Decoding is done here: pieces are concatenated and bytes collected to characters, which also gives
the offsets of each piece. SentencePiece's own decoder is the oracle in the tests.
"""

import codecs
import io
import logging
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from random import Random
from typing import Any

import sentencepiece

from polyhead.errors import ConfigError, DataError
from polyhead.special_tokens import BOS, EOS, PAD, UNK
from polyhead.tokenizers.base import MAX_VOCAB, UNKNOWN, Piece, TextConfig, Tokenizer
from polyhead.tokenizers.normalize import before_end, checked, normalise, printable, tidy, tile
from polyhead.tokenizers.subword_sampling import BPEDropout, UnigramLattice

SPACE = "▁"
ESCAPES = str.maketrans({"▁": "\ufdd0", "▅": "\ufdd1", "<": "\ufdd2"})
UNESCAPES = str.maketrans({"\ufdd0": "▁", "\ufdd1": "▅", "\ufdd2": "<"})
MAX_LINES = 2_000_000  # more lines cost memory without benefit
MAX_LINE = 10_000  # characters; SentencePiece aborts the whole process at words beyond 65535
THREADS = 4  # fixed, since sums of floats depend on it
QUIET = 2  # errors only
MIN_THREADED = 1024  # lines; fewer are encoded one by one
PROBE = "Ａ <s>\u3000한 ▁ ﬁ 👩‍🚀 a"

logger = logging.getLogger(__name__)


def train_sentencepiece(lines: Sequence[str], config: TextConfig) -> "SentencePieceTokenizer":
    """Train a vocabulary; the same lines give the same bytes of a model."""
    step = -(-len(lines) // MAX_LINES) or 1
    texts = (normalise(line, lowercase=config.lowercase) for line in lines[::step])
    usable = [escaped(text) for text in texts if 0 < len(text) <= MAX_LINE]
    if not usable:
        raise DataError(
            f"no vocabulary can be learned from {len(lines)} lines: all are empty or longer than "
            f"{MAX_LINE} characters; give at least one line of text",
            "no_text",
        )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(usable),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.vocab,
            hard_vocab_limit=False,
            character_coverage=config.character_coverage,
            required_chars=SPACE,  # rare in languages without spaces
            byte_fallback=config.byte_fallback,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            normalization_rule_name="identity",
            max_sentence_length=4 * MAX_LINE + 1,  # bytes
            num_threads=THREADS,
            minloglevel=QUIET,
        )
    except RuntimeError as error:
        match = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if not match:
            raise
        needed, n_bytes = int(match[1]), 256 if config.byte_fallback else 0
        hint = " or set text.byte_fallback = false" if n_bytes else ""
        raise ConfigError(
            f"text.vocab = {config.vocab}: this corpus needs at least {needed} (4 special ids, "
            f"{n_bytes} bytes, {needed - 4 - n_bytes} characters). Raise text.vocab, or lower "
            f"text.character_coverage{hint}.",
            "vocab_too_small",
        ) from None
    tokenizer = SentencePieceTokenizer(model.getvalue(), config)
    if len(tokenizer) < config.vocab:
        logger.warning(
            "The corpus is too small for %d tokens; using %d.", config.vocab, len(tokenizer)
        )
    return tokenizer


def escaped(text: str) -> str:
    """Replace the characters that are special to SentencePiece."""
    is_special = "<" in text or "▁" in text or "▅" in text  # faster than to translate always
    return text.translate(ESCAPES) if is_special else text


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece model with offsets, exact decoding and reproducible sampling."""

    def __init__(self, model: bytes, config: TextConfig) -> None:
        """Read the bytes of a model; ValueError if invalid or with other special ids."""
        processor = sentencepiece.SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model ({error})") from None
        size = len(processor)
        special = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
        if special != (PAD, BOS, EOS, UNK) or size > MAX_VOCAB:
            raise ValueError(
                f"special ids {special} and {size} ids in all: "
                f"expected {(PAD, BOS, EOS, UNK)} and at most {MAX_VOCAB}"
            )
        self.model, self.config, self.processor = model, config, processor
        self.names: list[str] = [processor.IdToPiece(id) for id in range(size)]
        bytes_ = filter(processor.IsByte, range(size))
        self.bytes = {id: int(self.names[id][3:5], 16) for id in bytes_}  # named <0x41>
        self.byte_ids = {byte: id for id, byte in self.bytes.items()}
        self.texts = [name.replace(SPACE, " ").translate(UNESCAPES) for name in self.names]
        self.texts[: UNK + 1] = "", "", "", UNKNOWN

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model, self.config)  # for other processes; caches are left out

    def check(self) -> None:
        """Raise ValueError unless the model behaves like one trained here."""
        n_bytes = 256 if self.config.byte_fallback else 0
        if len(set(self.bytes.values())) != n_bytes or len(self) > self.config.vocab:
            raise ValueError(
                f"{len(self)} ids, of which {len(self.bytes)} are bytes: "
                f"expected at most {self.config.vocab} and {n_bytes}"
            )
        try:
            text = "".join(piece.text for piece in self.pieces(PROBE))
        except RuntimeError as error:
            raise ValueError(f"SentencePiece cannot encode {PROBE!r} with it: {error}") from None
        if text != self.normalise(PROBE):
            raise ValueError(f"it changes {PROBE!r} to {text!r}")

    def __len__(self) -> int:
        return len(self.names)

    def normalise(self, line: str) -> str:
        return normalise(line, lowercase=self.config.lowercase)

    def encode(self, line: str, *, sample: Random | None = None) -> list[int]:
        text = escaped(self.normalise(line))
        if sample is not None and self.config.sampling:
            return [*self.sampled_ids(text, sample), EOS]
        return [*self.processor.Encode(text), EOS]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        if len(lines) < MIN_THREADED:  # SentencePiece starts threads even for a short list
            return [self.encode(line) for line in lines]
        texts = [escaped(self.normalise(line)) for line in lines]
        ids: list[list[int]] = self.processor.EncodeAsIds(texts, num_threads=THREADS, add_eos=True)
        return ids

    def pieces(self, line: str) -> list[Piece]:
        text = escaped(self.normalise(line))
        cut = self.processor.Encode(text, return_type="offset_mapping")
        surfaces = self.surfaces(cut["ids"])
        for place, id in enumerate(cut["ids"]):
            if id == UNK:
                surfaces[place] = cut["pieces"][place].translate(UNESCAPES)
        return tile(cut["ids"], surfaces)

    def decode(self, ids: Iterable[int]) -> str:  # faster than joining the pieces
        written = before_end(ids, len(self))
        has_bytes = not self.bytes.keys().isdisjoint(written)
        texts = self.surfaces(written) if has_bytes else map(self.texts.__getitem__, written)
        return tidy("".join(texts)).strip(" ")

    def pieces_of_ids(self, ids: Iterable[int]) -> list[Piece]:
        written = before_end(ids, len(self))
        return tile(written, self.surfaces(written))

    def surfaces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id; a character belongs to the last of its bytes."""
        texts: list[str] = []
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        for id in ids:
            if id in self.bytes:
                texts.append(characters.decode(bytes([self.bytes[id]])).translate(UNESCAPES))
                continue
            if incomplete := characters.decode(b"", final=True):
                texts[-1] += incomplete
            texts.append(self.texts[id])
        if incomplete := characters.decode(b"", final=True):
            texts[-1] += incomplete
        return texts

    def symbol(self, id: int) -> str:
        return printable(self.names[checked(id, len(self))].translate(UNESCAPES))

    @cached_property
    def cutter(self) -> BPEDropout | UnigramLattice:
        """The vocabulary in the form that sampling needs."""
        scores = {name: self.processor.GetScore(id) for name, id in self.numbers.items()}
        return BPEDropout(scores) if self.config.kind == "bpe" else UnigramLattice(scores)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The id of each piece that can occur in a text."""
        return {self.names[id]: id for id in range(UNK + 1, len(self)) if id not in self.bytes}

    def sampled_ids(self, text: str, random: Random) -> list[int]:
        """Return the ids of a random segmentation; no piece spans two words."""
        ids: list[int] = []
        for word in text.split():
            for piece in self.cutter.cut(SPACE + word, random, self.config.sampling):
                if piece in self.numbers:
                    ids.append(self.numbers[piece])
                elif self.byte_ids:
                    ids.extend(self.byte_ids[byte] for byte in piece.encode())
                elif ids[-1:] != [UNK]:  # as SentencePiece: one UNK for several in a row
                    ids.append(UNK)
        return ids
