"""Outputs token by token, with the likeliest alternatives of each step, and forced tokens.

trace = steps(polyhead.load("runs/mine"), "내일 회의가 있어요.", forced=[17])
trace.steps[1].alternatives         # the likeliest tokens after the first, which was forced

beam_tree(translator, "내일 회의가 있어요.")        # all hypotheses that beam search kept
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.trace import BeamTree, TraceStep, step_trace, trace_beam_search
from polyhead.errors import ConfigError
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.text_generator import TextGenerator, stream_text
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import BOS, EOS
from polyhead.tokenizers.base import Tokenizer

InputCode = Literal["empty", "too_long", "bad_token"]


class InvalidInputError(ConfigError):
    """A text or a forced beginning that a model cannot take."""

    def __init__(self, message: str, code: InputCode) -> None:
        super().__init__(message, code)
        self.code: InputCode = code


@dataclass(frozen=True)
class Alternative:
    """A token and its probability."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Step:
    """The token that was chosen (or forced), and the likeliest ones, likeliest first."""

    id: int
    text: str
    probability: float
    forced: bool
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class StepTrace:
    """All steps of an output; `ended` is True if it ended with EOS, not at the length limit."""

    steps: tuple[Step, ...]
    text: str
    ids: tuple[int, ...]  # without the EOS that ended it; one that ends a line stays
    ended: bool


def steps(
    model: Pipeline,
    text: str,
    *,
    forced: Sequence[int] = (),
    top: int = 5,
    max_tokens: int | None = None,
) -> StepTrace:
    """Decode greedily after the forced tokens, and return all steps.

    model: a translator or a text generator.
    text: the source, or the prompt.
    top: the number of alternatives of each step.
    max_tokens: the limit of the output; that of the model's decoding options unless given.
    """
    decoder: Any
    end: int | None
    if isinstance(model, Translator):
        decoder, tokenizer, end = model.decodable(), model.tokenizers.target, EOS
        read = [*checked_source(model, text), BOS]
        limit = model.defaults.limit(len(read) - 1) if max_tokens is None else max_tokens
        limit = min(limit, model.max_output_length)
    elif isinstance(model, TextGenerator):
        decoder, tokenizer = model.model, model.tokenizer
        end = EOS if tokenizer.reads_line_ends() else None
        read = model.encode(text)
        room = model.max_length - len(read) + 1
        if room < 1:
            raise InvalidInputError(
                f"the prompt has {len(read)} tokens, but the model reads {model.max_length} at "
                "once; shorten it",
                "too_long",
            )
        limit = min(room, model.defaults.max_length if max_tokens is None else max_tokens)
    else:
        raise ConfigError(f"{type(model).__name__}: does not write token by token", "wrong_task")
    check_forced(forced, tokenizer, has_end=end is not None)
    check_room(forced, limit)
    source = torch.tensor([read[:-1]], dtype=torch.long, device=model.device)
    with torch.inference_mode():
        state = decoder.begin(source, width=1, max_length=limit)
    trace = list(
        step_trace(
            decoder, state, last=read[-1], forced=forced, limit=limit, top=top,
            device=model.device, end=end,
        )
    )  # fmt: skip
    ids = tuple(step.id for step in trace)
    ended = end is not None and ids[-1:] == (end,)
    if isinstance(model, Translator):
        output = tokenizer.decode(ids)
    else:
        output = "".join(stream_text(tokenizer, read, ids))
    return StepTrace(_named(tokenizer, trace), output, ids[:-1] if ended else ids, ended)


def beam_tree(
    translator: Translator,
    text: str,
    options: DecodeConfig | None = None,
    forced: Sequence[int] = (),
) -> BeamTree:
    """Return all hypotheses that a beam search kept while it translated one sentence."""
    options = translator.defaults if options is None else options
    longest = min(options.max_length, translator.max_output_length)
    options = replace(options, sample=False, n_best=options.beam, max_length=longest)
    source = checked_source(translator, text)
    check_forced(forced, translator.tokenizers.target)
    check_room(forced, options.limit(len(source)))
    model = translator.decodable(record_attention=options.coverage > 0)
    return trace_beam_search(model, source, options, forced=forced, device=translator.device)


def checked_source(translator: Translator, text: str) -> list[int]:
    """Return the ids of one sentence that the model can read as a whole."""
    (parts,) = translator.split_lines([text], split_sentences=False)
    if not parts or not translator.tokenizer.normalise(text):
        raise InvalidInputError("the text is empty", "empty")
    if len(parts) > 1:
        raise InvalidInputError(
            f"the text is longer than the model's {translator.max_length} tokens; give one "
            "sentence",
            "too_long",
        )
    return parts[0].ids


def check_forced(forced: Sequence[int], tokenizer: Tokenizer, *, has_end: bool = True) -> None:
    """Raise if a model cannot write these ids."""
    for place, id in enumerate(forced):
        if not BOS < id < len(tokenizer):
            raise InvalidInputError(f"id {id}: expected {EOS} to {len(tokenizer) - 1}", "bad_token")
        if has_end and id == EOS and place + 1 < len(forced):
            raise InvalidInputError(
                f"id {EOS} ends the output; no token can follow it", "bad_token"
            )


def check_room(forced: Sequence[int], limit: int) -> None:
    """Raise if the forced beginning is longer than the output may be."""
    if len(forced) > limit:
        raise InvalidInputError(
            f"{len(forced)} tokens are forced, but the output has at most {limit}", "bad_token"
        )


def _named(tokenizer: Tokenizer, trace: Sequence[TraceStep]) -> tuple[Step, ...]:
    """Add the names of the tokens."""
    return tuple(
        Step(
            step.id,
            tokenizer.symbol(step.id),
            math.exp(step.log_p),
            step.forced,
            tuple(Alternative(id, tokenizer.symbol(id), math.exp(p)) for id, p in step.likeliest),
        )
        for step in trace
    )
