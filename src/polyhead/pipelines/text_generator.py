"""Text generation: `TextGenerator.from_dir("runs/mine").generate("오늘은")`."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.decoding.generate import Choice, DecodingStep, generate, last_window
from polyhead.decoding.hypotheses import make_generator
from polyhead.decoding.options import NOT_FINITE, DecodeConfig
from polyhead.errors import CheckpointError, DataError, check_list
from polyhead.metrics.perplexity import MapBatches, TextWindows, map_here, text_windows
from polyhead.models.registry import Task
from polyhead.pipelines.base import Pipeline, check_forced
from polyhead.pipelines.generation import TextContinuation, check_stop
from polyhead.tokenizers.base import Tokenizer

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


@dataclass(frozen=True)
class ScoredToken:
    """A token that was generated, or could have been.

    text: its name in the vocabulary, where ▁ stands for a space.
    probability: the model's own.
    sampling_probability: that of being drawn, after temperature, top-k and top-p; None for greedy
        search.
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


@dataclass(frozen=True, repr=False)
class TextGenerator(Pipeline, TextContinuation):
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

    def generated_ids(self, ids: Sequence[int], options: DecodeConfig, seed: int) -> Iterator[int]:
        """Yield `options.max_length` ids that follow those of a prompt."""
        return (step.chosen.id for step in self._steps(ids, options, seed))

    def _steps(
        self,
        ids: Sequence[int],
        options: DecodeConfig,
        seed: int,
        forced: Sequence[int] = (),
        top: int = 0,
    ) -> Iterator[DecodingStep]:
        model: Any = self.model
        return generate(
            model, ids, options, make_generator(seed), self.max_length,
            forced=forced, top=top, device=self.device,
        )  # fmt: skip

    def generate_tokens(
        self,
        prompt: str = "",
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
        forced: Sequence[int] = (),
    ) -> GeneratedText:
        """Return a continuation with the probabilities of its tokens; see `stream_tokens`.

        Example: `generator.generate_tokens("오늘은").tokens[0].probability`
        """
        parts = list(
            self.stream_tokens(prompt, options=options, seed=seed, stop=stop, forced=forced)
        )
        tokens = tuple(token for part in parts for token in part.tokens)
        return GeneratedText("".join(part.text for part in parts), tokens)

    def stream_tokens(
        self,
        prompt: str = "",
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
        forced: Sequence[int] = (),
        top: int = 0,
    ) -> Iterator[GeneratedText]:
        """Yield the continuation in parts of whole characters, with their tokens.

        It has `options.max_length` tokens. A token for the end of a line is written as one; for
        tokenizers that have ids for line ends, such as an imported GPT-2's, EOS ends the text.

        prompt: after an empty one, a new line begins.
        options: how to decode; `defaults` unless given.
        seed: of the random numbers if `options.sample` is set.
        stop: texts at which generation ends; they are not part of the text.
        forced: ids with which the continuation begins.
        top: the number of likeliest tokens to report with each.
        """
        check_stop(stop)
        options = self.defaults if options is None else options
        check_forced(forced, self.tokenizer, options.max_length, has_end=self.has_end)
        ids = self.encode(prompt)
        steps = self._steps(ids, options, seed, forced, top)
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

    def window(self, prompt: str, ids: Sequence[int]) -> tuple[list[int], int]:
        """Return the tokens that the model read to generate the last of `ids`, and that one.

        The number is that of the tokens that it read at once. Without ids: those of the prompt.
        """
        check_forced(ids, self.tokenizer, has_end=self.has_end)
        given = self.encode(prompt)
        start, end = last_window(len(given), len(ids), self.max_length)
        return [*given, *ids][start:], end - start

    def score(self, lines: Sequence[str], *, as_generated: bool = False) -> LanguageScore:
        """Return loss, perplexity and bits per character; every token is predicted once.

        as_generated: predict token by token as `generate` does, instead of reading windows of the
            text at once. It takes longer; the scores differ most for models with LSH attention.
        """
        return self.score_windows(self.windows(lines), as_generated=as_generated)

    def windows(self, lines: Sequence[str]) -> TextWindows:
        """Return a text in windows as long as the model's context."""
        check_list(lines, "score", "lines")
        if not any(line.strip() for line in lines):
            raise DataError("no text to score: all lines are empty", "empty_text")
        return text_windows(self.tokenizer, lines, self.max_length, SCORED_AT_ONCE)

    def score_windows(
        self,
        windows: TextWindows,
        progress: Callable[[int], None] = lambda _: None,
        *,
        as_generated: bool = False,
        map_batches: MapBatches = map_here,
    ) -> LanguageScore:
        """Return the score of a text in windows; `progress` is called with numbers of tokens."""
        if as_generated:  # one batch: every token is generated after all others before it

            def total(ids: Sequence[int]) -> float:
                return -sum(self._log_probabilities(ids, progress))

            scores = windows.scores(sum(map_batches(total, [windows.ids])))
        else:
            scores = windows.validate(self.model, map_batches, progress)
        if not math.isfinite(scores["loss"]):
            raise CheckpointError(NOT_FINITE, "not_finite")
        return LanguageScore(
            **scores,
            n_tokens=windows.n_tokens,
            n_characters=windows.n_characters,
            n_unknown=windows.n_unknown,
        )

    def _log_probabilities(
        self, ids: Sequence[int], progress: Callable[[int], None]
    ) -> Iterator[float]:
        """Yield log p of every token after the first, as in its generation."""
        greedy = DecodeConfig(max_length=len(ids) - 1)
        for step in self._steps(ids[:1], greedy, 0, forced=ids[1:]):
            progress(1)
            yield step.chosen.log_p


def scored(tokenizer: Tokenizer, choice: Choice) -> ScoredToken:
    """Add the name of a token."""
    name = tokenizer.symbol(choice.id)
    return ScoredToken(choice.id, name, choice.probability, choice.sampling_probability)
