"""Masked tokens: `MaskFiller.from_dir("runs/bert").fill("오늘은 [MASK]이다")`."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.data.batches.masked import Masker, split_sequences, validation_batches
from polyhead.decoding.hypotheses import log_normaliser
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.metrics.masked_tokens import MASKING, score_masked_tokens, score_replaced_tokens
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.models.registry import FAMILIES, TaskName
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.line_input import Lines, as_lines
from polyhead.pipelines.result_list import MetricTable, ResultList, as_texts
from polyhead.render import notebook
from polyhead.special_tokens import MASK
from polyhead.tokenizers.base import encode_lines
from polyhead.tokenizers.mask_tokens import MaskedText, candidates, encode_masked, word_of

SCORED_AT_ONCE = 4096  # tokens
MIN_BEAM = 5  # hypotheses of a joint filling, even if fewer are returned


@dataclass(frozen=True)
class Guess:
    """A word for a masked token, and its probability among all that are allowed there."""

    text: str
    probability: float


@dataclass(frozen=True)
class Filling:
    """All masked tokens filled together; `log_p` sums over them, each given those to its left."""

    text: str
    words: tuple[str, ...]
    log_p: float


@dataclass(frozen=True)
class Filled:
    """The likeliest guesses for each masked token alone, and the best fillings of all together."""

    text: str
    blanks: list[list[Guess]]
    together: list[Filling]

    def __repr__(self) -> str:
        return f"Filled({self.together[0].text!r}, log_p={self.together[0].log_p:.2f})"

    def _repr_html_(self) -> str:
        rows = [
            [f"[MASK] {number}", notebook.escape(guess.text), notebook.bar(guess.probability)]
            for number, blank in enumerate(self.blanks, start=1)
            for guess in blank
        ]
        best = notebook.escape(self.together[0].text)
        return f"<p>{best}</p>" + notebook.table(["", "word", "probability"], rows)


@dataclass(frozen=True, repr=False)
class MaskFiller(Pipeline):
    """A model that predicts masked tokens, such as BERT or the generator of ELECTRA."""

    tasks: ClassVar[tuple[TaskName, ...]] = ("masked_lm", "replaced_token")
    use: ClassVar[str] = "fill"

    @classmethod
    def from_saved(cls, saved: SavedModel, name: str, device: torch.device | str) -> "MaskFiller":
        """Return the pipeline of a loaded model; see `Pipeline.from_saved`."""
        filler = super().from_saved(saved, name, device)
        if saved.config.vocab <= filler.mask:
            raise CheckpointError(
                f"{name} has no id for {MASK}, so it cannot predict masked tokens", "no_mask_token"
            )
        return filler

    @property
    def task(self) -> TaskName:
        """The task of the training."""
        return FAMILIES[self.saved.family].task

    @property
    def masked_lm(self) -> nn.Module:
        """The model that predicts masked tokens: of a replaced-token detector, its generator."""
        model: Any = self.model
        generator: nn.Module = model.generator if self.task == "replaced_token" else model
        return generator

    def encoder_of(self, _text: str) -> nn.Module:
        """Return the encoder that reads a text."""
        model: Any = self.masked_lm
        encoder: nn.Module = model.encoder
        return encoder

    @property
    def max_length(self) -> int:
        """The number of positions of the model."""
        return int(self.saved.config.max_length)

    @property
    def mask(self) -> int:
        """The id of [MASK]: the first one after the tokenizer's own."""
        return len(self.tokenizer)

    @cached_property
    def allowed(self) -> dict[bool, Int[Tensor, "candidate"]]:
        """The ids allowed at the beginning of a word (True) and inside a word (False)."""
        return {
            begins: torch.tensor(candidates(self.tokenizer, begins)) for begins in (True, False)
        }

    def evaluate(self, text: Lines) -> MetricTable:
        """Return the metrics of a validation on a text: lines in memory, or files.

        Example: `filler.evaluate("test.txt")["accuracy"]`
        """
        return MetricTable(self.score(as_lines(text, "evaluate")))

    def score(self, lines: Sequence[str], map_batches: MapBatches = map_here) -> dict[str, float]:
        """Return the metrics of a validation on a text, with the same masks every time."""
        lines = as_texts(lines, "score")
        masking = replace(MASKING[self.task], share=self.data.blanks)
        masker = Masker(masking, self.mask, self.saved.config.vocab)
        longest = min(self.data.max_length, self.max_length)
        pieces = split_sequences(encode_lines(self.tokenizer, lines), longest, len(self.tokenizer))
        score = score_masked_tokens if self.task == "masked_lm" else score_replaced_tokens
        batches = validation_batches(pieces, masker, SCORED_AT_ONCE)
        return score(batches, self.model, map_batches)

    @overload
    def fill(self, text: str, top: int = 5) -> Filled: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, text: Iterable[str], top: int = 5) -> ResultList[Filled]: ...
    def fill(self, text: str | Iterable[str], top: int = 5) -> Filled | ResultList[Filled]:
        """Return the likeliest words for every [MASK] of a text, or of every text of a list.

        Only ids that fit are allowed: after a space those that begin a word, else those that
        continue one. Probabilities are shares among them.

        text: with at least one [MASK].
        top: the number of guesses for each [MASK], and of fillings of all of them.

        Example: `filler.fill("오늘은 [MASK]이다").blanks[0][0].text`
        """
        if top < 1:
            raise ConfigError(f"top = {top}: expected at least 1", "out_of_range")
        if not isinstance(text, str):
            return ResultList(self.fill(line, top) for line in as_texts(text, "fill"))
        blanked = encode_masked(self.tokenizer, text, self.mask)
        self.check_length(len(blanked.ids))
        rows = self._log_p([blanked.ids], blanked.places)[0]
        guesses = [
            [Guess(word, math.exp(log_p)) for _, word, log_p in self._best(row, begins, top)]
            for row, begins in zip(rows, blanked.begins, strict=True)
        ]
        return Filled(text, guesses, self._fill_together(text, blanked, top))

    def check_length(self, n_tokens: int) -> None:
        """Raise if a text has more tokens than the model reads."""
        if n_tokens > self.max_length:
            raise DataError(
                f"a text of {n_tokens} tokens; {self.name} reads at most {self.max_length}",
                "text_too_long",
            )

    def _fill_together(self, text: str, blanked: MaskedText, top: int) -> list[Filling]:
        """Fill all masks from left to right by beam search."""
        width = max(top, MIN_BEAM)
        beams: list[tuple[float, list[int], tuple[str, ...]]] = [(0.0, blanked.ids, ())]
        for place, begins in zip(blanked.places, blanked.begins, strict=True):
            rows = self._log_p([ids for _, ids, _ in beams], [place])
            grown = [
                (total + log_p, [*ids[:place], id, *ids[place + 1 :]], (*words, word))
                for (total, ids, words), row in zip(beams, rows, strict=True)
                for id, word, log_p in self._best(row[0], begins, width)
            ]
            beams = sorted(grown, key=lambda beam: -beam[0])[:width]
        return [Filling(fill_masks(text, words), words, log_p) for log_p, _, words in beams[:top]]

    @torch.inference_mode()
    def _log_p(
        self, rows: Sequence[list[int]], places: Sequence[int]
    ) -> Float[Tensor, "row place vocab"]:
        """Return the log-probabilities at some places of texts of equal length."""
        model: Any = self.masked_lm
        ids = torch.tensor(rows, device=self.device)
        states = model.hidden(ids)[:, list(places)]
        logits = model.to_logits(model.transform(states)).float()
        log_normaliser(logits)  # raises if they are not finite
        return logits.log_softmax(-1).cpu()

    def _best(
        self, row: Float[Tensor, "vocab"], begins: bool, top: int
    ) -> list[tuple[int, str, float]]:
        """Return id, word and log-probability of the likeliest ids that are allowed here."""
        ids = self.allowed[begins]
        shares = row[ids].log_softmax(-1)
        best = shares.topk(min(top, len(ids)))
        return [
            (int(ids[n]), word_of(self.tokenizer, int(ids[n])), log_p)
            for log_p, n in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]


def fill_masks(text: str, words: Sequence[str]) -> str:
    """Return the text with each [MASK] replaced by a word; its spaces stay as they are."""
    parts = text.split(MASK)
    filled = (word + part for word, part in zip(words, parts[1:], strict=True))
    return parts[0] + "".join(filled)
