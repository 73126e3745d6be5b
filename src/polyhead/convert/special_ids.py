"""Special ids of foreign models, and their renumbering to ours.

Polyhead expects PAD 0, BOS 1, EOS 2, UNK 3, and [MASK] as the last id. An imported model is
renumbered once, by moving the rows of its embeddings and of its output layer:

    ours      pad  bos  eos  unk  all others in their order …  mask

Where one foreign id serves two purposes (Marian starts every translation with its padding), the row
is copied; an output bias of `NEVER_SAID` keeps the copy out of the softmax. The inverse, for
export, is exact.

The special ids of a tokenizer are read from its files:

BERT, ELECTRA    [PAD] [CLS] [SEP] [UNK] [MASK], or as special_tokens_map.json says
Marian           pad, bos and eos are in the model's config.json, <unk> in vocab.json
GPT-2            has only <|endoftext|>; three bytes that no UTF-8 text contains serve as the rest
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.convert.weight_names import Weights, whole
from polyhead.errors import CheckpointError
from polyhead.special_tokens import BOS, PAD

NEVER_SAID = -1e4  # a logit whose exponential is zero, and yet a number
COPIES = {"transformer"}  # families whose output layer has a bias to silence a copy with
ROWS = {  # tensors with one row for each id
    "transformer": (
        "embed_source.tokens.weight",
        "embed_target.tokens.weight",
        "to_logits.weight",
        "to_logits.bias",
    ),
    "gpt": ("embed.tokens.weight", "to_logits.weight"),
    "bert": ("encoder.embed.embed.tokens.weight", "to_logits.weight", "to_logits.bias"),
    "classifier": ("encoder.embed.embed.tokens.weight",),
    "electra": (
        "generator.encoder.embed.embed.tokens.weight",
        "generator.to_logits.weight",
        "generator.to_logits.bias",
        "discriminator.embed.embed.tokens.weight",
    ),
    "vit": (),
}


@dataclass(frozen=True)
class SpecialIds:
    """Foreign ids that serve as our special ids; None where there is none."""

    pad: int
    bos: int
    eos: int
    unk: int | None = None
    mask: int | None = None

    @property
    def copied(self) -> bool:
        """True if one foreign id serves as two of ours."""
        return self.pad == self.bos

    @property
    def plain(self) -> dict[str, int | None]:
        """Values for config.json."""
        return asdict(self)


def specials_from(values: Any) -> SpecialIds | None:
    """Parse the values of `plain`; None stands for no renumbering."""
    if values is None:
        return None
    known = ("pad", "bos", "eos", "unk", "mask")
    if not isinstance(values, dict) or values.keys() != set(known):
        raise CheckpointError(
            f"config.json: about.imported.specials: expected {', '.join(known)}",
            "invalid_special_ids",
        )
    for name, value in values.items():
        optional = name in ("unk", "mask") and value is None
        if not optional and (type(value) is not int or value < 0):
            raise CheckpointError(
                f"config.json: about.imported.specials.{name} = {value!r}", "invalid_special_ids"
            )
    return SpecialIds(**values)


def foreign_ids(vocab: int, specials: SpecialIds) -> Int[Tensor, "ours"]:
    """Return the foreign id of each of ours, for `vocab` foreign ids."""
    first = [specials.pad, specials.bos, specials.eos]
    first += [] if specials.unk is None else [specials.unk]
    last = [] if specials.mask is None else [specials.mask]
    named = first[1:] + last if specials.copied else first + last
    if len(set(named)) < len(named) or max(named) >= vocab:
        raise CheckpointError(
            f"special ids {specials.plain} are not different ids below {vocab}, the size of the "
            "vocabulary",
            "invalid_special_ids",
        )
    taken = set(named)
    return torch.tensor([*first, *(i for i in range(vocab) if i not in taken), *last])


def our_ids(vocab: int, specials: SpecialIds) -> Int[Tensor, "theirs"]:
    """Return our id of each foreign id; BOS for an id that is both padding and BOS."""
    theirs = foreign_ids(vocab, specials).tolist()
    where = {number: place for place, number in enumerate(theirs)}
    return torch.tensor([where[number] for number in range(vocab)])


def enlarged(vocab: int, specials: SpecialIds | None) -> int:
    """Return our number of ids for `vocab` foreign ids."""
    return vocab + int(specials is not None and specials.copied)


def renumbered(family: str, weights: Mapping[str, Tensor], specials: SpecialIds) -> Weights:
    """Return a model's weights with our ids."""
    rows = dict(weights)
    for name in ROWS[family]:
        if name in rows:
            rows[name] = rows[name][foreign_ids(len(rows[name]), specials)]
            if name.endswith(".bias") and specials.copied:
                rows[name][BOS] = NEVER_SAID
    return rows


