"""Replaced words: `ReplacedTokenDetector.from_dir("runs/electra").detect("어제 사과를 마셨다")`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, overload

import torch
from torch import nn

from polyhead.errors import DataError
from polyhead.models.registry import TaskName
from polyhead.pipelines.mask_filler import MaskFiller
from polyhead.pipelines.result_list import ResultList, as_texts
from polyhead.render import notebook
from polyhead.special_tokens import BOS, EOS, MASK
from polyhead.tokenizers.normalize import words_of


@dataclass(frozen=True)
class Suspicion:
    """A word or a token, and the probability that it was replaced."""

    text: str
    probability: float


@dataclass(frozen=True)
class Detected:
    """The probabilities of all tokens of a text, and of its words: the largest of their tokens."""

    text: str
    words: tuple[Suspicion, ...]
    tokens: tuple[Suspicion, ...]

    def __repr__(self) -> str:
        likeliest = max(self.words, key=lambda word: word.probability)
        return f"Detected({self.text!r}, {likeliest.text!r}: {likeliest.probability:.3f})"

    def _repr_html_(self) -> str:
        kept = ((f"{word.text} ", 1 - word.probability) for word in self.words)
        return f"<p>{notebook.words(kept, 'probability of being original')}</p>"


@dataclass(frozen=True, repr=False)
class ReplacedTokenDetector(MaskFiller):
    """An ELECTRA: its discriminator detects replaced words, its generator predicts masked ones."""

    tasks: ClassVar[tuple[TaskName, ...]] = ("replaced_token",)
    use: ClassVar[str] = "detect"

    def encoder_of(self, text: str) -> nn.Module:
        """Return the encoder that reads a text: the generator's if it has masked tokens."""
        model: Any = self.model
        discriminator: nn.Module = model.discriminator
        return super().encoder_of(text) if MASK in text else discriminator

    @overload
    def detect(self, text: str) -> Detected: ...  # type: ignore[overload-overlap]
    @overload
    def detect(self, text: Iterable[str]) -> ResultList[Detected]: ...
    def detect(self, text: str | Iterable[str]) -> Detected | ResultList[Detected]:
        """Return for every word of a text, or of every text of a list, how likely it was replaced.

        text: without [MASK].

        Example: `[word.text for word in detector.detect(text).words if word.probability >= 0.5]`
        """
        results = ResultList(map(self._detect, as_texts(text, "detect")))
        return results[0] if isinstance(text, str) else results

    @torch.inference_mode()
    def _detect(self, text: str) -> Detected:
        if MASK in text:
            raise DataError(
                f"{MASK} in the text: expected a complete text; predict it with polyhead fill",
                "mask_in_text",
            )
        pieces = self.tokenizer.pieces(self.tokenizer.normalise(text))
        if not pieces:
            raise DataError("the text is empty", "empty_text")
        self.check_length(len(pieces) + 2)
        model: Any = self.model
        ids = torch.tensor([[BOS, *(piece.id for piece in pieces), EOS]], device=self.device)
        probabilities = model.suspect(ids)[0, 1:-1].float().sigmoid().tolist()
        tokens = [Suspicion(piece.text, p) for piece, p in zip(pieces, probabilities, strict=True)]
        words: dict[int, list[Suspicion]] = {}
        for token, word in zip(tokens, words_of(pieces), strict=True):
            words.setdefault(word, []).append(token)
        return Detected(text, tuple(map(_joined, words.values())), tuple(tokens))


def _joined(tokens: list[Suspicion]) -> Suspicion:
    text = "".join(token.text for token in tokens).strip(" ")
    return Suspicion(text, max(token.probability for token in tokens))
