"""A model that fills in blanks: `polyhead.load("runs/bert").fill("오늘은 [MASK]이다")`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead import devices
from polyhead.checkpoint import model_dir as model_folder
from polyhead.config import from_dict
from polyhead.data.batches.masked import Masker, split_sequences, validation_batches
from polyhead.data.config import DataConfig
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.metrics.masked_tokens import MASKING, score_masked_tokens, score_replaced_tokens
from polyhead.models.electra import Electra
from polyhead.models.registry import FAMILIES as REGISTRY
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.family_checks import family_of
from polyhead.special_tokens import MASK
from polyhead.tokenizers.mask_tokens import MaskedText, candidates, encode_masked, word_of

FAMILIES = ("bert", "electra")
SCORED_AT_ONCE = 4096  # tokens
LEAST_WIDTH = 5  # hypotheses of a joint filling, also if fewer are asked for


@dataclass(frozen=True)
class Guess:
    """What may stand in a blank, and how likely it is among all that may."""

    text: str
    probability: float


@dataclass(frozen=True)
class Filling:
    """All blanks filled together. `log_p` is the sum over them, each given those to its left."""

    text: str
    words: tuple[str, ...]
    log_p: float


@dataclass(frozen=True)
class Filled:
    """The likeliest guesses for each blank by itself, and the best fillings of all together."""

    text: str
    blanks: list[list[Guess]]
    together: list[Filling]


@dataclass(frozen=True)
class MaskFiller(Pipeline):
    """One model that fills in blanks: a BERT, or an ELECTRA's generator."""

    @property
    def mask(self) -> int:
        """The id of [MASK]: one after the tokenizer's last."""
        return len(self.tokenizer)

    @property
    def masked_lm(self) -> Any:
        """The model that predicts masked tokens: of an ELECTRA, the generator."""
        model = self.saved.model
        return model.generator if isinstance(model, Electra) else model

    @cached_property
    def allowed(self) -> dict[bool, Int[Tensor, "candidate"]]:
        """What may fill a blank that begins a word, and one that does not."""
        return {
            begins: torch.tensor(candidates(self.tokenizer, begins)) for begins in (True, False)
        }

    def score(self, lines: Sequence[str]) -> dict[str, float]:
        """How well it fills in the same blanks every time, and an ELECTRA spots forgeries.

        The figures are those of a validation, with as many blanks and pieces as long as in the
        training.
        """
        if isinstance(lines, str):
            raise ConfigError("score takes a list of lines; write score([text])")
        run: dict[str, Any] = self.saved.about.get("run") or {}
        data = from_dict(DataConfig, run.get("data", {}), "data.")
        task = REGISTRY[self.saved.family].task
        blanking = Masker(
            replace(MASKING[task], share=data.blanks), self.mask, self.saved.config.vocab
        )
        longest = min(data.max_length, self.saved.config.max_length)
        pieces = split_sequences(self.tokenizer.encode_batch(lines), longest)
        batches = validation_batches(pieces, blanking, SCORED_AT_ONCE)
        score = score_masked_tokens if task == "masked_lm" else score_replaced_tokens
        return score(batches, self.saved.model)

    def fill(self, text: str, top: int = 5) -> Filled:
        """The `top` likeliest guesses for every [MASK]; several blanks are filled together too.

        Probabilities are those of the model among the pieces that may stand there: after a space
        only what begins a word, else only what goes on with one.
        """
        if top < 1:
            raise ConfigError(f"top = {top}: expected at least 1")
        blanked = encode_masked(self.tokenizer, text, self.mask)
        longest = self.saved.config.max_length
        if len(blanked.ids) > longest:
            raise DataError(
                f"a text of {len(blanked.ids)} tokens; {self.name} reads at most {longest}"
            )
        rows = self._log_p([blanked.ids], blanked.places)[0]
        guesses = [
            [Guess(word, math.exp(log_p)) for _, word, log_p in self._best(row, begins, top)]
            for row, begins in zip(rows, blanked.begins, strict=True)
        ]
        return Filled(text, guesses, self._together(text, blanked, top))

    def _together(self, text: str, blanked: MaskedText, top: int) -> list[Filling]:
        """Fill from left to right, keeping the likeliest beginnings: a beam search."""
        width = max(top, LEAST_WIDTH)
        beams: list[tuple[float, list[int], tuple[str, ...]]] = [(0.0, blanked.ids, ())]
        for place, begins in zip(blanked.places, blanked.begins, strict=True):
            rows = self._log_p([ids for _, ids, _ in beams], [place])
            grown = [
                (total + log_p, [*ids[:place], id, *ids[place + 1 :]], (*words, word))
                for (total, ids, words), row in zip(beams, rows, strict=True)
                for id, word, log_p in self._best(row[0], begins, width)
            ]
            beams = sorted(grown, key=lambda beam: -beam[0])[:width]
        return [Filling(written(text, words), words, log_p) for log_p, _, words in beams[:top]]

    @torch.inference_mode()
    def _log_p(
        self, rows: Sequence[list[int]], places: Sequence[int]
    ) -> Float[Tensor, "row place vocab"]:
        """The model's log-probabilities at some places of texts of equal length."""
        model = self.masked_lm
        ids = torch.tensor(rows, device=self.device)
        states = model.hidden(ids)[:, list(places)]
        return model.to_logits(model.transform(states)).float().log_softmax(-1).cpu()

    def _best(
        self, row: Float[Tensor, "vocab"], begins: bool, top: int
    ) -> list[tuple[int, str, float]]:
        """The likeliest of the pieces that may stand here, as shares of those."""
        ids = self.allowed[begins]
        shares = row[ids].log_softmax(-1)
        best = shares.topk(min(top, len(ids)))
        return [
            (int(ids[n]), word_of(self.tokenizer, int(ids[n])), log_p)
            for log_p, n in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]


def written(text: str, words: Sequence[str]) -> str:
    """The text with its blanks filled; the spaces around them are the text's own."""
    parts = text.split(MASK)
    filled = (word + part for word, part in zip(words, parts[1:], strict=True))
    return parts[0] + "".join(filled)


def load(path: str | Path, *, device: str = "auto") -> MaskFiller:
    """Load a model that fills in blanks from its folder, or a run's."""
    family = family_of(Path(path))
    if family not in FAMILIES:
        raise CheckpointError(
            f"{path} holds a model of family {family}, which cannot fill in blanks; "
            f"these can: {', '.join(FAMILIES)}"
        )
    chosen = devices.choose(device)
    saved = model_folder.load_model(Path(path), str(chosen))
    if saved.tokenizers is None:
        raise CheckpointError(f"{path} has no tokenizer; it cannot read text")
    if saved.config.vocab <= len(saved.tokenizers.source):
        raise CheckpointError(f"{path} has no id for {MASK}; it was not trained to fill in blanks")
    return MaskFiller(saved, str(path), chosen)
