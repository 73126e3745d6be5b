"""A translation or a text, token by token: what else could have stood there, and what if it did.

walk = steps(polyhead.load("runs/mine"), "내일 회의가 있어요.", forced=[17])
walk.steps[1].alternatives          # the likeliest tokens after the first, which was forced

beam_tree(translator, "내일 회의가 있어요.")        # all hypotheses that beam search kept
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from polyhead.decoding.beam_trace import Tree, grow_tree
from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.trace import TraceStep, open_walk
from polyhead.errors import ConfigError
from polyhead.pipelines.segments import longest_output
from polyhead.pipelines.text_generator import TextGenerator, spelled
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import BOS, EOS
from polyhead.tokenizers.base import Tokenizer


class InvalidInputError(ConfigError):
    """A text or a beginning that a model cannot take; `code` says why, for programs."""

    def __init__(self, message: str, code: Literal["empty", "too_long", "bad_token"]) -> None:
        super().__init__(message)
        self.code: Literal["empty", "too_long", "bad_token"] = code


@dataclass(frozen=True)
class Alternative:
    """A token and how likely it was."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Step:
    """The token that was taken (or forced), and the likeliest ones, likeliest first."""

    id: int
    text: str
    probability: float
    forced: bool
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class StepTrace:
    """All steps of an output. `ended`: the model closed it, it was not cut off."""

    steps: tuple[Step, ...]
    text: str
    ids: tuple[int, ...]  # without the EOS that ended it; one that ends a line stays
    ended: bool


def steps(
    model: Translator | TextGenerator,
    text: str,
    *,
    forced: Sequence[int] = (),
    top: int = 5,
    max_tokens: int | None = None,
) -> StepTrace:
    """Go on with the likeliest token each time, after those that are forced."""
    if isinstance(model, Translator):
        return _translate(model, text, forced, top, max_tokens)
    if isinstance(model, TextGenerator):
        return _write(model, text, forced, top, max_tokens)
    raise ConfigError(f"a {type(model).__name__} does not write token by token")


def _translate(
    translator: Translator, text: str, forced: Sequence[int], top: int, max_tokens: int | None
) -> StepTrace:
    source = checked_source(translator, text)
    target = translator.tokenizers.target
    check_forced(forced, target)
    limit = translator.defaults.limit(len(source)) if max_tokens is None else max_tokens
    limit = min(limit, longest_output(translator))
    check_room(forced, limit)
    model = translator.decodable
    read = torch.tensor([source], device=translator.device)
    with torch.inference_mode():
        state = model.begin(read, width=1, max_length=limit)
    walked = list(
        open_walk(
            model, state, last=BOS, forced=forced, limit=limit, top=top, device=translator.device
        )
    )
    ids = tuple(one.id for one in walked)
    ended = ids[-1:] == (EOS,)
    return StepTrace(_named(target, walked), target.decode(ids), ids[:-1] if ended else ids, ended)


def _write(
    writer: TextGenerator, prompt: str, forced: Sequence[int], top: int, max_tokens: int | None
) -> StepTrace:
    ends = writer.tokenizer.reads_line_ends()
    check_forced(forced, writer.tokenizer, ends=ends)
    read = writer.encode(prompt)
    room = writer.context - len(read) + 1
    if room < 1:
        raise InvalidInputError(
            f"the prompt has {len(read)} tokens, but the model reads {writer.context} at once; "
            "give a shorter one",
            "too_long",
        )
    limit = min(room, writer.defaults.max_length if max_tokens is None else max_tokens)
    check_room(forced, limit)
    model: Any = writer.saved.model
    before = torch.tensor([read[:-1]], dtype=torch.long, device=writer.device)
    with torch.inference_mode():
        state = model.begin(before, width=1, max_length=limit)
    walked = list(
        open_walk(
            model, state, last=read[-1], forced=forced, limit=limit, top=top,
            device=writer.device, end=EOS if ends else None,
        )
    )  # fmt: skip
    ids = tuple(one.id for one in walked)
    text = "".join(spelled(writer.tokenizer, read, ids))
    ended = ends and ids[-1:] == (EOS,)
    return StepTrace(_named(writer.tokenizer, walked), text, ids[:-1] if ended else ids, ended)


def beam_tree(
    translator: Translator,
    text: str,
    options: DecodeConfig | None = None,
    forced: Sequence[int] = (),
) -> Tree:
    """Everything that a beam search kept while it translated one sentence."""
    options = translator.defaults if options is None else options
    longest = min(options.max_length, longest_output(translator))
    options = replace(options, sample=False, n_best=options.beam, max_length=longest)
    source = checked_source(translator, text)
    check_forced(forced, translator.tokenizers.target)
    check_room(forced, options.limit(len(source)))
    return grow_tree(
        translator.searched(options), source, options, forced=forced, device=translator.device
    )


def checked_source(translator: Translator, text: str) -> list[int]:
    """The ids of one sentence that the model can read as a whole."""
    if not translator.tokenizers.source.normalise(text):
        raise InvalidInputError("the text is empty: there is nothing to translate", "empty")
    if translator.is_long(text):
        most = translator.max_length
        raise InvalidInputError(
            f"the text is longer than the model's {most} tokens; give one sentence", "too_long"
        )
    return translator.tokenizers.source.encode(text)


def check_forced(forced: Sequence[int], tokenizer: Tokenizer, *, ends: bool = True) -> None:
    """Refuse what a model cannot say."""
    for place, id in enumerate(forced):
        if not BOS < id < len(tokenizer):
            raise InvalidInputError(f"id {id}: expected {EOS} to {len(tokenizer) - 1}", "bad_token")
        if ends and id == EOS and place + 1 < len(forced):
            raise InvalidInputError(
                f"id {EOS} ends the output; nothing can be forced after it", "bad_token"
            )


def check_room(forced: Sequence[int], limit: int) -> None:
    """Refuse a beginning that is longer than the whole may be."""
    if len(forced) > limit:
        raise InvalidInputError(
            f"{len(forced)} tokens are forced, but the output has at most {limit}", "bad_token"
        )


def _named(tokenizer: Tokenizer, walked: Sequence[TraceStep]) -> tuple[Step, ...]:
    """The same with the tokens' names."""
    return tuple(
        Step(
            one.id,
            tokenizer.symbol(one.id),
            math.exp(one.log_p),
            one.forced,
            tuple(Alternative(id, tokenizer.symbol(id), math.exp(p)) for id, p in one.likeliest),
        )
        for one in walked
    )
