"""Outputs token by token, with the likeliest alternatives of each step, and forced tokens.

trace = steps(polyhead.load("runs/mine"), "내일 회의가 있어요.", forced=[17])
trace.steps[1].alternatives         # the likeliest tokens after the first, which was forced

beam_tree(translator, "내일 회의가 있어요.")        # all hypotheses that beam search kept
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.trace import BeamTree, trace_beam_search
from polyhead.errors import ConfigError, InvalidInputError
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.text_generator import (
    ScoredToken,
    TextGenerator,
    check_forced,
    scored,
    stream_text,
)
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import BOS, EOS


@dataclass(frozen=True)
class Step(ScoredToken):
    """The token that was chosen (or forced), and the likeliest ones, likeliest first."""

    forced: bool
    alternatives: tuple[ScoredToken, ...]


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
    options: DecodeConfig | None = None,
    seed: int = 0,
) -> StepTrace:
    """Decode token by token after the forced ones, and return all steps.

    With the options and the seed of `TextGenerator.generate` the tokens are the same, also if some
    of the first are forced.

    model: a translator or a text generator.
    text: the source, or the prompt.
    top: the number of alternatives of each step.
    max_tokens: the limit of the output; that of the model's decoding options unless given.
    options: how to sample; greedy search unless given.
    seed: of the random numbers if `options.sample` is set.
    """
    if not isinstance(model, Translator | TextGenerator):
        raise ConfigError(f"{type(model).__name__}: does not write token by token", "wrong_task")
    options = replace(model.defaults, sample=False, n_best=1) if options is None else options
    limit = options.max_length if max_tokens is None else max_tokens
    if isinstance(model, Translator):
        tokenizer, has_end = model.tokenizers.target, True
        read = [*checked_source(model, text), BOS]
        limit = options.limit(len(read) - 1) if max_tokens is None else max_tokens
        limit = min(limit, model.max_output_length)
        context = len(read) + limit
    else:
        tokenizer, has_end = model.tokenizer, model.has_end
        read, context = model.encode(text), model.max_length
    check_forced(forced, tokenizer, limit, has_end=has_end)
    trace: list[Step] = []
    options = replace(options, max_length=limit)
    for step in model.torch.generate(read, options, seed, context, forced=forced, top=top):
        likeliest = tuple(scored(tokenizer, choice) for choice in step.likeliest)
        chosen = scored(tokenizer, step.chosen)
        trace.append(Step(**vars(chosen), forced=step.forced, alternatives=likeliest))
        if has_end and chosen.id == EOS:
            break
    ids = tuple(step.id for step in trace)
    ended = has_end and ids[-1:] == (EOS,)
    if isinstance(model, Translator):
        output = tokenizer.decode(ids)
    else:
        output = "".join(stream_text(tokenizer, read, ids))
    return StepTrace(tuple(trace), output, ids[:-1] if ended else ids, ended)


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
    check_forced(forced, translator.tokenizers.target, options.limit(len(source)))
    model = translator.torch.decodable(record_attention=options.coverage > 0)
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
