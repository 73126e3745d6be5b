"""Continuation of texts; how tokens are chosen is left to an engine.

    prompt → ids → tokens, one by one → text in whole characters → truncated at a stop

This module does not import torch, so that a process with another engine does without it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.pipelines.run_settings import RunSettings
from polyhead.special_tokens import EOS
from polyhead.tokenizers.base import Tokenizer
from polyhead.tokenizers.storage import TokenizerPair

INCOMPLETE = "\ufffd"  # how a tokenizer shows a character of which some bytes are missing
MAX_LINE, KEPT = 64, 16  # ids of a line that are decoded with each new one; what is kept of them


class TextContinuation(RunSettings):
    """Continuation of texts with a language model."""

    @property
    @abstractmethod
    def tokenizers(self) -> TokenizerPair:
        """The tokenizers of the source and of the target."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the text that the model reads."""
        return self.tokenizers.source

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The number of tokens that the model reads at once."""

    @abstractmethod
    def generated_ids(self, ids: Sequence[int], options: DecodeConfig, seed: int) -> Iterator[int]:
        """Yield `options.max_length` ids that follow those of a prompt."""

    def stream(
        self,
        prompt: str = "",
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """Yield the continuation incrementally, never splitting a character.

        prompt: after an empty one, a new line begins.
        options: how to decode; `defaults` unless given.
        seed: of the random numbers if `options.sample` is set.
        stop: texts at which generation ends; they are not part of the text.
        """
        check_stop(stop)
        ids, options = self.encode(prompt), self.defaults if options is None else options
        return self.continuation(prompt, ids, self.generated_ids(ids, options, seed), stop)

    def generate(
        self,
        prompt: str = "",
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> str:
        """Return a continuation of the prompt; see `stream` for the arguments.

        Example: `generator.generate("오늘은", stop=["."])`
        """
        return "".join(self.stream(prompt, options=options, seed=seed, stop=stop))

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


def check_stop(stop: Sequence[str]) -> None:
    """Raise ConfigError unless these are texts that can end a continuation."""
    if isinstance(stop, str) or not all(stop):
        raise ConfigError(
            "stop takes a list of texts, none of them empty; write stop=[text]", "bad_stop"
        )


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
