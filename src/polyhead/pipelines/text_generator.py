"""Text generation: `TextGenerator.from_dir("runs/mine").generate("오늘은")`.

    prompt → ids → backend: tokens, one by one → text in whole characters → truncated at a stop

This module imports neither torch nor NumPy: CTranslate2 generates without them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Unpack, overload

from polyhead.decoding.options import NOT_FINITE, Choice, DecodeConfig, DecodingStep
from polyhead.errors import CheckpointError, ConfigError, DataError, InvalidInputError
from polyhead.pipelines.backends import DecodingPipeline, GenerationOptions
from polyhead.pipelines.result_list import Lines, as_lines, as_texts
from polyhead.render import notebook
from polyhead.special_tokens import BOS, EOS
from polyhead.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    import torch

    from polyhead.checkpoint.model_dir import SavedModel
    from polyhead.metrics.perplexity import MapBatches, TextWindows

INCOMPLETE = "\ufffd"  # how a tokenizer shows a character of which some bytes are missing
MAX_LINE, KEPT = 64, 16  # ids of a line that are decoded with each new one; what is kept of them
SCORED_AT_ONCE = 4096  # tokens


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
        return notebook.MetricTable(asdict(self))._repr_html_()


@dataclass(frozen=True, repr=False)
class TextGenerator(DecodingPipeline):
    """A language model that continues a text.

    Where both backends may be used, samples are drawn by torch, so that those of a seed do not
    depend on what is installed.
    """

    tasks: ClassVar[tuple[str, ...]] = ("language_modeling",)
    use: ClassVar[str] = "generate"

    @classmethod
    def from_saved(
        cls, saved: "SavedModel", name: str, device: "torch.device | str"
    ) -> "TextGenerator":
        """Return the pipeline of a loaded model; see `Pipeline.from_saved`."""
        generator = super().from_saved(saved, name, device)
        n_ids = len(generator.tokenizer)
        if n_ids != saved.config.vocab:
            raise CheckpointError(
                f"{name}: {n_ids} ids in its tokenizer, but config.json says {saved.config.vocab}",
                "wrong_vocabulary_size",
            )
        return generator

    def option_obstacle(self, options: DecodeConfig, *, forces: bool = False) -> str | None:
        """Return what CTranslate2 lacks of the options, or None if it has all."""
        if forces:
            return "it cannot force tokens, and does not tell the likeliest ones"
        if options.sample and "torch" in self.engines:
            return "its random numbers are others"
        if options.sample and options.top_p < 1 and options.temperature != 1:
            return "it applies top-p before the temperature"
        return None

    def steps(
        self,
        ids: Sequence[int],
        options: DecodeConfig,
        seed: int,
        forced: Sequence[int] = (),
        top: int = 0,
    ) -> Iterator[DecodingStep]:
        """Yield `options.max_length` tokens after the ids of a prompt; see `Backend.generate`."""
        can_choose = "ctranslate2" in self.engines and not self.files.is_changed
        forces = bool(forced or top)
        backend = self.backend(options, forces=forces) if can_choose else self.torch
        return backend.generate(ids, options, seed, self.max_length, forced=forced, top=top)

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
        has_end = self.has_end
        check_forced(forced, self.tokenizer, options.max_length, has_end=has_end)
        ids = self.encode(prompt)
        steps = self.steps(ids, options, seed, forced, top)
        sampled: list[DecodingStep] = []  # since the last part of the text

        def sampled_ids() -> Iterator[int]:
            for step in steps:
                sampled.append(step)
                yield step.chosen.id

        def parts() -> Iterator[GeneratedText]:
            pieces = stream_text(self.tokenizer, ids, sampled_ids())
            if not has_end:
                pieces = _without_second_space(prompt, pieces)
            name = partial(scored, self.tokenizer)
            for text in chain(truncate_at_stop(stop, pieces), [""]):
                if text or sampled:
                    likeliest = tuple(tuple(map(name, step.likeliest)) for step in sampled)
                    tokens = tuple(name(step.chosen) for step in sampled)
                    sampled.clear()
                    yield GeneratedText(text, tokens, likeliest if top else ())

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

    def window(self, prompt: str, ids: Sequence[int]) -> tuple[list[int], int]:
        """Return the tokens that the model read to generate the last of `ids`, and that one.

        The number is that of the tokens that it read at once. Without ids: those of the prompt.
        """
        from polyhead.decoding.generate import last_window

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

    def windows(self, lines: Sequence[str]) -> "TextWindows":
        """Return a text in windows as long as the model's context."""
        from polyhead.metrics.perplexity import text_windows

        lines = as_texts(lines, "score")
        if not any(line.strip() for line in lines):
            raise DataError("no text to score: all lines are empty", "empty_text")
        return text_windows(self.tokenizer, lines, self.max_length, SCORED_AT_ONCE)

    def score_windows(
        self,
        windows: "TextWindows",
        progress: Callable[[int], None] = lambda _: None,
        *,
        as_generated: bool = False,
        map_batches: "MapBatches | None" = None,
    ) -> LanguageScore:
        """Return the score of a text in windows; `progress` is called with numbers of tokens."""
        from polyhead.metrics.perplexity import map_here

        map_batches = map_here if map_batches is None else map_batches
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


def FastGenerator(path: str | Path, *, compute_type: str = "auto") -> TextGenerator:
    """Load a language model for CTranslate2 alone; torch is not needed, but for its attention.

    It forces no tokens and shows no likeliest ones. Sampling draws other random numbers than with
    torch. Arguments are those of `FastTranslator`.

    Example: `polyhead.FastGenerator("runs/writer").generate("오늘은")`
    """
    generator = TextGenerator.open(path, "cpu", "ctranslate2", compute_type, only=True)
    _ = generator.ctranslate2  # converts it
    return generator
