"""Text generation: `TextGenerator.from_dir("runs/mine").generate("오늘은")`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.decoding.config import DecodeConfig, make_generator
from polyhead.decoding.generate import generate
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.metrics.perplexity import TextWindows, text_windows
from polyhead.models.registry import Task
from polyhead.pipelines.base import Pipeline, check_list
from polyhead.special_tokens import EOS
from polyhead.tokenizers.base import Tokenizer

INCOMPLETE = "\ufffd"  # how a tokenizer shows a character of which some bytes are missing
MAX_LINE, KEPT = 64, 16  # ids of a line that are decoded with each new one; what is kept of them
SCORED_AT_ONCE = 4096  # tokens


@dataclass(frozen=True)
class LanguageScore:
    """Nats per token, their exponential, and bits per character of a text."""

    loss: float
    perplexity: float
    bits_per_character: float
    n_tokens: int
    n_characters: int
    n_unknown: int


@dataclass(frozen=True, repr=False)
class TextGenerator(Pipeline):
    """A language model that continues a text."""

    tasks: ClassVar[tuple[Task, ...]] = ("language_modeling",)
    use: ClassVar[str] = "generate"

    @classmethod
    def from_saved(cls, saved: SavedModel, name: str, device: torch.device) -> "TextGenerator":
        """Return the pipeline of a loaded model; see `Pipeline.from_saved`."""
        generator = super().from_saved(saved, name, device)
        n_ids = len(generator.tokenizer)
        if n_ids != saved.config.vocab:
            raise CheckpointError(
                f"{name}: {n_ids} ids in its tokenizer, but config.json says {saved.config.vocab}",
                "wrong_vocabulary_size",
            )
        return generator

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

    def stream(
        self,
        prompt: str = "",
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """Yield the continuation incrementally, never splitting a character.

        It has `options.max_length` tokens. A token for the end of a line is written as one; for
        tokenizers that have ids for line ends, such as an imported GPT-2's, EOS ends the text.

        prompt: after an empty one, a new line begins.
        options: how to decode; `defaults` unless given.
        seed: of the random numbers if `options.sample` is set.
        stop: texts at which generation ends; they are not part of the result.
        """
        if isinstance(stop, str) or not all(stop):
            raise ConfigError(
                "stop takes a list of texts, none of them empty; write stop=[text]", "bad_stop"
            )
        options = self.defaults if options is None else options
        ids = self.encode(prompt)
        model: Any = self.model
        new_ids = generate(model, ids, options, make_generator(seed), self.max_length, self.device)
        pieces = stream_text(self.tokenizer, ids, new_ids)
        if not self.tokenizer.reads_line_ends():
            pieces = _without_second_space(prompt, pieces)
        return truncate_at_stop(stop, pieces)

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

    def score(self, lines: Sequence[str]) -> LanguageScore:
        """Return loss, perplexity and bits per character; every token is predicted once."""
        return self.score_windows(self.windows(lines))

    def windows(self, lines: Sequence[str]) -> TextWindows:
        """Return a text in windows as long as the model's context."""
        check_list(lines, "score", "lines")
        if not any(line.strip() for line in lines):
            raise DataError("no text to score: all lines are empty", "empty_text")
        return text_windows(self.tokenizer, lines, self.max_length, SCORED_AT_ONCE)

    def score_windows(
        self, windows: TextWindows, progress: Callable[[int], None] = lambda _: None
    ) -> LanguageScore:
        """Return the score of a text in windows; `progress` is called with numbers of tokens."""
        scores = windows.validate(self.model, progress=progress)
        return LanguageScore(
            **scores,
            n_tokens=windows.n_tokens,
            n_characters=windows.n_characters,
            n_unknown=windows.n_unknown,
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
