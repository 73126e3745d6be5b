"""Continuation of texts; how tokens are chosen is left to an engine.

    prompt → ids → tokens, one by one → text in whole characters → truncated at a stop

This module does not import torch, so that a process with another engine does without it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Unpack, overload

from polyhead.decoding.options import Choice, DecodeConfig, DecodingStep
from polyhead.errors import ConfigError, InvalidInputError
from polyhead.pipelines.result_list import as_texts
from polyhead.pipelines.run_settings import GenerationOptions, TextModel
from polyhead.render import notebook
from polyhead.special_tokens import BOS, EOS
from polyhead.tokenizers.base import Tokenizer

INCOMPLETE = "\ufffd"  # how a tokenizer shows a character of which some bytes are missing
MAX_LINE, KEPT = 64, 16  # ids of a line that are decoded with each new one; what is kept of them


@dataclass(frozen=True)
class ScoredToken:
    """A token that was generated, or could have been.

    text: its name in the vocabulary, where ▁ stands for a space.
    probability: the model's own.
    sampling_probability: that of being drawn, after temperature, top-k and top-p; None for greedy
        search, and for CTranslate2, which does not tell it.
    """

    id: int
    text: str
    probability: float
    sampling_probability: float | None


@dataclass(frozen=True)
class GeneratedText:
    """A continuation, or a part of one, and the tokens that were sampled for it.

    The tokens are all that were sampled: also those of a stop, or EOS, which the text lacks.
    `likeliest` has the likeliest tokens at the place of each.
    """

    text: str
    tokens: tuple[ScoredToken, ...]
    likeliest: tuple[tuple[ScoredToken, ...], ...] = ()

    def __repr__(self) -> str:
        return f"GeneratedText({self.text!r}, {len(self.tokens)} tokens)"

    def _repr_html_(self) -> str:
        tokens = ((token.text.replace("▁", " "), token.probability) for token in self.tokens)
        text = f'<p style="white-space:pre-wrap">{notebook.escape(self.text)}</p>'
        return f"{text}<p>{notebook.words(tokens)}</p>" if self.tokens else text


class TextContinuation(TextModel):
    """Continuation of texts with a language model."""

    use: ClassVar[str] = "generate"

    @abstractmethod
    def steps(
        self,
        ids: Sequence[int],
        options: DecodeConfig,
        seed: int,
        forced: Sequence[int] = (),
        top: int = 0,
    ) -> Iterator[DecodingStep]:
        """Yield `options.max_length` tokens after the ids of a prompt; see `stream_tokens`."""

    @abstractmethod
    def is_fast(self, options: DecodeConfig, forced: Sequence[int] = (), top: int = 0) -> bool:
        """Return whether `steps` computes outside of the interpreter, with CTranslate2."""

    def stream(
        self, prompt: str = "", *, stop: Sequence[str] = (), **how: Unpack[GenerationOptions]
    ) -> Iterator[str]:
        """Yield the continuation incrementally, never splitting a character.

        prompt: after an empty one, a new line begins.
        stop: texts at which generation ends; they are not part of the text.
        how: options of `DecodeConfig` by name, or all as `options`; those of the training run
            unless given. `seed`: of the random numbers if `sample` is set.
        """
        return (part.text for part in self.stream_tokens(prompt, stop=stop, **how) if part.text)

    @overload
    def generate(  # type: ignore[overload-overlap]  # a text is also a sequence of texts
        self, prompt: str = "", *, stop: Sequence[str] = (), **how: Unpack[GenerationOptions]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: Iterable[str], *, stop: Sequence[str] = (), **how: Unpack[GenerationOptions]
    ) -> list[str]: ...
    def generate(
        self,
        prompt: str | Iterable[str] = "",
        *,
        stop: Sequence[str] = (),
        **how: Unpack[GenerationOptions],
    ) -> str | list[str]:
        """Return a continuation of a prompt, or of every prompt of a list; see `stream`.

        Example: `generator.generate("오늘은", sample=True, temperature=0.8, stop=["."])`
        """
        prompts = as_texts(prompt, "generate")
        texts = ["".join(self.stream(text, stop=stop, **how)) for text in prompts]
        return texts[0] if isinstance(prompt, str) else texts

    def generate_tokens(
        self, prompt: str = "", *, stop: Sequence[str] = (), forced: Sequence[int] = (),
        **how: Unpack[GenerationOptions],
    ) -> GeneratedText:  # fmt: skip
        """Return a continuation with the probabilities of its tokens; see `stream_tokens`.

        Example: `generator.generate_tokens("오늘은").tokens[0].probability`
        """
        parts = list(self.stream_tokens(prompt, stop=stop, forced=forced, **how))
        tokens = tuple(token for part in parts for token in part.tokens)
        return GeneratedText("".join(part.text for part in parts), tokens)

    def stream_tokens(
        self, prompt: str = "", *, stop: Sequence[str] = (), forced: Sequence[int] = (),
        top: int = 0, **how: Unpack[GenerationOptions],
    ) -> Iterator[GeneratedText]:  # fmt: skip
        """Yield the continuation in parts of whole characters, with their tokens.

        It has `max_length` tokens. A token for the end of a line is written as one; for
        tokenizers that have ids for line ends, such as an imported GPT-2's, EOS ends the text.

        prompt, stop, how: as in `stream`.
        forced: ids with which the continuation begins.
        top: the number of likeliest tokens to report with each.
        """
        if isinstance(stop, str) or not all(stop):
            message = "stop takes a list of texts, none of them empty; write stop=[text]"
            raise ConfigError(message, "bad_stop")
        options, seed = self.decoding(how, GenerationOptions)
        check_forced(forced, self.tokenizer, options.max_length, has_end=self.has_end)
        ids = self.encode(prompt)
        steps = self.steps(ids, options, seed, forced, top)
        sampled: list[DecodingStep] = []  # since the last part of the text

        def sampled_ids() -> Iterator[int]:
            for step in steps:
                sampled.append(step)
                yield step.chosen.id

        def part(text: str) -> GeneratedText:
            name = partial(scored, self.tokenizer)
            likeliest = tuple(tuple(map(name, step.likeliest)) for step in sampled)
            tokens = tuple(name(step.chosen) for step in sampled)
            sampled.clear()
            return GeneratedText(text, tokens, likeliest if top else ())

        def parts() -> Iterator[GeneratedText]:
            for piece in self.continuation(prompt, ids, sampled_ids(), stop):
                yield part(piece)
            if sampled:
                yield part("")

        return parts()

    @property
    def has_end(self) -> bool:
        """True if EOS ends a text; False if it ends a line."""
        return self.tokenizer.reads_line_ends()

    def encode(self, prompt: str) -> list[int]:
        """Return the ids of a prompt, whose last line is not closed; EOS for an empty one."""
        # With ids for characters, a space at the end of the prompt is kept: a new word follows it.
        if self.tokenizer.reads_line_ends():
            return self.tokenizer.encode(prompt)[:-1] or [EOS]
        *lines, last = prompt.split("\n")
        encoded = [id for line in self.tokenizer.encode_batch(lines) for id in line]
        ids = [*encoded, *self.tokenizer.encode(last)[:-1]]
        spaced = last.strip() and last[-1].isspace()
        if spaced and self.tokenizers.config.kind == "characters":
            ids += self.tokenizer.encode("a a")[1:2]
        return ids or [EOS]

    def continuation(
        self, prompt: str, ids: Sequence[int], generated: Iterable[int], stop: Sequence[str]
    ) -> Iterator[str]:
        """Yield what generated ids add to a prompt with these ids, up to a stop."""
        pieces = stream_text(self.tokenizer, ids, generated)
        if not self.has_end:
            pieces = _without_second_space(prompt, pieces)
        return truncate_at_stop(stop, pieces)


def check_forced(
    forced: Sequence[int], tokenizer: Tokenizer, limit: int | None = None, *, has_end: bool = True
) -> None:
    """Raise if a model cannot write these ids, or if they are more than `limit`."""
    for place, id in enumerate(forced):
        if not BOS < id < len(tokenizer):
            raise InvalidInputError(f"id {id}: expected {EOS} to {len(tokenizer) - 1}", "bad_token")
        if has_end and id == EOS and place + 1 < len(forced):
            raise InvalidInputError(
                f"id {EOS} ends the output; no token can follow it", "bad_token"
            )
    if limit is not None and len(forced) > limit:
        raise InvalidInputError(
            f"{len(forced)} tokens are forced, but the output has at most {limit}", "bad_token"
        )


def scored(tokenizer: Tokenizer, choice: Choice) -> ScoredToken:
    """Add the name of a token."""
    name = tokenizer.symbol(choice.id)
    return ScoredToken(choice.id, name, choice.probability, choice.sampling_probability)


def stream_text(tokenizer: Tokenizer, before: Sequence[int], ids: Iterable[int]) -> Iterator[str]:
    """Yield what each id adds to the text after `before`, in whole characters.

    A character may consist of several ids (its bytes); one that its line leaves incomplete is left
    out. EOS is a line end, or, if the tokenizer has ids for those, the end.
    """
    ends = tokenizer.reads_line_ends()
    line = list(before)
    if EOS in line:
        line = line[len(line) - line[::-1].index(EOS) :]
    line = line[-KEPT:]
    n_shown = len(tokenizer.decode(line))
    for id in ids:
        if id == EOS and ends:
            return
        if id == EOS:
            line, n_shown = [], 0
            yield "\n"
            continue
        line.append(id)
        text = tokenizer.decode(line)
        complete = text.rstrip(INCOMPLETE)
        if len(complete) > n_shown:
            yield complete[n_shown:]
            n_shown = len(complete)
            if len(line) > MAX_LINE and complete == text:  # keep the time per token constant
                line = line[-KEPT:]
                n_shown = len(tokenizer.decode(line))


def _without_second_space(prompt: str, pieces: Iterator[str]) -> Iterator[str]:
    """Drop the space before the first word if the prompt ends with one."""
    for piece in pieces:
        yield piece.removeprefix(" ") if prompt[-1:].isspace() else piece
        yield from pieces


def truncate_at_stop(stop: Sequence[str], pieces: Iterable[str]) -> Iterator[str]:
    """Yield the text before the first stop; what may be the beginning of one is held back."""
    held = ""
    for piece in pieces:
        held += piece
        places = [place for text in stop if (place := held.find(text)) >= 0]
        if places:
            if min(places):
                yield held[: min(places)]
            return
        starts = (text[:n] for text in stop for n in range(1, len(text)))
        n_kept = max((len(start) for start in starts if held.endswith(start)), default=0)
        if ready := held[: len(held) - n_kept]:
            yield ready
            held = held[len(ready) :]
    if held:
        yield held
