"""Text generation: `TextGenerator.from_dir("runs/mine").generate("오늘은")`."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.checkpoint.model_files import resolve
from polyhead.decoding.generate import generate, last_window
from polyhead.decoding.hypotheses import make_generator
from polyhead.decoding.options import NOT_FINITE, DecodeConfig, DecodingStep
from polyhead.engines.ctranslate2_engine import CTranslate2Generator
from polyhead.errors import CheckpointError, DataError
from polyhead.metrics.perplexity import MapBatches, TextWindows, map_here, text_windows
from polyhead.models.registry import TaskName
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.fast_pipelines import GENERATORS, fast_obstacle, use_fast
from polyhead.pipelines.generation import TextContinuation, check_forced
from polyhead.pipelines.line_input import Lines, as_lines
from polyhead.pipelines.result_list import MetricTable, as_texts

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

    def _repr_html_(self) -> str:
        return MetricTable(asdict(self))._repr_html_()


@dataclass(frozen=True, repr=False)
class TextGenerator(Pipeline, TextContinuation):
    """A language model that continues a text.

    engine: decodes greedy search instead of torch, unless tokens are forced or the likeliest ones
        are wanted, the model has hooks, or its weights were changed. Samples of a seed do not
        depend on it.
    """

    engine: CTranslate2Generator | None = None
    tasks: ClassVar[tuple[TaskName, ...]] = ("language_modeling",)

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

    def with_engine(self, engine: str, compute_type: str = "auto") -> "TextGenerator":
        """Return a generator that decodes with another engine; see `Translator.with_engine`."""
        if not use_fast(engine, fast_obstacle(Path(self.name), GENERATORS)):
            return replace(self, engine=None)
        fast = CTranslate2Generator(resolve(Path(self.name)), compute_type)
        return replace(self, engine=fast)

    def is_fast(self, options: DecodeConfig, forced: Sequence[int] = (), top: int = 0) -> bool:
        """Return whether CTranslate2 decodes with these options."""
        is_able = self.engine is not None and not (options.sample or forced or top)
        return is_able and self._state() == self.loaded

    def steps(
        self,
        ids: Sequence[int],
        options: DecodeConfig,
        seed: int,
        forced: Sequence[int] = (),
        top: int = 0,
    ) -> Iterator[DecodingStep]:
        """Yield `options.max_length` tokens after the ids of a prompt; see `stream_tokens`."""
        if self.engine is not None and self.is_fast(options, forced, top):
            return self.engine.generate(ids, options, seed, self.max_length)
        model: Any = self.model
        return generate(
            model, ids, options, make_generator(seed), self.max_length,
            forced=forced, top=top, device=self.device,
        )  # fmt: skip

    def window(self, prompt: str, ids: Sequence[int]) -> tuple[list[int], int]:
        """Return the tokens that the model read to generate the last of `ids`, and that one.

        The number is that of the tokens that it read at once. Without ids: those of the prompt.
        """
        check_forced(ids, self.tokenizer, has_end=self.has_end)
        given = self.encode(prompt)
        start, end = last_window(len(given), len(ids), self.max_length)
        return [*given, *ids][start:], end - start

    def evaluate(self, text: Lines, *, as_generated: bool = False) -> LanguageScore:
        """Return the score of a text: lines in memory, or files; see `score`.

        Example: `generator.evaluate("test.txt").perplexity`
        """
        return self.score(as_lines(text, "evaluate"), as_generated=as_generated)

    def score(self, lines: Sequence[str], *, as_generated: bool = False) -> LanguageScore:
        """Return loss, perplexity and bits per character; every token is predicted once.

        as_generated: predict token by token as `generate` does, instead of reading windows of the
            text at once. It takes longer; the scores differ most for models with LSH attention.
        """
        return self.score_windows(self.windows(lines), as_generated=as_generated)

    def windows(self, lines: Sequence[str]) -> TextWindows:
        """Return a text in windows as long as the model's context."""
        lines = as_texts(lines, "score")
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
        for step in self.steps(ids[:1], greedy, 0, forced=ids[1:]):
            progress(1)
            yield step.chosen.log_p
