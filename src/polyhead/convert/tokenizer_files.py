"""Tokenizers as files that other programs read; nothing here requires torch.

    sentencepiece_model    one file for SentencePiece, CTranslate2 and Argos Translate
    fast_tokenizer         the contents of tokenizer.json, for Hugging Face's `tokenizers`
    write_tokenizer        a folder that transformers' AutoTokenizer reads

tokenizer.json takes raw text, with the same ids and the same decoded texts as ours. A text "<s>"
is ordinary text for AutoTokenizer too (`split_special_tokens`), but not where [MASK] is read from
a text, and not for the package `tokenizers` unless its `encode_special_tokens` is set. transformers
omits UNK, ours ⁇, with `skip_special_tokens`. Accents decoded with `jamo` are not composed.
Characters that are newer than the Unicode of Python or of the package stay as they are in one.
"""

import json
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from polyhead.convert.sentencepiece_file import kept_escapes, piece_names, sentencepiece_model
from polyhead.errors import CheckpointError
from polyhead.special_tokens import BOS, EOS, MASK, PAD, SPECIALS, UNK
from polyhead.tokenizers.base import UNKNOWN, TextConfig, Tokenizer
from polyhead.tokenizers.char_word import CharWordTokenizer
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer, write_files
from polyhead.tokenizers.sentencepiece import ESCAPES, SPACE, SentencePieceTokenizer
from polyhead.tokenizers.storage import TokenizerPair

__all__ = ["fast_tokenizer", "sentencepiece_model", "write_tokenizer"]

TARGET = "target_tokenizer"
ROLES = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIALS, strict=True))
FRAMES = {"translation": ("$A", EOS), "language_modeling": ("$A",)}
FRAMED = (BOS, "$A", EOS)  # other tasks, whose models have [MASK]
FILLS = ("masked_lm", "replaced_token")  # tasks that read [MASK] from a text
UNLIMITED = 10**30  # as transformers writes it
JOINT = "\ufdd3"  # would begin a unit that continues a word; no text contains it
SPACES = "[\\x00-\\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
NOT_TEXT, JAMO = "[\ufdd0-\ufdef]", "[\u1100-\u11ff\u3131-\u318e]"
CASED, IGNORED = r"[\p{Lu}\p{Ll}\p{Lt}]", r"[\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:·’]"
LAST_SIGMA = f"(?<={CASED})Σ(?!{IGNORED}*{CASED})"
Entry = dict[str, Any]


