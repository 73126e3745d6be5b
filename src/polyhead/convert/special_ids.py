"""The same words under other numbers: their special ids become ours.

Everything here counts on PAD 0, BOS 1, EOS 2, UNK 3, and on [MASK] as the last id of all. Others
number differently, so an imported model is renumbered, once, by moving the rows of its embeddings
and of its output layer:

    ours      pad  bos  eos  unk  all others in their order …  mask

This changes nothing but the names of things. Where they use one id for two purposes (Marian begins
every translation with its padding), the row is copied; an output bias of `NEVER_SAID` keeps the
copy from taking part in a softmax. The inverse, for writing, is exact.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.convert.weight_names import Weights
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
    """Which of their ids serve as ours. What they do not have is None and keeps its number."""

    pad: int
    bos: int
    eos: int
    unk: int | None = None
    mask: int | None = None

    @property
    def copied(self) -> bool:
        """Is one of theirs two of ours?"""
        return self.pad == self.bos

    @property
    def plain(self) -> dict[str, int | None]:
        """For config.json."""
        return asdict(self)


def specials_from(values: Any) -> SpecialIds | None:
    """The inverse of `plain`, for what stands in a file; None stands for no renumbering."""
    if values is None:
        return None
    known = ("pad", "bos", "eos", "unk", "mask")
    if not isinstance(values, dict) or values.keys() != set(known):
        raise CheckpointError(f"config.json: about.imported.specials: expected {', '.join(known)}")
    for name, value in values.items():
        optional = name in ("unk", "mask") and value is None
        if not optional and (type(value) is not int or value < 0):
            raise CheckpointError(f"config.json: about.imported.specials.{name} = {value!r}")
    return SpecialIds(**values)


def order(vocab: int, specials: SpecialIds) -> Int[Tensor, "ours"]:
    """Their id of each of ours, for `vocab` of theirs."""
    first = [specials.pad, specials.bos, specials.eos]
    first += [] if specials.unk is None else [specials.unk]
    last = [] if specials.mask is None else [specials.mask]
    named = first[1:] + last if specials.copied else first + last
    if len(set(named)) < len(named) or max(named) >= vocab:
        raise CheckpointError(
            f"special ids {specials.plain} are not different ids below {vocab}, the size of the "
            "vocabulary"
        )
    taken = set(named)
    return torch.tensor([*first, *(i for i in range(vocab) if i not in taken), *last])


def places(vocab: int, specials: SpecialIds) -> Int[Tensor, "theirs"]:
    """Our id of each of theirs. Of two that were one, the one that is read as input: BOS."""
    theirs = order(vocab, specials).tolist()
    where = {number: place for place, number in enumerate(theirs)}
    return torch.tensor([where[number] for number in range(vocab)])


def enlarged(vocab: int, specials: SpecialIds | None) -> int:
    """How many ids we have for so many of theirs."""
    return vocab + int(specials is not None and specials.copied)


def renumbered(family: str, weights: Mapping[str, Tensor], specials: SpecialIds) -> Weights:
    """A model's weights with our numbers."""
    found = dict(weights)
    for name in ROWS[family]:
        if name in found:
            found[name] = found[name][order(len(found[name]), specials)]
            if name.endswith(".bias") and specials.copied:
                found[name][BOS] = NEVER_SAID
    return found


def restored(family: str, weights: Mapping[str, Tensor], specials: SpecialIds) -> Weights:
    """A model's weights with their numbers: the inverse of `renumbered`."""
    found = dict(weights)
    for name in ROWS[family]:
        if name in found:
            ours = found[name]
            found[name] = ours[places(len(ours) - int(specials.copied), specials)]
            if name.endswith(".bias") and specials.copied:
                found[name][specials.pad] = ours[PAD]
    return found


def read_as(ids: Int[Tensor, "*shape"], vocab: int, specials: SpecialIds | None) -> Tensor:
    """Their ids in our numbers. What is padding there is padding here."""
    if specials is None:
        return ids
    table = places(vocab, specials)
    table[specials.pad] = PAD
    return table[ids]


def written_as(
    logits: Float[Tensor, "*shape ours"], specials: SpecialIds | None
) -> Float[Tensor, "*shape theirs"]:
    """Logits of our ids in the order of theirs."""
    if specials is None:
        return logits
    table = places(logits.size(-1) - int(specials.copied), specials)
    table[specials.pad] = PAD
    return logits[..., table]


def with_our_ids(family: str, config: Any, specials: SpecialIds | None) -> Any:
    """A configuration after its model was renumbered."""
    if specials is None:
        return config
    if specials.copied and family not in COPIES:
        raise CheckpointError(
            f"id {specials.pad} is both padding and the beginning of a text, which a {family} of "
            "ours cannot tell apart"
        )
    return _resized(family, config, PAD, int(specials.copied))


def with_their_ids(family: str, config: Any, specials: SpecialIds | None) -> Any:
    """The inverse of `with_our_ids`."""
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