def restored(family: str, weights: Mapping[str, Tensor], specials: SpecialIds) -> Weights:
    """Return a model's weights with the foreign ids: the inverse of `renumbered`."""
    rows = dict(weights)
    for name in ROWS[family]:
        if name in rows:
            ours = rows[name]
            rows[name] = ours[our_ids(len(ours) - int(specials.copied), specials)]
            if name.endswith(".bias") and specials.copied:
                rows[name][specials.pad] = ours[PAD]
    return rows


def to_our_ids(ids: Int[Tensor, "*shape"], vocab: int, specials: SpecialIds | None) -> Tensor:
    """Translate foreign ids to ours; padding stays padding."""
    if specials is None:
        return ids
    table = our_ids(vocab, specials)
    table[specials.pad] = PAD
    return table[ids]


def to_foreign_logits(
    logits: Float[Tensor, "*shape ours"], specials: SpecialIds | None
) -> Float[Tensor, "*shape theirs"]:
    """Return logits in the order of the foreign ids."""
    if specials is None:
        return logits
    table = our_ids(logits.size(-1) - int(specials.copied), specials)
    table[specials.pad] = PAD
    return logits[..., table]


def with_our_ids(family: str, config: Any, specials: SpecialIds | None) -> Any:
    """Return the configuration of a model after renumbering."""
    if specials is None:
        return config
    if specials.copied and family not in COPIES:
        raise CheckpointError(
            f"id {specials.pad} is both padding and BOS, which the family {family} cannot "
            "distinguish",
            "invalid_special_ids",
        )
    return _resized(family, config, PAD, int(specials.copied))


def with_their_ids(family: str, config: Any, specials: SpecialIds | None) -> Any:
    """Return the configuration before renumbering: the inverse of `with_our_ids`."""
    if specials is None:
        return config
    return _resized(family, config, specials.pad, -int(specials.copied))


def _resized(family: str, config: Any, pad: int, more: int) -> Any:
    if family == "transformer":
        source, target = config.source_vocab + more, config.target_vocab + more
        return replace(config, source_vocab=source, target_vocab=target, pad=pad)
    if family == "classifier":
        return replace(config, encoder=replace(config.encoder, pad=pad))
    return config if family == "gpt" else replace(config, pad=pad)


Files = Mapping[str, bytes]
ROLES = {"pad": "pad_token", "bos": "cls_token", "eos": "sep_token", "unk": "unk_token",
         "mask": "mask_token"}  # fmt: skip
BERTS = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
END_OF_TEXT = "<|endoftext|>"
NOT_UTF8 = [chr(byte) for byte in (0xC0, 0xC1, 0xF5, 0xF6, 0xF7)]  # as GPT-2 spells these bytes


def special_ids_of(family: str, values: Mapping[str, Any], files: Files) -> SpecialIds | None:
    """Return the special ids of a model and its tokenizer; None if some are missing."""
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
    known = {role: vocabulary[name] for role, name in names.items() if name in vocabulary}
    if len(set(known.values())) < len(ROLES):
        return None
    return SpecialIds(**known)


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
    """Return the id of every token, from the first file that exists."""
    if "tokenizer.json" in files:
        whole_file = _table(files["tokenizer.json"])
        model = whole_file.get("model")
        words = model.get("vocab") if isinstance(model, dict) else None
        known = dict(words) if isinstance(words, dict) else {}
        for token in whole_file.get("added_tokens") or []:
            if isinstance(token, dict):
                known[str(token.get("content"))] = token.get("id")
    elif "vocab.txt" in files:
        lines = files["vocab.txt"].decode("utf-8", "replace").splitlines()
        known = {word: id for id, word in enumerate(lines)}
    else:
        known = _table(files.get("vocab.json", b"{}"))
    if any(type(id) is not int or id < 0 for id in known.values()):
        raise CheckpointError(
            "the tokenizer's files have ids that are not natural numbers", "invalid_special_ids"
        )
    return known


def _names(files: Files) -> dict[str, str]:
    """Return the names of the special tokens, given as text or as a table with `content`."""
    known: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        for key, value in _table(files.get(name, b"{}")).items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                known[key] = text
    return known


def _table(content: bytes) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise CheckpointError(
            "a file of the tokenizer cannot be read as a table in JSON", "invalid_special_ids"
        )
    return values
