"""Which of a tokenizer's ids are special, read from its files without the library that made them.

BERT, ELECTRA    [PAD] [CLS] [SEP] [UNK] [MASK], or what special_tokens_map.json says
Marian           padding, beginning and end stand in the model's config.json, <unk> in vocab.json
GPT-2            has only <|endoftext|>; three bytes that no UTF-8 text contains serve as the rest
"""

import json
from collections.abc import Mapping
from typing import Any

from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.weight_names import whole
from polyhead.errors import CheckpointError

Files = Mapping[str, bytes]
ROLES = {"pad": "pad_token", "bos": "cls_token", "eos": "sep_token", "unk": "unk_token",
         "mask": "mask_token"}  # fmt: skip
BERTS = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
END_OF_TEXT = "<|endoftext|>"
NOT_UTF8 = [chr(byte) for byte in (0xC0, 0xC1, 0xF5, 0xF6, 0xF7)]  # as GPT-2 spells these bytes


def specials_of(family: str, values: Mapping[str, Any], files: Files) -> SpecialIds | None:
    """The special ids of a model and its tokenizer; None if there are not enough of them."""
    if family == "transformer":
        return _marians(values, files)
    if family == "vit":
        return None
    vocabulary = _vocabulary(files)
    if not vocabulary:
        return None
    given = _names(files)
    if family == "gpt":
        return _gpts(vocabulary, given)
    names = {role: given.get(key, BERTS[role]) for role, key in ROLES.items()}
    found = {role: vocabulary[name] for role, name in names.items() if name in vocabulary}
    if len(set(found.values())) < len(ROLES):
        return None
    return SpecialIds(**found)


def _marians(values: Mapping[str, Any], files: Files) -> SpecialIds:
    pad = whole(values, "pad_token_id")
    start = whole({"decoder_start_token_id": pad, **values}, "decoder_start_token_id")
    eos = whole({"eos_token_id": 0, **values}, "eos_token_id")
    unk = _table(files["vocab.json"]).get("<unk>") if "vocab.json" in files else None
    return SpecialIds(pad, start, eos, unk)


def _gpts(vocabulary: Mapping[str, int], given: Mapping[str, str]) -> SpecialIds | None:
    end = vocabulary.get(given.get("eos_token", END_OF_TEXT))
    if end is None:
        return None
    unused = [vocabulary[name] for name in NOT_UTF8 if name in vocabulary]
    chosen = {"eos": end}
    for role, key in (("pad", "pad_token"), ("bos", "bos_token"), ("unk", "unk_token")):
        named = vocabulary.get(given.get(key, ""))
        if named is not None and named not in chosen.values():
            chosen[role] = named
        elif unused:
            chosen[role] = unused.pop(0)
        else:
            return None
    return SpecialIds(**chosen)


def _vocabulary(files: Files) -> dict[str, int]:
    """Every token with its number, from whichever file there is."""
    if "tokenizer.json" in files:
        whole_file = _table(files["tokenizer.json"])
        model = whole_file.get("model")
        words = model.get("vocab") if isinstance(model, dict) else None
        found = dict(words) if isinstance(words, dict) else {}
        for token in whole_file.get("added_tokens") or []:
            if isinstance(token, dict):
                found[str(token.get("content"))] = token.get("id")
    elif "vocab.txt" in files:
        lines = files["vocab.txt"].decode("utf-8", "replace").splitlines()
        found = {word: id for id, word in enumerate(lines)}
    else:
        found = _table(files.get("vocab.json", b"{}"))
    if any(type(id) is not int or id < 0 for id in found.values()):
        raise CheckpointError("the tokenizer's files number their tokens with something else")
    return found


def _names(files: Files) -> dict[str, str]:
    """What the special tokens are called: written as text, or as a table with `content`."""
    found: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        for key, value in _table(files.get(name, b"{}")).items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                found[key] = text
    return found


def _table(content: bytes) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise CheckpointError("a file of the tokenizer cannot be read as a table in JSON")
    return values
