"""Special ids of foreign models, and their renumbering to ours.

Polyhead expects PAD 0, BOS 1, EOS 2, UNK 3, and [MASK] as the last id. An imported model is
renumbered once, by moving the rows of its embeddings and of its output layer:

    ours      pad  bos  eos  unk  all others in their order …  mask

Where one foreign id serves two purposes (Marian starts every translation with its padding, some
with EOS), the row is copied; an output bias of `NEVER_SAID` keeps the copy out of the softmax. The
inverse, for export, is exact.

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
from polyhead.models.registry import FAMILIES, FINE_TUNED, encoder_config, vocab_fields
from polyhead.special_tokens import BOS, EOS, PAD

Files = Mapping[str, bytes]
ROLES = {"pad": "pad_token", "bos": "cls_token", "eos": "sep_token", "unk": "unk_token",
         "mask": "mask_token"}  # fmt: skip
BERTS = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
END_OF_TEXT = "<|endoftext|>"
NOT_UTF8 = [chr(byte) for byte in (0xC0, 0xC1, 0xF5, 0xF6, 0xF7)]  # as GPT-2 spells these bytes
NEVER_SAID = -1e4  # a logit whose exponential is zero, and yet a number


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
        """True if one foreign id serves as two of ours: BOS and padding, or BOS and EOS."""
        return self.bos in (self.pad, self.eos)


def specials_from(values: Any) -> SpecialIds | None:
    """Parse the values that an import has recorded; None stands for no renumbering."""
    if values is None:
        return None
    if not isinstance(values, dict) or values.keys() != ROLES.keys():
        raise CheckpointError(
            f"config.json: about.imported.specials: expected {', '.join(ROLES)}",
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
    named = [*first[:1], *first[2:], *last] if specials.copied else first + last
    if len(set(named)) < len(named) or max(named) >= vocab:
        shown = ", ".join(f"{n} {id}" for n, id in asdict(specials).items() if id is not None)
        raise CheckpointError(
            f"special ids {shown}: expected ids below {vocab}, the size of the vocabulary, all "
            "different except that bos may be pad or eos",
            "invalid_special_ids",
        )
    taken = set(named)
    return torch.tensor([*first, *(i for i in range(vocab) if i not in taken), *last])


def id_tables(config: Any, specials: SpecialIds | None) -> list[Int[Tensor, "ours"]]:
    """Return the foreign id of each of our ids: of the source, and of the target."""
    return [
        torch.arange(vocab) if specials is None else foreign_ids(vocab, specials)
        for vocab in vocab_sizes(with_their_ids(config, specials))
    ]


def vocab_sizes(config: Any) -> tuple[int, int]:
    """Return the numbers of ids of source and target, or of the only vocabulary; 0 for images."""
    part = encoder_config(config)
    sizes = [getattr(part, name) for name in vocab_fields(part)] or [0]
    return sizes[0], sizes[-1]


def our_ids(vocab: int, specials: SpecialIds) -> Int[Tensor, "theirs"]:
    """Return our id of each foreign id: BOS if it is padding too, EOS if it is BOS and EOS."""
    theirs = foreign_ids(vocab, specials).tolist()
    where = {number: place for place, number in enumerate(theirs)}
    return torch.tensor([where[number] for number in range(vocab)])


def renumbered(family: str, weights: Mapping[str, Tensor], specials: SpecialIds) -> Weights:
    """Return a model's weights with our ids."""
    rows = dict(weights)
    for name in _rows_of_ids(family, weights):
        rows[name] = rows[name][foreign_ids(len(rows[name]), specials)]
        if name.endswith(".bias") and specials.copied:
            rows[name][BOS] = NEVER_SAID
    return rows


def restored(family: str, weights: Mapping[str, Tensor], specials: SpecialIds) -> Weights:
    """Return a model's weights with the foreign ids: the inverse of `renumbered`."""
    rows = dict(weights)
    start = rows.get("embed_target.tokens.weight", rows.get("embed_source.tokens.weight"))
    if start is not None and specials.bos == specials.eos and not start[BOS].equal(start[EOS]):
        raise CheckpointError(
            "the original's decoder starts with EOS, and this model was trained to start with "
            "another vector, for which the original's vocabulary has no id",
            "not_exportable",
        )
    for name in _rows_of_ids(family, weights):
        ours = rows[name]
        rows[name] = ours[our_ids(len(ours) - int(specials.copied), specials)]
        if name.endswith(".bias") and specials.bos == specials.pad:
            rows[name][specials.pad] = ours[PAD]
    return rows


