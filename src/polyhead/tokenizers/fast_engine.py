"""Tokenizers of the package `tokenizers`; runs in a sandbox (`polyhead.sandbox`).

The files are a stranger's: their regular expressions, character maps and chains of replacements may
panic, abort, hang or fill memory when they are loaded or when text is encoded.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

UNKNOWN = "[UNK]"
Answer = tuple[Any, tuple[bytes, ...]]
_PROGRAM: list[Any] = []  # of this process


def load(contents: Sequence[bytes], names: Sequence[str]) -> Answer:
    """Load the tokenizer of these files; return whether long texts may be split as GPT-2's."""
    program = _program(dict(zip(names, contents, strict=True)))
    program.no_truncation()
    program.no_padding()
    program.encode_special_tokens = True  # "[MASK]" in a text is plain text
    words = program.pre_tokenizer
    cuts_as_gpt2 = (
        isinstance(words, tokenizers.pre_tokenizers.ByteLevel)
        and words.use_regex
        and not words.add_prefix_space
        and program.normalizer is None
        and all(token.special for token in program.get_added_tokens_decoder().values())
    )
    _PROGRAM[:] = [program]
    return cuts_as_gpt2, ()


def encode(contents: Sequence[bytes]) -> Answer:
    """Return the ids of every text."""
    batch = _PROGRAM[0].encode_batch_fast(_texts(contents), add_special_tokens=False)
    return [encoding.ids for encoding in batch], ()


def cut(contents: Sequence[bytes]) -> Answer:
    """Return id, start and end of every token of each text."""
    batch = _PROGRAM[0].encode_batch(_texts(contents), add_special_tokens=False)
    return [
        [(id, *span) for id, span in zip(encoding.ids, encoding.offsets, strict=True)]
        for encoding in batch
    ], ()


def join(_: Sequence[bytes], sequences: Sequence[Sequence[int]]) -> Answer:
    """Return the text of every sequence of ids."""
    return _PROGRAM[0].decode_batch(list(sequences), skip_special_tokens=False), ()


def names(_: Sequence[bytes], ids: Sequence[int]) -> Answer:
    """Return the token of every id; None where there is none."""
    return [_PROGRAM[0].id_to_token(id) for id in ids], ()


def _texts(contents: Sequence[bytes]) -> list[str]:
    return [content.decode() for content in contents]


def _program(files: Mapping[str, bytes]) -> Any:
    if "tokenizer.json" in files:
        try:
            return tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"tokenizer.json: {error}") from None
    if "vocab.txt" in files:
        return _word_pieces(files)
    merges = files["merges.txt"].decode().splitlines()
    pairs = (line.partition(" ") for line in merges if line and not line.startswith("#"))
    rules = [(first, second) for first, _, second in pairs]
    program = tokenizers.Tokenizer(tokenizers.models.BPE(json.loads(files["vocab.json"]), rules))
    program.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    program.decoder = tokenizers.decoders.ByteLevel()
    return program


def _word_pieces(files: Mapping[str, bytes]) -> Any:
    """Build BERT's tokenizer from a list of words and its configuration."""
    settings = json.loads(files.get("tokenizer_config.json", b"{}"))
    words = {word: id for id, word in enumerate(files["vocab.txt"].decode().splitlines())}
    program = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token=UNKNOWN))
    program.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=bool(settings.get("do_lower_case", True)),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
    )
    program.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    program.decoder = tokenizers.decoders.WordPiece()
    return program