def fast_tokenizer(tokenizer: Tokenizer, task: str = "translation") -> Entry:
    """Return the contents of tokenizer.json.

    task: of the model. Translators read `text </s>`, language models `text`, others
        `<s> text </s>`, with [MASK] as the first id after the tokenizer's own.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        parts = _subwords(tokenizer)
    elif isinstance(tokenizer, CharWordTokenizer):
        parts = _units(tokenizer)
    else:
        raise CheckpointError(
            "a tokenizer of another library is exported with its own files", "not_exportable"
        )
    added = [_added(id, SPECIALS[id]) for id in (PAD, BOS, EOS)]
    if task not in FRAMES:
        spaced = isinstance(tokenizer, SentencePieceTokenizer)  # the space before it belongs to it
        options = {"special": False, "normalized": True, "lstrip": spaced}
        added.append(_added(len(tokenizer), MASK) | options)
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts,
        "post_processor": _frame(FRAMES.get(task, FRAMED), int(task == "question_answering")),
    }  # fmt: skip


def _added(id: int, name: str) -> Entry:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": name, **flags, "special": True}


def _frame(parts: Iterable[str | int], segment: int) -> Entry:
    """Return the special tokens around a text; a second one is of this segment."""

    def item(part: str | int, text: str, segment: int) -> Entry:
        if isinstance(part, int):
            return {"SpecialToken": {"id": SPECIALS[part], "type_id": segment}}
        return {"Sequence": {"id": text, "type_id": segment}}

    single = [item(p, "A", 0) for p in parts]
    second = [item(p, "B", segment) for p in parts if p != BOS]
    names = {SPECIALS[id]: id for id in parts if isinstance(id, int)}
    special = {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in names.items()}
    return {
        "type": "TemplateProcessing", "single": single, "pair": single + second,
        "special_tokens": special,
    }  # fmt: skip


def _replace(pattern: str, content: str, kind: str = "String") -> Entry:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _normalizer(config: TextConfig, escaped: str, *last: Entry) -> Entry:
    lower = [_replace(LAST_SIGMA, "ς", "Regex"), {"type": "Lowercase"}, {"type": "NFC"}]
    steps = [
        {"type": "NFC"}, *(lower if config.lowercase else ()),
        _replace(NOT_TEXT, "\ufffd", "Regex"), _replace(SPACES, " ", "Regex"), *last,
        *(_replace(c, ESCAPES[ord(c)]) for c in escaped),
    ]  # fmt: skip
    return {"type": "Sequence", "normalizers": steps}


def _decoder(escaped: str, *first: Entry) -> Entry:
    steps = [
        _replace(SPECIALS[UNK], UNKNOWN), *first, {"type": "Fuse"},
        *(_replace(ESCAPES[ord(c)], c) for c in escaped),
        _replace(SPACES, " ", "Regex"), _replace("^ | $", "", "Regex"),  # Strip fails on ""
    ]  # fmt: skip
    return {"type": "Sequence", "decoders": steps}


def _subwords(tokenizer: SentencePieceTokenizer) -> Entry:
    """Return normalizer, pre-tokenizer, model and decoder of BPE or unigram."""
    kept, is_bpe = kept_escapes(tokenizer), tokenizer.config.kind == "bpe"
    if not is_bpe and "<" not in kept:
        kept += "<"  # the lattice would find <s> in a text
    names = piece_names(tokenizer, kept)
    scores = [tokenizer.processor.GetScore(id) for id in range(len(names))]
    model: Entry = {
        "type": "Unigram", "unk_id": UNK, "vocab": list(zip(names, scores, strict=True)),
    }  # fmt: skip
    if is_bpe:
        best = sorted(tokenizer.numbers.values(), key=lambda id: -scores[id])
        model = {
            "type": "BPE", "unk_token": SPECIALS[UNK], "fuse_unk": True,
            "vocab": {name: id for id, name in enumerate(names)},
            "merges": list(_merges([names[id] for id in best])),
        }  # fmt: skip
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": True}
    no_last_space = _replace(" $", "", "Regex")  # the first one is Metaspace's
    return {
        "normalizer": _normalizer(tokenizer.config, kept, no_last_space),
        "pre_tokenizer": space,
        "model": model | {"byte_fallback": tokenizer.config.byte_fallback},
        "decoder": _decoder(kept, {"type": "ByteFallback"}, _replace(SPACE, " ")),
    }


def _merges(pieces: list[str]) -> Iterator[tuple[str, str]]:
    """Yield every pair of pieces that makes a piece, the best piece first."""
    known = set(pieces)
    for piece in pieces:
        for at in range(1, len(piece)):
            if piece[:at] in known and piece[at:] in known:
                yield piece[:at], piece[at:]


def _units(tokenizer: CharWordTokenizer) -> Entry:
    """Return normalizer, pre-tokenizer, model and decoder of characters or words."""
    in_words = tokenizer.config.kind == "words"
    escaped = "<" if in_words else ""  # so that the word <s> is not the token
    units = [unit.replace("<", ESCAPES[ord("<")]) if in_words else unit for unit in tokenizer.units]
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    normalizer = _normalizer(tokenizer.config, escaped, strip)
    split = {"type": "Split", "pattern": {"Regex": "[^ ]"}, "behavior": "Isolated", "invert": False}
    steps = [split | {"pattern": {"String": " "}, "behavior": "Removed"}] if in_words else [split]
    if tokenizer.config.jamo:
        normalizer["normalizers"].append({"type": "NFD"})
        units = [unicodedata.normalize("NFD", unit) for unit in units]
        steps.append(split | {"pattern": {"Regex": JAMO}})
    spaced = [{"type": "WordPiece", "prefix": JOINT, "cleanup": False}] if in_words else []
    vocab = {name: id for id, name in enumerate([*SPECIALS, *units])}
    return {
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": SPECIALS[UNK]},
        "decoder": _decoder(escaped, *spaced),
    }


def write_tokenizer(
    tokenizers: TokenizerPair, folder: Path, task: str, max_length: int | None = None
) -> str:
    """Write the files that `AutoTokenizer.from_pretrained(folder)` reads; return a description.

    The tokenizer of the source is in the folder itself. With two vocabularies, that of the target
    is in target_tokenizer: `AutoTokenizer.from_pretrained(folder, subfolder="target_tokenizer")`.

    task: of the model, see `fast_tokenizer`; max_length: tokens that it reads, None if unlimited.
    """
    source, target = tokenizers.source, tokenizers.target
    if isinstance(source, HuggingFaceTokenizer):
        write_files(source, folder, prefix="")
        return "its original files"
    roles = ROLES if task in FRAMES else ROLES | {"mask_token": MASK}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        "model_max_length": UNLIMITED if max_length is None else max_length,
        "split_special_tokens": task not in FILLS, **roles,
    }  # fmt: skip
    sides = {"": source} if target is source else {"": source, TARGET: target}
    for side, tokenizer in sides.items():
        (folder / side).mkdir(exist_ok=True)
        contents = {
            "tokenizer.json": fast_tokenizer(tokenizer, task),
            "tokenizer_config.json": config, "special_tokens_map.json": roles,
        }  # fmt: skip
        for name, content in contents.items():
            write_json(folder / side / name, content, indent=1)
    described = " and ".join(f"{len(side):,}" for side in sides.values())
    return f"{described} ids, as tokenizer.json"


def write_json(path: Path, values: Entry, indent: int = 2) -> None:
    """Write a file of JSON."""
    text = json.dumps(values, ensure_ascii=False, indent=indent) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")