def _rows_of_ids(family: str, weights: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors with one row for each id: embeddings and output layers."""
    classifies = FAMILIES[family].task in (*FINE_TUNED, "image_classification")
    output = () if classifies else ("to_logits.weight", "to_logits.bias")
    return [name for name in weights if name.endswith((".tokens.weight", *output))]


def to_our_ids(ids: Int[Tensor, "*shape"], vocab: int, specials: SpecialIds | None) -> Tensor:
    """Translate foreign ids to ours; padding stays padding."""
    return ids if specials is None else _padded(vocab, specials)[ids]


def to_foreign_logits(
    logits: Float[Tensor, "*shape ours"], specials: SpecialIds | None
) -> Float[Tensor, "*shape theirs"]:
    """Return logits in the order of the foreign ids."""
    if specials is None:
        return logits
    return logits[..., _padded(logits.size(-1) - int(specials.copied), specials)]


def _padded(vocab: int, specials: SpecialIds) -> Int[Tensor, "theirs"]:
    """Return our id of each foreign id: padding also where it is BOS too."""
    table = our_ids(vocab, specials)
    table[specials.pad] = PAD
    return table


def with_our_ids(config: Any, specials: SpecialIds | None) -> Any:
    """Return the configuration of a model after renumbering."""
    return config if specials is None else _resized(config, PAD, int(specials.copied))


def with_their_ids(config: Any, specials: SpecialIds | None) -> Any:
    """Return the configuration before renumbering: the inverse of `with_our_ids`."""
    return config if specials is None else _resized(config, specials.pad, -int(specials.copied))


def _resized(config: Any, pad: int, n_more: int) -> Any:
    encoder = encoder_config(config)
    if encoder is not config:
        return replace(config, encoder=_resized(encoder, pad, n_more))
    changes = {name: getattr(config, name) + n_more for name in vocab_fields(config)}
    return replace(config, **changes, **({"pad": pad} if hasattr(config, "pad") else {}))


def bert_ids(_: Mapping[str, Any], files: Files) -> SpecialIds | None:
    """Return the special ids of BERT and ELECTRA; None if the tokenizer lacks one of the five."""
    vocabulary, given = _vocabulary(files), _names(files)
    names = {role: given.get(key, BERTS[role]) for role, key in ROLES.items()}
    known = {role: vocabulary[name] for role, name in names.items() if name in vocabulary}
    return SpecialIds(**known) if len(set(known.values())) == len(ROLES) else None


def marian_ids(values: Mapping[str, Any], files: Files) -> SpecialIds:
    """Return the special ids of Marian."""
    pad = whole(values, "pad_token_id")
    start = whole({"decoder_start_token_id": pad, **values}, "decoder_start_token_id")
    eos = whole({"eos_token_id": 0, **values}, "eos_token_id")
    table = {name: content for name, content in files.items() if name == "vocab.json"}
    return SpecialIds(pad, start, eos, _vocabulary(table).get("<unk>"))


def gpt2_ids(_: Mapping[str, Any], files: Files) -> SpecialIds | None:
    """Return the special ids of GPT-2; unused bytes stand for those that it lacks."""
    vocabulary, given = _vocabulary(files), _names(files)
    end = vocabulary.get(given.get("eos_token", END_OF_TEXT))
    if end is None:
        return None
    chosen = {"eos": end}
    for role, key in (("pad", "pad_token"), ("bos", "bos_token"), ("unk", "unk_token")):
        ids = (vocabulary.get(name) for name in (given.get(key, ""), *NOT_UTF8))
        free = next((id for id in ids if id is not None and id not in chosen.values()), None)
        if free is None:
            return None
        chosen[role] = free
    return SpecialIds(**chosen)


def _vocabulary(files: Files) -> dict[str, int]:
    """Return the id of every token, from the first file that exists."""
    if "tokenizer.json" in files:
        whole_file = _table(files["tokenizer.json"])
        model = whole_file.get("model")
        words = model.get("vocab") if isinstance(model, dict) else None
        known = dict(words) if isinstance(words, dict) else {}
        added = whole_file.get("added_tokens")
        for token in added if isinstance(added, list) else []:
            if isinstance(token, dict):
                known[str(token.get("content"))] = token.get("id")
    elif "vocab.txt" in files:
        lines = files["vocab.txt"].decode("utf-8", "replace").splitlines()
        known = {word: id for id, word in enumerate(lines)}
    else:
        known = _table(files.get("vocab.json", b"{}"))
    if any(type(id) is not int or id < 0 for id in known.values()):
        raise CheckpointError(
            "the tokenizer's files have ids that are not natural numbers", "invalid_token_ids"
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
            "a file of the tokenizer cannot be read as a table in JSON", "broken_tokenizer"
        )
    return values
